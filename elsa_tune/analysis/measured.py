"""The measuring runs of one depth: which rows count, as what quality, and which do not."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.statistics.uncertainty import AT_CHANCE
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import ResultsError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.words import points, rate_text


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """A measuring row (one run, or the mean of several) with the quality it counts as."""

    row: ResultRow
    quality: float

    @classmethod
    def of(cls, row: ResultRow, chance: float | None) -> MeasuredRun | None:
        """The run that a measuring row stands for; None where it does not count."""
        if row.status is TrialStatus.DIVERGED:
            return None if chance is None else cls(row, chance)
        if row.status is not TrialStatus.COMPLETED or row.quality is None:
            return None
        return cls(row, row.quality) if math.isfinite(row.quality) else None

    @property
    def is_diverged(self) -> bool:
        """Whether its quality is chance because it has none of its own."""
        return self.row.status is TrialStatus.DIVERGED

    def is_failed(self, chance: float | None) -> bool:
        """Whether it diverged or ended no better than the best constant answer."""
        if self.is_diverged:
            return True
        # A mean of several runs hides how many of them failed.
        return self.row.runs == 1 and chance is not None and self.quality <= chance + AT_CHANCE


# The measuring runs of each depth.
Runs = Mapping[FreezeDepth, Sequence[MeasuredRun]]


def failure_text(
    failed: Sequence[MeasuredRun], runs: Sequence[MeasuredRun], chance: float | None
) -> str:
    """How many of a depth's runs failed, and how."""
    count, seeds = (sum(run.row.runs for run in several) for several in (failed, runs))
    diverged = sum(run.row.runs for run in failed if run.is_diverged)
    ways = {
        f"{diverged} diverged, counted as chance": diverged,
        f"{count - diverged} no better than a constant answer": count - diverged,
    }
    how = "; ".join(text for text, number in ways.items() if number)
    return (
        f"{count} of {seeds} seeds failed ({how}; chance is {points(chance)}); the mean has them in"
    )


def without_copies(
    rows: Sequence[ResultRow], name: str, warnings: list[AnswerWarning]
) -> list[ResultRow]:
    """Drop rows that repeat another exactly; one seed with two outcomes is a contradiction."""
    kept: dict[tuple[object, ...], ResultRow] = {}
    dropped = 0
    for row in rows:
        # Without a seed, rows with different values are different runs, equal ones are copies.
        what = row.seed if row.seed is not None else (row.quality, row.runs, row.std)
        key = (row.learning_rate, what)
        if key not in kept:
            kept[key] = row
            continue
        other = kept[key]
        if (other.quality, other.status, other.runs) != (row.quality, row.status, row.runs):
            raise ResultsError(
                f"{row.model} on {row.task}, {name}, learning rate {rate_text(row.learning_rate)}, "
                f"seed {row.seed}: two rows disagree ({_outcome(other)} and {_outcome(row)}); keep "
                "the right one"
            )
        dropped += 1
    if dropped:
        rows_repeat = "row repeats another" if dropped == 1 else "rows repeat others"
        text = f"{name}: {dropped} {rows_repeat} exactly and counted once"
        warnings.append(AnswerWarning(WarningCode.REPEATED_ROWS, text))
    return list(kept.values())


def _outcome(row: ResultRow) -> str:
    number = "no quality" if row.quality is None else f"{row.quality:g}"
    return number if row.status is TrialStatus.COMPLETED else f"{row.status.value}, {number}"


def warn_of_uncounted(
    measuring: Sequence[ResultRow],
    usable: Sequence[MeasuredRun],
    name: str,
    warnings: list[AnswerWarning],
) -> None:
    """Say how many measuring rows do not count, and why."""
    counted = {id(run.row) for run in usable}
    why: dict[str, int] = {}
    for row in measuring:
        if id(row) in counted:
            continue
        if row.status is TrialStatus.DIVERGED:
            text = "diverged, and as chance is not known there is no quality to count them as"
        elif row.status is TrialStatus.COMPLETED:
            text = "completed without a quality"
        else:
            text = row.status.value.replace("_", " ")
        why[text] = why.get(text, 0) + row.runs
    if why:
        total = sum(why.values())
        reasons = "; ".join(f"{count} {text}" for text, count in why.items())
        trials = "trial is" if total == 1 else "trials are"
        text = f"{name}: {total} measuring {trials} not counted ({reasons})"
        warnings.append(AnswerWarning(WarningCode.NOT_COUNTED, text))
