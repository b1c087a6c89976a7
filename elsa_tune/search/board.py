"""What a person sees while a search runs: one live table on a terminal, plain lines elsewhere, on
stderr.

It must not know Ray; it draws what the record says.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import IO, Self, cast

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from elsa_tune.search.planning.plan import KnownTrial, planned_trials
from elsa_tune.search.saying import Unfailing
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, Selection, TrialStatus

# Drawing asks for the whole state; more often than this nobody could read it.
REFRESH_SECONDS = 1.0
# Of thousands of trials it takes long: no more than so much of the driver's time is drawing.
_DRAWING_SHARE = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthLine:
    """One row of the table: counts of trials at a depth, and the best score so far (held out
    under `selection: holdout`).
    """

    depth: FreezeDepth
    done: int
    running: int
    stopped: int
    failed: int
    planned: int
    best: float | None
    best_rate: float | None
    measured: float | None


def depth_lines(spec: SearchSpec, known: Sequence[KnownTrial]) -> list[DepthLine]:
    """The rows, shallowest depth first. `measured`: the mean over completed measuring trials."""
    lines = []
    for depth, here in _by_depth(spec, known).items():
        completed = [one for one in here if one.status is TrialStatus.COMPLETED]
        scores = [(one.score, one.trial.learning_rate) for one in completed]
        best = max(scores, default=(None, None), key=lambda pair: pair[0] or 0.0)
        measured = [one.quality or 0.0 for one in completed if one.trial.phase is Phase.MEASURE]
        lines.append(
            DepthLine(
                depth=depth,
                done=len(completed),
                running=_count(here, TrialStatus.RUNNING),
                stopped=_count(here, TrialStatus.STOPPED_EARLY),
                failed=_count(here, TrialStatus.FAILED, TrialStatus.DIVERGED),
                planned=planned_trials(spec, here, depth),
                best=best[0],
                best_rate=best[1],
                measured=sum(measured) / len(measured) if measured else None,
            )
        )
    return lines


def seconds_left(
    spec: SearchSpec, known: Sequence[KnownTrial], elapsed: float, now_done: int
) -> float | None:
    """Time to the end at the pace so far, ASHA's stops not counted on; None before any evaluation.

    now_done: evaluations that were reported since `elapsed` began to count.
    """
    if now_done == 0:
        return None
    planned = _planned(spec, known) * spec.recipe.evaluations
    spent = 0
    for one in known:
        # Whatever a finished trial did not use is not to come any more.
        spent += spec.recipe.evaluations if one.status.is_final else len(one.qualities)
    return max(0, planned - spent) * elapsed / now_done


def duration(seconds: float) -> str:
    """`48 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Board:
    """Shows a search's progress between `with` and its end.

    known: gives the trials so far by their keys. provisional: gives the answer so far in a line, or
    None.
    """

    def __init__(
        self,
        spec: SearchSpec,
        known: Callable[[], Mapping[str, KnownTrial]],
        provisional: Callable[[], str | None],
        console: Console | None = None,
    ) -> None:
        self._spec = spec
        self._by_holdout = spec.recipe.selection is Selection.HOLDOUT
        self._known = known
        self._provisional = provisional
        self._console = console or Console(file=cast(IO[str], Unfailing(sys.stderr)))
        self._live: Live | None = None
        self._phase = ""
        self._started = time.monotonic()
        self._next_drawing = 0.0
        self._said: dict[str, str] = {}
        self._before = self._evaluations(known().values())

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._draw()
            self._live.stop()
            self._live = None

    def phase(self, name: str) -> None:
        """A new phase begins."""
        self._phase = name
        if self._live is None:
            self.say(name)
        else:
            self._draw()

    def say(self, message: str) -> None:
        """A line that stays, above the table where there is one."""
        self._console.print(Text(message), soft_wrap=True)

    def changed(self, key: str) -> None:
        """Something was recorded of this trial."""
        if self._live is not None:
            if time.monotonic() >= self._next_drawing:
                self._draw()
            return
        known = self._known()
        one = known.get(key)
        if one is None or one.status is TrialStatus.RUNNING:
            return
        line = self._line(one, list(known.values()))
        if self._said.get(key) != line:
            self._said[key] = line
            self.say(line)

    def _line(self, one: KnownTrial, known: Sequence[KnownTrial]) -> str:
        measures = one.trial.phase is Phase.MEASURE
        found = one.quality if measures else one.score
        what = "" if measures or not self._by_holdout else " held out"
        reached = "no result" if found is None else f"{100 * found:.1f}{what}"
        total = _planned(self._spec, known)
        ended = sum(other.status.is_final for other in known)
        left = self._left(known)
        return (
            f"[{ended}/{total}] {one.trial.key}: {one.status.value.replace('_', ' ')} at {reached}"
            f" after {len(one.qualities)}/{self._spec.recipe.evaluations} evaluations"
            + (f", about {duration(left)} left" if left else "")
        )

    def _left(self, known: Sequence[KnownTrial]) -> float | None:
        return seconds_left(
            self._spec,
            known,
            time.monotonic() - self._started,
            self._evaluations(known) - self._before,
        )

    @staticmethod
    def _evaluations(known: Iterable[KnownTrial]) -> int:
        return sum(len(one.qualities) for one in known)

    def _draw(self) -> None:
        if self._live is None:
            return
        started = time.monotonic()
        known = list(self._known().values())
        spec = self._spec
        table = Table(
            title=f"{spec.name}: {spec.model.name} on {spec.task.name}", title_style="bold"
        )
        best = "best held out" if self._by_holdout else "best"
        for name in ("frozen", "tuned", "done", "running", "stopped", "failed", best, "at rate"):
            table.add_column(name, justify="right")
        table.add_column(f"measured {spec.task.metric.value}", justify="right")
        for line in depth_lines(spec, known):
            table.add_row(
                line.depth.label,
                str(line.depth.fine_tuned_layers(spec.layers)),
                f"{line.done}/{line.planned}",
                str(line.running or ""),
                str(line.stopped or ""),
                str(line.failed or ""),
                _percent(line.best),
                f"{line.best_rate:g}" if line.best_rate is not None else "",
                _percent(line.measured),
            )
        left = self._left(known)
        clock = f"{self._phase}   {duration(time.monotonic() - self._started)} elapsed"
        if left is not None:
            clock += f", about {duration(left)} left"
        lines = [Text(clock)]
        if (sentence := self._provisional()) is not None:
            lines.append(Text(f"so far: {sentence}", style="italic"))
        self._live.update(Group(table, *lines), refresh=True)
        took = time.monotonic() - started
        self._next_drawing = started + max(REFRESH_SECONDS, took / _DRAWING_SHARE)


def _planned(spec: SearchSpec, known: Sequence[KnownTrial]) -> int:
    by_depth = _by_depth(spec, known)
    return sum(planned_trials(spec, here, depth) for depth, here in by_depth.items())


def _by_depth(spec: SearchSpec, known: Iterable[KnownTrial]) -> dict[FreezeDepth, list[KnownTrial]]:
    found: dict[FreezeDepth, list[KnownTrial]] = {depth: [] for depth in spec.depths}
    for one in known:
        found[one.trial.depth].append(one)
    return found


def _count(trials: Iterable[KnownTrial], *statuses: TrialStatus) -> int:
    return sum(one.status in statuses for one in trials)


def _percent(quality: float | None) -> str:
    return "" if quality is None else f"{100 * quality:.1f}"
