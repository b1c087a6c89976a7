"""The page's tables as texts: the answers, and each curve."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.wording.tables import point_cells
from elsa_tune.words import percent, points


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
        return tuple(any(cell[:1].isdigit() for cell in column) for column in columns)


def answers_table(answers: Sequence[Answer]) -> Table:
    """One row an answer, joint ones with the others."""
    caption = "Every answer at a glance. k: fine-tuned layers; kept: share of the full model's."
    return _table(caption, [_answer_cells(answer) for answer in answers])


def curve_table(name: str, answer: Answer) -> Table:
    """One row a depth; the operating point is pointed out."""
    depths = [point.depth for point in answer.points]
    chosen = answer.operating_point
    cells = [
        {
            **point_cells(point),
            "seconds": _number(point.train_seconds, "{:,.1f}"),
            "peak MiB": _number(point.peak_memory_mb, "{:,.0f}"),
            "trained parameters": _number(point.trainable_parameters, "{:,.0f}"),
        }
        for point in answer.points
    ]
    caption = f"{name}: quality × 100 by frozen layers, the full model first."
    return _table(caption, cells, None if chosen is None else depths.index(chosen.depth))


def _answer_cells(answer: Answer) -> dict[str, str]:
    point, corrected = answer.operating_point, answer.corrected_operating_point
    sure = answer.certified
    return {
        "model": answer.model,
        "task": "all together" if answer.task == ALL_TASKS else answer.task,
        "examples": _number(answer.train_size, "{:,}"),
        "layers": f"{answer.layers}",
        "k": _number(None if point is None else point.fine_tuned_layers),
        "kept": percent(None if point is None else point.retention),
        "kept, corrected": percent(None if point is None else point.corrected_retention),
        "k, corrected": _number(None if corrected is None else corrected.fine_tuned_layers),
        "k, certified": _number(None if sure is None else sure.fine_tuned_layers),
        "k, plausible": ", ".join(map(str, answer.plausible or ())),
        "full model": points(None if answer.full is None else answer.full.quality),
        "constant answer": points(answer.chance),
        "remark": (answer.reason or "").replace("_", " "),
    }


def _table(caption: str, rows: Sequence[Mapping[str, str]], chosen: int | None = None) -> Table:
    """A column in which no cell holds anything is left out."""
    told = [{name: "" if cell == "-" else cell for name, cell in row.items()} for row in rows]
    kept = [name for name in (told[0] if told else ()) if any(row[name] for row in told)]
    cells = tuple(tuple(row[name] for name in kept) for row in told)
    return Table(caption=caption, names=tuple(kept), rows=cells, chosen=chosen)


def _number(value: float | None, form: str = "{}") -> str:
    return "" if value is None else form.format(value)
