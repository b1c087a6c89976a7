"""The trials of one depth: which rows count, as what quality, and what their learning rates say."""

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import ResultsError
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.border import Border, border
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.words import points, rate_text


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A measuring row (one run, or the mean of several) with the quality it counts as."""

    row: ResultRow
    quality: float

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
        at_chance = chance is not None and self.quality <= chance + policy.at_chance
        return self.row.runs == 1 and at_chance


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
    # Where the chosen rate lies among all that were tried; None where they are not known.
    at_border: Border | None = None
    # The measured quality where its rate is one of those given, else that of the best completed
    # exploring run among them (one run, looked at to choose); None where there is neither.
    quality_within_given: float | None = None
    tries_within_given: int = 0  # exploring trials of the given rates


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
    exploring = explored(rows)
    tried = _tried(exploring)
    if not tried and len(measured) > 1:  # a table without exploring trials: its rates were tried
        tried = dict(measured)
    at_border = None
    if chosen in tried:
        at_border = border(tried, chance, policy.noise)
    within_given = [row for row in exploring if _is_given(row)]
    quality = max((quality for _, quality in _completed(within_given)), default=None)
    chosen_rows = [row for row in rows if row.learning_rate == chosen]
    if chosen is not None and all(_is_given(row) for row in chosen_rows):
        quality = measured.get(chosen)
    means = sorted(_means(rows).items())
    return CandidateRates(
        means=tuple(means),
        at_border=at_border,
        quality_within_given=quality,
        tries_within_given=sum(row.runs for row in within_given),
    )


def explored(rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the rows of exploring trials that have ended."""
    return [row for row in rows if row.phase is Phase.EXPLORE and row.status.is_final]


def _tried(exploring: Sequence[ResultRow]) -> dict[float, float | None]:
    """Return the mean quality of each rate that was explored, None where no trial completed."""
    means = _means(exploring)
    tried: dict[float, float | None] = {}
    for row in exploring:
        if row.learning_rate is not None:
            tried[row.learning_rate] = means.get(row.learning_rate)
    return tried


def _means(rows: Sequence[ResultRow]) -> dict[float, float]:
    """Return the mean quality of the completed trials by rate, where that is named."""
    qualities: dict[float, list[float]] = {}
    runs: dict[float, list[int]] = {}
    for row, quality in _completed(rows):
        if row.learning_rate:
            qualities.setdefault(row.learning_rate, []).append(quality)
            runs.setdefault(row.learning_rate, []).append(row.runs)
    means: dict[float, float] = {}
    for rate in qualities:
        means[rate] = statistics.fmean(qualities[rate], weights=runs[rate])
    return means


def _completed(rows: Sequence[ResultRow]) -> list[tuple[ResultRow, float]]:
    """Return the rows that ran to their end, with their qualities."""
    completed: list[tuple[ResultRow, float]] = []
    for row in rows:
        if row.status is not TrialStatus.COMPLETED or row.quality is None:
            continue
        if math.isfinite(row.quality):
            completed.append((row, row.quality))
    return completed


def _is_given(row: ResultRow) -> bool:
    """Whether its rate lies within those its search was given; yes where these are not known."""
    if row.given_rates is None or row.learning_rate is None:
        return True
    low, high = row.given_rates
    return low <= row.learning_rate <= high


def failure_text(
    failed: Sequence[MeasuredRun],
    runs: Sequence[MeasuredRun],
    chance: float | None,
    policy: Policy,
) -> str:
    """Write how many of a depth's runs failed, and how."""
    count = run_count(failed)
    seeds = run_count(runs)
    diverged = run_count([run for run in failed if run.is_diverged])
    no_better = run_count([run for run in failed if run.is_failed(chance, policy)])
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
    return f"{count} of {seeds} seeds failed ({how}, {points(chance)}); they count in the mean"


def without_copies(
    rows: Sequence[ResultRow], name: str, warnings: list[AnswerWarning]
) -> list[ResultRow]:
    """Drop rows that repeat another of the same seed, with a warning.

    Without a seed every row counts: equal scores are no evidence of a copy. Raises ResultsError
    where two rows of one seed have different outcomes.
    """
    distinct: dict[tuple[object, ...], ResultRow] = {}
    for place, row in enumerate(rows):
        run = ("seed", row.seed)
        if row.seed is None:
            run = ("place", place)
        first = distinct.setdefault((row.learning_rate, *run), row)
        outcome = (row.quality, row.status, row.runs)
        if (first.quality, first.status, first.runs) != outcome:
            raise ResultsError(
                f"{row.model} on {row.task}, {name}, learning rate {rate_text(row.learning_rate)}, "
                f"seed {row.seed}: two rows disagree ({_outcome(first)} and {_outcome(row)}); keep "
                "the right one"
            )
    dropped = len(rows) - len(distinct)
    if dropped:
        rows_repeat = "row repeats another" if dropped == 1 else "rows repeat others"
        text = f"{name}: {dropped} {rows_repeat} exactly and counted once"
        warnings.append(AnswerWarning(WarningCode.REPEATED_ROWS, text))
    return list(distinct.values())


def warning_of_doubled_rows(rows: Sequence[ResultRow]) -> list[AnswerWarning]:
    """Warn where each measuring row is there twice, or an even number of times, without a seed.

    One such row may be a tie of two runs; all of them are probably a file that was pasted twice.
    """
    measuring = [row for row in rows if row.phase is Phase.MEASURE]
    if not measuring or any(row.seed is not None for row in measuring):
        return []
    if any(count % 2 for count in Counter(measuring).values()):
        return []
    text = (
        f"each of the {len(measuring)} measuring rows is there twice, and all of them count: was "
        "the table pasted twice? Then delete one half, or everything looks surer than it is"
    )
    return [AnswerWarning(WarningCode.ROWS_DOUBLED, text)]


def _outcome(row: ResultRow) -> str:
    quality = "no quality" if row.quality is None else f"{row.quality:g}"
    if row.status is TrialStatus.COMPLETED:
        return quality
    return f"{row.status.value}, {quality}"


def usable_runs(
    measuring: Sequence[ResultRow], chance: float | None, name: str, warnings: list[AnswerWarning]
) -> list[MeasuredRun]:
    """Return the rows that count; a warning says how many do not, and why."""
    usable = [MeasuredRun(row, quality) for row, quality in _completed(measuring)]
    if chance is not None:
        for row in measuring:
            if row.status is TrialStatus.DIVERGED:
                usable.append(MeasuredRun(row, chance))
    counted = {id(run.row) for run in usable}
    runs_by_reason: dict[str, int] = {}
    for row in measuring:
        if id(row) not in counted:
            reason = _why_not_counted(row)
            runs_by_reason[reason] = runs_by_reason.get(reason, 0) + row.runs
    if runs_by_reason:
        total = sum(runs_by_reason.values())
        reasons = "; ".join(f"{runs} {reason}" for reason, runs in runs_by_reason.items())
        trials = "trial is" if total == 1 else "trials are"
        text = f"{name}: {total} measuring {trials} not counted ({reasons})"
        warnings.append(AnswerWarning(WarningCode.NOT_COUNTED, text))
    return usable


def _why_not_counted(row: ResultRow) -> str:
    if row.status is TrialStatus.DIVERGED:
        return "diverged, and as chance is not known there is no quality to count them as"
    if row.status is TrialStatus.COMPLETED:
        return "completed without a quality"
    return row.status.value.replace("_", " ")
