"""A trial hangs that sends nothing for ten times what its like take; nothing else does."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from elsa_tune import testing
from elsa_tune.searching.cluster import watching
from elsa_tune.searching.cluster.hangs import SHORTEST_HANG, Hangs, patience
from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, Recipe, TrialStatus

DEEP = FreezeDepth.of(6)
HALF = FreezeDepth.of(3)


def trial_of(
    spec: SearchSpec,
    candidate: Candidate,
    reported: Sequence[float] = (),
    *,
    restored: int = 0,
    seed: int = 1,
) -> KnownTrial:
    """Return a trial that began at 0 and reported at these seconds; it runs."""
    return KnownTrial(
        trial=spec.trial(Phase.MEASURE, candidate, 3e-5, seed),
        status=TrialStatus.RUNNING,
        qualities=tuple(0.5 for _ in reported),
        reported=tuple(reported),
        restored=restored,
    )


def waits(spec: SearchSpec, candidate: Candidate, *others: KnownTrial) -> float | None:
    """Return how long a trial of a candidate may be silent beside others."""
    trial = trial_of(spec, candidate, seed=9)
    return patience(spec, [*others, trial], trial)


def test_ten_times_the_longest_evaluation_of_the_same_candidate() -> None:
    spec = testing.example_spec()
    slow_at_first = trial_of(spec, FULL_MODEL, [100.0, 110.0, 120.0])
    assert waits(spec, FULL_MODEL, slow_at_first) == 1000.0
    quick = trial_of(spec, FULL_MODEL, [1.0, 2.0])
    assert waits(spec, FULL_MODEL, quick) == SHORTEST_HANG


def test_a_costlier_candidate_counts_and_a_cheaper_one_does_not() -> None:
    spec = testing.example_spec()
    full = trial_of(spec, FULL_MODEL, [80.0])
    deep = trial_of(spec, DEEP, [60.0])
    assert waits(spec, HALF, full) == 800.0
    assert waits(spec, FULL_MODEL, deep) is None
    assert waits(spec, HALF, deep) is None
    assert waits(spec, HALF, deep, full) == 800.0


def test_the_first_trial_of_a_depth_has_time_to_keep_its_prefixes() -> None:
    """It passes the whole training set through its frozen layers: an epoch, not an evaluation."""
    spec = testing.example_spec(recipe=Recipe(epochs=2, train_size=100, evaluations_per_epoch=5))
    full = trial_of(spec, FULL_MODEL, [80.0])
    assert waits(spec, HALF, full) == 4000.0
    assert waits(spec, FULL_MODEL, full) == 800.0


def test_what_a_checkpoint_gave_back_at_once_is_no_pace() -> None:
    spec = testing.example_spec()
    restored = trial_of(spec, FULL_MODEL, [1.0, 1.1], restored=2)
    assert waits(spec, FULL_MODEL, restored) is None


@pytest.mark.parametrize(("asked", "seconds"), [("never", None), (20.0, 20.0)])
def test_what_is_asked_for_counts(asked: Any, seconds: float | None) -> None:
    spec = testing.example_spec(hung_after=asked)
    full = trial_of(spec, FULL_MODEL, [80.0])
    assert waits(spec, FULL_MODEL, full) == seconds
    assert waits(spec, FULL_MODEL) == seconds


class Watched:
    """A watch over trials that a test lets report; time passes in looks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, spec: SearchSpec) -> None:
        monkeypatch.setattr(
            watching.ray,
            "get_runtime_context",
            lambda: SimpleNamespace(get_node_id=lambda: "here"),
        )
        monkeypatch.setattr(watching.ray, "nodes", list)
        self.hangs = Hangs()
        self.said: list[str] = []
        self.saved: float | None = None
        self.watch = watching.Watch(
            spec,
            SimpleNamespace(known=[]),
            SimpleNamespace(under_way=[]),
            lambda: True,
            self.said.append,
            lambda: None,
        )
        self.watch.hangs = self.hangs
        self.watch.saved = lambda key: self.saved

    def look(self, trials: Sequence[KnownTrial], seconds: float, *, steps: bool = True) -> None:
        """Look on for so many seconds, in which Ray Tune takes steps or none."""
        for _ in range(int(seconds / watching.LOOK_SECONDS)):
            if steps:
                self.hangs.step()
            self.watch._look_at_news(trials)


@pytest.fixture
def spec() -> SearchSpec:
    return testing.example_spec(hung_after=600.0)


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch, spec: SearchSpec) -> Watched:
    return Watched(monkeypatch, spec)


def test_a_hung_trial_is_found_once(watched: Watched, spec: SearchSpec) -> None:
    trial = trial_of(spec, FULL_MODEL, [20.0])
    watched.look([trial], 595)
    assert watched.hangs.take() == {}
    watched.look([trial], 5)
    assert watched.hangs.take() == {
        trial.key: "hung: no report for 10 min 00 s, and such an evaluation takes 20 s"
    }
    watched.look([trial], 1000)
    assert watched.hangs.take() == {}
    [said] = watched.said
    assert said.endswith("after 10 min 00 s it counts as hung and is begun again")


def test_reports_and_checkpoints_are_news(watched: Watched, spec: SearchSpec) -> None:
    watched.look([trial_of(spec, FULL_MODEL)], 590)
    watched.look([trial_of(spec, FULL_MODEL, [590.0])], 590)
    watched.saved = 1.0
    watched.look([trial_of(spec, FULL_MODEL, [590.0])], 590)
    watched.saved = 2.0
    watched.look([trial_of(spec, FULL_MODEL, [590.0])], 590)
    assert watched.hangs.take() == {}


def test_a_driver_that_waits_hears_nothing_and_ends_nothing(
    watched: Watched, spec: SearchSpec
) -> None:
    """Its disk may hang, or it was stopped: what trials report it has not taken yet."""
    trial = trial_of(spec, FULL_MODEL, [20.0])
    watched.look([trial], 300)
    watched.look([trial], 10_000, steps=False)
    watched.look([trial], 290)
    assert watched.hangs.take() == {}
    watched.look([trial], 10)
    assert list(watched.hangs.take()) == [trial.key]


def test_a_repeated_trial_is_given_its_time_again(watched: Watched, spec: SearchSpec) -> None:
    trial = trial_of(spec, FULL_MODEL, [20.0])
    watched.look([trial], 600)
    assert len(watched.hangs.take()) == 1
    again = KnownTrial(trial=trial.trial, status=TrialStatus.RUNNING, qualities=(), started=700.0)
    watched.look([again], 595)
    assert watched.hangs.take() == {}
    watched.look([again], 5)
    assert list(watched.hangs.take()) == [trial.key]
