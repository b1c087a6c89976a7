"""Signals that ask a process to end, and who takes them."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType

STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
