"""How sure an answer is: what is certified, what is plausible, what would certify more.

Fixed-sequence testing: the hypotheses D_k <= 0 are tested each at 5 %, from the full model down,
until the first that is not rejected, which keeps the family-wise error at 5 % (Maurer, Hothorn and
Lehmacher 1995; Westfall and Krishen 2001, J. Stat. Plan. Inference 99, 25-40). Over several tasks
an intersection-union test (Berger 1982, Technometrics 24, 295-300): each task's must reject.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from elsa_tune.analysis.answer import (
    DEFAULT_TARGET,
    Answer,
    Certified,
    Contrasts,
    Reason,
    WouldCertify,
    quality_claimed,
)
from elsa_tune.analysis.contrasts import (
    contrast_of,
    contrasts_of,
    is_far_below,
    second_look_promises,
)
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.forecast import forecasts
from elsa_tune.analysis.groups import equal_units
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.policy import Claim, Policy

PROCEDURE = "fixed-sequence testing from the full model down"


def certify(
    points: Sequence[CurvePoint],
    tested: Collection[Candidate],
    certain: Collection[Candidate],
    *,
    full_model_learnt: bool,
    basis: str,
    policy: Policy,
) -> tuple[Certified | None, Reason | None]:
    """Return what is certified of the points: the full model, then the others in their order.

    tested: the depths that have seeds enough for a test, or were given up before. certain: those
    whose hypothesis is rejected, as `certified_in_order` finds them. full_model_learnt: it is above
    chance at 95 %, which is D > 0 for k = L; else nothing is certified. basis: what the contrasts
    rest on, in words. The full model itself is what is certified where no frozen depth is. The
    reason says where nothing is certified for want of seeds.
    """
    full, *frozen = points
    if full.candidate not in tested:
        return None, Reason.TOO_FEW_SEEDS
    if not full_model_learnt:
        return None, None
    if frozen and frozen[0].candidate not in tested:
        return None, Reason.TOO_FEW_SEEDS
    passed = full
    for point in frozen:
        if point.candidate not in certain:
            break
        passed = point
    certified = Certified(
        candidate=passed.candidate,
        fine_tuned_layers=passed.fine_tuned_layers,
        confidence=policy.confidence,
        procedure=f"{PROCEDURE}, by {basis}, if seeds fail no more often than here",
    )
    return certified, None


def plausible(
    points: Sequence[CurvePoint],
    contrasts: Contrasts,
    policy: Policy,
    reached: Collection[Candidate] | None = None,
    beside: Sequence[CurvePoint] = (),
) -> tuple[Candidate, ...] | None:
    """Return which points' depths may be the true answer, at 95 %; points as in `certify`.

    Half of the error goes to calling a depth too small that is not (its two-sided interval lies
    below 0), half to certifying one too small (`certify` at 97.5 %). None with too few seeds.
    reached: the depths that may count as certified; None for all. beside: points that were measured
    and stand in no order of tests, as a hunt measures where trials are cheap; one without a
    contrast may be the answer.
    """
    if any(point.candidate not in contrasts for point in points):
        return None
    full, *frozen = points
    deepest = full.candidate  # that is certified at 97.5 %
    for point in frozen:
        is_reached = reached is None or point.candidate in reached
        if not is_reached or contrasts[point.candidate].low <= policy.rounding:
            break
        deepest = point.candidate
    possible: list[Candidate] = []
    for point in (*points, *beside):
        is_too_large = point.candidate.rank < deepest.rank
        contrast = contrasts.get(point.candidate)
        is_below = contrast is not None and contrast.high < -policy.rounding
        is_too_small = is_below and point is not full
        if not is_too_large and not is_too_small:
            possible.append(point.candidate)
    return tuple(sorted(possible, reverse=True))


def with_certainty(answer: Answer, *, full_model_learnt: bool) -> Answer:
    """Return the answer with how sure it is; `reason` says why nothing is certified.

    answer: one with an operating point. full_model_learnt: above chance at 95 %.
    """
    has_no_tests = _why_no_tests(answer)
    if has_no_tests is not None:
        return replace(answer, reason=has_no_tests)
    points = points_tested(answer)
    raw = contrasts_of(answer, points, answer.target, corrected=False)
    corrected = contrasts_of(answer, points, answer.target, corrected=True)
    answer = replace(
        answer,
        contrasts=_of_frozen(raw),
        corrected_contrasts=_of_frozen(corrected),
        claim=quality_claimed(answer),
    )
    are_not_valid = why_tests_are_not_valid(answer, points)
    if are_not_valid is not None:
        return replace(answer, reason=are_not_valid)
    given_up = _given_up(answer, points)
    certified, reason = _certified(
        answer, points, raw, full_model_learnt=full_model_learnt, given_up=given_up, corrected=False
    )
    if certified is None and reason is None and answer.chance is None:
        reason = Reason.CHANCE_UNKNOWN
    corrected_certified, _ = _certified(
        answer,
        points,
        corrected,
        full_model_learnt=full_model_learnt,
        given_up=given_up,
        corrected=True,
    )
    answer = replace(
        answer,
        certified=certified,
        corrected_certified=corrected_certified,
        reason=reason,
        open_look=_open_look(answer, points, given_up),
    )
    if not full_model_learnt:
        return answer
    claimed = corrected if answer.claims_corrected else raw
    beside = [point for point in answer.measured if point not in points]
    of_beside = contrasts_of(answer, beside, answer.target, corrected=answer.claims_corrected)
    of_gain = forecasts(answer, points, corrected=True)
    of_score: dict[Candidate, WouldCertify] = {}
    if not answer.score_is_stronger:
        of_score = forecasts(answer, points, claimed=of_gain if answer.claims_corrected else None)
    return replace(
        answer,
        plausible_candidates=plausible(
            points, {**claimed, **of_beside}, answer.policy, beside=beside
        ),
        would_certify=of_score,
        corrected_would_certify=of_gain,
    )


def _why_no_tests(answer: Answer) -> Reason | None:
    """Return why an answer's depths have no tests at all; None where they have."""
    if answer.looks is not None and not answer.looks.are_planned:
        if answer.looks.are_lost:
            return Reason.LOOKS_NOT_RECORDED
        return Reason.NOT_PLANNED_TO_CERTIFY
    if counts_too_few_units(answer, tests_rest_on(answer)):
        return Reason.TOO_FEW_UNITS
    if len(points_tested(answer)) > 1:
        return None
    if answer.looks is not None and answer.looks.by_candidate:
        return Reason.TOO_FEW_SEEDS
    return Reason.LOOKS_NOT_PLANNED


def why_tests_are_not_valid(answer: Answer, points: Sequence[CurvePoint]) -> Reason | None:
    """Return why the contrasts of these points cannot certify anything; None where they can."""
    if any(point.measured_at_rates > 1 for point in points):
        return Reason.RATES_NOT_FRESH
    if answer.judges_best_epochs:
        return Reason.EPOCHS_NOT_FRESH
    if _leaves_out_examples(answer):
        return Reason.EXAMPLES_UNKNOWN
    if _lacks_scores(answer):
        return Reason.SEEDS_MISSING
    if _is_above_plan(answer):
        return Reason.TARGET_NOT_PLANNED
    return None


def _lacks_scores(curve: FreezeCurve) -> bool:
    """Whether runs that no plan tells apart have no score: the others may be the better ones.

    Of planned looks the missing seeds are known one by one, and count by themselves.
    """
    return curve.looks is None and bool(curve.lacking_scores)


def _leaves_out_examples(curve: FreezeCurve) -> bool:
    """Whether tests would rest on seeds alone, which the curve's policy does not allow."""
    if curve.policy.by_seeds_alone:
        return False
    return any(not seen.has_examples for seen in tests_rest_on(curve))


def tests_rest_on(curve: FreezeCurve) -> list[Uncertainty]:
    """Return what the tests of a curve's depths see: its planned looks, or all runs."""
    if curve.looks is None:
        return [curve.uncertainty]
    seen: list[Uncertainty] = []
    for candidate in curve.looks.by_candidate:
        seen += [uncertainty_of for _, uncertainty_of in curve.looks.taken(candidate)]
    return seen


def counts_too_few_units(curve: FreezeCurve, seen: Sequence[Uncertainty]) -> bool:
    """Whether evaluation examples share so few units that nothing can be certified.

    seen: what the tests rest on. Of scores alone the fewest equal units count that they may be.
    """
    if curve.has_too_few_units:
        return True
    if curve.examples is None or curve.units is None or curve.units >= curve.examples:
        return False
    if not any(uncertainty_of.knows_scores_alone for uncertainty_of in seen):
        return False
    return equal_units(curve.examples, curve.units) < curve.policy.fewest_units


def _certified(
    answer: Answer,
    points: Sequence[CurvePoint],
    contrasts: Contrasts,
    *,
    full_model_learnt: bool,
    given_up: Collection[Candidate],
    corrected: bool,
) -> tuple[Certified | None, Reason | None]:
    """Return what is certified of an answer's points, as `certify` does."""
    return certify(
        points,
        tested={*contrasts, *given_up},
        certain=certified_in_order(answer, corrected=corrected),
        full_model_learnt=full_model_learnt,
        basis=answer.uncertainty.basis,
        policy=answer.policy,
    )


@dataclass(frozen=True, slots=True)
class _Hypothesis:
    """What is tested of a depth, and rejected where the depth is found to keep the target."""

    target: float
    corrected: bool  # of what is gained over chance; else of the raw quality


def certified_in_order(
    answer: Answer, *, corrected: bool, two_sided: bool = False
) -> list[Candidate]:
    """Return the frozen depths that an answer's own tests certify, one after the other.

    Tested are, at each depth: the raw quality at ever higher targets up to the planned one (not
    where guessing scores below 0), then what is gained over chance likewise. The last of these is
    the claim, and the first depth at which it is not rejected ends the sequence. The claim implies
    what is weaker, so that of this a single depth more may be certified (Hsu and Berger 1999, J.
    Am. Stat. Assoc. 94, 468-482).
    Where guessing scores below 0 the score would be the stronger claim, and is not certified.
    two_sided: at 97.5 % instead of 95 %.
    """
    if not corrected and answer.score_is_stronger:
        return []
    planned_target = _planned_target(answer)
    is_below_plan = answer.target < planned_target
    asked = _Hypothesis(answer.target, corrected)
    claim = asked
    if is_below_plan or (answer.claims_corrected and not corrected):
        claim = _Hypothesis(planned_target, answer.claims_corrected)
    required = [asked]
    score_comes_first = answer.claims_corrected and corrected and not answer.score_is_stronger
    if is_below_plan and score_comes_first:
        required.insert(0, _Hypothesis(planned_target, corrected=False))
    passed: list[Candidate] = []
    for point in points_tested(answer)[1:]:
        candidate = point.candidate
        keeps_claim = _is_rejected(answer, candidate, claim, two_sided=two_sided)
        keeps_asked = keeps_claim or all(
            _is_rejected(answer, candidate, hypothesis, two_sided=two_sided)
            for hypothesis in required
        )
        if keeps_asked:
            passed.append(candidate)
        if not keeps_claim:
            break
    return passed


def _is_rejected(
    answer: Answer, candidate: Candidate, hypothesis: _Hypothesis, *, two_sided: bool
) -> bool:
    """Whether a depth keeps the target with the confidence that is asked."""
    contrast = contrast_of(answer, candidate, hypothesis.target, corrected=hypothesis.corrected)
    if contrast is None:
        return False
    bound = contrast.low if two_sided else contrast.lower
    return bound > answer.policy.rounding


def _planned_target(answer: Answer) -> float:
    """Return the target that an answer's search was planned for; its own where none was.

    Where a table has a search's looks and lost its target, it is the one that searches are planned
    for by default: else whoever asks could choose the target that the results suit.
    """
    looks = answer.looks
    if looks is None or answer.policy.claim is Claim.BOTH:
        return answer.target
    if looks.own_target is None:
        return DEFAULT_TARGET
    return looks.own_target


def _is_above_plan(answer: Answer) -> bool:
    """Whether an answer's target is higher than the one that its search was planned for."""
    return answer.target > _planned_target(answer)


def points_tested(answer: Answer) -> list[CurvePoint]:
    """Return the full model's point and those that are tested, in the order of testing.

    The latter are none where they were planned for other results than these.
    """
    full = answer.full
    assert full is not None  # an answer with an operating point has one
    if answer.looks is None:
        return list(answer.measured)
    measured = {point.candidate: point for point in answer.measured}
    tested = [measured[candidate] for candidate in answer.looks.order()]
    return [full, *tested]


def _of_frozen(contrasts: Mapping[Candidate, Interval]) -> dict[Candidate, Interval]:
    """Return the contrasts less that of the full model with itself."""
    of_frozen = dict(contrasts)
    of_frozen.pop(REFERENCE, None)
    return of_frozen


def _given_up(answer: Answer, points: Sequence[CurvePoint]) -> set[Candidate]:
    """Return the depths that a hunt gave up before their first look, as `Hunt` does it."""
    fewest = answer.policy.seeds_before_giving_up
    if answer.looks is None or fewest is None:
        return set()
    given_up: set[Candidate] = set()
    for point in points[1:]:
        has_first_look = len(answer.looks.taken(point.candidate)) > 0
        if has_first_look or point.quality is None or point.seeds < fewest:
            continue
        if is_far_below(answer, point.quality, answer.target):
            given_up.add(point.candidate)
    return given_up


def _open_look(
    answer: Answer, points: Sequence[CurvePoint], given_up: Collection[Candidate]
) -> bool:
    """Whether the first depth that does not reject has a planned look left that might."""
    if answer.looks is None or answer.looks.own_target not in (None, answer.target):
        return False
    for point in points[1:]:
        contrast = answer.claimed_contrasts.get(point.candidate)
        if point.candidate in given_up:
            return False
        if contrast is None:
            return len(answer.looks.by_candidate[point.candidate].counts) > 1
        if contrast.lower <= answer.policy.rounding:
            promise = second_look_promises(answer, point.candidate, answer.target)
            return promise >= answer.policy.no_promise
    return False
