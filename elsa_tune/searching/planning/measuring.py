"""What is measured next: every depth alike, or by the walk of a hunt, which measures the full
model and the depths that can decide, looks at most twice, and stops.

Which trials run never endangers the certificate (docs/concepts/how-sure.md): it uses planned seeds
at planned looks alone. Measured and simulated: bench/strategy.py.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.certainty import contrast_of, second_look_promises
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.searching.planning.exploring import waits_for_full_model
from elsa_tune.searching.planning.known import KnownTrial, relative_cost, tried
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase, TrialSpec
from elsa_tune.words import depths_text

Rates = Mapping[FreezeDepth, float]


def measuring_trials(
    spec: SearchSpec, rates: Rates, known: Iterable[KnownTrial]
) -> tuple[TrialSpec, ...]:
    """Measuring trials still to run: every depth's first seed, then every depth's second, ...

    So that a search that runs out of time has an answer, if a less certain one.
    """
    finished = {one.trial.key for one in known if one.status.is_final}
    wanted = (
        spec.trial(Phase.MEASURE, depth, rates[depth], seed)
        for seed in spec.measuring_seeds
        for depth in spec.depths
        if depth in rates
    )
    return tuple(trial for trial in wanted if trial.key not in finished)


@dataclass(frozen=True, slots=True)
class Walk:
    """trials: to measure now. why: what for, or what ended the walk. waits: for a depth's rate."""

    trials: tuple[TrialSpec, ...]
    why: str
    waits: bool = False


def chosen_ladder(
    spec: SearchSpec, rates: Rates, known: Sequence[KnownTrial], curve: FreezeCurve | None
) -> list[int] | None:
    """Frozen layers of the ladder's depths that a hunt tests; None as long as that is open.

    Exploring runs decide it, whose seeds no test uses: that of the first deep depth beside the full
    model's. Far above the target, none is tested; above it, only the last. The measured runs'
    predictions tell what is far.
    """
    every = [depth.frozen_layers for depth in spec.ladder]
    if not spec.ladder_error:
        return every
    compared = spec.explored[:2]
    full = None if curve is None else curve.full
    seeds = 0 if full is None else full.seeds
    if curve is None or seeds < spec.first_seeds(FULL_MODEL) or set(compared) - rates.keys():
        return None
    error = _example_error(spec, curve)
    reference, found = (_explored(known, depth, rates[depth]) for depth in compared)
    above = found - spec.target * reference
    if error is None or not math.isfinite(above) or above <= spec.policy.likely * error:
        return every
    return [] if above > spec.policy.clear * error else every[-1:]


def walk(
    spec: SearchSpec,
    rates: Rates,
    known: Sequence[KnownTrial],
    curve: FreezeCurve | None,
    tested: Sequence[int] | None,
) -> Walk:
    """What a hunt measures next; nothing where it waits or has ended.

    rates: of the depths whose exploring has ended. curve: of what has been measured, None before
    anything has. tested: what `chosen_ladder` said when it first said something.
    """
    left = measuring_trials(spec, rates, known)

    def lacking(depth: FreezeDepth, count: int) -> tuple[TrialSpec, ...]:
        """Of the first `count` seeds of a depth, those that have not ended."""
        seeds = spec.measuring_seeds[:count]
        return tuple(one for one in left if one.depth == depth and one.seed in seeds)

    def first_looks(depths: Iterable[FreezeDepth]) -> tuple[TrialSpec, ...]:
        """What they lack, one depth after the other; nothing of those without a rate."""
        return tuple(one for depth in depths for one in lacking(depth, spec.first_seeds(depth)))

    def going(trials: tuple[TrialSpec, ...], why: str, waits: bool = False) -> Walk:
        """Continue with these trials, then with those that may turn out unnecessary."""
        more = (one for one in ahead if spec.speculate and one not in trials)
        return Walk((*trials, *more), why, waits)

    ahead: tuple[TrialSpec, ...] = ()
    deep = [depth for depth in spec.depths if depth in spec.explored and depth != FULL_MODEL]
    ladder = [depth for depth in spec.ladder if depth.frozen_layers in (tested or ())]
    explored = {depth: _explored(known, depth, rates[depth]) for depth in deep if depth in rates}
    # How seeds spread is learnt where they are cheap, before anything is tested. What the first
    # deep depth follows must be decided before; beyond a whole ladder the walk will hardly come.
    begin = [depth for depth in deep[1:] if _is_free(spec, depth)]
    if tested is not None and (len(ladder) < len(spec.ladder) or not ladder):
        begin.insert(0, deep[0])
    is_at_chance = waits_for_full_model(spec, known)
    trials = lacking(FULL_MODEL, 1 if is_at_chance else spec.first_seeds(FULL_MODEL))
    if FULL_MODEL not in rates or trials:
        if not is_at_chance:
            # Needed in any case, by workers that would wait for the full model's trials.
            ended = (one.quality for one in tried(known, FULL_MODEL) if one.status.is_final)
            enough = spec.target * max((q for q in ended if q is not None), default=math.inf)
            trials += first_looks(depth for depth in begin if explored.get(depth, 0.0) >= enough)
            ahead = lacking(FULL_MODEL, spec.seeds_at(-1, FULL_MODEL))
        return going(trials, "the full model comes first", waits=FULL_MODEL not in rates)
    full = None if curve is None else curve.full
    if curve is None or full is None or full.quality is None:
        return Walk((), "the full model gave no result")
    error = _example_error(spec, curve)
    if error is not None and curve.chance is not None:
        of_full = error / math.hypot(1, spec.target)
        is_at_chance |= full.quality - curve.chance <= spec.policy.above_chance * of_full
    if is_at_chance:
        return Walk((), "the full model is no better than a constant answer")
    if missing := [depth for depth in deep if depth not in rates]:
        return Walk(
            (), f"the learning rate of {depths_text(missing, spec.layers)} is being explored", True
        )
    enough = spec.target * full.quality
    far = math.inf if error is None else spec.policy.clear * error
    hopeless = {depth for depth in deep if explored[depth] - enough < -far}
    begin = [depth for depth in begin if _is_free(spec, depth) or depth not in hopeless]
    order = [*ladder, *deep]
    ahead = first_looks(depth for depth in order if depth not in hopeless)
    if trials := first_looks([*begin, *ladder[:1]]):
        return going(trials, f"the first look at {depths_text([trials[0].depth], spec.layers)}")
    points = {point.depth: point for point in curve.measured}
    for depth in order:
        where = depths_text([depth], spec.layers)
        if depth not in rates:
            return Walk((), f"the learning rate of {where} is being explored", waits=True)
        if depth in hopeless and not _is_free(spec, depth):
            return Walk((), f"{where} is far from the target")
        if trials := first_looks([depth]):
            return going(trials, f"the first look at {where}")
        point = points.get(depth)
        contrast = contrast_of(curve, depth, spec.target)
        if contrast is not None and contrast.lower > spec.policy.rounding:
            continue
        if point is None or point.quality is None:
            return Walk((), f"{where} gave no result")
        if contrast is None and point.quality > enough:
            # Too few seeds to estimate the spread; the next depth's may help.
            for other in order[order.index(depth) + 1 :]:
                trials = () if other in hopeless else lacking(other, spec.first_seeds(other))
                if trials:
                    return going(trials, f"the first look at {depths_text([other], spec.layers)}")
        trials = lacking(FULL_MODEL, spec.seeds_at(-1, FULL_MODEL))
        trials += lacking(depth, spec.seeds_at(-1, depth))
        if not trials:
            return Walk((), f"{where} is undecided after its last look")
        promise, least, told = float(point.quality > enough), spec.policy.promising, ""
        if contrast is not None:
            promise = second_look_promises(curve, depth, spec.target)
            told = f", which would certify it with about {100 * promise:.0f} %"
        if spec.until_certified:
            least = 0.0 if contrast is None else spec.policy.no_promise
        if promise < least:
            return Walk((), f"{where} is undecided without a second look{told}")
        return going(trials, f"the second look at {where}{told}")
    return Walk((), "every depth keeps the target")


def _is_free(spec: SearchSpec, depth: FreezeDepth) -> bool:
    return relative_cost(spec, depth) < spec.policy.free_cost


def _example_error(spec: SearchSpec, curve: FreezeCurve) -> float | None:
    """The standard error that evaluation examples leave a contrast with the full model; None where
    it is not known. Both depths' are taken as independent, so fewer contrasts are called clear.
    """
    seen = curve.uncertainty
    variance = None if seen is None else seen.example_variance(FULL_MODEL)
    return None if variance is None else math.sqrt(variance) * math.hypot(1, spec.target)


def _explored(known: Sequence[KnownTrial], depth: FreezeDepth, rate: float) -> float:
    """The quality of the depth's exploring run at its rate; infinite where there is none."""
    runs = (one for one in tried(known, depth) if one.trial.learning_rate == rate)
    return max((one.quality for one in runs if one.quality is not None), default=math.inf)
