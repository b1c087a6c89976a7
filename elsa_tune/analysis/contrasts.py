"""The contrast of a depth with the full model, what a target means, and what a look promises."""

import math
from collections.abc import Sequence
from dataclasses import replace

from elsa_tune.analysis.answer import Answer, QualityClaimed, quality_claimed, score_at_target
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.evidence import NORMAL, levels
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.policy import Claim


def contrasts_of(
    answer: Answer, points: Sequence[CurvePoint], target: float, *, corrected: bool
) -> dict[Candidate, Interval]:
    """Return the contrast of each point that has seeds enough for one."""
    contrasts: dict[Candidate, Interval] = {}
    for point in points:
        contrast = contrast_of(answer, point.candidate, target, corrected=corrected)
        if contrast is not None:
            contrasts[point.candidate] = contrast
    return contrasts


def contrast_of(
    curve: FreezeCurve,
    candidate: Candidate,
    target: float,
    *,
    corrected: bool = False,
    tasks: int = 1,
) -> Interval | None:
    """Return D = (q_N - b) - target (q_0 - b), above 0 where the depth reaches the target.

    None with too few seeds. b: 0, or chance where corrected. tasks: how many are asked about
    together.
    """
    if curve.looks is None or candidate.is_reference:
        runs = curve.uncertainty.runs
        if candidate not in runs or REFERENCE not in runs:
            return None
        fewest_seeds = min(runs[candidate].count, runs[REFERENCE].count)
        ends = curve.policy.ends_of_test(fewest_seeds, tasks)
        return curve.uncertainty.contrast(candidate, target, corrected=corrected, ends=ends)
    latest = None
    for look, seen in curve.looks.taken(candidate):
        ends = (look.half, 1 - look.half / tasks, look.level)
        contrast = seen.contrast(candidate, target, corrected=corrected, ends=ends)
        if contrast is None:
            continue  # so few seeds say nothing of their spread; the next look has more
        latest = replace(contrast, look=look)
        if latest.lower > curve.policy.rounding:
            break  # what a later look would say cannot take it back
    return latest


def claimed_contrast(curve: FreezeCurve, candidate: Candidate, target: float) -> Interval | None:
    """Return the contrast that the curve's search claims; as `contrast_of`."""
    corrected = _claims_corrected(curve)
    return contrast_of(curve, candidate, target, corrected=corrected)


def _claims_corrected(curve: FreezeCurve) -> bool:
    """Whether the one claim of the curve's search is of what is gained over chance."""
    return quality_claimed(curve) is QualityClaimed.CORRECTED


def second_look_promises(curve: FreezeCurve, candidate: Candidate, target: float) -> float:
    """Return the probability that the second look would reject, from the claimed contrast now."""
    if curve.looks is None:
        return 0.0
    taken = curve.looks.taken(candidate)
    if len(taken) != 1:
        return 0.0
    [(first_look, seen)] = taken
    if first_look.planned < 2:
        return 0.0
    planned = curve.looks.by_candidate[candidate]
    _, level = levels(planned.counts, planned.error, curve.policy.first_look_share)
    ends = (level / 2, 1 - level / 2, level)
    expected = seen.contrast(
        candidate,
        target,
        corrected=_claims_corrected(curve),
        as_if_seeds=planned.counts[1],
        ends=ends,
    )
    if expected is None:
        return 0.0
    variances: list[float] = []
    for seeds in planned.counts:
        of_depth = seen.spread(candidate, seeds.depth).variance
        of_full = seen.spread(REFERENCE, seeds.full).variance
        variances.append(of_depth + target**2 * of_full)
    now, then = variances
    # By how much, one standard deviation, the contrast may move until then.
    step = math.sqrt(max(now - then, 1e-12))
    return NORMAL.cdf(expected.lower / step)


def target_score(full_quality: float, target: float, *, claim: Claim, chance: float) -> float:
    """Return the score that a target means, of what a search claims."""
    base = 0.0 if claim is Claim.BOTH else chance
    return score_at_target(full_quality, target, base)


def is_far_below(curve: FreezeCurve, quality: float, target: float) -> bool:
    """Whether a quality lies so far below the target that no more seeds are worth it."""
    error = example_error(curve, target)
    if error is None or curve.full is None or curve.full.quality is None:
        return False
    policy = curve.policy
    chance = curve.chance or 0.0
    enough = target_score(curve.full.quality, target, claim=policy.claim, chance=chance)
    return enough - quality > policy.clear * error


def example_error(curve: FreezeCurve, target: float) -> float | None:
    """Return the unit in which a contrast with the full model is called clear, by examples alone.

    It is the standard error of two independent scores that examples move as far as the full
    model's; None where it is not known. A lower score may move farther. With a depth's own spread
    at a target of 90 % the error is 3.1 units where the full model has a Pearson of .97, 2.6 at a
    Spearman of .97, 1.5 at a Pearson of .90, 1.2 in Matthews and 1.0 to 1.1 in accuracy and F1
    (simulated), so that 2.5 units are only .8 errors at a Pearson of .97. The unit decides what is
    measured; at most 4.0 % of simulated studies of a kind certified falsely all the same.
    """
    variance = curve.uncertainty.example_variance(REFERENCE)
    if variance is None:
        return None
    return math.sqrt(variance) * math.hypot(1, target)
