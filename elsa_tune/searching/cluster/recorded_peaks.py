"""What trials of a model took of a GPU in searches that are recorded in the same folder."""

import contextlib
from dataclasses import dataclass

from elsa_tune.errors import ElsaTuneError
from elsa_tune.searching.request import Request
from elsa_tune.searching.specification import load_specification
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Precision, TrialStatus
from elsa_tune.tracking.paths import SearchPaths, search_names
from elsa_tune.tracking.state import SearchState, read_state
from elsa_tune.training.machine import CONTEXT_MIB, MIB

# torch takes more from the GPU than its tensors hold, and another task's rows may be longer.
MARGIN = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPeak:
    """The most that a full model's trial has taken."""

    search: str  # the search that it was in
    needed: int  # bytes that such a trial is given: its peak, a margin, and CUDA's own part


def recorded_peak(request: Request) -> RecordedPeak | None:
    """Return the highest peak of the full model in the folder's like searches on GPUs.

    Like are those of the same model, batch size, length and precision. None without any.
    """
    highest: RecordedPeak | None = None
    for name in search_names(request.storage):
        paths = SearchPaths(request.storage, name)
        with contextlib.suppress(ElsaTuneError):  # what cannot be read tells nothing
            spec = load_specification(paths)
            if not spec.resources.gpus or not _is_like(spec, request.spec):
                continue
            peak = _peak_mib(spec, read_state(paths.journal))
            if peak is None:
                continue
            needed = int((MARGIN * peak + CONTEXT_MIB) * MIB)
            if highest is None or needed > highest.needed:
                highest = RecordedPeak(search=name, needed=needed)
    return highest


def _is_like(recorded: SearchSpec, asked: SearchSpec) -> bool:
    precision = asked.recipe.precision
    if precision is not Precision.AUTO and precision is not recorded.recipe.precision:
        return False
    before, now = recorded.recipe, asked.recipe
    same_batches = (before.batch_size, before.max_length) == (now.batch_size, now.max_length)
    return same_batches and recorded.model.location == asked.model.location


def _peak_mib(spec: SearchSpec, state: SearchState) -> float | None:
    """Return the most MiB that a whole trial of the full model held; None without one."""
    peaks = []
    for trial in state.planned_trials:
        if trial.status is not TrialStatus.COMPLETED or not trial.reports:
            continue
        if not trial.facts.candidate.is_reference:
            continue
        # One that ran out of memory went on with smaller batches, and tells too little.
        tags = trial.reports[-1].tags
        is_whole = tags.get("micro_batch_size") == str(spec.recipe.batch_size)
        peak = trial.latest.get("peak_memory_mb")
        if is_whole and peak is not None:
            peaks.append(peak)
    return max(peaks, default=None)
