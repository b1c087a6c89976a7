"""What a person sees of a search on stderr: a live table on a terminal, lines elsewhere."""

import contextlib
import functools
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Self

from rich.console import Console, ConsoleDimensions, Group
from rich.control import Control
from rich.live import Live
from rich.padding import Padding
from rich.segment import ControlType, Segment
from rich.table import Table
from rich.text import Text

from elsa_tune.fitted_table import fitted_table
from elsa_tune.searching.board_lines import (
    COUNTED,
    CandidateLine,
    candidate_lines,
    counts_of,
    running_text,
)
from elsa_tune.searching.console import SafeConsole
from elsa_tune.searching.eta import time_range, workers_of
from elsa_tune.searching.output import worded
from elsa_tune.searching.planning.known import KnownTrial, KnowsTrials
from elsa_tune.searching.planning.plan import trial_range
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Selection, TrialStatus
from elsa_tune.visible import visible
from elsa_tune.words import depth_cells, duration, points, rate_text, rough_range, trials_text

# The clock moves on a terminal; elsewhere a line is printed when nothing else was for so long.
REFRESH_SECONDS = 1.0
HEARTBEAT_SECONDS = 60.0
# With thousands of trials, drawing takes no more than this share of the driver's time.
_DRAWING_SHARE = 0.05
# How long the end of a search waits for a terminal that takes nothing (Ctrl-S).
_PATIENCE = 5.0

# Headings for a narrow window, and the columns that a very narrow one does without.
SHORT = {"running": "run", "waiting": "wait", "stopped": "stop", "failed": "fail"}
SPARED = ("at rate", "tuned")


class Board:
    """Shows a search's progress between `with` and its end.

    Everything is printed by one thread of its own, so that nobody who says something waits for a
    terminal or a pipe that takes nothing. provisional: gives the answer so far in a line, or None;
    it is called in that thread.
    """

    def __init__(
        self,
        spec: SearchSpec,
        provisional: Callable[[], str | None],
        console: Console | None = None,
        elapsed: float = 0.0,
    ) -> None:
        """Make the board of a search.

        elapsed: the seconds for which its session has run already.
        """
        self._spec = spec
        self._plan: KnowsTrials | None = None
        self._gpu_hours: Callable[[], float] = lambda: 0.0
        self._now: Callable[[], float] = time.time
        self._saved: Callable[[str], float | None] = lambda key: None
        self._provisional = provisional
        self._console = console or SafeConsole(sys.stderr)
        # Its `put` may be called in a signal handler.
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._show, name="board", daemon=True)
        # Puts a frame in the place of the one before; None where lines are printed.
        self._put: Callable[[Group], object] | None = None
        self._drawn: tuple[Group, ConsoleDimensions] | None = None
        now = time.monotonic()
        self._started = now - elapsed
        # When to draw again, or to say that all is well.
        self._due = now
        is_live = self._console.is_interactive or self._console.is_jupyter
        if not is_live:
            self._due += HEARTBEAT_SECONDS
        self._estimate: tuple[float, float] | None = None
        self._estimate_due = now
        self._phase = ""
        self._stopping = ""
        self._answer: str | None = None
        self._is_answer_old = True

    def follow(
        self,
        plan: KnowsTrials,
        gpu_hours: Callable[[], float] = lambda: 0.0,
        now: Callable[[], float] = time.time,
        saved: Callable[[str], float | None] = lambda key: None,
    ) -> None:
        """Show the trials of this plan; the board's own thread asks it for them.

        gpu_hours: gives those that the search has used. now: the time by the clock of the trials'.
        saved: when a trial's checkpoint was written, None where it has none.
        """
        self._plan = plan
        self._gpu_hours = gpu_hours
        self._now = now
        self._saved = saved

    def _known(self) -> Sequence[KnownTrial]:
        """Return the trials that have begun so far."""
        if self._plan is None:
            return ()
        return self._plan.known

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._tasks.put(None)
        self._thread.join(_PATIENCE)

    def phase(self, name: str) -> None:
        """Say what the search is at from now on."""
        self._tasks.put(functools.partial(self._announce, name))

    def say(self, message: str) -> None:
        """Print a line that stays, above the table where there is one."""
        self._tasks.put(functools.partial(self._print, worded(message)))

    def stopping(self, hint: str) -> None:
        """Say that the search is about to end early; to be called in a signal handler too.

        hint: what more can be done.
        """
        self._tasks.put(functools.partial(self._stop, hint))

    def ended(self, trial: KnownTrial) -> None:
        """Say that a trial has ended, and how."""
        self._tasks.put(functools.partial(self._end, trial))

    def _show(self) -> None:
        """Print until the end; this is what the board's thread does."""
        with self._opened():
            while self._do_next_task():
                if time.monotonic() < self._due:
                    continue
                if self._put is None:
                    self._print_progress()
                else:
                    self._draw(self._put)
            if self._put is not None:
                self._draw(self._put)

    def _print_progress(self) -> None:
        """Print how far the search is, so that a long silence is no cause for worry."""
        trials = self._known()
        lines = candidate_lines(self._spec, trials)
        progress = self._progress(trials, lines)
        self._print(progress)

    def _opened(self) -> Live | contextlib.nullcontext[None]:
        """Decide how frames are put up, and return what shows them while inside."""
        if self._console.is_jupyter:
            # rich's own wants ipywidgets, and loses its place when another thread than the cell's
            # draws.
            from IPython.display import display

            cell = display(Text(), display_id=True)  # type: ignore[no-untyped-call]  # untyped
            # A group alone has no form that a notebook knows.
            self._put = lambda frame: cell.update(Padding(frame, 0))
        elif self._console.is_interactive:
            live = Live(console=self._console, auto_refresh=False)
            self._put = functools.partial(live.update, refresh=True)
            return live
        return contextlib.nullcontext()

    def _do_next_task(self) -> bool:
        """Do what was asked for next, or wait until something is due; False at the end."""
        patience = max(0.0, self._due - time.monotonic())
        try:
            task = self._tasks.get(timeout=patience)
        except Empty:
            return True
        if task is None:
            return False
        task()
        return True

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
        """Say what is kept: the trials that have ended, and the checkpoints of those that run."""
        ended = 0
        running = []
        for trial in self._known():
            if trial.is_final:
                ended += 1
            elif trial.status is TrialStatus.RUNNING:
                running.append(trial)
        kept = f"{trials_text(ended)} saved" if ended else "no trial has ended"
        with_checkpoint = [trial for trial in running if self._saved(trial.key) is not None]
        then = "what runs begins anew"
        if with_checkpoint:
            then = f"{len(with_checkpoint)} of {len(running)} that run continue at checkpoints"
            if len(with_checkpoint) == len(running):
                then = "what runs continues at its checkpoint"
        self._announce(f"stopping: {kept}; {then} when resumed ({hint})", ends=True)

    def _end(self, trial: KnownTrial) -> None:
        self._is_answer_old = True
        if self._put is None:
            self._print(self._line(trial))

    def _print(self, message: str) -> None:
        self._fit()
        # The terminal wraps it. `print(soft_wrap=True)` would cut the lines of the frame below it,
        # and a text alone would lose its own settings.
        text = Text(visible(message), no_wrap=True, overflow="ignore")
        self._console.print(Group(text), crop=False)
        if self._put is None:
            self._due = time.monotonic() + HEARTBEAT_SECONDS

    def _line(self, trial: KnownTrial) -> str:
        """Write how a trial ended, and how far the search is."""
        recipe = self._spec.recipe
        value = trial.score
        by_holdout = recipe.selection is Selection.HOLDOUT
        if trial.measures:
            value = trial.quality
            by_holdout = False
        reached = ""
        if value is not None:
            reached = f" at {points(value)}"
            if by_holdout:
                reached += " held out"
        trials = self._known()
        lines = candidate_lines(self._spec, trials)
        in_all = trial_range(self._spec, trials)
        ended, _ = counts_of(lines, in_all)
        status = trial.status.value.replace("_", " ")
        reports = len(trial.qualities)
        evaluations = f"{reports}/{recipe.evaluations} evaluations"
        left = self._left(trials)
        return f"[{ended}] {trial.key}: {status}{reached} after {evaluations}{left}"

    def _progress(self, trials: Sequence[KnownTrial], lines: Sequence[CandidateLine]) -> str:
        """Write how far the search is, and how long it takes."""
        since_start = time.monotonic() - self._started
        elapsed = duration(since_start)
        running = running_text(self._spec, trials, self._now())
        in_all = trial_range(self._spec, trials)
        _, counted = counts_of(lines, in_all, running)
        left = self._left(trials)
        return f"{counted}; {elapsed} elapsed{self._used()}{left}"

    def _used(self) -> str:
        """Return `, 1.25 of 8 GPU-hours used`, or nothing where trials train on CPUs."""
        if not self._spec.resources.gpus:
            return ""
        used = f"{self._gpu_hours():.2f}"
        if self._spec.gpu_hours is not None:
            used += f" of {self._spec.gpu_hours:g}"
        return f", {used} GPU-hours used"

    def _left(self, trials: Sequence[KnownTrial]) -> str:
        """Return `, about 12 to 40 min left`, or nothing.

        Nothing before it can be known, and where nothing is left.
        """
        now = time.monotonic()
        if now >= self._estimate_due:
            self._estimate = time_range(self._spec, trials, self._now())
            took = time.monotonic() - now
            self._estimate_due = now + took / _DRAWING_SHARE
        if self._estimate is None or self._stopping:
            return ""
        low, high = self._estimate
        limit = self._seconds_allowed(trials)
        low = min(low, limit)
        high = min(high, limit)
        if high < 1:
            return ""
        return f", about {rough_range(low, high)} left"

    def _seconds_allowed(self, trials: Sequence[KnownTrial]) -> float:
        """Return the seconds until the time is over, or, with as many trials, the GPU-hours."""
        limit = math.inf
        if self._spec.max_time is not None:
            elapsed = time.monotonic() - self._started
            limit = self._spec.max_time - elapsed
        gpus_in_use = workers_of(trials, self._now()) * self._spec.resources.gpus
        if self._spec.gpu_hours is not None and gpus_in_use:
            hours_left = max(0.0, self._spec.gpu_hours - self._gpu_hours())
            limit = min(limit, hours_left * 3600 / gpus_in_use)
        return limit

    def _draw(self, put: Callable[[Group], object]) -> None:
        """Put up a new frame, and decide when the next one is due."""
        started = time.monotonic()
        if self._is_answer_old:
            self._is_answer_old = False
            self._answer = self._provisional()
        self._fit()
        frame = self._frame()
        took = time.monotonic() - started
        self._drawn = (frame, self._console.size)
        put(frame)
        # Not counted: how long the terminal took.
        pause = max(REFRESH_SECONDS, took / _DRAWING_SHARE)
        self._due = time.monotonic() + pause

    def _frame(self) -> Group:
        """Return what is drawn: a few lines of text, and the table."""
        spec = self._spec
        trials = self._known()
        lines = candidate_lines(spec, trials)
        title = visible(f"{spec.name}: {spec.model.name} on {spec.task.name}")
        state = visible(self._stopping or self._phase)
        state_style = ""
        if self._stopping:
            state_style = "bold"
        progress = self._progress(trials, lines)
        texts = [
            Text(title, style="bold"),
            Text(state, style=state_style),
            Text(progress),
        ]
        if self._answer is not None:
            answer = visible(f"answer so far: {self._answer}")
            texts.append(Text(answer, style="italic"))
        table = self._table(lines)
        # A terminal that is not high enough shows the first lines.
        return Group(*texts, table)

    def _table(self, lines: Sequence[CandidateLine]) -> Table:
        """Return the table of candidates, as wide as the window permits."""
        best = "best"
        if self._spec.recipe.selection is Selection.HOLDOUT:
            best = "best held out"
        measured = f"measured {self._spec.task.metric.value}"
        columns: dict[str, list[str]] = {}
        for heading in ("frozen", "tuned", *COUNTED, best, "at rate", measured):
            columns[heading] = []
        for line in lines:
            frozen, tuned = depth_cells(line.candidate, self._spec.layers)
            columns["frozen"].append(frozen)
            columns["tuned"].append(tuned)
            for word in COUNTED:
                count = line.counts[word] or "-"
                columns[word].append(str(count))
            score = "-"
            rate = "-"
            if line.best is not None:
                score = points(line.best.score)
                rate = rate_text(line.best.learning_rate)
            columns[best].append(score)
            columns["at rate"].append(rate)
            mean = points(line.measured)
            columns[measured].append(mean)
        short = {
            **SHORT,
            best: "best",
            measured: "measured",
        }
        return fitted_table(
            columns,
            self._console.width,
            short=short,
            spared=SPARED,
        )

    def _fit(self) -> None:
        """Take the terminal's size as it is now; the library believes COLUMNS."""
        with contextlib.suppress(OSError, ValueError):  # not a terminal
            descriptor = self._console.file.fileno()
            size = os.get_terminal_size(descriptor)
            if min(size) > 0:
                self._console.size = size
        if self._drawn is None:
            return
        frame, size_before = self._drawn
        if self._console.width < size_before.width:
            wrapped = self._wrapped_rows(frame, size_before)
            up_one_row = ((ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1))
            self._console.control(Control(*up_one_row * wrapped))
        self._drawn = (frame, self._console.size)

    def _wrapped_rows(self, frame: Group, size_before: ConsoleDimensions) -> int:
        """Return how many rows a narrower terminal added to a frame by wrapping its lines.

        The cursor goes up over them, for the library goes by the lines that it drew.
        """
        options = self._console.options.update(width=size_before.width)
        lines = self._console.render_lines(frame, options, pad=False)
        drawn_lines = lines[: size_before.height]
        rows = 0
        for line in drawn_lines:
            length = Segment.get_line_length(line)
            rows_of_line = math.ceil(length / self._console.width)
            rows += max(1, rows_of_line)
        return rows - len(drawn_lines)
