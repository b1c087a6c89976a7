"""The figures of quality against what it costs: training time and trained parameters.

They must not draw; answers go in, `Chart`s come out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.report.charts import Chart, Look, Panel, Series
from elsa_tune.report.freeze_charts import OPERATING, model_look, point_text
from elsa_tune.report.subjects import Subject, by_task, left_out, models_of
from elsa_tune.words import metric_text

# With more points than this their labels run into one another.
MOST_LABELS = 9

Cost = Callable[[CurvePoint], float | None]


def training_time(subjects: Sequence[Subject]) -> Chart:
    """Quality against the median training seconds of a trial."""
    return _chart(
        subjects,
        key="training_time",
        title="Quality and training time",
        x_title="seconds to train one trial",
        what="training times",
        caption="Each point is a depth: mean quality against the median training time of its "
        "trials. Up and to the left is better.",
        cost=lambda point: point.train_seconds,
        text=lambda seconds: f"{seconds:,.4g} s",
    )


def trained_parameters(subjects: Sequence[Subject]) -> Chart:
    """Quality against the parameters that are trained, in millions."""
    return _chart(
        subjects,
        key="trained_parameters",
        title="Quality and trained parameters",
        x_title="trained parameters (millions)",
        what="numbers of trained parameters",
        caption="Each point is a depth: mean quality against the parameters that training changes. "
        "Up and to the left is better.",
        cost=lambda point: (
            None if point.trainable_parameters is None else point.trainable_parameters / 1e6
        ),
        text=lambda millions: f"{millions:,.4g} million parameters trained",
    )


def _chart(
    subjects: Sequence[Subject],
    *,
    key: str,
    title: str,
    x_title: str,
    what: str,
    caption: str,
    cost: Cost,
    text: Callable[[float], str],
) -> Chart:
    models = models_of(subjects)
    panels, missing = [], []
    for task, several in by_task(subjects).items():
        series: list[Series] = []
        marks: list[Series] = []
        known = {subject.name: _known(subject.answer, cost) for subject in several}
        labelled = len(several) == 1 and all(len(f) <= MOST_LABELS for f in known.values())
        for subject in several:
            found = known[subject.name]
            if not found:
                missing.append(subject)
                continue
            look = model_look(models.index(subject.answer.model))
            series.append(_series(subject.answer, found, look, text, labelled=labelled))
            marks.extend(_mark(subject.answer, found))
        if series:
            metrics = {metric_text(subject.answer.metric) for subject in several}
            panels.append(
                Panel(
                    title=task,
                    x_title=x_title,
                    y_title=f"{metrics.pop() if len(metrics) == 1 else 'quality'} × 100",
                    series=(*series, *marks),
                    x_from_zero=True,
                )
            )
    return Chart(
        key=key,
        title=title,
        caption=caption,
        panels=tuple(panels),
        left_out=left_out(f"The results do not tell the {what}", missing, subjects),
    )


def _known(answer: Answer, cost: Cost) -> list[tuple[CurvePoint, float, float]]:
    """Depths with their cost and their quality x 100."""
    return [
        (point, value, 100 * point.quality)
        for point in answer.points
        if point.quality is not None and (value := cost(point)) is not None
    ]


def _series(
    answer: Answer,
    found: Sequence[tuple[CurvePoint, float, float]],
    look: Look,
    text: Callable[[float], str],
    *,
    labelled: bool,
) -> Series:
    names = tuple(
        # Embeddings-only lies so near the full model that two labels would be one blot.
        "" if point.depth.is_embeddings_only else f"N={point.depth.label}"
        for point, _, _ in found
    )
    return Series(
        name=answer.model,
        look=look,
        x=tuple(value for _, value, _ in found),
        y=tuple(quality for _, _, quality in found),
        hover=tuple(f"{point_text(answer, point)}\n{text(value)}" for point, value, _ in found),
        labels=names if labelled else (),
    )


def _mark(answer: Answer, found: Sequence[tuple[CurvePoint, float, float]]) -> list[Series]:
    chosen = answer.operating_point
    return [
        Series(
            name="operating point",
            look=OPERATING,
            x=(value,),
            y=(quality,),
            hover=(f"{answer.model}: operating point, k = {point.fine_tuned_layers}",),
        )
        for point, value, quality in found
        if chosen is not None and point.depth == chosen.depth
    ]
