"""The joint answer over several tasks: the smallest k at which all of them reach the target.

Pointwise: a depth counts only if every task passes at that same depth; the largest of the tasks'
own answers would be wrong where a curve is not monotone. It must not know where the curves came
from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from elsa_tune.analysis.answer import (
    ALL_TASKS,
    Answer,
    Contrast,
    OperatingPoint,
    Reason,
    Saves,
)
from elsa_tune.analysis.certainty import Certification, Step, certify, plausible, step_of
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.operating_point import saved, verdict_on
from elsa_tune.analysis.statistics.learnt import Learnt
from elsa_tune.analysis.target import failing_above, passing, smallest
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.analysis.wording.joint import answer_sentence, certainty_text, refusal_sentence
from elsa_tune.errors import ResultsError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.words import depths_text, listed, percent

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class TaskAnswer:
    """One task's curve with its own answer."""

    curve: FreezeCurve
    answer: Answer


def joint_answer(tasks: Sequence[TaskAnswer], excluded: Sequence[str] = ()) -> Answer:
    """Answer for all tasks (one or more, of one model) together; `excluded` is only told, not read.

    Raises ResultsError where the curves disagree on the number of layers.
    """
    first = tasks[0].curve
    counts = {task.curve.layers for task in tasks}
    if len(counts) > 1:
        raise ResultsError(
            f"{first.model} has {listed(str(count) for count in sorted(counts))} layers in "
            "different tasks; one model has one number of layers, so give different models "
            "different names"
        )
    without = [task for task in tasks if not task.answer.is_answered]
    common = _common_points(tasks)
    warnings = _warnings(tasks, excluded)
    answer = _unanswered(tasks, common, warnings)
    if without or all(point.depth.is_full_model for point in common):
        return replace(
            answer,
            reason=without[0].answer.reason if without else Reason.NO_COMMON_DEPTH,
            sentence=refusal_sentence([task.answer for task in without]),
            decided_by=tuple(task.curve.task for task in (without or tasks)),
        )
    target = answer.target
    passes = _pass_everywhere(tasks, target, corrected=False)
    raw = smallest(common, passes)
    assert raw is not None  # every task has an answer, so that every full model passes
    unknown = [task.curve.task for task in tasks if task.curve.chance is None]
    corrected = None
    if unknown:
        text = f"no corrected joint answer: chance is not known for {listed(unknown)}"
        warnings.append(AnswerWarning(WarningCode.NO_CORRECTED_JOINT, text))
    else:
        corrected = smallest(common, _pass_everywhere(tasks, target, corrected=True))
        if corrected is not None and corrected.depth != raw.depth:
            text = (
                f"raw and corrected answers disagree: k = {raw.fine_tuned_layers} keeps "
                f"{percent(raw.retention)} or more of the raw quality, but on one task only "
                f"{percent(raw.corrected_retention)} of what the full model gains over a constant "
                f"answer; corrected, k = {corrected.fine_tuned_layers}"
            )
            warnings.append(AnswerWarning(WarningCode.CORRECTED_DISAGREES, text))
    failing = failing_above(common, passes, raw.fine_tuned_layers)
    if failing:
        text = (
            "not every larger k reaches the target on every task: "
            f"{depths_text(point.depth for point in failing)} do not"
        )
        warnings.append(AnswerWarning(WarningCode.LARGER_K_MISSES_TARGET, text))
    decided_by = _decided_by(tasks, common, raw, target)
    own = [task.answer for task in tasks]
    reason = Reason.NOTHING_REACHES_TARGET if raw.depth.is_full_model else None
    found, may_be = _sure(tasks, common, target, corrected=False)
    for_chance = None
    if not unknown:
        for_chance = _sure(tasks, common, target, corrected=True)[0].certified
    if reason is None and found.certified is None:
        reasons = [answer.reason for answer in own if answer.certified is None]
        reason = Reason.TOO_FEW_SEEDS if found.lacks_seeds else next(iter(reasons), None)
    return replace(
        answer,
        operating_point=_operating_point(tasks, raw),
        corrected_operating_point=_operating_point(tasks, corrected),
        every_larger_k_passes=not failing,
        reason=reason,
        sentence=answer_sentence(own, raw, corrected, decided_by),
        warnings=tuple(warnings),
        decided_by=decided_by,
        certified=found.certified,
        corrected_certified=for_chance,
        plausible=may_be,
        certainty=certainty_text(
            own,
            certified=found.certified,
            corrected=for_chance,
            plausible=may_be,
            measured=len(common),
        ),
    )


def _sure(
    tasks: Sequence[TaskAnswer], common: Sequence[CurvePoint], target: float, *, corrected: bool
) -> tuple[Certification, tuple[int, ...] | None]:
    """What is certified, and the plausible numbers.

    A depth is certified where the test of every task rejects (intersection-union).
    """
    learnt = all(verdict_on(task.curve) is Learnt.YES for task in tasks)
    if any(point.rates > 1 for task in tasks for point in task.curve.measured):
        return Certification(certified=None, lacks_seeds=False), None
    steps = [_together(tasks, point, target, corrected=corrected) for point in common]
    bases = {task.curve.uncertainty.basis for task in tasks if task.curve.uncertainty is not None}
    full, *frozen = steps
    found = certify(frozen, full, learnt=learnt, basis=" or ".join(sorted(bases)))
    return found, plausible(frozen, full) if learnt else None


def _together(
    tasks: Sequence[TaskAnswer], point: CurvePoint, target: float, *, corrected: bool
) -> Step:
    """The least of the tasks' contrasts at a depth, with bounds that hold for the least.

    Its lower bounds are the least of theirs without any correction: too high a one needs that of
    the task which is truly the least. Its upper one may be missed in any task.
    """
    found = [
        step_of(
            task.curve,
            _at(task.curve, point.depth),
            target,
            corrected=corrected,
            tasks=len(tasks),
        ).contrast
        for task in tasks
    ]
    contrasts = [contrast for contrast in found if contrast is not None]
    least = None
    if len(contrasts) == len(tasks):
        least = Contrast(
            depth=point.depth,
            value=min(contrast.value for contrast in contrasts),
            low=min(contrast.low for contrast in contrasts),
            high=min(contrast.high for contrast in contrasts),
            lower=min(contrast.lower for contrast in contrasts),
        )
    return Step(depth=point.depth, fine_tuned_layers=point.fine_tuned_layers, contrast=least)


def _unanswered(
    tasks: Sequence[TaskAnswer], common: Sequence[CurvePoint], warnings: Sequence[AnswerWarning]
) -> Answer:
    curves = [task.curve for task in tasks]
    return Answer(
        model=curves[0].model,
        task=ALL_TASKS,
        train_size=_if_same([curve.train_size for curve in curves]),
        search=_if_same([curve.search for curve in curves]),
        metric=_if_same([curve.metric for curve in curves]),
        selection=_if_same([curve.selection for curve in curves]),
        target=tasks[0].answer.target,
        layers=curves[0].layers,
        chance=None,
        full=None,
        best=None,
        operating_point=None,
        corrected_operating_point=None,
        every_larger_k_passes=None,
        reason=None,
        sentence="",
        points=tuple(common),
        warnings=tuple(warnings),
    )


def _if_same(values: Sequence[_Value]) -> _Value | None:
    return values[0] if all(value == values[0] for value in values) else None


def _at(curve: FreezeCurve, depth: FreezeDepth) -> CurvePoint:
    return next(point for point in curve.measured if point.depth == depth)


def _common_points(tasks: Sequence[TaskAnswer]) -> list[CurvePoint]:
    """The depths measured for every task; retentions are those of the task that keeps least."""
    shared = set.intersection(*({p.depth for p in task.curve.measured} for task in tasks))
    common = []
    for depth in sorted(shared):
        points = [_at(task.curve, depth) for task in tasks]
        common.append(
            CurvePoint(
                depth=depth,
                fine_tuned_layers=points[0].fine_tuned_layers,
                seeds=min(point.seeds for point in points),
                failed_seeds=sum(point.failed_seeds for point in points),
                retention=_least([point.retention for point in points]),
                corrected_retention=_least([point.corrected_retention for point in points]),
                explored=sum(point.explored for point in points),
                stopped_early=sum(point.stopped_early for point in points),
            )
        )
    return common


def _least(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return min(known) if len(known) == len(values) else None


def _pass_everywhere(
    tasks: Sequence[TaskAnswer], target: float, *, corrected: bool
) -> frozenset[FreezeDepth]:
    return frozenset.intersection(
        *(passing(task.curve, target, corrected=corrected) for task in tasks)
    )


def _decided_by(
    tasks: Sequence[TaskAnswer], common: Sequence[CurvePoint], raw: CurvePoint, target: float
) -> tuple[str, ...]:
    """The tasks that fail at the next smaller k; () where there is none to fail at."""
    smaller = [p for p in common if p.fine_tuned_layers < raw.fine_tuned_layers]
    if not smaller:
        return ()
    below = max(smaller, key=lambda point: point.fine_tuned_layers)
    return tuple(
        task.curve.task for task in tasks if below.depth not in passing(task.curve, target)
    )


def _operating_point(
    tasks: Sequence[TaskAnswer], point: CurvePoint | None
) -> OperatingPoint | None:
    if point is None:
        return None
    fulls = [full for task in tasks if (full := task.curve.full) is not None]
    points = [_at(task.curve, point.depth) for task in tasks]
    return OperatingPoint(
        depth=point.depth,
        fine_tuned_layers=point.fine_tuned_layers,
        quality=None,
        retention=point.retention,
        corrected_retention=point.corrected_retention,
        learning_rate=None,
        # Parameters and seconds add up over tasks; memory must be there for the hungriest.
        saves=Saves(
            trainable_parameters=saved(
                _sum([full.trainable_parameters for full in fulls]),
                _sum([one.trainable_parameters for one in points]),
            ),
            train_seconds=saved(
                _sum([full.train_seconds for full in fulls]),
                _sum([one.train_seconds for one in points]),
            ),
            peak_memory_mb=saved(
                _most([full.peak_memory_mb for full in fulls]),
                _most([one.peak_memory_mb for one in points]),
            ),
        ),
    )


def _sum(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) if len(known) == len(values) else None


def _most(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


def _warnings(tasks: Sequence[TaskAnswer], excluded: Sequence[str]) -> list[AnswerWarning]:
    found = {}
    if len({task.curve.train_size for task in tasks}) > 1:
        text = "the tasks were trained on different numbers of examples"
        found[WarningCode.TRAIN_SIZES_DIFFER] = text
    if excluded:
        found[WarningCode.TASKS_EXCLUDED] = f"left out on request: {listed(excluded)}"
    everywhere = set.intersection(*({p.depth for p in task.curve.measured} for task in tasks))
    anywhere = set.union(*({p.depth for p in task.curve.measured} for task in tasks))
    if partly := sorted(anywhere - everywhere):
        text = f"not measured for every task and so left out: {depths_text(partly)}"
        found[WarningCode.NOT_MEASURED_EVERYWHERE] = text
    return [AnswerWarning(code, text) for code, text in found.items()]
