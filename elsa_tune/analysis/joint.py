"""The joint answer over several tasks: the smallest k at which all of them reach the target.

Pointwise: a depth counts only if every task passes at that same depth; the largest of the tasks'
own answers would be wrong where a curve is not monotone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from elsa_tune.analysis.answer import ALL_TASKS, Answer, Contrast, Reason
from elsa_tune.analysis.certainty import Certification, Step, certify, plausible, step_of
from elsa_tune.analysis.curve import CurvePoint, saves
from elsa_tune.analysis.operating_point import verdict_on
from elsa_tune.analysis.statistics.learnt import Learnt
from elsa_tune.analysis.target import failing_above, passing, smallest
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.analysis.wording.joint import answer_sentence, certainty_text, refusal_sentence
from elsa_tune.errors import ResultsError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.words import depths_text, listed, percent

_Value = TypeVar("_Value")


def joint_answer(tasks: Sequence[Answer], excluded: Sequence[str] = ()) -> Answer:
    """Answer for all tasks (one or more, of one model) together. excluded: names for a warning.

    Raises ResultsError where the curves disagree on the number of layers.
    """
    first = tasks[0]
    counts = {task.layers for task in tasks}
    if len(counts) > 1:
        raise ResultsError(
            f"{first.model} has {listed(str(count) for count in sorted(counts))} layers in "
            "different tasks; one model has one number of layers, so give different models "
            "different names"
        )
    without = [task for task in tasks if not task.is_answered]
    common = _common_points(tasks)
    warnings = _warnings(tasks, common, excluded)
    answer = Answer(
        model=first.model,
        task=ALL_TASKS,
        train_size=_if_same(task.train_size for task in tasks),
        search=_if_same(task.search for task in tasks),
        metric=_if_same(task.metric for task in tasks),
        selection=_if_same(task.selection for task in tasks),
        target=first.target,
        layers=first.layers,
        chance=None,
        examples=None,
        points=tuple(common),
        warnings=tuple(warnings),
    )
    if without or all(point.depth.is_full_model for point in common):
        return replace(
            answer,
            reason=without[0].reason if without else Reason.NO_COMMON_DEPTH,
            sentence=refusal_sentence(without),
            decided_by=tuple(task.task for task in (without or tasks)),
        )
    common = [replace(point, saves=saves(common[0], point)) for point in common]
    passes = _pass_everywhere(tasks, corrected=False)
    raw = smallest(common, passes)
    assert raw is not None  # every task has an answer, so that every full model passes
    found, plausible_numbers = _sure(tasks, common, corrected=False)
    corrected = for_chance = None
    if unknown := [task.task for task in tasks if task.chance is None]:
        text = f"no corrected joint answer: chance is not known for {listed(unknown)}"
        warnings.append(AnswerWarning(WarningCode.NO_CORRECTED_JOINT, text))
    else:
        corrected = smallest(common, _pass_everywhere(tasks, corrected=True))
        for_chance = _sure(tasks, common, corrected=True)[0].certified
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
    reason = Reason.NOTHING_REACHES_TARGET if raw.depth.is_full_model else None
    if reason is None and found.certified is None:
        reasons = [task.reason for task in tasks if task.certified is None]
        reason = Reason.TOO_FEW_SEEDS if found.lacks_seeds else next(iter(reasons), None)
    answer = replace(
        answer,
        points=tuple(common),
        operating_point=raw,
        corrected_operating_point=corrected,
        failing_above=failing,
        reason=reason,
        warnings=tuple(warnings),
        decided_by=_decided_by(tasks, common, raw),
        certified=found.certified,
        corrected_certified=for_chance,
        plausible=plausible_numbers,
    )
    return replace(
        answer, sentence=answer_sentence(tasks, answer), certainty=certainty_text(tasks, answer)
    )


def _sure(
    tasks: Sequence[Answer], common: Sequence[CurvePoint], *, corrected: bool
) -> tuple[Certification, tuple[int, ...] | None]:
    """What is certified (where the test of every task rejects), and the plausible numbers."""
    learnt = all(verdict_on(task) is Learnt.YES for task in tasks)
    if any(point.rates > 1 for task in tasks for point in task.measured):
        return Certification(certified=None, lacks_seeds=False), None
    full, *frozen = (_together(tasks, point, corrected=corrected) for point in common)
    bases = {task.uncertainty.basis for task in tasks if task.uncertainty is not None}
    found = certify(frozen, full, learnt=learnt, basis=" or ".join(sorted(bases)))
    return found, plausible(frozen, full) if learnt else None


def _together(tasks: Sequence[Answer], point: CurvePoint, *, corrected: bool) -> Step:
    """The least of the tasks' contrasts at a depth, with bounds that hold for the least.

    Its lower bounds are the least of theirs without any correction: too high a one needs that of
    the task which is truly the least. Its upper one may be missed in any task.
    """
    steps = [
        step_of(task, own, task.target, corrected=corrected, tasks=len(tasks))
        for task, own in zip(tasks, _at(tasks, point.depth), strict=True)
    ]
    contrasts = [step.contrast for step in steps if step.contrast is not None]
    least = None
    if len(contrasts) == len(tasks):
        names = ("value", "low", "high", "lower")
        ends = {name: min(getattr(contrast, name) for contrast in contrasts) for name in names}
        least = Contrast(depth=point.depth, **ends)
    return Step(depth=point.depth, fine_tuned_layers=point.fine_tuned_layers, contrast=least)


def _if_same(values: Iterable[_Value]) -> _Value | None:
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _at(tasks: Sequence[Answer], depth: FreezeDepth) -> list[CurvePoint]:
    """Each task's point at a depth that was measured for all of them."""
    return [next(p for p in task.measured if p.depth == depth) for task in tasks]


def _common_points(tasks: Sequence[Answer]) -> list[CurvePoint]:
    """The depths measured for every task; retentions are those of the task that keeps least."""
    shared = set.intersection(*({p.depth for p in task.measured} for task in tasks))
    common = []
    for depth in sorted(shared):
        points = _at(tasks, depth)
        common.append(
            CurvePoint(
                depth=depth,
                fine_tuned_layers=points[0].fine_tuned_layers,
                seeds=min(point.seeds for point in points),
                failed_seeds=sum(point.failed_seeds for point in points),
                retention=_of_all(min, [point.retention for point in points]),
                corrected_retention=_of_all(min, [point.corrected_retention for point in points]),
                explored=sum(point.explored for point in points),
                stopped_early=sum(point.stopped_early for point in points),
                # Parameters and seconds add up over tasks; memory must be there for the hungriest.
                trainable_parameters=_of_all(math.fsum, [p.trainable_parameters for p in points]),
                train_seconds=_of_all(math.fsum, [p.train_seconds for p in points]),
                peak_memory_mb=_of_all(max, [p.peak_memory_mb for p in points]),
            )
        )
    return common


def _of_all(
    reduce: Callable[[Sequence[float]], float], values: Sequence[float | None]
) -> float | None:
    """None where one of the values is not known."""
    known = [value for value in values if value is not None]
    return reduce(known) if len(known) == len(values) else None


def _pass_everywhere(tasks: Sequence[Answer], *, corrected: bool) -> frozenset[FreezeDepth]:
    passes = (passing(task, task.target, corrected=corrected) for task in tasks)
    return frozenset.intersection(*passes)


def _decided_by(
    tasks: Sequence[Answer], common: Sequence[CurvePoint], raw: CurvePoint
) -> tuple[str, ...]:
    """The tasks that fail at the next smaller k; () where there is none to fail at."""
    below = next((p for p in common if p.fine_tuned_layers < raw.fine_tuned_layers), None)
    if below is None:
        return ()
    return tuple(task.task for task in tasks if below.depth not in passing(task, task.target))


def _warnings(
    tasks: Sequence[Answer], common: Sequence[CurvePoint], excluded: Sequence[str]
) -> list[AnswerWarning]:
    found = {}
    if len({task.train_size for task in tasks}) > 1:
        text = "the tasks were trained on different numbers of examples"
        found[WarningCode.TRAIN_SIZES_DIFFER] = text
    if excluded:
        found[WarningCode.TASKS_EXCLUDED] = f"left out on request: {listed(excluded)}"
    anywhere = {point.depth for task in tasks for point in task.measured}
    if partly := sorted(anywhere - {point.depth for point in common}):
        text = f"not measured for every task and so left out: {depths_text(partly)}"
        found[WarningCode.NOT_MEASURED_EVERYWHERE] = text
    return [AnswerWarning(code, text) for code, text in found.items()]
