"""The low-resource study's appendix with our numbers beside its own.

It must not print, and must not know how a number came about: curves and printed values in, tables
out.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.specs.freeze import FreezeDepth
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
    depths, dropped = matched(
        (value.depth for value in layout), layout[0].layers if layout else layers, layers
    )
    printed = {(value.train_size, value.depth): value for value in layout}
    lines: list[tuple[Cell, ...]] = []
    for size in sorted(by_size, key=lambda size: size or 0):
        ours = {point.depth: point for point in by_size[size].points}
        theirs = {
            own: printed[size, depth] for own, depth in depths.items() if (size, depth) in printed
        }
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
    name = TASK_NAMES.get(task, task)
    notes = []
    reference = layout[0].model if layout else None
    if reference is None:
        notes.append(f"The study printed nothing of {name}.")
    elif reference != model:
        notes.append(
            f"The study does not have {model} ({layers} layers); beside it stands {reference} "
            f"({layout[0].layers}) with the same share of its layers frozen."
        )
    if dropped:
        notes.append(dropped)
    return PaperTable(
        name=f"appendix-{file_name(model)}-{file_name(task)}",
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
