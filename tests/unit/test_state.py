"""What a journal says of a search and of its trials."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from elsa_tune.searching.planning import plan as plans
from elsa_tune.searching.planning.known import KnownTrial, known_trial
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.record import SearchRecord
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.journal import Journal, read_journal
from elsa_tune.tracking.journal_records import (
    Decision,
    LatePredictions,
    Record,
    Report,
    SearchEnded,
    SearchStatus,
    TrialEnded,
)
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import RecordedTrial, SearchState, is_behind
from tests.recorded_search import (
    probed,
    report,
    search_started,
    trial_ended,
    trial_started,
    whole_search,
    whole_trial,
)
from tests.unit.search_examples import make_spec

A, B = "measure-N0-s0", "measure-N3-s1"


def timed(records: Iterable[Record]) -> list[Record]:
    """Return records a second apart, from 1."""
    return [
        dataclasses.replace(record, time=float(second))
        for second, record in enumerate(records, start=1)
    ]


def test_a_whole_search() -> None:
    state = SearchState.replay(timed(whole_search(trials=3)))
    search = state.search
    assert (search.name, search.model, search.task, search.attempt) == ("first", "minilm", "rte", 1)
    assert state.status is SearchStatus.COMPLETED and state.is_complete
    assert state.decisions["sampler"] == {"name": "tpe", "seed": 0}
    assert list(state.trials) == ["measure-N0-s0", "measure-N1-s1", "measure-N2-s2"]
    assert state.final_trials == list(state.trials.values()) and state.started == 1
    trial = state.trials["measure-N1-s1"]
    assert trial.status is TrialStatus.COMPLETED
    assert trial.latest["quality"] == 0.51
    assert [report.step for report in trial.reports] == [100, 200, 300]


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
    assert alive.trials[B].latest["quality"] == 0.3
    dead = SearchState.replay(records, alive=False)
    assert dead.status is SearchStatus.KILLED and not dead.is_complete
    assert [trial.key for trial in dead.final_trials] == [A]
    assert dead.trials[B].status is TrialStatus.INTERRUPTED


def test_an_ended_search_leaves_no_trial_running() -> None:
    end = SearchEnded(status=SearchStatus.INTERRUPTED, message="Ctrl-C")
    state = SearchState.replay(timed([search_started(), trial_started(A), report(A, 1, 0.3), end]))
    assert state.status is SearchStatus.INTERRUPTED
    assert state.trials[A].status is TrialStatus.INTERRUPTED


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
    assert state.search.attempt == 2 and state.started == 1
    trial = state.trials[A]
    assert (trial.start.attempt, trial.status) == (2, TrialStatus.RUNNING)
    assert trial.latest["quality"] == 0.5 and len(trial.reports) == 1
    # Until it is started again it is interrupted, though the new driver lives.
    assert SearchState.replay(records[:5]).trials[A].status is TrialStatus.INTERRUPTED


def test_a_word_after_the_end_changes_nothing() -> None:
    ended = trial_ended(A, TrialStatus.STOPPED_EARLY, 0.4)
    late = [report(A, 3, 0.9), trial_ended(A, TrialStatus.COMPLETED, 0.9)]
    state = SearchState.replay(timed([search_started(), trial_started(A), ended, *late]))
    assert (
        state.trials[A].status is TrialStatus.STOPPED_EARLY
        and state.trials[A].latest["quality"] == 0.4
    )


def test_late_predictions_belong_to_the_trial_that_has_ended() -> None:
    ended = trial_ended(A, TrialStatus.COMPLETED, 0.4)
    late = [
        LatePredictions(trial="unknown", artifact="predictions/u.npz"),
        LatePredictions(trial=A, artifact="predictions/a.npz"),
    ]
    state = SearchState.replay(timed([search_started(), trial_started(A), ended, *late]))
    without = SearchState.replay(timed([search_started(), trial_started(A), ended]))
    end = without.trials[A].end
    assert end is not None and list(state.trials) == [A]
    assert state.trials[A].end == dataclasses.replace(end, artifact="predictions/a.npz")
    assert state.held_gpu_seconds == without.held_gpu_seconds


def test_the_trials_own_quality_goes_before_the_last_evaluations() -> None:
    records = [search_started(), trial_started(A), report(A, 1, 0.9), report(A, 2, 0.7)]
    best = trial_ended(A, TrialStatus.COMPLETED, 0.9)
    assert SearchState.replay(timed([*records, best])).trials[A].latest["quality"] == 0.9
    silent = TrialEnded(trial=A, status=TrialStatus.FAILED, message="out of memory")
    failed = SearchState.replay(timed([*records, silent])).trials[A]
    assert failed.latest["quality"] == 0.7


def test_what_is_not_finite_is_no_value() -> None:
    broken = Report(trial=A, evaluation=2, step=200, metrics={"quality": math.nan})
    records = [search_started(), trial_started(A), report(A, 1, 0.6), broken]
    assert SearchState.replay(timed(records)).trials[A].latest["quality"] == 0.6


def test_a_later_decision_replaces_an_earlier_one() -> None:
    records = [search_started(), Decision(what="x", value=1), Decision(what="x", value=2)]
    assert SearchState.replay(timed(records)).decisions == {"x": 2}


def test_an_empty_journal_is_a_search_without_trials() -> None:
    state = SearchState.replay([], alive=False)
    assert state.status is SearchStatus.KILLED and state.trials == {} and not state.search.search_id


def test_the_status_in_words() -> None:
    assert SearchState.replay([]).status_text == "not begun"
    begun = [search_started()]
    assert SearchState.replay(timed(begun)).status_text == "running"
    assert SearchState.replay(timed(begun), alive=False).status_text == "killed"
    over = [*begun, SearchEnded(status=SearchStatus.TIME_UP, message="")]
    assert SearchState.replay(timed(over)).status_text == "time up"


def interleaved(seed: int) -> list[Record]:
    """Return records of three trials and two sessions in any order, also such as make no sense."""
    draw = random.Random(seed)
    keys = [A, B, "explore-N6-s0", "probe-N6"]
    stop = SearchEnded(status=SearchStatus.INTERRUPTED)
    found: list[Record] = []
    for _ in range(60):
        key, attempt = draw.choice(keys), draw.choice([1, 1, 2])
        started = trial_started("probe-N6-s0" if key == "probe-N6" else key, attempt)
        status = draw.choice([TrialStatus.COMPLETED, TrialStatus.FAILED, TrialStatus.STOPPED_EARLY])
        found.append(
            draw.choice(
                [
                    dataclasses.replace(started, trial=key),
                    report(key, draw.randint(1, 3), draw.random(), attempt),
                    report(key, draw.randint(1, 3), draw.random(), attempt),
                    trial_ended(key, status, draw.random(), attempt),
                    Decision(what=draw.choice("xy"), value=draw.randint(0, 9)),
                    *([search_started(attempt=2), stop] if draw.random() < 0.2 else []),
                ]
            )
        )
    return timed([search_started(), *found])


@pytest.mark.parametrize("seed", range(10))
def test_the_driver_knows_what_its_journal_says(seed: int, tmp_path: Path) -> None:
    records = interleaved(seed)
    begun, paths, spec = seed * 6, SearchPaths(tmp_path, "first"), make_spec()
    nowhere: Any = SimpleNamespace(offer=lambda record: None)
    with Journal(paths.journal) as journal:
        journal.earlier = records[:begun]
        kept = SearchRecord(spec, paths, journal, nowhere, print)
        plan = Plan(spec, kept.state, paths.folder)
        for number, record in enumerate(records[begun:], start=begun + 1):
            kept.write(record)
            state = SearchState.replay(records[:number])
            known = tuple(known_trial(spec, trial) for trial in state.planned_trials)
            assert plan.known == known
            assert kept.state() == state


def test_a_signal_while_the_journal_is_written_loses_a_record_for_no_store(tmp_path: Path) -> None:
    offered: list[Record] = []
    store: Any = SimpleNamespace(offer=offered.append)
    paths = SearchPaths(tmp_path, "first")
    with Journal(paths.journal) as journal:
        kept = SearchRecord(make_spec(), paths, journal, store, print)
        kept.write(trial_started(B))
        append = journal.append

        def interrupted(record: Record) -> None:
            append(record)
            raise KeyboardInterrupt

        journal.append = interrupted  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            kept.write(report(B, 1, 0.5))
    assert [one.kind for one in offered] == ["trial_started", "report"]
    assert read_journal(paths.journal) == offered


def test_a_store_is_behind_where_it_keeps_less_than_it_was_sent() -> None:
    first = [search_started(), *whole_trial(A, 0.8), trial_started(B), report(B, 1, 0.9)]
    again = [search_started(attempt=2), trial_started(B, 2), report(B, 1, 0.4, attempt=2)]
    ends = [
        trial_ended(B, TrialStatus.FAILED, attempt=2),
        SearchEnded(status=SearchStatus.COMPLETED),
    ]
    records = timed([*first, *again, *ends])
    states = [SearchState.replay(records[:number]) for number in range(len(records) + 1)]
    for kept, sent in itertools.product(range(len(states)), repeat=2):
        assert is_behind(states[kept], states[sent]) is (kept < sent), (kept, sent)


def test_nothing_is_kept_in_a_folder_that_another_search_has(tmp_path: Path) -> None:
    offered: list[Record] = []
    store: Any = SimpleNamespace(offer=offered.append)
    paths = SearchPaths(tmp_path, "first")
    paths.folder.mkdir()
    paths.specification.write_text("the first one's")
    with Journal(paths.journal) as journal:
        kept = SearchRecord(make_spec(), paths, journal, store, pytest.fail)
        kept.write(search_started())
        kept.write(trial_started(B))
        shutil.rmtree(paths.folder)
        with Journal(paths.journal) as new:
            new.append(search_started(search_id="another"))
            checkpoint = paths.checkpoints / f"{B}.safetensors"
            checkpoint.parent.mkdir()
            checkpoint.write_text("the other one's")
            before = sorted(paths.folder.rglob("*"))
            assert kept.keep_predictions(B, np.zeros(2), np.zeros(2)) is None
            assert kept.taken is not None and "'first' was deleted" in kept.taken
            kept.write(trial_ended(B, TrialStatus.COMPLETED, 0.5))
            kept.drop_checkpoint(B)
            kept.tidy_checkpoints()
            assert sorted(paths.folder.rglob("*")) == before
    # Its store has it all.
    assert [one.kind for one in offered] == ["search_started", "trial_started", "trial_ended"]


def test_a_folder_that_is_written_anew_has_the_specification_of_its_search(tmp_path: Path) -> None:
    store: Any = SimpleNamespace(offer=lambda record: None)
    paths = SearchPaths(tmp_path, "first")
    paths.folder.mkdir()
    paths.specification.write_text("the first one's")
    with Journal(paths.journal) as journal:
        said: list[str] = []
        kept = SearchRecord(make_spec(), paths, journal, store, said.append)
        kept.write(search_started())
        shutil.rmtree(paths.folder)
        # Of somebody who was about to begin.
        paths.folder.mkdir()
        paths.specification.write_text("another one's")
        kept.write(trial_started(B))
        assert paths.specification.read_text() == "the first one's" and kept.taken is None
        assert len(said) == 1 and "was deleted or moved" in said[0]


def test_a_report_costs_the_same_however_many_trials_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []

    def counted(spec: SearchSpec, state: RecordedTrial) -> KnownTrial:
        told.append(state.key)
        return known_trial(spec, state)

    monkeypatch.setattr(plans, "known_trial", counted)
    nowhere: Any = SimpleNamespace(offer=lambda record: None)
    earlier = timed(whole_search(trials=30))
    paths, spec = SearchPaths(tmp_path, "first"), make_spec()
    with Journal(paths.journal) as journal:
        journal.earlier = earlier
        kept = SearchRecord(spec, paths, journal, nowhere, print)
        plan = Plan(spec, kept.state, paths.folder)
        kept.write(trial_started(B))
        assert len(plan.known) == 31
        told.clear()
        kept.write(report(B, 1, 0.5))
        assert len(plan.known) == 31 and len(kept.state().trials) == 31
        assert told == [B]
