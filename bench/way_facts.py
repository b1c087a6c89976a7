"""What rows say of each way, and what they leave open: seeds, rates, and where the best rate lies.

Of any rows, so that a published table can be read as a search's own results are.
"""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.border import Border, border
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.words import rate_text


@dataclass(frozen=True, slots=True, kw_only=True)
class WayFacts:
    """A way's completed runs: how many, at which rates, and how the best rate stands among them."""

    candidate: Candidate
    runs: int  # completed ones, those inside a row that is a mean included
    quality: float  # mean at the best rate
    runs_at_best: int  # of which it is the mean
    seeds_at_best: int | None  # how many different seeds these have; None where one has no name
    # Of these runs (ddof 1); None for one run, runs of one seed, and where means do not say.
    std: float | None
    learning_rate: float | None  # the best one; None where no row names one
    # Each rate that completed, rising, with the mean quality there.
    means: tuple[tuple[float, float], ...]
    # Where the best rate lies; None with rates on both sides, and where fewer than two are known.
    at_border: Border | None
    examples: int | None  # evaluation rows; None where not known

    @property
    def has_one_rate(self) -> bool:
        """Whether one rate alone is known: nobody can tell what another would have given."""
        return len(self.means) <= 1

    @property
    def has_one_seed(self) -> bool:
        """Whether one seed alone gives the quality: nothing tells how a second would differ."""
        return self.runs_at_best == 1 or self.seeds_at_best == 1

    @property
    def spread_by_rate(self) -> float | None:
        """The best rate's quality above the worst's; None with one rate."""
        if self.has_one_rate:
            return None
        qualities = [quality for _, quality in self.means]
        return max(qualities) - min(qualities)


def way_facts(rows: Iterable[ResultRow], policy: Policy | None = None) -> list[WayFacts]:
    """Return each way's facts, in the rows' order; ways without a completed run are left out.

    Rows of a seed that repeat another exactly count once. rows: of one model and task. policy: what
    counts as noise between two rates.
    """
    policy = policy or Policy()
    rows_by_way: dict[Candidate, list[ResultRow]] = {}
    for row in rows:
        is_usable = row.status is TrialStatus.COMPLETED and row.quality is not None
        if not is_usable:
            continue
        rows_of_way = rows_by_way.setdefault(row.candidate, [])
        is_copy = row.seed is not None and row in rows_of_way
        if not is_copy:
            rows_of_way.append(row)
    return [_facts(candidate, way, policy) for candidate, way in rows_by_way.items()]


def _facts(candidate: Candidate, rows: Sequence[ResultRow], policy: Policy) -> WayFacts:
    rows_by_rate: dict[float | None, list[ResultRow]] = {}
    for row in rows:
        rows_by_rate.setdefault(row.learning_rate, []).append(row)
    means: dict[float, float] = {}
    best_rows: Sequence[ResultRow] = ()
    best_quality = -math.inf
    for rate, rows_at_rate in rows_by_rate.items():
        quality = _mean(rows_at_rate)
        if rate is not None:
            means[rate] = quality
        if quality > best_quality:
            best_quality = quality
            best_rows = rows_at_rate
    at_border = None
    if len(means) > 1:
        chances = [row.chance for row in rows if row.chance is not None]
        at_border = border(means, min(chances, default=None), policy.noise)
    known_examples = [row.examples for row in rows if row.examples is not None]
    return WayFacts(
        candidate=candidate,
        runs=_runs(rows),
        quality=best_quality,
        runs_at_best=_runs(best_rows),
        seeds_at_best=_seeds(best_rows),
        std=_std(best_rows),
        learning_rate=best_rows[0].learning_rate,
        means=tuple(sorted(means.items())),
        at_border=at_border,
        examples=min(known_examples, default=None),
    )


def _runs(rows: Sequence[ResultRow]) -> int:
    return sum(row.runs for row in rows)


def _seeds(rows: Sequence[ResultRow]) -> int | None:
    seeds = {row.seed for row in rows}
    return None if None in seeds else len(seeds)


def _qualities(rows: Sequence[ResultRow]) -> list[float]:
    return [row.quality for row in rows if row.quality is not None]


def _mean(rows: Sequence[ResultRow]) -> float:
    weights = [row.runs for row in rows]
    return statistics.fmean(_qualities(rows), weights)


def _std(rows: Sequence[ResultRow]) -> float | None:
    """Return the standard deviation of runs at one rate, where they or their mean tell it.

    Runs of one seed spread as libraries and machines do, which is another spread.
    """
    if len(rows) == 1:
        return rows[0].std
    if any(row.runs > 1 for row in rows) or _seeds(rows) == 1:
        return None
    return statistics.stdev(_qualities(rows))


def left_open(ways: Sequence[WayFacts]) -> list[str]:
    """Return what these results cannot say, one sentence each; [] where nothing is missing."""
    sentences: list[str] = []
    one_seed = [way for way in ways if way.has_one_seed]
    if one_seed:
        sentences.append(
            f"{_of(one_seed, ways)} ran with one seed: how far another would move the quality is "
            "not known, and no difference from it can be certified."
        )
    one_rate = [way for way in ways if way.has_one_rate]
    if one_rate:
        sentences.append(
            f"{_of(one_rate, ways)} ran at one learning rate: another may be better or worse by "
            "any amount."
        )
    for way in ways:
        if way.at_border is None or way.learning_rate is None:
            continue
        end = "highest that was tried; higher"
        if way.at_border is Border.LOW:
            end = "lowest that was tried; lower"
        rate = rate_text(way.learning_rate)
        sentences.append(f"{_name(way)}: the best rate, {rate}, is the {end} ones may be better.")
    if ways and all(way.examples is None for way in ways):
        sentences.append(
            "The number of evaluation rows is not known: how far other rows would move the "
            "qualities cannot be said."
        )
    return sentences


def _of(some: Sequence[WayFacts], ways: Sequence[WayFacts]) -> str:
    """Return `2 of 9 ways`, or the label of the only one."""
    if len(some) == 1:
        return _name(some[0])
    return f"{len(some)} of {len(ways)} ways"


def _name(way: WayFacts) -> str:
    """Return what a sentence calls a way."""
    if way.candidate.is_reference:
        return "the full model"
    return way.candidate.label
