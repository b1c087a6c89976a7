"""What would probably certify a way that was only measured: more seeds, more rows, or both.

As of a depth (`forecast.py`), and in any metric, from what the ways were measured to have. A way is
tested against every other at the error divided by the number of ways, as the first of Holm's
procedure is.
"""

from dataclasses import dataclass, replace

from elsa_tune.analysis.answer import SeedsAndRows, WouldCertify
from elsa_tune.analysis.comparing.ways import COMPARED_TARGET, Way, WayComparison
from elsa_tune.analysis.evidence import NORMAL
from elsa_tune.analysis.forecast import (
    MOST_SEEDS,
    MOST_TIMES_ROWS,
    fewest_answers,
    first,
    round_numbers,
    with_rows,
)
from elsa_tune.analysis.power import PROBABLY
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.analysis.statistics.uncertainty import Uncertainty
from elsa_tune.specs.policy import Policy


def would_certify(comparison: WayComparison, way: Way, *, corrected: bool) -> WouldCertify:
    """Return what a new search would probably certify a way by, of its gain or of its score."""
    # Whatever planned the search that is compared, this version plans the next one.
    uncertainty = replace(comparison.curve.uncertainty, policy=Policy())
    forecast = _Forecast(
        comparison=comparison,
        uncertainty=uncertainty,
        way=way,
        corrected=corrected,
    )
    seeds = forecast.fewest_seeds()
    rows = forecast.fewest_rows()
    together = forecast.fewest_together() if seeds is None and rows is None else None
    return WouldCertify(seeds=seeds, evaluation_rows=rows, together=together)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Forecast:
    """What a new search would make of one way."""

    comparison: WayComparison  # as it was measured
    uncertainty: Uncertainty  # the comparison's, judged as a new search would be
    way: Way
    corrected: bool  # for chance

    @property
    def _seeds_now(self) -> int:
        """The number of seeds that the ways were compared with: the fewest that any has."""
        runs = self.uncertainty.runs
        return min(runs[way.candidate].count for way in self.comparison.ways)

    def fewest_seeds(self) -> int | None:
        """Return the fewest seeds a way, more than now, that would probably certify it."""
        choices = range(self._seeds_now + 1, MOST_SEEDS + 1)

        def certifies(seeds: int) -> bool:
            return self._certifies(self.uncertainty, seeds)

        return first(choices, certifies)

    def fewest_rows(self) -> int | None:
        """Return the fewest evaluation rows, more than now, that would probably certify it."""
        return self._fewest_rows(self._seeds_now)

    def fewest_together(self) -> SeedsAndRows | None:
        """Return more seeds and more rows than now that would probably certify it together."""
        return fewest_answers(self._fewest_rows, self._seeds_now)

    def _fewest_rows(self, seeds: int) -> int | None:
        """Return the fewest rows, more than now, that would probably do with so many seeds."""
        rows_now = self.comparison.curve.examples
        if rows_now is None or self.uncertainty.examples is None:
            return None
        choices = round_numbers(rows_now, MOST_TIMES_ROWS * rows_now)

        def certifies(rows: int) -> bool:
            uncertainty = with_rows(self.uncertainty, rows / rows_now)
            return self._certifies(uncertainty, seeds)

        return first(choices, certifies)

    def _certifies(self, uncertainty: Uncertainty, seeds: int) -> bool:
        """Return whether the way would probably be certified against every other.

        The chances of failing against one of them are added up, which is at most too careful.
        """
        failing = 0.0
        for other in self.comparison.ways:
            if other.candidate == self.way.candidate:
                continue
            failing += self._failing(
                uncertainty, seeds, other, target=self.comparison.target, corrected=self.corrected
            )
            if self._takes_the_score:
                failing += self._failing(
                    uncertainty, seeds, other, target=COMPARED_TARGET, corrected=False
                )
        return failing <= 1 - PROBABLY

    @property
    def _takes_the_score(self) -> bool:
        """Whether the score must be certain at the planned target first, as a lower gain asks."""
        is_gain_below_plan = self.corrected and self.comparison.target < COMPARED_TARGET
        return is_gain_below_plan and not self.comparison.curve.score_is_stronger

    def _failing(
        self,
        uncertainty: Uncertainty,
        seeds: int,
        other: Way,
        *,
        target: float,
        corrected: bool,
    ) -> float:
        """Return the probability that it would not be certain to keep a target of another."""
        level = uncertainty.policy.test_error(seeds) / len(self.comparison.ways)
        contrast = uncertainty.contrast(
            self.way.candidate,
            target,
            against=other.candidate,
            corrected=corrected,
            as_if_seeds=(seeds, seeds),
            ends=(level / 2, 1 - level / 2, level),
        )
        if contrast is None:
            return 1.0
        return _chance_of_missing(contrast, level)


def _chance_of_missing(contrast: Interval, level: float) -> float:
    """Return the probability that the bound of a new search lies at or below 0.

    The bound lies so many standard errors below the value as its level asks for, and moves with the
    value, whose errors are normal.
    """
    half_width = contrast.value - contrast.allowance - contrast.lower
    if half_width <= 0:
        return float(contrast.lower <= 0)
    error = half_width / NORMAL.inv_cdf(1 - level)
    return NORMAL.cdf(-contrast.lower / error)
