"""Signals that ask a process to end, and who takes them."""

import _thread
import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# How long after it was dropped an interruption comes again; whatever dropped it is over by then.
# One that waits for an import looks so often whether that has ended.
_SECONDS_UNTIL_AGAIN = 0.05
# The file of each of Python's own functions that import a module, as a stack names it.
_IMPORTING = "<frozen importlib._bootstrap>"


@contextlib.contextmanager
def handling_signals(
    handler: Callable[[int, FrameType | None], object], numbers: Sequence[int] = STOPS
) -> Iterator[None]:
    """Let the handler take these signals, which ask a process to end, while inside.

    SIGHUP stays ignored where it is: `nohup` means it. In another thread than the main one nothing
    changes: Python takes no signals there, and whoever called from it sees to them.
    """
    is_main = threading.current_thread() is threading.main_thread()
    earlier_handlers = {}
    for number in numbers if is_main else ():
        is_nohup = number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
        if not is_nohup:
            earlier_handlers[number] = signal.signal(number, handler)
    try:
        yield
    finally:
        for number, earlier in earlier_handlers.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def repeating_dropped_interrupts() -> Iterator[None]:
    """Let a KeyboardInterrupt that Python drops come again, and nothing be printed of it.

    Python drops whatever is raised in `__del__` or in a callback of weakref, and prints a trace. A
    signal that came just then would end nothing.
    """
    earlier = sys.unraisablehook
    is_over = threading.Event()
    main_thread = threading.get_ident()

    def interrupt_again() -> None:
        if not is_over.wait(_SECONDS_UNTIL_AGAIN):
            # What a shell starts in the background ignores Ctrl-C until a search takes it.
            is_ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
            signal.pthread_kill(main_thread, signal.SIGTERM if is_ignored else signal.SIGINT)

    def hook(dropped: "sys.UnraisableHookArgs") -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            # Not threading.Thread: the interrupted code may hold the lock that this takes.
            _thread.start_new_thread(interrupt_again, ())
        else:
            earlier(dropped)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        is_over.set()
        sys.unraisablehook = earlier


@contextlib.contextmanager
def completing_imports() -> Iterator[None]:
    """Let Ctrl-C wait, while inside, until what is being imported has been imported.

    Where it breaks off the import of a package such as torch, Ray or MLflow, Python forgets the
    package and keeps its parts, and each later import of it fails until the program ends. In
    another thread than the main one nothing changes, for no Ctrl-C arrives there.
    """
    earlier = signal.getsignal(signal.SIGINT)
    if not callable(earlier):  # Ctrl-C is ignored, or is not Python's
        yield
        return
    main_thread = threading.get_ident()
    imports_outside = _imports_in(sys._getframe())  # whose code may have called us
    waiting: list[threading.Event] = []  # of an interruption that waits; set where it is taken

    def handle(number: int, frame: FrameType | None) -> None:
        is_importing = _imports_in(frame) > imports_outside
        if waiting:
            waiting.pop().set()
        if is_importing:
            is_taken = threading.Event()
            waiting.append(is_taken)
            _thread.start_new_thread(interrupt_again, (is_taken,))
        else:
            earlier(number, frame)

    def interrupt_again(is_taken: threading.Event) -> None:
        if not is_taken.wait(_SECONDS_UNTIL_AGAIN):
            signal.pthread_kill(main_thread, signal.SIGINT)

    with handling_signals(handle, (signal.SIGINT,)):
        try:
            yield
        finally:
            if waiting:  # the import was the last thing inside
                waiting.pop().set()
                earlier(signal.SIGINT, None)


def _imports_in(frame: FrameType | None) -> int:
    """Return how many calls of Python's import system lead to a frame."""
    count = 0
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING:
            count += 1
        frame = frame.f_back
    return count
