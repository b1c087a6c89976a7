"""The tables of both studies, and the paper's Figure 1, with our numbers beside the printed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.files import slug
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.known_tasks import GLUE_TASKS
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.task import GlueSource
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.studies.protocols import PROTOCOLS
from elsa_tune.studies.table import Cell, Column, PaperTable
from elsa_tune.tables.published import PublishedValue, Study
from elsa_tune.words import layers_text, listed, points, rate_text

OURS, SPREAD, PAPER = "ours", "±", "paper"

TASK_NAMES = {"mnli_mismatched": "MNLI-mm"} | {
    name: task.source.folder
    for name, task in GLUE_TASKS.items()
    if isinstance(task.source, GlueSource)
}

Place = tuple[str, FreezeDepth, int]  # a model, how deep it is frozen, its number of layers
Pairs = list[tuple[Place | None, Place]]  # ours, None where it was not run, and the printed one
Numbers = Mapping[tuple[str, FreezeDepth, str], Cell]  # by model, depth and task
Rows = tuple[tuple[Cell, ...], ...]


# ---- the paper ----


def elsa_tables(
    curves: Sequence[FreezeCurve], rows: Iterable[ResultRow], published: Sequence[PublishedValue]
) -> list[PaperTable]:
    """Tables 2 to 5, those that have one of our models, and Figure 1 as a table.

    curves: one for each model and task. rows: every trial, exploring ones too, for Table 2. A model
    that the paper does not have gets a table like Table 3, beside BERT-base at the same shares of
    its layers.
    """
    values = [value for value in published if value.study is Study.ELSA]
    by_table = {number: [one for one in values if one.table == number] for number in (2, 3, 4, 5)}
    known = {value.model for value in values}
    reference = PROTOCOLS[Study.ELSA].reference
    layers = {curve.model: curve.layers for curve in curves}
    measured = _measured(curves)
    means: dict[str, Numbers] = {
        OURS: {key: point.quality for key, point in measured.items()},
        SPREAD: {key: point.std for key, point in measured.items()},
    }

    pairs, _ = _beside(
        {one: one if one in known else reference for one in layers}, layers, by_table[2]
    )
    tasks = _tasks(by_table[2], curves)
    lines = _lines(pairs, tasks, _line_search(rows), _printed(by_table[2]))
    tables = [
        PaperTable(
            name="table2",
            title="Table 2: the full models at the best learning rate of the line search",
            columns=(("model", None), ("", None), *_task_columns(tasks)),
            rows=tuple((model, *cells) for model, _, *cells in lines),
            notes=("One seed, chosen for being the best: optimistic, as in the paper.",),
        )
    ]
    for number in (3, 4, 5):
        layout = by_table[number]
        names = {value.model: value.model for value in layout}
        if names.keys() & layers.keys():
            title = f"Table {number}: {' and '.join(names)}, by frozen layers; means over seeds"
            tasks = tuple(dict.fromkeys(value.task for value in layout))
            pairs, _ = _beside(names, layers, layout)
            lines = _lines(pairs, tasks, means, _printed(layout))
            tables.append(_by_depth(f"table{number}", title, tasks, lines))
    for model in layers:
        if model not in known:
            title = f"Like Table 3, for {model}: by frozen layers; means over seeds"
            tasks = _tasks(by_table[3], [curve for curve in curves if curve.model == model])
            pairs, dropped = _beside({model: reference}, layers, by_table[3])
            lines = _lines(pairs, tasks, means, _printed(by_table[3]))
            told = (
                f"The paper does not have {model}; beside it stands {reference} with the same "
                "share of its layers frozen."
            )
            tables.append(
                _by_depth(f"table3-{slug(model)}", title, tasks, lines, notes=(told, *dropped))
            )
    return [*tables, _figure1(curves, [value for value in values if value.runs is not None])]


def _line_search(rows: Iterable[ResultRow]) -> dict[str, Numbers]:
    """The best of the learning rates on the full model, of one seed, and that rate."""
    tried = [
        row
        for row in rows
        if row.phase is Phase.EXPLORE
        and row.depth.is_full_model
        and row.status is TrialStatus.COMPLETED
        and row.quality is not None
    ]
    # The last one stays: the best, of equal ones the lower rate, as a search chooses.
    tried.sort(key=lambda row: (row.quality, -(row.learning_rate or 0.0)))
    best = {(row.model, row.depth, row.task): row for row in tried}
    return {
        OURS: {key: row.quality for key, row in best.items()},
        "rate": {key: rate_text(row.learning_rate) for key, row in best.items()},
    }


def _figure1(curves: Sequence[FreezeCurve], values: Sequence[PublishedValue]) -> PaperTable:
    """Relative change against the full model, for every depth that was measured or printed."""
    # A number that two tables print stands in the first of them.
    printed = _printed(values[::-1])
    changes: Numbers = {
        (model, depth, task): quality / printed[model, FULL_MODEL, task] - 1
        for (model, depth, task), quality in printed.items()
    }
    kept = {key: point.retention for key, point in _measured(curves).items()}
    places = [
        (model, depth, layers)
        for model, layers in {curve.model: curve.layers for curve in curves}.items()
        for depth in sorted({depth for name, depth, _ in [*kept, *printed] if name == model})
        if not depth.is_full_model
    ]
    tasks = _tasks(values, curves)
    ours = {key: None if share is None else share - 1 for key, share in kept.items()}
    return _by_depth(
        "figure1",
        "Figure 1: relative change of quality against the full model, in %",
        tasks,
        _lines([(place, place) for place in places], tasks, {OURS: ours}, changes),
        write=lambda change: f"{100 * change:+.1f}",
    )


def _beside(
    models: Mapping[str, str], layers: Mapping[str, int], layout: Sequence[PublishedValue]
) -> tuple[Pairs, tuple[str, ...]]:
    """The printed depths of each model's partner with ours beside them, and which have no place.

    layers: of the models that were run.
    """
    pairs: Pairs = []
    told: tuple[str, ...] = ()
    for model, other in models.items():
        theirs = [value for value in layout if value.model == other]
        printed_layers = theirs[0].layers
        own_layers = layers.get(model, printed_layers)
        depths, dropped = matched((value.depth for value in theirs), printed_layers, own_layers)
        for own, depth in depths.items():
            place = (model, own, own_layers) if model in layers else None
            pairs.append((place, (other, depth, printed_layers)))
        told += dropped
    return pairs, told


def _lines(
    pairs: Pairs, tasks: Sequence[str], ours: Mapping[str, Numbers], printed: Numbers
) -> Rows:
    """Models and depths down, tasks across. ours: numbers by what their line is called."""
    lines: list[tuple[Cell, ...]] = []
    for own, theirs in pairs:
        mine = [(own, source, numbers) for source, numbers in ours.items()]
        for place, source, numbers in [*mine, (theirs, PAPER, printed)]:
            if place is not None:
                model, depth, layers = place
                cells = [numbers.get((model, depth, task)) for task in tasks]
                if source != PAPER or any(cell is not None for cell in cells):
                    lines.append((model, f"{depth.frozen_layers} of {layers}", source, *cells))
    return tuple(lines)


def _by_depth(
    name: str,
    title: str,
    tasks: Sequence[str],
    rows: Rows,
    write: Callable[[float], str] = points,
    notes: tuple[str, ...] = (),
) -> PaperTable:
    heads: tuple[Column, ...] = (("model", None), ("frozen", None), ("", None))
    columns = (*heads, *_task_columns(tasks, write))
    return PaperTable(name=name, title=title, columns=columns, rows=rows, notes=notes, heads=2)


def _task_columns(
    tasks: Sequence[str], write: Callable[[float], str] = points
) -> tuple[Column, ...]:
    return tuple((TASK_NAMES.get(task, task), write) for task in tasks)


def _measured(curves: Iterable[FreezeCurve]) -> dict[tuple[str, FreezeDepth, str], CurvePoint]:
    return {(one.model, point.depth, one.task): point for one in curves for point in one.measured}


def _printed(values: Iterable[PublishedValue]) -> dict[tuple[str, FreezeDepth, str], float]:
    return {(value.model, value.depth, value.task): value.quality for value in values}


def _tasks(layout: Sequence[PublishedValue], curves: Sequence[FreezeCurve]) -> tuple[str, ...]:
    """The study's tasks, where it has one of the models all of them; then ours that it lacks."""
    own = dict.fromkeys(curve.task for curve in curves)
    is_known = {value.model for value in layout} & {curve.model for curve in curves}
    theirs = (value.task for value in layout if is_known or value.task in own)
    return tuple(dict.fromkeys([*theirs, *own]))


# ---- the low-resource study ----


def low_resource_tables(
    curves: Sequence[FreezeCurve], published: Sequence[PublishedValue]
) -> list[PaperTable]:
    """The appendix: a table for each model and task, training sizes and depths down.

    A model that the study does not have stands beside RoBERTa-base at the same shares of its
    layers.
    """
    values = [value for value in published if value.study is Study.LOW_RESOURCE]
    reference = PROTOCOLS[Study.LOW_RESOURCE].reference
    pairs = dict.fromkeys((curve.model, curve.task) for curve in curves)
    return [
        _appendix_table(
            [curve for curve in curves if (curve.model, curve.task) == pair],
            # It has one model.
            [value for value in values if (value.model, value.task) == (reference, pair[1])],
        )
        for pair in pairs
    ]


def _appendix_table(curves: Sequence[FreezeCurve], layout: Sequence[PublishedValue]) -> PaperTable:
    """Of one model on one task. layout: what the study printed of the task."""
    model, task, layers = curves[0].model, curves[0].task, curves[0].layers
    name = TASK_NAMES.get(task, task)
    theirs_layers = layout[0].layers if layout else layers
    depths, notes = matched((value.depth for value in layout), theirs_layers, layers)
    if not layout:
        notes = (f"The study printed nothing of {name}.",)
    elif layout[0].model != model:
        notes = (
            f"The study does not have {model} ({layers} layers); beside it stands "
            f"{layout[0].model} ({theirs_layers}) with the same share of its layers frozen.",
            *notes,
        )
    printed = {(value.train_size, value.depth): value for value in layout}
    lines: list[tuple[Cell, ...]] = []
    for curve in sorted(curves, key=lambda curve: curve.train_size or 0):
        size = curve.train_size
        ours = {point.depth: point for point in curve.points}
        theirs = {
            own: printed[size, depth] for own, depth in depths.items() if (size, depth) in printed
        }
        # Embeddings-only first, as the study has it.
        for depth in sorted(
            ours.keys() | theirs, key=lambda one: (not one.is_embeddings_only, one)
        ):
            point = ours.get(depth)
            lines.append(
                (
                    f"{size:,}",
                    "emb." if depth.is_embeddings_only else depth.label,
                    None if point is None else str(point.seeds),
                    *_our_statistics(point),
                    *_their_statistics(theirs.get(depth)),
                )
            )
    return PaperTable(
        name=f"appendix-{slug(model)}-{slug(task)}",
        title=f"Appendix: {model} on {name}, {curves[0].metric or 'quality'} on dev",
        columns=(
            *(("examples", None), ("frozen", None), ("seeds", None)),
            *_STATISTICS,
            *((f"{PAPER} {what}", write) for what, write in _STATISTICS),
        ),
        rows=tuple(lines),
        notes=notes,
    )


_STATISTICS: tuple[Column, ...] = (
    ("mean", "{:.3f}".format),
    ("50 %", "{:.3f}".format),
    ("std", "{:.4f}".format),
    ("min", "{:.3f}".format),
    ("max", "{:.3f}".format),
)


def _our_statistics(point: CurvePoint | None) -> tuple[Cell, ...]:
    if point is None or not (several := point.qualities):
        return (None,) * len(_STATISTICS)
    return (point.quality, statistics.median(several), point.std, min(several), max(several))


def _their_statistics(value: PublishedValue | None) -> tuple[Cell, ...]:
    if value is None:
        return (None,) * len(_STATISTICS)
    return (value.quality, value.median, value.std, value.minimum, value.maximum)


# ---- another number of layers ----


def matched(
    depths: Iterable[FreezeDepth], published_layers: int, layers: int
) -> tuple[dict[FreezeDepth, FreezeDepth], tuple[str, ...]]:
    """Each of our depths with the printed one beside it, and a sentence that names the printed
    depths that have no place of their own, if any.

    A printed depth is taken as the same share of our layers, rounded down, but at least one layer
    where any is frozen. Where two are one of ours, as in a model of few layers, the first stands
    there.
    """
    found: dict[FreezeDepth, FreezeDepth] = {}
    dropped = []
    for depth in dict.fromkeys(depths):
        own = depth
        if depth.frozen_layers:
            own = FreezeDepth.of(max(1, depth.frozen_layers * layers // published_layers))
        if found.setdefault(own, depth) != depth:
            dropped.append(depth.label)
    if not dropped:
        return found, ()
    return found, (
        f"Printed depths that have no place of their own in {layers_text(layers)}: "
        f"{listed(dropped)} of {published_layers}.",
    )
