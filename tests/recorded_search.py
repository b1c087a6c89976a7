"""A search as a driver would record it, for tests of whatever reads the record."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import (
    Decision,
    Record,
    Report,
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.mlflow.names import SEARCH_TAG, TRIAL_TAG
from elsa_tune.tracking.params import read_params
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import read_state
from elsa_tune.tracking.store import RecordStore, local_folder
from elsa_tune.tracking.stores import store_at

LAYERS = 6
# As much of an answer as a list of searches shows.
ANSWER = {"layers": 6, "operating_point": {"fine_tuned_layers": 3}, "reason": None}


def search_started(
    name: str = "first", attempt: int = 1, task: str = "rte", search_id: str = ""
) -> SearchStarted:
    return SearchStarted(
        name=name,
        search_id=search_id or uuid.uuid5(uuid.NAMESPACE_URL, name).hex,
        attempt=attempt,
        model="minilm",
        task=task,
        params={"exploring_trials": "0", "measuring_trials": "4"},
        tags={"git_commit": "0" * 40, "machine": "lab3, 2 cores"},
    )


def trial_started(key: str, attempt: int = 1, search: str = "first", **params: Any) -> TrialStarted:
    """`key` is like measure-N3-s1."""
    phase, depth, seed = key.split("-")
    frozen = int(depth.removeprefix("N"))
    values: dict[str, Any] = {
        "model": "minilm",
        "task": "rte",
        "search": search,
        "phase": phase,
        "learning_rate": 3e-05,
        "frozen_layers": frozen,
        "embeddings_frozen": frozen > 0,
        "fine_tuned_layers": LAYERS - frozen,
        "seed": int(seed.removeprefix("s")),
        "epochs": 3,
        "batch_size": 16,
        "train_size": None,
        "metric": "accuracy",
        "selection": "last",
        "comparison": "weights 53aa51, batch 16",
    }
    return TrialStarted(
        trial=key,
        attempt=attempt,
        params=read_params(values | params),
        tags={"versions": "torch 2.13"},
    )


def report(key: str, evaluation: int, quality: float, attempt: int = 1, **metrics: float) -> Report:
    return Report(
        trial=key,
        attempt=attempt,
        evaluation=evaluation,
        step=evaluation * 100,
        metrics={
            "quality": quality,
            "accuracy": quality,
            "train_loss": 0.7 / evaluation,
            "chance": 146 / 277,
            **metrics,
        },
        notes=["micro-batches of 8"] if evaluation == 2 else [],
        tags={"node": "node-1"},
    )


def trial_ended(
    key: str, status: TrialStatus, quality: float | None = None, attempt: int = 1
) -> TrialEnded:
    metrics = {"train_seconds": 12.25, "peak_memory_mb": 800.0, "trainable_parameters": 22713216.0}
    if quality is not None:
        metrics["quality"] = quality
    return TrialEnded(trial=key, attempt=attempt, status=status, metrics=metrics)


def whole_trial(key: str, quality: float, search: str = "first") -> Iterator[Record]:
    yield trial_started(key, search=search)
    for evaluation in (1, 2, 3):
        yield report(key, evaluation, quality - (3 - evaluation) / 16)
    yield trial_ended(key, TrialStatus.COMPLETED, quality)


def answered(name: str, fine_tuned: int, kept: float) -> list[Record]:
    """Return a search that ended with an answer."""
    point = {"fine_tuned_layers": fine_tuned, "frozen_layers": 6 - fine_tuned}
    curve = {**point, "embeddings_frozen": True, "quality": 0.8, "retention": kept}
    advice = {**point, "action": "fine_tune", "learning_rate": 1e-4, "basis": "raw_certified"}
    answer = {
        "layers": 6,
        "operating_point": point,
        "certified": None,
        "recommendation": advice,
        "curve": [{**curve, "corrected_retention": None, "seeds": 2}],
    }
    return [
        search_started(name),
        Decision(what="answer", value=[answer]),
        SearchEnded(status=SearchStatus.COMPLETED),
    ]


def probed(quality: float, search: str = "first") -> Iterator[Record]:
    """Yield the records of a linear probe, as a search records it."""
    key = f"probe-N{LAYERS}"
    start = trial_started(f"{key}-s0", search=search, learning_rate=None, seed=None)
    yield dataclasses.replace(start, trial=key)
    found = {"quality": quality, "accuracy": quality, "probe_examples": 400.0}
    yield Report(trial=key, evaluation=1, step=0, metrics=found)
    last = {"quality": quality, "train_seconds": 3.5}
    yield TrialEnded(trial=key, status=TrialStatus.COMPLETED, metrics=last)


def whole_search(name: str = "first", trials: int = 4) -> Iterator[Record]:
    """Yield a search that completes: trials measure-N0-s0, measure-N1-s1, ..., one by one."""
    yield search_started(name)
    yield Decision(what="sampler", value={"name": "tpe", "seed": 0})
    for index in range(trials):
        yield from whole_trial(f"measure-N{index % (LAYERS + 1)}-s{index}", 0.5 + index / 100, name)
    yield Decision(what="answer", value=[ANSWER])
    yield SearchEnded(status=SearchStatus.COMPLETED)


def record(
    paths: SearchPaths, records: Iterator[Record] | list[Record], store: RecordStore | None = None
) -> int:
    """Journal the records, forward them to a store if given; returns how many stay unsent."""
    with Journal(paths.journal) as journal:
        forwarder = Forwarder(paths, store.sink(paths.journal)).start() if store else None
        for entry in records:
            stamped = journal.append(entry)
            if forwarder:
                forwarder.offer(stamped)
        return forwarder.close(200) if forwarder else 0


def store_runs(uri: str, search: str = "first") -> dict[str, Any]:
    """MLflow's own runs of a search by their trial's key, "" for its own, none of them twice."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    experiments = [one.experiment_id for one in client.search_experiments()]
    runs = client.search_runs(experiments, f"tags.`{SEARCH_TAG}` = '{search}'")
    keys = [run.data.tags.get(TRIAL_TAG, "") for run in runs]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, runs, strict=True))


def journal_rows(journal: Path) -> list[ResultRow]:
    """Return what a search's journal says, as rows."""
    return rows_of(read_state(journal), journal.absolute().parent)


def store_rows(
    uri: str, tasks: Sequence[str] | None = None, search: str | None = None
) -> list[ResultRow]:
    """Return what a store says, as rows."""
    states = store_at(uri).searches(tasks, search)
    return [row for one in states for row in rows_of(one, local_folder(one.search.tags))]


def searched(storage: Path, name: str = "first", began: float = 0.0) -> SearchPaths:
    """Write a journal with a curve: the full model and three frozen layers, two seeds each.

    began: when the search did, seconds since the epoch; 0 for now.
    """
    records: list[Record] = [dataclasses.replace(search_started(name), time=began)]
    for frozen, quality in ((0, 0.9), (0, 0.89), (3, 0.88), (3, 0.87)):
        records += whole_trial(f"measure-N{frozen}-s{len(records)}", quality, name)
    return journal_of(storage, name, records)


def journal_of(storage: Path, name: str, records: list[Record]) -> SearchPaths:
    """Write a search of which there is only a journal."""
    paths = SearchPaths(storage, name)
    record(paths, records)
    return paths
