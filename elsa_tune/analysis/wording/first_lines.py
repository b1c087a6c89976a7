"""An answer's first five lines: what to do, how sure that is, what fewer layers would cost, what it
saves, and what to type next. They are the same wherever an answer is shown.
"""

import shlex

from elsa_tune.analysis.answer import (
    ALL_TASKS,
    Action,
    Answer,
    Basis,
    Doubt,
    FirstLines,
    Reason,
    Recommendation,
    reaches,
)
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.recommendation import leaked_rows
from elsa_tune.analysis.wording.answer import saved_shares
from elsa_tune.analysis.wording.certainty import recorded_search, why_not_certified
from elsa_tune.specs.trial import PROBE_FEATURES
from elsa_tune.words import (
    interval,
    last_layers,
    last_of_layers,
    listed,
    metric_text,
    percent,
    points,
    rate_text,
    spread,
    target_text,
)

_FIT_ONE = f"fit one on the frozen features ({PROBE_FEATURES})"
HOW_SURE, FEWER, SAVES, NEXT = "How sure", "Fewer?", "Saves", "Next"


def first_lines(answer: Answer) -> FirstLines:
    """The lines of an answer that has its recommendation."""
    advice = answer.recommendation
    if advice.point is None:
        lines = {NEXT: _next_without_answer(answer)}
        return FirstLines(_no_headline(answer), tuple(lines.items()) if lines[NEXT] else ())
    lines = {
        HOW_SURE: _how_sure(answer, advice, advice.point),
        FEWER: _fewer(answer, advice, advice.point),
        SAVES: _saves(advice, advice.point),
        NEXT: _next(answer, advice, advice.point),
    }
    told = tuple((label, text) for label, text in lines.items() if text)
    return FirstLines(_headline(answer, advice, advice.point), told)


def _no_headline(answer: Answer) -> str:
    """Why no depth is recommended, with what to do first where the results say it."""
    full = answer.full
    if answer.reason is not Reason.FULL_MODEL_DID_NOT_LEARN or answer.task == ALL_TASKS:
        return answer.sentence
    assert full is not None and full.quality is not None
    scored = f"{metric_text(answer.metric)} of {spread(full.quality, full.std)}"
    runs = f"over {full.seeds} seeds" if full.seeds > 1 else "in one run"
    guessing = "" if answer.chance is None else f" ({points(answer.chance)})"
    sure = "" if full.quality <= (answer.chance or 0.0) else "surely "
    return (
        f"Get the full model to learn first: its {scored} {runs} is not {sure}better than "
        f"guessing{guessing}."
    )


def _headline(answer: Answer, advice: Recommendation, point: CurvePoint) -> str:
    metric, full = metric_text(answer.metric), answer.full
    if advice.action is Action.LINEAR_MODEL:
        return _linear_model(answer, advice)
    said = f"{_to_do(answer, point)}{_score(answer, point)}"
    leaked = leaked_rows(answer)
    if leaked is not None:
        rows = f"{leaked.count:,} of {leaked.of:,} evaluation rows"
        return (
            f"Clean the data first: {rows} are also in training (`drop_leaked: true` mends it). As "
            f"the data are: {_lower_first(said)}"
        )
    if Doubt.INTERVAL_TOO_WIDE in advice.doubts and full is not None:
        where = f"{interval(full.ci_low, full.ci_high)} with all layers"
        return (
            f"Run more seeds before you choose: {full.seeds} leave the {metric} anywhere in "
            f"{where}. Best guess so far: {_lower_first(said)}"
        )
    if Doubt.CONSTANT_REACHES_TARGET in advice.doubts and full is not None:
        return (
            f"Train better before you choose: with all layers the {metric} is "
            f"{points(full.quality)}, guessing scores {points(answer.chance)}. Best guess so far: "
            f"{_lower_first(_to_do(answer, point))}."
        )
    if Doubt.INCOMPLETE in advice.doubts:
        return f"So far: {_lower_first(said)}"
    return said


def _to_do(answer: Answer, point: CurvePoint) -> str:
    """`Fine-tune the last 4 of 6 layers at learning rate 1e-4`."""
    layers = last_of_layers(point.fine_tuned_layers, answer.layers)
    rate = point.learning_rate
    at = "" if rate is None else f" at learning rate {rate_text(rate)}"
    if point.fine_tuned_layers == 0:
        return f"Train {layers}, no layer of the encoder{',' if at else ''}{at}"
    return f"Fine-tune {layers}{at}"


def _score(answer: Answer, point: CurvePoint) -> str:
    """`: accuracy 84.4 (with all layers 84.6; guessing 50.0).`, or of several tasks the least."""
    if answer.task == ALL_TASKS:
        if point.depth.is_full_model:
            goal = target_text(answer.target)
            return f": with fewer, some task falls below {goal} of {_of_each(answer)}."
        return f": each task keeps {percent(point.retention)} or more of its full model."
    beside = []
    if not point.depth.is_full_model and answer.full is not None:
        beside.append(f"with all layers {points(answer.full.quality)}")
    if answer.chance:
        beside.append(f"guessing {points(answer.chance)}")
    told = f" ({'; '.join(beside)})" if beside else ""
    return f": {metric_text(answer.metric)} {points(point.quality)}{told}."


def _of_each(answer: Answer) -> str:
    """What a joint answer's target is a share of."""
    if answer.corrected_operating_point is None:
        return "its full model's score"
    return "what its full model gains over guessing"


def _linear_model(answer: Answer, advice: Recommendation) -> str:
    probe, full = answer.probe, answer.full
    assert probe is not None and full is not None
    said = (
        "Fine-tune nothing: a linear model on the frozen features scores "
        f"{points(probe.quality)} {metric_text(answer.metric)}, fine-tuning all layers "
        f"{points(full.quality)}"
    )
    if Doubt.FULL_MODEL_BELOW_PROBE in advice.doubts:
        return f"{said}, which may have trained too little."
    return f"{said}."


def _how_sure(answer: Answer, advice: Recommendation, point: CurvePoint) -> str:
    if advice.action is Action.LINEAR_MODEL:
        rows = "" if answer.examples is None else f" on {answer.examples:,} evaluation rows"
        return f"measured, not certified: one linear model was fitted and scored{rows}."
    is_joint = answer.task == ALL_TASKS
    goal = target_text(answer.target)
    gain = f"what all layers gain over guessing{' on each task' if is_joint else ''}"
    raw = "quality on each task" if is_joint else metric_text(answer.metric)
    # Of a Matthews correlation guessing scores 0: raw and corrected are the same.
    has_gain = is_joint or bool(answer.chance)
    if advice.basis is Basis.CORRECTED_CERTIFIED and has_gain:
        return f"{_certified(answer)} {goal} of {gain}.{_conditions(answer, point)}"
    if advice.basis in (Basis.CORRECTED_CERTIFIED, Basis.RAW_CERTIFIED):
        said = f"{_certified(answer)} {goal} of all layers' {raw}."
        if has_gain and point.corrected_retention is not None:
            said += f" Measured, not certified: {percent(point.corrected_retention)} of {gain}."
        return f"{said}{_conditions(answer, point)}"
    if advice.basis is Basis.FULL_MODEL:
        return _sure_of_full_model(answer)
    return f"measured, not certified: {_why_not(answer)}.{_may_be(answer)}"


def _certified(answer: Answer) -> str:
    sure = answer.corrected_certified or answer.certified
    assert sure is not None
    confidence = percent(sure.confidence).replace(".0 %", " %")
    return f"certified with {confidence} confidence: at least"


def _conditions(answer: Answer, point: CurvePoint) -> str:
    """What a certificate takes for granted."""
    if answer.task == ALL_TASKS:
        return " It holds on the conditions of each task."
    seeds = f"these {point.seeds} seeds"
    return f" It holds at these learning rates, if fresh seeds fail no more often than {seeds}."


def _sure_of_full_model(answer: Answer) -> str:
    """Nothing is frozen; what can be wrong is that fewer layers would do."""
    numbers = answer.plausible
    smaller = [number for number in numbers or () if number < answer.layers]
    if numbers is None:
        return f"measured with {_seeds(answer)}, not certified: fewer may do."
    if smaller:
        told = listed(map(str, smaller), last="or")
        return f"not sure that all are needed: {told} layers cannot be ruled out at 95 %."
    return "at 95 % every smaller measured number misses the target."


def _why_not(answer: Answer) -> str:
    if Doubt.CONSTANT_REACHES_TARGET in answer.recommendation.doubts:
        where = " on some task" if answer.task == ALL_TASKS else ""
        return (
            f"guessing alone reaches the target{where}, and the gain over it is too small to be "
            "sure of"
        )
    if answer.task == ALL_TASKS:
        return "on all tasks together nothing is sure"
    if answer.certified is None and answer.reason is None:
        return "it is not sure that the full model itself learnt"
    if answer.certified is None and answer.reason is not None:
        return why_not_certified(answer, answer.reason)
    examples = "" if answer.examples is None else f" and {answer.examples:,} evaluation rows"
    return f"{_seeds(answer)}{examples} are too few to be sure"


def _seeds(answer: Answer) -> str:
    counts = [point.seeds for point in answer.points if point.seeds]
    fewest, most = min(counts), max(counts)
    return f"{fewest} seeds a depth" if fewest == most else f"{fewest} to {most} seeds a depth"


def _may_be(answer: Answer) -> str:
    """The numbers of layers that are not ruled out, where that is more than one and not all."""
    numbers = answer.plausible or ()
    if not 1 < len(numbers) < len(answer.points):
        return ""
    return f" The true answer may be {listed(map(str, numbers), last='or')} layers."


def _fewer(answer: Answer, advice: Recommendation, point: CurvePoint) -> str:
    """What the next smaller number of layers would cost."""
    if advice.action is Action.LINEAR_MODEL:
        return f"nothing is less. Fine-tuned all the same, {_scores_at(answer, point)}"
    smaller = [
        one
        for one in answer.points
        if one.fine_tuned_layers < point.fine_tuned_layers and one.retention is not None
    ]
    if point.fine_tuned_layers == 0:
        return ""
    if not smaller:
        return "not measured."
    raw = answer.operating_point
    if raw is not None and raw.fine_tuned_layers < point.fine_tuned_layers:
        return _raw_only(answer, raw)
    nearest = smaller[0]
    kept = nearest.corrected_retention if answer.chance else nearest.retention
    of = "what all layers gain over guessing" if answer.chance else "all layers' quality"
    return (
        f"{_scores(answer, nearest)}{percent(kept)} of {of}, below the target of "
        f"{target_text(answer.target)}."
    )


def _raw_only(answer: Answer, raw: CurvePoint) -> str:
    """Of the raw operating point, where the recommended one has more layers."""
    full, share = answer.full, percent(raw.corrected_retention)
    if full is None or full.quality is None or raw.quality is None:
        layers = last_layers(raw.fine_tuned_layers)
        said = f"{layers}: {percent(raw.retention)} or more of each full model's score"
        if answer.corrected_operating_point in (None, raw):
            return f"{said}, not certified."
        return f"{said}, but on some task only {share} of the gain over guessing."
    if answer.chance and not reaches(raw.quality, full.quality, answer.target, answer.chance):
        return (
            f"{_scores(answer, raw)}{percent(raw.retention)} of {points(full.quality)}, but only "
            f"{share} of the gain over guessing ({points(answer.chance)})."
        )
    kept = share if answer.chance else percent(raw.retention)
    return f"{_scores(answer, raw)}{kept} is kept, which is not certified."


def _scores(answer: Answer, point: CurvePoint) -> str:
    """`the last 2 layers score 76.5: `; nothing of the score in a joint answer."""
    layers = last_layers(point.fine_tuned_layers)
    if point.quality is None:
        return f"{layers}: "
    verb = "score" if point.fine_tuned_layers > 1 else "scores"
    return f"{layers} {verb} {points(point.quality)}: "


def _scores_at(answer: Answer, point: CurvePoint) -> str:
    """`the last 3 layers score 88.0 at learning rate 3e-5.`"""
    said = _scores(answer, point).removesuffix(": ")
    rate = point.learning_rate
    return f"{said}." if rate is None else f"{said} at learning rate {rate_text(rate)}."


def _saves(advice: Recommendation, point: CurvePoint) -> str:
    if advice.action is Action.LINEAR_MODEL:
        return "all training of the encoder."
    if point.depth.is_full_model:
        return "nothing."
    shares = saved_shares(point)
    return f"{listed(shares)}." if shares else "not known: no times or parameters are recorded."


def _next(answer: Answer, advice: Recommendation, point: CurvePoint) -> str:
    name = recorded_search(answer)
    if name is None:
        if advice.action is Action.LINEAR_MODEL:
            return f"{_FIT_ONE}."
        if answer.task == ALL_TASKS or point.depth.is_full_model:
            return ""
        return f"elsa_tune.freeze(model, {point.depth.frozen_layers}) in your own training."
    if Doubt.INCOMPLETE in advice.doubts:
        return f"elsa-tune resume {name}"
    export = f"elsa-tune export {name} --out {shlex.quote(f'{answer.search}-model')}"
    if advice.action is Action.LINEAR_MODEL:
        layers = last_layers(point.fine_tuned_layers)
        return f"{_FIT_ONE}; or with {layers} fine-tuned: {export}"
    if answer.next_step is None:
        return export
    return f"{answer.next_step} (may settle it), or {export}"


def _next_without_answer(answer: Answer) -> str:
    name = answer.search_arguments
    if answer.reason is Reason.FULL_MODEL_DID_NOT_LEARN:
        return "search again with more epochs, higher learning rates or more training rows."
    if name is not None and answer.reason is Reason.NO_MEASUREMENTS:
        return f"elsa-tune resume {name}"
    return ""


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
