"""The figures over frozen layers: the paper's Figure 1, and the freeze curve with its answer.

It must not draw; answers go in, `Chart`s come out.
"""

from __future__ import annotations

from collections.abc import Sequence

from elsa_tune.analysis.answer import Answer, OperatingPoint
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.report.charts import INK, Chart, Look, Panel, Series
from elsa_tune.report.palette import MODEL_DASHES, MODEL_MARKERS
from elsa_tune.report.subjects import Subject, by_task, left_out, models_of, printed_for
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.words import depths_text, metric_text, percent, points, spread, target_text

FROZEN_TITLE = "frozen layers N"

TARGET = Look(colour=INK, marker=None, dash="dashed", width=1.4)
CHANCE = Look(colour=INK, marker=None, dash="dotted", width=1.4)
SEEDS = Look(colour=0, marker="circle", dash=None, hollow=True, size=4, width=1)
OPERATING = Look(colour=1, marker="star", dash=None, size=15)
CORRECTED = Look(colour=4, marker="down", dash=None, size=10)
CERTIFIED = Look(colour=2, marker="diamond", dash=None, hollow=True, size=15, width=2)
PUBLISHED = Look(colour=3, marker="circle", dash="dotted", hollow=True, size=8, width=1.2)

# More ticks than this run into one another in a panel.
MOST_TICKS = 13


def model_look(index: int) -> Look:
    """The look of the model that is number `index` of the report, the same in every figure."""
    return Look(
        colour=index,
        marker=MODEL_MARKERS[index % len(MODEL_MARKERS)],
        dash=MODEL_DASHES[index % len(MODEL_DASHES)],
    )


def relative_change(subjects: Sequence[Subject], printed: Sequence[Answer]) -> Chart:
    """The paper's Figure 1: what freezing costs against the full model, in percent."""
    models = models_of(subjects)
    panels, missing = [], []
    for title, several in by_task(subjects).items():
        series = []
        for subject in several:
            index = models.index(subject.answer.model)
            found = _changes(subject.answer, subject.answer.model, model_look(index))
            if found is None:
                missing.append(subject)
                continue
            series.append(found)
            known = printed_for(subject.answer, printed)
            look = Look(
                colour=index,
                marker=model_look(index).marker,
                dash="dotted",
                hollow=True,
                size=8,
                width=1.2,
            )
            name = f"{subject.answer.model}, published"
            other = None if known is None else _changes(known, name, look)
            if other is not None:
                series.append(other)
        if series:
            depths = {p.depth for subject in several for p in _measured(subject.answer)}
            lowest = 100 * (several[0].answer.target - 1)
            ends = (min(s.x[0] for s in series), max(s.x[-1] for s in series))
            panels.append(
                Panel(
                    title=title,
                    x_title=FROZEN_TITLE,
                    y_title="relative change (%)",
                    series=(
                        _level("target", TARGET, lowest, ends, f"target: {lowest:.6g} %"),
                        *series,
                    ),
                    ticks=depth_ticks(depths),
                )
            )
    return Chart(
        key="relative_change",
        title="What freezing costs",
        caption="Mean quality relative to each model's own full fine-tuning, over the number of "
        "frozen layers (the first figure of the paper that this tool follows). Bands: one standard "
        "deviation over seeds, where it is known.",
        panels=tuple(panels),
        left_out=left_out(
            "There is no full model above 0, or no other depth to compare with it",
            missing,
            subjects,
        ),
    )


def freeze_curve(subjects: Sequence[Subject], printed: Sequence[Answer]) -> Chart:
    """Each curve with its interval, the threshold, chance, and the points that were decided."""
    panels, missing = [], []
    for subject in subjects:
        answer = subject.answer
        if not _measured(answer):
            missing.append(subject)
            continue
        panels.append(
            Panel(
                title=subject.name,
                x_title=FROZEN_TITLE,
                y_title=f"{metric_text(answer.metric)} × 100",
                series=tuple(_curve_series(answer, printed_for(answer, printed))),
                ticks=depth_ticks({point.depth for point in _measured(answer)}),
            )
        )
    return Chart(
        key="freeze_curve",
        title="The freeze curve",
        caption="Mean quality over the measuring seeds at each number of frozen layers, with its "
        "95 % interval where the spread is known; hollow dots are single seeds. The operating "
        "point has the fewest fine-tuned layers of those that reach the target; the certified "
        "point the fewest that, with every larger number, surely do.",
        panels=tuple(panels),
        left_out=left_out("No depth is measured", missing, subjects),
    )


def depth_position(depth: FreezeDepth) -> float:
    """Where a depth stands on the x axis; embeddings-only between the full model and N = 1."""
    return 0.5 if depth.is_embeddings_only else float(depth.frozen_layers)


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


def point_text(answer: Answer, point: CurvePoint) -> str:
    """What a point of a curve tells when it is pointed at."""
    lines = [
        f"{answer.model} on {answer.task}: {depths_text([point.depth])}, "
        f"k = {point.fine_tuned_layers} of {answer.layers}",
        f"{metric_text(answer.metric)} {spread(point.quality, point.std)}",
    ]
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


def _measured(answer: Answer) -> list[CurvePoint]:
    return [point for point in answer.points if point.quality is not None]


def _changes(answer: Answer, name: str, look: Look) -> Series | None:
    """A model's line; None where there is no full model above 0, or nothing beside it."""
    full = answer.full
    found = [point for point in _measured(answer) if point.retention is not None]
    if full is None or not full.quality or not found or found == [full]:
        return None
    changes = [_change(point.retention) for point in found]
    widths = [None if point.std is None else 100 * point.std / full.quality for point in found]
    pairs = list(zip(changes, widths, strict=True))
    return Series(
        name=name,
        look=look,
        x=tuple(depth_position(point.depth) for point in found),
        y=tuple(changes),
        low=tuple(None if width is None else change - width for change, width in pairs),
        high=tuple(None if width is None else change + width for change, width in pairs),
        hover=tuple(
            f"{point_text(answer, point)}\nchange {change:+.1f} %"
            for point, change in zip(found, changes, strict=True)
        ),
    )


def _change(retention: float | None) -> float:
    assert retention is not None
    return 100 * (retention - 1)


def _curve_series(answer: Answer, known: Answer | None) -> list[Series]:
    found = _measured(answer)
    ends = (depth_position(found[0].depth), depth_position(found[-1].depth))
    full = None if answer.full is None else answer.full.quality
    series = []
    if full is not None:
        goal = 100 * answer.target * full
        says = f"target: {target_text(answer.target)} of {points(full)} is {goal:.1f}"
        series.append(_level("target", TARGET, goal, ends, says))
    if answer.chance is not None:
        chance = 100 * answer.chance
        says = f"a constant answer has {points(answer.chance)}"
        series.append(_level("constant answer", CHANCE, chance, ends, says))
    seeds = [(point, quality) for point in found for quality in point.qualities]
    if seeds:
        series.append(
            Series(
                name="single seeds",
                look=SEEDS,
                x=tuple(depth_position(point.depth) for point, _ in seeds),
                y=tuple(100 * quality for _, quality in seeds),
                hover=tuple(
                    f"one seed of {depths_text([point.depth])}: {points(quality)}"
                    for point, quality in seeds
                ),
            )
        )
    series.append(_means(answer, "mean over seeds", Look(colour=0)))
    if known is not None:
        series.append(_means(known, "published", PUBLISHED))
    series.extend(_decided(answer))
    return series


def _means(answer: Answer, name: str, look: Look) -> Series:
    found = _measured(answer)
    return Series(
        name=name,
        look=look,
        x=tuple(depth_position(point.depth) for point in found),
        y=tuple(100 * (point.quality or 0.0) for point in found),
        low=tuple(None if p.ci_low is None else 100 * p.ci_low for p in found),
        high=tuple(None if p.ci_high is None else 100 * p.ci_high for p in found),
        hover=tuple(
            point_text(answer, point) + ("\npublished" if name == "published" else "")
            for point in found
        ),
    )


def _decided(answer: Answer) -> list[Series]:
    """The depths that an answer names, as marks on the curve."""
    marks: list[tuple[str, Look, FreezeDepth, str]] = []
    if answer.certified is not None:
        sure = answer.certified
        says = f"k = {sure.fine_tuned_layers}, {target_text(sure.confidence)} certain"
        marks.append(("certified", CERTIFIED, sure.depth, f"certified: {says}"))
    decided: dict[str, tuple[Look, OperatingPoint | None]] = {
        "operating point": (OPERATING, answer.operating_point),
        "corrected for chance": (CORRECTED, answer.corrected_operating_point),
    }
    for name, (look, point) in decided.items():
        if point is not None and not (
            name != "operating point"
            and answer.operating_point is not None
            and point.depth == answer.operating_point.depth
        ):
            says = f"{name}: k = {point.fine_tuned_layers} of {answer.layers}"
            marks.append((name, look, point.depth, says))
    heights = {point.depth: point.quality for point in _measured(answer)}
    return [
        Series(
            name=name,
            look=look,
            x=(depth_position(depth),),
            y=(100 * height,),
            hover=(says,),
        )
        for name, look, depth, says in marks
        if (height := heights.get(depth)) is not None
    ]


def _level(name: str, look: Look, y: float, ends: tuple[float, float], says: str) -> Series:
    """A reference line, a little longer than what it is compared with."""
    margin = max(0.3, 0.03 * (ends[1] - ends[0]))
    xs = (ends[0] - margin, ends[1] + margin)
    return Series(name=name, look=look, x=xs, y=(y, y), hover=(says, says))
