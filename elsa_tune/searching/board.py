"""What a person sees of a search on stderr: a live table on a terminal, lines elsewhere."""

import contextlib
import functools
import math
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Self

from rich.console import Console, ConsoleDimensions, Group
from rich.control import Control
from rich.live import Live
from rich.padding import Padding
from rich.segment import ControlType, Segment
from rich.text import Text

from elsa_tune.fitted_table import fitted_table
from elsa_tune.searching.console import SafeConsole
from elsa_tune.searching.eta import time_range
from elsa_tune.searching.planning.known import KnownTrial
from elsa_tune.searching.planning.plan import planned_trials, trial_range
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, Selection, TrialStatus
from elsa_tune.visible import visible
from elsa_tune.words import (
    depth_cells,
    duration,
    points,
    rate_text,
    rough_range,
    trials_text,
)

# The clock moves on a terminal; elsewhere a line is printed when nothing else was for so long.
REFRESH_SECONDS = 1.0
HEARTBEAT_SECONDS = 60.0
# With thousands of trials, drawing takes no more than this share of the driver's time.
_DRAWING_SHARE = 0.05
# How long the end of a search waits for a terminal that takes nothing (Ctrl-S).
_PATIENCE = 5.0

# Headings for a narrow window, and the columns that a very narrow one does without.
SHORT = {"running": "run", "waiting": "wait", "stopped": "stop", "failed": "fail"}
SPARED = ("rate", "tuned")

# Of the trials that run, how many are described.
SHOWN_RUNNING = 4

# What a trial is counted as; one that was interrupted waits.
_COUNTED_AS = {
    TrialStatus.COMPLETED: "done",
    TrialStatus.STOPPED_EARLY: "stopped",
    TrialStatus.FAILED: "failed",
    TrialStatus.DIVERGED: "failed",
    TrialStatus.RUNNING: "running",
}
COUNTED = (*dict.fromkeys(_COUNTED_AS.values()), "waiting")


@dataclass(frozen=True, slots=True)
class CandidateLine:
    """One row of the table.

    counts: of a depth's trials, both phases, by the words of COUNTED; together they are those
    planned so far. best: the completed trial with the best score (held out under `selection:
    holdout`). measured: the mean over completed measuring trials.
    """

    candidate: Candidate
    counts: Counter[str]
    best: KnownTrial | None
    measured: float | None


def candidate_lines(spec: SearchSpec, known: Sequence[KnownTrial]) -> list[CandidateLine]:
    """Return the rows, shallowest depth first."""
    lines = []
    for candidate in spec.candidates:
        here = [one for one in known if one.trial.candidate == candidate]
        counts = Counter(_COUNTED_AS[one.status] for one in here if one.status in _COUNTED_AS)
        counts["waiting"] = max(0, planned_trials(spec, known, candidate) - counts.total())
        completed = [one for one in here if one.status is TrialStatus.COMPLETED]
        best = max(completed, default=None, key=lambda one: one.score or 0.0)
        measured = [one.quality or 0.0 for one in completed if one.trial.phase is Phase.MEASURE]
        mean = sum(measured) / len(measured) if measured else None
        lines.append(CandidateLine(candidate, counts, best, mean))
    return lines


def counts_of(
    lines: Iterable[CandidateLine], in_all: tuple[int, int] | None = None, running: str = ""
) -> tuple[str, str]:
    """Return `12/40`, how many trials have ended of those planned so far, and the same in words.

    These are `12/40 trials: 9 done, 2 stopped, 1 failed, 2 running, 26 waiting`.

    in_all: how few and how many there may be; where these differ it is `12 of 40 to 60`. running:
    how far those have come that run.
    """
    counts = sum((line.counts for line in lines), Counter[str]())
    number = counts.total() - counts["running"] - counts["waiting"]
    fewest, most = in_all or (counts.total(), counts.total())
    ended = f"{number}/{counts.total()}" if fewest == most else f"{number} of {fewest} to {most}"
    words = {word: f"{counts[word]} {word}" for word in COUNTED if counts[word]}
    if running and "running" in words:
        words["running"] += f" ({running})"
    if fewest < counts.total() and "waiting" in words:
        words["waiting"] = f"up to {words['waiting']}"
    return ended, f"{ended} trials: {', '.join(words.values())}"


def running_text(spec: SearchSpec, known: Sequence[KnownTrial], now: float) -> str:
    """Which epoch each running trial is in, and for how long: `epoch 2/3 for 1 min 05 s`.

    now: seconds since the epoch. Of many trials the first few, the oldest first.
    """
    running = [one for one in known if one.status is TrialStatus.RUNNING and one.started]
    told = []
    for one in sorted(running, key=lambda one: one.started)[:SHOWN_RUNNING]:
        heard = one.reported[-1] if one.reported else one.started
        done = len(one.reported) // spec.recipe.evaluations_per_epoch
        epoch = min(done + 1, spec.recipe.epochs)
        told.append(f"epoch {epoch}/{spec.recipe.epochs} for {duration(max(0.0, now - heard))}")
    more = len(running) - len(told)
    return ", ".join(told) + (f", and {more} more" if more > 0 else "")


class Board:
    """Shows a search's progress between `with` and its end.

    Everything is printed by one thread of its own, so that nobody who says something waits for a
    terminal or a pipe that takes nothing. known: gives the trials so far. provisional: gives the
    answer so far in a line, or None. Both are called in that thread.
    """

    def __init__(
        self,
        spec: SearchSpec,
        known: Callable[[], Sequence[KnownTrial]],
        provisional: Callable[[], str | None],
        console: Console | None = None,
    ) -> None:
        self._spec = spec
        self._known = known
        self._provisional = provisional
        self._console = console or SafeConsole(sys.stderr)
        # Its `put` may be called in a signal handler.
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._show, name="board", daemon=True)
        # Puts a frame in the place of the one before; None where lines are printed.
        self._put: Callable[[Group], object] | None = None
        self._drawn: tuple[Group, ConsoleDimensions] | None = None
        self._started = time.monotonic()
        # When to draw again, or to say that all is well.
        is_live = self._console.is_interactive or self._console.is_jupyter
        self._due = self._started + (0.0 if is_live else HEARTBEAT_SECONDS)
        self._estimate: tuple[float, float] | None = None
        self._estimate_due = self._started
        self._phase = ""
        self._stopping = ""
        self._answer: str | None = None
        self._is_answer_old = True

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._tasks.put(None)
        self._thread.join(_PATIENCE)

    def phase(self, name: str) -> None:
        self._tasks.put(functools.partial(self._announce, name))

    def say(self, message: str) -> None:
        """Print a line that stays, above the table where there is one."""
        self._tasks.put(functools.partial(self._print, message))

    def stopping(self, hint: str) -> None:
        """Return the search is about to end early; to be called in a signal handler too.

        hint: what more can be done.
        """
        self._tasks.put(functools.partial(self._stop, hint))

    def ended(self, one: KnownTrial) -> None:
        self._tasks.put(functools.partial(self._end, one))

    def _show(self) -> None:
        live: Live | contextlib.nullcontext[None] = contextlib.nullcontext()
        if self._console.is_jupyter:
            # rich's own wants ipywidgets, and loses its place when another thread than the cell's
            # draws.
            from IPython.display import display

            cell = display(Text(), display_id=True)  # type: ignore[no-untyped-call]  # untyped
            # A group alone has no form that a notebook knows.
            self._put = lambda frame: cell.update(Padding(frame, 0))
        elif self._console.is_interactive:
            live = table = Live(console=self._console, auto_refresh=False)
            self._put = functools.partial(table.update, refresh=True)
        with live:
            while True:
                try:
                    task = self._tasks.get(timeout=max(0.0, self._due - time.monotonic()))
                    if task is None:
                        break
                    task()
                except Empty:
                    pass
                if time.monotonic() < self._due:
                    continue
                if self._put is None:
                    known = self._known()
                    self._print(self._progress(known, candidate_lines(self._spec, known)))
                else:
                    self._draw(self._put)
            if self._put is not None:
                self._draw(self._put)

    def _announce(self, message: str, ends: bool = False) -> None:
        if ends:
            self._stopping = message
        else:
            self._phase = message
        if self._put is None:
            self._print(message)
        else:
            self._draw(self._put)

    def _stop(self, hint: str) -> None:
        """Say what is kept: the trials that have ended, and nothing of those that run."""
        done = sum(one.status.is_final for one in self._known())
        kept = f"{trials_text(done)} saved; what runs" if done else "no trial has ended, so that it"
        self._announce(f"stopping: {kept} begins anew when resumed ({hint})", ends=True)

    def _end(self, one: KnownTrial) -> None:
        self._is_answer_old = True
        if self._put is None:
            self._print(self._line(one))

    def _print(self, message: str) -> None:
        self._fit()
        self._console.print(Text(visible(message)), soft_wrap=True)
        if self._put is None:
            self._due = time.monotonic() + HEARTBEAT_SECONDS

    def _line(self, one: KnownTrial) -> str:
        measures = one.trial.phase is Phase.MEASURE
        found = one.quality if measures else one.score
        by_holdout = self._spec.recipe.selection is Selection.HOLDOUT
        what = " held out" if by_holdout and not measures else ""
        reached = "" if found is None else f" at {points(found)}{what}"
        known = self._known()
        ended, _ = counts_of(candidate_lines(self._spec, known), trial_range(self._spec, known))
        return (
            f"[{ended}] {one.trial.key}: {one.status.value.replace('_', ' ')}{reached}"
            f" after {len(one.qualities)}/{self._spec.recipe.evaluations} evaluations"
            f"{self._left(known)}"
        )

    def _progress(self, known: Sequence[KnownTrial], lines: Sequence[CandidateLine]) -> str:
        elapsed = duration(time.monotonic() - self._started)
        running = running_text(self._spec, known, time.time())
        _, counted = counts_of(lines, trial_range(self._spec, known), running)
        return f"{counted}; {elapsed} elapsed{self._left(known)}"

    def _left(self, known: Sequence[KnownTrial]) -> str:
        """`, about 12 to 40 min left`; nothing before it can be known, or where nothing is left."""
        now = time.monotonic()
        if now >= self._estimate_due:
            self._estimate = time_range(self._spec, known, time.time())
            took = time.monotonic() - now
            self._estimate_due = now + took / _DRAWING_SHARE
        if self._estimate is None or self._stopping:
            return ""
        low, high = self._estimate
        if self._spec.max_time is not None:
            limit = self._spec.max_time - (now - self._started)
            low, high = min(low, limit), min(high, limit)
        return f", about {rough_range(low, high)} left" if high >= 1 else ""

    def _draw(self, put: Callable[[Group], object]) -> None:
        started = time.monotonic()
        if self._is_answer_old:
            self._is_answer_old = False
            self._answer = self._provisional()
        self._fit()
        frame = self._frame()
        took = time.monotonic() - started
        self._drawn = frame, self._console.size
        put(frame)
        # Not counted: how long the terminal took.
        self._due = time.monotonic() + max(REFRESH_SECONDS, took / _DRAWING_SHARE)

    def _frame(self) -> Group:
        spec = self._spec
        known = self._known()
        lines = candidate_lines(spec, known)
        best = "best held out" if spec.recipe.selection is Selection.HOLDOUT else "best"
        measured = f"measured {spec.task.metric.value}"
        columns = {
            "frozen": [depth_cells(each.candidate, spec.layers)[0] for each in lines],
            "tuned": [depth_cells(each.candidate, spec.layers)[1] for each in lines],
            **{word: [str(each.counts[word] or "-") for each in lines] for word in COUNTED},
            best: [points(each.best.score) if each.best else "-" for each in lines],
            "rate": [rate_text(e.best.trial.learning_rate) if e.best else "-" for e in lines],
            measured: [points(each.measured) for each in lines],
        }
        short = {**SHORT, best: "best", measured: "measured"}
        table = fitted_table(columns, self._console.width, short=short, spared=SPARED)
        texts = [
            Text(visible(f"{spec.name}: {spec.model.name} on {spec.task.name}"), style="bold"),
            Text(visible(self._stopping or self._phase), style="bold" if self._stopping else ""),
            Text(self._progress(known, lines)),
        ]
        if self._answer is not None:
            texts.append(Text(visible(f"answer so far: {self._answer}"), style="italic"))
        # A terminal that is not high enough shows the first lines.
        return Group(*texts, table)

    def _fit(self) -> None:
        """Take the terminal's size as it is now; the library believes COLUMNS."""
        with contextlib.suppress(OSError, ValueError):  # not a terminal
            size = os.get_terminal_size(self._console.file.fileno())
            if min(size) > 0:
                self._console.size = size
        if self._drawn is None:
            return
        frame, before = self._drawn
        width = self._console.width
        if width < before.width:  # up over what it wrapped: the library goes by what it drew
            options = self._console.options.update(width=before.width)
            lines = self._console.render_lines(frame, options, pad=False)[: before.height]
            rows = sum(math.ceil(Segment.get_line_length(line) / width) or 1 for line in lines)
            up = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._console.control(Control(*up * (rows - len(lines))))
        self._drawn = frame, self._console.size
