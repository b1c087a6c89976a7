"""The figures of a report: the freeze curve, and quality by learning rate and depth."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.report.charts import INK, Cell, Chart, Heat, Look, Panel, Series
from elsa_tune.report.subjects import Subject, left_out, printed_for
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.words import (
    border_arrow,
    depths_text,
    metric_text,
    percent,
    points,
    rate_text,
    spread,
    target_text,
)

FROZEN_TITLE = "frozen layers N"

TARGET = Look(colour=INK, marker="", line="--", width=1.4)
CHANCE = Look(colour=INK, marker="", line=":", width=1.4)
SEEDS = Look(colour=0, line="", hollow=True, size=4, width=1)
OPERATING = Look(colour=1, marker="*", line="", size=15)
CORRECTED = Look(colour=4, marker="v", line="", size=10)
CERTIFIED = Look(colour=2, marker="D", line="", hollow=True, size=15, width=2)
PUBLISHED = Look(colour=3, line=":", hollow=True, size=8, width=1.2)

# More ticks run into one another in a panel.
MOST_TICKS = 13

# More learning rates than this are put together into as many steps of equal ratio.
MOST_RATES = 10

# More heat maps than this nobody looks at, and they make a heavy page.
MOST_HEATS = 12


def freeze_curve(subjects: Sequence[Subject], printed: Sequence[Answer]) -> Chart:
    """Each curve with its interval, the threshold, chance, and the points that were decided.

    printed: published answers, drawn where model and task are the same.
    """
    drawn = [subject for subject in subjects if subject.answer.with_quality]
    return Chart(
        key="freeze_curve",
        title="The freeze curve",
        caption="Mean over the measuring seeds with its 95 % interval (a wide one goes on beyond "
        "the axis); hollow dots are single seeds.",
        panels=tuple(
            Panel(
                title=subject.name,
                x_title=FROZEN_TITLE,
                y_title=f"{metric_text(subject.answer.metric)} × 100",
                series=tuple(_curve_series(subject.answer, printed_for(subject.answer, printed))),
                ticks=depth_ticks({point.depth for point in subject.answer.with_quality}),
            )
            for subject in drawn
        ),
        left_out=left_out("No depth is measured", drawn, subjects),
    )


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


def depth_ticks(depths: set[FreezeDepth]) -> tuple[tuple[float, str], ...]:
    """A tick at each measured depth that has room for one."""
    whole = sorted({d.frozen_layers for d in depths if not d.is_embeddings_only}, reverse=True)
    if not whole:
        return ((0.5, "emb."),)
    span = whole[0] - whole[-1]
    ticks: list[tuple[float, str]] = []
    # From the deep end: that is where the answer lies.
    for number in whole:
        if not ticks or ticks[-1][0] - number >= span / MOST_TICKS:
            ticks.append((float(number), str(number)))
    if span <= MOST_TICKS / 2 and any(depth.is_embeddings_only for depth in depths):
        ticks.append((0.5, "emb."))
    return tuple(sorted(ticks))


# ---- the freeze curve ----------------------------------------------------------------------------


def _curve_series(answer: Answer, known: Answer | None) -> Iterator[Series]:
    found = answer.with_quality
    ends = (_position(found[0].depth), _position(found[-1].depth))
    if answer.full is not None and answer.full.quality is not None:
        full = answer.full.quality
        goal = 100 * answer.target * full
        says = f"target: {target_text(answer.target)} of {points(full)} is {goal:.1f}"
        yield _level("target", TARGET, goal, ends, says)
    if answer.chance is not None:
        says = f"a constant answer has {points(answer.chance)}"
        yield _level("constant answer", CHANCE, 100 * answer.chance, ends, says)
    seeds = [(point, quality) for point in found for quality in point.qualities]
    if seeds:
        yield Series(
            name="single seeds",
            look=SEEDS,
            x=tuple(_position(point.depth) for point, _ in seeds),
            y=tuple(100 * quality for _, quality in seeds),
        )
    yield _means(answer, "mean over seeds", Look(colour=0))
    if known is not None:
        yield _means(known, "published", PUBLISHED)
    decided = [
        ("certified", CERTIFIED, answer.certified),
        ("operating point", OPERATING, answer.operating_point),
    ]
    if answer.corrected_operating_point != answer.operating_point:
        decided.append(("corrected for chance", CORRECTED, answer.corrected_operating_point))
    heights = {point.depth: 100 * (point.quality or 0.0) for point in found}
    for name, look, point in decided:
        if point is not None and point.depth in heights:
            says = f"{name}: k = {point.fine_tuned_layers} of {answer.layers}"
            x, y = (_position(point.depth),), (heights[point.depth],)
            yield Series(name=name, look=look, x=x, y=y, hover=(says,))


def _position(depth: FreezeDepth) -> float:
    """Where a depth stands on the x axis; embeddings-only between the full model and N = 1."""
    return 0.5 if depth.is_embeddings_only else float(depth.frozen_layers)


def _level(name: str, look: Look, y: float, ends: tuple[float, float], says: str) -> Series:
    """A reference line, a little longer than what it is compared with."""
    margin = max(0.3, 0.03 * (ends[1] - ends[0]))
    xs = (ends[0] - margin, ends[1] + margin)
    return Series(name=name, look=look, x=xs, y=(y, y), hover=(says, says))


def _means(answer: Answer, name: str, look: Look) -> Series:
    found = answer.with_quality
    after = "\npublished" if name == "published" else ""
    return Series(
        name=name,
        look=look,
        x=tuple(_position(point.depth) for point in found),
        y=tuple(100 * (point.quality or 0.0) for point in found),
        low=tuple(None if p.ci_low is None else 100 * p.ci_low for p in found),
        high=tuple(None if p.ci_high is None else 100 * p.ci_high for p in found),
        hover=tuple(_point_text(answer, point) + after for point in found),
    )


def _point_text(answer: Answer, point: CurvePoint) -> str:
    """What a point of a curve tells when it is pointed at."""
    depth = f"{depths_text([point.depth])}, k = {point.fine_tuned_layers} of {answer.layers}"
    quality = f"{metric_text(answer.metric)} {spread(point.quality, point.std)}"
    lines = [f"{answer.model}: {depth}", quality]
    if point.ci_low is not None and point.ci_high is not None:
        lines.append(f"95 % interval {points(point.ci_low)} to {points(point.ci_high)}")
    if point.retention is not None:
        corrected = ""
        if point.corrected_retention is not None:
            corrected = f" ({percent(point.corrected_retention)} corrected for chance)"
        lines.append(f"keeps {percent(point.retention)}{corrected}")
    rate = "" if point.learning_rate is None else f", learning rate {point.learning_rate:g}"
    lines.append(f"{point.seeds} {'seed' if point.seeds == 1 else 'seeds'}{rate}")
    return "\n".join(lines)


# ---- learning rates ------------------------------------------------------------------------------


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
