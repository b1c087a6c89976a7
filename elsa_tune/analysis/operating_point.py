"""The operating point: the fewest fine-tuned layers that keep the target share of quality."""

from __future__ import annotations

from dataclasses import fields, replace

from elsa_tune.analysis.answer import Answer, Reason
from elsa_tune.analysis.certainty import with_certainty
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.statistics.learnt import Learnt, learnt
from elsa_tune.analysis.statistics.uncertainty import Spread
from elsa_tune.analysis.target import (
    DEFAULT_TARGET,
    check_target,
    failing_above,
    passing,
    reaches,
    smallest,
)
from elsa_tune.analysis.wording.answer import answer_sentence, answer_warnings
from elsa_tune.analysis.wording.certainty import certainty_sentence, next_step


def answer_curve(curve: FreezeCurve, target: float = DEFAULT_TARGET) -> Answer:
    """Answer from one freeze curve. Raises UsageError for a target outside (0, 1]."""
    verdict = verdict_on(curve)
    known = {field.name: getattr(curve, field.name) for field in fields(curve)}
    answer = Answer(**known, target=check_target(target), reason=_refusal(curve, verdict))
    if answer.reason is None:
        answer = _decided(answer, learnt=verdict is Learnt.YES)
    return replace(
        answer,
        sentence=answer_sentence(answer),
        warnings=(*answer_warnings(answer, verdict), *curve.warnings),
    )


def _decided(answer: Answer, *, learnt: bool) -> Answer:
    passes = passing(answer, answer.target)
    raw = smallest(answer.measured, passes)
    # The full model keeps all of its own quality, and that is above 0 once it has learnt.
    assert raw is not None
    corrected = passing(answer, answer.target, corrected=True)
    answer = replace(
        answer,
        operating_point=raw,
        corrected_operating_point=smallest(answer.measured, corrected),
        failing_above=failing_above(answer.measured, passes, raw.fine_tuned_layers),
        within_given=_within_given(answer, answer.target),
    )
    answer = with_certainty(answer, learnt=learnt)
    return replace(
        answer,
        certainty=certainty_sentence(answer),
        next_step=next_step(answer),
        reason=Reason.NOTHING_REACHES_TARGET if raw.depth.is_full_model else answer.reason,
    )


def _within_given(curve: FreezeCurve, target: float) -> CurvePoint | None:
    """The same question of the given rates alone, where some depth went beyond them."""
    given, full = curve.given_rates, curve.full
    if given is None or full is None:
        return None
    rates = [p.learning_rate for p in curve.measured if p.learning_rate is not None]
    full_quality = full.tried.quality_within_given
    if full_quality is None or all(given[0] <= rate <= given[1] for rate in rates):
        return None
    found = [
        CurvePoint(depth=point.depth, fine_tuned_layers=point.fine_tuned_layers, quality=quality)
        for point in curve.measured
        if (quality := point.tried.quality_within_given) is not None
        and reaches(quality, full_quality, target)
    ]
    return found[-1] if found else None


def verdict_on(curve: FreezeCurve) -> Learnt | None:
    """Whether the full model learnt; None where it was not measured."""
    full = curve.full
    if full is None or full.quality is None:
        return None
    known, spread = curve.uncertainty, None
    if known is not None and full.depth in known.runs and full.seeds > 1:
        spread = known.spread(full.depth)
    elif full.std is not None and full.seeds > 1:
        spread = Spread(variance=full.std**2 / full.seeds, freedom=full.seeds - 1)
    return learnt(
        full.quality,
        chance=curve.chance,
        spread=spread,
        examples=curve.examples,
        is_accuracy=curve.metric == "accuracy",
        example_variance=None if known is None else known.example_variance(full.depth),
    )


def _refusal(curve: FreezeCurve, verdict: Learnt | None) -> Reason | None:
    if not curve.with_quality:
        return Reason.NO_MEASUREMENTS
    if verdict is None:
        return Reason.NO_FULL_MODEL
    if verdict is Learnt.NO:
        return Reason.FULL_MODEL_DID_NOT_LEARN
    return Reason.NO_FROZEN_DEPTH if len(curve.measured) == 1 else None
