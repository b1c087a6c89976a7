"""The figures of the depths: the freeze curve, the paper's Figure 1, and what a trial costs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.report.charts import INK, Chart, Look, Panel, Series
from elsa_tune.report.subjects import Subject, by_task, left_out, models_of, printed_for
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.words import depths_text, metric_text, percent, points, spread, target_text

FROZEN_TITLE = "frozen layers N"

TARGET = Look(colour=INK, marker="", line="--", width=1.4)
CHANCE = Look(colour=INK, marker="", line=":", width=1.4)
SEEDS = Look(colour=0, line="", hollow=True, size=4, width=1)
OPERATING = Look(colour=1, marker="*", line="", size=15)
CORRECTED = Look(colour=4, marker="v", line="", size=10)
CERTIFIED = Look(colour=2, marker="D", line="", hollow=True, size=15, width=2)
PUBLISHED = Look(colour=3, line=":", hollow=True, size=8, width=1.2)
# What tells models apart besides their colour.
MODEL_MARKERS = ("o", "s", "^", "D", "v", "p")
MODEL_LINES = ("-", "--", "-.", ":")

# More ticks, and more points with their depth beside them, run into one another in a panel.
MOST_TICKS, MOST_LABELS = 13, 9


def freeze_curve(subjects: Sequence[Subject], printed: Sequence[Answer]) -> Chart:
    """Each curve with its interval, the threshold, chance, and the points that were decided."""
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


def relative_change(subjects: Sequence[Subject], printed: Sequence[Answer]) -> Chart:
    """The paper's Figure 1: what freezing costs against the full model, in percent."""
    models = models_of(subjects)
    drawn = [subject for subject in subjects if _is_relative(subject.answer)]
    panels = []
    for title, several in by_task(drawn).items():
        series = []
        for subject in several:
            answer, look = subject.answer, model_look(models.index(subject.answer.model))
            series.append(_changes(answer, answer.model, look))
            known = printed_for(answer, printed)
            if known is not None and _is_relative(known):
                look = replace(look, line=":", hollow=True, size=8, width=1.2)
                series.append(_changes(known, f"{answer.model}, published", look))
        lowest = 100 * (several[0].answer.target - 1)
        ends = (min(one.x[0] for one in series), max(one.x[-1] for one in series))
        level = _level("target", TARGET, lowest, ends, f"target: {lowest:.6g} %")
        panels.append(
            Panel(
                title=title,
                x_title=FROZEN_TITLE,
                y_title="relative change (%)",
                series=(level, *series),
                ticks=depth_ticks({p.depth for one in several for p in one.answer.with_quality}),
            )
        )
    return Chart(
        key="relative_change",
        title="What freezing costs",
        caption="Mean quality relative to the model's own full fine-tuning, as in Figure 1 of Lee, "
        "Tang and Lin (2019). Bands: one standard deviation over seeds.",
        panels=tuple(panels),
        left_out=left_out(
            "There is no full model above 0, or no other depth to compare with it", drawn, subjects
        ),
    )


def training_time(subjects: Sequence[Subject]) -> Chart:
    """Quality against the median training seconds of a trial."""
    models = models_of(subjects)
    drawn = [subject for subject in subjects if _timed(subject.answer)]
    panels = []
    for task, several in by_task(drawn).items():
        metrics = {metric_text(subject.answer.metric) for subject in several}
        series = [_times(one.answer, model_look(models.index(one.answer.model))) for one in several]
        if len(several) > 1 or len(series[0].x) > MOST_LABELS:
            series = [replace(one, labels=()) for one in series]
        panels.append(
            Panel(
                title=task,
                x_title="seconds to train one trial",
                y_title=f"{metrics.pop() if len(metrics) == 1 else 'quality'} × 100",
                series=(*series, *(mark for one in several for mark in _time_mark(one.answer))),
                x_from_zero=True,
            )
        )
    return Chart(
        key="training_time",
        title="Quality and training time",
        caption="Each point is a depth: mean quality against the median training time of its "
        "trials. Up and to the left is better.",
        panels=tuple(panels),
        left_out=left_out("The results do not tell the training times", drawn, subjects),
    )


def model_look(index: int) -> Look:
    """The look of the model that is number `index` of the report, the same in every figure."""
    return Look(
        colour=index,
        marker=MODEL_MARKERS[index % len(MODEL_MARKERS)],
        line=MODEL_LINES[index % len(MODEL_LINES)],
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


def _height(point: CurvePoint) -> float:
    return 100 * (point.quality or 0.0)


def _name(answer: Answer, point: CurvePoint) -> str:
    depth = f"{depths_text([point.depth])}, k = {point.fine_tuned_layers} of {answer.layers}"
    quality = f"{metric_text(answer.metric)} {spread(point.quality, point.std)}"
    return f"{answer.model}: {depth}\n{quality}"


def _point_text(answer: Answer, point: CurvePoint) -> str:
    """What a point of a curve tells when it is pointed at."""
    lines = [_name(answer, point)]
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


def _is_relative(answer: Answer) -> bool:
    """Whether there is a full model above 0, and another depth beside it."""
    found = [point for point in answer.with_quality if point.retention is not None]
    full = answer.full
    return full is not None and bool(full.quality) and bool(found) and found != [full]


def _changes(answer: Answer, name: str, look: Look) -> Series:
    full = 0.0 if answer.full is None else _height(answer.full)
    found = [
        (point, 100 * (point.retention - 1), None if point.std is None else 1e4 * point.std / full)
        for point in answer.with_quality
        if point.retention is not None
    ]
    return Series(
        name=name,
        look=look,
        x=tuple(depth_position(point.depth) for point, _, _ in found),
        y=tuple(change for _, change, _ in found),
        low=tuple(None if width is None else change - width for _, change, width in found),
        high=tuple(None if width is None else change + width for _, change, width in found),
        hover=tuple(f"{_name(answer, p)}\nchange {change:+.1f} %" for p, change, _ in found),
    )


def _timed(answer: Answer) -> list[tuple[CurvePoint, float]]:
    """The depths whose seconds are known."""
    found = [(point, point.train_seconds) for point in answer.with_quality]
    return [(point, seconds) for point, seconds in found if seconds is not None]


def _times(answer: Answer, look: Look) -> Series:
    points, seconds = zip(*_timed(answer), strict=True)
    return Series(
        name=answer.model,
        look=look,
        x=seconds,
        y=tuple(_height(point) for point in points),
        hover=tuple(f"{_name(answer, point)}\n{at:,.4g} s" for point, at in _timed(answer)),
        # Embeddings-only lies so near the full model that two labels would be one blot.
        labels=tuple("" if p.depth.is_embeddings_only else f"N={p.depth.label}" for p in points),
    )


def _time_mark(answer: Answer) -> Iterator[Series]:
    chosen, name = answer.operating_point, "operating point"
    if chosen is not None and chosen.train_seconds is not None:
        x, y = (chosen.train_seconds,), (_height(chosen),)
        yield Series(name=name, look=OPERATING, x=x, y=y, hover=(name,))


def _curve_series(answer: Answer, known: Answer | None) -> Iterator[Series]:
    found = answer.with_quality
    ends = (depth_position(found[0].depth), depth_position(found[-1].depth))
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
            x=tuple(depth_position(point.depth) for point, _ in seeds),
            y=tuple(100 * quality for _, quality in seeds),
        )
    yield _means(answer, "mean over seeds", Look(colour=0))
    if known is not None:
        yield _means(known, "published", PUBLISHED)
    heights = {point.depth: _height(point) for point in found}
    for name, look, depth, says in _decided(answer):
        if depth in heights:
            at, height = depth_position(depth), heights[depth]
            yield Series(name=name, look=look, x=(at,), y=(height,), hover=(f"{name}: {says}",))


def _means(answer: Answer, name: str, look: Look) -> Series:
    found = answer.with_quality
    after = "\npublished" if name == "published" else ""
    return Series(
        name=name,
        look=look,
        x=tuple(depth_position(point.depth) for point in found),
        y=tuple(_height(point) for point in found),
        low=tuple(None if p.ci_low is None else 100 * p.ci_low for p in found),
        high=tuple(None if p.ci_high is None else 100 * p.ci_high for p in found),
        hover=tuple(_point_text(answer, point) + after for point in found),
    )


def _decided(answer: Answer) -> Iterator[tuple[str, Look, FreezeDepth, str]]:
    """The depths that an answer names: marks on the curve with what they tell."""
    sure, raw = answer.certified, answer.operating_point
    corrected = answer.corrected_operating_point
    if sure is not None:
        says = f"k = {sure.fine_tuned_layers}, {target_text(sure.confidence)} certain"
        yield "certified", CERTIFIED, sure.depth, says
    if raw is not None:
        says = f"k = {raw.fine_tuned_layers} of {answer.layers}"
        yield "operating point", OPERATING, raw.depth, says
    if corrected is not None and (raw is None or corrected.depth != raw.depth):
        says = f"k = {corrected.fine_tuned_layers} of {answer.layers}"
        yield "corrected for chance", CORRECTED, corrected.depth, says


def _level(name: str, look: Look, y: float, ends: tuple[float, float], says: str) -> Series:
    """A reference line, a little longer than what it is compared with."""
    margin = max(0.3, 0.03 * (ends[1] - ends[0]))
    xs = (ends[0] - margin, ends[1] + margin)
    return Series(name=name, look=look, x=xs, y=(y, y), hover=(says, says))
