"""A comparison of ways in words: what to do, how sure that is, what it costs, whether it was fair.

It is worded as an answer's first lines are (`first_lines.py`).
"""

import shlex
from collections.abc import Sequence

from elsa_tune.analysis.answer import FirstLines, Reason, score_at_target
from elsa_tune.analysis.comparing.ways import (
    FEWEST_SEEDS,
    Equivalence,
    Way,
    WayBasis,
    WayComparison,
    cost_of,
    recorded_looks,
    rows_of,
)
from elsa_tune.analysis.recommendation import leaked_rows
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.analysis.wording.certainty import (
    lacking_scores_text,
    on_its_machine,
    why_not_certified,
)
from elsa_tune.analysis.wording.differences import differences_text, rerun_text
from elsa_tune.analysis.wording.fairness import fairness_text, rates_text
from elsa_tune.analysis.wording.first_lines import HOW_SURE, NEXT, conditions
from elsa_tune.analysis.wording.ways import (
    are_plural,
    cost_cell,
    cost_text,
    name_of,
    names_of,
    range_text,
)
from elsa_tune.analysis.wording.would_certify import gain_need_text, would_certify_text
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.cost import Cost
from elsa_tune.words import (
    capitalized,
    confidence_text,
    last_of_text,
    metric_text,
    percent,
    percent_beside,
    points,
    rate_text,
    target_text,
)

COSTS = "Costs"
CHEAPER = "Cheaper?"
BETTER = "Better?"
DIFFER = "Differ?"
RERUN = "Rerun"
FAIR = "Fair?"
RATES = "Rates"

# What a candidate's `doing` may begin with, as a sentence that says what to do begins.
_IMPERATIVES = {"fine-tuning": "Fine-tune", "training": "Train", "adapting": "Adapt"}

# What the results lack where a cost is not known, and what would fill it.
_NO_COSTS = {
    Cost.TIME: "training times",
    Cost.MEMORY: "peak memory",
    Cost.PARAMETERS: "numbers of trained parameters",
    Cost.LATENCY: "latencies: they are measured on exported models",
    Cost.BUNDLE: "latencies in a bundle: they are measured on exported models",
}


def comparison_lines(comparison: WayComparison) -> FirstLines:
    """Return the headline of a comparison and its lines."""
    headline = _headline(comparison)
    single_runs = _single_runs(comparison)
    if single_runs:
        headline = f"By {single_runs}, which decides nothing: {_in_sentence(headline)}"
    in_sentence = _in_sentence(headline)
    leaked = leaked_rows(comparison.curve)
    if leaked is not None:
        headline = (
            f"Clean the data first: {leaked.count:,} of {leaked.of:,} evaluation rows are also in "
            f"training, so that all is provisional. Until then, {in_sentence}"
        )
    elif _is_incomplete(comparison):
        headline = f"So far: {in_sentence}"
    lines = {
        HOW_SURE: _how_sure(comparison),
        COSTS: _costs(comparison),
        CHEAPER: _cheaper(comparison),
        BETTER: _better(comparison),
        DIFFER: differences_text(comparison),
        RERUN: rerun_text(comparison),
        FAIR: fairness_text(comparison),
        RATES: rates_text(comparison),
        NEXT: _next(comparison),
    }
    with_text = [(label, text) for label, text in lines.items() if text]
    return FirstLines(headline, tuple(with_text))


def _in_sentence(headline: str) -> str:
    """Return a headline as it goes on behind other words: names such as LoRA stay as they are."""
    first_word, _, _ = headline.partition(" ")
    if not first_word[1:].islower():
        return headline
    return f"{headline[:1].lower()}{headline[1:]}"


def _single_runs(comparison: WayComparison) -> str:
    """Return which of the ways that a headline names ran once; "" for none, and without an answer.

    They are those that may be the cheapest, and the best.
    """
    if not comparison.is_answered:
        return ""
    if comparison.has_single_runs:
        return "one run a way"
    way = comparison.recommended
    named = list(comparison.good) if way is None else [way]
    candidates: list[Candidate] = []
    for other in [*named, comparison.best]:
        is_new = other is not None and other.candidate not in candidates
        if other is not None and is_new and other.point.seeds == 1:
            candidates.append(other.candidate)
    if not candidates:
        return ""
    return f"one run of {names_of(comparison.curve, candidates)}"


def _headline(comparison: WayComparison) -> str:
    """Return what to do, or why there is nothing to do."""
    way = comparison.recommended
    if not comparison.is_answered:
        return _no_answer(comparison)
    if way is None:
        return _unknown_cost(comparison)
    point = way.point
    at_rate = ""
    if point.learning_rate is not None:
        at_rate = f" at learning rate {rate_text(point.learning_rate)}"
    done = _done(way, comparison.curve.layers)
    score = f"{metric_text(comparison.curve.metric)} {points(point.quality)}"
    beside = "; ".join(_scores_beside(comparison, way))
    return f"{done}{at_rate}: {score} ({beside})."


def _done(way: Way, layers: int) -> str:
    """Write what is done to the model: `Fine-tune the last 3 of 6 layers`, `Train LoRA of ...`."""
    if way.candidate.is_reference and not layers:
        return "Fine-tune all layers"
    if way.candidate.is_depth:
        verb = "Train" if way.point.fine_tuned_layers == 0 else "Fine-tune"
        return f"{verb} {last_of_text(way.candidate, layers)}"
    doing, _, what = way.candidate.doing(layers).partition(" ")
    return f"{_IMPERATIVES.get(doing, doing)} {what}"


def _scores_beside(comparison: WayComparison, way: Way) -> list[str]:
    """Return what stands in brackets behind a way's score."""
    best = comparison.best
    assert best is not None
    texts = ["the best of those compared"]
    if best.candidate != way.candidate:
        name = name_of(comparison.curve, best.candidate)
        texts = [f"the best, {name}, {points(best.point.quality)}"]
    if comparison.curve.chance:
        texts.append(f"guessing {points(comparison.curve.chance)}")
    return texts


def _no_answer(comparison: WayComparison) -> str:
    """Return why there is nothing to compare, or to choose among."""
    best = comparison.best
    if best is None:
        explored = sum(point.exploring_trials for point in comparison.curve.points)
        return (
            "No answer: no measuring trial has completed, and exploring trials "
            f"({explored} done) do not count."
        )
    name = name_of(comparison.curve, best.candidate)
    if comparison.reason is Reason.ONE_WAY:
        return f"No answer: only {name} was measured, and there is nothing to compare it with."
    score = f"{metric_text(comparison.curve.metric)} {points(best.point.quality)}"
    if comparison.reason is Reason.NO_WAY_ABOVE_ZERO:
        return (
            f"No answer: the best, {name}, has {score}, which is not above 0, and chance is not "
            "known, so that no share of it can be kept; add a column `chance`, or take a metric "
            "whose scores are above 0, such as 1 minus the error."
        )
    beside = ""
    if comparison.curve.chance is not None:
        beside = f", guessing {points(comparison.curve.chance)}"
    return (
        f"No answer: no way is certain to have learnt anything. The best, {name}, has "
        f"{score}{beside}."
    )


def _unknown_cost(comparison: WayComparison) -> str:
    """Say which ways are good where nothing tells which of them is the cheapest."""
    good = comparison.good
    how = "measured" if comparison.basis is WayBasis.MEASURED else "certified"
    names = names_of(comparison.curve, [way.candidate for way in good])
    verb = "are" if are_plural(comparison.curve, [way.candidate for way in good]) else "is"
    lacking = f"these results have no {_NO_COSTS[comparison.unit]}"
    known = _known_units(good)
    if known:
        lacking += f" (but `--cost {known[0]}` is known)"
    return (
        f"{capitalized(names)} {verb} {how} to keep {_kept_target(comparison)}. Which is the "
        f"cheapest is not known: {lacking}."
    )


def _known_units(ways: Sequence[Way]) -> list[str]:
    """Return in which units all costs of these ways are recorded."""
    known: list[str] = []
    for unit in (Cost.TIME, Cost.MEMORY, Cost.PARAMETERS):
        costs = [cost_of(way.point, unit, {}) for way in ways]
        if None not in costs:
            known.append(unit.value)
    return known


def _target_of(comparison: WayComparison) -> str:
    """Return `95 % of what the best of these 6 ways gains over guessing`."""
    share = target_text(comparison.target)
    best = f"the best of these {len(comparison.ways)} ways"
    if comparison.curve.chance:
        return f"{share} of what {best} gains over guessing"
    return f"{share} of the {metric_text(comparison.curve.metric)} of {best}"


def _kept_target(comparison: WayComparison) -> str:
    """Return what the recommended way keeps, by its basis: of the claim, or of the score itself."""
    if comparison.basis is not WayBasis.SCORE_CERTIFIED:
        return _target_of(comparison)
    share = target_text(comparison.target)
    metric = metric_text(comparison.curve.metric)
    return f"{share} of the {metric} of the best of these {len(comparison.ways)} ways"


def _how_sure(comparison: WayComparison) -> str:
    """Say whether the recommended way is certified, on which conditions, or why it is not."""
    if not comparison.is_answered:
        return ""
    curve = comparison.curve
    if comparison.basis is not WayBasis.MEASURED:
        return _certificate(comparison)
    if comparison.reason is not None:
        return f"measured, not certified: {why_no_claim(comparison, comparison.reason)}."
    text = f"measured, not certified: {_seeds_and_rows(comparison)} are too few to be sure."
    text += _unsettled(comparison)
    surely = [way.candidate for way in comparison.score_certified]
    if surely:
        names = names_of(curve, surely)
        verb = "keep" if are_plural(curve, surely) else "keeps"
        share = target_text(comparison.target)
        text += f" Certain is only that {names} {verb} {share} of the best score itself."
    if not comparison.unsettled and not _is_incomplete(comparison):
        text += would_certify_text(comparison)
    return text


def _unsettled(comparison: WayComparison) -> str:
    """Name the ways that may be the best for all that their failed seeds tell."""
    text = ""
    for way in comparison.unsettled:
        name = capitalized(name_of(comparison.curve, way.candidate))
        point = way.point
        text += (
            f" {name} ({points(point.quality)} ± {points(point.std)}) may be the best after all: "
            f"{point.failed_seeds} of {point.seeds} seeds failed, far from the others. A search "
            "with more seeds, or without this way, may be sure."
        )
    return text


def _certificate(comparison: WayComparison) -> str:
    """Say what is certified of the recommended way, and on which conditions."""
    curve = comparison.curve
    confidence = confidence_text(curve.policy.confidence)
    text = f"certified with {confidence} confidence to keep {_kept_target(comparison)} (about "
    text += f"{_target_score(comparison)}), whichever is the best"
    way = comparison.recommended
    if comparison.basis is WayBasis.SCORE_CERTIFIED and way is not None:
        text += f"; measured, not certified: {percent(way.gain_kept)} of its gain over guessing"
        text += gain_need_text(comparison)
    return f"{text}. {conditions(curve)}"


def _target_score(comparison: WayComparison) -> str:
    """Return the score that the target means, by what the best way was measured to have."""
    best = comparison.best
    assert best is not None
    assert best.point.quality is not None
    base = comparison.curve.chance or 0.0
    if comparison.basis is WayBasis.SCORE_CERTIFIED:
        base = 0.0
    return points(score_at_target(best.point.quality, comparison.target, base))


def why_no_claim(comparison: WayComparison, reason: Reason) -> str:
    """Return why nothing of a comparison is certified: a clause."""
    curve = comparison.curve
    if reason is Reason.FULL_MODEL_DID_NOT_LEARN:
        full = curve.full
        assert full is not None
        return (
            f"the full model is not certain to have learnt anything ({points(full.quality)}, "
            f"guessing {points(curve.chance)}), and beside it every way looks good; train it better"
        )
    if reason is Reason.CHANCE_UNKNOWN:
        return "chance is not known, so whether a way learnt anything cannot be tested"
    if reason is Reason.SEEDS_BY_RESULTS:
        return "the search chose by its results how many seeds each way has"
    if reason is Reason.TARGET_NOT_PLANNED:
        return "a comparison is planned for 95 %, and a higher target is exploratory"
    if reason is Reason.RATES_NOT_FRESH:
        chosen = [way.candidate for way in comparison.ways if way.point.measured_at_rates > 1]
        names = names_of(curve, chosen)
        verb = "were" if are_plural(curve, chosen) else "was"
        return (
            f"{names} {verb} measured at several learning rates, and the best was taken on the "
            "same runs"
        )
    if reason is Reason.SEEDS_MISSING and not recorded_looks(rows_of(comparison.ways)):
        return lacking_scores_text(curve)
    if reason is Reason.SEEDS_MISSING:
        lacking = [point.candidate for point in comparison.unfinished]
        verb = "lack" if are_plural(curve, lacking) else "lacks"
        return (
            f"{names_of(curve, lacking)} {verb} seeds that were planned; it takes all of them, and "
            "`elsa-tune resume` runs those that are missing"
        )
    if reason is Reason.TOO_FEW_SEEDS:
        return _too_few_seeds(comparison)
    return why_not_certified(curve, reason)


def _too_few_seeds(comparison: WayComparison) -> str:
    """Return which ways lack seeds: a clause."""
    few: list[Candidate] = []
    for way in comparison.ways:
        runs = comparison.curve.uncertainty.runs.get(way.candidate)
        if runs is None and way.point.seeds > 1:
            return "the rows are means, and single runs are needed"
        if runs is None or runs.count < FEWEST_SEEDS:
            few.append(way.candidate)
    needed = f"that takes {FEWEST_SEEDS} seeds or more of each way, planned from the start"
    if len(few) == len(comparison.ways):
        return f"{needed}; there {_counts(comparison)}"
    names = names_of(comparison.curve, few)
    verb = "have" if are_plural(comparison.curve, few) else "has"
    return f"{needed}; {names} {verb} fewer"


def _counts(comparison: WayComparison) -> str:
    """Return `is 1`, or `are 1 to 2`."""
    seeds = range_text(way.point.seeds for way in comparison.ways)
    return f"is {seeds}" if seeds == "1" else f"are {seeds}"


def _seeds_and_rows(comparison: WayComparison) -> str:
    """Return `5 seeds a way and 872 evaluation rows`, `3 to 5 seeds a way`."""
    seeds = f"{range_text(way.point.seeds for way in comparison.ways)} seeds a way"
    examples = comparison.curve.examples
    return seeds if examples is None else f"{seeds} and {examples:,} evaluation rows"


def _costs(comparison: WayComparison) -> str:
    """Say what the recommended way costs, beside the full model and the best."""
    way = comparison.recommended
    if way is None:
        return ""
    if all(other.cost is None for other in comparison.ways):
        return f"not known: these results have no {_NO_COSTS[comparison.unit]}."
    beside: list[str] = []
    for other in comparison.ways:
        is_best = comparison.best is not None and other.candidate == comparison.best.candidate
        is_shown = other.cost is not None and (other.candidate.is_reference or is_best)
        if is_shown and other.candidate != way.candidate:
            name = name_of(comparison.curve, other.candidate)
            beside.append(f"{name}: {cost_cell(other.cost, comparison.unit)}")
    if way.cost is None:
        text = f"not known of {name_of(comparison.curve, way.candidate)}"
    else:
        text = cost_text(way.cost, comparison.unit)
    if beside:
        text += f" ({'; '.join(beside)})"
    # Of the others the cost does not matter, such as of those of which every run diverged.
    unknown: list[Candidate] = []
    for other in comparison.good:
        if other.cost is None and other.candidate != way.candidate:
            unknown.append(other.candidate)
    if unknown:
        names = names_of(comparison.curve, unknown)
        text += f"; not known of {names}, which may be cheaper"
    return f"{text}."


def _cheaper_way(comparison: WayComparison, way: Way) -> Way | None:
    """Return which cheaper way is named beside the recommended one; None where there is none.

    That is the cheapest that was measured to keep the target, which a certificate may make the
    better choice; where none was, the one that scores highest, of equal ones the cheapest.
    """
    highest: Way | None = None
    for other in comparison.ways:  # the cheapest first
        if way.cost is None or other.cost is None or other.cost >= way.cost:
            continue
        if other.reaches_target:
            return other
        if highest is None or (other.point.quality or 0.0) > (highest.point.quality or 0.0):
            highest = other
    return highest


def _cheaper(comparison: WayComparison) -> str:
    """Say what a cheaper way than the recommended one would keep."""
    way = comparison.recommended
    if way is None:
        return ""
    nearest = _cheaper_way(comparison, way)
    if nearest is None:
        return ""
    name = name_of(comparison.curve, nearest.candidate)
    plural = are_plural(comparison.curve, [nearest.candidate])
    costs = "cost" if plural else "costs"
    scores = "score" if plural else "scores"
    kept = nearest.kept
    of_what = "score"
    if comparison.curve.chance:
        kept = nearest.gain_kept
        of_what = "gain over guessing"
    text = (
        f"{name} {costs} {cost_cell(nearest.cost, comparison.unit)} and {scores} "
        f"{points(nearest.point.quality)}: {percent_beside(kept, comparison.target)} of the best "
        f"{of_what}"
    )
    if nearest.reaches_target and nearest.score_certified:
        return f"{text}; only {target_text(comparison.target)} of the score itself is certified."
    if nearest.reaches_target:
        return f"{text}, which is not certified."
    return f"{text}; the target is {target_text(comparison.target)}."


def _better(comparison: WayComparison) -> str:
    """Say by how much any other way may be better than the recommended one."""
    equivalence = comparison.equivalence
    if equivalence is None:
        return ""
    if equivalence.tells_nothing:
        return _better_by_anything(comparison, equivalence)
    name = name_of(comparison.curve, equivalence.way.candidate)
    return f"no way is better than {name} by more than {_points_text(equivalence.most)}, at 95 %."


def _points_text(difference: float) -> str:
    """Return `1.0 point`, `1.2 points`."""
    text = points(difference)
    unit = "point" if text == "1.0" else "points"
    return f"{text} {unit}"


def _better_by_anything(comparison: WayComparison, equivalence: Equivalence) -> str:
    """Say that a way may be better by any amount, and why that is not known more closely."""
    failed = [way for way in (equivalence.other, equivalence.way) if way.point.failed_seeds]
    if not failed:
        return f"nothing can be told: {_seeds_and_rows(comparison)} are too few."
    point = failed[0].point
    of_failed = name_of(comparison.curve, point.candidate)
    return (
        f"nothing can be told: {point.failed_seeds} of {point.seeds} seeds of {of_failed} failed, "
        "so that another run may score anything."
    )


def _next(comparison: WayComparison) -> str:
    """Return the command that trains and saves the recommended way."""
    way = comparison.recommended
    if way is None or _is_incomplete(comparison):
        return ""
    curve = comparison.curve
    searches = {run.row.search_key for run in way.point.runs if run.row.trial}
    if len(searches) != 1 or curve.search is None or ", " in curve.search or curve.is_search_gone:
        return ""
    name = curve.search_arguments or shlex.quote(curve.search)
    label = shlex.quote(way.candidate.label)
    out = shlex.quote(f"{curve.search}-model")
    return on_its_machine(curve, f"elsa-tune export {name} --way {label} --out {out}")


def _is_incomplete(comparison: WayComparison) -> bool:
    return any(warning.code is WarningCode.INCOMPLETE for warning in comparison.warnings)
