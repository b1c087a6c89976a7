"""ASHA per depth: no trial is judged against another depth's.

And rungs survive a restart by replay.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ray import tune
from ray.tune.execution.tune_controller import TuneController
from ray.tune.schedulers import TrialScheduler
from ray.tune.utils.object_cache import _ObjectCache

from elsa_tune.searching.tune.asha import PerCandidateAsha
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import Asha
from elsa_tune.specs.trial import Phase, TrialSpec
from tests.unit.search_examples import make_spec

STOP, CONTINUE = TrialScheduler.STOP, TrialScheduler.CONTINUE


def trial_spec(depth: str, phase: str = "explore", identifier: str = "") -> TrialSpec:
    """Return a trial of a depth, another one for each identifier."""
    seed = int.from_bytes(identifier.encode())
    return make_spec().trial(Phase(phase), FreezeDepth.of(depth), 2e-5, seed)


def make_trial(identifier: str, depth: str, phase: str = "explore") -> Any:
    spec = trial_spec(depth, phase, identifier)
    return SimpleNamespace(trial_id=identifier, config={"trial": spec})


def report(scheduler: PerCandidateAsha, trial: Any, evaluation: int, quality: float) -> str:
    controller: Any = None
    return scheduler.on_trial_result(
        controller, trial, {"evaluation": evaluation, "quality": quality}
    )


def add(scheduler: PerCandidateAsha, identifier: str, depth: str) -> Any:
    trial = make_trial(identifier, depth)
    controller: Any = None
    scheduler.on_trial_add(controller, trial)
    return trial


def test_a_measuring_trial_is_never_stopped() -> None:
    scheduler = PerCandidateAsha(Asha(grace=1, reduction_factor=2), 4)
    report(scheduler, add(scheduler, "good", "0"), 1, 0.9)
    measuring = make_trial("measuring", "0", "measure")
    controller: Any = None
    scheduler.on_trial_add(controller, measuring)
    assert report(scheduler, measuring, 1, 0.1) == CONTINUE
    assert report(scheduler, add(scheduler, "bad", "0"), 1, 0.1) == STOP


def test_a_trial_that_is_repeated_counts_once() -> None:
    """Ray Tune gives it another id; what it reports again is its first try's."""
    scheduler = PerCandidateAsha(Asha(grace=1, reduction_factor=2), evaluations=4)
    for quality in (0.5, 0.8):
        report(scheduler, add(scheduler, str(quality), "0"), 1, quality)
    spec = trial_spec("0", identifier="lost")
    for identifier in ("lost", "again"):
        trial: Any = SimpleNamespace(trial_id=identifier, config={"trial": spec})
        controller: Any = None
        scheduler.on_trial_add(controller, trial)
        assert report(scheduler, trial, 1, 0.9) == CONTINUE
    # The median of 0.5, 0.8 and 0.9; with the repeated one twice it were 0.85.
    assert report(scheduler, add(scheduler, "next", "0"), 1, 0.82) == CONTINUE


def test_a_deeper_depth_that_is_always_worse_keeps_its_best_trial() -> None:
    scheduler = PerCandidateAsha(Asha(grace=1, reduction_factor=2), evaluations=4)
    for number in range(4):
        full = add(scheduler, f"full{number}", "0")
        assert report(scheduler, full, 1, 0.9) == CONTINUE
    first = add(scheduler, "deep0", "6")
    assert report(scheduler, first, 1, 0.5) == CONTINUE  # 0.5 would be the last in a common rung
    worse = add(scheduler, "deep1", "6")
    assert report(scheduler, worse, 1, 0.4) == STOP
    assert scheduler.stopped == {"deep1"}
    assert report(scheduler, first, 2, 0.5) == CONTINUE


def test_a_trial_close_to_the_best_of_its_rung_goes_on_also_after_a_restart() -> None:
    def asha() -> PerCandidateAsha:
        return PerCandidateAsha(Asha(grace=1, reduction_factor=2, margin=0.01), evaluations=4)

    before, after = asha(), asha()
    report(before, add(before, "a", "3"), 1, 0.7)
    after.replay(trial_spec("3"), (0.7,))
    for scheduler in (before, after):
        near, far = add(scheduler, "near", "3"), add(scheduler, "far", "3")
        assert report(scheduler, near, 1, 0.695) == CONTINUE
        assert report(scheduler, far, 1, 0.685) == STOP
        assert scheduler.stopped == {"far"}
        assert report(scheduler, near, 2, 0.8) == CONTINUE
        assert report(scheduler, add(scheduler, "deeper", "6"), 1, 0.5) == CONTINUE


def test_the_last_planned_evaluation_stops_nothing() -> None:
    scheduler = PerCandidateAsha(Asha(grace=1, reduction_factor=2), evaluations=2)
    good, bad = add(scheduler, "a", "3"), add(scheduler, "b", "3")
    report(scheduler, good, 1, 0.6)
    report(scheduler, bad, 1, 0.6)
    assert report(scheduler, good, 2, 0.9) == CONTINUE
    assert report(scheduler, bad, 2, 0.1) == CONTINUE
    assert not scheduler.stopped


def test_replayed_rungs_judge_as_the_ones_before_the_restart() -> None:
    def asha() -> PerCandidateAsha:
        return PerCandidateAsha(Asha(grace=1, reduction_factor=2), evaluations=4)

    before, after = asha(), asha()
    first = add(before, "a", "3")
    scores = (0.7, 0.8, 0.9, 0.9)
    for evaluation, score in enumerate(scores, start=1):
        report(before, first, evaluation, score)
    after.replay(trial_spec("3"), scores)
    for scheduler in (before, after):
        # Rungs at the first and at the second evaluation.
        second = add(scheduler, "b", "3")
        assert report(scheduler, second, 1, 0.75) == CONTINUE
        assert report(scheduler, second, 2, 0.75) == STOP
        assert report(scheduler, add(scheduler, "c", "3"), 1, 0.69) == STOP
        assert report(scheduler, add(scheduler, "d", "6"), 1, 0.6) == CONTINUE


def test_the_named_metric_decides_also_in_a_replay() -> None:
    scheduler = PerCandidateAsha(Asha(grace=1, reduction_factor=2), 4, "holdout_quality")
    scheduler.replay(trial_spec("3"), (0.7, 0.8))
    controller: Any = None
    result = {"evaluation": 1, "quality": 0.9, "holdout_quality": 0.6}
    assert scheduler.on_trial_result(controller, add(scheduler, "b", "3"), result) == STOP
    result = {"evaluation": 1, "quality": 0.1, "holdout_quality": 0.8}
    assert scheduler.on_trial_result(controller, add(scheduler, "c", "3"), result) == CONTINUE


@pytest.mark.parametrize(
    "scheduler",
    [
        PerCandidateAsha(None, evaluations=3),
        PerCandidateAsha(Asha(grace=4), evaluations=3),
        PerCandidateAsha(Asha(), evaluations=3, exempt=(FULL_MODEL,)),
    ],
    ids=["off", "grace for the whole trial", "trials that cost too little"],
)
def test_where_nothing_is_stopped(scheduler: PerCandidateAsha) -> None:
    for number, quality in enumerate((0.9, 0.1, 0.0)):
        assert report(scheduler, add(scheduler, str(number), "0"), 1, quality) == CONTINUE


def test_workers_that_wait_are_kept() -> None:
    """In Ray's own cache, by its own name: else each one loads its libraries anew."""
    assert "_actor_cache" in TuneController.__init__.__code__.co_names
    kept, share = [], tune.PlacementGroupFactory([{"CPU": 1}])
    for keeps in (True, False):
        idle: Any = _ObjectCache(may_keep_one=True)
        scheduler = PerCandidateAsha(None, 2, keeps_workers=keeps)
        for number in range(2):
            trial = make_trial(str(number), "0")
            trial.placement_group_factory = share
            scheduler.on_trial_add(SimpleNamespace(_actor_cache=idle), trial)
        kept.append([idle.cache_object(share, number) for number in range(2)])
        assert not list(idle.flush_cached_objects())
    assert kept == [[True, True], [True, False]]
