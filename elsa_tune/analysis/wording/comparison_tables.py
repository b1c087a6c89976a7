"""The ways of a comparison as the cells of a table, and a comparison in Markdown."""

from elsa_tune.analysis.comparing.ways import Way, WayComparison
from elsa_tune.analysis.wording.tables import markdown_line, point_cells
from elsa_tune.analysis.wording.ways import cost_cell
from elsa_tune.specs.cost import Cost
from elsa_tune.visible import visible
from elsa_tune.words import percent, rate_text

# The columns of Markdown's table, without those of costs that few comparisons have.
_COLUMNS = ("way", "quality", "95 %", "kept", "gain kept", "time", "parameters", "rate", "seeds")


def way_cells(comparison: WayComparison, way: Way) -> dict[str, str]:
    """Return one way as every table shows it, by column; an empty cell is "" or `-`."""
    point = way.point
    of_point = point_cells(point)
    cells = {
        "way": way.candidate.name(comparison.curve.layers),
        "quality": of_point["quality"],
        "95 %": of_point["95 %"],
        "kept": percent(way.kept),
        "gain kept": percent(way.gain_kept),
        "time": cost_cell(point.train_seconds, Cost.TIME),
        "memory": cost_cell(point.peak_memory_mb, Cost.MEMORY),
        "parameters": cost_cell(point.trainable_parameters, Cost.PARAMETERS),
        "latency": cost_cell(way.latency, Cost.LATENCY),
        "bundle": cost_cell(way.bundle_latency, Cost.BUNDLE),
    }
    if comparison.curve.chance == 0:
        cells["gain kept"] = "-"  # the same as what is kept
    for name in ("rate", "seeds", "failed", "tries"):
        cells[name] = of_point[name]
    if way.border is None and point.learning_rate is not None:
        cells["rate"] = rate_text(point.learning_rate)
    cells["p"] = _p_cell(way.p_value)
    cells["p of score"] = _p_cell(way.score_p_value)
    if not comparison.claims_corrected:
        cells["p of score"] = "-"  # the same
    return cells


def _p_cell(p_value: float | None) -> str:
    return "-" if p_value is None else f"{p_value:.2g}"


def comparison_markdown(comparison: WayComparison) -> str:
    """Return a comparison in Markdown: the first lines, the ways as a table, the warnings.

    The recommended way's line is bold.
    """
    warnings = "\n".join(f"- {warning.text}" for warning in comparison.warnings)
    parts = [comparison.first_lines.markdown, _table(comparison), warnings]
    text = "\n\n".join(part for part in parts if part)
    return visible(text)


def _table(comparison: WayComparison) -> str:
    """Return the ways as a table; "" without any."""
    if not comparison.ways:
        return ""
    columns = list(_COLUMNS)
    for cost in _more_costs(comparison):
        columns.insert(columns.index("rate"), cost)
    lines = [
        markdown_line(columns),
        markdown_line(["---"] + ["---:"] * (len(columns) - 1)),
    ]
    recommended = comparison.recommended
    for way in comparison.ways:
        cells = way_cells(comparison, way)
        is_chosen = recommended is not None and way.candidate == recommended.candidate
        bold = "**" if is_chosen else ""
        lines.append(markdown_line([f"{bold}{cells[name]}{bold}" for name in columns]))
    return "\n".join(lines)


def _more_costs(comparison: WayComparison) -> list[str]:
    """Return the columns of costs that are asked for or known, beside those of every table."""
    costs: list[str] = []
    if comparison.unit is Cost.MEMORY:
        costs.append(Cost.MEMORY.value)
    if comparison.unit is Cost.LATENCY or any(way.latency for way in comparison.ways):
        costs.append(Cost.LATENCY.value)
    if comparison.unit is Cost.BUNDLE or any(way.bundle_latency for way in comparison.ways):
        costs.append(Cost.BUNDLE.value)
    return costs
