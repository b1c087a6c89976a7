"""An answer in Markdown, for a run's description and a model's card.

It must not decide anything; the sentences are those of the command line.
"""

from __future__ import annotations

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.words import interval, percent, rate_text, spread

_COLUMNS = ("fine-tuned", "frozen", "quality", "95 %", "kept", "corrected", "rate", "seeds")


def answer_markdown(answer: Answer) -> str:
    """The answer, how sure it is, the freeze curve as a table, and the warnings."""
    parts = [answer.sentence, answer.certainty, curve_table(answer)]
    parts.append("\n".join(f"- {warning.text}" for warning in answer.warnings))
    return "\n\n".join(part for part in parts if part)


def curve_table(answer: Answer) -> str:
    """One line per depth, the operating point's in bold; "" where nothing is measured."""
    point = answer.operating_point
    lines = [
        _line(_cells(one), bold=point is not None and one.depth == point.depth)
        for one in answer.points
    ]
    if not lines:
        return ""
    rule = "|".join(" ---: " for _ in _COLUMNS)
    return "\n".join([_line(_COLUMNS), f"|{rule}|", *lines])


def _cells(point: CurvePoint) -> tuple[str, ...]:
    return (
        str(point.fine_tuned_layers),
        point.depth.label,
        spread(point.quality, point.std),
        interval(point.ci_low, point.ci_high),
        percent(point.retention),
        percent(point.corrected_retention),
        "-" if point.learning_rate is None else rate_text(point.learning_rate),
        str(point.seeds),
    )


def _line(cells: tuple[str, ...], bold: bool = False) -> str:
    return "| " + " | ".join(f"**{cell}**" if bold else cell for cell in cells) + " |"
