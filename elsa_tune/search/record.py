"""The only writer of a search's record: to the journal first, then to the thread that sends it to
MLflow.

Nothing here raises: a trial is never lost because its record could not be kept.
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from elsa_tune.errors import ElsaTuneError
from elsa_tune.files import write_aside
from elsa_tune.search.planning.known import KnownTrial, known_trial
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.task import TaskKind
from elsa_tune.specs.trial import (
    HOLDOUT_QUALITY,
    QUALITY,
    Phase,
    Selection,
    TrialSpec,
    trial_quality,
)
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import (
    Decision,
    Record,
    Report,
    Scalar,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import rates_text, rows_of
from elsa_tune.tracking.state import SearchState

# Once-per-trial figures: those of the last report.
_ONCE = ("train_seconds", "examples_per_second", "peak_memory_mb", "trainable_parameters")
# Reported every time; a metric of the epoch.
_PER_EVALUATION = (QUALITY, "train_loss", "eval_loss", "epoch", *_ONCE)
_REPORT_TAGS = ("precision", "micro_batch_size", "batches", "prefix")


class SearchRecord:
    """What this driver knows of the search, and where it writes what it learns."""

    def __init__(
        self,
        spec: SearchSpec,
        paths: SearchPaths,
        journal: Journal,
        forwarder: Forwarder,
        earlier: list[Record],
        warn: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self.paths = paths
        self._journal = journal
        self._forwarder = forwarder
        self._warn = warn
        self._warned: set[str] = set()
        # The board asks for the state in a thread of its own.
        self._lock = threading.RLock()
        self._state = SearchState()
        self._known: dict[str, KnownTrial] = {}
        for record in earlier:
            self._state.add(record)
        self._learn_all()

    def write(self, record: Record) -> None:
        """Keep one record; a full disk or a silent MLflow is said once and survived."""
        stamped = self._journal.stamp(record)
        with self._lock:
            self._state.add(stamped)
            self._learn(stamped)
        try:
            self._journal.append(stamped)
        except ElsaTuneError as error:
            self.warn_once("journal", f"{error}; the search goes on")
        self._forwarder.offer(stamped)

    def state(self) -> SearchState:
        """Everything so far, earlier sessions included."""
        with self._lock:
            return self._state.copy()

    def rows(self) -> list[ResultRow]:
        """The results so far, as `analysis` takes them."""
        return rows_of(self.state())

    @property
    def known(self) -> Mapping[str, KnownTrial]:
        """Every trial of the plan started so far by its key, in the order in which they first
        started; goes on with the search.
        """
        return self._known

    def known_trials(self) -> tuple[KnownTrial, ...]:
        """The same as they stand now."""
        return tuple(self._known.values())

    def _learn(self, record: Record) -> None:
        """What the record says of its trial, or of all of them where it is the search's own."""
        if isinstance(record, TrialStarted | Report | TrialEnded):
            state = self._state.trials.get(record.trial)
            if state is not None and state.is_planned:
                self._known[state.key] = known_trial(self.spec, state)
        elif not isinstance(record, Decision):
            self._learn_all()

    def _learn_all(self) -> None:
        for state in self._state.planned_trials:
            self._known[state.key] = known_trial(self.spec, state)

    def keep_predictions(self, key: str, predictions: np.ndarray, labels: np.ndarray) -> str | None:
        """Write a trial's predictions [E], and what judges them, beside the journal; returns the
        path relative to the search.

        predictions, labels: int8 where the class ids fit, else int16; float32 for values. classes:
        C, 0 for a regression. metric: its name. They give the trial's quality again.
        """
        task = self.spec.task
        classes = 0
        dtype: np.dtype[Any] = np.dtype(np.float32)
        if task.kind is TaskKind.CLASSIFICATION:
            classes = task.outputs
            dtype = np.dtype(np.int8 if classes - 1 <= np.iinfo(np.int8).max else np.int16)
        file = self.paths.predictions / f"{key}.npz"
        try:
            write_aside(
                file,
                lambda opened: np.savez_compressed(
                    opened,
                    predictions=predictions.astype(dtype),
                    labels=labels.astype(dtype),
                    classes=np.int64(classes),
                    metric=np.str_(task.metric.value),
                ),
            )
        except OSError as error:
            self.warn_once("predictions", f"cannot keep predictions in {file.parent}: {error}")
            return None
        return str(file.relative_to(self.paths.folder))

    def warn_once(self, what: str, message: str) -> None:
        """Say `message` unless something about `what` was said before."""
        if what not in self._warned:
            self._warned.add(what)
            self._warn(message)


def report_record(
    key: str, attempt: int, result: Mapping[str, Any], tags: Mapping[str, str]
) -> Report:
    """One evaluation as a record. result: the fields of an EpochResult. tags: beside its own."""
    metrics = {name: float(result[name]) for name in _PER_EVALUATION}
    if result[HOLDOUT_QUALITY] is not None:
        metrics[HOLDOUT_QUALITY] = float(result[HOLDOUT_QUALITY])
    own = {name: str(result[name]) for name in _REPORT_TAGS}
    return Report(
        trial=key,
        attempt=attempt,
        evaluation=result["evaluation"],
        step=result["step"],
        metrics={**result["metrics"], **metrics},
        notes=list(result["notes"]),
        tags={**tags, **own},
    )


def end_metrics(selection: Selection, reports: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """What a trial's end says of its evaluations, given as `report_record` takes them; {} without
    any.
    """
    if not reports:
        return {}
    metrics = {name: float(reports[-1][name]) for name in _ONCE}
    by_holdout = selection is Selection.HOLDOUT
    metrics[QUALITY] = trial_quality(
        selection,
        [report[QUALITY] for report in reports],
        [report[HOLDOUT_QUALITY] for report in reports] if by_holdout else (),
    )
    return metrics


def params_of(spec: SearchSpec, trial: TrialSpec) -> dict[str, Scalar]:
    """What MLflow shows of a trial as its parameters."""
    recipe = {
        name: getattr(value, "value", value)
        for name, value in dataclasses.asdict(trial.recipe).items()
    }
    # Without a subset the training set's own size says more than "none".
    in_use = spec.train_examples + spec.holdout_examples
    recipe["train_size"] = recipe["train_size"] or in_use
    looks = spec.looks(trial.depth) if trial.phase is Phase.MEASURE else None
    return {
        "model": trial.model.name,
        "task": trial.task.name,
        "phase": trial.phase.value,
        "learning_rate": trial.learning_rate,
        "frozen_layers": trial.depth.frozen_layers,
        "embeddings_frozen": trial.depth.embeddings_frozen,
        "fine_tuned_layers": trial.depth.fine_tuned_layers(spec.layers),
        "layers": spec.layers,
        "seed": trial.seed,
        "metric": trial.task.metric.value,
        "chance": spec.chance,
        "evaluation_examples": spec.evaluation_examples,
        "given_rates": rates_text(spec.given_rates),
        "looks": str(looks) if looks else "none",
        "search": spec.name,
        **recipe,
        "comparison": spec.comparison,
    }
