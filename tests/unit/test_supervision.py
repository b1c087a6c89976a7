"""The process before a search's driver: it passes signals on.

And it has the last word where the driver dies without one.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elsa_tune.tracking.journal import Journal, is_held, read_journal
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState
from tests.conftest import ROOT
from tests.forked import Forked, Nursery, nursery
from tests.recorded_search import search_started, trial_started
from tests.searching import wait_for

# A driver that records one search, tells how it stands in a file, and ends as a test wants it to.
# MLflow is left out: tests/faults closes a search there too.
PROGRAM = """
import os, signal, subprocess, sys, time
from pathlib import Path
from types import SimpleNamespace
from elsa_tune.searching.process import supervision
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.journal_records import SearchEnded, SearchStatus
from tests.recorded_search import search_started, trial_started

quiet = SimpleNamespace(close=lambda: 0, finish=lambda is_hurried: 0)
supervision.Forwarder = lambda *given: SimpleNamespace(start=lambda: quiet)
paths = SearchPaths(Path("mlruns/searches"), "mine")

def note(word):
    with open("heard", "a") as file:
        print(word, file=file)

def listen(times=1):
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, frame: note(signal.Signals(number).name))
    note(os.getpid())
    while sum(1 for line in open("heard")) < 1 + times:
        time.sleep(0.02)

def driver():
    with Journal(paths.journal) as journal:
        supervision.recording(paths, "sqlite:///none.db")
        journal.append(search_started("mine"))
        journal.append(trial_started("measure-N0-s0", search="mine"))
        %s

def early():
    %s

supervision.supervise(%s)
"""


UNDER_NOHUP = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)"


def program(end: str, early: str | None = None) -> str:
    run = "driver" if early is None else "early"
    return PROGRAM % (end, early or "pass", run)


@pytest.fixture(scope="module")
def fork() -> Iterator[Nursery]:
    with nursery("elsa_tune.searching.process.supervision", "tests.recorded_search") as parent:
        yield parent


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SearchPaths:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    return SearchPaths(tmp_path / "mlruns" / "searches", "mine")


def state(place: SearchPaths) -> SearchState:
    return SearchState.replay(read_journal(place.journal))


def heard() -> list[str]:
    file = Path("heard")
    return file.read_text().split() if file.exists() else []


Start = Callable[[str], Forked]


@pytest.fixture
def start(place: SearchPaths, fork: Nursery) -> Iterator[Start]:
    """Return what starts a program and waits until it listens; all are ended with the test."""
    processes: list[Forked] = []

    def command(text: str) -> Forked:
        process = fork.start(text)
        processes.append(process)
        wait_for(lambda: len(heard()) == 1)
        return process

    yield command
    for process in processes:
        process.kill()
        process.wait()
        process.close()


@pytest.mark.parametrize(
    ("end", "status", "cause"),
    [
        ("os._exit(1)", SearchStatus.FAILED, "Ray's raylet or gcs_server died"),
        ("os.kill(os.getpid(), signal.SIGKILL)", SearchStatus.KILLED, r"was killed \(SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", SearchStatus.KILLED, r"was killed \(SIGSEGV\)"),
    ],
)
def test_a_driver_that_dies_without_a_word(
    end: str, status: SearchStatus, cause: str, place: SearchPaths, fork: Nursery
) -> None:
    done = fork.run(program(end))
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert said.endswith("everything so far is saved: `elsa-tune resume mine` goes on")
    found = state(place)
    assert found.end is not None and found.end.status is status and found.end.message in said
    assert re.search(cause, found.end.message)
    assert [trial.status.value for trial in found.trials.values()] == ["interrupted"]
    assert not is_held(place.lock)


def test_a_driver_that_ends_itself_where_ray_hangs_leaves_the_last_word(
    place: SearchPaths, fork: Nursery
) -> None:
    done = fork.run(program("supervision.give_up()"))
    assert done.returncode == 1
    (said,) = done.stderr.splitlines()
    assert said == (
        "elsa-tune: Ray (its gcs_server) does not answer any more; everything so far is saved: "
        "`elsa-tune resume mine` goes on"
    )
    assert state(place).status is SearchStatus.FAILED


def test_a_record_that_has_not_begun_stays_empty(place: SearchPaths, fork: Nursery) -> None:
    early = 'Journal(paths.journal); supervision.recording(paths, "sqlite:///x"); os._exit(1)'
    done = fork.run(program("pass", early))
    assert done.returncode == 1 and "`elsa-tune resume mine` goes on" in done.stderr
    assert read_journal(place.journal) == []


@pytest.mark.parametrize("status", [0, 1, 2, 3, 130])
def test_a_driver_that_ends_in_words_has_had_the_last_one(
    status: int, place: SearchPaths, fork: Nursery
) -> None:
    end = f"journal.append(SearchEnded(status=SearchStatus.TIME_UP)); sys.exit({status})"
    done = fork.run(program(end))
    assert (done.returncode, done.stdout, done.stderr) == (status, "", "")
    assert state(place).status is SearchStatus.TIME_UP and len(read_journal(place.journal)) == 3


def test_before_anything_is_recorded_nothing_is_closed(place: SearchPaths, fork: Nursery) -> None:
    command = program("pass", early="os._exit(1)")
    done = fork.run(command)
    assert done.returncode == 1 and not place.folder.exists()
    assert (
        done.stderr.endswith("while nothing was being recorded\n") and done.stderr.count("\n") == 1
    )


def test_a_record_that_another_driver_has_taken_up_is_left_alone(
    place: SearchPaths, start: Start
) -> None:
    command = program("pass; listen(); journal.close(); listen(3); os._exit(1)")
    process = start(command)
    process.send_signal(signal.SIGTERM)
    wait_for(lambda: not is_held(place.lock))
    with Journal(place.journal) as journal:
        journal.append(search_started("mine", attempt=2))
        Path("heard").write_text("the driver may die now\n" * 4)
        assert process.wait(60) == 130
        journal.append(trial_started("measure-N0-s0", attempt=2, search="mine"))
    found = state(place)
    assert found.status is SearchStatus.RUNNING and found.search.attempt == 2
    assert [record.kind for record in read_journal(place.journal)][-2:] == [
        "search_started",
        "trial_started",
    ]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_whole_group_reaches_the_driver_once(
    number: signal.Signals, start: Start
) -> None:
    process = start(program("listen(); time.sleep(0.3); sys.exit(130)"))
    os.killpg(process.pid, number)
    assert process.wait(60) == 130
    assert heard()[1:] == [number.name]


def test_a_second_ctrl_c_is_passed_on_and_a_second_sigterm_is_not(
    start: Start,
) -> None:
    process = start(program("listen(4); sys.exit(130)"))
    for number in (signal.SIGINT, signal.SIGTERM):
        process.send_signal(number)
        wait_for(lambda number=number: number.name in heard())
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: len(heard()) == 1 + 3)
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert heard()[1:] == ["SIGINT", "SIGTERM", "SIGINT", "SIGINT"]


def test_what_was_interrupted_and_died_of_it_reads_as_interrupted(
    place: SearchPaths, start: Start
) -> None:
    process = start(program("listen(); os._exit(1)"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130
    assert process.stderr.read().startswith("elsa-tune: interrupted; everything so far")
    assert state(place).status is SearchStatus.INTERRUPTED


def test_a_driver_whose_parent_is_killed_is_told_to_end(place: SearchPaths, start: Start) -> None:
    process = start(program("listen()"))
    process.kill()
    wait_for(lambda: "SIGTERM" in heard())
    wait_for(lambda: not is_held(place.lock))


def test_under_nohup_a_closed_terminal_is_no_reason(place: SearchPaths, start: Start) -> None:
    words = "listen(2); os.kill(os.getpid(), signal.SIGKILL)"
    process = start(UNDER_NOHUP + program(words))
    process.send_signal(signal.SIGHUP)
    Path("heard").write_text("the driver may die now\n" * 3)
    assert process.wait(60) == 1
    assert state(place).status is SearchStatus.KILLED


def test_ctrl_z_stops_the_driver_and_fg_lets_it_go_on(
    start: Start,
) -> None:
    process = start(program("listen(); sys.exit(130)"))
    driver = int(heard()[0])

    def both(letter: str) -> bool:
        found = [Path(f"/proc/{pid}/stat").read_text() for pid in (process.pid, driver)]
        return all(text.rpartition(")")[2].split()[0] in letter for text in found)

    process.send_signal(signal.SIGTSTP)
    wait_for(lambda: both("T"))
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: both("SR"))
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 130


def test_at_a_terminal_ctrl_c_reaches_the_driver_and_its_words_the_terminal(
    place: SearchPaths,
) -> None:
    # `tostop`: whoever writes from another group than the one in front would be stopped.
    words = 'listen(); print("ended in words"); sys.exit(130)'
    command = ["sh", "-c", 'stty tostop; exec "$@"', "sh", sys.executable, "-c", program(words)]
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvp(command[0], command)
    try:
        wait_for(lambda: len(heard()) == 1)
        os.write(terminal, b"\x03")
        _, status = os.waitpid(pid, 0)
        shown = ""
        with contextlib.suppress(OSError):  # nobody has the terminal open any more
            while part := os.read(terminal, 10_000):
                shown += part.decode()
    finally:
        os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    assert heard()[1:] == ["SIGINT"] and "ended in words" in shown
