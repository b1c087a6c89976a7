"""A trial hangs that sends nothing for ten times what its like take; nothing else does."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
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
        self.given_up = 0
        self.saved: float | None = None
        self.plan = SimpleNamespace(known=[])
        hooks = watching.WatchHooks(
            has_workers=lambda: True,
            saved=lambda key: self.saved,
            look_around=lambda: None,
            joining=None,
            hangs=self.hangs,
            note_waiting=lambda what: None,
            say=self.said.append,
            give_up=self._give_up,
        )
        waiting = SimpleNamespace(under_way=[])
        self.watch = watching.Watch(spec, self.plan, waiting, hooks)

    def _give_up(self) -> None:
        self.given_up += 1

    def hook(self, **hooks: Any) -> None:
        """Give the watch other hooks."""
        self.watch._hooks = dataclasses.replace(self.watch._hooks, **hooks)

    def count(self, seconds: float) -> None:
        """Let the guard count for so many seconds."""
        for _ in range(int(seconds / watching.LOOK_SECONDS)):
            self.watch._count_silence()

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


@pytest.mark.parametrize(
    ("saved", "then"), [(None, "start it again"), (1.0, "continue it at its checkpoint")]
)
def test_what_resume_would_do_with_a_silent_trial_is_said(
    monkeypatch: pytest.MonkeyPatch, saved: float | None, then: str
) -> None:
    never = testing.example_spec(hung_after="never")
    watched = Watched(monkeypatch, never)
    watched.saved = saved
    watched.look([trial_of(never, FULL_MODEL)], watching.UNKNOWN_SILENCE)
    [said] = watched.said
    assert said.endswith(f"; Ctrl-C and `resume` {then}")


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


class Stuck:
    """A call that returns nothing before it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.goes_on = threading.Event()

    def __call__(self, *given: Any) -> None:
        self.begun.set()
        self.goes_on.wait(200)


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    stuck = Stuck()
    yield stuck
    stuck.goes_on.set()


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, watched: Watched) -> Callable[[Any], None]:
    """Return what sets how Ray answers the question for its nodes."""
    return lambda answer: monkeypatch.setattr(watching.ray, "nodes", answer)


HERE = {"NodeID": "here", "Alive": True, "Resources": {"CPU": 64.0, "GPU": 8.0}}


def look_meanwhile(watched: Watched, stuck: Stuck) -> threading.Thread:
    """Look once in a thread of its own; returns once that waits."""
    thread = threading.Thread(target=watched.watch._look, daemon=True)
    thread.start()
    assert stuck.begun.wait(200)
    return thread


@pytest.mark.parametrize("what", ["a checkpoint", "a record"])
def test_a_disk_that_hangs_is_no_silence_of_rays(
    watched: Watched, spec: SearchSpec, stuck: Stuck, nodes: Callable[[Any], None], what: str
) -> None:
    nodes(lambda: [HERE])
    watched.plan.known = [trial_of(spec, FULL_MODEL, [20.0])]
    watched.hangs.step()
    if what == "a checkpoint":
        watched.hook(saved=stuck)
    else:
        watched.hook(note_waiting=stuck)
        watched.watch._noted = "room"  # which there is now
    thread = look_meanwhile(watched, stuck)
    watched.count(10 * watching.ANSWER_SECONDS)
    assert not watched.given_up
    stuck.goes_on.set()
    thread.join(200)


def test_a_ray_that_hangs_is_given_up(
    watched: Watched, stuck: Stuck, nodes: Callable[[Any], None]
) -> None:
    def answer_late() -> list[Any]:
        stuck()
        return [HERE]

    nodes(answer_late)
    thread = look_meanwhile(watched, stuck)
    watched.count(watching.ANSWER_SECONDS - watching.LOOK_SECONDS)
    assert not watched.given_up
    watched.count(watching.LOOK_SECONDS)
    assert watched.given_up == 1
    stuck.goes_on.set()
    thread.join(200)


def test_a_ray_that_only_fails_is_given_up_too(
    watched: Watched, nodes: Callable[[Any], None]
) -> None:
    def fail() -> None:
        raise ConnectionError("no gcs_server")

    nodes(fail)
    for _ in range(int(watching.ANSWER_SECONDS / watching.LOOK_SECONDS)):
        with pytest.raises(ConnectionError):
            watched.watch._look()
        watched.count(watching.LOOK_SECONDS)
    assert watched.given_up == 1


def test_an_answer_ends_the_silence_but_not_where_no_node_is_left(
    watched: Watched, nodes: Callable[[Any], None]
) -> None:
    nodes(lambda: [HERE])
    for _ in range(100):
        watched.watch._look()
        watched.count(watching.LOOK_SECONDS)
    assert not watched.given_up
    nodes(lambda: [HERE | {"Alive": False}])
    for _ in range(int(watching.ANSWER_SECONDS / watching.LOOK_SECONDS)):
        watched.watch._look()
        watched.count(watching.LOOK_SECONDS)
    assert watched.watch.lost is not None and watched.given_up == 1
