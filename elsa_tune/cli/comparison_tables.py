"""Comparisons of ways as a person reads them: what to do first, then one line per way."""

from collections.abc import Sequence

from rich.console import Console

from elsa_tune.analysis.answer import FirstLines
from elsa_tune.analysis.comparing.ways import Way, WayBasis, WayComparison
from elsa_tune.analysis.warning import DETAILS
from elsa_tune.analysis.wording.comparison import DIFFER
from elsa_tune.analysis.wording.comparison_tables import way_cells
from elsa_tune.cli.answer_tables import (
    CERTIFIED_MARK,
    print_first_lines,
    print_heading,
    stdout_console,
)
from elsa_tune.fitted_table import fitted_table
from elsa_tune.specs.task import guess_words
from elsa_tune.words import CHOSEN, CHOSEN_MARK, border_legend, target_text

# Beside a way of which only the score is certain.
SCORE_MARK = "○"

# Columns in the order in which a narrow window does without them, but for what ways are ordered
# by; JSON has them all.
SPARED = (
    *("p of score", "p", "tries", "memory", "parameters", "latency"),
    *("95 %", "rate", "time"),
)
# Columns that are for the details.
DETAILED = ("p", "p of score", "tries", "memory", "parameters")


def print_comparisons(
    comparisons: Sequence[WayComparison],
    console: Console | None = None,
    *,
    details: bool = False,
) -> None:
    """Print each to stdout. details: also every line, column and warning."""
    console = console or stdout_console()
    for number, comparison in enumerate(comparisons):
        if number:
            console.print()
        print_heading(console, comparison.curve)
        first_lines = _first_lines(comparison, details=details)
        print_first_lines(console, first_lines, is_answered=comparison.is_answered)
        if comparison.ways:
            console.print()
            _ways(console, comparison, details=details)
        hidden = 0
        for warning in comparison.warnings:
            if details or warning.code not in DETAILS:
                console.print(f"! {warning.text}")
            else:
                hidden += 1
        if comparison.ways and not details:
            notes = ""
            if hidden:
                notes = ", and 1 more note" if hidden == 1 else f", and {hidden} more notes"
            console.print(f"--details prints every line and column{notes}.", style="dim")


def _first_lines(comparison: WayComparison, *, details: bool) -> FirstLines:
    """Return the lines that are printed: what a certificate says better is for the details."""
    first = comparison.first_lines
    if details or comparison.basis is not WayBasis.CERTIFIED:
        return first
    lines = [(label, text) for label, text in first.lines if label != DIFFER]
    return FirstLines(first.headline, tuple(lines))


def _ways(console: Console, comparison: WayComparison, *, details: bool) -> None:
    """Print one line per way, without empty columns and what a narrow window can best spare."""
    columns: dict[str, list[str]] = {}
    marks: list[str] = []
    for way in comparison.ways:
        mark = _mark(comparison, way)
        marks.append(mark)
        cells = {"": mark, **way_cells(comparison, way)}
        for name, cell in cells.items():
            is_hidden = name in DETAILED and name != comparison.unit.value
            if is_hidden and not details:
                continue
            column = columns.setdefault(name, [])
            column.append(cell)
    table = fitted_table(
        columns,
        console.width,
        spared=[name for name in SPARED if name != comparison.unit.value],
        bold=[CHOSEN_MARK in mark for mark in marks],
    )
    console.print(table)
    shown = {str(column.header) for column in table.columns}
    legend = "  ".join(_legend(comparison, "".join(marks), shown))
    console.print(legend, style="dim")


def _mark(comparison: WayComparison, way: Way) -> str:
    """Return the marks beside a way: recommended, certified."""
    mark = ""
    recommended = comparison.recommended
    if recommended is not None and recommended.candidate == way.candidate:
        mark = CHOSEN_MARK
    if way.certified:
        mark += CERTIFIED_MARK
    elif way.score_certified:
        mark += SCORE_MARK
    return mark


def _legend(comparison: WayComparison, marks: str, shown: set[str]) -> list[str]:
    """Return what the marks and columns that are shown mean."""
    legend: list[str] = []
    if CHOSEN_MARK in marks:
        legend.append(f"{CHOSEN_MARK} {CHOSEN}")
    share = target_text(comparison.target)
    if CERTIFIED_MARK in marks:
        of_what = "gain over guessing" if comparison.claims_corrected else "score"
        legend.append(f"{CERTIFIED_MARK} certified to keep {share} of the best {of_what}")
    if SCORE_MARK in marks:
        legend.append(f"{SCORE_MARK} certified to keep {share} of the best score alone")
    if "rate" in shown:
        legend += border_legend({way.border for way in comparison.ways})
    legend.append("±: spread of seeds")
    if "95 %" in shown:
        legend.append("95 %: interval of the mean")
    if "kept" in shown:
        legend.append("kept: of the best way's score")
    if "gain kept" in shown:
        best = f"the best {guess_words(comparison.curve.metric)}"
        legend.append(f"gain kept: of its gain over guessing ({best})")
    if "latency" in shown:
        legend.append("latency: of the exported model alone, for one text")
    if "bundle" in shown:
        legend.append("bundle: likewise per task, in a bundle of eight")
    if "p" in shown:
        legend.append("p: that the way does not keep the target, each way by itself")
    return legend
