"""Makes answers of rows: one per model, task and training size, then one over a model's tasks."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields, replace

from elsa_tune.analysis.answer import (
    DEFAULT_TARGET,
    Answer,
    Reason,
    check_target,
    failing_above,
    passing,
    reaches,
    smallest,
)
from elsa_tune.analysis.certainty import with_certainty
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.curve_of_rows import freeze_curve
from elsa_tune.analysis.evidence import Evidence
from elsa_tune.analysis.groups import comparison_groups, require_one_each
from elsa_tune.analysis.joint import joint_answer
from elsa_tune.analysis.learnt import has_surely_learnt, verdict_on
from elsa_tune.analysis.recommendation import recommend
from elsa_tune.analysis.statistics.learning import Learnt
from elsa_tune.analysis.wording.answer import answer_sentence, answer_warnings, in_short
from elsa_tune.analysis.wording.certainty import certainty_sentences, next_step
from elsa_tune.analysis.wording.first_lines import first_lines
from elsa_tune.errors import UnknownNameError, UsageError
from elsa_tune.specs.result_row import ResultRow


def freeze_curves(
    rows: Iterable[ResultRow],
    evidence: Evidence | None = None,
    *,
    train_sizes_apart: bool = True,
    target: float = DEFAULT_TARGET,
) -> list[FreezeCurve]:
    """Draw one curve per (model, task, train_size), in the order of first appearance.

    Rows of candidates that are not ranked are left out: `comparison.py` reads them. evidence: where
    the trials' predictions are found, if they are. train_sizes_apart: several training sizes of one
    model and task are curves of their own; otherwise they raise like any other unlike results.
    Raises ResultsError, listing what matches and what each says at the target, where several groups
    of results that must not be averaged stand for one curve.
    """
    ranked = [row for row in rows if row.candidate.is_ranked]
    groups = comparison_groups(ranked)
    require_one_each(
        groups,
        lambda group: in_short(answer_curve(freeze_curve(group), target)),
        train_sizes_apart=train_sizes_apart,
    )
    return [freeze_curve(group, evidence) for group in groups]


def complete_curves(
    rows: Iterable[ResultRow], evidence: Evidence | None = None
) -> list[FreezeCurve]:
    """Draw the same curves with every candidate, also those that are not ranked.

    Their points tell what was measured of each; nothing is decided by them.
    """
    return [freeze_curve(group, evidence) for group in comparison_groups(rows)]


def answer_curves(
    curves: Sequence[FreezeCurve], target: float = DEFAULT_TARGET, exclude_tasks: Sequence[str] = ()
) -> list[Answer]:
    """Answer each curve; a model with several tasks gets a joint answer (task `*`) after its own.

    exclude_tasks: left out of the joint answers, not of the list. Raises UsageError for a target
    outside (0, 1] or when every task is excluded, UnknownNameError for one that is not there.
    """
    check_target(target)
    _check_excluded(exclude_tasks, {curve.task for curve in curves})
    by_model: dict[str, list[Answer]] = {}
    for curve in curves:
        by_model.setdefault(curve.model, []).append(answer_curve(curve, target))
    answers: list[Answer] = []
    for tasks in by_model.values():
        answers += tasks
        for together in _joined(tasks):
            included = [answer for answer in together if answer.task not in exclude_tasks]
            excluded = [answer.task for answer in together if answer.task in exclude_tasks]
            if len(together) > 1 and included:
                joint = joint_answer(included, excluded)
                answers.append(_advised(joint))
    return answers


def _check_excluded(exclude_tasks: Sequence[str], tasks: Collection[str]) -> None:
    """Raise UnknownNameError for a task that is not there, UsageError where none is left."""
    for name in exclude_tasks:
        if name not in tasks:
            raise UnknownNameError.among("task", name, tasks)
    if tasks and set(tasks) <= set(exclude_tasks):
        raise UsageError("every task is excluded; leave at least one in")


def _joined(answers: Sequence[Answer]) -> list[list[Answer]]:
    """Return which of a model's answers are joined.

    All tasks are, or, where a task has several training sizes, those of a size.
    """
    names = {answer.task for answer in answers}
    if len(names) == len(answers):
        return [list(answers)] if answers else []
    by_size: dict[int | None, list[Answer]] = {}
    for answer in answers:
        by_size.setdefault(answer.train_size, []).append(answer)
    return list(by_size.values())


def answer_rows(
    rows: Iterable[ResultRow], target: float = DEFAULT_TARGET, evidence: Evidence | None = None
) -> list[Answer]:
    """Answer rows in one step; errors as in `freeze_curves` and `answer_curves`."""
    return answer_curves(freeze_curves(rows, evidence), target)


def answer_curve(curve: FreezeCurve, target: float = DEFAULT_TARGET) -> Answer:
    """Answer from one freeze curve. Raises UsageError for a target outside (0, 1]."""
    verdict = verdict_on(curve)
    curve_fields = {field.name: getattr(curve, field.name) for field in fields(curve)}
    answer = Answer(**curve_fields, target=check_target(target), reason=_refusal(curve, verdict))
    if answer.reason is None:
        answer = _decided(answer, full_model_learnt=has_surely_learnt(curve))
    answer = replace(
        answer,
        sentence=answer_sentence(answer),
        warnings=(*answer_warnings(answer, verdict), *curve.warnings),
    )
    return _advised(answer)


def _advised(answer: Answer) -> Answer:
    """Return the complete answer: with what it recommends, and that in words."""
    advised = replace(answer, recommendation=recommend(answer))
    return replace(advised, first_lines=first_lines(advised))


def _decided(answer: Answer, *, full_model_learnt: bool) -> Answer:
    """Return the answer with its operating points, and how sure they are.

    full_model_learnt: it was found above chance at 95 %.
    """
    passes = passing(answer, answer.target)
    raw = smallest(answer.measured, passes)
    # The full model keeps all of its own quality, and that is above 0: see `_refusal`.
    assert raw is not None
    corrected = passing(answer, answer.target, corrected=True)
    answer = replace(
        answer,
        operating_point=raw,
        corrected_operating_point=smallest(answer.measured, corrected),
        failing_above=failing_above(answer.measured, passes, raw.candidate),
        within_given=_within_given(answer),
    )
    answer = with_certainty(answer, full_model_learnt=full_model_learnt)
    reason = answer.reason
    if raw.candidate.is_reference:
        reason = Reason.NOTHING_REACHES_TARGET
    return replace(
        answer,
        certainty=" ".join(certainty_sentences(answer)),
        next_step=next_step(answer),
        reason=reason,
    )


def _within_given(answer: Answer) -> CurvePoint | None:
    """Answer the same question from the given rates alone, if some depth went beyond them."""
    given = answer.given_rates
    full = answer.full
    if given is None or full is None:
        return None
    lowest, highest = given
    went_beyond = False
    for point in answer.measured:
        rate = point.learning_rate
        is_of_the_search = point.candidate.rates is None
        if is_of_the_search and rate is not None and not lowest <= rate <= highest:
            went_beyond = True
    full_quality = full.known_rates.quality_within_given
    if full_quality is None or not went_beyond:
        return None
    cheapest: CurvePoint | None = None
    for point in answer.measured:
        quality = point.known_rates.quality_within_given
        if quality is None:
            continue
        if reaches(quality, full_quality, answer.target, policy=answer.policy):
            cheapest = CurvePoint(
                candidate=point.candidate,
                fine_tuned_layers=point.fine_tuned_layers,
                quality=quality,
            )
    return cheapest


def _refusal(curve: FreezeCurve, verdict: Learnt | None) -> Reason | None:
    """Return why a curve has no operating point; None where it has one."""
    if not curve.with_quality:
        return Reason.NO_MEASUREMENTS
    if verdict is None:
        return Reason.NO_FULL_MODEL
    if verdict is Learnt.NO:
        return Reason.FULL_MODEL_DID_NOT_LEARN
    # Then it has no retention, where chance lies below 0.
    if curve.full is not None and curve.full.retention is None:
        return Reason.FULL_MODEL_NOT_ABOVE_ZERO
    if len(curve.measured) == 1:
        return Reason.NO_FROZEN_DEPTH
    return None
