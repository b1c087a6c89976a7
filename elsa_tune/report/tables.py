"""The page's tables as texts: the answers, each curve, all trials."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.curve import CurvePoint, Saves
from elsa_tune.report.subjects import Subject
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.words import percent, points, spread

SETTINGS = (
    *("model", "task", "examples", "layers", "search", "runs", "phase", "status"),
    "evaluations",
)
# A page with more would be slow; the file has them all.
MOST_TRIALS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Columns by name, each row's cells in their order, and the number of the row to point out."""

    caption: str
    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    chosen: int | None = None

    @property
    def is_number(self) -> tuple[bool, ...]:
        """Of each column, whether it is set to the right."""
        columns = zip(*self.rows, strict=True)
        return tuple(any(cell[:1].isdigit() or cell[:1] == "-" for cell in c) for c in columns)


def answers_table(answers: Sequence[Answer]) -> Table:
    """One row an answer, joint ones with the others."""
    return _table(
        "Every answer at a glance. k: fine-tuned layers; kept: share of the full model's quality.",
        [_answer_cells(answer) for answer in answers],
        folds=True,
    )


def curve_table(subject: Subject) -> Table:
    """One row a depth; the operating point is pointed out."""
    answer = subject.answer
    chosen = answer.operating_point
    depths = [point.depth for point in answer.points]
    return _table(
        f"{subject.name}: quality × 100 by frozen layers, the full model first.",
        [_point_cells(point) for point in answer.points],
        chosen=None if chosen is None else depths.index(chosen.depth),
    )


def trials_table(rows: Sequence[ResultRow]) -> Table:
    """One row a trial, or a mean of runs; no more than MOST_TRIALS."""
    caption = f"{len(rows):,} {'trial' if len(rows) == 1 else 'trials'}."
    if len(rows) > MOST_TRIALS:
        caption += f" The first {MOST_TRIALS:,}; trials.csv has all."
    return _table(caption, [_row_cells(row) for row in rows[:MOST_TRIALS]], folds=True)


def _answer_cells(answer: Answer) -> dict[str, str]:
    point, corrected = answer.operating_point, answer.corrected_operating_point
    saves = Saves() if point is None else point.saves
    sure = answer.certified
    return {
        "model": answer.model,
        "task": "all together" if answer.task == ALL_TASKS else answer.task,
        "examples": _number(answer.train_size, "{:,}"),
        "layers": f"{answer.layers}",
        "k": _number(None if point is None else point.fine_tuned_layers),
        "kept": _share(None if point is None else point.retention),
        "kept, corrected": _share(None if point is None else point.corrected_retention),
        "k, corrected": _number(None if corrected is None else corrected.fine_tuned_layers),
        "k, certified": _number(None if sure is None else sure.fine_tuned_layers),
        "k, plausible": ", ".join(map(str, answer.plausible or ())),
        "learning rate": _number(None if point is None else point.learning_rate, "{:g}"),
        "full model": _quality(None if answer.full is None else answer.full.quality),
        "constant answer": _quality(answer.chance),
        "parameters saved": _saved(saves.trainable_parameters),
        "time saved": _saved(saves.train_seconds),
        "memory saved": _saved(saves.peak_memory_mb),
        "remark": (answer.reason or "").replace("_", " "),
    }


def _point_cells(point: CurvePoint) -> dict[str, str]:
    low, high = point.ci_low, point.ci_high
    return {
        "frozen layers": _depth(point.depth),
        "quality": _quality(point.quality, point.std),
        "kept": _share(point.retention),
        "corrected": _share(point.corrected_retention),
        "95 % interval": "" if low is None or high is None else f"{points(low)} to {points(high)}",
        "fine-tuned layers": f"{point.fine_tuned_layers}",
        "learning rate": _number(point.learning_rate, "{:g}"),
        "seeds": f"{point.seeds}",
        "failed": f"{point.failed_seeds or ''}",
        "tries": f"{point.explored or ''}",
        "stopped": f"{point.stopped_early or ''}",
        "seconds": _number(point.train_seconds, "{:,.1f}"),
        "peak MiB": _number(point.peak_memory_mb, "{:,.0f}"),
        "trained parameters": _number(point.trainable_parameters, "{:,.0f}"),
    }


def _row_cells(row: ResultRow) -> dict[str, str]:
    return {
        "model": row.model,
        "task": row.task,
        "examples": _number(row.train_size, "{:,}"),
        "frozen layers": _depth(row.depth),
        "learning rate": _number(row.learning_rate, "{:g}"),
        "seed": _number(row.seed),
        "runs": f"{row.runs}",
        "quality": _quality(row.quality, row.std),
        "phase": row.phase.value,
        "status": row.status.value.replace("_", " "),
        "evaluations": _number(row.epochs_run),
        "seconds": _number(row.train_seconds, "{:,.1f}"),
        "peak MiB": _number(row.peak_memory_mb, "{:,.0f}"),
        "trained parameters": _number(row.trainable_parameters, "{:,.0f}"),
        "search": row.search or "",
        "trial": row.trial or "",
    }


def _table(
    caption: str,
    rows: Sequence[Mapping[str, str]],
    *,
    folds: bool = False,
    chosen: int | None = None,
) -> Table:
    """A column in which no cell holds anything is left out. folds: what all rows have in common of
    SETTINGS is said once, in the caption.
    """
    kept = [name for name in (rows[0] if rows else ()) if any(row[name] for row in rows)]
    if folds and len(rows) > 1:
        same = [name for name in kept if name in SETTINGS and len({row[name] for row in rows}) == 1]
        kept = [name for name in kept if name not in same]
        if same:
            caption += f" Of all: {', '.join(f'{name} {rows[0][name]}' for name in same)}."
    return Table(
        caption=caption,
        names=tuple(kept),
        rows=tuple(tuple(row[name] for name in kept) for row in rows),
        chosen=chosen,
    )


def _number(value: float | None, form: str = "{}") -> str:
    return "" if value is None else form.format(value)


def _share(value: float | None) -> str:
    return "" if value is None else percent(value)


def _saved(value: float | None) -> str:
    return "" if value is None else percent(max(value, 0.0))


def _quality(value: float | None, std: float | None = None) -> str:
    return "" if value is None else spread(value, std)


def _depth(depth: FreezeDepth) -> str:
    return "0 + emb." if depth.is_embeddings_only else depth.label
