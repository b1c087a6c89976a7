"""Answers and curves as a person reads them: what to do first, then one line per depth."""

import io
import sys
from collections.abc import Container, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from elsa_tune.analysis.answer import ALL_TASKS, Action, Answer
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.warning import DETAILS as WARNING_DETAILS
from elsa_tune.analysis.warning import AnswerWarning
from elsa_tune.analysis.wording.answer import probe_sentence
from elsa_tune.analysis.wording.certainty import recorded_search
from elsa_tune.analysis.wording.tables import point_cells
from elsa_tune.searching.console import SafeConsole
from elsa_tune.searching.fitted_table import fitted_table
from elsa_tune.searching.output import unfiltered
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.words import BORDER_ARROWS, BORDER_WORDS, listed, metric_text, number_text, points

CHOSEN_MARK = "▶"
CHOSEN = "recommended"
# The raw operating point, the corrected one, and the certified number of layers.
DETAILED_MARKS = {"○": "operating point", "▷": "corrected for chance", "✓": "certified (raw)"}

# Columns in the order in which a narrow window does without them; JSON has them all.
SPARED = ("stopped", "tries", "frozen", "95 %", "rate")
# Columns that are for the details of an answer.
DETAILED = ("frozen", "tries", "stopped")


def print_curves(
    curves: Sequence[FreezeCurve], console: Console | None = None, *, details: bool = False
) -> None:
    """Print each to stdout, an answer with its first lines before its depths.

    details: of an answer, also its complete statement, every mark and every warning.
    """
    console = console or stdout_console()
    for number, curve in enumerate(curves):
        if number:
            console.print()
        _heading(console, curve)
        if isinstance(curve, Answer):
            _answer(console, curve, details=details)
        else:
            _curve(console, curve)


def _answer(console: Console, answer: Answer, *, details: bool) -> None:
    first = answer.first_lines
    console.print(first.headline, style="bold" if answer.is_answered else "bold red")
    if console.is_terminal:
        grid = Table.grid(padding=(0, 2), pad_edge=True)
        grid.add_column(no_wrap=True, style="bold")
        for line in first.lines:
            grid.add_row(*line)
        console.print(grid)
    else:
        for told in str(first).splitlines()[1:]:
            console.print(told)
    if details:
        _statement(console, answer)
    if answer.points:
        console.print()
        _depths(console, answer, details=details)
    if answer.probe is not None:
        console.print(probe_sentence(answer.probe))
    shown = answer.warnings if details else _gravest(answer.warnings)
    for warning in shown:
        console.print(f"! {warning.text}")
    if details or not answer.points:
        return
    left = len(answer.warnings) - len(shown)
    more = f" and {left} more {'note' if left == 1 else 'notes'}" if left else ""
    name = recorded_search(answer)
    command = "--details" if name is None else f"elsa-tune answer {name} --details"
    console.print(f"{command} prints the answer in full{more}.", style="dim")


def _gravest(warnings: Sequence[AnswerWarning]) -> list[AnswerWarning]:
    """The first of each code that may change a decision."""
    first = {one.code: one for one in reversed(warnings) if one.code not in WARNING_DETAILS}
    return [one for one in warnings if one is first.get(one.code)]


def _statement(console: Console, answer: Answer) -> None:
    """The operating point raw and corrected, and how sure it is, in full."""
    sentence = "" if answer.sentence == answer.first_lines.headline else answer.sentence
    for text in filter(None, (sentence, answer.certainty)):
        console.print()
        console.print(text)


def _curve(console: Console, curve: FreezeCurve) -> None:
    if curve.points:
        _depths(console, curve, details=True)
    if curve.chance is not None:
        console.print(f"A constant answer has {points(curve.chance)}.")
    if curve.probe is not None:
        console.print(probe_sentence(curve.probe))
    for warning in curve.warnings:
        console.print(f"! {warning.text}")


def stdout_console() -> Console:
    """A console that wraps words at the terminal's width; without one it breaks no line."""
    stream = unfiltered(sys.stdout)
    if isinstance(stream, io.TextIOWrapper):
        # A terminal that cannot show a sign shows a question mark rather than a traceback.
        stream.reconfigure(errors="replace")
    how: dict[str, Any] = {"highlight": False, "markup": False}
    console = SafeConsole(stream, BrokenPipeError, **how)
    if not console.is_terminal:
        # Wide enough for any line when nobody's window has to hold it.
        console = SafeConsole(stream, BrokenPipeError, **how, width=200, soft_wrap=True)
    return console


def _heading(console: Console, curve: FreezeCurve) -> None:
    rows = {
        "training": number_text(curve.train_size, "{:,}"),
        "evaluation": number_text(curve.examples, "{:,}"),
    }
    counted = " and ".join(f"{number} {what}" for what, number in rows.items() if number)
    details = [
        "" if curve.metric is None else f"{metric_text(curve.metric)} x 100",
        f"{counted} rows" if counted else "",
        "" if curve.search is None else f"search '{curve.search}'",
    ]
    told = "; ".join(detail for detail in details if detail)
    is_joint = curve.task == ALL_TASKS
    about = f"{curve.model}, " + ("all tasks together" if is_joint else f"task {curve.task}")
    console.print(f"{about} ({told})" if told else about, style="dim")


def _marks(curve: FreezeCurve, depth: Candidate, *, details: bool) -> str:
    """The marks beside a depth that an answer names; a curve alone has none."""
    if not isinstance(curve, Answer):
        return ""
    advice = curve.recommendation
    chosen = advice.point if advice.action is Action.FINE_TUNE else None
    mark = CHOSEN_MARK if chosen is not None and chosen.depth == depth else ""
    if not details:
        return mark
    certified = None if depth.is_reference else curve.certified
    named = (curve.operating_point, curve.corrected_operating_point, certified)
    pairs = zip(DETAILED_MARKS, named, strict=True)
    return mark + "".join(one for one, point in pairs if point and point.depth == depth)


def _depths(console: Console, curve: FreezeCurve, *, details: bool) -> None:
    """Print a line for each depth, without what a narrow window can best spare."""
    marks = [_marks(curve, point.depth, details=details) for point in curve.points]
    columns = _columns(curve, marks, details=details)
    bold = [CHOSEN_MARK in mark for mark in marks]
    table = fitted_table(columns, console.width, spared=SPARED, bold=bold)
    shown = {column.header for column in table.columns}
    console.print(table)
    console.print("  ".join(_legend(curve, marks, shown)), style="dim")
    spared = [name for name in SPARED if name not in shown and _says_something(columns.get(name))]
    if spared:
        console.print(f"Too narrow for {listed(spared)}: `--format json` has it all.", style="dim")


def _columns(
    curve: FreezeCurve, marks: Sequence[str], *, details: bool
) -> dict[str, Sequence[str]]:
    """Return the cells of each column by its header."""
    is_joint = curve.task == ALL_TASKS
    hidden: set[str] = set()
    if not details:
        hidden.update(DETAILED)
        if is_joint:
            hidden.add("failed")
    cells = [point_cells(point) for point in curve.points]
    columns: dict[str, Sequence[str]] = {"": marks}
    for name in cells[0]:
        if name not in hidden:
            header = "least kept" if is_joint and name == "kept" else name
            columns[header] = [each[name] for each in cells]
    return columns


def _says_something(cells: Sequence[str] | None) -> bool:
    return any(cell not in ("", "-") for cell in cells or ())


def _legend(curve: FreezeCurve, marks: Sequence[str], columns: Container[object]) -> list[str]:
    """What the marks and columns that are there mean."""
    meanings = {CHOSEN_MARK: CHOSEN, **DETAILED_MARKS}
    told = [f"{mark} {what}" for mark, what in meanings.items() if mark in "".join(marks)]
    borders = {point.tried.at_border for point in curve.points} if "rate" in columns else set()
    told += [f"{BORDER_ARROWS[one]} {BORDER_WORDS[one]}" for one in BORDER_WORDS if one in borders]
    if "quality" in columns:
        told.append("±: spread of seeds")
    if "95 %" in columns:
        told.append("95 %: interval of the mean")
    if "kept" in columns or "least kept" in columns:
        told.append("kept: of the full model's score")
    if "gain kept" in columns:
        told.append("gain kept: of its gain over guessing (the best constant answer)")
    return told
