"""An answer's first lines: what to do, how sure that is, what it costs and saves, what to type.

They are the same wherever an answer is shown. Their words were tried on readers who had never seen
the tool: what those misread is worded anew.
"""

from elsa_tune.analysis.answer import (
    ALL_TASKS,
    Action,
    Answer,
    Basis,
    Doubt,
    FirstLines,
    Reason,
    reaches,
    score_at_target,
)
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve, LinearProbe
from elsa_tune.analysis.recommendation import interval_width, leaked_rows
from elsa_tune.analysis.wording.answer import saved_shares
from elsa_tune.analysis.wording.certainty import (
    export_command,
    learnt_is_not_certain,
    on_its_machine,
    recorded_search,
    seeds_for_another_search,
    why_not_certified,
)
from elsa_tune.specs.trial import PROBE_FEATURES
from elsa_tune.words import (
    capitalized,
    confidence_text,
    either_text,
    interval,
    kind_text,
    last_of_text,
    last_text,
    listed,
    metric_text,
    ordinal,
    percent,
    percent_beside,
    points,
    rate_text,
    seeds_text,
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
    point = answer.recommendation.point
    if point is None:
        headline = _headline_without_answer(answer)
        lines = {NEXT: _next_without_answer(answer)}
    elif answer.recommendation.action is Action.LINEAR_MODEL:
        headline = _headline(answer, _linear_to_do(answer))
        lines = _linear_lines(answer, point)
    else:
        headline = _headline(answer, f"{_to_do(answer, point)}{_score(answer, point)}")
        lines = {
            HOW_SURE: _how_sure(answer, point),
            FEWER: _fewer(answer, point),
            SAVES: _saves(point),
            NEXT: _next(answer, point),
        }
    with_text = [(label, text) for label, text in lines.items() if text]
    return FirstLines(headline, tuple(with_text))


def _headline(answer: Answer, to_do: str) -> str:
    """Return what to do; where something is grave, that first."""
    first = _what_comes_first(answer)
    if first:
        return f"{first} Until then {_lower_first(to_do)}"
    if _has(answer, Doubt.INCOMPLETE):
        return f"So far: {_lower_first(to_do)}"
    return to_do


def _what_comes_first(answer: Answer) -> str:
    """Return what to mend before a depth is chosen; "" where nothing is grave."""
    full = answer.full
    metric = metric_text(answer.metric)
    leaked = leaked_rows(answer)
    if leaked is not None:
        rows = f"{leaked.count:,} of {leaked.of:,} evaluation rows"
        return f"Clean the data first: {rows} are also in training, so that all is provisional."
    if _has(answer, Doubt.CONSTANT_REACHES_TARGET) and answer.hardly_learnt:
        tasks = listed(answer.hardly_learnt)
        return f"Train better on {tasks} before you choose: guessing reaches the target there."
    if full is None:
        return ""
    if _has(answer, Doubt.CONSTANT_REACHES_TARGET):
        return (
            f"Train better before you choose: the full model's {metric} is "
            f"{points(full.quality)}, guessing scores {points(answer.chance)}."
        )
    if _has(answer, Doubt.INTERVAL_TOO_WIDE):
        widest = full
        whose = f"the full model's {metric}"
        chosen = answer.recommendation.point
        if chosen is not None and interval_width(chosen) > interval_width(full):
            widest = chosen
            whose = f"the {metric} of {last_of_text(chosen.candidate, answer.layers)}"
        where = interval(widest.ci_low, widest.ci_high)
        return (
            f"Run more seeds before you choose: after {widest.seeds} {whose} may be anywhere in "
            f"{where}."
        )
    return ""


def _to_do(answer: Answer, point: CurvePoint) -> str:
    """Return `Fine-tune the last 4 of 6 layers at learning rate 1e-4`."""
    layers = last_of_text(point.candidate, answer.layers)
    at_rate = _at_rate(point)
    if point.fine_tuned_layers != 0:
        return f"Fine-tune {layers}{at_rate}"
    comma = "," if at_rate else ""
    return f"Train {layers}, no layer of the encoder{comma}{at_rate}"


def _at_rate(point: CurvePoint) -> str:
    if point.learning_rate is None:
        return ""
    return f" at learning rate {rate_text(point.learning_rate)}"


def _score(answer: Answer, point: CurvePoint) -> str:
    """Return `: accuracy 84.4 (full model 84.6, guessing 50.0).`; jointly what each task keeps."""
    if answer.task == ALL_TASKS:
        if point.candidate.is_reference:
            return f": with fewer, some task falls below {_target_of(answer)}."
        return f": each task keeps {percent(point.retention)} or more of its full model's score."
    comparisons = []
    if not point.candidate.is_reference and answer.full is not None:
        comparisons.append(f"full model {points(answer.full.quality)}")
    if answer.chance:
        comparisons.append(f"guessing {points(answer.chance)}")
    score = f"{metric_text(answer.metric)} {points(point.quality)}"
    if comparisons:
        score += f" ({', '.join(comparisons)})"
    return f": {score}."


def _target_of(answer: Answer) -> str:
    """Return `90 % of the full model's gain over guessing`: what decides the recommendation."""
    if answer.task == ALL_TASKS:
        has_gain = answer.corrected_operating_point is not None
        kept = "gain over guessing" if has_gain else "score"
    else:
        kept = "gain over guessing" if answer.chance else metric_text(answer.metric)
    return f"{target_text(answer.target)} of the full model's {kept}"


def _how_sure(answer: Answer, point: CurvePoint) -> str:
    basis = answer.recommendation.basis
    if basis is Basis.FULL_MODEL:
        return _sure_of_full_model(answer)
    if basis is Basis.MEASURED:
        why_not = f"measured, not certified: {_why_not(answer)}."
        return why_not + _raw_certificate(answer) + _not_ruled_out(answer, point)
    if basis is Basis.CORRECTED_CERTIFIED:
        target = _target_of(answer)
        about = _about(answer, answer.chance or 0.0)
        return f"{_certified(answer)} {target}{about}. {conditions(answer)}"
    raw = "score" if answer.task == ALL_TASKS else metric_text(answer.metric)
    target = f"{target_text(answer.target)} of the full model's {raw}"
    certificate = f"{_certified(answer)} {target}{_about(answer, 0.0)}"
    has_other_gain = point.corrected_retention != point.retention
    if answer.chance or has_other_gain:
        kept = percent(point.corrected_retention)
        certificate += f"; measured, not certified: {kept} of its gain over guessing"
    return f"{certificate}. {conditions(answer)}"


def _raw_certificate(answer: Answer) -> str:
    """Say which number of layers is certain to keep the score itself; "" for none."""
    raw = answer.certified
    if not answer.claims_corrected or raw is None or raw.is_full_model:
        return ""
    score = "score" if answer.task == ALL_TASKS else metric_text(answer.metric)
    verb = "keep" if raw.candidate.is_plural(answer.layers) else "keeps"
    return (
        f" Certain is only that {last_of_text(raw.candidate, answer.layers)} {verb} "
        f"{target_text(answer.target)} of the full model's {score}."
    )


def _certified(answer: Answer) -> str:
    sure = answer.corrected_certified or answer.certified
    assert sure is not None
    return f"certified with {confidence_text(sure.confidence)} confidence to keep"


def _about(answer: Answer, base: float) -> str:
    """Return ` (about 76.1)`: the score that the target means; "" in a joint answer."""
    full = answer.full
    if full is None or full.quality is None:
        return ""
    score = score_at_target(full.quality, answer.target, base)
    return f" (about {points(score)})"


def conditions(curve: FreezeCurve) -> str:
    """Return what a certificate takes for granted."""
    if curve.task == ALL_TASKS:
        return "The certificate holds on the conditions of each task."
    failed, count = curve.uncertainty.failures()
    searches = len(curve.earlier.names) + 1
    asked_before = ""
    if searches > 1:
        asked_before = (
            f" It is the {ordinal(searches)} search of this question here, each with its own "
            f"{100 * curve.policy.error:g} %."
        )
    if not curve.earlier.seeds_are_fresh:
        asked_before += " Its seeds are not fresh."
    how_often = ""
    if count:
        how_often = f": {failed} of the {count} runs that could learn"
    ways = "diverge, or end at guessing"
    if curve.policy.failed_loss is not None:
        kind = kind_text([point.candidate for point in curve.points])
        ways = f"diverge, end at guessing, or fall far below others of their {kind}"
    return (
        f"The certificate assumes these learning rates, and that fresh seeds fail ({ways}) "
        f"no more often than here{how_often}.{asked_before}"
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
    if any(not point.candidate.is_depth for point in answer.measured):
        return "at 95 % everything cheaper that was measured misses the target."
    return "at 95 % every smaller measured number of layers misses the target."


def _why_not(answer: Answer) -> str:
    if _has(answer, Doubt.CONSTANT_REACHES_TARGET):
        where = f" on {listed(answer.hardly_learnt)}" if answer.hardly_learnt else ""
        return f"guessing alone reaches the target{where}, so that reaching it proves nothing"
    if answer.task == ALL_TASKS:
        return "on all tasks together nothing is sure"
    if answer.claimed is None:
        if answer.reason is None:
            return learnt_is_not_certain(answer)
        return why_not_certified(answer, answer.reason)
    examples = "" if answer.examples is None else f" and {answer.examples:,} evaluation rows"
    return f"{_seeds(answer)}{examples} are too few to be sure"


def _seeds(answer: Answer) -> str:
    kind = kind_text([point.candidate for point in answer.points])
    counts = [point.seeds for point in answer.points if point.seeds]
    fewest = min(counts)
    most = max(counts)
    if fewest == most:
        return f"{seeds_text(fewest)} a {kind}"
    return f"{fewest} to {most} seeds a {kind}"


def _not_ruled_out(answer: Answer, point: CurvePoint) -> str:
    """Name what else may be the answer; where both are claimed, that is known of the raw one."""
    is_of_another = answer.chance and not answer.claims_corrected
    if is_of_another or answer.task == ALL_TASKS:
        return ""
    candidates = answer.plausible_candidates or ()
    others = [candidate for candidate in candidates if candidate != point.candidate]
    nothing_is_ruled_out = len(others) + 1 == len(answer.measured)
    if not others or nothing_is_ruled_out:
        return ""
    names = capitalized(either_text(others, answer.layers))
    return f" {names} cannot be ruled out at 95 %."


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
    scores = _scores(answer, nearest)
    if answer.task == ALL_TASKS:
        least = f"{percent(nearest.retention)} of its full model's score"
        if nearest.corrected_retention is not None:
            least += f" and {percent(nearest.corrected_retention)} of its gain over guessing"
        return f"{scores}: the least that a task keeps is {least}."
    return f"{scores}: {_kept(answer, nearest)}; the target is {target_text(answer.target)}."


def _kept(answer: Answer, point: CurvePoint | LinearProbe) -> str:
    """Return `84.0 % of the full model's gain over guessing`; of its score without chance."""
    if answer.chance:
        kept = percent_beside(point.corrected_retention, answer.target)
        return f"{kept} of the full model's gain over guessing"
    return f"{percent_beside(point.retention, answer.target)} of the full model's score"


def _raw_only(answer: Answer, raw: CurvePoint) -> str:
    """Say what the raw operating point costs, where the recommended one has more layers."""
    full = answer.full
    scores = _scores(answer, raw)
    kept = percent(raw.retention)
    gain_kept = percent_beside(raw.corrected_retention, answer.target)
    goal = target_text(answer.target)
    if full is None or full.quality is None or raw.quality is None:
        on_each = f"{scores}: {kept} or more of each full model's score"
        if answer.corrected_operating_point in (None, raw):
            return f"{on_each}, not certified."
        return (
            f"{on_each}, but on some task only {gain_kept} of its gain over guessing ({goal} is "
            "asked)."
        )
    chance = answer.chance
    if not chance:
        return f"{scores}: {kept} is kept, which is not certified."
    if reaches(raw.quality, full.quality, answer.target, chance, policy=answer.policy):
        return f"{scores}: {gain_kept} is kept, which is not certified."
    return (
        f"{scores}. That is {kept} of {points(full.quality)}, but only {gain_kept} of the gain "
        f"over guessing; the target is {goal} of it."
    )


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


def _next_before_choosing(answer: Answer) -> str:
    """Return what to do before the recommendation is followed; "" where nothing comes first."""
    if _has(answer, Doubt.LEAKED_ROWS):
        return (
            "set `drop_leaked: true` in the task file (`elsa-tune tasks` drafts one) and search "
            "again under another name."
        )
    if _has(answer, Doubt.CONSTANT_REACHES_TARGET):
        return f"{_TRAIN_BETTER}."
    name = recorded_search(answer)
    if name is not None and _has(answer, Doubt.INCOMPLETE):
        return on_its_machine(answer, f"elsa-tune resume {name}")
    return ""


def _next(answer: Answer, point: CurvePoint) -> str:
    first = _next_before_choosing(answer)
    if first:
        return first
    if recorded_search(answer) is None:
        snippet = point.candidate.snippet
        adapts_one_model = answer.task != ALL_TASKS and not point.candidate.is_reference
        return f"{snippet} in your own training." if snippet and adapts_one_model else ""
    seeds = seeds_for_another_search(answer)
    if answer.next_step is None and seeds is not None:
        return (
            f"the same search once more with --seeds {seeds} (fresh ones, which may settle it), or "
            f"{export_command(answer)}"
        )
    if answer.next_step is None:
        return export_command(answer)
    return f"{answer.next_step} (may settle it), or {export_command(answer)}"


def _linear_to_do(answer: Answer) -> str:
    """Return `Fine-tune nothing`, and what the linear model scores."""
    probe = answer.probe
    full = answer.full
    assert probe is not None
    assert full is not None
    scores = f"scores {points(probe.quality)} {metric_text(answer.metric)}"
    if _has(answer, Doubt.FULL_MODEL_BELOW_PROBE):
        return (
            f"Fine-tune nothing yet: a linear model on the frozen features {scores}, the "
            f"fine-tuned full model {points(full.quality)}, which was probably trained too little."
        )
    return (
        f"Fine-tune nothing: a linear model on the frozen features {scores} (full model "
        f"{points(full.quality)}), {_kept(answer, probe)}."
    )


def _linear_lines(answer: Answer, point: CurvePoint) -> dict[str, str]:
    rows = "" if answer.examples is None else f" on {answer.examples:,} evaluation rows"
    otherwise = f"fine-tuned all the same, {_scores(answer, point)}{_at_rate(point)}"
    if recorded_search(answer) is not None:
        otherwise += f": {export_command(answer)}"
    to_do = _FIT_ONE
    if _has(answer, Doubt.FULL_MODEL_BELOW_PROBE):
        to_do += f"; to beat it, {_TRAIN_BETTER}"
    first = _next_before_choosing(answer)
    return {
        HOW_SURE: f"measured, not certified: one linear model was fitted and scored{rows}.",
        OTHERWISE: otherwise,
        SAVES: "all training of the encoder.",
        NEXT: first or f"{to_do}.",
    }


def _headline_without_answer(answer: Answer) -> str:
    """Say why no depth is recommended, and what to do first where the results tell."""
    full = answer.full
    if answer.reason is not Reason.FULL_MODEL_DID_NOT_LEARN or answer.task == ALL_TASKS:
        return answer.sentence
    assert full is not None
    assert full.quality is not None
    score = f"{metric_text(answer.metric)} of {spread(full.quality, full.std)}"
    runs = f"over {full.seeds} seeds" if full.seeds > 1 else "in one run"
    guessing = "guessing" if answer.chance is None else f"guessing ({points(answer.chance)})"
    is_above = full.quality > (answer.chance or 0.0)
    better = "surely better" if is_above else "better"
    return f"Get the full model to learn first: its {score} {runs} is not {better} than {guessing}."


def _next_without_answer(answer: Answer) -> str:
    name = answer.search_arguments
    if answer.reason is Reason.FULL_MODEL_DID_NOT_LEARN:
        return f"{_TRAIN_BETTER}."
    if name is not None and answer.reason is Reason.NO_MEASUREMENTS:
        return on_its_machine(answer, f"elsa-tune resume {name}")
    return ""


def _has(answer: Answer, doubt: Doubt) -> bool:
    """Whether the answer's recommendation has this doubt."""
    return doubt in answer.recommendation.doubts


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]
