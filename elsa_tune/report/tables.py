"""The tables of a report's page: a row a depth, and a row an answer."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from elsa_tune.analysis.answer import ALL_TASKS, Action, Answer, Certified
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.analysis.wording.tables import answer_cells, tuned_cell
from elsa_tune.words import number_or_name, number_text, percent, points

OVERVIEW = "Every answer at a glance. k: fine-tuned layers; kept: share of the full model's."

# Of the curve's cells, those that say what was found; the rest says what it took.
_FOUND = ("tuned", "frozen", "quality", "95 %", "kept", "gain kept", "rate", "seeds", "failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table of the page."""

    caption: str
    names: tuple[str, ...]  # of its columns
    rows: tuple[tuple[str, ...], ...]  # cells in the order of the columns
    chosen: int | None = None  # the number of the row to point out
    links: tuple[str, ...] = ()  # for each row the key of the section it leads to, or ""

    @property
    def is_number(self) -> tuple[bool, ...]:
        """Whether each column is set to the right."""
        are_numbers: list[bool] = []
        for column in zip(*self.rows, strict=True):
            are_numbers.append(any(cell[:1].isdigit() for cell in column))
        return tuple(are_numbers)


def curve_table(name: str, answer: Answer) -> Table:
    """Return a row a depth, what it scores and how that was measured; the answer is pointed out."""
    rows = []
    for point in answer.points:
        cells = answer_cells(answer, point)
        rows.append({name: cells[name] for name in _FOUND})
    caption = f"{name}: quality × 100 by fine-tuned layers, all of them first."
    return _table(caption, rows, _chosen(answer))


def cost_table(name: str, answer: Answer) -> Table:
    """Return a row a depth, what a trial costs and how many were run."""
    rows = [_cost_cells(point) for point in answer.points]
    caption = f"{name}: what a measuring trial took, and how many exploring trials were run."
    table = _table(caption, rows, _chosen(answer))
    if len(table.names) < 2:  # nothing is known beside the depths
        return replace(table, rows=())
    return table


def _cost_cells(point: CurvePoint) -> dict[str, str]:
    return {
        "tuned": tuned_cell(point),
        "trained parameters": number_text(point.trainable_parameters, "{:,.0f}"),
        "seconds": number_text(point.train_seconds, "{:,.1f}"),
        "peak MiB": number_text(point.peak_memory_mb, "{:,.0f}"),
        "tries": str(point.explored or ""),
        "stopped": str(point.stopped_early or ""),
    }


def overview(answers: Sequence[Answer], keys: Mapping[int, str]) -> Table:
    """Return a row for each answer. keys: by an answer's id, the section that its row leads to."""
    table = _table(OVERVIEW, [_overview_cells(answer) for answer in answers])
    return replace(table, links=tuple(keys.get(id(answer), "") for answer in answers))


def _overview_cells(answer: Answer) -> dict[str, str]:
    point = answer.operating_point
    full = answer.full
    candidates = answer.plausible_candidates or ()
    plausible = [number_or_name(candidate, answer.layers) for candidate in candidates]
    return {
        "model": answer.model,
        "task": "all together" if answer.task == ALL_TASKS else answer.task,
        "examples": number_text(answer.train_size, "{:,}"),
        "layers": str(answer.layers),
        "k": _number(answer, point),
        "kept": "-" if point is None else percent(point.retention),
        "kept, corrected": "-" if point is None else percent(point.corrected_retention),
        "k, corrected": _number(answer, answer.corrected_operating_point),
        "k, certified": _number(answer, answer.claimed),
        "k, plausible": ", ".join(plausible),
        "full model": "-" if full is None else points(full.quality),
        "constant answer": points(answer.chance),
        "remark": "" if answer.reason is None else answer.reason.value.replace("_", " "),
    }


def _number(answer: Answer, point: CurvePoint | Certified | None) -> str:
    """Return the number of fine-tuned layers, or the name of what has none; "" for None."""
    if point is None:
        return ""
    return number_or_name(point.candidate, answer.layers)


def _chosen(answer: Answer) -> int | None:
    """Return the row of the depth to fine-tune; None where a linear model is enough."""
    advice = answer.recommendation
    if advice.point is None or advice.action is Action.LINEAR_MODEL:
        return None
    candidates = [point.candidate for point in answer.points]
    return candidates.index(advice.point.candidate)


def _table(caption: str, rows: Sequence[Mapping[str, str]], chosen: int | None = None) -> Table:
    """Make a table without the columns in which no cell holds anything."""
    filled_names: set[str] = set()
    for row in rows:
        for name, cell in row.items():
            if cell not in ("", "-"):
                filled_names.add(name)
    first_row = rows[0] if rows else {}
    names = [name for name in first_row if name in filled_names]
    lines: list[tuple[str, ...]] = []
    for row in rows:
        cells = [row[name] for name in names]
        lines.append(tuple("" if cell == "-" else cell for cell in cells))
    return Table(caption=caption, names=tuple(names), rows=tuple(lines), chosen=chosen)
