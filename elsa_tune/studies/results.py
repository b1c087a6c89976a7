"""What the searches of a study recorded so far: its table and its answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.answers import answer_curves, freeze_curves
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.groups import size_text
from elsa_tune.errors import ElsaTuneError
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.known_tasks import MISMATCHED
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.studies.reproduction import Edition, standing
from elsa_tune.tables.published import printed_rows
from elsa_tune.tracking.predictions import KeptPredictions
from elsa_tune.tracking.rows import rows_of
from elsa_tune.words import aligned, percent, spread

_NONE = CurvePoint(depth=FreezeDepth.of(0), fine_tuned_layers=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One depth of one search. ours: without a quality where it was not measured. printed: the
    study's point of it; None where there is none.
    """

    curve: FreezeCurve
    depth: FreezeDepth
    ours: CurvePoint
    printed: CurvePoint | None


def beside(curves: Sequence[FreezeCurve], published: Sequence[FreezeCurve]) -> list[Line]:
    """The depths that were measured or printed, model by model."""
    printed = {(one.model, one.task, one.train_size): one for one in published}
    models = list(dict.fromkeys(curve.model for curve in curves))
    lines = []
    for curve in sorted(curves, key=lambda one: models.index(one.model)):
        # The paper has one training size a task, however many of its examples are used here.
        sizes = (curve.train_size, None)
        found = (printed.get((curve.model, curve.task, size)) for size in sizes)
        theirs = next((one for one in found if one is not None), None)
        ours = {point.depth: point for point in curve.with_quality}
        there = {} if theirs is None else {point.depth: point for point in theirs.points}
        lines += [
            Line(curve=curve, depth=depth, ours=ours.get(depth, _NONE), printed=there.get(depth))
            for depth in sorted({*ours, *there})
        ]
    return lines


def table_text(lines: Sequence[Line]) -> str:
    """The lines under a header."""
    rows = [("model", "task", "examples", "frozen", "seeds", "quality", "kept", "printed", "")]
    for line in lines:
        curve, ours, theirs = line.curve, line.ours, line.printed or _NONE
        rows.append(
            (
                *(curve.model, curve.task, size_text(curve.train_size, "{:,}", "all")),
                *(f"{line.depth.label} of {curve.layers}", str(ours.seeds or "-")),
                *(spread(ours.quality, ours.std), percent(ours.retention)),
                *(spread(theirs.quality, theirs.std), percent(theirs.retention)),
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
    def text(self) -> str:
        """All of it as a person reads it: what was done, the table, the answers."""
        heading = [
            f"{self.edition.study.source}, scale {self.edition.scale}",
            *([f"Not finished: {self.left} trials to go."] if self.left else []),
            *(f"Not read: {name}." for name in self.unread),
            *self.edition.extents,
        ]
        answers = "\n".join(map(_sentence, self.answers))
        return "\n\n".join(["\n".join(heading), table_text(self.table), answers])


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
        table=tuple(beside(curves, printed)),
    )
