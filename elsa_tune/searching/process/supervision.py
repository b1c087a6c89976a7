"""The process that a user starts; a search's driver is its child.

Where the driver dies without a word, this process says why and closes the record.
Ray ends its driver from C++ when its raylet or gcs_server is gone, and a system out of memory kills
it: Python can then neither say nor record anything. While the driver lives, this process only
passes signals on. It must stay light: it forks before anything heavy is imported.
"""

import atexit
import contextlib
import gc
import json
import mmap
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import NoReturn

from elsa_tune.errors import ElsaTuneError, InterruptedSearchError, RunError
from elsa_tune.searching.output import say
from elsa_tune.signals import STOPS, handling_signals
from elsa_tune.tracking.artifacts.copier import copies_of
from elsa_tune.tracking.artifacts.places import recorded_artifacts
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import SearchEnded, SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.stores import store_at

# What the driver leaves in memory that both processes see: whether it ended in words (one byte),
# then the search that it records, as JSON, up to a zero.
_note: mmap.mmap | None = None
# The exit status of a driver that ends itself because Ray hangs: Ray's own is 1.
_HANGING = 75


def recording(paths: SearchPaths, tracking_uri: str) -> None:
    """Note which search this process records, which its supervisor closes if it dies."""
    if _note is None:
        return
    gc.enable()  # everything is imported
    storage = str(paths.storage.absolute())
    line = json.dumps([storage, paths.name, tracking_uri]).encode() + b"\0"
    if len(line) < len(_note):
        _note[1 : 1 + len(line)] = line


def give_up() -> None:
    """End this process at once, without a word, where Ray hangs within a call that nothing ends.

    Its supervisor says why. Without a supervisor nothing happens.
    """
    if _note is not None:
        os._exit(_HANGING)


def supervise(command: Callable[[], None]) -> NoReturn:
    """Run a command in a child and exit as it does, by SystemExit; close what it leaves open.

    The child has a process group of its own: Ctrl-C and a signal to the caller's group reach it
    once, through this process, and Ray's processes not at all. It ends when this process is killed.
    """
    global _note
    _note = mmap.mmap(-1, mmap.PAGESIZE)
    # The child reads until its end closes, which it does when this process ends.
    held_by_child, held_here = os.pipe()
    # A signal that comes before both are ready waits.
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    child = os.fork()
    if child == 0:
        os.close(held_here)
        _live_apart(held_by_child)
        gc.disable()  # for a second less of looking through what is being imported
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        _exit_at_once(command)
    os.close(held_by_child)
    signals, status = _wait(child)
    if not _note[0]:
        _last_word(signals, status)
    is_its_own = status >= 0 and status != _HANGING
    sys.exit(status if is_its_own else RunError.exit_status)


def _exit_at_once(command: Callable[[], None]) -> NoReturn:
    """Run a command in the child, and end it without freeing torch's objects one by one."""
    status = 0
    try:
        command()
    except SystemExit as end:
        # As Python does: None is 0, and a message is 1.
        if isinstance(end.code, int):
            status = end.code
        elif end.code is not None:
            status = 1
    except BaseException:
        traceback.print_exc()
        status = RunError.exit_status
    assert _note is not None
    _note[0] = 1
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):  # one that is closed is None
        with contextlib.suppress(OSError, ValueError):  # nobody reads any more
            stream.flush()
    os._exit(status)


def _live_apart(pipe: int) -> None:
    """Give the child a group of its own, and end it when nobody holds the pipe's other end."""
    os.setpgid(0, 0)
    # A terminal stops who writes to it from another group than the one in front, if asked to.
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    signal.signal(signal.SIGTTIN, signal.SIG_IGN)

    def watch() -> None:
        os.read(pipe, 1)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="supervision", daemon=True).start()


def _wait(child: int) -> tuple[set[int], int]:
    """Pass signals on until the child ends.

    Return the signals that came and the child's status, below 0 if it was killed.
    """
    received: set[int] = set()

    def pass_on(number: int, frame: FrameType | None) -> None:
        # `timeout` sends it to this process and to its group; only a second Ctrl-C means more.
        if number not in received or number == signal.SIGINT:
            os.kill(child, number)
        received.add(number)

    def pause(number: int, frame: FrameType | None) -> None:
        os.killpg(child, signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        os.killpg(child, signal.SIGCONT)

    with handling_signals(pass_on), handling_signals(pause, [signal.SIGTSTP]):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
        _, status = os.waitpid(child, 0)
        # For good: nothing keeps this process from the last word.
        signal.pthread_sigmask(signal.SIG_BLOCK, (*STOPS, signal.SIGTSTP))
    return received, os.waitstatus_to_exitcode(status)


def _last_word(signals: set[int], status: int) -> NoReturn:
    """Say why the child died, close the record that it left open, and exit by SystemExit.

    signals: those that came and were passed on.
    """
    end, cause = _end_of(signals, status)
    assert _note is not None
    line = _note[1:].partition(b"\0")[0]
    if not line:
        say(f"elsa-tune: {cause}, while nothing was being recorded")
    else:
        storage, name, tracking_uri = json.loads(line)
        paths = SearchPaths(Path(storage), name)
        say(f"elsa-tune: {cause}; everything so far is saved: `{paths.resume}` goes on")
        # Where another driver has taken the search up meanwhile, the record is that one's.
        with contextlib.suppress(ElsaTuneError):
            _close(paths, tracking_uri, SearchEnded(status=end, message=cause))
    sys.exit(InterruptedSearchError.exit_status if signals else RunError.exit_status)


def _end_of(signals: set[int], status: int) -> tuple[SearchStatus, str]:
    """Return how the search ended and why, from the signals that came and the child's status."""
    if signals:
        # Whoever ended it may have ended Ray's processes too, and these took it with them.
        return SearchStatus.INTERRUPTED, "interrupted"
    if status < 0:
        killer = signal.Signals(-status)
        why = killer.name
        if killer is signal.SIGKILL:
            why += ", as by a system without memory left"
        return SearchStatus.KILLED, f"the search's process was killed ({why})"
    if status == _HANGING:
        return SearchStatus.FAILED, "Ray (its gcs_server) does not answer any more"
    cause = "Ray's raylet or gcs_server died, and Ray ended the search's process with it"
    return SearchStatus.FAILED, cause


def _close(paths: SearchPaths, tracking_uri: str, end: SearchEnded) -> None:
    """Record a missing end, and bring the stores the rest.

    Raises StorageError where another driver runs.
    """
    with Journal(paths.journal) as journal:
        state = SearchState.replay(journal.earlier)
        if not state.search.attempt:
            return
        if state.status is SearchStatus.RUNNING:
            journal.append(end)
        sink = store_at(tracking_uri).sink(paths.journal)
        forwarder = Forwarder(paths, sink).start()
        if end.status is SearchStatus.INTERRUPTED:
            forwarder.close()  # whoever ended the search may soon end this process, too
        else:
            # This process blocks signals: one that came stays pending, and ends the wait.
            forwarder.finish(lambda: bool(signal.sigpending() & set(STOPS)))
        uncopied = copies_of(recorded_artifacts(paths), paths, say).close()
        if uncopied:
            say(uncopied)
