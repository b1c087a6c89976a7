"""What would probably certify a depth that is not certified: more seeds, more rows, or both.

Probably means in four of five new searches, if the depths truly score and spread as they were
measured. A new search plans its own tests: seeds that are added to one that was tested are no part
of its certificate.
"""

import bisect
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from elsa_tune.analysis.answer import Answer, SeedsAndRows, WouldCertify
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.evidence import levels
from elsa_tune.analysis.statistics.intervals import Ends, Interval
from elsa_tune.analysis.statistics.seeds import CandidateRuns
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.policy import Policy, SeedCounts

# A search with more seeds than this is not something to suggest.
MOST_SEEDS = 30

# Seeds that are suggested together with more evaluation rows.
SEEDS_WITH_ROWS = (5, 10, MOST_SEEDS)

# Nor are more evaluation rows than so many times those that there are.
MOST_TIMES_ROWS = 100

# An expected bound just above 0 is missed half the time. For four times out of five it must lie
# above by .84 standard errors, where the bound itself lies 1.64 below the value.
POWER_MARGIN = 0.84 / 1.64


def forecasts(
    answer: Answer,
    points: Sequence[CurvePoint],
    *,
    corrected: bool = False,
    claimed: Mapping[Candidate, WouldCertify] | None = None,
) -> dict[Candidate, WouldCertify]:
    """Return what would certify each tested depth that is not certified.

    points: the full model, then the others in the order of testing. A depth counts only if all
    before it certify, so that it takes at least what those take. claimed: what those take for the
    claim, where this is of something weaker. Depths that too few seeds say nothing of are left out,
    and all behind them.
    """
    certified = answer.certified
    contrasts = answer.contrasts
    if corrected:
        certified = answer.corrected_certified
        contrasts = answer.corrected_contrasts
    if certified is None:
        return {}
    # Whatever planned the search that is answered, this version plans the next one.
    uncertainty = replace(answer.uncertainty, policy=Policy())
    order = [point.candidate for point in points]
    place_of_certified = order.index(certified.candidate)
    needed = WouldCertify(seeds=1, evaluation_rows=answer.examples)
    if uncertainty.examples is None:
        needed = replace(needed, evaluation_rows=None)
    is_of_claim = corrected or claimed is not None

    def forecast_of(point: CurvePoint, *, corrected: bool) -> _Forecast:
        return _Forecast(answer=answer, uncertainty=uncertainty, point=point, corrected=corrected)

    required: list[_Forecast] = []  # what must be certified first
    for point in points[: place_of_certified + 1]:
        if claimed is not None and point.candidate in claimed:
            required.append(forecast_of(point, corrected=True))
    would_certify: dict[Candidate, WouldCertify] = {}
    for point_before, point in itertools.pairwise(points[place_of_certified:]):
        contrast = contrasts.get(point.candidate)
        if contrast is None:
            break
        if claimed is not None:
            needed = claimed.get(point_before.candidate, needed)
        forecast = forecast_of(point, corrected=corrected)
        needed = _needed(forecast, required, needed, _seeds_now(answer, point, contrast))
        would_certify[point.candidate] = needed
        required.append(forecast_of(point, corrected=is_of_claim))
    return would_certify


def _seeds_now(answer: Answer, point: CurvePoint, contrast: Interval) -> int:
    """Return with how many seeds a depth was tested: its own or the full model's, the fewer."""
    if contrast.look is not None:
        return min(contrast.look.seeds, contrast.look.full_seeds)
    assert answer.full is not None
    return min(point.seeds, answer.full.seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forecast:
    """What a new search would make of one depth."""

    answer: Answer  # to the search as it was
    uncertainty: Uncertainty  # the answer's, judged as a new search would be
    point: CurvePoint  # of the depth
    corrected: bool  # for chance

    def fewest_seeds(self, least: int) -> int | None:
        """Return the fewest seeds a depth, `least` or more, that would probably certify it."""
        choices = range(least, MOST_SEEDS + 1)

        def certifies(seeds: int) -> bool:
            return self._certifies(self.uncertainty, SeedCounts(depth=seeds, full=seeds), None)

        return first(choices, certifies)

    def fewest_rows(self, least: int) -> int | None:
        """Return the fewest evaluation rows that would probably certify it.

        They are more than now, and `least` or more.
        """
        rows_now = self.answer.examples
        assert rows_now is not None
        most = MOST_TIMES_ROWS * rows_now
        choices = round_numbers(least, most)
        if least > rows_now:
            choices.insert(0, least)
        seeds, ends = self._planned()

        def certifies(rows: int) -> bool:
            uncertainty = with_rows(self.uncertainty, rows / rows_now)
            return self._certifies(uncertainty, seeds, ends)

        return first(choices, certifies)

    def certifies_with(self, seeds: int, rows: int) -> bool:
        """Whether so many seeds at each depth and so many evaluation rows would probably do."""
        rows_now = self.answer.examples
        assert rows_now is not None
        uncertainty = with_rows(self.uncertainty, rows / rows_now)
        return self._certifies(uncertainty, SeedCounts(depth=seeds, full=seeds), None)

    def _planned(self) -> tuple[SeedCounts | None, Ends | None]:
        """Return the seeds of the last planned test, and its ends; None where none was planned."""
        if self.answer.looks is None:
            return None, None
        planned = self.answer.looks.by_candidate[self.point.candidate]
        share = self.answer.policy.first_look_share
        error_of_tests = levels(planned.counts, planned.error, share)
        error = error_of_tests[-1]
        seeds = planned.counts[-1]
        ends = (error / 2, 1 - error / 2, error)
        return seeds, ends

    def _certifies(
        self,
        uncertainty: Uncertainty,
        seeds: SeedCounts | None,
        ends: Ends | None,
    ) -> bool:
        """Return whether a search with such uncertainty and so many seeds probably certifies."""
        contrast = uncertainty.contrast(
            self.point.candidate,
            self.answer.target,
            corrected=self.corrected,
            as_if_seeds=seeds,
            ends=ends,
        )
        if contrast is None:
            return False
        return _is_probably_above(contrast)


def _needed(
    forecast: _Forecast, required: Sequence[_Forecast], before: WouldCertify, seeds_now: int
) -> WouldCertify:
    """Return what a depth takes: more seeds or more rows, or both where neither would do alone.

    required: what must be certified first. before: what the depth before it takes, alone each.
    """
    seeds = None
    if before.seeds is not None:
        least = max(before.seeds, seeds_now + 1)
        seeds = forecast.fewest_seeds(least)
    rows = None
    if before.evaluation_rows is not None:
        rows = forecast.fewest_rows(before.evaluation_rows)
    together = None
    if seeds is None and rows is None:
        together = _fewest_together([*required, forecast], seeds_now)
    return WouldCertify(seeds=seeds, evaluation_rows=rows, together=together)


def _fewest_together(required: Sequence[_Forecast], seeds_now: int) -> SeedsAndRows | None:
    """Return the seeds and rows, both more than now, that would probably certify all of these.

    Of those that do, the ones with the fewest answers to judge.
    """
    rows_now = required[0].answer.examples
    if rows_now is None or required[0].uncertainty.examples is None:
        return None

    def fewest_rows(seeds: int) -> int | None:
        def certifies(rows: int) -> bool:
            return all(forecast.certifies_with(seeds, rows) for forecast in required)

        return first(round_numbers(rows_now, MOST_TIMES_ROWS * rows_now), certifies)

    return fewest_answers(fewest_rows, seeds_now)


def fewest_answers(fewest_rows: Callable[[int], int | None], seeds_now: int) -> SeedsAndRows | None:
    """Return more seeds than now and the rows that go with them, with the fewest answers to judge.

    fewest_rows: how many rows so many seeds take; None where no number would do.
    """
    pairs: list[SeedsAndRows] = []
    for seeds in SEEDS_WITH_ROWS:
        rows = fewest_rows(seeds) if seeds > seeds_now else None
        if rows is not None:
            pairs.append(SeedsAndRows(seeds=seeds, evaluation_rows=rows))
    return min(pairs, key=lambda pair: pair.seeds * pair.evaluation_rows, default=None)


def first(choices: Sequence[int], certifies: Callable[[int], bool]) -> int | None:
    """Return the first choice that certifies; more never hurt, so that it is found by bisection."""
    if not choices:
        return None
    most = choices[-1]
    if not certifies(most):
        return None
    place = bisect.bisect_left(choices, True, key=certifies)
    return choices[place]


def round_numbers(above: int, most: int) -> list[int]:
    """Return the numbers of two digits and zeros that lie above one number, up to another."""
    numbers: list[int] = []
    power = 1
    while power * 10 <= most:
        for digits in range(10, 100):
            number = digits * power
            if above < number <= most:
                numbers.append(number)
        power *= 10
    return numbers


def _is_probably_above(contrast: Interval) -> bool:
    """Whether a lower end would lie above 0 with a margin for the luck of seeds and examples."""
    half_width = contrast.value - contrast.allowance - contrast.lower
    unlucky = contrast.lower - POWER_MARGIN * half_width
    return unlucky > 0


def with_rows(uncertainty: Uncertainty, times: float) -> Uncertainty:
    """Return what to expect of so many times the evaluation examples, all else as now.

    The variance by examples falls with their number, and so does the part of the seeds' that comes
    from what runs answer differently on single examples. As many mistakes may be hidden then, and
    each costs so much less.
    """
    examples = uncertainty.examples
    assert examples is not None
    shorter = math.sqrt(1 / times)
    examples_then = replace(
        examples,
        candidates={each: moves * shorter for each, moves in examples.candidates.items()},
        chance=examples.chance * shorter,
        chance_error=examples.chance_error * shorter,
        flips={each: variance / times for each, variance in examples.flips.items()},
        falls={each: fall * shorter for each, fall in examples.falls.items()},
        hidden={each: hidden / times for each, hidden in examples.hidden.items()},
    )
    share_gone = 1 - 1 / times
    runs_then: dict[Candidate, CandidateRuns] = {}
    for candidate, runs in uncertainty.runs.items():
        flips = examples.flips.get(candidate, 0.0)
        runs_then[candidate] = _with_less_variance(runs, flips * share_gone)
    return replace(
        uncertainty,
        runs=runs_then,
        examples=examples_then,
    )


def _with_less_variance(runs: CandidateRuns, less: float) -> CandidateRuns:
    """Return runs with the same mean, whose variance is smaller by so much.

    A depth with a failed seed keeps its own: what failed differs for another reason.
    """
    has_failed_seed = any(runs.failed)
    if runs.count < 2 or has_failed_seed:
        return runs
    variance = float(np.var(runs.qualities, ddof=1))
    if variance == 0:
        return runs
    share_left = 1 - less / variance
    shorter = math.sqrt(max(0.0, share_left))
    mean = runs.mean
    qualities: list[float] = []
    for quality in runs.qualities:
        distance = quality - mean
        qualities.append(mean + distance * shorter)
    return replace(runs, qualities=tuple(qualities))
