"""The joint answer over several tasks: the smallest k at which all of them reach the target.

Pointwise: a depth counts only if every task passes at that same depth; the largest of the tasks'
own answers would be wrong where a curve is not monotone.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from elsa_tune.analysis.answer import (
    ALL_TASKS,
    Answer,
    Certified,
    Reason,
    failing_above,
    passing,
    smallest,
)
from elsa_tune.analysis.certainty import certify, contrast_of, plausible, verdict_on
from elsa_tune.analysis.curve import CurvePoint, saves
from elsa_tune.analysis.recommendation import leaked_rows
from elsa_tune.analysis.statistics.uncertainty import Interval, Learnt, Uncertainty
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.analysis.wording.certainty import plausible_text
from elsa_tune.errors import ResultsError
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.policy import Policy, common_policy
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
    without = [task for task in tasks if not task.is_answered]
    if without:
        reasons = " ".join(f"{task.task}: {task.sentence}" for task in without)
        return replace(
            answer,
            reason=without[0].reason,
            sentence=f"No joint answer. {reasons}",
            decided_by=tuple(task.task for task in without),
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
    counts = {task.layers for task in tasks}
    if len(counts) > 1:
        raise ResultsError(
            f"{tasks[0].model} has {listed(str(count) for count in sorted(counts))} layers in "
            "different tasks; one model has one number of layers, so give different models "
            "different names"
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
        uncertainty=Uncertainty(runs={}, policy=common_policy(task.policy for task in tasks)),
    )


def _decided(answer: Answer, tasks: Sequence[Answer]) -> Answer:
    """Return the answer with its operating points, and how sure they are."""
    full = answer.points[0]
    common = [replace(point, saves=saves(full, point)) for point in answer.points]
    passes = _pass_everywhere(tasks, corrected=False)
    raw = smallest(common, passes)
    assert raw is not None  # every task has an answer, so that every full model passes
    certified, reason, candidates = _sure(tasks, common, answer.policy, corrected=False)
    if certified is None and reason is None:
        reasons = [task.reason for task in tasks if task.certified is None]
        reason = reasons[0] if reasons else None
    for_chance, _, _ = _sure(tasks, common, answer.policy, corrected=True)
    return replace(
        answer,
        points=tuple(common),
        operating_point=raw,
        # As `for_chance` None where the chance of a task is not known.
        corrected_operating_point=smallest(common, _pass_everywhere(tasks, corrected=True)),
        failing_above=failing_above(common, passes, raw.candidate),
        reason=Reason.NOTHING_REACHES_TARGET if raw.candidate.is_reference else reason,
        decided_by=_deciding(tasks, common, raw),
        certified=certified,
        corrected_certified=for_chance,
        plausible_candidates=candidates,
        hardly_learnt=tuple(task.task for task in tasks if _is_kept_by_a_constant(task)),
    )


def _deciding(
    tasks: Sequence[Answer], common: Sequence[CurvePoint], raw: CurvePoint
) -> tuple[str, ...]:
    """Return the tasks that fail at the next cheaper depth; none where there is none to fail at."""
    cheaper = [point.candidate for point in common if point.candidate.rank > raw.candidate.rank]
    if not cheaper:
        return ()
    return tuple(task.task for task in tasks if cheaper[0] not in passing(task, task.target))


def _is_kept_by_a_constant(task: Answer) -> bool:
    """Whether a constant answer reaches the target on a task."""
    codes = [warning.code for warning in task.warnings]
    return WarningCode.CONSTANT_REACHES_TARGET in codes


def _sure(
    tasks: Sequence[Answer], common: Sequence[CurvePoint], policy: Policy, *, corrected: bool
) -> tuple[Certified | None, Reason | None, tuple[Candidate, ...] | None]:
    """Return what is certified (by the tests of all tasks), why not, and the plausible depths.

    Lower bounds are the least of the tasks' without any correction: too high a one needs that of
    the task which is truly the least. The upper one may be missed in any task.
    """
    if any(point.rates > 1 for task in tasks for point in task.measured):
        return None, None, None
    if any(task.looks is not None and not task.looks.are_planned for task in tasks):
        return None, None, None
    least = {}
    for candidate in [point.candidate for point in common]:
        contrasts = (
            contrast_of(task, candidate, task.target, corrected=corrected, tasks=len(tasks))
            for task in tasks
        )
        known = [contrast for contrast in contrasts if contrast is not None]
        if len(known) == len(tasks):
            least[candidate] = _least(known)
    learnt = all(verdict_on(task) is Learnt.YES for task in tasks)
    bases = {task.uncertainty.basis for task in tasks}
    basis = " or ".join(sorted(bases))
    certified, reason = certify(common, least, learnt=learnt, basis=basis, policy=policy)
    return certified, reason, plausible(common, least, policy) if learnt else None


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
    of_tasks = [{point.candidate: point for point in task.measured} for task in tasks]
    shared = set.intersection(*(set(points) for points in of_tasks))
    return [_joined([points[candidate] for points in of_tasks]) for candidate in sorted(shared)]


def _joined(points: Sequence[CurvePoint]) -> CurvePoint:
    """Return one depth of several tasks; retentions are those of the task that keeps least."""
    return CurvePoint(
        candidate=points[0].candidate,
        fine_tuned_layers=points[0].fine_tuned_layers,
        seeds=min(point.seeds for point in points),
        failed_seeds=sum(point.failed_seeds for point in points),
        retention=_of_all(min, [point.retention for point in points]),
        corrected_retention=_of_all(min, [point.corrected_retention for point in points]),
        explored=sum(point.explored for point in points),
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
    known = [value for value in values if value is not None]
    return reduce(known) if len(known) == len(values) else None


def _pass_everywhere(tasks: Sequence[Answer], *, corrected: bool) -> frozenset[Candidate]:
    passes = (passing(task, task.target, corrected=corrected) for task in tasks)
    return frozenset.intersection(*passes)


def _on_tasks(
    tasks: Sequence[Answer], common: Sequence[CurvePoint], excluded: Sequence[str]
) -> Iterator[AnswerWarning]:
    if len({task.train_size for task in tasks}) > 1:
        text = "the tasks were trained on different numbers of examples"
        yield AnswerWarning(WarningCode.TRAIN_SIZES_DIFFER, text)
    if leaking := [task.task for task in tasks if leaked_rows(task) is not None]:
        text = f"many evaluation rows are also in training on {listed(leaking)}"
        yield AnswerWarning(WarningCode.LEAKED_ROWS, text)
    if excluded:
        yield AnswerWarning(WarningCode.TASKS_EXCLUDED, f"left out on request: {listed(excluded)}")
    anywhere = {point.candidate for task in tasks for point in task.measured}
    if partly := sorted(anywhere - {point.candidate for point in common}):
        names = candidates_text(partly, tasks[0].layers)
        text = f"not measured for every task and so left out: {names}"
        yield AnswerWarning(WarningCode.NOT_MEASURED_EVERYWHERE, text)


def _on_answer(tasks: Sequence[Answer], joint: Answer, raw: CurvePoint) -> Iterator[AnswerWarning]:
    corrected = joint.corrected_operating_point
    if unknown := [task.task for task in tasks if task.chance is None]:
        text = f"no corrected joint answer: chance is not known for {listed(unknown)}"
        yield AnswerWarning(WarningCode.NO_CORRECTED_JOINT, text)
    if corrected is not None and corrected.candidate != raw.candidate:
        yield AnswerWarning(
            WarningCode.CORRECTED_DISAGREES,
            "raw and corrected answers disagree: fine-tuning "
            f"{last_text(raw.candidate, joint.layers)} keeps {percent(raw.retention)} or more of "
            f"the raw quality, but on one task only {percent(raw.corrected_retention)} of what the "
            "full model gains over a constant answer; corrected, "
            f"{part_text(corrected.candidate, joint.layers)}",
        )
    if joint.hardly_learnt:
        text = f"the target is reached by guessing on {listed(joint.hardly_learnt)}"
        yield AnswerWarning(WarningCode.CONSTANT_REACHES_TARGET, text)
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
        needed = part_text(corrected.candidate, joint.layers)
        needed = all_layers if corrected.candidate.is_reference else needed
        yield f"Corrected for chance {needed} are needed."


def _certainty(tasks: Sequence[Answer], joint: Answer) -> Iterator[str]:
    certified = joint.certified
    corrected = joint.corrected_certified
    if certified is None:
        why = [task.task for task in tasks if task.certified is None]
        alone = f": {listed(why)} alone have nothing certified" if why else ""
        yield f"Nothing is certified for all tasks together{alone}."
    elif certified.candidate.is_reference:
        yield "No depth with frozen layers is certain for all tasks together."
    else:
        text = part_text(certified.candidate, joint.layers)
        if corrected is not None and corrected.candidate != certified.candidate:
            fewest = number_or_name(corrected.candidate, joint.layers)
            if corrected.candidate.is_reference:
                fewest = "none"
            text = f"{text}; corrected for chance {fewest}"
        yield f"Certified for all tasks together: {text}."
        yield "That holds on the conditions named with each task."
    if joint.plausible_candidates is not None:
        yield plausible_text(joint, measured=len(joint.points))
