"""The paper's Tables 2 to 5 and Figure 1 with our numbers beside its own.

It must not print, and must not know how a number came about: curves and printed values in, tables
out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.studies.table import (
    PAPER,
    REFERENCE,
    TASK_NAMES,
    Cell,
    Kind,
    PaperTable,
    file_name,
    matched,
)
from elsa_tune.tables.published import PublishedValue

OURS, SPREAD = "ours", "±"


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
    depths, dropped = matched((value.depth for value in layout), reference.layers, layers)
    lines: list[tuple[Cell, ...]] = []
    for own, depth in depths.items():
        lines += _ours_at(ours, model, own, layers, tasks)
        paper = [printed.get((depth, task)) for task in tasks]
        lines += _paper_line((reference.model, _share(depth, reference.layers)), paper)
    return PaperTable(
        name=f"table3-{file_name(model)}",
        title=f"Like Table 3, for {model}: by frozen layers; means over seeds",
        columns=_depth_columns(tasks),
        rows=tuple(lines),
        heads=2,
        notes=(
            f"The paper does not have {model}; beside it stands {reference.model} with the same "
            "share of its layers frozen.",
            *([dropped] if dropped else []),
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
    return [(TASK_NAMES.get(task, task), kind) for task in tasks]


def _depth_columns(tasks: Sequence[str], kind: Kind = Kind.POINTS) -> tuple[tuple[str, Kind], ...]:
    return (
        ("model", Kind.TEXT),
        ("frozen", Kind.TEXT),
        ("", Kind.TEXT),
        *_task_columns(tasks, kind),
    )


def _share(depth: FreezeDepth, layers: int) -> str:
    return f"{depth.frozen_layers} of {layers}"
