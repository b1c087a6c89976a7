"""The two studies' own tables with our numbers beside theirs, as values.

It must not print, and must not know how a number came about: curves and printed values in, tables
out. Numbers stay fractions; a column's kind says how its study writes them.
"""

from __future__ import annotations

import csv
import enum
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.published import PublishedValue
from elsa_tune.analysis.words import points
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus

OURS, SPREAD, PAPER = "ours", "±", "paper"

# Whom a model stands beside that the studies do not have.
REFERENCE = {"elsa": "bert_base", "low-resource": "roberta_base"}

_TASK_NAMES = {
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
                    "" if cell is None else f"{cell:.6g}" if isinstance(cell, float) else cell
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


# ---- the paper ----


def elsa_tables(
    curves: Sequence[FreezeCurve], rows: Sequence[ResultRow], published: Sequence[PublishedValue]
) -> list[PaperTable]:
    """Tables 2 to 5, those that have one of our models, and Figure 1 as a table.

    curves: one for each model and task. rows: every trial, exploring ones too, for Table 2. A model
    that the paper does not have gets a table like Table 3, beside BERT-base at the same shares of
    its layers.
    """
    values = [value for value in published if value.study == "elsa"]
    models = tuple(dict.fromkeys(curve.model for curve in curves))
    ours = {(curve.model, curve.task): curve for curve in curves}
    known = {value.model for value in values}
    tables = [_table2(models, ours, rows, [value for value in values if value.table == 2])]
    for number in (3, 4, 5):
        layout = [value for value in values if value.table == number]
        asked = [model for model in models if any(value.model == model for value in layout)]
        if asked:
            tables.append(_depth_table(number, layout, models, ours))
    for model in models:
        if model not in known:
            layout = [
                value for value in values if value.table == 3 and value.model == REFERENCE["elsa"]
            ]
            tables.append(_foreign_table(model, layout, ours))
    tables.append(_figure1(models, ours, values))
    return tables


def _table2(
    models: Sequence[str],
    ours: Mapping[tuple[str, str], FreezeCurve],
    rows: Sequence[ResultRow],
    values: Sequence[PublishedValue],
) -> PaperTable:
    """The line search: the best of the learning rates, on the full model, one seed."""
    known = {value.model for value in values}
    tasks = _tasks(values, ours, models)
    printed = {(value.model, value.task): value.quality for value in values}
    lines: list[tuple[Cell, ...]] = []
    for model in models:
        found = [_best_explored(rows, model, task) for task in tasks]
        rates = [None if one is None else one.learning_rate for one in found]
        beside = model if model in known else REFERENCE["elsa"]
        lines += [
            (model, OURS, *(None if one is None else one.quality for one in found)),
            (model, "rate", *(None if rate is None else f"{rate:g}" for rate in rates)),
            *_paper_line((beside,), [printed.get((beside, task)) for task in tasks]),
        ]
    return PaperTable(
        name="table2",
        title="Table 2: the full models at the best learning rate of the line search",
        columns=(("model", Kind.TEXT), ("", Kind.TEXT), *_task_columns(tasks)),
        rows=tuple(lines),
        notes=("One seed, chosen for being the best: optimistic, as in the paper.",),
    )


def _best_explored(rows: Iterable[ResultRow], model: str, task: str) -> ResultRow | None:
    tried = [
        row
        for row in rows
        if (row.model, row.task) == (model, task)
        and row.phase is Phase.EXPLORE
        and row.depth.is_full_model
        and row.status is TrialStatus.COMPLETED
        and row.quality is not None
    ]
    # Of equal ones the lower rate, as a search chooses.
    return max(tried, key=lambda row: (row.quality, -(row.learning_rate or 0.0)), default=None)


def _depth_table(
    number: int,
    layout: Sequence[PublishedValue],
    models: Sequence[str],
    ours: Mapping[tuple[str, str], FreezeCurve],
) -> PaperTable:
    """Tables 3 to 5: models and depths down, tasks across."""
    tasks = tuple(dict.fromkeys(value.task for value in layout))
    printed = {(value.model, value.depth, value.task): value.quality for value in layout}
    places = dict.fromkeys((value.model, value.depth, value.layers) for value in layout)
    lines: list[tuple[Cell, ...]] = []
    for model, depth, layers in places:
        if model in models:
            lines += _ours_at(ours, model, depth, layers, tasks)
        paper = [printed.get((model, depth, task)) for task in tasks]
        lines += _paper_line((model, _share(depth, layers)), paper)
    names = " and ".join(dict.fromkeys(value.model for value in layout))
    return PaperTable(
        name=f"table{number}",
        title=f"Table {number}: {names}, by frozen layers; means over seeds",
        columns=_depth_columns(tasks),
        rows=tuple(lines),
        heads=2,
    )


def _foreign_table(
    model: str,
    layout: Sequence[PublishedValue],
    ours: Mapping[tuple[str, str], FreezeCurve],
) -> PaperTable:
    tasks = _tasks(layout, ours, [model])
    layers = next(curve.layers for key, curve in ours.items() if key[0] == model)
    printed = {(value.depth, value.task): value.quality for value in layout}
    reference = layout[0]
    lines: list[tuple[Cell, ...]] = []
    for depth in dict.fromkeys(value.depth for value in layout):
        own = scaled(depth, reference.layers, layers)
        lines += _ours_at(ours, model, own, layers, tasks)
        paper = [printed.get((depth, task)) for task in tasks]
        lines += _paper_line((reference.model, _share(depth, reference.layers)), paper)
    return PaperTable(
        name=f"table3-{_file_name(model)}",
        title=f"Like Table 3, for {model}: by frozen layers; means over seeds",
        columns=_depth_columns(tasks),
        rows=tuple(lines),
        heads=2,
        notes=(
            f"The paper does not have {model}; beside it stands {reference.model} with the same "
            "share of its layers frozen.",
        ),
    )


def _ours_at(
    ours: Mapping[tuple[str, str], FreezeCurve],
    model: str,
    depth: FreezeDepth,
    layers: int,
    tasks: Sequence[str],
) -> list[tuple[Cell, ...]]:
    found = [_point(ours.get((model, task)), depth) for task in tasks]
    share = _share(depth, layers)
    return [
        (model, share, OURS, *(None if one is None else one.quality for one in found)),
        (model, share, SPREAD, *(None if one is None else one.std for one in found)),
    ]


def _paper_line(head: tuple[str, ...], values: Sequence[float | None]) -> list[tuple[Cell, ...]]:
    """What is printed, where anything is."""
    return [(*head, PAPER, *values)] if any(value is not None for value in values) else []


def _figure1(
    models: Sequence[str],
    ours: Mapping[tuple[str, str], FreezeCurve],
    values: Sequence[PublishedValue],
) -> PaperTable:
    """Relative change against the full model, for every depth that was measured or printed."""
    means = [value for value in values if value.runs is not None]
    tasks = _tasks(means, ours, models)
    lines: list[tuple[Cell, ...]] = []
    for model in models:
        layers = next(curve.layers for key, curve in ours.items() if key[0] == model)
        # A number that two tables print stands in the first of them.
        printed = {
            (value.depth, value.task): value.quality
            for value in reversed(means)
            if value.model == model
        }
        curves = [curve for key, curve in ours.items() if key[0] == model]
        measured = {point.depth for curve in curves for point in curve.measured}
        for depth in sorted(measured | {depth for depth, _ in printed}):
            if depth.is_full_model:
                continue
            share = _share(depth, layers)
            mine = (_change(ours.get((model, task)), depth) for task in tasks)
            lines.append((model, share, OURS, *mine))
            theirs = [_printed_change(printed, depth, task) for task in tasks]
            lines += _paper_line((model, share), theirs)
    return PaperTable(
        name="figure1",
        title="Figure 1: relative change of quality against the full model, in %",
        columns=_depth_columns(tasks, Kind.CHANGE),
        rows=tuple(lines),
        heads=2,
    )


def _change(curve: FreezeCurve | None, depth: FreezeDepth) -> float | None:
    point = _point(curve, depth)
    return None if point is None or point.retention is None else point.retention - 1


def _printed_change(
    printed: Mapping[tuple[FreezeDepth, str], float], depth: FreezeDepth, task: str
) -> float | None:
    full, value = printed.get((FreezeDepth.of(0), task)), printed.get((depth, task))
    return None if full is None or value is None else value / full - 1


# ---- the blog ----


def low_resource_tables(
    curves: Sequence[FreezeCurve], published: Sequence[PublishedValue]
) -> list[PaperTable]:
    """The appendix: a table for each model and task, training sizes and depths down.

    A model that the study does not have stands beside RoBERTa-base at the same shares of its
    layers.
    """
    values = [value for value in published if value.study == "low-resource"]
    known = {value.model for value in values}
    pairs = dict.fromkeys((curve.model, curve.task) for curve in curves)
    tables = []
    for model, task in pairs:
        reference = model if model in known else REFERENCE["low-resource"]
        layout = [value for value in values if (value.model, value.task) == (reference, task)]
        found = [curve for curve in curves if (curve.model, curve.task) == (model, task)]
        tables.append(_appendix_table(model, task, found, layout))
    return tables


_STATISTICS = (
    ("mean", Kind.FRACTION),
    ("50 %", Kind.FRACTION),
    ("std", Kind.FINE),
    ("min", Kind.FRACTION),
    ("max", Kind.FRACTION),
)


def _appendix_table(
    model: str, task: str, curves: Sequence[FreezeCurve], layout: Sequence[PublishedValue]
) -> PaperTable:
    layers = curves[0].layers
    by_size = {curve.train_size: curve for curve in curves}
    # Two of its depths may be one of ours, where ours has fewer layers: the first stands there.
    printed: dict[tuple[int | None, FreezeDepth], PublishedValue] = {}
    for value in layout:
        own = scaled(value.depth, value.layers, layers)
        printed.setdefault((value.train_size, own), value)
    lines: list[tuple[Cell, ...]] = []
    for size in sorted(by_size, key=lambda size: size or 0):
        ours = {point.depth: point for point in by_size[size].points}
        theirs = {depth: value for (its, depth), value in printed.items() if its == size}
        for depth in sorted(ours.keys() | theirs.keys(), key=_appendix_order):
            point = ours.get(depth)
            lines.append(
                (
                    f"{size:,}",
                    "emb." if depth.is_embeddings_only else depth.label,
                    "-" if point is None else str(point.seeds),
                    *_statistics(point),
                    *_printed_statistics(theirs.get(depth)),
                )
            )
    name = _TASK_NAMES.get(task, task)
    notes = []
    reference = layout[0].model if layout else None
    if reference is None:
        notes.append(f"The study printed nothing of {name}.")
    elif reference != model:
        notes.append(
            f"The study does not have {model} ({layers} layers); beside it stands {reference} "
            f"({layout[0].layers}) with the same share of its layers frozen."
        )
    return PaperTable(
        name=f"appendix-{_file_name(model)}-{_file_name(task)}",
        title=f"Appendix: {model} on {name}, {curves[0].metric or 'quality'} on dev",
        columns=(
            ("examples", Kind.TEXT),
            ("frozen", Kind.TEXT),
            ("seeds", Kind.TEXT),
            *_STATISTICS,
            *((f"{PAPER} {what}", kind) for what, kind in _STATISTICS),
        ),
        rows=tuple(lines),
        notes=tuple(notes),
    )


def _appendix_order(depth: FreezeDepth) -> tuple[bool, FreezeDepth]:
    """Embeddings-only first, as the study has it."""
    return not depth.is_embeddings_only, depth


def _statistics(point: CurvePoint | None) -> tuple[Cell, ...]:
    if point is None or point.quality is None:
        return (None,) * len(_STATISTICS)
    several = point.qualities
    if not several:
        return (point.quality, None, point.std, None, None)
    return (point.quality, statistics.median(several), point.std, min(several), max(several))


def _printed_statistics(value: PublishedValue | None) -> tuple[Cell, ...]:
    if value is None:
        return (None,) * len(_STATISTICS)
    return (value.quality, value.median, value.std, value.minimum, value.maximum)


# ---- what both have ----


def scaled(depth: FreezeDepth, published_layers: int, layers: int) -> FreezeDepth:
    """A depth of a published model as the same share of another's layers, rounded down."""
    if depth.frozen_layers == 0:
        return depth
    return FreezeDepth.of(depth.frozen_layers * layers // published_layers)


def _point(curve: FreezeCurve | None, depth: FreezeDepth) -> CurvePoint | None:
    if curve is None:
        return None
    return next((point for point in curve.measured if point.depth == depth), None)


def _tasks(
    layout: Sequence[PublishedValue],
    ours: Mapping[tuple[str, str], FreezeCurve],
    models: Sequence[str],
) -> tuple[str, ...]:
    """The study's tasks in its order, all of them where it has one of the models; then ours that it
    does not have.
    """
    own = dict.fromkeys(task for model, task in ours if model in models)
    is_known = any(value.model in models for value in layout)
    theirs = (value.task for value in layout if is_known or value.task in own)
    return tuple(dict.fromkeys([*theirs, *own]))


def _task_columns(tasks: Sequence[str], kind: Kind = Kind.POINTS) -> list[tuple[str, Kind]]:
    return [(_TASK_NAMES.get(task, task), kind) for task in tasks]


def _depth_columns(tasks: Sequence[str], kind: Kind = Kind.POINTS) -> tuple[tuple[str, Kind], ...]:
    return (
        ("model", Kind.TEXT),
        ("frozen", Kind.TEXT),
        ("", Kind.TEXT),
        *_task_columns(tasks, kind),
    )


def _share(depth: FreezeDepth, layers: int) -> str:
    return f"{depth.frozen_layers} of {layers}"


def _file_name(name: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "._-" else "-" for sign in name).strip("-.")
