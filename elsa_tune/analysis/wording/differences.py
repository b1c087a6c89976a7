"""Differences between ways that are more than the noise of seeds and rows, and reruns, in words."""

import math

from elsa_tune.analysis.answer import Reason
from elsa_tune.analysis.comparing.ways import Differences, Rerun, Way, WayBasis, WayComparison
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.learnt import rows_counted
from elsa_tune.analysis.statistics.intervals import SAME_QUALITY
from elsa_tune.analysis.wording.certainty import why_not_certified
from elsa_tune.analysis.wording.ways import are_plural, name_of, names_of
from elsa_tune.words import capitalized, points


def differences_text(comparison: WayComparison) -> str:
    """Say of which ways one is the best, how they lie beside the full model, what is not counted.

    "" where there is no answer.
    """
    if not comparison.is_answered:
        return ""
    if comparison.pools_searches:
        return f"not told: {why_not_certified(comparison.curve, Reason.LOOKS_NOT_PLANNED)}."
    differences = comparison.differences
    if comparison.unfinished:
        return "not told before every way has the scores of all its runs."
    if differences is None:
        return (
            f"not known: {_why_no_spread(comparison)} how far seeds move the scores, and "
            "how far other evaluation rows would move them is not known either."
        )
    texts = [
        _best_of(comparison, differences),
        _beside_full(comparison, differences),
        _not_counted(comparison, differences),
    ]
    return " ".join(text for text in texts if text)


def _why_no_spread(comparison: WayComparison) -> str:
    """Say why a comparison without differences does not know the spread over seeds."""
    stds = [way.point.std for way in comparison.ways if way.point.seeds > 1]
    if any(std is not None and std <= SAME_QUALITY for std in stds):
        return "seeds that all score the same do not tell"
    if None in stds:
        return "means without a standard deviation do not tell"
    return "too few ways have a second run to tell"


def _best_of(comparison: WayComparison, differences: Differences) -> str:
    """Say of which ways one is the truly best, and how many lie further behind."""
    possible = differences.possible
    names = _names(comparison, possible)
    further = len(comparison.ways) - len(possible) - len(differences.untested)
    beyond = f"more than the noise of {_noise(comparison, differences)}"
    if not further:
        return f"no way scores lower than the best by {beyond}, at 95 %."
    if len(possible) == 1:
        any_other = "any other that could be tested" if differences.untested else "any other"
        scores = _scoring(comparison, possible)
        return f"{scores} higher than {any_other} by {beyond}, at 95 %."
    noise = _noise(comparison, differences)
    of_tested = " of those that could be tested" if differences.untested else ""
    best = f"at 95 %, beyond the noise of {noise}, the best{of_tested} is one of {names}"
    left_out = _left_out(comparison, differences)
    if len(left_out) == 1:
        return f"{best}, and not {_names(comparison, left_out)}."
    return f"{best}, and none of the other {further}."


def _left_out(comparison: WayComparison, differences: Differences) -> tuple[Way, ...]:
    """Return the ways that were tested and cannot be the best."""
    others = {way.candidate for way in (*differences.possible, *differences.untested)}
    return tuple(way for way in comparison.ways if way.candidate not in others)


def _noise(comparison: WayComparison, differences: Differences) -> str:
    """Return what the differences were held against."""
    if not differences.counts_rows:
        return "seeds"
    if len(differences.without_spread) == len(comparison.ways):
        return "evaluation rows"
    return "seeds and evaluation rows"


def _beside_full(comparison: WayComparison, differences: Differences) -> str:
    """Say which ways differ from the full model; "" where that was not measured, or not tested."""
    full = comparison.curve.full
    if full is None or any(way.candidate == full.candidate for way in differences.untested):
        return ""
    name = name_of(comparison.curve, full.candidate)
    above = differences.above_full
    below = differences.below_full
    if above and below:
        surely = f"{_scoring(comparison, above)} higher than {name}"
        return f"Likewise, {surely}, and {_scoring(comparison, below)} lower."
    if above:
        return f"Likewise, {_scoring(comparison, above)} higher than {name}."
    if below:
        return f"Likewise, {_scoring(comparison, below)} lower than {name}."
    return f"No way can be told from {name}."


def _scoring(comparison: WayComparison, ways: tuple[Way, ...]) -> str:
    candidates = [way.candidate for way in ways]
    verb = "score" if are_plural(comparison.curve, candidates) else "scores"
    return f"{_names(comparison, ways)} {verb}"


def _names(comparison: WayComparison, ways: tuple[Way, ...]) -> str:
    return names_of(comparison.curve, [way.candidate for way in ways])


def _not_counted(comparison: WayComparison, differences: Differences) -> str:
    """Say what could not be counted, so that differences look too sure; "" if all was."""
    texts: list[str] = []
    if differences.untested:
        names = capitalized(_names(comparison, differences.untested))
        texts.append(
            f"{names} may lie anywhere: nothing tells how far seeds or rows would move the score."
        )
    if not differences.counts_rows:
        texts.append("How far other evaluation rows would move the scores is not known.")
    without = differences.without_spread
    if len(without) == len(comparison.ways):
        texts.append("How far another seed would move the scores is not known.")
    elif without and differences.counts_rows:
        names = _names(comparison, without)
        texts.append(f"How far another seed would move {names} is not known.")
    return " ".join(texts)


def rerun_text(comparison: WayComparison) -> str:
    """Say what a rerun would need to tell the best way from another; "" where none is needed.

    That is where the claim is certified, or no other way may be the best.
    """
    differences = comparison.differences
    is_certified = comparison.basis is WayBasis.CERTIFIED
    if is_certified or differences is None or differences.rerun is None:
        return ""
    rerun = differences.rerun
    name = name_of(comparison.curve, rerun.way.candidate)
    other = name_of(comparison.curve, rerun.other.candidate)
    verb = "are" if are_plural(comparison.curve, [rerun.way.candidate]) else "is"
    apart = points(rerun.difference)
    unit = "point" if apart == "1.0" else "points"
    return (
        f"if {name} {verb} truly better than {other} by the measured {apart} {unit}, a rerun of "
        f"the two finds that four times out of five with {_needs(comparison.curve, rerun)}."
    )


def _needs(curve: FreezeCurve, rerun: Rerun) -> str:
    """Return the seeds and rows of a rerun, as far as they are known."""
    seeds = "several seeds"
    if rerun.seeds is not None:
        seeds = f"{_rounded_up(rerun.seeds)} seeds"
    if rerun.rows is None and rerun.seeds is None:
        return f"{seeds} of each and a known number of evaluation rows"
    if rerun.rows is None:
        return f"at least {seeds} of each; how many evaluation rows is not known"
    noun = "evaluation rows"
    rows_now = rows_counted(curve)
    if rows_now != curve.examples:
        noun = "independent evaluation rows"
    if rerun.rows == rows_now:
        return f"{seeds} of each on the same {rows_now:,} {noun}"
    rows = _rounded_up(rerun.rows)
    if rerun.seeds is None:
        return f"{seeds} of each and at least {rows} {noun}"
    return f"{seeds} of each on {rows} {noun}"


def _rounded_up(count: int) -> str:
    """Write a number that is estimated: above 99 by its first two digits."""
    step = 10 ** max(0, len(str(count)) - 2)
    return f"{math.ceil(count / step) * step:,}"
