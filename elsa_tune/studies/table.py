"""A study's table with our numbers beside the printed ones, as a value.

It must not print, and must not know any study. Numbers stay fractions; a column's kind says how its
study writes them.
"""

from __future__ import annotations

import csv
import enum
import io
from collections.abc import Iterable
from dataclasses import dataclass

from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.tables.csv_lines import plain_cell
from elsa_tune.words import layers_text, listed, points

PAPER = "paper"

# Whom a model stands beside that the studies do not have.
REFERENCE = {"elsa": "bert_base", "low-resource": "roberta_base"}

TASK_NAMES = {
    "cola": "CoLA",
    "sst2": "SST-2",
    "mrpc": "MRPC",
    "stsb": "STS-B",
    "qqp": "QQP",
    "mnli": "MNLI",
    "mnli_mismatched": "MNLI-mm",
    "qnli": "QNLI",
    "rte": "RTE",
    "wnli": "WNLI",
}


class Kind(enum.StrEnum):
    """How a column's numbers are written."""

    TEXT = "text"
    POINTS = "points"  # .583 is 58.3, as the paper prints qualities
    CHANGE = "change"  # -.185 is -18.5
    FRACTION = "fraction"  # .612, as the blog prints accuracies
    FINE = "fine"  # .0939, as it prints their spread


Cell = str | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperTable:
    """A table: cells are words or fractions, None where there is nothing.

    name: for files, e.g. `table3`. title: as the study calls it, and what stands in it. heads: how
    many of the first columns say what a row is about.
    """

    name: str
    title: str
    columns: tuple[tuple[str, Kind], ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    heads: int = 1

    @property
    def texts(self) -> list[list[str]]:
        """Every cell as it is printed."""
        kinds = [kind for _, kind in self.columns]
        written: list[list[str]] = []
        above: tuple[Cell, ...] = ()
        for row in self.rows:
            texts = [_text(cell, kind) for cell, kind in zip(row, kinds, strict=True)]
            # What begins as the row above it does is the same model, or depth of it.
            for place in range(self.heads):
                if row[: place + 1] == above[: place + 1]:
                    texts[place] = ""
            written.append(texts)
            above = row
        return written

    @property
    def csv(self) -> str:
        """The same with a header, numbers as fractions, nothing where there is none."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([name for name, _ in self.columns])
        for row in self.rows:
            writer.writerow(
                [
                    ""
                    if cell is None
                    else f"{cell:.6g}"
                    if isinstance(cell, float)
                    else plain_cell(cell)
                    for cell in row
                ]
            )
        return out.getvalue()


def _text(cell: Cell, kind: Kind) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if kind is Kind.CHANGE:
        return f"{100 * cell:+.1f}"
    if kind is Kind.FRACTION:
        return f"{cell:.3f}"
    if kind is Kind.FINE:
        return f"{cell:.4f}"
    return points(cell)


def scaled(depth: FreezeDepth, published_layers: int, layers: int) -> FreezeDepth:
    """A depth of a published model as the same share of another's layers, rounded down, but at
    least one layer where the published model has any frozen.
    """
    if depth.frozen_layers == 0:
        return depth
    return FreezeDepth.of(max(1, depth.frozen_layers * layers // published_layers))


def matched(
    depths: Iterable[FreezeDepth], published_layers: int, layers: int
) -> tuple[dict[FreezeDepth, FreezeDepth], str]:
    """Each of our depths with the printed one beside it, and a sentence that names the printed
    depths that have no place of their own ("" for none).

    Where two printed depths are one of ours, as in a model of few layers, the first stands there.
    """
    found: dict[FreezeDepth, FreezeDepth] = {}
    dropped = []
    for depth in dict.fromkeys(depths):
        own = scaled(depth, published_layers, layers)
        if found.setdefault(own, depth) != depth:
            dropped.append(depth.label)
    if not dropped:
        return found, ""
    are, others = (
        ("is", "it would be the same as another")
        if len(dropped) == 1
        else ("are", "they would be the same as others")
    )
    return found, (
        f"Of the printed depths, {listed(dropped)} of {published_layers} {are} left out: with "
        f"{layers_text(layers)} {others}."
    )


def file_name(name: str) -> str:
    """A model or task as a part of a file's name."""
    return "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in name).strip("-.")
