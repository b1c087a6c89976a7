"""Away from the edge: not the highest rate that trains, where one step more learns nothing.

One run a rate cannot tell a rate that always trains from one at which every third seed fails. Of
what searches of MiniLM and MPNet measured, runs one step below a collapse failed far more often
than others (bench/edge.py).
"""

from elsa_tune.searching.planning.known import KnownTrial, Trials, scores_of
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import trial_score
from elsa_tune.words import capitalized, rate_text


def away_from_edge(spec: SearchSpec, tries: Trials, best: float) -> float:
    """Return the rate to measure at: the best one, or the next lower one where that is at the edge.

    The lower one must lie near and have cost little quality. The full model keeps its best rate:
    what others keep of it must not look better because it was trained at another. So does every
    candidate of a search that keeps to the given rates, as a published protocol does.
    tries: all exploring trials of one candidate. best: the rate of the best completed one.
    """
    share_kept = spec.policy.kept_off_edge
    if share_kept is None or spec.extend is None:
        return best
    if tries[0].candidate.is_reference or not is_at_edge(spec, tries, best):
        return best
    lower = [trial for trial in tries if trial.is_completed and trial.learning_rate < best]
    if not lower:
        return best
    next_lower = max(lower, key=_rate)
    if best > spec.policy.widest_gap * next_lower.learning_rate:
        return best
    gain = _gain(spec, _at(best, tries))
    if _gain(spec, next_lower) < share_kept * gain:
        return best
    return next_lower.learning_rate


def is_at_edge(spec: SearchSpec, tries: Trials, best: float) -> bool:
    """Whether training collapsed at the next higher rate: it diverged, or learnt next to nothing.

    That is judged at its last evaluation, if the best rate's trial had learnt by then. A trial that
    crashed or was interrupted says nothing. Arguments as of `away_from_edge`.
    """
    higher = [trial for trial in tries if trial.learning_rate > best and not trial.is_unfinished]
    if not higher:
        return False
    next_higher = min(higher, key=_rate)
    if next_higher.learning_rate > spec.policy.widest_gap * best:
        return False
    if next_higher.is_diverged:
        return True
    age = len(next_higher.scores)
    if age == 0:
        return False
    best_gain = _gain(spec, _at(best, tries), age)
    has_best_learnt = best_gain > spec.policy.noise
    least_gain = spec.policy.collapsed_gain * best_gain
    return has_best_learnt and _gain(spec, next_higher, age) < least_gain


def edge_note(spec: SearchSpec, tries: Trials, measured: float) -> str:
    """Say that one candidate is measured below its best rate, and why; "" where it is not.

    tries: its exploring trials. measured: the rate that it is measured at.
    """
    scores = scores_of(tries)
    higher = [rate for rate in scores if rate > measured]
    if measured not in scores or not higher:
        return ""
    best = max(higher, key=lambda rate: scores[rate])
    if scores[best] <= scores[measured] or not is_at_edge(spec, tries, best):
        return ""
    name = capitalized(tries[0].candidate.describe(spec.layers))
    verb = "are" if tries[0].candidate.is_plural(spec.layers) else "is"
    return (
        f"{name} {verb} measured at {rate_text(measured)}, not at {rate_text(best)}, which did "
        "best: a step above that training collapsed"
    )


def _gain(spec: SearchSpec, trial: KnownTrial, age: int | None = None) -> float:
    """Return what a trial gained over guessing after this many evaluations, or after all."""
    scores = trial.scores[:age]
    score = trial_score(spec.recipe.selection, scores)
    return score - spec.chance


def _at(rate: float, tries: Trials) -> KnownTrial:
    """Return the completed trial of a rate."""
    return next(one for one in tries if one.learning_rate == rate and one.is_completed)


def _rate(trial: KnownTrial) -> float:
    return trial.learning_rate
