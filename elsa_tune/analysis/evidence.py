"""From measuring runs to what is known of their spread: predictions fetched, checked, resampled."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from elsa_tune.analysis.groups import ResultGroup
from elsa_tune.analysis.measured import Runs
from elsa_tune.analysis.statistics.resampling import RESAMPLES, ExampleDraws, resample, score
from elsa_tune.analysis.statistics.uncertainty import DepthRuns, Uncertainty
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.errors import ResultsError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import Predictions, ResultRow

# A quality recomputed from predictions may differ from the recorded one by rounding.
SAME_SCORE = 1e-5

# Part of the key of kept draws: raise it when `resampling` computes something else.
_VERSION = 3

_Arrays = Mapping[str, NDArray[np.float32]]


class Evidence(Protocol):
    """Where predictions come from, and where what is computed from them may be kept."""

    def predictions(self, row: ResultRow) -> Predictions | None:
        """What the trial of a row answered; None where it is not known."""

    def stamp(self, row: ResultRow) -> str:
        """Differs where the predictions of a row may differ, without reading them."""

    def load(self, key: str) -> _Arrays | None:
        """What was kept under a key; None where nothing was."""

    def save(self, key: str, arrays: _Arrays) -> None:
        """Keep arrays under a key; a failure to do so is no error."""


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
    draws, metric, examples = None, group.first.metric, group.examples
    if evidence is not None and metric is not None and measured:
        draws = _example_draws(measured, metric, evidence, warnings)
    if draws is None and metric == "accuracy" and examples is not None:
        draws = ExampleDraws.counted({depth: one.mean for depth, one in runs.items()}, examples)
    return Uncertainty(runs=runs, chance=group.chance, examples=draws)


def _example_draws(
    measured: Runs, metric: str, evidence: Evidence, warnings: list[AnswerWarning]
) -> ExampleDraws | None:
    depths = sorted(measured)
    key = _key(measured, metric, evidence)
    kept = evidence.load(key)
    if kept is not None and set(kept) == {depth.label for depth in depths} | {"chance", "flips"}:
        # Not a number for a depth with one run.
        flips = dict(zip(depths, kept["flips"].tolist(), strict=True))
        return ExampleDraws(
            depths={depth: kept[depth.label].astype(np.float64) for depth in depths},
            chance=kept["chance"].astype(np.float64),
            flips={depth: one for depth, one in flips.items() if not math.isnan(one)},
        )
    columns: dict[FreezeDepth, list[int | None]] = {}
    found: list[Predictions] = []
    doubtful = 0
    try:
        for depth in depths:
            numbers = columns[depth] = []
            for run in measured[depth]:
                if run.is_diverged:
                    numbers.append(None)
                    continue
                answered = evidence.predictions(run.row)
                if answered is None:
                    # One is enough: looking for more may cost a server's time each.
                    if run.row.trial is not None:
                        warnings.append(_unused(f"those of {run.row.trial} are lost or damaged"))
                    return None
                doubtful += abs(score(answered, metric) - run.quality) > SAME_SCORE
                numbers.append(len(found))
                found.append(answered)
        if doubtful:
            why = f"{doubtful} of {len(found)} give another quality than the one recorded"
            warnings.append(_unused(why))
        if doubtful or not found:
            return None
        draws = ExampleDraws.of(resample(found, metric), columns)
    except ResultsError as error:
        warnings.append(_unused(str(error)))
        return None
    arrays = {depth.label: draws.depths[depth].astype(np.float32) for depth in depths}
    arrays["chance"] = draws.chance.astype(np.float32)
    arrays["flips"] = np.asarray([draws.flips.get(d, math.nan) for d in depths], dtype=np.float32)
    evidence.save(key, arrays)
    return draws


def _unused(why: str) -> AnswerWarning:
    return AnswerWarning(WarningCode.PREDICTIONS_UNUSED, f"predictions were not used: {why}")


def _key(measured: Runs, metric: str, evidence: Evidence) -> str:
    """Equal for equal trials with the same predictions."""
    digest = hashlib.sha256(f"{_VERSION} {RESAMPLES} {metric}".encode())
    for depth in sorted(measured):
        for run in measured[depth]:
            row = run.row
            name = f"{row.model} {row.task} {row.search} {row.trial} {row.seed}"
            digest.update(f"\n{depth} {name} {run.quality!r} {evidence.stamp(row)}".encode())
    return digest.hexdigest()[:32]
