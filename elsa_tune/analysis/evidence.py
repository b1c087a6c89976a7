"""From measuring runs to what is known of their spread: predictions fetched, checked, resampled."""

from __future__ import annotations

import functools
from collections.abc import Hashable
from typing import Protocol

from elsa_tune.analysis.groups import ResultGroup
from elsa_tune.analysis.measured import MeasuredRun, Runs
from elsa_tune.analysis.statistics.resampling import ExampleDraws, resample, score
from elsa_tune.analysis.statistics.uncertainty import DepthRuns, Uncertainty
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import ResultsError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import Predictions, ResultRow

# A quality recomputed from predictions may differ from the recorded one by rounding.
SAME_SCORE = 1e-5

# Sets of draws, half a megabyte each, that a process keeps: a hunt asks for the same ones again
# after every trial.
DRAWS_KEPT = 32


class Evidence(Hashable, Protocol):
    """Where predictions come from."""

    def predictions(self, row: ResultRow) -> Predictions | None:
        """What the trial of a row answered; None where it is not known."""


def curve_uncertainty(
    group: ResultGroup, measured: Runs, evidence: Evidence | None, warnings: list[AnswerWarning]
) -> Uncertainty:
    """The spread of a group's depths whose runs are known one by one.

    Example by example only where every run that counts has its predictions; a warning says so
    where they cannot be used. Else by the number of examples, where that is known and the metric is
    accuracy; else by seeds alone.
    """
    runs = {
        depth: DepthRuns(
            depth=depth,
            qualities=tuple(run.quality for run in several),
            failed=tuple(run.is_failed(group.chance) for run in several),
        )
        for depth, several in measured.items()
    }
    draws, metric = None, group.first.metric
    several = tuple((depth, tuple(measured[depth])) for depth in sorted(measured))
    trials = {run.row.trial for _, runs in several for run in runs if not run.is_diverged}
    if evidence is not None and metric is not None and trials and None not in trials:
        try:
            draws = _example_draws(evidence, metric, several)
        except ResultsError as error:
            text = f"predictions were not used: {error}"
            warnings.append(AnswerWarning(WarningCode.PREDICTIONS_UNUSED, text))
    if draws is None and metric == "accuracy" and group.examples is not None:
        means = {depth: one.mean for depth, one in runs.items()}
        draws = ExampleDraws.counted(means, group.examples)
    return Uncertainty(runs=runs, chance=group.chance, examples=draws)


@functools.lru_cache(DRAWS_KEPT)
def _example_draws(
    evidence: Evidence,
    metric: str,
    measured: tuple[tuple[FreezeDepth, tuple[MeasuredRun, ...]], ...],
) -> ExampleDraws:
    """Raises ResultsError, which says why, where predictions cannot be used; never kept."""
    columns: dict[FreezeDepth, list[int | None]] = {depth: [] for depth, _ in measured}
    found: list[Predictions] = []
    doubtful = 0
    for depth, run in ((depth, run) for depth, runs in measured for run in runs):
        columns[depth].append(None if run.is_diverged else len(found))
        if run.is_diverged:
            continue
        answered = evidence.predictions(run.row)
        if answered is None:
            # One is enough: looking for more may cost a server's time each.
            raise ResultsError(f"those of {run.row.trial} are lost or damaged")
        doubtful += abs(score(answered, metric) - run.quality) > SAME_SCORE
        found.append(answered)
    if doubtful:
        raise ResultsError(f"{doubtful} of {len(found)} give another quality than the one recorded")
    return ExampleDraws.of(resample(found, metric), columns)
