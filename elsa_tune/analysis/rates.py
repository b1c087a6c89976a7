"""The learning rates of one depth: those tried, and those that the search was given."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from elsa_tune.specs.border import Border, border
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus

EXPLORED = (TrialStatus.COMPLETED, TrialStatus.STOPPED_EARLY, TrialStatus.DIVERGED)


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthRates:
    """What is known of a depth's learning rates.

    at_border: of all that were tried, where they are known. quality_within_given: the measured
    quality where its rate is one of those given, else that of the best completed exploring run
    among them (one run, looked at to choose); None where there is neither. tries_within_given:
    exploring trials of the given rates.
    """

    at_border: Border | None = None
    quality_within_given: float | None = None
    tries_within_given: int = 0


def depth_rates(
    rows: Sequence[ResultRow],
    measured: dict[float, float],
    chosen: float | None,
    chance: float | None,
) -> DepthRates:
    """rows: of one depth. measured: mean quality by rate. chosen: the one that counts."""
    exploring = [row for row in rows if row.phase is Phase.EXPLORE and row.status in EXPLORED]
    runs: dict[float, list[float]] = {}
    for row in exploring:
        if row.learning_rate is not None:
            runs.setdefault(row.learning_rate, []).extend(_completed([row]))
    tried = {rate: statistics.fmean(found) if found else None for rate, found in runs.items()}
    if not tried and len(measured) > 1:  # a table without exploring trials: its rates were tried
        tried = dict(measured)
    within = [row for row in exploring if _is_given(row)]
    quality = max(_completed(within), default=None)
    if chosen is not None and all(_is_given(row) for row in rows if row.learning_rate == chosen):
        quality = measured.get(chosen)
    return DepthRates(
        at_border=border(tried, chance) if chosen in tried else None,
        quality_within_given=quality,
        tries_within_given=sum(row.runs for row in within),
    )


def _completed(rows: Sequence[ResultRow]) -> list[float]:
    """The qualities of the rows that count."""
    done = (row.quality for row in rows if row.status is TrialStatus.COMPLETED)
    return [quality for quality in done if quality is not None]


def _is_given(row: ResultRow) -> bool:
    """Whether its rate lies within those its search was given; yes where these are not known."""
    if row.given_rates is None or row.learning_rate is None:
        return True
    low, high = row.given_rates
    return low <= row.learning_rate <= high
