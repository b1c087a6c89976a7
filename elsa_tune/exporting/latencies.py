"""What the ways of a recorded search would take in service, measured on this machine."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.errors import UsageError
from elsa_tune.exporting.progress_line import ProgressLine
from elsa_tune.searching.output import Say
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.cost import Cost, Latencies
from elsa_tune.specs.model import ModelSpec
from elsa_tune.tracking.paths import SearchPaths

# How many tasks of a way answer in a unit of cost: the model alone, or a bundle.
TASKS = {Cost.LATENCY: 1, Cost.BUNDLE: 8}


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencyPlan:
    """What is to be measured for the ways of one curve: all of it read, and nothing timed."""

    unit: Cost  # one of TASKS
    model: ModelSpec
    candidates: Sequence[Candidate]  # the ways
    texts: Sequence[str | tuple[str, str]]  # of the evaluation rows
    max_length: int  # in tokens

    def measure(self, say: Say) -> Latencies:
        """Return what `latencies_of` does of its curve. say: as there."""
        from elsa_tune.training.latency import latencies

        say(_what_is_measured(self.model.name, self.unit, len(self.candidates)))
        progress = ProgressLine(say)
        found = latencies(
            self.model,
            self.candidates,
            self.texts,
            max_length=self.max_length,
            tasks=TASKS[self.unit],
            tell=lambda where: progress.at(where, None),
        )
        alone = dict.fromkeys(self.candidates, found.alone)
        if self.unit is Cost.LATENCY:
            return {Cost.LATENCY: alone}
        return {Cost.LATENCY: alone, Cost.BUNDLE: found.of_task}


def plan_latencies(curve: FreezeCurve, unit: Cost, folder: Path | None) -> LatencyPlan | None:
    """Return what is to be measured; None where the unit is recorded with each trial.

    folder: of the search that the curve is of, whose model and data are read; nothing is trained.
    Raises UsageErrors where model or data are not there.
    """
    if unit not in TASKS:
        return None
    if folder is None:
        raise UsageError(
            f"`cost` {unit} is measured with the model and data of a recorded search, and these "
            "results name none that is on this machine; ask for time, memory or parameters"
        )
    # Only now: most comparisons ask for what is recorded, and need no torch.
    from elsa_tune.searching.specification import load_specification
    from elsa_tune.training.data.preparation import read_splits
    from elsa_tune.training.model.encoder import check_weights

    spec = load_specification(SearchPaths(folder.parent, folder.name))
    check_weights(spec.model)
    evaluation = read_splits(spec.task, spec.recipe)["evaluation"]
    texts: list[str | tuple[str, str]] = []
    for cells in zip(*evaluation.texts, strict=True):
        texts.append(cells[0] if len(cells) == 1 else (cells[0], cells[1]))
    return LatencyPlan(
        unit=unit,
        model=spec.model,
        candidates=[point.candidate for point in curve.measured],
        texts=texts,
        max_length=spec.recipe.max_length,
    )


def latencies_of(
    curves: Iterable[tuple[FreezeCurve, Path | None]], unit: Cost, say: Say
) -> list[Latencies]:
    """Return, by curve, the seconds of each way for one text of the evaluation rows, and one task.

    Of a bundle also those of the model alone; nothing where the unit is recorded with each trial.
    curves: each with its search's folder. What cannot be measured is refused before the first
    measurement; errors as of `plan_latencies`. say: takes what is measured, and every few seconds
    how far that is.
    """
    plans = [plan_latencies(curve, unit, folder) for curve, folder in curves]
    return [{} if plan is None else plan.measure(say) for plan in plans]


def _what_is_measured(model: str, unit: Cost, ways: int) -> str:
    """Return a line to say before the measurement, which takes a while."""
    what = f"measuring on this machine what {model} takes for one text"
    if unit is Cost.LATENCY:
        return what
    return f"{what}: alone, and per task of a bundle of {TASKS[unit]}, in {ways} ways"
