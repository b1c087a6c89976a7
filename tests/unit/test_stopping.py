"""What ends a search, or any command, from outside: Ctrl-C, SIGTERM, a closed terminal."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from elsa_tune import signals
from elsa_tune.errors import DataError, RunError, TrackingError
from elsa_tune.searching.cluster import ray_session as cluster_session
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.cluster.ray_session import ray_session
from elsa_tune.searching.process.interruption import Interruption
from elsa_tune.signals import completing_imports, handling_signals, repeating_dropped_interrupts
from elsa_tune.specs.arguments import checked
from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.mlflow.reader import read_searches
from tests.conftest import Run


@pytest.fixture
def usual_signals() -> Iterator[None]:
    """Set signals as a terminal's commands have them.

    What runs in the background, or under nohup, has some ignored, and a Ray that another test
    started leaves its own handler of SIGTERM.
    """
    usual = {
        signal.SIGHUP: signal.SIG_DFL,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGINT: signal.default_int_handler,
    }
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_search_that_is_terminated_or_loses_its_terminal_ends_at_once(number: int) -> None:
    interruption, said = Interruption(), list[str]()
    before = signal.getsignal(number)
    with interruption.caught(said.append):
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
        assert interruption.requested and said == []
        os.kill(os.getpid(), number)  # changes nothing while the first one takes effect
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        interruption.closing = True
        os.kill(os.getpid(), number)  # changes nothing any more
    assert signal.getsignal(number) == before


@pytest.mark.usefixtures("usual_signals")
def test_under_nohup_a_closed_terminal_ends_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interruption = Interruption()
    with interruption.caught(print):
        os.kill(os.getpid(), signal.SIGHUP)
    assert not interruption.requested


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_before_a_search_begins_it_is_one_sentence(
    number: int, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = "elsa_tune.searching.resuming.found_or_fetched"
    monkeypatch.setattr(reading, lambda *given: os.kill(os.getpid(), number))
    before = signal.getsignal(number)
    ended = run("resume", "mine")
    assert ended == (130, "", "resume: reading search 'mine'\nelsa-tune: interrupted\n")
    assert signal.getsignal(number) == before


class Held:
    """What is collected with a weakref's callback."""


class Deleted:
    """What is collected with a `__del__`."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.action = action

    def __del__(self) -> None:
        self.action()


def in_a_callback(action: Callable[[], object]) -> None:
    held = Held()
    reference = weakref.ref(held, lambda _: action())
    del held
    assert reference() is None


def in_a_del(action: Callable[[], object]) -> None:
    Deleted(action)


@pytest.mark.usefixtures("usual_signals")
@pytest.mark.parametrize("where", [in_a_callback, in_a_del])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_where_python_drops_what_is_raised_ends_a_command_all_the_same(
    number: int,
    where: Callable[[Callable[[], object]], None],
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(*given: object) -> None:
        where(lambda: signal.raise_signal(number))
        time.sleep(10)
        sys.exit("the command went on")

    monkeypatch.setattr("elsa_tune.searching.resuming.found_or_fetched", read)
    before = sys.unraisablehook
    if number == signal.SIGTERM:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in the background of a script
    ended = run("resume", "mine")
    assert ended == (130, "", "resume: reading search 'mine'\nelsa-tune: interrupted\n")
    assert sys.unraisablehook is before


@pytest.mark.usefixtures("usual_signals")
def test_a_dropped_interrupt_does_not_come_after_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(sys, "unraisablehook", lambda dropped: seen.append(dropped.exc_type))

    def fail() -> None:
        raise ValueError

    monkeypatch.setattr(signals, "_SECONDS_UNTIL_AGAIN", 0.5)
    with repeating_dropped_interrupts():
        in_a_callback(fail)
        in_a_callback(lambda: signal.raise_signal(signal.SIGINT))
    time.sleep(0.7)
    assert seen == [ValueError]


@pytest.fixture
def stopped_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of a package during whose first import Ctrl-C is pressed twice."""
    name = f"stopped_{tmp_path.name}"
    folder = tmp_path / name
    folder.mkdir()
    # As packages do: once it was forgotten, its parts are no longer its attributes.
    (folder / "__init__.py").write_text(
        f"import {name}.part\nimport {name}.stop\nVALUE = {name}.part.VALUE\n"
    )
    (folder / "part.py").write_text("VALUE = 1\n")
    press = "signal.raise_signal(signal.SIGINT)\n"
    (folder / "stop.py").write_text(f"import signal\n{press}{press}")
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.usefixtures("usual_signals")
def test_a_stop_during_an_import_waits_until_the_package_is_complete(stopped_package: str) -> None:
    """As in a notebook, where the same call comes again in the same process."""

    @checked()
    def search() -> int:
        package = importlib.import_module(stopped_package)
        time.sleep(10)
        return package.VALUE  # type: ignore[no-any-return]

    before = signal.getsignal(signal.SIGINT)
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        search()
    assert time.monotonic() - begin < 5
    assert sys.modules[stopped_package].VALUE == 1
    time.sleep(3 * signals._SECONDS_UNTIL_AGAIN)  # the second press does not come later
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("usual_signals")
def test_a_stop_during_the_import_that_ends_a_call_is_not_lost(stopped_package: str) -> None:
    with pytest.raises(KeyboardInterrupt), completing_imports():
        importlib.import_module(stopped_package)
    assert importlib.import_module(stopped_package).VALUE == 1


@pytest.mark.usefixtures("usual_signals")
def test_a_module_that_searches_while_it_is_imported_is_stopped_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"searches_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(
        "import signal\n"
        "from elsa_tune.signals import completing_imports\n"
        "with completing_imports():\n"
        "    signal.raise_signal(signal.SIGINT)\n"
        "    raise ValueError('it went on')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        importlib.import_module(name)


def test_an_mlflow_that_cannot_be_imported_is_not_the_stores_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    file = tmp_path / "mlflow.db"
    with pytest.raises(TrackingError) as refused:
        MlflowConnection(f"sqlite:///{file}").initialise()
    said = "MLflow cannot be imported: import of mlflow.tracking halted; None in sys.modules; start"
    assert str(refused.value).startswith(said)
    file.write_bytes(b"SQLite format 3\0")
    with pytest.raises(TrackingError) as refused:
        read_searches(f"sqlite:///{file}")
    assert str(refused.value).startswith(said)


@pytest.mark.usefixtures("usual_signals")
def test_while_ray_starts_sigterm_is_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []
    monkeypatch.setattr(ray, "init", lambda **given: os.kill(os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # other tests keep one running
    monkeypatch.setattr(ray, "shutdown", lambda: ended.append(True))
    before = signal.getsignal(signal.SIGTERM)
    with (
        handling_signals(signal.default_int_handler, (signal.SIGTERM,)),
        pytest.raises(KeyboardInterrupt),
        ray_session(None) as session,
    ):
        session.ready()
        time.sleep(5)
    assert ended == [True]
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.usefixtures("usual_signals")
def test_a_ray_that_a_second_stop_left_starting_ends_before_the_next_one_starts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    events: list[str] = []

    def init(**given: Any) -> None:
        events.append("starting")
        time.sleep(1)
        events.append("started")

    def runs() -> bool:
        return events.count("started") > events.count("ended")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", runs)
    monkeypatch.setattr(ray, "shutdown", lambda: events.append("ended"))
    monkeypatch.setattr(cluster_session, "_capacity", lambda: Capacity.of_nodes([{"CPU": 1.0}]))
    second_stop = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    with pytest.raises(KeyboardInterrupt), ray_session(None):
        second_stop.start()
        raise KeyboardInterrupt
    assert events == ["starting"]
    with ray_session(None) as session:
        session.ready()
        events.append("searched")
    assert events == ["starting", "started", "ended", "starting", "started", "searched", "ended"]
    assert capsys.readouterr().err == (
        "Ray is still starting; waiting until it has started and ended\n"
        "waiting until the Ray of the search before has ended\n"
    )


def test_what_is_wrong_before_ray_has_started_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def init(**given: Any) -> None:
        time.sleep(0.2)
        events.append("started")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: events.append("ended"))
    with pytest.raises(DataError), ray_session(None):
        raise DataError("no rows")
    assert events == ["started", "ended"]


def test_a_raylet_that_dies_while_ray_starts_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def init(**given: Any) -> None:
        raise Exception("The current node timed out during startup.\nPlease check the logs.")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)  # other tests keep one running
    said = "does not start on this machine: The current"
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    with pytest.raises(RunError, match=said) as refusal, ray_session(None) as session:
        session.ready()
    assert "\n" not in str(refusal.value)
