"""Which learning rates a search explores next, and when a depth has its own.

Pure functions of the specification and the trials so far: a fresh, a resumed and a dry run agree.
"""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from elsa_tune.searching.planning.known import KnownTrial, Slot, relative_cost, tried
from elsa_tune.specs.border import has_learnt, plateau
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import SearchSpec, Strategy
from elsa_tune.specs.trial import Phase, TrialStatus, canonical_rate, trial_score


def exploring_slots(spec: SearchSpec, known: Iterable[KnownTrial]) -> tuple[Slot, ...]:
    """Exploring trials that could start now: unfinished ones first, at the learning rate they had;
    then those of the given rates; then, for each depth that has had these, the next rate outward
    from a best one that lies at their border.

    Depths take turns, so that a search that is cut short has looked at all of them alike. Trials
    that run are among the known ones, and a depth does not go outward before they end: no slots may
    mean that there will be some.
    """
    known = list(known)
    exploring = [one for one in known if one.trial.phase is Phase.EXPLORE]
    restarts = [
        Slot(depth=one.trial.depth, learning_rate=one.trial.learning_rate)
        for one in exploring
        if one.is_unfinished
    ]
    had = {depth: len(tried(exploring, depth)) for depth in spec.explored}
    fresh = [
        Slot(depth=depth)
        for number in range(spec.tries)
        for depth in spec.explored
        if number >= had[depth]
    ]
    slots = [*restarts, *fresh, *_outward(spec, exploring)]
    if spec.strategy is Strategy.HUNT:
        slots.sort(key=lambda slot: not slot.depth.is_full_model)
    if waits_for_full_model(spec, known):
        slots = [slot for slot in slots if slot.depth.is_full_model]
    if spec.exploring_limit is None:
        return tuple(slots)
    return tuple(slots[: len(restarts) + max(0, spec.exploring_limit - len(exploring))])


def slots_left(
    spec: SearchSpec, known: Sequence[KnownTrial], kept: Collection[FreezeDepth]
) -> tuple[Slot, ...]:
    """Exploring trials that could start now, beside the depths that keep their rates.

    kept: those depths, which are being measured. They explore no further, and only what failed
    there is tried again.
    """
    failed = failed_slots(known)
    slots = exploring_slots(spec, known)
    return tuple(slot for slot in slots if slot.depth not in kept or slot in failed)


def failed_slots(known: Iterable[KnownTrial]) -> tuple[Slot, ...]:
    """Exploring trials that failed, to be tried again at their rates; diverged ones did not."""
    return tuple(
        Slot(depth=one.trial.depth, learning_rate=one.trial.learning_rate)
        for one in known
        if one.trial.phase is Phase.EXPLORE and one.status is TrialStatus.FAILED
    )


def measured_rates(known: Iterable[KnownTrial]) -> dict[FreezeDepth, float]:
    """The learning rates of the depths whose measuring has begun: they keep them."""
    return {
        one.trial.depth: one.trial.learning_rate
        for one in known
        if one.trial.phase is Phase.MEASURE
    }


def waits_for_full_model(spec: SearchSpec, known: Iterable[KnownTrial]) -> bool:
    """Whether a hunt has tried the given rates at the full model, and no trial of it so far is
    better than a constant answer by more than evaluation examples may give.

    It is measured next: if it still is no better then, no other depth matters.
    """
    if spec.strategy is not Strategy.HUNT:
        return False
    full = [one for one in known if one.trial.depth.is_full_model and one.status.is_final]
    if sum(one.trial.phase is Phase.EXPLORE for one in full) < spec.tries:
        return False
    variance = spec.chance * (1 - spec.chance) / (spec.evaluation_examples or math.inf)
    policy = spec.policy
    level = spec.chance + max(policy.noise, policy.above_chance * math.sqrt(max(0.0, variance)))
    return max((one.score for one in full if one.score is not None), default=level) <= level


def _outward(spec: SearchSpec, exploring: Sequence[KnownTrial]) -> Iterator[Slot]:
    """Each depth's next rate beyond those given, the shallowest and dearest depth first."""
    every = {depth: tried(exploring, depth) for depth in spec.explored}
    full = every.get(FULL_MODEL, ())
    full_may_learn = not full or has_learnt(scores_of(full), spec.chance, spec.policy.noise)
    lent: float | None = None
    for depth, here in every.items():
        if len(here) >= spec.tries and all(one.status.is_final for one in here):
            may_learn = depth != FULL_MODEL and full_may_learn
            rate = outward(spec, here, _patience(spec, depth), lent, may_learn)
            if rate is not None:
                yield Slot(depth=depth, learning_rate=rate)
        scores, lent = scores_of(here), None
        if has_learnt(scores, spec.chance, spec.policy.noise):
            lent = max(scores, key=lambda rate: (scores[rate], -rate))


def settled_depths(spec: SearchSpec, known: Iterable[KnownTrial]) -> frozenset[FreezeDepth]:
    """The depths whose exploring has ended, whatever the trials of other depths will say.

    A depth that goes outward heeds the shallower ones and the full model; before these have ended
    it is settled only where it would stop beside any of them.
    """
    exploring = [one for one in known if one.trial.phase is Phase.EXPLORE]
    waiting = {slot.depth for slot in exploring_slots(spec, exploring)}
    limited = spec.exploring_limit is not None and len(exploring) >= spec.exploring_limit
    settled: list[FreezeDepth] = []
    for place, depth in enumerate(spec.explored):
        here = tried(exploring, depth)
        ended = all(one.status.is_final for one in here) and (limited or len(here) >= spec.tries)
        if depth in waiting or not ended or not here:
            continue
        if len(settled) == place or limited or not _may_go_on(spec, exploring, depth):
            settled.append(depth)
    leading = spec.explored if spec.strategy is Strategy.HUNT else (FULL_MODEL,)
    if set(leading[:2]) <= set(settled) or not spec.explored:
        settled += [depth for depth in spec.depths if depth not in spec.explored]
    return frozenset(settled)


def _may_go_on(spec: SearchSpec, exploring: Sequence[KnownTrial], depth: FreezeDepth) -> bool:
    """Whether some outcome of other depths would send this one further outward."""
    here, patience = tried(exploring, depth), _patience(spec, depth)
    return spec.extend is not None and any(
        outward(spec, here, patience, lent, may_learn) is not None
        for lent in (None, spec.extend.high)
        for may_learn in (True, False)
    )


def _patience(spec: SearchSpec, depth: FreezeDepth) -> int:
    return spec.policy.cheap_patience if is_cheap(spec, depth) else 1


def is_cheap(spec: SearchSpec, depth: FreezeDepth) -> bool:
    return relative_cost(spec, depth) < spec.policy.cheap_cost


def best_rates(spec: SearchSpec, known: Sequence[KnownTrial]) -> dict[FreezeDepth, float]:
    """Each depth's learning rate for measuring; a depth that no trial says anything of is left out.

    The best score (`KnownTrial.scores`) among completed exploring trials; where none completed
    (time was up), among all that reported, compared at the last evaluation they share. Ties go to
    the lower rate. Depths that were not explored take the full model's rate,
    those of a hunt's ladder one between it and the next explored depth's.
    """
    if not spec.explored:
        values = spec.rates.values
        assert values is not None  # only a single rate leaves nothing to explore
        return dict.fromkeys(spec.depths, values[0])
    chosen: dict[FreezeDepth, float] = {}
    for depth in spec.explored:
        at_depth = tried(known, depth)
        diverged = [one for one in at_depth if one.status is TrialStatus.DIVERGED]
        if diverged and len(diverged) == len(at_depth) >= spec.tries:
            # Its measuring seeds will diverge too and count as chance, which is the truth about it.
            chosen[depth] = min(one.trial.learning_rate for one in diverged)
            continue
        reported = [one for one in at_depth if one.scores and one not in diverged]
        completed = [one for one in reported if one.status is TrialStatus.COMPLETED]
        if candidates := completed or reported:
            age = min(len(one.scores) for one in candidates)
            merits = {
                one.trial.learning_rate: trial_score(spec.recipe.selection, one.scores[:age])
                for one in candidates
            }
            chosen[depth] = max(merits, key=lambda rate: (merits[rate], -rate))
    if FULL_MODEL in chosen:
        for depth in spec.depths:
            if depth not in spec.explored:
                chosen[depth] = _between(spec, chosen, depth)
    return chosen


def _between(spec: SearchSpec, chosen: Mapping[FreezeDepth, float], depth: FreezeDepth) -> float:
    """That of a depth not explored; in a hunt, in proportion to those explored around it."""
    full = chosen[FULL_MODEL]
    deeper = next((one for one in spec.explored if one > depth and one in chosen), None)
    if deeper is None or spec.strategy is Strategy.EVEN:
        return full
    share = depth.frozen_layers / deeper.frozen_layers
    return canonical_rate(full * (chosen[deeper] / full) ** share)


def outward(
    spec: SearchSpec,
    tried: Sequence[KnownTrial],
    patience: int = 1,
    lent: float | None = None,
    may_learn: bool = False,
) -> float | None:
    """The next rate beyond those tried; None where the best lies inside, or no more may be tried.

    tried: all that the depth has had, one or more, each ended; the first `spec.tries` of them were
    tries of the given range. patience: how many rates beyond its best the depth tries before it
    stops. lent: the best rate of the next shallower depth, None where it has none. may_learn: that
    nothing was learnt at any rate so far does not mean that nothing can be, because the full model
    does learn.
    """
    bounds, chance, policy = spec.extend, spec.chance, spec.policy
    if bounds is None or len(tried) >= spec.tries + bounds.tries:
        return None
    rates = sorted({one.trial.learning_rate for one in tried})
    diverged = [one.trial.learning_rate for one in tried if one.status is TrialStatus.DIVERGED]
    lower = _inside(rates[0] / policy.rate_factor, rates[0], spec)
    higher = _inside(max(policy.rate_factor * rates[-1], lent or 0.0), rates[-1], spec)
    scores = scores_of(tried)
    if not scores:
        return lower if len(diverged) == len(tried) else None
    if not has_learnt(scores, chance, policy.noise):
        if may_learn:
            return None if diverged else higher
        lowest, highest = spec.given_rates
        if rates[0] > lowest:  # large models are known to collapse at higher ones
            return lowest
        if rates[0] < lowest or rates[-1] > highest:
            return None
        return lower if diverged else higher
    low, high = plateau(scores, policy.noise)
    above = [rate for rate in rates if rate > low]
    if above and above[0] > policy.widest_gap * low:
        return canonical_rate(policy.rate_factor * low)
    if len(above) < patience and not any(rate > low for rate in diverged):
        return higher
    return lower if high == rates[0] else None


def scores_of(tried: Sequence[KnownTrial]) -> dict[float, float]:
    """The score of each rate that ran to its end."""
    return {
        one.trial.learning_rate: one.score
        for one in tried
        if one.status is TrialStatus.COMPLETED and one.score is not None
    }


def _inside(wanted: float, rate: float, spec: SearchSpec) -> float | None:
    """Cut off at the bounds; None where that is hardly another rate."""
    assert spec.extend is not None
    found = min(max(wanted, spec.extend.low), spec.extend.high)
    step = max(found / rate, rate / found)
    return canonical_rate(found) if step >= spec.policy.least_step else None
