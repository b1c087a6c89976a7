"""How far a submitted search has come, by the log of its job: what its board prints there."""

import re
from dataclasses import dataclass

# `12/40 trials: ...` or `12 of 40 to 60 trials: ...`, as `board.counts_of` writes it.
_COUNTS = re.compile(r"(\d+)(?:/| of (?:\d+ to )?)(\d+) trials: (.*)")
_RUNNING = re.compile(r"(\d+) running")
_WAITING = "waiting for "


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What a log says last of its search's trials."""

    done: int | None = None  # trials that have ended; None where nothing was said yet
    planned: int | None = None  # trials in all, at most; likewise
    running: int = 0  # trials that run
    waits_for: str | None = None  # what it waits for before a trial can run


def read_progress(log: str) -> Progress:
    """Return what the last lines of a log say, None and 0 where they say nothing."""
    waits_for = None
    for line in reversed(log.splitlines()):
        if waits_for is None and line.startswith(_WAITING):
            waits_for = line.removeprefix(_WAITING)
        counts = _COUNTS.match(line)
        if counts is None:
            continue
        done, planned, words = counts.groups()
        running = _RUNNING.search(words)
        if running is not None:
            return Progress(done=int(done), planned=int(planned), running=int(running[1]))
        return Progress(done=int(done), planned=int(planned), waits_for=waits_for)
    return Progress(waits_for=waits_for)
