"""An answer's first lines: what to do, how sure that is, what it costs and saves, what to type.

They are the same wherever an answer is shown.

They also say what fewer layers would cost, and what is saved; they are the same wherever an answer
is shown. Their words were tried on readers who had never seen the tool: what those misread is
worded anew.
"""

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
from elsa_tune.analysis.wording.certainty import export_command, recorded_search, why_not_certified
from elsa_tune.specs.candidates import is_depth
from elsa_tune.specs.trial import PROBE_FEATURES
from elsa_tune.words import (
    capitalized,
    either_text,
    interval,
    last_of_text,
    last_text,
    listed,
    metric_text,
    percent,
    points,
    rate_text,
    spread,
    target_text,
)

HOW_SURE = "How sure"
FEWER = "Fewer?"
OTHERWISE = "Otherwise"
SAVES = "Saves"
NEXT = "Next"

_FIT_ONE = f"fit a linear model on the frozen features ({PROBE_FEATURES})"
_TRAIN_BETTER = "search again with more epochs, higher learning rates or more training rows"


def first_lines(answer: Answer) -> FirstLines:
    """Return the lines of an answer that has its recommendation."""
    advice = answer.recommendation
    if advice.point is None:
        lines = {NEXT: _next_without_answer(answer)}
        headline = _headline_without_answer(answer)
    elif advice.action is Action.LINEAR_MODEL:
        lines = _linear_lines(answer, advice, advice.point)
        headline = _linear_headline(answer, advice)
    else:
        lines = {
            HOW_SURE: _how_sure(answer, advice, advice.point),
            FEWER: _fewer(answer, advice.point),
            SAVES: _saves(advice.point),
            NEXT: _next(answer, advice, advice.point),
        }
        headline = _headline(answer, advice, advice.point)
    return FirstLines(headline, tuple((label, text) for label, text in lines.items() if text))


def _headline(answer: Answer, advice: Recommendation, point: CurvePoint) -> str:
    """Return what to do; where something is grave, that first."""
    to_do = _to_do(answer, point)
    first = _what_comes_first(answer, advice)
    if first:
        return f"{first} Until then {_lower_first(to_do)}{_score(answer, point)}"
    said = f"{to_do}{_score(answer, point)}"
    return f"So far: {_lower_first(said)}" if Doubt.INCOMPLETE in advice.doubts else said


def _what_comes_first(answer: Answer, advice: Recommendation) -> str:
    """Return what to mend before a depth is chosen; "" where nothing is grave."""
    full = answer.full
    metric = metric_text(answer.metric)
    leaked = leaked_rows(answer)
    if leaked is not None:
        rows = f"{leaked.count:,} of {leaked.of:,} evaluation rows"
        return f"Clean the data first: {rows} are also in training, so that all is provisional."
    if Doubt.CONSTANT_REACHES_TARGET in advice.doubts and answer.hardly_learnt:
        tasks = listed(answer.hardly_learnt)
        return f"Train better on {tasks} before you choose: guessing reaches the target there."
    if full is None:
        return ""
    if Doubt.CONSTANT_REACHES_TARGET in advice.doubts:
        return (
            f"Train better before you choose: the full model's {metric} is "
            f"{points(full.quality)}, guessing scores {points(answer.chance)}."
        )
    if Doubt.INTERVAL_TOO_WIDE in advice.doubts:
        where = interval(full.ci_low, full.ci_high)
        return (
            f"Run more seeds before you choose: after {full.seeds} the full model's {metric} may "
            f"be anywhere in {where}."
        )
    return ""


def _to_do(answer: Answer, point: CurvePoint) -> str:
    """Return `Fine-tune the last 4 of 6 layers at learning rate 1e-4`."""
    layers = last_of_text(point.candidate, answer.layers)
    at = _at_rate(point)
    if point.fine_tuned_layers == 0:
        return f"Train {layers}, no layer of the encoder{',' if at else ''}{at}"
    return f"Fine-tune {layers}{at}"


def _at_rate(point: CurvePoint) -> str:
    rate = point.learning_rate
    return "" if rate is None else f" at learning rate {rate_text(rate)}"


def _score(answer: Answer, point: CurvePoint) -> str:
    """Return `: accuracy 84.4 (full model 84.6, guessing 50.0).`; jointly what each task keeps."""
    if answer.task == ALL_TASKS:
        if point.candidate.is_reference:
            return f": with fewer, some task falls below {_target_of(answer)}."
        return f": each task keeps {percent(point.retention)} or more of its full model's score."
    beside = []
    if not point.candidate.is_reference and answer.full is not None:
        beside.append(f"full model {points(answer.full.quality)}")
    if answer.chance:
        beside.append(f"guessing {points(answer.chance)}")
    brackets = f" ({', '.join(beside)})" if beside else ""
    return f": {metric_text(answer.metric)} {points(point.quality)}{brackets}."


def _target_of(answer: Answer) -> str:
    """Return `90 % of the full model's gain over guessing`: what decides the recommendation."""
    goal = target_text(answer.target)
    if answer.task == ALL_TASKS:
        has_gain = answer.corrected_operating_point is not None
        whole = "gain over guessing" if has_gain else "score"
    else:
        whole = "gain over guessing" if answer.chance else metric_text(answer.metric)
    return f"{goal} of the full model's {whole}"


def _how_sure(answer: Answer, advice: Recommendation, point: CurvePoint) -> str:
    if advice.basis is Basis.FULL_MODEL:
        return _sure_of_full_model(answer)
    if advice.basis is Basis.CORRECTED_CERTIFIED:
        said = f"{_certified(answer)} {_target_of(answer)}{_about(answer, answer.chance or 0.0)}"
        return f"{said}. {_conditions(answer)}"
    if advice.basis is Basis.RAW_CERTIFIED:
        raw = "score" if answer.task == ALL_TASKS else metric_text(answer.metric)
        target = f"{target_text(answer.target)} of the full model's {raw}"
        said = f"{_certified(answer)} {target}{_about(answer, 0.0)}"
        if answer.chance or point.corrected_retention != point.retention:
            kept = percent(point.corrected_retention)
            said += f"; measured, not certified: {kept} of its gain over guessing"
        return f"{said}. {_conditions(answer)}"
    return f"measured, not certified: {_why_not(answer)}.{_not_ruled_out(answer, point)}"


def _certified(answer: Answer) -> str:
    sure = answer.corrected_certified or answer.certified
    assert sure is not None
    confidence = percent(sure.confidence).replace(".0 %", " %")
    return f"certified with {confidence} confidence to keep"


def _about(answer: Answer, base: float) -> str:
    """Return ` (about 76.1)`: the score that the target means; "" in a joint answer."""
    full = answer.full
    if full is None or full.quality is None:
        return ""
    return f" (about {points(base + answer.target * (full.quality - base))})"


def _conditions(answer: Answer) -> str:
    """Return what a certificate takes for granted."""
    if answer.task == ALL_TASKS:
        return "The certificate holds on the conditions of each task."
    failed, count = answer.uncertainty.failures()
    here = f": {failed} of the {count} runs that could learn" if count else ""
    return (
        "The certificate assumes these learning rates, and that fresh seeds fail (diverge, or end "
        f"at guessing) no more often than here{here}."
    )


def _sure_of_full_model(answer: Answer) -> str:
    """Say how sure it is that nothing can be frozen: fewer layers might do."""
    candidates = answer.plausible_candidates
    if candidates is None:
        return f"measured with {_seeds(answer)}, not certified: fewer layers may do."
    smaller = [candidate for candidate in candidates if not candidate.is_reference]
    if smaller:
        others = either_text(smaller, answer.layers)
        return f"not certain that all are needed: {others} cannot be ruled out at 95 %."
    if any(not is_depth(point.candidate) for point in answer.measured):
        return "at 95 % everything cheaper that was measured misses the target."
    return "at 95 % every smaller measured number of layers misses the target."


def _why_not(answer: Answer) -> str:
    if Doubt.CONSTANT_REACHES_TARGET in answer.recommendation.doubts:
        where = f" on {listed(answer.hardly_learnt)}" if answer.hardly_learnt else ""
        return f"guessing alone reaches the target{where}, so that reaching it proves nothing"
    if answer.task == ALL_TASKS:
        return "on all tasks together nothing is sure"
    if answer.certified is None and answer.reason is None:
        return "it is not certain that the full model learnt anything"
    if answer.certified is None and answer.reason is not None:
        return why_not_certified(answer, answer.reason)
    examples = "" if answer.examples is None else f" and {answer.examples:,} evaluation rows"
    return f"{_seeds(answer)}{examples} are too few to be sure"


def _seeds(answer: Answer) -> str:
    counts = [point.seeds for point in answer.points if point.seeds]
    fewest = min(counts)
    most = max(counts)
    return f"{fewest} seeds a depth" if fewest == most else f"{fewest} to {most} seeds a depth"


def _not_ruled_out(answer: Answer, point: CurvePoint) -> str:
    """Name what else may be the answer; that is known of the raw target alone."""
    if answer.chance or answer.task == ALL_TASKS:
        return ""
    others = [
        candidate for candidate in answer.plausible_candidates or () if candidate != point.candidate
    ]
    if not others or len(others) + 1 == len(answer.measured):
        return ""
    named = capitalized(either_text(others, answer.layers))
    return f" {named} cannot be ruled out at 95 %."


def _fewer(answer: Answer, point: CurvePoint) -> str:
    """Say what the next smaller number of layers would cost."""
    smaller = []
    for other in answer.points:
        is_smaller = other.candidate.is_tested and other.candidate.rank > point.candidate.rank
        if is_smaller and other.retention is not None:
            smaller.append(other)
    if not smaller:
        return "" if point.fine_tuned_layers == 0 else "not measured."
    raw = answer.operating_point
    if raw is not None and raw.candidate.rank > point.candidate.rank:
        return _raw_only(answer, raw)
    nearest = smaller[0]
    goal = target_text(answer.target)
    if answer.task == ALL_TASKS:
        gain = percent(nearest.corrected_retention)
        least = f"{percent(nearest.retention)} of its full model's score and {gain} of its gain"
        return f"{_scores(answer, nearest)}: the least that a task keeps is {least} over guessing."
    kept = nearest.corrected_retention if answer.chance else nearest.retention
    whole = "gain over guessing" if answer.chance else "score"
    score = _scores(answer, nearest)
    return f"{score}: {percent(kept)} of the full model's {whole}; the target is {goal}."


def _raw_only(answer: Answer, raw: CurvePoint) -> str:
    """Say what the raw operating point costs, where the recommended one has more layers."""
    full = answer.full
    share = percent(raw.corrected_retention)
    if full is None or full.quality is None or raw.quality is None:
        said = (
            f"{_scores(answer, raw)}: {percent(raw.retention)} or more of each full model's score"
        )
        if answer.corrected_operating_point in (None, raw):
            return f"{said}, not certified."
        goal = target_text(answer.target)
        return f"{said}, but on some task only {share} of its gain over guessing ({goal} is asked)."
    chance = answer.chance
    policy = answer.policy
    if chance and not reaches(raw.quality, full.quality, answer.target, chance, policy=policy):
        return (
            f"{_scores(answer, raw)}. That is {percent(raw.retention)} of {points(full.quality)}, "
            f"but only {share} of the gain over guessing; the target is "
            f"{target_text(answer.target)} of it."
        )
    kept = share if answer.chance else percent(raw.retention)
    return f"{_scores(answer, raw)}: {kept} is kept, which is not certified."


def _scores(answer: Answer, point: CurvePoint) -> str:
    """Write `the last 2 layers score 76.5`; nothing of the score in a joint answer."""
    layers = last_text(point.candidate, answer.layers)
    if point.quality is None:
        return layers
    verb = "score" if point.candidate.is_plural(answer.layers) else "scores"
    return f"{layers} {verb} {points(point.quality)}"


def _saves(point: CurvePoint) -> str:
    if point.candidate.is_reference:
        return "nothing."
    shares = saved_shares(point)
    if not shares:
        return "not known: no times or parameters are recorded."
    return f"{listed(shares)}; using the model costs the same."


def _next(answer: Answer, advice: Recommendation, point: CurvePoint) -> str:
    name = recorded_search(answer)
    if Doubt.LEAKED_ROWS in advice.doubts:
        return (
            "set `drop_leaked: true` in the task file (`elsa-tune tasks` drafts one) and search "
            "again under another name."
        )
    if Doubt.CONSTANT_REACHES_TARGET in advice.doubts:
        return f"{_TRAIN_BETTER}."
    if name is None:
        if answer.task == ALL_TASKS or point.candidate.is_reference:
            return ""
        snippet = point.candidate.snippet
        return f"{snippet} in your own training." if snippet else ""
    if Doubt.INCOMPLETE in advice.doubts:
        return f"elsa-tune resume {name}"
    if answer.next_step is None:
        return export_command(answer)
    return f"{answer.next_step} (may settle it), or {export_command(answer)}"


def _linear_headline(answer: Answer, advice: Recommendation) -> str:
    probe = answer.probe
    full = answer.full
    assert probe is not None and full is not None
    scores = f"scores {points(probe.quality)} {metric_text(answer.metric)}"
    if Doubt.FULL_MODEL_BELOW_PROBE in advice.doubts:
        return (
            f"Fine-tune nothing yet: a linear model on the frozen features {scores}, the "
            f"fine-tuned full model {points(full.quality)}, which was probably trained too little."
        )
    kept = probe.corrected_retention if answer.chance else probe.retention
    whole = "gain over guessing" if answer.chance else "score"
    return (
        f"Fine-tune nothing: a linear model on the frozen features {scores} (full model "
        f"{points(full.quality)}), {percent(kept)} of the full model's {whole}."
    )


def _linear_lines(answer: Answer, advice: Recommendation, point: CurvePoint) -> dict[str, str]:
    rows = "" if answer.examples is None else f" on {answer.examples:,} evaluation rows"
    name = recorded_search(answer)
    otherwise = f"fine-tuned all the same, {_scores(answer, point)}{_at_rate(point)}"
    if name is not None:
        otherwise += f": {export_command(answer)}"
    is_below = Doubt.FULL_MODEL_BELOW_PROBE in advice.doubts
    return {
        HOW_SURE: f"measured, not certified: one linear model was fitted and scored{rows}.",
        OTHERWISE: otherwise,
        SAVES: "all training of the encoder.",
        NEXT: f"{_FIT_ONE}; to beat it, {_TRAIN_BETTER}." if is_below else f"{_FIT_ONE}.",
    }


def _headline_without_answer(answer: Answer) -> str:
    """Say why no depth is recommended, and what to do first where the results tell."""
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


def _next_without_answer(answer: Answer) -> str:
    name = answer.search_arguments
    if answer.reason is Reason.FULL_MODEL_DID_NOT_LEARN:
        return f"{_TRAIN_BETTER}."
    if name is not None and answer.reason is Reason.NO_MEASUREMENTS:
        return f"elsa-tune resume {name}"
    return ""


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
