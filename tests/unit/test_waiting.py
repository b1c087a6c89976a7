"""Time that this process was stopped for is no time that it waited."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from elsa_tune.tracking import waiting
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Record
from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.waiting import LONGEST_LOOK_S, Waited
from tests.recorded_search import search_started

STOPPED_S = 1000.0


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


class StoppedOnce(Clock):
    """A clock on which this process is stopped between its second and third look."""

    def __init__(self) -> None:
        super().__init__()
        self.looks = 0
        self.goes_on = threading.Event()  # what is waited for went on, too

    def monotonic(self) -> float:
        self.looks += 1
        self.now += 0.001
        if self.looks == 3:
            self.now += STOPPED_S
            self.goes_on.set()
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StoppedOnce:
    clock = StoppedOnce()
    monkeypatch.setattr(waiting, "time", clock)
    return clock


def test_a_long_pause_between_two_looks_counts_as_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(waiting, "time", clock)
    waited = Waited()
    clock.now = 0.4
    assert waited.look() == pytest.approx(0.4)
    clock.now += STOPPED_S
    assert waited.look() == pytest.approx(0.4 + LONGEST_LOOK_S)
    waited.begin_again()
    clock.now += 0.1
    assert waited.look() == pytest.approx(0.1)


def test_a_store_that_answers_when_we_go_on_has_answered_in_time(clock: StoppedOnce) -> None:
    def answer() -> str:
        assert clock.goes_on.wait(200)
        return "here"

    assert MlflowConnection("http://127.0.0.1:1").within(5.0, answer) == "here"


def test_a_store_that_says_nothing_is_left_in_time() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, daemon=True)
    thread.start()
    waiting.join(thread, 0.05)
    assert thread.is_alive()
    over.set()
    waiting.join(thread, 200)
    assert not thread.is_alive()


class Sink:
    """A store that takes records once this process goes on."""

    name = "records"
    uri = "records://host/db"

    def __init__(self, clock: StoppedOnce) -> None:
        self._clock = clock
        self.taken: list[Record] = []

    def begin_again(self) -> None: ...

    def learn(self, record: Record) -> None: ...

    def send(self, batch: Sequence[Record]) -> None:
        assert self._clock.goes_on.wait(200)
        self.taken.extend(batch)

    def trouble(self, error: Exception) -> str:
        return ""


def test_the_rest_of_a_record_is_sent_when_we_go_on(tmp_path: Path, clock: StoppedOnce) -> None:
    paths = SearchPaths(tmp_path, "first")
    sink = Sink(clock)
    with Journal(paths.journal) as journal:
        journal.append(search_started())
        forwarder = Forwarder(paths, sink).start()
        assert forwarder.finish(patience_s=30.0) == 0
    assert len(sink.taken) == 1
