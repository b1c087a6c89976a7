"""How far a submitted search has come, by the log of its job: what its board prints there."""

import re
from dataclasses import dataclass, replace

from elsa_tune.tracking.record_names import WAITS_FOR_NODE

# `12/40`, or `12 of 40 to 60`, as `board_lines.counts_of` writes it.
_ENDED = r"(\d+)(?:/| of (?:\d+ to )?)(\d+)"
# `12/40 trials: ...`, which the board prints after a silence.
_COUNTS = re.compile(f"{_ENDED} trials: (.*)")
# `[12/40] measure-...: completed ...`, which it prints of each trial that has ended.
_TRIAL = re.compile(rf"\[{_ENDED}\] ")
_RUNNING = re.compile(r"(\d+) running")
# `waiting for room: ...`, as `cluster/watching.py` and `cluster/nodes.py` say it; whoever reads the
# list cannot end the wait.
_WAITING = re.compile(r"waiting for (.*?)(?:; Ctrl-C ends the wait)?")
_NO_NODE = "no node that could train a trial answers"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProgress:
    """What a log says last of its search's trials."""

    done: int | None = None  # trials that have ended; None where nothing was said yet
    planned: int | None = None  # trials in all, at most; likewise
    running: int = 0  # trials that run
    waits_for: str | None = None  # what it waits for before a trial can run


def read_progress(log: str) -> JobProgress:
    """Return what the last lines of a log say, None and 0 where they say nothing.

    It waits no more once it says anything else than its counts.
    """
    progress = JobProgress()
    for line in log.splitlines():
        trial = _TRIAL.match(line)
        if trial is not None:
            done, planned = trial.groups()
            progress = replace(progress, done=int(done), planned=int(planned), waits_for=None)
            continue
        counts = _COUNTS.match(line)
        if counts is None:
            progress = replace(progress, waits_for=_awaited(line))
            continue
        done, planned, words = counts.groups()
        running = _RUNNING.search(words)
        progress = replace(
            progress,
            done=int(done),
            planned=int(planned),
            running=0 if running is None else int(running[1]),
        )
        if running is not None:
            progress = replace(progress, waits_for=None)
    return progress


def _awaited(line: str) -> str | None:
    """Return what a line says is waited for, None where it says something else."""
    if line.startswith(_NO_NODE):
        return WAITS_FOR_NODE
    found = _WAITING.fullmatch(line)
    return None if found is None else found[1]
