"""The figures of a report: the freeze curve, and quality by learning rate and depth."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.report.charts import INK, Chart, Look, Panel, Series
from elsa_tune.report.subjects import Subject, left_out, printed_for
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.words import (
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
CHOSEN = Look(colour=INK, line="", hollow=True, size=12, width=1.2)
PUBLISHED = Look(colour=3, line=":", hollow=True, size=8, width=1.2)

# More ticks run into one another in a panel.
MOST_TICKS, MOST_RATE_TICKS = 13, 6

# What tells depths apart besides their colour.
MARKERS = ("o", "s", "^", "D", "v", "p")
LINES = ("-", "--", "-.", ":")


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
    """Mean quality over the learning rate, a line a depth, of trials that were neither stopped nor
    failed.
    """
    depths = sorted({row.depth for subject in subjects for row in subject.rows})
    panels, drawn = [], []
    for subject in subjects:
        series = list(_rate_series(subject, depths))
        rates = sorted({x for one in series for x in one.x})
        if len(rates) > 1:
            drawn.append(subject)
            panels.append(
                Panel(
                    title=subject.name,
                    x_title="learning rate",
                    y_title=f"{metric_text(subject.answer.metric)} × 100",
                    series=tuple(series),
                    ticks=tuple((x, f"{10**x:.2g}") for x in _spaced(rates, MOST_RATE_TICKS)),
                )
            )
    return Chart(
        key="learning_rates",
        title="Learning rates",
        caption="Mean of the completed trials at each rate, exploring and measuring. A circle: the "
        "rate that a depth was measured at. Where a line's end is its best, rates beyond it may be "
        "better.",
        panels=tuple(panels),
        left_out=left_out("No trials have completed at several learning rates", drawn, subjects),
    )


def depth_ticks(depths: set[FreezeDepth]) -> tuple[tuple[float, str], ...]:
    """A tick at each measured depth that has room for one."""
    whole = sorted({d.frozen_layers for d in depths if not d.is_embeddings_only})
    if not whole:
        return ((0.5, "emb."),)
    ticks = [(float(number), f"{number:g}") for number in _spaced(whole, MOST_TICKS)]
    if whole[-1] - whole[0] <= MOST_TICKS / 2 and any(depth.is_embeddings_only for depth in depths):
        ticks.append((0.5, "emb."))
    return tuple(sorted(ticks))


def _spaced(places: Sequence[float], most: int) -> list[float]:
    """Of places on an axis, in rising order, those that leave one another room; the last is among
    them: at the deep end lies the answer.
    """
    kept = [places[-1]]
    for place in places[-2::-1]:
        if kept[-1] - place >= (places[-1] - places[0]) / most:
            kept.append(place)
    return kept[::-1]


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


def _rate_series(subject: Subject, depths: Sequence[FreezeDepth]) -> Iterator[Series]:
    """A line for each depth, and a mark where it was measured; x: the rate's decimal logarithm.

    depths: of the figure, so that each looks the same in every panel.
    """
    runs: dict[tuple[FreezeDepth, float], list[tuple[float, int]]] = {}
    for row in subject.rows:
        if row.status is TrialStatus.COMPLETED and row.quality is not None and row.learning_rate:
            runs.setdefault((row.depth, row.learning_rate), []).append((row.quality, row.runs))
    means: dict[FreezeDepth, dict[float, float]] = {}
    for (depth, rate), several in sorted(runs.items()):
        qualities, counts = zip(*several, strict=True)
        means.setdefault(depth, {})[rate] = 100 * statistics.fmean(qualities, counts)
    for depth, known in means.items():
        name, number = depths_text([depth]), depths.index(depth)
        yield Series(
            name=name,
            look=Look(
                colour=number % len(MARKERS),
                marker=MARKERS[number % len(MARKERS)],
                line=LINES[number // len(MARKERS) % len(LINES)],
                width=1.6,
            ),
            x=tuple(map(math.log10, known)),
            y=tuple(known.values()),
            hover=tuple(f"{name}, {rate_text(rate)}: {mean:.1f}" for rate, mean in known.items()),
        )
    for point in subject.answer.with_quality:
        rate = point.learning_rate or 0.0
        if (mean := means.get(point.depth, {}).get(rate)) is not None:  # else all of them diverged
            yield Series(name="measured", look=CHOSEN, x=(math.log10(rate),), y=(mean,))
