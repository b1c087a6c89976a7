"""The page's tables as data: the answers, each curve, all trials.

It must not write HTML or compute anything: a cell is what it shows and what it is sorted by.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from elsa_tune.analysis.answer import ALL_TASKS, Answer, Saves
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.words import percent, points, spread

# A page with more would be slow; the file has them all.
MOST_TRIALS = 2000


@dataclass(frozen=True, slots=True)
class Cell:
    """text: what is shown. value: what a number is sorted by, None where there is no number."""

    text: str
    value: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns by name; is_text: of each column; chosen: the rows to point out."""

    caption: str
    names: tuple[str, ...]
    is_text: tuple[bool, ...]
    rows: tuple[tuple[Cell, ...], ...]
    chosen: frozenset[int] = frozenset()


def answers_table(answers: Sequence[Answer]) -> Table:
    """One row an answer, joint ones with the others."""
    return _table(
        "Every answer at a glance. k: fine-tuned layers; kept: share of the full model's quality.",
        [_answer_cells(answer) for answer in answers],
        texts=("model", "task", "k, plausible", "remark"),
    )


def curve_table(answer: Answer, name: str) -> Table:
    """One row a depth; the operating point is pointed out."""
    table = _table(
        f"{name}: quality × 100 by frozen layers, the full model first.",
        [_point_cells(point) for point in answer.points],
        texts=(),
    )
    chosen = answer.operating_point
    marked = [
        number
        for number, point in enumerate(answer.points)
        if chosen is not None and point.depth == chosen.depth
    ]
    return replace(table, chosen=frozenset(marked))


def trials_table(rows: Sequence[ResultRow]) -> Table:
    """One row a trial, or a mean of runs; no more than MOST_TRIALS."""
    shown = rows[:MOST_TRIALS]
    cut = f" The first {MOST_TRIALS:,}; trials.csv has all." if len(shown) < len(rows) else ""
    return _table(
        f"{len(rows):,} {'row' if len(rows) == 1 else 'rows'} of results.{cut}",
        [_row_cells(row) for row in shown],
        texts=("model", "task", "search", "trial", "phase", "status"),
    )


def _answer_cells(answer: Answer) -> dict[str, Cell]:
    point, corrected = answer.operating_point, answer.corrected_operating_point
    saves = Saves() if point is None else point.saves
    sure = answer.certified
    return {
        "model": Cell(answer.model),
        "task": Cell("all together" if answer.task == ALL_TASKS else answer.task),
        "examples": _number(answer.train_size, "{:,}"),
        "layers": _number(answer.layers),
        "k": _number(None if point is None else point.fine_tuned_layers),
        "kept": _share(None if point is None else point.retention),
        "kept, corrected": _share(None if point is None else point.corrected_retention),
        "k, corrected": _number(None if corrected is None else corrected.fine_tuned_layers),
        "k, certified": _number(None if sure is None else sure.fine_tuned_layers),
        "k, plausible": Cell(", ".join(map(str, answer.plausible or ()))),
        "full model": _quality(None if answer.full is None else answer.full.quality),
        "constant answer": _quality(answer.chance),
        "parameters saved": _share(saves.trainable_parameters),
        "time saved": _share(saves.train_seconds),
        "memory saved": _share(saves.peak_memory_mb),
        "remark": Cell((answer.reason or "").replace("_", " ")),
    }


def _point_cells(point: CurvePoint) -> dict[str, Cell]:
    low, high = point.ci_low, point.ci_high
    interval = "" if low is None or high is None else f"{points(low)} to {points(high)}"
    return {
        "frozen layers": _depth(point.depth),
        "fine-tuned layers": _number(point.fine_tuned_layers),
        "quality": _measured(point.quality, point.std),
        "95 % interval": Cell(interval, low if interval else None),
        "kept": _share(point.retention),
        "corrected": _share(point.corrected_retention),
        "learning rate": _number(point.learning_rate, "{:g}"),
        "seeds": _number(point.seeds),
        "failed": _count(point.failed_seeds),
        "tries": _count(point.explored),
        "stopped": _count(point.stopped_early),
        "seconds": _number(point.train_seconds, "{:,.1f}"),
        "peak MiB": _number(point.peak_memory_mb, "{:,.0f}"),
        "trained parameters": _number(point.trainable_parameters, "{:,.0f}"),
    }


def _row_cells(row: ResultRow) -> dict[str, Cell]:
    return {
        "model": Cell(row.model),
        "task": Cell(row.task),
        "examples": _number(row.train_size, "{:,}"),
        "search": Cell(row.search or ""),
        "trial": Cell(row.trial or ""),
        "phase": Cell(row.phase.value),
        "status": Cell(row.status.value.replace("_", " ")),
        "frozen layers": _depth(row.depth),
        "learning rate": _number(row.learning_rate, "{:g}"),
        "seed": _number(row.seed),
        "runs": _number(row.runs),
        "quality": _measured(row.quality, row.std),
        "evaluations": _number(row.epochs_run),
        "seconds": _number(row.train_seconds, "{:,.1f}"),
        "peak MiB": _number(row.peak_memory_mb, "{:,.0f}"),
        "trained parameters": _number(row.trainable_parameters, "{:,.0f}"),
    }


def _table(caption: str, rows: Sequence[Mapping[str, Cell]], texts: Sequence[str]) -> Table:
    """A column in which no cell holds anything is left out."""
    names = list(rows[0]) if rows else []
    kept = [name for name in names if any(row[name].text for row in rows)]
    return Table(
        caption=caption,
        names=tuple(kept),
        is_text=tuple(name in texts for name in kept),
        rows=tuple(tuple(row[name] for name in kept) for row in rows),
    )


def _number(value: float | None, form: str = "{}") -> Cell:
    return Cell("") if value is None else Cell(form.format(value), value)


def _count(value: int) -> Cell:
    """Nought is left empty: what is there stands out."""
    return Cell(str(value or ""), value)


def _share(value: float | None) -> Cell:
    return Cell("") if value is None else Cell(percent(value), value)


def _quality(value: float | None) -> Cell:
    return Cell("") if value is None else Cell(points(value), value)


def _measured(quality: float | None, std: float | None) -> Cell:
    return Cell("") if quality is None else Cell(spread(quality, std), quality)


def _depth(depth: FreezeDepth) -> Cell:
    text = "embeddings" if depth.is_embeddings_only else depth.label
    return Cell(text, depth.frozen_layers + 0.5 * depth.is_embeddings_only)
