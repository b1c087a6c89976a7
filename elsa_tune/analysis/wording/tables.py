"""A curve's depths as the cells of a table, and an answer in Markdown."""

from collections.abc import Iterable

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.words import BORDER_ARROWS, interval, percent, rate_text, spread

# Of Markdown's table.
_COLUMNS = ("tuned", "frozen", "quality", "95 %", "kept", "corrected", "rate", "seeds")


def point_cells(point: CurvePoint) -> dict[str, str]:
    """One depth as every table shows it, by column; a cell without anything is empty or `-`."""
    rate = point.learning_rate
    return {
        "frozen": "emb." if point.depth.is_embeddings_only else point.depth.label,
        "tuned": str(point.fine_tuned_layers),
        "quality": spread(point.quality, point.std),
        "95 %": interval(point.ci_low, point.ci_high),
        "kept": percent(point.retention),
        "corrected": percent(point.corrected_retention),
        "rate": "-" if rate is None else f"{rate_text(rate)}{BORDER_ARROWS[point.tried.at_border]}",
        "seeds": str(point.seeds),
        "failed": str(point.failed_seeds or ""),
        "tries": str(point.explored or ""),
        "stopped": str(point.stopped_early or ""),
    }


def answer_markdown(answer: Answer) -> str:
    """The answer, how sure it is, the freeze curve as a table, and the warnings."""
    parts = [answer.sentence, answer.certainty, curve_table(answer)]
    parts.append("\n".join(f"- {warning.text}" for warning in answer.warnings))
    return "\n\n".join(part for part in parts if part)


def curve_table(answer: Answer) -> str:
    """One line per depth, the operating point's in bold; "" where nothing is measured."""
    chosen = answer.operating_point
    lines = []
    for point in answer.points:
        cells = point_cells(point) | {"frozen": point.depth.label}
        is_chosen = chosen is not None and point.depth == chosen.depth
        mark = "**" if is_chosen else ""
        lines.append(_line(f"{mark}{cells[name]}{mark}" for name in _COLUMNS))
    if not lines:
        return ""
    heads = _line(("fine-tuned", *_COLUMNS[1:]))
    return "\n".join([heads, f"|{'|'.join(' ---: ' for _ in _COLUMNS)}|", *lines])


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
