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
_SECONDS_UNTIL_AGAIN = 0.05


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
