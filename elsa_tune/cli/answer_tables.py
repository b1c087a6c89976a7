"""Answers and curves as a person reads them: the sentence first, then one line per depth."""

import io
import sys
from collections.abc import Sequence

from rich.console import Console

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.analysis.wording.answer import probe_sentence, saves_sentence
from elsa_tune.analysis.wording.tables import point_cells
from elsa_tune.searching.fitted_table import fitted_table
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.words import BORDER_ARROWS, BORDER_WORDS, listed, metric_text, number_text, points

RAW_MARK = "▶"
MEANINGS = {RAW_MARK: "operating point", "▷": "corrected for chance", "✓": "certified (raw)"}

# Columns in the order in which a narrow window does without them; JSON has them all.
SPARED = ("stopped", "tries", "95 %", "rate")


def print_curves(curves: Sequence[FreezeCurve], console: Console | None = None) -> None:
    """Print each to stdout, an answer with its sentences before its depths."""
    console = console or stdout_console()
    for number, curve in enumerate(curves):
        if number:
            console.print()
        _heading(console, curve)
        if isinstance(curve, Answer):
            console.print(curve.sentence, style="bold" if curve.is_answered else "bold red")
            step = "" if curve.next_step is None else f"Next: {curve.next_step}"
            texts = (saves_sentence(curve.operating_point), curve.certainty, step)
            for text in filter(None, texts):
                console.print(text)
        if curve.points:
            _depths(console, curve)
        if curve.chance is not None and not isinstance(curve, Answer):
            console.print(f"A constant answer has {points(curve.chance)}.")
        if curve.probe is not None:
            console.print(probe_sentence(curve.probe))
        for warning in curve.warnings:
            console.print(f"! {warning.text}")


def stdout_console() -> Console:
    """A console that wraps words at the terminal's width; without one it breaks no line."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A terminal that cannot show a sign shows a question mark rather than a traceback.
        sys.stdout.reconfigure(errors="replace")
    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        # Wide enough for any line when nobody's window has to hold it.
        console = Console(highlight=False, markup=False, width=200, soft_wrap=True)
    return console


def _heading(console: Console, curve: FreezeCurve) -> None:
    details = [
        "" if curve.metric is None else metric_text(curve.metric),
        number_text(curve.train_size, "{:,} training examples"),
        "" if curve.search is None else f"search {curve.search}",
    ]
    told = "; ".join(detail for detail in details if detail)
    task = "all tasks together" if curve.task == ALL_TASKS else curve.task
    console.print(f"{curve.model} on {task}" + (f" ({told})" if told else ""), style="dim")


def _marks(curve: FreezeCurve, depth: FreezeDepth) -> str:
    """The marks beside a depth that an answer names; a curve alone has none."""
    if not isinstance(curve, Answer):
        return ""
    certified = None if depth.is_full_model else curve.certified
    named = (curve.operating_point, curve.corrected_operating_point, certified)
    pairs = zip(MEANINGS, named, strict=True)
    return "".join(mark for mark, point in pairs if point is not None and point.depth == depth)


def _depths(console: Console, curve: FreezeCurve) -> None:
    """One line per depth, without empty columns and what a narrow window can best spare."""
    joint, marks = curve.task == ALL_TASKS, [_marks(curve, one.depth) for one in curve.points]
    cells = [{"": mark, **point_cells(one)} for mark, one in zip(marks, curve.points, strict=True)]
    columns = {
        "least kept" if joint and name == "kept" else name: [cell[name] for cell in cells]
        for name in cells[0]
    }
    bold = [RAW_MARK in mark for mark in marks]
    table = fitted_table(columns, console.width, spared=SPARED, bold=bold)
    there = {column.header for column in table.columns}
    spared = [name for name in SPARED if set(columns[name]) - {"", "-"} and name not in there]
    console.print(table)
    told = [f"{mark} {what}" for mark, what in MEANINGS.items() if mark in "".join(marks)]
    has_rates = any(column.header == "rate" for column in table.columns)
    borders = {point.tried.at_border for point in curve.points} if has_rates else set()
    told += [f"{BORDER_ARROWS[one]} {BORDER_WORDS[one]}" for one in BORDER_WORDS if one in borders]
    if told:
        console.print("  ".join(told), style="dim")
    if spared:
        console.print(f"Too narrow for {listed(spared)}: `--format json` has it all.", style="dim")
