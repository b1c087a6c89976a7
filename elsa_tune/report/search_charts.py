"""The figures of how the search went: learning rate x depth, and what early stopping saw."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from elsa_tune.analysis.answer import Answer
from elsa_tune.report.charts import Cell, Chart, Heat, Look, Panel, Series
from elsa_tune.report.freeze_charts import FROZEN_TITLE
from elsa_tune.report.subjects import Subject, left_out
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import Histories, ResultRow
from elsa_tune.specs.trial import Phase, Selection, TrialStatus
from elsa_tune.words import border_arrow, depths_text, metric_text, points, rate_text

# More learning rates than this are put together into as many steps of equal ratio.
MOST_RATES = 10

# More heat maps than this nobody looks at, and they make a heavy page.
MOST_HEATS = 12

CHOSEN = Look(colour=2, size=4, width=2.6)
FINISHED = Look(colour=0, marker="s", line="-.", size=4, width=1.6)
STOPPED = Look(colour=1, marker="^", line="--", size=4, width=1.6)
STOP = Look(colour=1, marker="X", line="", size=9)
BROKEN = Look(colour=3, marker="D", line=":", size=4, width=1.6)


def learning_rates(subjects: Sequence[Subject]) -> Chart:
    """Mean quality by learning rate and depth; the rate that was measured is marked."""
    rated = {
        subject.name: [row for row in subject.rows if row.learning_rate is not None]
        for subject in subjects
    }
    drawn = [
        subject
        for subject in subjects
        if len({row.learning_rate for row in rated[subject.name]}) > 1
        and _mean(rated[subject.name]) is not None
    ]
    reasons = left_out("No trials have completed at several learning rates", drawn, subjects)
    if len(drawn) > MOST_HEATS:
        drawn, reasons = [], (f"It is drawn for {MOST_HEATS} answers or fewer.",)
    return Chart(
        key="learning_rates",
        title="Learning rates",
        caption="Mean quality × 100 of the completed trials. Framed: the rate that a depth was "
        "measured at. ×: every trial was stopped or failed. ↑ (↓): the largest (smallest) rate "
        "tried is the depth's best; others beyond it may be better.",
        panels=tuple(
            Panel(
                title=subject.name,
                x_title=FROZEN_TITLE,
                y_title="learning rate",
                heat=_heat(subject.answer, rated[subject.name]),
            )
            for subject in drawn
        ),
        left_out=reasons,
    )


def early_stopping(subjects: Sequence[Subject], histories: Histories) -> Chart:
    """Of a single subject, quality over its exploring trials' evaluations, a panel a depth."""
    courses = [
        (row, histories[row.search or "", row.trial or ""])
        for subject in subjects
        for row in subject.rows
        if row.phase is Phase.EXPLORE and histories.get((row.search or "", row.trial or ""))
    ]
    answer = subjects[0].answer if len(subjects) == 1 else None
    held_out = " on the holdout" if answer and answer.selection == Selection.HOLDOUT else ""
    panels, reason = [], "It is drawn of one answer: report one search (--search)."
    if not courses:
        reason = (
            "There is no quality per evaluation of any exploring trial: a results table does not "
            "hold it, the record of a search does."
        )
    elif answer is not None:
        chosen = {point.depth: point.learning_rate for point in answer.with_quality}
        panels = [
            Panel(
                title=depths_text([depth]),
                x_title="evaluation",
                y_title=f"{metric_text(answer.metric)}{held_out} × 100",
                series=tuple(
                    series
                    for row, qualities in courses
                    if row.depth == depth
                    for series in _course(row, qualities, chosen.get(depth))
                ),
            )
            for depth in sorted({row.depth for row, _ in courses})
        ]
    return Chart(
        key="early_stopping",
        title="Early stopping",
        caption=f"Quality{held_out} at each evaluation of the exploring trials, which compete only "
        "with others of their depth. A line that ends in a cross was stopped there.",
        panels=tuple(panels),
        left_out=() if panels else (reason,),
    )


def _heat(answer: Answer, rows: Sequence[ResultRow]) -> Heat:
    depths = sorted({row.depth for row in rows})
    steps = _steps(sorted({row.learning_rate for row in rows if row.learning_rate is not None}))
    chosen = {point.depth: point.learning_rate for point in answer.with_quality}
    arrows = {point.depth: border_arrow(point.tried.at_border) for point in answer.points}
    cells = []
    for number, step in enumerate(steps):
        for column, depth in enumerate(depths):
            tried = [row for row in rows if row.depth == depth and row.learning_rate in step]
            cells.append(
                Cell(
                    column=column,
                    row=number,
                    value=_mean(tried),
                    note="×" if tried else "",
                    hover=_cell_text(depth, step, tried),
                    is_framed=chosen.get(depth) in step,
                )
            )
    return Heat(
        columns=tuple(
            f"{'emb.' if depth.is_embeddings_only else depth.label}{arrows.get(depth, '')}"
            for depth in depths
        ),
        rows=tuple(_step_text(step) for step in steps),
        cells=tuple(cells),
    )


def _steps(rates: Sequence[float]) -> list[tuple[float, ...]]:
    """Each rate alone, or, where there are many, those of each step of equal ratio."""
    if len(rates) <= MOST_RATES:
        return [(rate,) for rate in rates]
    width = math.log(rates[-1] / rates[0]) / MOST_RATES
    steps: dict[int, list[float]] = {}
    for rate in rates:
        number = min(int(math.log(rate / rates[0]) / width), MOST_RATES - 1)
        steps.setdefault(number, []).append(rate)
    return [tuple(step) for step in steps.values()]


def _step_text(step: Sequence[float]) -> str:
    if len(step) == 1:
        return rate_text(step[0])
    return f"{step[0]:.2g} to {step[-1]:.2g}"


def _mean(rows: Sequence[ResultRow]) -> float | None:
    completed = [row for row in rows if row.status is TrialStatus.COMPLETED]
    told = [(row.quality, row.runs) for row in completed if row.quality is not None]
    if not told:
        return None
    qualities, runs = zip(*told, strict=True)
    return 100 * statistics.fmean(qualities, runs)


def _cell_text(depth: FreezeDepth, step: Sequence[float], rows: Sequence[ResultRow]) -> str:
    where = f"N = {depth.label}, learning rate {_step_text(step)}"
    if not rows:
        return f"{where}\nnot tried"
    mean = _mean(rows)
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row.status.value.replace("_", " ")] += row.runs
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    value = "no completed trial" if mean is None else f"mean {mean:.1f}"
    return f"{where}\n{value} ({told})"


def _course(
    row: ResultRow, qualities: Sequence[float], chosen_rate: float | None
) -> Iterator[Series]:
    name, look = "did not end", BROKEN
    if row.status is TrialStatus.STOPPED_EARLY:
        name, look = "stopped early", STOPPED
    elif row.status is TrialStatus.COMPLETED:
        is_chosen = row.learning_rate == chosen_rate
        name, look = ("chosen rate", CHOSEN) if is_chosen else ("completed", FINISHED)
    xs = tuple(float(number) for number in range(1, len(qualities) + 1))
    rate = rate_text(row.learning_rate)
    ys = tuple(100 * quality for quality in qualities)
    yield Series(
        name=name,
        look=look,
        x=xs,
        y=ys,
        hover=tuple(
            f"learning rate {rate}, {name}\nevaluation {number}: {points(quality)}"
            for number, quality in enumerate(qualities, 1)
        ),
    )
    if row.status is TrialStatus.STOPPED_EARLY:
        hover = (f"learning rate {rate}, stopped after evaluation {len(qualities)}",)
        yield Series(name="stopped here", look=STOP, x=xs[-1:], y=ys[-1:], hover=hover)
