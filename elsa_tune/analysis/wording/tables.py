"""A curve's depths as the cells of a table, and an answer in Markdown."""

from collections.abc import Sequence

from elsa_tune.analysis.answer import Action, Answer, Reason
from elsa_tune.analysis.curve import CurvePoint
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.visible import visible
from elsa_tune.words import BORDER_ARROWS, interval, percent, rate_text, spread

# Beside a number of fine-tuned layers: the embeddings below them are frozen all the same.
WITHOUT_EMBEDDINGS = "-emb."

# The columns of Markdown's table.
_COLUMNS = ("tuned", "frozen", "quality", "95 %", "kept", "gain kept", "rate", "seeds")


def point_cells(point: CurvePoint) -> dict[str, str]:
    """Return one depth as every table shows it, by column; an empty cell is "" or `-`."""
    rate = "-"
    if point.learning_rate is not None:
        arrow = BORDER_ARROWS[point.known_rates.at_border]
        rate = f"{rate_text(point.learning_rate)}{arrow}"
    return {
        "tuned": tuned_cell(point),
        "frozen": "-" if point.fine_tuned_layers is None else point.candidate.short,
        "quality": spread(point.quality, point.std),
        "95 %": interval(point.ci_low, point.ci_high),
        "kept": percent(point.retention),
        "gain kept": percent(point.corrected_retention),
        "rate": rate,
        "seeds": str(point.seeds),
        "failed": str(point.failed_seeds or ""),
        "tries": str(point.exploring_trials or ""),
        "stopped": str(point.stopped_early or ""),
    }


def answer_cells(answer: Answer, point: CurvePoint) -> dict[str, str]:
    """Return a depth's cells beside an answer.

    Where the full model did not learn, a share of what it scores means nothing.
    """
    cells = point_cells(point)
    if answer.reason is Reason.FULL_MODEL_DID_NOT_LEARN:
        cells |= {"kept": "-", "gain kept": "-"}
    return cells


def tuned_cell(point: CurvePoint) -> str:
    """Return the number of fine-tuned layers, or the label of what is not told by one."""
    layers = point.fine_tuned_layers
    if layers is None:
        return point.candidate.label
    candidate = point.candidate
    if isinstance(candidate, FreezeDepth) and candidate.is_embeddings_only:
        return f"{layers} {WITHOUT_EMBEDDINGS}"  # the full model trains as many
    return str(layers)


def answer_markdown(answer: Answer) -> str:
    """Return an answer in Markdown.

    The first lines, the freeze curve as a table, in bold the line of the depth to fine-tune, the
    complete statement with how sure it is, and the warnings; what there is nothing of is left out.
    """
    first = answer.first_lines
    sentence = "" if answer.sentence == first.headline else answer.sentence
    warnings = "\n".join(f"- {warning.text}" for warning in answer.warnings)
    parts = [first.markdown, _curve_markdown(answer), sentence, answer.certainty, warnings]
    text = "\n\n".join(part for part in parts if part)
    return visible(text)


def _curve_markdown(answer: Answer) -> str:
    """Return the freeze curve as a table; "" without any depth."""
    if not answer.points:
        return ""
    advice = answer.recommendation
    lines = [
        markdown_line(["fine-tuned", *_COLUMNS[1:]]),
        markdown_line(["---:"] * len(_COLUMNS)),
    ]
    for point in answer.points:
        cells = answer_cells(answer, point)
        if point.fine_tuned_layers is not None:
            cells["frozen"] = point.candidate.label
        is_recommended = advice.point is not None and point.candidate == advice.point.candidate
        bold = "**" if is_recommended and advice.action is Action.FINE_TUNE else ""
        lines.append(markdown_line([f"{bold}{cells[name]}{bold}" for name in _COLUMNS]))
    return "\n".join(lines)


def markdown_line(cells: Sequence[str]) -> str:
    """Return a table's line; a `|` within a name is no border."""
    escaped = [cell.replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"
