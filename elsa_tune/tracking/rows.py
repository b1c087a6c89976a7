"""Recorded trials as result rows, from a store or a journal, with what they answered by example."""

import functools
import math
import shlex
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import TypeAdapter, ValidationError

from elsa_tune.errors import ResultsError, TrackingError, UnknownMethodError
from elsa_tune.specs.checked import problems
from elsa_tune.specs.policy import UNRECORDED, Policy
from elsa_tune.specs.result_row import Origin, Predictions, ResultRow
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.search import NONE_EARLIER, Earlier
from elsa_tune.specs.trial import PROBE_EXAMPLES, QUALITY, Phase
from elsa_tune.tracking.params import UnreadParams
from elsa_tune.tracking.record_names import (
    COMMAND,
    EARLIER_TAG,
    FINDINGS_TAG,
    MACHINE_TAG,
    POLICY_TAG,
)
from elsa_tune.tracking.state import RecordedTrial, SearchState
from elsa_tune.tracking.uris import reason

if TYPE_CHECKING:
    from elsa_tune.tracking.store import RecordStore

_FINDINGS = TypeAdapter(tuple[RowFinding, ...])
_POLICY = TypeAdapter(Policy)
_EARLIER = TypeAdapter(Earlier)
# Of a place in a store: the scheme, then the trial's `run_id`, then the file's path.
RUN_SCHEME = "runs:/"
# Of searches that were recorded before they said what they were after.
_EARLY_TARGET = 0.9


def rows_of(state: SearchState, folder: Path | None = None) -> list[ResultRow]:
    """Return a row for each trial that is not final, by their start.

    folder: the search's. Raises ResultsError for a trial that lacks what a row needs, and
    UnknownMethodError for one of a method that is not known here.
    """
    findings = findings_of(state)
    policy = policy_of(state)
    earlier = earlier_of(state)
    target = planned_target_of(state)
    rows = []
    for trial in state.trials.values():
        if trial.start.params.phase == Phase.FINAL:
            continue
        row = _row(state.search.name, trial, folder)
        complete = replace(
            row,
            search_id=state.search.search_id or None,
            findings=findings,
            policy=policy,
            earlier=earlier,
            planned_target=target,
        )
        rows.append(complete)
    return rows


def findings_of(state: SearchState) -> tuple[RowFinding, ...]:
    """Return what is odd about a search's rows.

    () where that was not recorded, or by a later version.
    """
    text = state.search.tags.get(FINDINGS_TAG, "[]")
    try:
        return _FINDINGS.validate_json(text)
    except ValidationError:
        return ()


def policy_of(state: SearchState) -> Policy:
    """Return what a search was planned by, and is answered by. Raises ResultsError.

    One that was recorded before policies were has the constants of its version.
    """
    text = state.search.tags.get(POLICY_TAG)
    if text is None:
        return UNRECORDED
    try:
        return _POLICY.validate_json(text)
    except ValidationError as error:
        raise ResultsError(
            f"the policy of search '{state.search.name}' cannot be read: {problems(error)}"
        ) from error


def planned_target_of(state: SearchState) -> float:
    """Return the share of quality that a search was planned to keep. Raises ResultsError."""
    given = state.search.params.get("target", _EARLY_TARGET)
    try:
        target = float(given)
    except (TypeError, ValueError, OverflowError) as error:
        raise ResultsError(f"the target of {state.search.name} cannot be read: {error}") from error
    if not math.isfinite(target):
        raise ResultsError(f"the target of {state.search.name} cannot be read: it is {target}")
    return target


def earlier_of(state: SearchState) -> Earlier:
    """Return which searches asked the same before this one; none where that cannot be read."""
    text = state.search.tags.get(EARLIER_TAG)
    if text is None:
        return NONE_EARLIER
    try:
        return _EARLIER.validate_json(text)
    except ValidationError:
        return NONE_EARLIER


def origin_of(state: SearchState) -> Origin:
    """When a search started, on which machine and by which command, as far as that is recorded."""
    moment = time.gmtime(state.started)
    place = time.strftime("%Y-%m-%d %H:%M UTC", moment)
    machine = state.search.tags.get(MACHINE_TAG)
    if machine:
        place += f", {machine}"
    command = str(state.search.params.get(COMMAND, ""))
    return Origin(place=place, command=command)


def _row(search: str, trial: RecordedTrial, folder: Path | None) -> ResultRow:
    """Return one recorded trial as a row. Raises as `rows_of`."""
    params = trial.start.params
    metrics = trial.latest
    artifact = None
    if trial.end is not None:
        artifact = trial.end.artifact
    if isinstance(params, UnreadParams) and params.is_of_unknown_method:
        raise UnknownMethodError(
            f"trial {trial.key} of search '{search}' cannot be read: {params.why}"
        )
    try:
        if isinstance(params, UnreadParams):
            raise ValueError(params.why)
        if params.model is None or params.task is None or params.layers is None:
            raise ValueError("it does not say which model and task it is of")
        return ResultRow(
            model=params.model,
            task=params.task,
            layers=params.layers,
            candidate=params.candidate,
            quality=metrics.get(QUALITY),
            status=trial.status,
            phase=params.phase,
            metric=params.metric,
            selection=params.selection,
            # Early versions recorded it with every evaluation.
            chance=metrics.get("chance", params.chance),
            learning_rate=params.learning_rate,
            seed=params.seed,
            train_size=params.train_size,
            epochs=params.epochs,
            search=search,
            trial=trial.key,
            comparison=params.comparison,
            train_seconds=metrics.get("train_seconds"),
            peak_memory_mb=metrics.get("peak_memory_mb"),
            trainable_parameters=_count(metrics, "trainable_parameters"),
            examples=params.evaluation_examples,
            evaluation_units=params.evaluation_units,
            predictions=predictions_place(artifact, folder, trial.run_id),
            given_rates=params.given_rates,
            looks=params.looks,
            probe_examples=_count(metrics, PROBE_EXAMPLES),
        )
    except ValueError as error:
        raise ResultsError(
            f"trial {trial.key} of search '{search}' is not a complete record: {error}; "
            "ask another with `search`, or delete it: elsa-tune searches --delete "
            f"{shlex.quote(search)}"
        ) from error


def _count(metrics: Mapping[str, float], name: str) -> int | None:
    """Return a count, which the record keeps among the metrics. Raises ValueError for none."""
    value = metrics.get(name)
    if value is None:
        return None
    if value < 0 or not value.is_integer():
        raise ValueError(f"field '{name}' must be a whole number, 0 or more, not {value:g}")
    return int(value)


class KeptPredictions:
    """Predictions of recorded trials, as files of searches' folders or of the store."""

    def __init__(self, store: "RecordStore | None" = None) -> None:
        self._store = store
        self._fetched = functools.cache(self._fetch)  # each look at a depth asks again
        self._trouble = ""  # why the store gives none now

    def __call__(self, row: ResultRow) -> Predictions | None:
        """Return what the row's trial answered.

        None where it is not kept, or not any more. Raises ResultsError where the store does not
        give it: then it is not asked again, for that may take a minute each.
        """
        if row.predictions is None:
            return None
        if not row.predictions.startswith(RUN_SCHEME):
            return _read(Path(row.predictions))
        return self._fetched(row.predictions)

    def _fetch(self, place: str) -> Predictions | None:
        if self._store is None:
            return None
        if self._trouble:
            raise ResultsError(self._trouble)
        run_id, _, artifact = place.removeprefix(RUN_SCHEME).partition("/")
        with tempfile.TemporaryDirectory() as folder:
            try:
                file = self._store.fetch(run_id, artifact, Path(folder))
                if file is None:
                    return None
                return _read(file)
            except Exception as error:  # the store's, the server's and the network's
                why = reason(error, self._store.uri)
                if isinstance(error, TrackingError):
                    why = str(error)  # whole: it says what to do
                self._trouble = f"{self._store.name} does not give them now ({why}); ask again"
                raise ResultsError(self._trouble) from error


def predictions_place(
    artifact: str | None, search_folder: Path | None, run_id: str | None
) -> str | None:
    """Return where a trial's predictions are read: in the search's folder, else in the store.

    artifact: their file, relative to either. None without any, or where it would lie outside.
    """
    if not artifact:
        return None
    path = Path(artifact)
    if path.is_absolute() or ".." in path.parts:
        return None
    if search_folder is not None:
        file = search_folder / path
        if file.is_file():
            return str(file)
    if run_id is None:
        return None
    return f"{RUN_SCHEME}{run_id}/{artifact}"


def _read(file: Path) -> Predictions | None:
    try:
        # Opened here: np.load leaves a broken archive open.
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as archive:
            predictions = archive["predictions"]
            labels = archive["labels"]
            classes = int(archive["classes"])
            units = archive.get("units")
    except Exception:  # broken or half-written, which NumPy says in many ways: as good as none
        return None
    if not predictions.ndim or predictions.shape != labels.shape or not len(labels):
        return None
    if units is not None and not _are_units(units, len(labels)):
        return None
    return Predictions(predictions=predictions, labels=labels, classes=classes, units=units)


def _are_units(units: np.ndarray, examples: int) -> bool:
    """Whether an array may number the units of so many examples, from 0 without a gap."""
    if units.shape != (examples,) or units.dtype.kind not in "iu" or units.min() < 0:
        return False
    return len(np.unique(units)) == int(units.max()) + 1
