"""The quality at each evaluation, from the journal: of the last attempt."""

from __future__ import annotations

from pathlib import Path

from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal_records import Record
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import histories_of
from elsa_tune.tracking.state import read_state
from tests.recorded_search import (
    journal_rows,
    record,
    report,
    search_started,
    trial_ended,
    trial_started,
    whole_trial,
)

STOPPED, AGAIN = ("first", "explore-N3-s0"), ("first", "explore-N4-s0")
HELD_OUT = ("first", "explore-N5-s0")


def records() -> list[Record]:
    """One trial that was stopped, one that was begun twice, one that competes by its holdout, and a
    measuring one.
    """
    stopped, again, held_out = STOPPED[1], AGAIN[1], HELD_OUT[1]
    return [
        search_started(),
        trial_started(stopped),
        report(stopped, 1, 0.61),
        report(stopped, 2, 0.62),
        trial_ended(stopped, TrialStatus.STOPPED_EARLY, 0.62),
        trial_started(again),
        report(again, 1, 0.1),
        report(again, 2, 0.2),
        report(again, 3, 0.3),
        trial_started(again, attempt=2),
        report(again, 1, 0.71, attempt=2),
        report(again, 2, 0.72, attempt=2),
        trial_ended(again, TrialStatus.COMPLETED, 0.72, attempt=2),
        trial_started(held_out, selection="holdout"),
        report(held_out, 1, 0.5, holdout_quality=0.41),
        report(held_out, 2, 0.6, holdout_quality=0.42),
        trial_ended(held_out, TrialStatus.COMPLETED, 0.6),
        *whole_trial("measure-N3-s1", 0.8),
    ]


def test_a_journal_tells_each_evaluation_of_the_last_attempt(tmp_path: Path) -> None:
    paths = SearchPaths(tmp_path, "first")
    record(paths, records())
    wanted = {STOPPED: (0.61, 0.62), AGAIN: (0.71, 0.72), HELD_OUT: (0.41, 0.42)}
    journal = histories_of(read_state(paths.journal))
    assert {key: journal[key] for key in wanted} == wanted
    assert journal["first", "measure-N3-s1"] == (0.675, 0.7375, 0.8)
    assert {(row.search, row.trial) for row in journal_rows(paths.journal)} == set(journal)
