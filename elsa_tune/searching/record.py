"""The only writer of a search's record; nothing raises here, lest a trial be lost with it."""

import contextlib
import dataclasses
import io
import os
import platform
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter

from elsa_tune.errors import ElsaTuneError
from elsa_tune.files import write_aside
from elsa_tune.searching.planning.known import known_trial
from elsa_tune.searching.planning.strategies import strategy_of
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.search import Earlier, SearchSpec
from elsa_tune.specs.trial import HOLDOUT_QUALITY, QUALITY, Phase, TrialSpec, TrialStatus
from elsa_tune.specs.trial_facts import TrialFacts
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal, TakenError
from elsa_tune.tracking.journal_records import (
    Record,
    Report,
    SearchStarted,
    TrialEnded,
    TrialStarted,
)
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.record_names import (
    COMMAND,
    EARLIER_TAG,
    FINDINGS_TAG,
    GPUS_TAG,
    MACHINE_TAG,
    MAX_TIME_TAG,
    POLICY_TAG,
    SEEDS,
)
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import RecordedTrial, SearchState
from elsa_tune.training.checkpoints import FolderCheckpoints
from elsa_tune.words import duration

# Once-per-trial figures: those of the last report.
_ONCE = ("train_seconds", "examples_per_second", "peak_memory_mb", "trainable_parameters")
# Reported every time; a metric of the epoch.
_PER_EVALUATION = (QUALITY, "train_loss", "eval_loss", "epoch", *_ONCE)
# What is recorded of a search as its specification has it.
_OF_SEARCH = (
    "space",
    "layers",
    "sampler",
    "seed",
    SEEDS,
    "target",
    "train_examples",
    "holdout_examples",
    "evaluation_examples",
)
_FINDINGS = TypeAdapter(tuple[RowFinding, ...])
_POLICY = TypeAdapter(Policy)
_EARLIER = TypeAdapter(Earlier)
# How long the end of a search waits for room on a full disk.
ROOM_SECONDS = 60.0
_REPORT_TAGS = ("precision", "micro_batch_size", "batches", "prefix")


class SearchRecord:
    """What this driver knows of the search, and where it writes what it learns."""

    def __init__(
        self,
        spec: SearchSpec,
        paths: SearchPaths,
        journal: Journal,
        forwarder: Forwarder,
        warn: Callable[[str], None],
    ) -> None:
        self.spec = spec
        self.paths = paths
        self._journal = journal
        self._forwarder = forwarder
        self._warn = warn
        self._warned: set[str] = set()
        # Hear of each record that was written.
        self.listeners: list[Callable[[Record], None]] = []
        # Why this search must end: its folder was deleted, and another has its place.
        self.taken: str | None = None
        self._renewed = 0  # how often it was said that the journal was deleted
        self._specification = b""  # to be written anew where it is deleted
        with contextlib.suppress(OSError):
            self._specification = paths.specification.read_bytes()
        # The board asks for the state in a thread of its own.
        self._lock = threading.RLock()
        # The session and its watch both write; journal and store get one order of records.
        self._writing = threading.RLock()
        self._state = SearchState.replay(journal.earlier)

    def write(self, record: Record) -> None:
        """Keep one record; a full disk or a silent MLflow is reported once and survived."""
        with self._writing:
            stamped = self._journal.stamp(record)
            with self._lock:
                self._state.add(stamped)
            try:
                self._journal.append(stamped)
            except TakenError as error:
                self.taken = str(error)
            except ElsaTuneError as error:
                self.warn_once("journal", f"{error}; the search goes on")
            finally:
                # Also where a signal ends the write: the journal has it, or gets it with the next.
                self._forwarder.offer(stamped)
        for listener in self.listeners:
            listener(stamped)
        if self.taken is None:
            self._restore()

    def _restore(self) -> None:
        """Say that the journal was deleted, and write a specification anew that was."""
        is_renewed = self._journal.renewed > self._renewed
        if is_renewed:
            self._renewed = self._journal.renewed
            lost = "" if self.paths.predictions.exists() else "; predictions kept there are lost"
            self._warn(
                f"{self.paths.journal} was deleted or moved while the search runs: it is there "
                f"again with all records{lost}"
            )
        # Whoever began in the folder before the lock was there has left another one.
        is_ours = self.paths.specification.exists() and not is_renewed
        if self._specification and not is_ours:
            try:
                write_aside(self.paths.specification, self._specification)
            except OSError as error:
                self.warn_once("specification", f"cannot write {self.paths.specification}: {error}")

    def settled(self, is_hurried: Callable[[], bool]) -> str:
        """Wait a while, or until `is_hurried`, for room for what the journal lacks.

        Returns what it still lacks in the end, in a sentence, or "".
        """
        deadline = time.monotonic() + ROOM_SECONDS
        count, _ = self._journal.missing
        if count and not is_hurried():
            self._warn(
                f"{self.paths.journal} lacks {count} records, for want of room: waiting up to "
                f"{duration(ROOM_SECONDS)} for some (Ctrl-C ends the wait)"
            )
        while count and time.monotonic() < deadline and not is_hurried():
            time.sleep(0.5)
            with contextlib.suppress(ElsaTuneError):
                self._journal.write_out()
            count, _ = self._journal.missing
        count, place = self._journal.missing
        if not count:
            return ""
        fate = f"are in {place}, from where `{self.paths.resume}` takes them"
        if place is None:
            fate = f"found no room anywhere; `{self.paths.resume}` trains again what they tell of"
        return (
            f"the disk of {self.paths.journal} stayed full: its last {count} records {fate}; make "
            "room first"
        )

    def state(self) -> SearchState:
        """Return everything so far, earlier sessions included."""
        with self._lock:
            return self._state.copy()

    def now(self) -> float:
        """Return the time by the record's clock, in seconds since the epoch."""
        return self._journal.now()

    def gpu_hours(self) -> float:
        """Return the hours for which trials have held a GPU until now, by the record's clock."""
        return self.state().gpu_hours(self.now())

    def rows(self) -> list[ResultRow]:
        return rows_of(self.state())

    def trial(self, key: str) -> RecordedTrial | None:
        """Return what is known of one trial; None where it has not begun."""
        return self._state.trials.get(key)

    def begin(self, trial: TrialSpec, spec: SearchSpec | None = None) -> None:
        """Record that a trial begins, or begins again. spec: the search as this trial trains it."""
        spec = spec or self.spec
        before = self.trial(trial.key)
        start = TrialStarted(
            trial=trial.key,
            attempt=1 if before is None else before.start.attempt + 1,
            params=facts_of(spec, trial, self._state.decisions),
            tags=dict(spec.versions),
        )
        self.write(start)

    def report(self, key: str, result: Mapping[str, Any], tags: Mapping[str, str]) -> None:
        """Record one evaluation of a trial.

        result: an EvaluationResult's fields. tags: beside its own.
        """
        metrics = {name: float(result[name]) for name in _PER_EVALUATION}
        if result[HOLDOUT_QUALITY] is not None:
            metrics[HOLDOUT_QUALITY] = float(result[HOLDOUT_QUALITY])
        own = {name: str(result[name]) for name in _REPORT_TAGS}
        report = Report(
            trial=key,
            attempt=self._state.trials[key].start.attempt,
            evaluation=result["evaluation"],
            step=result["step"],
            metrics={**result["metrics"], **metrics},
            notes=list(result["notes"]),
            tags={**tags, **own},
            restored=bool(result["restored"]),
        )
        self.write(report)

    def end(
        self, key: str, status: TrialStatus, message: str = "", artifact: str | None = None
    ) -> RecordedTrial:
        """Record that a trial has ended; its once-per-trial figures are those of its reports."""
        trial = self._state.trials[key]
        metrics: dict[str, float] = {}
        quality = known_trial(self.spec, trial).quality
        if quality is not None:
            last = trial.reports[-1].metrics
            metrics = {name: last[name] for name in _ONCE}
            metrics[QUALITY] = quality
        end = TrialEnded(
            trial=key,
            attempt=trial.start.attempt,
            status=status,
            metrics=metrics,
            message=message,
            artifact=artifact,
        )
        self.write(end)
        return self._state.trials[key]

    def keep_predictions(
        self,
        key: str,
        predictions: np.ndarray,
        labels: np.ndarray,
        units: np.ndarray | None = None,
    ) -> str | None:
        """Write a trial's predictions [E, ...], and the labels that judge them, beside the journal.

        Returns the path relative to the search.

        Class ids are kept as int8 where C classes fit, else as int16 or int32; values as float32;
        and other whole numbers as they are. Beside them `classes`, C or 0 without classes, and
        `metric`, its name. They give the trial's quality again. units: of each row [E], kept as
        int32 where the search was begun by a version that knows them; else each row is its own.
        """
        task = self.spec.task
        classes = task.class_count
        arrays: dict[str, Any] = {
            "predictions": _kept(predictions, classes),
            "labels": _kept(labels, classes),
            "classes": np.int64(classes),
            "metric": np.str_(task.metric.value),
        }
        if units is not None and self.spec.evaluation_units:
            arrays["units"] = units.astype(np.int32)
        if self._is_taken():
            return None
        file = self.paths.predictions / f"{key}.npz"
        archive = io.BytesIO()
        np.savez_compressed(archive, **arrays)
        try:
            write_aside(file, archive.getvalue())
        except OSError as error:
            self.warn_once("predictions", f"cannot keep predictions in {file.parent}: {error}")
            return None
        return str(file.relative_to(self.paths.folder))

    def _is_taken(self) -> bool:
        """Whether another search has the folder by now, as the journal finds out."""
        try:
            self._journal.write_out()
        except TakenError as error:
            self.taken = str(error)
        except ElsaTuneError:  # the next record says it
            pass
        return self.taken is not None

    def drop_checkpoint(self, key: str) -> None:
        """Delete the checkpoint of a trial that will not go on, if it has one."""
        if self.taken is not None:
            return
        try:
            FolderCheckpoints(self.paths.checkpoints).delete(key)
        except OSError as error:
            folder = self.paths.checkpoints
            self.warn_once("checkpoints", f"cannot delete a checkpoint in {folder}: {error}")

    def tidy_checkpoints(self) -> None:
        """Leave only the checkpoints of trials that `resume` goes on with."""
        for trial in self.state().final_trials:
            self.drop_checkpoint(trial.key)
        with contextlib.suppress(OSError):
            self.paths.checkpoints.rmdir()  # where none is left

    def warn_once(self, what: str, message: str) -> None:
        """Say `message` unless something about `what` was said before."""
        if what not in self._warned:
            self._warned.add(what)
            self._warn(message)


def _kept(numbers: NDArray[Any], classes: int) -> NDArray[Any]:
    """Return labels or predictions [E, ...] as they are kept. classes: C, 0 without classes."""
    if numbers.dtype.kind == "f":
        return numbers.astype(np.float32)
    if classes == 0:
        return numbers
    smallest = np.min_scalar_type(-classes)
    return numbers.astype(smallest)


def facts_of(
    spec: SearchSpec, trial: TrialSpec, decisions: Mapping[str, Any] | None = None
) -> TrialFacts:
    """Return what is recorded of a trial that begins. decisions: the recorded ones."""
    recipe = dataclasses.asdict(trial.recipe)
    # Without a subset the training set's own size says more than "none".
    in_use = spec.train_examples + spec.holdout_examples
    looks = None
    if trial.phase is Phase.MEASURE:
        looks = strategy_of(spec).looks(trial.candidate, decisions or {})
    return TrialFacts(
        model=trial.model.name,
        task=trial.task.name,
        phase=trial.phase,
        candidate=trial.candidate,
        layers=spec.layers,
        learning_rate=trial.learning_rate,
        seed=trial.seed,
        metric=trial.task.metric.value,
        chance=spec.chance,
        evaluation_examples=spec.evaluation_examples,
        evaluation_units=spec.evaluation_units or None,
        given_rates=spec.given_rates(trial.candidate),
        looks=looks,
        search=spec.name,
        selection=recipe.pop("selection"),
        epochs=recipe.pop("epochs"),
        train_size=recipe.pop("train_size") or in_use,
        others=recipe,
        comparison=spec.comparison,
    )


def started(spec: SearchSpec, attempt: int) -> SearchStarted:
    """Return what is recorded where a driver takes the search up."""
    strategy = strategy_of(spec)
    asha = None
    stopping = spec.early_stopping
    if stopping is not None:
        asha = {
            "grace": stopping.grace_of(spec.recipe.evaluations),
            "factor": stopping.reduction_factor,
            "margin": stopping.margin,
        }
    machine = [platform.node(), f"{os.cpu_count()} cores"]
    if spec.resources.gpus and torch.cuda.is_available():
        machine.append(torch.cuda.get_device_name())
    return SearchStarted(
        name=spec.name,
        search_id=spec.search_id,
        attempt=attempt,
        model=spec.model.name,
        task=spec.task.name,
        params={
            **{name: getattr(spec, name) for name in _OF_SEARCH},
            "exploring_trials": strategy.exploring_trials,
            "measuring_trials": strategy.measuring_trials,
            "depths": [candidate.label for candidate in spec.candidates],
            "asha": asha,
            "chance": spec.chance,
            "comparison": spec.comparison.record(),
            **({COMMAND: spec.command} if spec.command else {}),
        },
        tags={
            **spec.versions,
            **{f"fingerprint.{name}": value for name, value in spec.fingerprints.items()},
            MACHINE_TAG: ", ".join(machine),
            FINDINGS_TAG: _FINDINGS.dump_json(spec.findings, exclude_defaults=True).decode(),
            POLICY_TAG: _POLICY.dump_json(spec.policy).decode(),
            **_earlier_tag(spec.earlier),
            "cpus_per_trial": f"{spec.resources.cpus:g}",
            GPUS_TAG: f"{spec.resources.gpus:g}",
            **({MAX_TIME_TAG: f"{spec.max_time:g}"} if spec.max_time is not None else {}),
        },
    )


def _earlier_tag(earlier: Earlier) -> dict[str, str]:
    """Return the tag that names the searches that asked the same before; {} without any."""
    if not earlier.names:
        return {}
    return {EARLIER_TAG: _EARLIER.dump_json(earlier).decode()}
