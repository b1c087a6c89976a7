"""What the searches of a study recorded so far: its table and answers, as text and as files."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.answers import answer_curves, answer_rows, freeze_curves
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.groups import size_text
from elsa_tune.errors import ElsaTuneError
from elsa_tune.report.folder import write_report
from elsa_tune.report.page import Context
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.known_tasks import MISMATCHED
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.studies.protocols import PROTOCOLS
from elsa_tune.studies.reproduction import Edition, standing
from elsa_tune.tables.published import printed_rows
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.words import aligned, percent, spread

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
    """The lines under a header."""
    rows = [("model", "task", "examples", "frozen", "seeds", "quality", "kept", "printed", "", "")]
    for line in lines:
        curve, ours, theirs, printed = line.curve, line.ours, line.theirs, line.printed
        their_cells = ("-", "", "")
        if theirs is not None and printed is not None:
            name = "" if theirs.model == curve.model else f"{theirs.model} "
            place = f"{name}{printed.depth.label} of {theirs.layers}"
            their_cells = (place, spread(printed.quality, printed.std), percent(printed.retention))
        rows.append(
            (
                *(curve.model, curve.task, size_text(curve.train_size, "{:,}", "all")),
                f"{line.depth.label} of {curve.layers}",
                str(ours.seeds or "-"),
                *(spread(ours.quality, ours.std), percent(ours.retention)),
                *their_cells,
            )
        )
    return aligned(rows, right=(2, 4))


# ---- what the searches say ----


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults:
    """What the trials so far say.

    left: trials to go. unread: the reason of each search that could not be read, by name.
    """

    edition: Edition
    left: int
    unread: Mapping[str, str]
    rows: tuple[ResultRow, ...]
    answers: tuple[Answer, ...]
    table: tuple[Line, ...]

    @property
    def heading(self) -> list[str]:
        """What was done, a sentence a line."""
        return [
            f"{self.edition.study.source}, scale {self.edition.scale}",
            *([f"Not finished: {self.left} trials to go."] if self.left else []),
            *(f"Not read: {name}." for name in self.unread),
            *self.edition.extents,
        ]

    @property
    def text(self) -> str:
        """All of it as a person reads it: what was done, the table, the answers."""
        answers = "\n".join(map(_sentence, self.answers))
        return "\n\n".join(["\n".join(self.heading), table_text(self.table), answers])


def _sentence(answer: Answer) -> str:
    task = "all tasks together" if answer.task == ALL_TASKS else answer.task
    size = size_text(answer.train_size, ", {:,} examples")
    return f"{answer.model} on {task}{size}: {answer.sentence} {answer.certainty}".strip()


def read_study(edition: Edition) -> StudyResults:
    """Read the journals and lay out the study's table; what cannot be read is left out."""
    rows: list[ResultRow] = []
    curves: list[FreezeCurve] = []
    unread: dict[str, str] = {}
    left = 0
    for search in edition.searches:
        try:
            found = standing(search)
            trials = found.state.trials
            own = rows_of(found.state, search.storage / search.name)
            # Also the trials that MNLI's second split judged, with that as their task and quality;
            # what is kept are the predictions on the task's own split.
            second = [
                dataclasses.replace(
                    row,
                    task=MISMATCHED,
                    quality=trials[row.trial].latest[MISMATCHED],
                    predictions=None,
                    chance=search.task.published_chance.get(MISMATCHED),
                )
                for row in own
                if row.trial and MISMATCHED in trials[row.trial].latest
            ]
            mine = freeze_curves([*own, *second], KeptPredictions())
        except ElsaTuneError as error:
            unread[search.name] = str(error)
            continue
        left += found.left.total()
        rows += own
        curves += mine
    printed = freeze_curves(printed_rows(edition.study))
    return StudyResults(
        edition=edition,
        left=left,
        unread=unread,
        rows=tuple(rows),
        answers=tuple(answer_curves([one for one in curves if one.task != MISMATCHED])),
        table=tuple(beside(curves, printed, PROTOCOLS[edition.study].models[0])),
    )


def write_study(results: StudyResults, folder: Path, command: str) -> Path:
    """Write the report of the trials with tables.txt; returns the report's page.

    command: what made it. Raises StorageError where that fails.
    """
    models = {row.model for row in results.rows}
    theirs = [row for row in printed_rows(results.edition.study) if row.model in models]
    context = Context(
        published=answer_rows(row for row in theirs if row.task != MISMATCHED),
        command=command,
        notes=results.heading,
        files={"tables.txt": f"{results.text}\n"},
    )
    page, *_ = write_report(results.answers, results.rows, folder, context)
    return page
