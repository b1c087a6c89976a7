"""What a journal says of a search and of its trials."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.records import (
    Decision,
    Record,
    Report,
    SearchEnded,
    SearchStatus,
    TrialEnded,
)
from elsa_tune.tracking.results import rows_of
from elsa_tune.tracking.state import SearchState
from tests.recorded_search import (
    probed,
    report,
    search_started,
    trial_ended,
    trial_started,
    whole_search,
    whole_trial,
)

A, B = "measure-N0-s0", "measure-N3-s1"


def timed(records: Iterable[Record]) -> list[Record]:
    """Records a second apart, from 1."""
    return [
        dataclasses.replace(record, time=float(second))
        for second, record in enumerate(records, start=1)
    ]


def test_a_whole_search() -> None:
    state = SearchState.replay(timed(whole_search(trials=3)))
    assert (state.name, state.model, state.task, state.attempt) == ("first", "minilm", "rte", 1)
    assert state.status is SearchStatus.COMPLETED and state.is_complete
    assert state.decisions["sampler"] == {"name": "tpe", "seed": 0}
    assert list(state.trials) == ["measure-N0-s0", "measure-N1-s1", "measure-N2-s2"]
    assert state.final_trials == list(state.trials.values()) and not state.unfinished_trials
    trial = state.trials["measure-N1-s1"]
    assert trial.status is TrialStatus.COMPLETED
    assert trial.quality == 0.51 and trial.evaluations == 3
    assert [evaluation.step for evaluation in trial.reports] == [100, 200, 300]
    assert trial.notes == ("micro-batches of 8",) and trial.node == "node-1"
    assert trial.ended is not None and trial.ended - trial.started == 4
    assert state.started == 1 and state.ended == max(
        record.time for record in timed(whole_search(trials=3))
    )


def test_a_linear_probe_is_a_result_and_no_trial_of_the_plan() -> None:
    state = SearchState.replay(timed([search_started(), *probed(0.7), *whole_trial(A, 0.8)]))
    assert list(state.trials) == ["probe-N6", A]
    assert [trial.key for trial in state.planned_trials] == [A]
    assert [trial.key for trial in state.final_trials] == [A]
    probe, trial = rows_of(state)
    assert probe.phase is Phase.PROBE and probe.quality == 0.7 and probe.probe_examples == 400
    assert probe.learning_rate is probe.seed is None and probe.comparison == trial.comparison
    assert trial.probe_examples is None


def test_a_running_search_and_one_whose_driver_died() -> None:
    records = timed([search_started(), *whole_trial(A, 0.8), trial_started(B), report(B, 1, 0.3)])
    alive = SearchState.replay(records)
    assert alive.status is SearchStatus.RUNNING
    assert alive.trials[B].status is TrialStatus.RUNNING
    assert alive.trials[B].quality == 0.3 and alive.trials[B].ended is None
    dead = SearchState.replay(records, alive=False)
    assert dead.status is SearchStatus.KILLED and not dead.is_complete
    assert [trial.key for trial in dead.final_trials] == [A]
    assert [trial.status for trial in dead.unfinished_trials] == [TrialStatus.INTERRUPTED]


def test_an_ended_search_leaves_no_trial_running() -> None:
    end = SearchEnded(status=SearchStatus.INTERRUPTED, message="Ctrl-C")
    state = SearchState.replay(timed([search_started(), trial_started(A), report(A, 1, 0.3), end]))
    assert (state.status, state.message) == (SearchStatus.INTERRUPTED, "Ctrl-C")
    assert state.trials[A].status is TrialStatus.INTERRUPTED and state.trials[A].ended == 4


def test_of_a_restarted_trial_the_last_attempt_counts() -> None:
    stale = report(A, 3, 0.99)
    records = timed(
        [
            search_started(),
            trial_started(A),
            report(A, 1, 0.6),
            report(A, 2, 0.7),
            search_started(attempt=2),
            trial_started(A, attempt=2),
            stale,  # the first attempt's worker had not heard
            report(A, 1, 0.5, attempt=2),
        ]
    )
    state = SearchState.replay(records)
    assert state.attempt == 2 and state.started == 1
    trial = state.trials[A]
    assert (trial.attempt, trial.status) == (2, TrialStatus.RUNNING)
    assert trial.quality == 0.5 and trial.evaluations == 1
    assert (trial.first_started, trial.started) == (2, 6)
    # Until it is started again it is interrupted, though the new driver lives.
    assert SearchState.replay(records[:5]).trials[A].status is TrialStatus.INTERRUPTED


def test_a_word_after_the_end_changes_nothing() -> None:
    ended = trial_ended(A, TrialStatus.STOPPED_EARLY, 0.4)
    late = [report(A, 3, 0.9), trial_ended(A, TrialStatus.COMPLETED, 0.9)]
    state = SearchState.replay(timed([search_started(), trial_started(A), ended, *late]))
    assert state.trials[A].status is TrialStatus.STOPPED_EARLY and state.trials[A].quality == 0.4


def test_the_trials_own_quality_goes_before_the_last_evaluations() -> None:
    records = [search_started(), trial_started(A), report(A, 1, 0.9), report(A, 2, 0.7)]
    best = trial_ended(A, TrialStatus.COMPLETED, 0.9)
    assert SearchState.replay(timed([*records, best])).trials[A].quality == 0.9
    silent = TrialEnded(trial=A, status=TrialStatus.FAILED, message="out of memory")
    failed = SearchState.replay(timed([*records, silent])).trials[A]
    assert failed.quality == 0.7 and failed.message == "out of memory"


def test_what_is_not_finite_is_no_value() -> None:
    broken = Report(trial=A, evaluation=2, step=200, metrics={"quality": math.nan})
    records = [search_started(), trial_started(A), report(A, 1, 0.6), broken]
    assert SearchState.replay(timed(records)).trials[A].quality == 0.6


def test_a_later_decision_replaces_an_earlier_one() -> None:
    records = [search_started(), Decision(what="x", value=1), Decision(what="x", value=2)]
    assert SearchState.replay(timed(records)).decisions == {"x": 2}


def test_an_empty_journal_is_a_search_without_trials() -> None:
    state = SearchState.replay([], alive=False)
    assert state.status is SearchStatus.KILLED and state.trials == {} and state.search_id == ""
