"""A study's table: every depth of every search with the printed mean beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.groups import size_text
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.tables.results_csv import csv_text
from elsa_tune.words import aligned, percent, spread

COLUMNS = ("model", "task", "train_size", "layers", "frozen_layers")
PRINTED_COLUMNS = ("printed_model", "printed_layers", "printed_frozen_layers")
NUMBERS = ("seeds", "quality", "std", "retention")

_NONE = CurvePoint(depth=FreezeDepth.of(0), fine_tuned_layers=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One depth of one search. ours: without a quality where it was not measured. theirs: the
    printed curve that ours stands beside, printed: its point; None where there is none.
    """

    curve: FreezeCurve
    depth: FreezeDepth
    ours: CurvePoint
    theirs: FreezeCurve | None
    printed: CurvePoint | None


def beside(
    curves: Sequence[FreezeCurve], published: Sequence[FreezeCurve], reference: str
) -> list[Line]:
    """The depths that were measured or printed, model by model.

    reference: the model of the study that stands beside one that the study does not have, at the
    same shares of its layers.
    """
    printed = {(one.model, one.task, one.train_size): one for one in published}
    known = {one.model for one in published}
    models = list(dict.fromkeys(curve.model for curve in curves))
    lines = []
    for curve in sorted(curves, key=lambda one: models.index(one.model)):
        other = curve.model if curve.model in known else reference
        # The paper has one training size a task, however many of its examples are used here.
        sizes = (curve.train_size, None)
        found = (printed.get((other, curve.task, size)) for size in sizes)
        theirs = next((one for one in found if one is not None), None)
        ours = {point.depth: point for point in curve.with_quality}
        there = {} if theirs is None else matched(theirs, curve.layers)
        lines += [
            Line(
                curve=curve,
                depth=depth,
                ours=ours.get(depth, _NONE),
                theirs=theirs,
                printed=there.get(depth),
            )
            for depth in sorted({*ours, *there})
        ]
    return lines


def matched(curve: FreezeCurve, layers: int) -> dict[FreezeDepth, CurvePoint]:
    """The printed points by depth of a model with L = layers.

    A printed depth is taken as the same share of our layers, rounded down, but at least one layer
    where any is frozen. Where two are one of ours, as in a model of few layers, the first counts.
    """
    found: dict[FreezeDepth, CurvePoint] = {}
    for point in curve.points:
        own = point.depth
        if own.frozen_layers:
            own = FreezeDepth.of(max(1, own.frozen_layers * layers // curve.layers))
        found.setdefault(own, point)
    return found


def table_text(lines: Sequence[Line]) -> str:
    """The lines under a header; what repeats the line above is left out."""
    rows = [("model", "task", "examples", "frozen", "seeds", "quality", "kept", "printed", "", "")]
    above: tuple[str, ...] = ()
    for line in lines:
        curve, ours, theirs, printed = line.curve, line.ours, line.theirs, line.printed
        heads = (curve.model, curve.task, size_text(curve.train_size, "{:,}", "all"))
        their_cells = ("-", "", "")
        if theirs is not None and printed is not None:
            name = "" if theirs.model == curve.model else f"{theirs.model} "
            place = f"{name}{printed.depth.label} of {theirs.layers}"
            their_cells = (place, spread(printed.quality, printed.std), percent(printed.retention))
        rows.append(
            (
                *(("", "", "") if heads == above else heads),
                f"{line.depth.label} of {curve.layers}",
                str(ours.seeds or "-"),
                *(spread(ours.quality, ours.std), percent(ours.retention)),
                *their_cells,
            )
        )
        above = heads
    return aligned(rows, right=(2, 4))


def table_csv(lines: Sequence[Line]) -> str:
    """The lines under a header, numbers as fractions, nothing where there is none."""
    header = (*COLUMNS, *NUMBERS, *PRINTED_COLUMNS, *(f"printed_{one}" for one in NUMBERS))
    table = []
    for line in lines:
        curve, theirs, printed = line.curve, line.theirs, line.printed
        cells: list[object] = [curve.model, curve.task, curve.train_size, curve.layers]
        cells += [line.depth.label, *_numbers(line.ours)]
        if theirs is not None and printed is not None:
            cells += [theirs.model, theirs.layers, printed.depth.label, *_numbers(printed)]
        table.append(cells + [None] * (len(header) - len(cells)))
    return csv_text(header, table)


def _numbers(point: CurvePoint) -> list[str | None]:
    """Six digits: a mean of printed ones has rounding behind them."""
    values = (getattr(point, name) for name in NUMBERS)
    return [None if value is None else f"{value:.6g}" for value in values]
