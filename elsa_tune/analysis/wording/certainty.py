"""How sure an answer is, in words; and the command that would settle it."""

import shlex
from collections.abc import Iterator, Mapping

from elsa_tune.analysis.answer import DEFAULT_TARGET, Answer, Certified, Reason, WouldCertify
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.groups import equal_units
from elsa_tune.analysis.learnt import verdict_on
from elsa_tune.analysis.statistics.learning import Learnt
from elsa_tune.analysis.statistics.seeds import excluded_failure_rate
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.analysis.wording.answer import cheaper_text
from elsa_tune.analysis.wording.would_certify import need_text
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.result_row import SearchKey
from elsa_tune.specs.task import Metric
from elsa_tune.words import (
    candidates_text,
    capitalized,
    confidence_text,
    count_text,
    either_text,
    kind_text,
    metric_text,
    number_of,
    ordinal,
    part_text,
    target_text,
)

# What is suggested where too few seeds leave nothing to forecast from.
USUAL_SEEDS = 5


def learnt_is_not_certain(answer: Answer) -> str:
    """Say that the full model may have learnt nothing, and by which seeds."""
    doubt = "it is not certain that the full model learnt anything"
    if verdict_on(answer) is Learnt.YES:
        return f"by its planned seeds {doubt}, and seeds that are added later do not count"
    return doubt


def certainty_sentences(answer: Answer) -> Iterator[str]:
    """Say what is certified or why nothing is, what is plausible, and what seeds leave open."""
    uncertainty_of = answer.uncertainty
    claimed = answer.claimed
    if answer.reason is not None:
        yield f"Nothing is certified: {why_not_certified(answer, answer.reason)}."
    elif claimed is None:
        yield f"Nothing is certified: {learnt_is_not_certain(answer)}."
    else:
        yield _certified_text(answer, claimed)
        yield from _weaker_text(answer, claimed)
        if not uncertainty_of.has_predictions:
            yield f"Predictions are not used: this rests on {uncertainty_of.basis}."
        # Raw, a depth more may be certified.
        deepest = max(claimed.candidate, (answer.certified or claimed).candidate)
        if not deepest.is_reference:
            yield from _failures_text(uncertainty_of, deepest, answer.layers)
    if answer.earlier.names:
        yield earlier_text(answer)
    if answer.units is not None and answer.examples is not None and answer.units < answer.examples:
        yield _units_text(answer, answer.examples, answer.units)
    if answer.plausible_candidates is not None:
        yield plausible_text(answer, measured=len(answer.measured))
    if not answer.open_look:
        yield from _what_would_do(answer)


def _units_text(answer: Answer, examples: int, units: int) -> str:
    """Say as how many independent units the evaluation rows count."""
    text = f"{units:,} unit{'s' if units > 1 else ''}"
    if answer.uncertainty.knows_scores_alone:
        equal = equal_units(examples, units)
        return (
            f"The {examples:,} evaluation rows of {text} count as {equal:,}, the fewest that "
            "scores alone leave open."
        )
    return (
        f"The {examples:,} evaluation rows count as {text}: rows with the same text or of one "
        "group are not independent."
    )


def _what_would_do(answer: Answer) -> Iterator[str]:
    """Say what would certify the depths that are not certified, of each quality that is claimed."""
    corrected = ""
    if answer.chance or answer.claims_corrected:  # without chance there is nothing to correct for
        corrected = _advice_text(answer, answer.corrected_would_certify)
    if answer.claims_corrected:
        if corrected:
            yield capitalized(corrected)
        return
    raw = _advice_text(answer, answer.would_certify)
    if raw and raw == corrected:
        yield f"Raw and corrected for chance: {raw}"
        return
    if raw:
        yield capitalized(raw)
    if corrected:
        yield f"Corrected for chance: {corrected}"


def _advice_text(answer: Answer, advice: Mapping[Candidate, WouldCertify]) -> str:
    """Return what would certify which depths, those that take the same together; "" for none."""
    candidates_by_need: dict[str, list[Candidate]] = {}
    knows_rows = answer.uncertainty.examples is not None
    for candidate, needed in advice.items():
        need = need_text(needed, "at each depth", knows_rows=knows_rows)
        candidates_by_need.setdefault(need, []).append(candidate)
    hopeless = candidates_by_need.pop("", [])
    sentences: list[str] = []
    if candidates_by_need:
        parts: list[str] = []
        for need, candidates in candidates_by_need.items():
            parts.append(f"{candidates_text(candidates, answer.layers)} by {need}")
        sentences.append(
            "a new search would probably (four times out of five, if depths score and spread as "
            f"measured) certify {'; '.join(parts)}."
        )
    if hopeless:
        sentences.append(
            "no number of seeds or evaluation rows that can be advised would certify "
            f"{candidates_text(hopeless, answer.layers)}: as measured, the target is missed there "
            "or at a depth tested before, or hardly reached."
        )
    return " ".join([*sentences[:1], *map(capitalized, sentences[1:])])


def earlier_text(answer: Answer) -> str:
    """Say that the question was asked before, and what that does to the error."""
    searches = len(answer.earlier.names) + 1
    error = 100 * answer.policy.error
    in_all = min(100.0, searches * error)
    text = (
        f"This is the {ordinal(searches)} search of this question here: each has its own "
        f"{error:g} %, so the chance that any of the {searches} errs is up to {in_all:g} %."
    )
    if not answer.earlier.seeds_are_fresh:
        text += (
            " Its seeds are not fresh: an earlier search measured with some of them, so that what "
            "is certified here may be wrong more often."
        )
    return text


# Why nothing is certified, where the reason says it all: clauses.
_REASONS: Mapping[Reason, str] = {
    Reason.RATES_NOT_FRESH: (
        "depths were measured at several learning rates, and the best was taken on the same runs"
    ),
    Reason.EPOCHS_NOT_FRESH: (
        "each run's best epoch was taken on the rows that judge it; a new search with "
        "selection=last or selection=holdout can certify"
    ),
    Reason.LOOKS_NOT_PLANNED: "seeds of several searches, planned separately, were pooled",
    Reason.NOT_PLANNED_TO_CERTIFY: (
        "the search's strategy plans no tests, and chooses what it measures by other rules"
    ),
    Reason.LOOKS_NOT_RECORDED: (
        "an earlier version of elsa-tune wrote the table, without the tests that its search "
        "planned, and unequal numbers of seeds are those of a hunt; ask the search's journal, "
        "or have `elsa-tune report` write the table anew"
    ),
    Reason.CHANCE_UNKNOWN: (
        "chance is not known, so whether the full model learnt cannot be tested"
    ),
}


def why_not_certified(curve: FreezeCurve, reason: Reason) -> str:
    """Return why a curve with this reason has nothing certified: a clause."""
    if reason in _REASONS:
        return _REASONS[reason]
    if reason is Reason.TOO_FEW_UNITS:
        return _too_few_units_text(curve)
    if reason is Reason.SEEDS_MISSING:
        return lacking_scores_text(curve)
    if reason is Reason.EXAMPLES_UNKNOWN:
        return _examples_text(curve)
    if reason is Reason.TARGET_NOT_PLANNED:
        assert curve.looks is not None
        if curve.looks.own_target is None:
            default = target_text(DEFAULT_TARGET)
            return (
                "the table does not say which target its search was planned for, and then one "
                f"above {default} is exploratory"
            )
        planned = target_text(curve.looks.own_target)
        return f"the search was planned for {planned}, and a higher target is exploratory"
    return _too_few_seeds_text(curve)


def lacking_scores_text(curve: FreezeCurve) -> str:
    """Return how many runs have no score, and what to do: a clause."""
    lacking = curve.lacking_scores
    runs = sum(point.runs_without_score for point in lacking)
    of = candidates_text([point.candidate for point in lacking], curve.layers)
    if runs == 1:
        return (
            f"1 run of {of} has no score, and what ended it may be how it scored; run it again, "
            "or leave its row out if something else ended it"
        )
    return (
        f"{runs} runs of {of} have no score, and what ended them may be how they scored; run them "
        "again, or leave out the rows of those that something else ended"
    )


def _too_few_units_text(curve: FreezeCurve) -> str:
    """Return how many units there are, or may be, of those that it takes: a clause."""
    fewest = curve.policy.fewest_units
    takes = f"that takes evaluation rows of {fewest} groups or different texts"
    if curve.has_too_few_units:
        return f"{takes}, and there are {curve.units}"
    assert curve.examples is not None
    equal = equal_units(curve.examples, curve.units)
    return (
        f"{takes}, and these {curve.units} may be worth {equal}: scores alone do not tell how many "
        "rows each has; each run's predictions (`elsa-tune search` keeps them) do"
    )


def _too_few_seeds_text(curve: FreezeCurve) -> str:
    """Return which seeds are missing: a clause."""
    if any(point.measured_at_rates and not point.qualities for point in curve.measured):
        return "the rows are means, and single runs are needed"
    if curve.looks is not None and not curve.looks.has_begun:
        return "the seeds planned for the first test are not all there"
    kind = kind_text([point.candidate for point in curve.points])
    fewest = curve.policy.fewest_seeds
    if curve.looks is not None and curve.looks.most_seeds < fewest:
        return (
            f"that takes {fewest} seeds or more a {kind}, planned from the start, and this search "
            f"planned {curve.looks.most_seeds}: seeds that are added later do not count"
        )
    least = min(point.seeds for point in curve.measured)
    if least < fewest:
        return f"that takes {fewest} seeds or more a {kind}, and there is {least}"
    fewest = curve.policy.fewest_freedom
    return f"that takes at least {fewest} runs more than there are {kind}s that learn"


def _examples_text(curve: FreezeCurve) -> str:
    """Return why scores alone certify nothing, and what would do: a clause."""
    metric = Metric.named(curve.metric)
    metric_name = metric_text(curve.metric)
    unknown = f"how far other evaluation rows would move {metric_name} is not known without"
    predictions = "each run's predictions (`elsa-tune search` keeps them)"
    if metric is not None and metric.is_share:
        return f"{unknown} their number (column `examples`) or {predictions}"
    if curve.metric is None:
        return (
            f"{unknown} {predictions}; where it is accuracy, the columns `metric` and `examples` "
            "are enough"
        )
    return f"{unknown} {predictions}; accuracy with a column `examples` can be certified, too"


def _certified_text(answer: Answer, claimed: Certified) -> str:
    confidence = confidence_text(claimed.confidence)
    if claimed.is_full_model:
        gain = " of the full model's gain over guessing" if answer.claims_corrected else ""
        return (
            f"No {cheaper_text(answer)} is certain (at {confidence}) to keep "
            f"{target_text(answer.target)}{gain} at the rates found."
        )
    part = part_text(claimed.candidate, answer.layers)
    larger = "larger measured number"
    if number_of(claimed.candidate, answer.layers) is None:
        larger = "measured candidate before it in the order of tests"
    text = f"Certified at {confidence}, at the rates found: {part}, and every {larger}"
    if answer.claims_corrected:
        text += ", corrected for chance"
        return f"{text}." if answer.score_is_stronger else f"{text}, and so of the score itself."
    corrected = answer.corrected_certified
    if corrected is None:
        return f"{text}."
    if corrected.candidate == claimed.candidate:
        return f"{text}, also corrected for chance."
    if corrected.is_full_model:
        return f"{text}; corrected for chance none."
    part = part_text(corrected.candidate, answer.layers)
    return f"{text}; corrected for chance {part}."


def _weaker_text(answer: Answer, claimed: Certified) -> Iterator[str]:
    """Say what is certified beside the claim: of the score itself, and at a lower target."""
    raw = answer.certified
    claims_the_stronger = answer.claims_corrected and not answer.score_is_stronger
    if claims_the_stronger and raw is not None and raw.candidate != claimed.candidate:
        yield (
            f"Of the score itself, certified by the same sequence: "
            f"{part_text(raw.candidate, answer.layers)}."
        )
    planned_target = None if answer.looks is None else answer.looks.own_target
    if answer.claim is not None and planned_target is not None and planned_target > answer.target:
        yield (
            f"The search was planned for {target_text(planned_target)}: what is certified there "
            "is so here, and at most one depth more."
        )


def _failures_text(uncertainty_of: Uncertainty, certified: Candidate, layers: int) -> Iterator[str]:
    failed, count = uncertainty_of.failures()
    if failed:
        yield (
            f"{failed} of {count} runs failed at the depths that learn; each depth was judged as "
            "if its seeds failed as often."
        )
        return
    seeds = uncertainty_of.runs[certified].count
    share = 100 * excluded_failure_rate(seeds)
    yield (
        "That holds if seeds fail no more often than they did here: "
        f"{seeds} seeds without a failure cannot exclude that up to {share:.0f} % of fresh seeds "
        f"fail at {candidates_text([certified], layers)}."
    )


def plausible_text(answer: Answer, *, measured: int) -> str:
    """Return the plausible depths of an answer that has them, of so many measured ones."""
    candidates = answer.plausible_candidates
    assert candidates is not None
    the_answer = "the true answer"
    if answer.claims_corrected:
        the_answer += " corrected for chance"
    if len(candidates) == 1:
        [only_candidate] = candidates
        return (
            "Among the measured depths, at the rates found, only "
            f"{count_text(only_candidate, answer.layers)} can be {the_answer} (at 95 %)."
        )
    if len(candidates) == measured:
        return f"No measured depth can be ruled out as {the_answer}."
    others = either_text(candidates, answer.layers)
    return f"{capitalized(the_answer)} at the rates found may be {others}."


def next_step(answer: Answer) -> str | None:
    """Return the command that would settle an open answer, or None.

    Never one that adds seeds: those that were not planned count for the curve alone.
    """
    name = recorded_search(answer)
    chosen = answer.claimed_point or answer.operating_point
    if name is None or chosen is None or chosen.candidate.is_reference or not answer.open_look:
        return None
    return on_its_machine(answer, f"elsa-tune resume {name} --until certified")


def seeds_for_another_search(answer: Answer) -> int | None:
    """Return with how many seeds a depth another search may certify what is open; None for none.

    Its seeds are fresh. A hunt chooses its own.
    """
    chosen = answer.claimed_point or answer.operating_point
    if recorded_search(answer) is None or chosen is None or chosen.candidate.is_reference:
        return None
    if answer.looks is not None and answer.looks.is_walk:
        return None
    if answer.reason is Reason.TOO_FEW_SEEDS:
        return USUAL_SEEDS
    advice = answer.claimed_would_certify.get(chosen.candidate)
    return None if advice is None else advice.seeds


def recorded_search(answer: Answer) -> str | None:
    """Return the recorded search that alone gave an answer's runs, as a command names it, or None.

    Only a single one can go on.
    """
    searches: set[SearchKey] = set()
    for point in answer.points:
        for run in point.runs:
            if run.row.trial:
                searches.add(run.row.search_key)
    if len(searches) != 1 or answer.is_search_gone:
        return None
    name, _ = searches.pop()
    return answer.search_arguments or shlex.quote(str(name))


def export_command(answer: Answer) -> str:
    """Return the command that trains and saves the model of an answer from one recorded search.

    "" where there is no such search, or nothing to export.
    """
    name = recorded_search(answer)
    if name is None or not answer.is_answered:
        return ""
    out = shlex.quote(f"{answer.search}-model")
    return on_its_machine(answer, f"elsa-tune export {name} --out {out}")


def on_its_machine(curve: FreezeCurve, command: str) -> str:
    """Return a command on a curve's search, with the machine to type it on if that is another."""
    if curve.search_host is None:
        return command
    return f"on {curve.search_host}: {command}"
