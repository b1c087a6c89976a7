"""What a search takes of a cluster: trials at once, a fair part of it, and GPU-hours."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from elsa_tune.errors import SpaceError, TrackingError, UsageError
from elsa_tune.searching import launch
from elsa_tune.searching.cluster.fair_part import FREE_LOOKS, FairPart, part_of
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.record import SearchRecord
from elsa_tune.searching.resuming import ResumeOptions, session_settings
from elsa_tune.searching.specification import (
    asked_settings,
    differing_settings,
    load_specification,
    more_of,
    save_specification,
)
from elsa_tune.searching.specification.changing import OF_A_SESSION
from elsa_tune.searching.startup.gpus import check_budget
from elsa_tune.searching.time_limit import TimeLimit
from elsa_tune.specs.search import Resources
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Record, SearchEnded, SearchStarted, SearchStatus
from elsa_tune.tracking.mlflow.sink import MlflowSink
from elsa_tune.tracking.mlflow.writer import MlflowWriter
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState
from tests.recorded_search import report, search_started, trial_ended, trial_started
from tests.unit.search_examples import make_spec

SHARE = Resources(cpus=2, gpus=0.5)
# Room for four trials of that share: by its GPUs.
CLUSTER = [{"CPU": 60.0, "GPU": 1.0}, {"CPU": 4.0, "GPU": 1.0}]
# What its two nodes have free: room for no trial, though there would be if it were one node.
FULL = [{"CPU": 56.0, "GPU": 0.25}, {"CPU": 1.0, "GPU": 0.25}]
ROOMY = [{"CPU": 56.0, "GPU": 0.25}, {"CPU": 2.0, "GPU": 0.5}]
HOUR = 3600.0


def fair_part(most: int | None = None, released: list[str] | None = None) -> FairPart:
    heard = [] if released is None else released
    return FairPart(SHARE, "b", most=most, is_shared=True, release=lambda: heard.append("released"))


def most_beside(part: FairPart) -> int:
    """Return how many trials may run at once, as things stand."""
    under_way = 0
    while under_way < 99 and part.allows(under_way):
        under_way += 1
    return under_way


@pytest.mark.parametrize(
    ("trials", "searches", "parts"),
    [
        (4, "ab", {"a": 2, "b": 2}),
        (4, "abc", {"a": 2, "b": 1, "c": 1}),
        (5, "abc", {"a": 2, "b": 2, "c": 1}),
        (4, "a", {"a": 4}),
        # More searches than room: the last ones wait for an end.
        (2, "abc", {"a": 1, "b": 1, "c": 1}),
        (0, "ab", {"a": 1, "b": 1}),
    ],
)
def test_every_search_gets_as_many_trials(
    trials: int, searches: str, parts: dict[str, int]
) -> None:
    assert {own: part_of(trials, list(searches), own) for own in searches} == parts


def test_a_search_that_is_alone_takes_what_there_is() -> None:
    part = fair_part()
    assert most_beside(part) == 99
    part.see({"b"}, CLUSTER, FULL)
    assert most_beside(part) == 99


def test_a_search_that_is_not_alone_keeps_to_its_part() -> None:
    part = fair_part()
    part.see({"a", "b"}, CLUSTER, FULL)
    assert most_beside(part) == 2
    part.see({"a", "b", "c", "d"}, CLUSTER, FULL)
    assert most_beside(part) == 1
    # One that the cluster does not know yet counts itself.
    part.see({"a"}, CLUSTER, FULL)
    assert most_beside(part) == 2
    part.see({"b"}, CLUSTER, FULL)
    assert most_beside(part) == 99


@pytest.mark.parametrize(
    ("share", "nodes", "parts"),
    [
        # On each GPU, and on each node, there is room for one.
        (Resources(cpus=1, gpus=0.6), [{"CPU": 64.0, "GPU": 2.0}], [1, 1]),
        (Resources(cpus=2, gpus=0), [{"CPU": 3.0}, {"CPU": 3.0}], [1, 1]),
        # GPUs are taken with CPUs of their own node.
        (Resources(cpus=4, gpus=1), [{"CPU": 32.0}, {"CPU": 8.0, "GPU": 4.0}], [1, 1]),
        (Resources(cpus=1, gpus=0.3), [{"CPU": 64.0, "GPU": 2.0}], [3, 3]),
        (Resources(cpus=1.6, gpus=0), [{"CPU": 4.8}], [2, 1]),
        (Resources(cpus=1, gpus=1 / 3), [{"CPU": 64.0, "GPU": 1.0}], [2, 1]),
    ],
)
def test_parts_are_of_the_trials_that_nodes_have_room_for(
    share: Resources, nodes: list[dict[str, float]], parts: list[int]
) -> None:
    found = []
    for own in ("a", "b"):
        part = FairPart(share, own, most=None, is_shared=True)
        part.see({"a", "b"}, nodes, [])
        found.append(most_beside(part))
    assert found == parts


def test_room_that_nobody_takes_is_taken_one_trial_at_a_time() -> None:
    part = fair_part()
    part.see({"a", "b"}, CLUSTER, FULL)
    for _ in range(FREE_LOOKS):
        assert not part.allows(2)
        part.see({"a", "b"}, CLUSTER, ROOMY)
    assert part.allows(2)
    assert not part.allows(3)
    # It must have stood free all the while.
    part.see({"a", "b"}, CLUSTER, ROOMY)
    part.see({"a", "b"}, CLUSTER, FULL)
    part.see({"a", "b"}, CLUSTER, ROOMY)
    assert not part.allows(2)


def test_a_number_of_trials_that_was_asked_for_is_never_exceeded() -> None:
    part = fair_part(most=3)
    assert most_beside(part) == 3
    for _ in range(FREE_LOOKS):
        part.see({"a", "b"}, CLUSTER, ROOMY)
    assert part.allows(2) and not part.allows(3)


def test_room_is_left_to_others_where_there_are_some() -> None:
    released: list[str] = []
    part = fair_part(released=released)
    part.leave()
    assert not released
    part.see({"a", "b"}, CLUSTER, FULL)
    part.leave()
    assert released == ["released"]


def test_a_machine_of_ones_own_is_not_asked_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(**options: object) -> Sequence[object]:
        raise AssertionError("Ray was asked")

    monkeypatch.setattr("ray.util.list_named_actors", asked)
    part = FairPart(SHARE, "b", most=None, is_shared=False)
    part.look()
    assert part.allows(7)


def at(time: float, record: Record) -> Record:
    return dataclasses.replace(record, time=time)


def begun(time: float, attempt: int = 1, gpus: str = "0.5") -> Record:
    started = search_started(attempt=attempt)
    return dataclasses.replace(started, time=time, tags={**started.tags, "gpus_per_trial": gpus})


A, B = "measure-N0-s1", "measure-N3-s1"


def test_gpu_hours_are_those_for_which_trials_held_gpus() -> None:
    state = SearchState()
    for record in (
        begun(100.0),
        at(1000.0, trial_started(A)),
        at(1000.0, trial_started(B)),
        at(1000.0 + HOUR, report(A, 1, 0.8)),
        at(1000.0 + HOUR, trial_ended(A, TrialStatus.FAILED)),
    ):
        state.add(record)
    # An hour of half a GPU has ended, and another one has run for two.
    assert state.gpu_hours(1000.0 + 2 * HOUR) == pytest.approx(0.5 + 1.0)
    # What is not of the plan holds no share of its own.
    state.add(at(1000.0 + HOUR, trial_started("probe-N0-s0")))
    assert state.gpu_hours(1000.0 + 2 * HOUR) == pytest.approx(0.5 + 1.0)


def test_every_attempt_and_session_counts_and_no_time_between_them() -> None:
    killed = [
        begun(0.0),
        at(0.0, trial_started(A)),
        at(HOUR, report(A, 1, 0.8)),  # the last sign before a kill
    ]
    resumed = [
        begun(1000 * HOUR, attempt=2, gpus="1"),
        at(1000 * HOUR, trial_started(A, attempt=2)),
        at(1001 * HOUR, trial_ended(A, TrialStatus.COMPLETED, attempt=2)),
        at(1001 * HOUR, SearchEnded(status=SearchStatus.COMPLETED)),
    ]
    assert SearchState.replay(killed, alive=False).gpu_hours(99 * HOUR) == pytest.approx(0.5)
    state = SearchState.replay(killed + resumed, alive=False)
    assert state.gpu_hours(2000 * HOUR) == pytest.approx(0.5 + 1.0)
    # An attempt that was given up for the next one held its part until then.
    again = [begun(0.0), at(0.0, trial_started(A)), at(HOUR, trial_started(A, attempt=2))]
    assert SearchState.replay(again).gpu_hours(HOUR) == pytest.approx(0.5)


def test_hours_go_on_while_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clocks = SimpleNamespace(wall=1000 * HOUR, since_boot=0.0)
    clocks.time = lambda: clocks.wall
    clocks.monotonic = lambda: clocks.since_boot
    monkeypatch.setattr("elsa_tune.tracking.journal.time", clocks)
    paths = SearchPaths(tmp_path, "first")
    nowhere: Any = SimpleNamespace(offer=lambda record: None)
    with Journal(paths.journal) as journal:
        record = SearchRecord(make_spec(), paths, journal, nowhere, print)
        record.write(begun(0.0))
        record.write(trial_started(A))
        # An hour passes, and the clock is set back by two.
        clocks.wall -= HOUR
        clocks.since_boot += HOUR
        assert record.gpu_hours() == pytest.approx(0.5)
        record.write(trial_ended(A, TrialStatus.COMPLETED))
        assert record.gpu_hours() == pytest.approx(0.5)


@pytest.mark.parametrize("tag", ["0", "many", ""])
def test_trials_on_cpus_hold_no_gpus(tag: str) -> None:
    state = SearchState()
    for record in (
        begun(0.0, gpus=tag),
        at(0.0, trial_started(A)),
        at(HOUR, trial_ended(A, TrialStatus.COMPLETED)),
    ):
        state.add(record)
    assert state.gpu_hours(2 * HOUR) == 0


def test_a_budget_is_over_when_its_hours_are_used() -> None:
    used = 0.0
    limit = TimeLimit(10.0, lambda: 0.0, gpu_hours=8.0, used=lambda: used)
    assert not limit.has_passed() and limit.ran_out is None
    used = 4.0
    assert limit.ends_exploring(0.5) and not limit.has_passed() and limit.ran_out is None
    assert limit.cut_exploring == "exploring had its share of the 8 GPU-hours"
    used = 8.0
    assert limit.has_passed() and limit.ran_out == "8 GPU-hours were used up"
    without = TimeLimit(None, lambda: 0.0, used=lambda: 1e9)
    assert not without.has_passed()


def test_a_budget_that_is_used_up_takes_a_larger_one() -> None:
    state = SearchState()
    for record in (
        begun(0.0, gpus="1"),
        at(0.0, trial_started(A)),
        at(8 * HOUR, trial_ended(A, TrialStatus.COMPLETED)),
    ):
        state.add(record)
    spec = make_spec(resources=Resources(cpus=1, gpus=1), gpu_hours=8.0)
    with pytest.raises(UsageError, match="has used 8 of its 8 GPU-hours; give a larger number"):
        check_budget(spec, state)
    more = more_of(None, False, {"gpu_hours": 9.0})
    assert more is not None
    check_budget(more(spec), state)
    check_budget(dataclasses.replace(spec, gpu_hours=None), state)


def test_a_budget_that_is_refused_is_not_recorded(tmp_path: Path) -> None:
    spec = make_spec(resources=Resources(cpus=1, gpus=1), gpu_hours=8.0)
    paths = SearchPaths(tmp_path, spec.name)
    paths.check_writable()
    save_specification(spec, paths)
    with Journal(paths.journal, spec.search_id) as journal:
        for record in (
            begun(HOUR, gpus="1"),
            at(HOUR, trial_started(A)),
            at(9 * HOUR, trial_ended(A, TrialStatus.COMPLETED)),
        ):
            journal.append(record)
    less = more_of(None, False, {"gpu_hours": 7.0})
    with pytest.raises(UsageError, match="has used 8 of its 7 GPU-hours"):
        launch.resume(paths, pytest.fail, more=less)
    assert load_specification(paths).gpu_hours == 8.0


def test_what_resume_takes_is_all_that_any_session_may_set() -> None:
    options = ResumeOptions(
        checkpoint="10m",
        hung_after="never",
        gpu_hours=8.0,
        max_workers=2,
        max_failures=0,
    )
    settings = session_settings(options)
    assert settings.keys() == set(OF_A_SESSION)
    assert (settings["checkpoint"], settings["hung_after"]) == (600, "never")


def test_a_resume_that_cannot_begin_gives_the_search_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = tmp_path / "copies"
    copies.mkdir()
    lease = copies / "example" / "lease.json"
    spec = make_spec(artifacts=str(copies))
    paths = SearchPaths(tmp_path / "here", spec.name)
    paths.check_writable()
    save_specification(spec, paths)

    def no_store(*what: object, **how: object) -> None:
        assert lease.exists()
        raise TrackingError("it does not answer")

    monkeypatch.setattr(launch, "open_again", no_store)
    more = more_of(None, False, {"max_workers": 2})
    with pytest.raises(TrackingError, match="it does not answer"):
        launch.resume(paths, pytest.fail, more=more)
    assert not lease.exists()
    assert load_specification(paths).max_workers is None


@pytest.mark.parametrize("name", ["gpu_hours", "max_workers"])
@pytest.mark.parametrize("number", [0, -1])
def test_what_resume_takes_is_above_0(name: str, number: int) -> None:
    with pytest.raises(UsageError, match=f"`{name}` is {number}; it must be above 0"):
        more_of(None, False, {name: number})


def test_seeds_that_resume_takes_are_as_many_as_a_search_can_have() -> None:
    assert more_of(1000, False) is not None
    with pytest.raises(SpaceError, match=re.escape("`seeds` is 1,001; it must be at most 1,000")):
        more_of(1001, False)


@pytest.mark.parametrize("cpus", [0, -1, float("nan"), float("inf")])
def test_cpus_that_resume_takes_are_above_0(cpus: float) -> None:
    with pytest.raises(UsageError, match=f"`cpus_per_trial` is {cpus:g}; it must be above 0"):
        more_of(None, False, {"cpus_per_trial": cpus})


def test_gpus_that_resume_takes_may_be_0() -> None:
    more = more_of(None, False, {"gpus_per_trial": 0})
    assert more is not None
    assert more(make_spec(resources=Resources(cpus=1, gpus=1))).gpu_share == 0
    with pytest.raises(UsageError, match="`gpus_per_trial` is -1; it must be 0 or more"):
        more_of(None, False, {"gpus_per_trial": -1})


def test_a_recorded_search_takes_the_share_that_is_asked_for_now(tmp_path: Path) -> None:
    asked = make_spec(cpus_per_trial=1.0, gpus_per_trial=0)
    recorded = make_spec(resources=Resources(cpus=4, gpus=1))
    assert differing_settings(asked, recorded) == []
    more = more_of(None, False, asked_settings(asked))
    assert more is not None
    changed = more(recorded)
    assert (changed.cpus_per_trial, changed.gpu_share) == (1.0, 0)
    # What is not asked for stays.
    assert asked_settings(make_spec()) == {}
    assert (recorded.cpus_per_trial, recorded.gpu_share) == (None, 1)
    paths = SearchPaths(tmp_path, changed.name)
    paths.check_writable()
    save_specification(changed, paths)
    assert load_specification(paths).cpus_per_trial == 1.0


def test_gpu_hours_go_by_the_share_that_is_asked_for(tmp_path: Path) -> None:
    spec = make_spec(resources=Resources(cpus=1, gpus=1))
    paths = SearchPaths(tmp_path, spec.name)
    paths.check_writable()
    save_specification(spec, paths)
    more = more_of(None, False, {"gpu_hours": 8.0, "gpus_per_trial": 0})
    with pytest.raises(UsageError, match="trials train on CPUs here"):
        launch.resume(paths, pytest.fail, more=more)


@pytest.mark.parametrize(
    ("gpus", "gpu_hours", "settings"),
    [(0, None, {"gpu_hours": 1.0}), (1, 8.0, {"gpus_per_trial": 0})],
)
def test_a_finished_search_records_no_gpu_hours_that_its_trials_could_not_have(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpus: float,
    gpu_hours: float | None,
    settings: dict[str, Any],
) -> None:
    spec = make_spec(resources=Resources(cpus=1, gpus=gpus), gpu_hours=gpu_hours)
    paths = SearchPaths(tmp_path, spec.name)
    paths.check_writable()
    save_specification(spec, paths)
    monkeypatch.setattr(Plan, "is_complete", True)
    more = more_of(None, False, settings)
    with pytest.raises(UsageError, match="trials train on CPUs here"):
        launch.resume(paths, pytest.fail, more=more)
    assert load_specification(paths) == spec


def test_mlflow_has_the_gpu_hours_of_a_search(tmp_path: Path) -> None:
    writer = Mock(spec=MlflowWriter, uri="sqlite:////nowhere.db", files_uri="file:///nowhere")
    sink = MlflowSink(tmp_path / "journal.jsonl", writer)
    for record in (
        begun(0.0),
        at(0.0, trial_started(A)),
        at(HOUR, report(A, 1, 0.8)),
        at(HOUR, trial_ended(A, TrialStatus.COMPLETED)),
        at(2 * HOUR, SearchEnded(status=SearchStatus.INTERRUPTED)),
    ):
        sink.send([record])
    search, ended, reports, *_ = writer.end.call_args_list[-1].args
    assert isinstance(search, SearchStarted) and isinstance(ended, SearchEnded)
    assert [(one.step, one.metrics) for one in reports] == [(1, {"gpu_hours": 0.5})]
