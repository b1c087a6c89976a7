"""The figures of how the search went: learning rate x depth, and what early stopping saw."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace

from elsa_tune.analysis.answer import Answer
from elsa_tune.report.charts import Chart, Heat, Look, Panel, Series
from elsa_tune.report.freeze_charts import FROZEN_TITLE
from elsa_tune.report.subjects import Subject, left_out
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, Selection, TrialStatus
from elsa_tune.words import border_arrow, metric_text, points, rate_text

# More learning rates than this are put together into as many steps of equal ratio.
MOST_RATES = 10

# By (search, trial): the score at each evaluation that trials were compared by.
Histories = Mapping[tuple[str, str], tuple[float, ...]]

# More answers than this would be more pictures than anybody looks at, and a heavy page.
MOST_RATE_PANELS, MOST_EARLY_STOPPING = 12, 4

CHOSEN = Look(colour=2, size=4, width=2.6)
FINISHED = Look(colour=0, marker="s", line="-.", size=4, width=1.6)
STOPPED = Look(colour=1, marker="^", line="--", size=4, width=1.6)
STOP = Look(colour=1, marker="X", line="", size=9)
BROKEN = Look(colour=3, marker="D", line=":", size=4, width=1.6)


def learning_rates(subjects: Sequence[Subject]) -> Chart:
    """Mean quality by learning rate and depth; the rate that was measured is marked."""
    panels = []
    unnamed, alone, unfinished = [], [], []
    for subject in subjects:
        rated = [row for row in subject.rows if row.learning_rate is not None]
        if not rated:
            unnamed.append(subject)
        elif len({row.learning_rate for row in rated}) == 1:
            alone.append(subject)
        elif not any(_is_told(row) for row in rated):
            unfinished.append(subject)
        else:
            panels.append(
                Panel(
                    title=subject.name,
                    x_title=FROZEN_TITLE,
                    y_title="learning rate",
                    heat=_heat(subject.answer, rated),
                )
            )
    if len(panels) > MOST_RATE_PANELS:
        return Chart(
            key="learning_rates",
            title="Learning rates",
            caption="",
            panels=(),
            left_out=(_too_many(MOST_RATE_PANELS),),
        )
    return Chart(
        key="learning_rates",
        title="Learning rates",
        caption="Mean quality × 100 of the completed trials. Framed: the rate that a depth was "
        "measured at. ×: every trial was stopped or failed. ↑ (↓): the largest (smallest) rate "
        "tried is the depth's best; others beyond it may be better.",
        panels=tuple(panels),
        left_out=(
            *left_out("The results name no learning rate", unnamed, subjects),
            *left_out("Every trial had the same learning rate", alone, subjects),
            *left_out("No trial has completed", unfinished, subjects),
        ),
    )


def early_stopping(subjects: Sequence[Subject], histories: Histories) -> list[Chart]:
    """Per subject, quality over the evaluations of each exploring trial, a panel per depth; one
    chart without panels where there is nothing to draw, or too much.
    """
    exploring = {
        subject.name: [
            row for row in subject.rows if row.phase is Phase.EXPLORE and _history(row, histories)
        ]
        for subject in subjects
    }
    told = [subject for subject in subjects if exploring[subject.name]]
    if told and len(subjects) <= MOST_EARLY_STOPPING:
        charts = [_early_stopping(one.answer, exploring[one.name], histories) for one in told]
        if len(subjects) == 1:
            return charts
        return [
            replace(chart, key=f"{chart.key}-{number}", title=f"{chart.title}: {one.name}")
            for number, (one, chart) in enumerate(zip(told, charts, strict=True), 1)
        ]
    why = (
        _too_many(MOST_EARLY_STOPPING)
        if told
        else "There is no quality per evaluation of any exploring trial: a results table does not "
        "hold it, the record of a search does."
    )
    return [
        Chart(key="early_stopping", title="Early stopping", caption="", panels=(), left_out=(why,))
    ]


def _too_many(most: int) -> str:
    return f"It is drawn for {most} answers or fewer; --search, --model or --task ask for less."


def _is_told(row: ResultRow) -> bool:
    return row.status is TrialStatus.COMPLETED and row.quality is not None


def _heat(answer: Answer, rows: Sequence[ResultRow]) -> Heat:
    depths = sorted({row.depth for row in rows})
    steps = _steps(sorted({row.learning_rate for row in rows if row.learning_rate is not None}))
    chosen = {p.depth: p.learning_rate for p in answer.points if p.quality is not None}
    arrows = {point.depth: border_arrow(point.tried.at_border) for point in answer.points}
    cells = [
        [[r for r in rows if r.depth == depth and r.learning_rate in step] for depth in depths]
        for step in steps
    ]
    return Heat(
        columns=tuple(
            f"{'emb.' if depth.is_embeddings_only else depth.label}{arrows.get(depth, '')}"
            for depth in depths
        ),
        rows=tuple(_step_text(step) for step in steps),
        values=tuple(tuple(_mean(cell) for cell in line) for line in cells),
        notes=tuple(tuple("×" if cell else "" for cell in line) for line in cells),
        hover=tuple(
            tuple(_cell_text(depth, step, c) for depth, c in zip(depths, line, strict=True))
            for step, line in zip(steps, cells, strict=True)
        ),
        marked=tuple(
            (number, column)
            for number, step in enumerate(steps)
            for column, depth in enumerate(depths)
            if chosen.get(depth) in step
        ),
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
    told = [(row.quality, row.runs) for row in rows if _is_told(row) and row.quality is not None]
    if not told:
        return None
    qualities, runs = zip(*told, strict=True)
    return 100 * statistics.fmean(qualities, runs)


def _cell_text(depth: FreezeDepth, step: Sequence[float], rows: Sequence[ResultRow]) -> str:
    where = f"N = {depth.label}, learning rate {_step_text(step)}"
    if not rows:
        return f"{where}\nnot tried"
    mean = _mean(rows)
    counts: dict[str, int] = {}
    for row in rows:
        name = row.status.value.replace("_", " ")
        counts[name] = counts.get(name, 0) + row.runs
    told = ", ".join(f"{count} {name}" for name, count in counts.items())
    value = "no completed trial" if mean is None else f"mean {mean:.1f}"
    return f"{where}\n{value} ({told})"


def _early_stopping(answer: Answer, rows: Sequence[ResultRow], histories: Histories) -> Chart:
    chosen = {p.depth: p.learning_rate for p in answer.points if p.quality is not None}
    held_out = " on the holdout" if answer.selection == Selection.HOLDOUT else ""
    panels = []
    for depth in sorted({row.depth for row in rows}):
        series = []
        for row in rows:
            if row.depth == depth:
                is_chosen = row.learning_rate == chosen.get(depth)
                series.extend(_course(row, _history(row, histories), is_chosen=is_chosen))
        name = "the full model" if depth.is_full_model else f"N = {depth.label}"
        panels.append(
            Panel(
                title="embeddings only" if depth.is_embeddings_only else name,
                x_title="evaluation",
                y_title=f"{metric_text(answer.metric)}{held_out} × 100",
                series=tuple(series),
            )
        )
    return Chart(
        key="early_stopping",
        title="Early stopping",
        caption=f"Quality{held_out} at each evaluation of the exploring trials, which compete only "
        "with others of their depth. A line that ends in a cross was stopped there.",
        panels=tuple(panels),
    )


def _history(row: ResultRow, histories: Histories) -> tuple[float, ...]:
    if row.search is None or row.trial is None:
        return ()
    return histories.get((row.search, row.trial), ())


def _course(row: ResultRow, qualities: Sequence[float], *, is_chosen: bool) -> list[Series]:
    name, look = "did not end", BROKEN
    if row.status is TrialStatus.STOPPED_EARLY:
        name, look = "stopped early", STOPPED
    elif row.status is TrialStatus.COMPLETED:
        name, look = ("chosen rate", CHOSEN) if is_chosen else ("completed", FINISHED)
    xs = tuple(float(number) for number in range(1, len(qualities) + 1))
    rate = rate_text(row.learning_rate)
    course = Series(
        name=name,
        look=look,
        x=xs,
        y=tuple(100 * quality for quality in qualities),
        hover=tuple(
            f"learning rate {rate}, {name}\nevaluation {number}: {points(quality)}"
            for number, quality in enumerate(qualities, 1)
        ),
    )
    if row.status is not TrialStatus.STOPPED_EARLY:
        return [course]
    end = Series(
        name="stopped here",
        look=STOP,
        x=xs[-1:],
        y=course.y[-1:],
        hover=(f"learning rate {rate}, stopped after evaluation {len(qualities)}",),
    )
    return [course, end]
