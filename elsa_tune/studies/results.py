"""What the searches of a study recorded, read back from their journals.

It must not judge what it reads; it finds rows and histories, for tables and figures.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from elsa_tune.specs.result_row import ResultRow
from elsa_tune.studies.reproduction import PlannedSearch, recorded_state
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import histories_of, rows_of
from elsa_tune.tracking.state import SearchState


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResults:
    """What one search of a study recorded so far.

    rows: of every trial that was started. beside: those judged by a second evaluation split.
    histories: the score at each evaluation, by (search, trial).
    """

    rows: tuple[ResultRow, ...] = ()
    beside: tuple[ResultRow, ...] = ()
    histories: Mapping[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)


def read_search(search: PlannedSearch, storage: Path, companion: str) -> SearchResults:
    """Read its journal; nothing where it has not begun. companion: a second evaluation split
    (`mnli_mismatched`), for the rows beside.

    Raises StorageError or ResultsError where the journal cannot be read.
    """
    paths = SearchPaths(storage, search.name)
    state = recorded_state(paths)
    if state is None:
        return SearchResults()
    rows = rows_of(state, paths.folder)
    chance = search.part.task.published_chance.get(companion)
    return SearchResults(
        rows=tuple(rows),
        beside=tuple(_companions(state, rows, companion, chance)),
        histories=histories_of(state),
    )


def _companions(
    state: SearchState, rows: list[ResultRow], companion: str, chance: float | None
) -> list[ResultRow]:
    """The same trials with the second split as their task, those that were judged by it."""
    found = []
    for trial, row in zip(state.trials.values(), rows, strict=True):
        quality = trial.latest.get(companion)
        if quality is not None:
            # What is kept are the predictions on the task's own split.
            own = dataclasses.replace(row, predictions=None)
            found.append(dataclasses.replace(own, task=companion, quality=quality, chance=chance))
    return found
