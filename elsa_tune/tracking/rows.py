"""Recorded trials as result rows: the same from the MLflow store and from a search's journal.

It must not judge or pool results; that is analysis. What a row needs stands in these params, tags
and metrics: `model task phase seed learning_rate frozen_layers embeddings_frozen layers (or
fine_tuned_layers) metric selection train_size epochs comparison search`, metrics `chance
train_seconds peak_memory_mb trainable_parameters`.
"""

from __future__ import annotations

import math
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from elsa_tune.errors import ElsaTuneError, ResultsError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import PROBE_EXAMPLES, Phase, Selection, TrialStatus
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.journal_records import param_text
from elsa_tune.tracking.lock import is_held
from elsa_tune.tracking.mlflow_reader import StoredRun, read_metric, read_runs
from elsa_tune.tracking.names import (
    EVALUATION,
    HOST_TAG,
    JOURNAL_TAG,
    MACHINE_TAG,
    PREDICTIONS_TAG,
    SEARCH_ID_TAG,
    SEARCH_TAG,
    STATUS_TAG,
    TRIAL_QUALITY,
)
from elsa_tune.tracking.paths import lock_of
from elsa_tune.tracking.predictions import predictions_place
from elsa_tune.tracking.state import SearchState, TrialState


def read_rows(
    tracking_uri: str,
    model: str | None = None,
    tasks: Sequence[str] | None = None,
    search: str | None = None,
) -> list[ResultRow]:
    """One row a trial from the store, in the order of their start; None asks for every one.

    Trials of unfinished searches come with their status; one that has only just begun, without
    params yet, is left out. Raises TrackingError when the store is
    missing or does not answer, ResultsError for a trial that lacks what a row needs.
    """
    runs = read_runs(tracking_uri, tasks, search)
    alive = {run.tags[SEARCH_ID_TAG]: driver_may_live(run) for run in runs if not run.trial}
    folders = {run.tags[SEARCH_ID_TAG]: _local_folder(run) for run in runs if not run.trial}
    rows: list[ResultRow] = []
    for run in runs:
        if not run.trial or (model is not None and run.params.get("model") != model):
            continue
        name = run.tags[SEARCH_TAG]
        status = TrialStatus(run.tags.get(STATUS_TAG, TrialStatus.RUNNING))
        if status is TrialStatus.RUNNING and not alive.get(run.tags[SEARCH_ID_TAG], True):
            status = TrialStatus.INTERRUPTED
        if not run.params and not status.is_final:
            continue  # a run gets its params a moment after it was made, or from the next driver
        metrics = dict(run.metrics)
        if TRIAL_QUALITY in metrics:
            metrics["quality"] = metrics[TRIAL_QUALITY]
        row = _row(name, run.trial, _Values(run.params, metrics, run.tags), status)
        folder = folders.get(run.tags[SEARCH_ID_TAG])
        artifact = run.tags.get(PREDICTIONS_TAG)
        place = predictions_place(artifact, folder, run.run_id) if artifact else None
        rows.append(replace(row, predictions=place))
    return rows


def read_journal_rows(journal: Path) -> list[ResultRow]:
    """The same rows from a search's journal, also where MLflow has not got everything yet."""
    state = SearchState.replay(read_journal(journal), alive=is_held(lock_of(journal)))
    return rows_of(state, journal.absolute().parent)


def read_histories(
    tracking_uri: str, tasks: Sequence[str] | None = None, search: str | None = None
) -> dict[tuple[str, str], tuple[float, ...]]:
    """By (search, trial): the score at each evaluation of an exploring trial's last attempt.

    The score is that which trials were compared by: `Selection.score`. Measuring trials are never
    stopped, so that theirs, which no figure shows, are not read. Raises TrackingError like
    `read_rows`.
    """
    runs = [
        run
        for run in read_runs(tracking_uri, tasks, search)
        if run.trial and run.params.get("phase") == Phase.EXPLORE
    ]
    found: dict[str, tuple[float, ...]] = {}
    for score in sorted({_score(run.params) for run in runs}):
        alike = [run for run in runs if _score(run.params) == score]
        found |= read_metric(tracking_uri, alike, score)
    return {
        (run.params.get("search", run.tags[SEARCH_TAG]), run.trial): found[run.run_id]
        for run in runs
        if found.get(run.run_id)
    }


def read_journal_histories(journal: Path) -> dict[tuple[str, str], tuple[float, ...]]:
    """The same from a search's journal; of every trial, whatever its phase."""
    return histories_of(SearchState.replay(read_journal(journal)))


def read_origin(journal: Path) -> str:
    """When a search started and on which machine, as a page says it."""
    return origin_of(SearchState.replay(read_journal(journal)))


def origin_of(state: SearchState) -> str:
    """The same of a replayed search; the machine only where it was recorded."""
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(state.started))
    return ", ".join(filter(None, [started, state.tags.get(MACHINE_TAG)]))


def histories_of(state: SearchState) -> dict[tuple[str, str], tuple[float, ...]]:
    """The same of a replayed search."""
    return {
        (state.name, trial.key): scores
        for trial in state.trials.values()
        if (scores := _scores(trial))
    }


def _scores(trial: TrialState) -> tuple[float, ...]:
    ordered = sorted(trial.reports, key=lambda report: report.evaluation)
    score = _score(trial.params)
    values = (report.metrics.get(score, math.nan) for report in ordered)
    return tuple(value for value in values if math.isfinite(value))


def _score(params: Mapping[str, object]) -> str:
    """The metric that a trial competes by; another tool's run may name no selection we know."""
    is_held_out = params.get("selection") == Selection.HOLDOUT
    return (Selection.HOLDOUT if is_held_out else Selection.LAST).score


def rows_of(state: SearchState, folder: Path | None = None) -> list[ResultRow]:
    """One row a trial of a replayed search, in the order of their start. folder: the search's."""
    rows: list[ResultRow] = []
    for trial in state.trials.values():
        params = {name: param_text(value) for name, value in trial.params.items()}
        metrics = trial.latest
        if trial.reports:
            metrics[EVALUATION] = float(trial.evaluations)
        row = _row(state.name, trial.key, _Values(params, metrics, trial.tags), trial.status)
        place = predictions_place(trial.artifact, folder, None) if trial.artifact else None
        rows.append(replace(row, predictions=place))
    return rows


def _local_folder(run: StoredRun) -> Path | None:
    """The folder of this parent run's search, if it may be on this machine."""
    journal = run.tags.get(JOURNAL_TAG)
    if journal is None or run.tags.get(HOST_TAG) != socket.gethostname():
        return None
    return Path(journal).parent


def driver_may_live(run: StoredRun) -> bool:
    """Whether this parent run's driver may be alive: False where its journal's lock is free."""
    journal = run.tags.get(JOURNAL_TAG)
    if journal is None or run.tags.get(HOST_TAG) != socket.gethostname():
        return True  # another machine's: nobody here can tell
    return is_held(lock_of(Path(journal)))


def rates_text(rates: tuple[float, float]) -> str:
    """The lowest and the highest as one param: `1e-05..5e-05`."""
    return f"{rates[0]:g}..{rates[1]:g}"


def _rates(text: str | None) -> tuple[float, float] | None:
    """The inverse of `rates_text`; None for None, which searches of before recorded."""
    if text is None:
        return None
    low, high = text.split("..")
    return float(low), float(high)


class _Values:
    """A trial's params, tags and metrics, read by type; "none" and what is missing are None."""

    def __init__(
        self, params: Mapping[str, str], metrics: Mapping[str, float], tags: Mapping[str, str]
    ) -> None:
        self._texts = {**tags, **params}
        self.metrics = metrics

    def text(self, name: str) -> str | None:
        value = self._texts.get(name)
        return None if value in (None, "", "none") else value

    def needed(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise ValueError(f"it has no {name}")
        return value

    def whole(self, name: str) -> int | None:
        value = self.text(name)
        return None if value is None else int(value)

    def number(self, name: str) -> float | None:
        """A metric, or else a param."""
        if name in self.metrics:
            return self.metrics[name]
        value = self.text(name)
        return None if value is None else float(value)

    def count(self, name: str) -> int | None:
        value = self.number(name)
        return None if value is None else round(value)


def _row(search: str, trial: str, values: _Values, status: TrialStatus) -> ResultRow:
    try:
        depth = FreezeDepth(
            int(values.needed("frozen_layers")), values.needed("embeddings_frozen") == "true"
        )
        layers = values.whole("layers")
        if layers is None:
            layers = depth.frozen_layers + int(values.needed("fine_tuned_layers"))
        return ResultRow(
            model=values.needed("model"),
            task=values.needed("task"),
            layers=layers,
            depth=depth,
            quality=values.metrics.get("quality"),
            status=status,
            phase=Phase(values.needed("phase")),
            metric=values.text("metric"),
            selection=values.text("selection"),
            chance=values.number("chance"),
            learning_rate=values.number("learning_rate"),
            seed=values.whole("seed"),
            train_size=values.whole("train_size"),
            epochs=values.whole("epochs"),
            epochs_run=values.count(EVALUATION),
            search=values.text("search") or search,
            trial=trial,
            comparison=values.text("comparison") or "",
            train_seconds=values.number("train_seconds"),
            peak_memory_mb=values.number("peak_memory_mb"),
            trainable_parameters=values.count("trainable_parameters"),
            examples=values.whole("evaluation_examples"),
            given_rates=_rates(values.text("given_rates")),
            probe_examples=values.count(PROBE_EXAMPLES),
        )
    except (ValueError, ElsaTuneError) as error:
        raise ResultsError(
            f"trial {trial} of search '{search}' is not a complete record: {error}; "
            f"leave it out with --search, or delete it: elsa-tune searches --delete {search}"
        ) from error
