"""The trials of one depth: which rows count, as what quality, and what their learning rates say."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import ResultsError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.border import Border, alike_ends, border, has_learnt
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.words import points, rate_text


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A measuring row (one run, or the mean of several) with the quality it counts as."""

    row: ResultRow  # as the table or record has it
    quality: float  # its own, or chance where it diverged

    @property
    def is_diverged(self) -> bool:
        """Whether its quality is chance because it has none of its own."""
        return self.row.status is TrialStatus.DIVERGED

    def is_failed(self, chance: float | None, policy: Policy) -> bool:
        """Whether it diverged or ended no better than the best constant answer.

        `failures.py` finds those that lie far below the others of their depth.
        """
        if self.is_diverged:
            return True
        # A mean of several runs hides how many of them failed.
        if chance is None or self.row.runs != 1:
            return False
        return self.quality <= chance + policy.at_chance


# The measuring runs of each depth.
Runs = Mapping[Candidate, Sequence[MeasuredRun]]


def run_count(runs: Sequence[MeasuredRun]) -> int:
    """Return how many runs these are, those inside a row that is a mean included."""
    return sum(run.row.runs for run in runs)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateRates:
    """What is known of a depth's learning rates."""

    # Rate and mean quality of its completed trials, exploring and measuring, by rising rate.
    means: tuple[tuple[float, float], ...] = ()
    # Rate and mean quality of its exploring trials, by rising rate; None where none completed.
    explored: tuple[tuple[float, float | None], ...] = ()
    stopped: tuple[float, ...] = ()  # those at which early stopping ended a trial
    # Where the chosen rate lies among all that were tried; None where they are not known.
    at_border: Border | None = None
    # The ends of what was tried that score as well as the chosen rate, where that is at neither.
    alike_ends: tuple[Border, ...] = ()
    learnt: bool = True  # False where no rate that was tried is better than a constant answer
    # The measured quality where its rate is one of those given, else that of the best completed
    # exploring run among them (one run, looked at to choose); None where there is neither.
    quality_within_given: float | None = None
    tries_within_given: int = 0  # exploring trials of the given rates

    @property
    def rates(self) -> tuple[float, ...]:
        """Every rate of which a trial is known, exploring or measuring, rising."""
        of_explored = {rate for rate, _ in self.explored}
        of_means = {rate for rate, _ in self.means}
        return tuple(sorted(of_explored | of_means))

    def did_better_elsewhere(self, rate: float | None) -> bool:
        """Whether an exploring trial of another rate did better than this rate's."""
        scores = {tried: score for tried, score in self.explored if score is not None}
        return rate in scores and max(scores.values()) > scores[rate]


def candidate_rates(
    rows: Sequence[ResultRow],
    measured: Mapping[float, float],
    chosen: float | None,
    chance: float | None,
    policy: Policy,
) -> CandidateRates:
    """Return what is known of a depth's rates from its rows.

    measured: mean quality by rate. chosen: the rate that counts, None where none does.
    """
    exploring = explored(rows, chosen)
    explored_rates = _tried(exploring)
    tried = explored_rates
    if not tried and len(measured) > 1:  # a table without exploring trials: its rates were tried
        tried = dict(measured)
    at_border = None
    ends: tuple[Border, ...] = ()
    if chosen in tried:
        at_border = border(tried, chance, policy.noise)
        ends = alike_ends(tried, chance, policy.noise)
    scores = {rate: score for rate, score in tried.items() if score is not None}
    learnt = True
    if scores and chance is not None:
        learnt = has_learnt(scores, chance, policy.noise)
    within_given = [row for row in exploring if _is_given(row)]
    explored_qualities = [quality for _, quality in _completed(within_given)]
    quality = max(explored_qualities, default=None)
    if chosen is not None:
        chosen_rows = [row for row in rows if row.learning_rate == chosen]
        all_given = all(_is_given(row) for row in chosen_rows)
        if all_given:
            quality = measured.get(chosen)
    tries = 0
    for row in within_given:
        tries += row.runs
    means = sorted(_means(rows).items())
    return CandidateRates(
        means=tuple(means),
        explored=tuple(sorted(explored_rates.items())),
        stopped=stopped_rates(rows),
        at_border=at_border,
        alike_ends=ends,
        learnt=learnt,
        quality_within_given=quality,
        tries_within_given=tries,
    )


def explored(rows: Sequence[ResultRow], chosen: float | None) -> list[ResultRow]:
    """Return the rows of exploring trials that have ended.

    A measuring run that was stopped early tried its rate, too, where another one was chosen.
    """
    ended: list[ResultRow] = []
    for row in rows:
        if row.phase is Phase.EXPLORE:
            explores = row.status.is_final
        else:
            is_stopped = row.status is TrialStatus.STOPPED_EARLY
            explores = is_stopped and chosen is not None and row.learning_rate != chosen
        if explores:
            ended.append(row)
    return ended


def _tried(exploring: Sequence[ResultRow]) -> dict[float, float | None]:
    """Return the mean quality of each rate that was explored, None where no trial completed."""
    means = _means(exploring)
    tried: dict[float, float | None] = {}
    for row in exploring:
        rate = row.learning_rate
        if rate is not None:
            tried[rate] = means.get(rate)
    return tried


def stopped_rates(rows: Sequence[ResultRow]) -> tuple[float, ...]:
    """Return the rates at which early stopping ended a trial, rising."""
    stopped: set[float] = set()
    for row in rows:
        if row.status is TrialStatus.STOPPED_EARLY and row.learning_rate is not None:
            stopped.add(row.learning_rate)
    return tuple(sorted(stopped))


def _means(rows: Sequence[ResultRow]) -> dict[float, float]:
    """Return the mean quality of the completed trials by rate, where that is named."""
    qualities: dict[float, list[float]] = {}
    weights: dict[float, list[int]] = {}  # how many runs each of these qualities stands for
    for row, quality in _completed(rows):
        rate = row.learning_rate
        if not rate:
            continue
        qualities.setdefault(rate, []).append(quality)
        weights.setdefault(rate, []).append(row.runs)
    means: dict[float, float] = {}
    for rate, qualities_at_rate in qualities.items():
        weights_at_rate = weights[rate]
        means[rate] = statistics.fmean(qualities_at_rate, weights_at_rate)
    return means


def _completed(rows: Sequence[ResultRow]) -> list[tuple[ResultRow, float]]:
    """Return the rows that ran to their end, with their qualities."""
    completed: list[tuple[ResultRow, float]] = []
    for row in rows:
        if row.status is not TrialStatus.COMPLETED:
            continue
        quality = row.quality
        if quality is not None and math.isfinite(quality):
            completed.append((row, quality))
    return completed


def _is_given(row: ResultRow) -> bool:
    """Whether its rate lies within those its search was given; yes where these are not known."""
    rate = row.learning_rate
    if row.given_rates is None or rate is None:
        return True
    low, high = row.given_rates
    return low <= rate <= high


def failure_text(
    failed: Sequence[MeasuredRun],
    runs: Sequence[MeasuredRun],
    chance: float | None,
    policy: Policy,
) -> str:
    """Write how many of a depth's runs failed, and how."""
    count = run_count(failed)
    seeds = run_count(runs)
    diverged = 0
    no_better = 0
    for run in failed:
        if run.is_diverged:
            diverged += run.row.runs
        if run.is_failed(chance, policy):
            no_better += run.row.runs
    at_chance = no_better - diverged
    far_below = count - no_better
    ways: list[str] = []
    if diverged:
        ways.append(f"{diverged} diverged, counted as chance")
    if at_chance:
        ways.append(f"{at_chance} no better than guessing")
    if far_below:
        ways.append(f"{far_below} far below the others")
    how = "; ".join(ways)
    guessing = points(chance)
    return f"{count} of {seeds} seeds failed ({how}, {guessing}); they count in the mean"


def without_copies(
    rows: Sequence[ResultRow],
    name: str,
    warnings: list[AnswerWarning],
) -> list[ResultRow]:
    """Drop rows that repeat another of the same seed, with a warning.

    Without a seed every row counts: equal scores are no evidence of a copy. Raises ResultsError
    where two rows of one seed have different outcomes.
    """
    distinct: dict[tuple[object, ...], ResultRow] = {}
    for place, row in enumerate(rows):
        rate = row.learning_rate
        key = (rate, "seed", row.seed)
        if row.seed is None:
            key = (rate, "place", place)
        first = distinct.setdefault(key, row)
        first_outcome = (first.quality, first.status, first.runs)
        outcome = (row.quality, row.status, row.runs)
        if outcome != first_outcome:
            raise _disagreement(first, row, name)
    dropped = len(rows) - len(distinct)
    if dropped:
        rows_repeat = "row repeats another" if dropped == 1 else "rows repeat others"
        text = f"{name}: {dropped} {rows_repeat} exactly and counted once"
        warning = AnswerWarning(WarningCode.REPEATED_ROWS, text)
        warnings.append(warning)
    return list(distinct.values())


def _disagreement(first: ResultRow, second: ResultRow, name: str) -> ResultsError:
    """Return the error for two rows of one seed with different outcomes."""
    rate = rate_text(first.learning_rate)
    first_outcome = _outcome(first)
    second_outcome = _outcome(second)
    return ResultsError(
        f"{first.model} on {first.task}, {name}, learning rate {rate}, seed {first.seed}: "
        f"two rows disagree ({first_outcome} and {second_outcome}); keep the right one"
    )


def warning_of_doubled_rows(rows: Sequence[ResultRow]) -> list[AnswerWarning]:
    """Warn where each measuring row is there twice, or another number of times, without a seed.

    One such row may be a tie of two runs; all of them are probably a file that was pasted twice.
    """
    measuring = [row for row in rows if row.phase is Phase.MEASURE]
    have_seeds = any(row.seed is not None for row in measuring)
    if not measuring or have_seeds:
        return []
    copies = math.gcd(*Counter(measuring).values())
    if copies == 1:
        return []
    times = "twice" if copies == 2 else f"{copies} times"
    text = (
        f"each of the {len(measuring)} measuring rows is there {times}, and all of them count: was "
        f"the table pasted {times}? Then keep it once, or everything looks surer than it is"
    )
    return [AnswerWarning(WarningCode.ROWS_DOUBLED, text)]


def _outcome(row: ResultRow) -> str:
    """Write a row's quality, and how the trial ended if not well."""
    quality = "no quality"
    if row.quality is not None:
        quality = f"{row.quality:g}"
    if row.status is TrialStatus.COMPLETED:
        return quality
    return f"{row.status.value}, {quality}"


def usable_runs(
    measuring: Sequence[ResultRow],
    chance: float | None,
    name: str,
    warnings: list[AnswerWarning],
) -> list[MeasuredRun]:
    """Return the rows that count; a warning says how many do not, and why."""
    usable: list[MeasuredRun] = []
    for row, quality in _completed(measuring):
        run = MeasuredRun(row, quality)
        usable.append(run)
    if chance is not None:
        for row in measuring:
            if row.status is TrialStatus.DIVERGED:
                run = MeasuredRun(row, chance)
                usable.append(run)
    lacking = without_score(measuring, usable)
    if lacking:
        warning = _warning_of_rows_not_counted(lacking, name)
        warnings.append(warning)
    return usable


def without_score(measuring: Sequence[ResultRow], usable: Sequence[MeasuredRun]) -> list[ResultRow]:
    """Return the measuring rows that are none of the usable runs: those that have no score."""
    counted = {id(run.row) for run in usable}
    return [row for row in measuring if id(row) not in counted]


def _warning_of_rows_not_counted(rows: Sequence[ResultRow], name: str) -> AnswerWarning:
    """Return the warning that these measuring rows do not count."""
    runs_by_reason: Counter[str] = Counter()
    for row in rows:
        reason = _why_not_counted(row)
        runs_by_reason[reason] += row.runs
    reasons: list[str] = []
    for reason, runs in runs_by_reason.items():
        reasons.append(f"{runs} {reason}")
    listed = "; ".join(reasons)
    total = runs_by_reason.total()
    trials = "trials are"
    if total == 1:
        trials = "trial is"
    text = f"{name}: {total} measuring {trials} not counted ({listed})"
    return AnswerWarning(WarningCode.NOT_COUNTED, text)


def _why_not_counted(row: ResultRow) -> str:
    """Write why a row does not count, so that it follows the number of such runs."""
    if row.status is TrialStatus.DIVERGED:
        return "diverged, and as chance is not known there is no quality to count them as"
    if row.status is TrialStatus.COMPLETED:
        return "completed without a quality"
    return row.status.value.replace("_", " ")
