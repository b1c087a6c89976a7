"""Answers and curves as a person reads them: what to do first, then one line per depth."""

import sys
from collections.abc import Container, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from elsa_tune.analysis.answer import ALL_TASKS, Action, Answer, Certified, FirstLines
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.warning import DETAILS as WARNING_DETAILS
from elsa_tune.analysis.warning import AnswerWarning, WarningCode
from elsa_tune.analysis.wording.answer import probe_sentence
from elsa_tune.analysis.wording.certainty import recorded_search
from elsa_tune.analysis.wording.tables import WITHOUT_EMBEDDINGS, answer_cells, point_cells
from elsa_tune.fitted_table import fitted_table
from elsa_tune.searching.console import SafeConsole
from elsa_tune.searching.output import Stdout, unfiltered
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.task import guess_words
from elsa_tune.words import CHOSEN, CHOSEN_MARK, border_legend, listed, metric_text, points

# The raw operating point, the corrected one, and the certified number of layers.
CERTIFIED_MARK = "✓"
DETAILED_MARKS = {
    "○": "operating point",
    "▷": "corrected for chance",
    CERTIFIED_MARK: "certified (raw)",
}

# Columns in the order in which a narrow window does without them; JSON has them all.
SPARED = ("stopped", "tries", "frozen", "95 %", "rate")
# Columns that are for the details of an answer.
DETAILED = ("frozen", "tries", "stopped")


def print_curves(
    curves: Sequence[FreezeCurve],
    console: Console | None = None,
    *,
    details: bool = False,
) -> None:
    """Print each to stdout, an answer with its first lines before its depths.

    details: of an answer, also its complete statement, every mark and every warning.
    """
    console = console or stdout_console()
    for number, curve in enumerate(curves):
        if number:
            console.print()
        print_heading(console, curve)
        if isinstance(curve, Answer):
            _answer(console, curve, details=details)
        else:
            _curve(console, curve)


def _answer(console: Console, answer: Answer, *, details: bool) -> None:
    print_first_lines(console, answer.first_lines, is_answered=answer.is_answered)
    if details:
        _statement(console, answer)
    if answer.points:
        console.print()
        _candidates(console, answer, details=details)
    if answer.probe is not None:
        console.print(probe_sentence(answer.probe))
    shown: Sequence[AnswerWarning] = answer.warnings
    if not details:
        shown = _gravest(answer.warnings)
    for warning in shown:
        console.print(f"! {warning.text}")
    if answer.points and not details:
        hidden = len(answer.warnings) - len(shown)
        _say_more(console, answer, hidden_warnings=hidden)


def print_first_lines(console: Console, first: FirstLines, *, is_answered: bool) -> None:
    """Print what to do, and below it the labelled lines; a terminal wraps each beside its label."""
    style = "bold" if is_answered else "bold red"
    console.print(first.headline, style=style)
    if not console.is_terminal:
        _, *below_headline = str(first).splitlines()
        for line in below_headline:
            console.print(line)
        return
    grid = Table.grid(padding=(0, 2), pad_edge=True)
    grid.add_column(no_wrap=True, style="bold")
    for label, text in first.lines:
        grid.add_row(label, text)
    console.print(grid)


def _say_more(console: Console, answer: Answer, *, hidden_warnings: int) -> None:
    """Print the command that shows what this table leaves out."""
    more = ""
    if hidden_warnings == 1:
        more = " and 1 more note"
    elif hidden_warnings > 1:
        more = f" and {hidden_warnings} more notes"
    command = "--details"
    name = recorded_search(answer)
    if name is not None and answer.search_host is None:
        command = f"elsa-tune answer {name} --details"
    console.print(f"{command} prints the answer in full{more}.", style="dim")


def _gravest(warnings: Sequence[AnswerWarning]) -> list[AnswerWarning]:
    """Return the first of each code that may change a decision."""
    gravest: dict[WarningCode, AnswerWarning] = {}
    for warning in warnings:
        if warning.code not in WARNING_DETAILS:
            gravest.setdefault(warning.code, warning)
    return list(gravest.values())


def _statement(console: Console, answer: Answer) -> None:
    """Print the operating point raw and corrected, and how sure it is, in full."""
    if answer.sentence and answer.sentence != answer.first_lines.headline:
        console.print()
        console.print(answer.sentence)
    if answer.certainty:
        console.print()
        console.print(answer.certainty)


def _curve(console: Console, curve: FreezeCurve) -> None:
    if curve.points:
        _candidates(console, curve, details=True)
    if curve.chance is not None:
        console.print(f"A {guess_words(curve.metric)} has {points(curve.chance)}.")
    if curve.probe is not None:
        console.print(probe_sentence(curve.probe))
    for warning in curve.warnings:
        console.print(f"! {warning.text}")


def stdout_console() -> Console:
    """Return a console that wraps words at the terminal's width; without one it breaks no line."""
    stream = unfiltered(sys.stdout)
    plain: dict[str, Any] = {"highlight": False, "markup": False}
    console = SafeConsole(stream, Stdout, **plain)
    if console.is_terminal:
        return console
    # Wide enough for any line when nobody's window has to hold it.
    return SafeConsole(stream, Stdout, **plain, width=200, soft_wrap=True)


def print_heading(console: Console, curve: FreezeCurve) -> None:
    """Print `minilm, task rte (accuracy x 100; 2,490 training rows; search 'first')`."""
    counts = []
    if curve.train_size:
        counts.append(f"{curve.train_size:,} training")
    if curve.examples:
        counts.append(f"{curve.examples:,} evaluation")
    details = []
    if curve.metric is not None:
        details.append(f"{metric_text(curve.metric)} x 100")
    if counts:
        rows = " and ".join(counts)
        details.append(f"{rows} rows")
    if curve.search is not None:
        details.append(f"search '{curve.search}'")
    about = f"task {curve.task}"
    if curve.task == ALL_TASKS:
        about = "all tasks together"
    heading = f"{curve.model}, {about}"
    if details:
        in_brackets = "; ".join(details)
        heading += f" ({in_brackets})"
    console.print(heading, style="dim")


def _marks(curve: FreezeCurve, candidate: Candidate, *, details: bool) -> str:
    """Return the marks beside a depth that an answer names; a curve alone has none."""
    if not isinstance(curve, Answer):
        return ""
    marks = ""
    advice = curve.recommendation
    is_recommended = _is_of(advice.point, candidate)
    if is_recommended and advice.action is Action.FINE_TUNE:
        marks = CHOSEN_MARK
    if not details:
        return marks
    decisions = (
        curve.operating_point,
        curve.corrected_operating_point,
        curve.certified_depth,
    )
    for mark, decision in zip(DETAILED_MARKS, decisions, strict=True):
        if _is_of(decision, candidate):
            marks += mark
    return marks


def _is_of(point: CurvePoint | Certified | None, candidate: Candidate) -> bool:
    return point is not None and point.candidate == candidate


def _candidates(console: Console, curve: FreezeCurve, *, details: bool) -> None:
    """Print one line per depth, without empty columns and what a narrow window can best spare."""
    marks = []
    for point in curve.points:
        marks.append(_marks(curve, point.candidate, details=details))
    columns = {"": marks}
    columns |= _columns(curve, details=details)
    table = fitted_table(
        columns,
        console.width,
        spared=SPARED,
        bold=[CHOSEN_MARK in mark for mark in marks],
    )
    shown = {column.header for column in table.columns}
    legend = _legend(curve, marks, shown)
    if any(cell.endswith(WITHOUT_EMBEDDINGS) for cell in columns["tuned"]):
        legend.append(f"{WITHOUT_EMBEDDINGS}: the embeddings are frozen")
    console.print(table)
    console.print("  ".join(legend), style="dim")
    left_out: list[str] = []
    for name in SPARED:
        if name not in shown and _has_cells(columns, name):
            left_out.append(name)
    if left_out:
        text = f"Too narrow for {listed(left_out)}: `--format json` has it all."
        console.print(text, style="dim")


def _columns(curve: FreezeCurve, *, details: bool) -> dict[str, list[str]]:
    """Return the cells of each column by its heading."""
    is_joint = curve.task == ALL_TASKS
    hidden: list[str] = []
    if not details:
        hidden += DETAILED
        if is_joint:
            hidden.append("failed")
    columns: dict[str, list[str]] = {}
    for point in curve.points:
        cells = point_cells(point)
        if isinstance(curve, Answer):
            cells = answer_cells(curve, point)
        for name, cell in cells.items():
            if name in hidden:
                continue
            heading = name
            if is_joint and name == "kept":
                heading = "least kept"
            column = columns.setdefault(heading, [])
            column.append(cell)
    return columns


def _has_cells(columns: Mapping[str, Sequence[str]], name: str) -> bool:
    """Whether a column is there and says anything."""
    cells = columns.get(name, ())
    return any(cell not in ("", "-") for cell in cells)


def _legend_of_marks(curve: FreezeCurve, used_marks: str) -> list[str]:
    """Return what the marks that are used mean."""
    meanings = {CHOSEN_MARK: CHOSEN, **DETAILED_MARKS}
    if isinstance(curve, Answer) and curve.claims_corrected:
        meanings[CERTIFIED_MARK] = "certified (corrected for chance)"
    legend = []
    for mark, meaning in meanings.items():
        if mark in used_marks:
            legend.append(f"{mark} {meaning}")
    return legend


def _legend(
    curve: FreezeCurve,
    marks: Sequence[str],
    columns: Container[object],
) -> list[str]:
    """Return what the marks and columns that are shown mean."""
    legend = _legend_of_marks(curve, "".join(marks))
    if "rate" in columns:
        legend += border_legend({point.known_rates.at_border for point in curve.points})
    if "quality" in columns:
        legend.append("±: spread of seeds")
    if "95 %" in columns:
        interval = "95 %: interval of the mean"
        codes = {warning.code for warning in curve.warnings}
        if WarningCode.EXAMPLES_LEFT_OUT in codes:
            interval += ", by seeds alone"
        legend.append(interval)
    if "kept" in columns or "least kept" in columns:
        legend.append("kept: of the full model's score")
    if "gain kept" in columns:
        best = f"the best {guess_words(curve.metric)}"
        legend.append(f"gain kept: of its gain over guessing ({best})")
    return legend
