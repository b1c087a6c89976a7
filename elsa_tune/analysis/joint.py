"""The joint answer over several tasks: the smallest k at which all of them reach the target.

Pointwise: a depth counts only if every task passes at that same depth; the largest of the tasks'
own answers would be wrong where a curve is not monotone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from elsa_tune.analysis.answer import (
    ALL_TASKS,
    Answer,
    Certified,
    QualityClaimed,
    Reason,
    failing_above,
    passing,
    smallest,
)
from elsa_tune.analysis.certainty import (
    certified_in_order,
    certify,
    counts_too_few_units,
    plausible,
    tests_rest_on,
    why_tests_are_not_valid,
)
from elsa_tune.analysis.contrasts import contrast_of
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.curve_of_rows import saves
from elsa_tune.analysis.learnt import has_surely_learnt
from elsa_tune.analysis.recommendation import has_hardly_learnt, has_warning, leaked_rows
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.analysis.wording.certainty import plausible_text
from elsa_tune.errors import ResultsError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.policy import Claim, Policy, common_policy
from elsa_tune.words import (
    candidates_text,
    capitalized,
    is_part_plural,
    last_text,
    layers_text,
    listed,
    number_or_name,
    part_text,
    percent,
    target_text,
)


def joint_answer(tasks: Sequence[Answer], excluded: Sequence[str] = ()) -> Answer:
    """Answer for all tasks (one or more, of one model) together. excluded: names for a warning.

    Raises ResultsError where the curves disagree on the number of layers.
    """
    _check_layers(tasks)
    common = _common_points(tasks)
    answer = _without_decision(tasks, common, excluded)
    unanswered = [task for task in tasks if not task.is_answered]
    if unanswered:
        reasons = " ".join(f"{task.task}: {task.sentence}" for task in unanswered)
        return replace(
            answer,
            reason=unanswered[0].reason,
            sentence=f"No joint answer. {reasons}",
            decided_by=tuple(task.task for task in unanswered),
        )
    if all(point.candidate.is_reference for point in common):
        return replace(
            answer,
            reason=Reason.NO_COMMON_DEPTH,
            sentence="No joint answer: no depth with frozen layers was measured for every task.",
            decided_by=tuple(task.task for task in tasks),
        )
    answer = _decided(answer, tasks)
    raw = answer.operating_point
    assert raw is not None  # just decided
    return replace(
        answer,
        warnings=(*answer.warnings, *_on_answer(tasks, answer, raw)),
        sentence=" ".join(_sentences(tasks, answer, raw)),
        certainty=" ".join(_certainty(tasks, answer)),
    )


def _check_layers(tasks: Sequence[Answer]) -> None:
    counts = sorted({task.layers for task in tasks})
    if len(counts) > 1:
        layers = listed(str(count) for count in counts)
        raise ResultsError(
            f"{tasks[0].model} has {layers} layers in different tasks; one model has one number of "
            "layers, so give different models different names"
        )


def _without_decision(
    tasks: Sequence[Answer], common: Sequence[CurvePoint], excluded: Sequence[str]
) -> Answer:
    """Return the joint answer before anything is decided."""
    first = tasks[0]
    shared: dict[str, Any] = {}  # None where tasks differ
    for name in ("train_size", "search", "metric", "selection"):
        values = {getattr(task, name) for task in tasks}
        shared[name] = values.pop() if len(values) == 1 else None
    return Answer(
        model=first.model,
        task=ALL_TASKS,
        **shared,
        target=first.target,
        layers=first.layers,
        chance=None,
        examples=None,
        points=tuple(common),
        warnings=tuple(_on_tasks(tasks, common, excluded)),
        excluded=tuple(excluded),
        uncertainty=Uncertainty(runs={}, policy=common_policy(task.policy for task in tasks)),
    )


def _decided(answer: Answer, tasks: Sequence[Answer]) -> Answer:
    """Return the answer with its operating points, and how sure they are."""
    full = answer.points[0]
    common = [replace(point, saves=saves(full, point)) for point in answer.points]
    passes = _pass_everywhere(tasks, corrected=False)
    raw = smallest(common, passes)
    assert raw is not None  # every task has an answer, so that every full model passes
    claim = _claim(tasks, answer.policy)
    sure = _sure(tasks, common, answer.policy, corrected=False)
    corrected = _sure(tasks, common, answer.policy, corrected=True)
    claimed = corrected if claim is QualityClaimed.CORRECTED else sure
    reason = sure.reason
    if sure.certified is None and reason is None:
        reasons = [task.reason for task in tasks if task.certified is None]
        reason = reasons[0] if reasons else None
    if raw.candidate.is_reference:
        reason = Reason.NOTHING_REACHES_TARGET
    return replace(
        answer,
        points=tuple(common),
        operating_point=raw,
        # As `corrected_certified` None where the chance of a task is not known.
        corrected_operating_point=smallest(common, _pass_everywhere(tasks, corrected=True)),
        failing_above=failing_above(common, passes, raw.candidate),
        reason=reason,
        decided_by=_deciding(tasks, common, raw),
        certified=sure.certified,
        corrected_certified=corrected.certified,
        claim=claim,
        plausible_candidates=claimed.plausible_candidates,
        hardly_learnt=tuple(task.task for task in tasks if has_hardly_learnt(task)),
    )


def _claim(tasks: Sequence[Answer], policy: Policy) -> QualityClaimed | None:
    """Return of which quality the one claim is; None where both are claimed, or neither can be."""
    if policy.claim is Claim.BOTH or any(task.chance is None for task in tasks):
        return None
    if any(task.chance for task in tasks):
        return QualityClaimed.CORRECTED
    return QualityClaimed.RAW


def _deciding(
    tasks: Sequence[Answer], common: Sequence[CurvePoint], raw: CurvePoint
) -> tuple[str, ...]:
    """Return the tasks that fail at the next cheaper depth; none where there is none to fail at."""
    cheaper = [point.candidate for point in common if point.candidate.rank > raw.candidate.rank]
    if not cheaper:
        return ()
    next_cheaper = cheaper[0]
    return tuple(task.task for task in tasks if next_cheaper not in passing(task, task.target))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sure:
    """What is sure for all tasks together."""

    certified: Certified | None = None  # by the tests of all tasks
    reason: Reason | None = None  # why nothing is certified
    plausible_candidates: tuple[Candidate, ...] | None = None  # which may be the true answer


def _sure(
    tasks: Sequence[Answer], common: Sequence[CurvePoint], policy: Policy, *, corrected: bool
) -> _Sure:
    """Return what is certified, or why nothing is, and the plausible depths.

    Lower bounds are the least of the tasks' without any correction: too high a one needs that of
    the task which is truly the least. The upper one may be missed in any task.
    """
    if not all(_has_valid_tests(task) for task in tasks):
        return _Sure()
    least_contrasts: dict[Candidate, Interval] = {}
    for point in common:
        contrasts: list[Interval] = []
        for task in tasks:
            contrast = contrast_of(
                task, point.candidate, task.target, corrected=corrected, tasks=len(tasks)
            )
            if contrast is not None:
                contrasts.append(contrast)
        if len(contrasts) == len(tasks):
            least_contrasts[point.candidate] = _least(contrasts)
    learnt = all(has_surely_learnt(task) for task in tasks)
    bases = {task.uncertainty.basis for task in tasks}
    certified, reason = certify(
        common,
        tested=least_contrasts,
        certain=_certain_everywhere(tasks, corrected=corrected),
        full_model_learnt=learnt,
        basis=" or ".join(sorted(bases)),
        policy=policy,
    )
    candidates = None
    if learnt:
        reached = _certain_everywhere(tasks, corrected=corrected, two_sided=True)
        candidates = plausible(common, least_contrasts, policy, reached)
    return _Sure(certified=certified, reason=reason, plausible_candidates=candidates)


def _has_valid_tests(task: Answer) -> bool:
    """Whether what a task's depths are tested by may certify something."""
    if task.looks is not None and not task.looks.are_planned:
        return False
    if counts_too_few_units(task, tests_rest_on(task)):
        return False
    return why_tests_are_not_valid(task, task.measured) is None


def _certain_everywhere(
    tasks: Sequence[Answer], *, corrected: bool, two_sided: bool = False
) -> frozenset[Candidate]:
    """Return the depths that every task's own tests certify, each in its own order.

    two_sided: at 97.5 % instead of 95 %. A false claim for all tasks is false for one of them, at a
    depth that this one's own tests certified: which they do with at most 5 %.
    """
    certain = []
    for task in tasks:
        depths = certified_in_order(task, corrected=corrected, two_sided=two_sided)
        certain.append(frozenset(depths))
    return frozenset.intersection(*certain)


def _least(contrasts: Sequence[Interval]) -> Interval:
    """Return the least of the tasks' values and ends, each for itself."""
    return Interval(
        value=min(contrast.value for contrast in contrasts),
        low=min(contrast.low for contrast in contrasts),
        high=min(contrast.high for contrast in contrasts),
        lower=min(contrast.lower for contrast in contrasts),
    )


def _common_points(tasks: Sequence[Answer]) -> list[CurvePoint]:
    """Return the depths measured for every task, as `_joined` makes them of the tasks' points."""
    points_of: dict[Candidate, list[CurvePoint]] = {}
    for task in tasks:
        for point in task.measured:
            points_of.setdefault(point.candidate, []).append(point)
    common: list[CurvePoint] = []
    for candidate in sorted(points_of):
        if len(points_of[candidate]) == len(tasks):
            common.append(_joined(points_of[candidate]))
    return common


def _joined(points: Sequence[CurvePoint]) -> CurvePoint:
    """Return one depth of several tasks; retentions are those of the task that keeps least."""
    return CurvePoint(
        candidate=points[0].candidate,
        fine_tuned_layers=points[0].fine_tuned_layers,
        seeds=min(point.seeds for point in points),
        failed_seeds=sum(point.failed_seeds for point in points),
        retention=_of_all(min, [point.retention for point in points]),
        corrected_retention=_of_all(min, [point.corrected_retention for point in points]),
        exploring_trials=sum(point.exploring_trials for point in points),
        stopped_early=sum(point.stopped_early for point in points),
        # Parameters and seconds add up over tasks; memory must be there for the hungriest.
        trainable_parameters=_of_all(math.fsum, [point.trainable_parameters for point in points]),
        train_seconds=_of_all(math.fsum, [point.train_seconds for point in points]),
        peak_memory_mb=_of_all(max, [point.peak_memory_mb for point in points]),
    )


def _of_all(
    reduce: Callable[[Sequence[float]], float], values: Sequence[float | None]
) -> float | None:
    """Reduce the values to one; None where one of them is not known."""
    numbers = [value for value in values if value is not None]
    return reduce(numbers) if len(numbers) == len(values) else None


def _pass_everywhere(tasks: Sequence[Answer], *, corrected: bool) -> frozenset[Candidate]:
    """Return the depths that reach the target on every task."""
    passes = [passing(task, task.target, corrected=corrected) for task in tasks]
    return frozenset.intersection(*passes)


def _on_tasks(
    tasks: Sequence[Answer], common: Sequence[CurvePoint], excluded: Sequence[str]
) -> Iterator[AnswerWarning]:
    train_sizes = {task.train_size for task in tasks}
    if len(train_sizes) > 1:
        text = "the tasks were trained on different numbers of examples"
        yield AnswerWarning(WarningCode.TRAIN_SIZES_DIFFER, text)
    leaking = [task.task for task in tasks if leaked_rows(task) is not None]
    if leaking:
        text = f"many evaluation rows are also in training on {listed(leaking)}"
        yield AnswerWarning(WarningCode.LEAKED_ROWS, text)
    if excluded:
        yield AnswerWarning(WarningCode.TASKS_EXCLUDED, f"left out on request: {listed(excluded)}")
    measured_somewhere: set[Candidate] = set()
    for task in tasks:
        measured_somewhere.update(point.candidate for point in task.measured)
    left_out = measured_somewhere - {point.candidate for point in common}
    if left_out:
        names = candidates_text(sorted(left_out), tasks[0].layers)
        text = f"not measured for every task and so left out: {names}"
        yield AnswerWarning(WarningCode.NOT_MEASURED_EVERYWHERE, text)


def _on_answer(tasks: Sequence[Answer], joint: Answer, raw: CurvePoint) -> Iterator[AnswerWarning]:
    corrected = joint.corrected_operating_point
    chance_unknown = [task.task for task in tasks if task.chance is None]
    if chance_unknown:
        text = f"no corrected joint answer: chance is not known for {listed(chance_unknown)}"
        yield AnswerWarning(WarningCode.NO_CORRECTED_JOINT, text)
    if corrected is not None and corrected.candidate != raw.candidate:
        raw_part = last_text(raw.candidate, joint.layers)
        corrected_part = part_text(corrected.candidate, joint.layers)
        text = (
            f"raw and corrected answers disagree: fine-tuning {raw_part} keeps "
            f"{percent(raw.retention)} or more of the raw quality, but on one task only "
            f"{percent(raw.corrected_retention)} of what the full model gains over a constant "
            f"answer; corrected, {corrected_part}"
        )
        yield AnswerWarning(WarningCode.CORRECTED_DISAGREES, text)
    constant = WarningCode.CONSTANT_REACHES_TARGET
    by_guessing = [task.task for task in tasks if has_warning(task, constant)]
    if by_guessing:
        text = f"the target is reached by guessing on {listed(by_guessing)}"
        yield AnswerWarning(constant, text)
    if joint.failing_above:
        missing = candidates_text([point.candidate for point in joint.failing_above], joint.layers)
        text = (
            f"more layers are not always better: fine-tuning {missing} misses the target on some "
            "task"
        )
        yield AnswerWarning(WarningCode.LARGER_K_MISSES_TARGET, text)


def _sentences(tasks: Sequence[Answer], joint: Answer, raw: CurvePoint) -> Iterator[str]:
    corrected = joint.corrected_operating_point
    each = f"on each of {listed(task.task for task in tasks)}"
    all_layers = f"all {layers_text(joint.layers)}"
    if raw.candidate.is_reference:
        keep = f"keep {target_text(joint.target)} {each}"
        yield f"{all_layers.capitalize()} must be fine-tuned to {keep}."
    else:
        verb = "keep" if is_part_plural(raw.candidate, joint.layers) else "keeps"
        part = capitalized(part_text(raw.candidate, joint.layers))
        yield f"{part} {verb} {percent(raw.retention)} or more {each}."
    if joint.decided_by:
        yield f"With fewer layers {listed(joint.decided_by)} would fall below."
    if corrected is not None and corrected.candidate == raw.candidate:
        yield "Corrected for chance the answer is the same."
    elif corrected is not None:
        needed = all_layers
        verb = "are"
        if not corrected.candidate.is_reference:
            needed = part_text(corrected.candidate, joint.layers)
            verb = "are" if is_part_plural(corrected.candidate, joint.layers) else "is"
        yield f"Corrected for chance {needed} {verb} needed."


def _certainty(tasks: Sequence[Answer], joint: Answer) -> Iterator[str]:
    certified = joint.claimed
    corrected = joint.corrected_certified
    if certified is None:
        uncertified = [task.task for task in tasks if task.claimed is None]
        why = ""
        if uncertified:
            verb = "has" if len(uncertified) == 1 else "have"
            why = f": {listed(uncertified)} alone {verb} nothing certified"
        yield f"Nothing is certified for all tasks together{why}."
    elif certified.is_full_model:
        raw = joint.certified
        if raw is None or raw.is_full_model:
            yield "No depth with frozen layers is certain for all tasks together."
        else:
            part = part_text(raw.candidate, joint.layers)
            yield (
                "Corrected for chance no depth with frozen layers is certain for all tasks "
                f"together. Certified of the scores alone: {part}."
            )
    else:
        text = part_text(certified.candidate, joint.layers)
        if joint.claims_corrected:
            text = f"{text}, corrected for chance"
            if not any(task.score_is_stronger for task in tasks):
                text = f"{text}, and so of the scores themselves"
        elif corrected is not None and corrected.candidate != certified.candidate:
            fewest = number_or_name(corrected.candidate, joint.layers)
            if corrected.is_full_model:
                fewest = "none"
            text = f"{text}; corrected for chance {fewest}"
        yield f"Certified for all tasks together: {text}."
        yield "That holds on the conditions named with each task."
    if joint.plausible_candidates is not None:
        yield plausible_text(joint, measured=len(joint.points))
