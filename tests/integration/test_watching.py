"""What a search waits for is said: news of a trial, room for one, a worker that begins."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray as ray_library

from elsa_tune import testing
from elsa_tune.errors import UsageError
from elsa_tune.searching.cluster import nodes, watching
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.cluster.hangs import Hangs
from elsa_tune.searching.output import say
from elsa_tune.searching.search_run import SearchRun
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.rate_space import RateList
from elsa_tune.specs.trial import Recipe, TrialStatus
from elsa_tune.tracking.places import StorePaths
from tests.searching import wait_for

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look often, and wait for less."""
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(watching, "SHORTEST_SILENCE", 1.0)
    monkeypatch.setattr(watching, "ROOM_SECONDS", 0.5)


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a file that is made when a watch has said what a trial waits for, or which hangs.

    What it says that of goes on until then: however long a look takes, it is not too late.
    """
    file = tmp_path / "told"
    look_at_beginning = watching.Watch._look_at_beginning
    look_at_news = watching.Watch._look_at_news

    def beginning(watch: watching.Watch, trials: Any) -> None:
        look_at_beginning(watch, trials)
        if watch._said_waiting:
            file.touch()

    def news(watch: watching.Watch, trials: Any) -> None:
        look_at_news(watch, trials)
        if any(key.endswith("-s2") for key, _ in watch._said_silent):
            file.touch()

    monkeypatch.setattr(watching.Watch, "_look_at_beginning", beginning)
    monkeypatch.setattr(watching.Watch, "_look_at_news", news)
    return file


def waiting(file: Path) -> Callable[[], None]:
    """Return an inner function, whose code Ray sends to workers, that waits for a file.

    It ends some time where a test fails, too.
    """

    def wait() -> None:
        end = time.monotonic() + 250
        while not file.exists() and time.monotonic() < end:
            time.sleep(0.1)

    return wait


@contextlib.contextmanager
def taken(here: Capacity, until: Path) -> Iterator[None]:
    """All CPUs, by somebody else's task, until there is a file, or the block ends."""
    task = ray_library.remote(num_cpus=here.largest_cpus)(waiting(until)).remote()
    try:
        wait_for(lambda: not ray_library.available_resources().get("CPU", 0.0))
        yield
    finally:
        until.touch()
        ray_library.get(task, timeout=250)


def quality(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
    return 0.9


def searched(
    places: StorePaths, ray: Capacity, quality: testing.Quality = quality
) -> list[TrialStatus]:
    """How two trials, one after the other, ended in a search."""
    spec = testing.example_spec(
        candidates=(FULL_MODEL,),
        explored=(),
        rates=RateList(values=(3e-5,)),
        tries=0,
        seeds=2,
        recipe=Recipe(epochs=4, train_size=100),
        resources=ray.resources(ray.largest_cpus, 0),
    )
    state = testing.search(spec, quality, places.working_directory)
    return [trial.status for trial in state.planned_trials]


def test_a_trial_without_news_is_told_once(
    places: StorePaths,
    ray: Capacity,
    told: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "TIMES", 0)  # whatever an evaluation takes here

    wait = waiting(told)

    def silent(depth: FreezeDepth, learning_rate: float, seed: int, epoch: float) -> float:
        if seed == 2 and epoch == 4:
            wait()
            time.sleep(2.0)  # of more silence, which is not told again
        time.sleep(0.1)
        return 0.9

    assert searched(places, ray, silent) == [TrialStatus.COMPLETED] * 2
    lines = capfd.readouterr().err.splitlines()
    [said] = [line for line in lines if line.startswith("no news of measure-N0-lr3e-05-s2 for ")]
    assert "such an evaluation takes" in said and "ray::ImplicitFunc" in said and "/logs" in said


def test_room_that_others_have_is_said(
    places: StorePaths,
    ray: Capacity,
    told: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted: list[str | None] = []
    note = SearchRun._note_waiting

    def note_it(self: SearchRun, what: str | None) -> None:
        note(self, what)
        noted.append(self._record.state().waits_for)

    monkeypatch.setattr(SearchRun, "_note_waiting", note_it)
    with taken(ray, told):
        assert searched(places, ray) == [TrialStatus.COMPLETED] * 2
    [said] = [line for line in capfd.readouterr().err.splitlines() if "waiting for room" in line]
    assert noted[0] == said.removeprefix("waiting for ")
    # That it waits no more is noted where a look sees a trial run; these may be over before one.
    assert noted[1:] in ([], [None])
    cpus = f"{ray.largest_cpus:g} CPU"
    assert said == (
        f"waiting for room: a trial takes {cpus}, and of Ray's {cpus} 0 are free; others have "
        "the rest"
    )


@pytest.mark.thorough
def test_a_worker_that_does_not_begin_is_said(
    places: StorePaths,
    ray: Capacity,
    told: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(watching, "BEGIN_SECONDS", 0.2)
    monkeypatch.setattr(watching, "LITTLE_SHARED_MEMORY", 2**80)  # no machine has as much
    monkeypatch.setattr(watching, "fits", lambda free, share: True)  # as far as Ray tells
    with taken(ray, told):
        assert searched(places, ray) == [TrialStatus.COMPLETED] * 2
    said = [line for line in capfd.readouterr().err.splitlines() if "no trial has begun" in line]
    assert said and "/dev/shm has only" in said[0] and "/logs" in said[0]


def test_a_question_that_waits_for_room_says_so(
    ray: Capacity,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(nodes, "TELL_SECONDS", 0.2)
    monkeypatch.setattr(nodes, "ANSWER_SECONDS", 0.4)
    is_said = tmp_path / "said"

    def say_it(line: str) -> None:
        say(line)
        is_said.touch()

    monkeypatch.setattr(nodes, "say", say_it)
    [node] = [node["NodeID"] for node in nodes.nodes_that_train()]
    with taken(ray, is_said):
        found = nodes.ask_nodes([node], lambda: 1, num_cpus=ray.largest_cpus)
    assert found == {node: 1}
    [said] = capfd.readouterr().err.splitlines()
    assert said == "waiting for one of the cluster's nodes to answer; Ctrl-C ends the wait"


def test_a_question_that_fails_on_a_node_is_one_sentence(ray: Capacity) -> None:
    [node] = [node["NodeID"] for node in nodes.nodes_that_train()]

    def question() -> None:
        raise OSError("libcudnn.so.9: no such file\nand more")

    with pytest.raises(UsageError) as refused:
        nodes.ask_nodes([node], question)
    assert str(refused.value) == (
        f"node {node[:8]} cannot say what it has (libcudnn.so.9: no such file); mend that there"
    )


def test_a_cluster_without_a_node_that_can_train_is_given_up(
    ray: Capacity, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "REPLACEMENT_SECONDS", 0.5)
    here = ray_library.get_runtime_context().get_node_id()
    head = {"NodeID": here, "Alive": True, "Resources": {"memory": 1.0}}
    other = {"NodeID": "other", "Alive": True, "Resources": {"CPU": 1.0}}
    gone = {**other, "Alive": False}
    said: list[str] = []
    waiting: Any = SimpleNamespace(under_way=[])
    plan: Any = SimpleNamespace(known=[])
    hooks = watching.WatchHooks(
        has_workers=lambda: True,
        saved=lambda key: None,
        look_around=lambda: None,
        joining=None,
        hangs=Hangs(),
        note_waiting=lambda what: None,
        say=said.append,
        give_up=lambda: None,
    )
    watch = watching.Watch(testing.example_spec(), plan, waiting, hooks)
    watch._look_at_nodes([head, gone])
    watch._look_at_nodes([head, gone])
    assert said == ["no node that could train a trial answers; waiting 0 s for another"]
    watch._look_at_nodes([head, gone, other])  # it came back, and the wait begins anew
    for _ in range(2):
        watch._look_at_nodes([head, gone])
    assert watch.lost is None
    watch._look_at_nodes([head, gone])
    assert watch.lost == "no node of the cluster that could train a trial has answered for 0 s"
    watch.lost = None
    watch._look_at_nodes([{**head, "Alive": False}, other])
    assert "Ray's node on this machine does not answer" in (watch.lost or "")
