"""Which depth of a search is exported, and what the search promised of it.

It must not train or write anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.statistics.uncertainty import Interval, interval_of_next
from elsa_tune.errors import NoAnswerError, UsageError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.task import Metric
from elsa_tune.words import interval, layers_text, metric_text, points, target_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The depth to export. why: in a few words, for the reader. promised: where a run with a fresh
    seed lies in 95 of 100 cases, None where one seed or none tells of it.
    """

    answer: Answer
    point: CurvePoint
    learning_rate: float
    why: str
    promised: Interval | None

    @property
    def depth(self) -> FreezeDepth:
        """What stays frozen."""
        return self.point.depth

    @property
    def in_words(self) -> str:
        """`2 of 6 layers (certified)`."""
        layers = layers_text(self.answer.layers)
        if self.depth.is_full_model:
            return f"all {layers}, the full model ({self.why}), so that no layer stays frozen"
        return f"{self.point.fine_tuned_layers} of {layers} ({self.why})"

    def judged(self, quality: float) -> str:
        """The exported model's quality beside what the search promised."""
        metric = metric_text(self.answer.metric)
        said = f"The exported model has {points(quality)} {metric}"
        if self.promised is None:
            return f"{said}; by one measured seed the search promised no interval."
        low, high = self.promised.low, self.promised.high
        place = "within" if low <= quality <= high else "below" if quality < low else "above"
        among = f"of a fresh seed by the {self.point.seeds} that the search measured"
        return f"{said}, {place} {interval(low, high)}, the 95 % interval {among}."


def choose(answers: Sequence[Answer], layers: int | None = None) -> Choice:
    """The certified depth, else the operating point; or the depth with so many fine-tuned layers.

    Raises NoAnswerError without an answer, UsageError for a number that was not measured.
    """
    if len(answers) != 1 or not answers[0].points:
        raise NoAnswerError("the search has no answer yet, so that there is nothing to export")
    [answer] = answers
    measured = [
        point
        for point in answer.points
        if point.learning_rate is not None
        and point.quality is not None
        and not point.depth.is_embeddings_only
    ]
    if layers is not None:
        chosen, why = [p for p in measured if p.fine_tuned_layers == layers], "as asked for"
        if not chosen:
            there = ", ".join(str(p.fine_tuned_layers) for p in measured) or "none"
            raise UsageError(
                f"`layers` is {layers}, but no model with that many fine-tuned layers was "
                f"measured, so that its learning rate is not known; measured: {there}"
            )
    else:
        if answer.operating_point is None:
            raise NoAnswerError(f"{answer.sentence} `layers` K exports a depth all the same")
        # That the full model keeps its own quality is certain, and tells nothing.
        is_certified = answer.certified is not None and not answer.certified.depth.is_full_model
        wanted = answer.certified if is_certified else answer.operating_point
        assert wanted is not None
        chosen = [p for p in measured if p.depth == wanted.depth]
        kept = f"{target_text(answer.target)} of the full model"
        why = f"certified to keep {kept}" if is_certified else "the operating point, not certified"
    point = chosen[0]
    assert point.learning_rate is not None
    promised = None
    if point.quality is not None and point.std is not None and point.seeds > 1:
        promised = interval_of_next(point.quality, point.std, point.seeds)
        lowest = 0.0 if answer.metric is None else Metric(answer.metric).lowest
        # Student's t knows no ends of a metric's range.
        promised = replace(promised, low=max(promised.low, lowest), high=min(promised.high, 1.0))
    return Choice(
        answer=answer,
        point=point,
        learning_rate=point.learning_rate,
        why=why,
        promised=promised,
    )
