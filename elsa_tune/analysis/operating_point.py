"""The operating point: the fewest fine-tuned layers that keep the target share of quality.

It must not know where the curve came from, nor how an answer is printed.
"""

from __future__ import annotations

from elsa_tune.analysis.answer import Answer, OperatingPoint, Reason, Saves, WithinGiven
from elsa_tune.analysis.certainty import Certainty, certainty_of
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.statistics.learnt import Evidence, Learnt, learnt
from elsa_tune.analysis.statistics.uncertainty import Spread
from elsa_tune.analysis.target import (
    DEFAULT_TARGET,
    check_target,
    failing_above,
    passing,
    reaches,
    smallest,
)
from elsa_tune.analysis.wording.answer import Decision, answer_sentence, answer_warnings
from elsa_tune.analysis.wording.certainty import certainty_sentence, next_step


def answer_curve(curve: FreezeCurve, target: float = DEFAULT_TARGET) -> Answer:
    """Answer from one freeze curve. Raises UsageError for a target outside (0, 1]."""
    decision = _decide(curve, check_target(target))
    sure = Certainty()
    certainty, step = "", None
    if decision.raw is not None:
        learnt_surely = decision.verdict is Learnt.YES
        sure = certainty_of(curve, target, decision.raw, learnt=learnt_surely)
        certainty = certainty_sentence(curve, target, decision.raw, sure)
        step = next_step(curve, decision.raw, sure)
    return Answer(
        model=curve.model,
        task=curve.task,
        train_size=curve.train_size,
        search=curve.search,
        metric=curve.metric,
        selection=curve.selection,
        target=target,
        layers=curve.layers,
        chance=curve.chance,
        full=curve.full,
        best=curve.best,
        operating_point=_operating_point(decision.raw, curve.full),
        corrected_operating_point=_operating_point(decision.corrected, curve.full),
        within_given=decision.within_given,
        every_larger_k_passes=None if decision.raw is None else not decision.failing_above,
        reason=decision.reason or sure.reason,
        sentence=answer_sentence(curve, decision),
        points=curve.points,
        warnings=(*answer_warnings(curve, decision), *curve.warnings),
        certified=sure.certified,
        corrected_certified=sure.corrected_certified,
        plausible=sure.plausible,
        contrasts=sure.contrasts,
        corrected_contrasts=sure.corrected_contrasts,
        certainty=certainty,
        next_step=step,
        probe=curve.probe,
    )


def _decide(curve: FreezeCurve, target: float) -> Decision:
    verdict = verdict_on(curve)
    reason = _refusal(curve, verdict)
    if reason is not None:
        return Decision(target=target, verdict=verdict, reason=reason)
    passes = passing(curve, target)
    raw = smallest(curve.measured, passes)
    # The full model keeps all of its own quality, and that is above 0 once it has learnt.
    assert raw is not None
    return Decision(
        target=target,
        verdict=verdict,
        reason=Reason.NOTHING_REACHES_TARGET if raw.depth.is_full_model else None,
        raw=raw,
        corrected=smallest(curve.measured, passing(curve, target, corrected=True)),
        failing_above=tuple(failing_above(curve.measured, passes, raw.fine_tuned_layers)),
        within_given=_within_given(curve, target),
    )


def _within_given(curve: FreezeCurve, target: float) -> WithinGiven | None:
    """The same question of the given rates alone, where some depth went beyond them."""
    given, full = curve.given_rates, curve.full
    if given is None or full is None:
        return None
    rates = [p.learning_rate for p in curve.measured if p.learning_rate is not None]
    full_quality = full.tried.quality_within_given
    if full_quality is None or all(given[0] <= rate <= given[1] for rate in rates):
        return None
    found = [
        WithinGiven(
            depth=point.depth,
            fine_tuned_layers=point.fine_tuned_layers,
            quality=quality,
            given_rates=given,
        )
        for point in curve.measured
        if (quality := point.tried.quality_within_given) is not None
        and reaches(quality, full_quality, target)
    ]
    return min(found, key=lambda one: one.fine_tuned_layers, default=None)


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
        Evidence(
            quality=full.quality,
            spread=spread,
            chance=curve.chance,
            examples=curve.examples,
            is_accuracy=curve.metric == "accuracy",
            example_variance=None if known is None else known.example_variance(full.depth),
        )
    )


def _refusal(curve: FreezeCurve, verdict: Learnt | None) -> Reason | None:
    if all(point.quality is None for point in curve.points):
        return Reason.NO_MEASUREMENTS
    if verdict is None:
        return Reason.NO_FULL_MODEL
    if verdict is Learnt.NO:
        return Reason.FULL_MODEL_DID_NOT_LEARN
    return Reason.NO_FROZEN_DEPTH if len(curve.measured) == 1 else None


def _operating_point(point: CurvePoint | None, full: CurvePoint | None) -> OperatingPoint | None:
    if point is None or full is None:
        return None
    return OperatingPoint(
        depth=point.depth,
        fine_tuned_layers=point.fine_tuned_layers,
        quality=point.quality,
        retention=point.retention,
        corrected_retention=point.corrected_retention,
        learning_rate=point.learning_rate,
        saves=Saves(
            trainable_parameters=saved(full.trainable_parameters, point.trainable_parameters),
            train_seconds=saved(full.train_seconds, point.train_seconds),
            peak_memory_mb=saved(full.peak_memory_mb, point.peak_memory_mb),
        ),
    )


def saved(of_full: float | None, of_point: float | None) -> float | None:
    """1 - point / full, None where either is not known; negative where the point costs more."""
    if of_full is None or of_point is None or of_full <= 0:
        return None
    return 1 - of_point / of_full
