"""A published study as ordinary searches, carried out one after another, and what they found."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.answers import answer_curves, freeze_curves
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.analysis.groups import size_text
from elsa_tune.errors import (
    ElsaTuneError,
    InterruptedSearchError,
    RunError,
    StorageError,
    UsageError,
)
from elsa_tune.files import slug
from elsa_tune.searching.inputs import Request, SearchOptions, read_request
from elsa_tune.searching.launch import Say, inputs_of, resume, sizes, start
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.specification import differences, load_specification, specify, with_seeds
from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.known_tasks import MISMATCHED
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.studies.protocols import PROTOCOLS, Extent, Scale, asked, published
from elsa_tune.tables.results_csv import Study, printed_rows
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.tracking.state import read_state
from elsa_tune.words import aligned, percent, spread

_NONE = CurvePoint(depth=FreezeDepth.of(0), fine_tuned_layers=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """A study as it is carried out here: a search for each model, task and training size, in this
    order. heading: whose it is, what is carried out and what was published, a line each.
    """

    study: Study
    searches: tuple[Request, ...]
    heading: str


def edition(
    study: Study, scale: Scale, models: Sequence[str], extent: Extent, options: SearchOptions
) -> Edition:
    """The study with these models at this extent; all of it is checked here.

    A search that is recorded with more seeds keeps them: what is measured stays. options: where
    data and searches are and what trials take; the rest of them is replaced. Raises UsageError for
    what cannot be searched, and where two searches would share a name; StorageError where a
    recorded one was asked something else.
    """
    from elsa_tune.training.data.preparation import size_in_use

    protocol = PROTOCOLS[study]
    searches: list[Request] = []
    for task, size in itertools.product(extent.tasks, extent.train_sizes):
        one = dataclasses.replace(
            options,
            model=models[0],
            task=task,
            space=protocol.space,
            metric=protocol.metric,
            seeds=extent.seeds,
        )
        whole = read_request(one)
        available, _ = sizes(whole.task, whole.recipe)
        if size is not None and size >= available and study is Study.ELSA:
            size = None  # the paper's study takes at most so many
        size_in_use(whole.task, dataclasses.replace(whole.recipe, train_size=size), available)
        for model in models:
            search = read_request(dataclasses.replace(one, model=model, train_size=size))
            parts = [study, Path(search.model.name).name, search.task.name, str(size or "")]
            searches.append(dataclasses.replace(search, name=slug("-".join(parts))))
    name, count = Counter(search.name for search in searches).most_common(1)[0]
    if count > 1:
        raise UsageError(
            f"{count} of the models and tasks would share the search name '{name}'; reproduce "
            "them one by one, in different folders"
        )
    searches = [with_recorded_seeds(search) for search in searches]
    here = asked(
        study,
        [search.model.name for search in searches],
        [search.seeds or 0 for search in searches],
        [search.task.name for search in searches],
        extent.train_sizes,
    )
    heading = f"{study.source}, scale {scale}\nHere: {here}.\nPublished: {published(study)}."
    return Edition(study=study, searches=tuple(searches), heading=heading)


def with_recorded_seeds(search: Request) -> Request:
    """It with its recorded search's seeds, if more; StorageError where that was asked otherwise."""
    try:
        recorded = load_specification(SearchPaths(search.storage, search.name))
    except StorageError:
        return search  # not begun, or not to be read, which is said in its turn
    if why := differences(specify(dataclasses.replace(search, seeds=recorded.seeds)), recorded):
        raise StorageError(
            f"search '{search.name}' is recorded with other settings than this study's: here "
            f"{'; '.join(why)}; delete it by `elsa-tune searches --delete {search.name}`, or name "
            "another place with `storage_path`"
        )
    return dataclasses.replace(search, seeds=max(search.seeds or 0, recorded.seeds))


def standing(search: Request) -> Plan:
    """How far it has come, from its journal; raises StorageError where that cannot be read."""
    paths = SearchPaths(search.storage, search.name)
    return Plan.of(specify(search), paths, read_state(paths.journal))


def carry_out(searches: Sequence[Request], say: Say) -> dict[str, str]:
    """Start what has not begun and go on with what is incomplete, in the plan's order; returns the
    reason of each search that failed, by name, which does not keep the others from running.

    Raises UsageErrors before the first search starts where weights or data of any are missing,
    InterruptedSearchError where the user ends it.
    """
    failed: dict[str, str] = {}
    try:
        unfinished = list(searches)
        for search in searches:
            with contextlib.suppress(ElsaTuneError):  # its turn says why
                if standing(search).is_complete:
                    unfinished.remove(search)
        _check_inputs(unfinished)
        for number, search in enumerate(searches, start=1):
            if search not in unfinished:
                continue
            say(f"search {number} of {len(searches)}: {search.name}")
            try:
                _go_on(search, say)
            except InterruptedSearchError:
                raise
            except ElsaTuneError as error:
                say(f"search '{search.name}' is incomplete: {error}")
                failed[search.name] = str(error)
    except (InterruptedSearchError, KeyboardInterrupt) as error:
        # The latter between two searches, or before one of them takes signals itself.
        raise InterruptedSearchError("interrupted; the same command goes on") from error
    return failed


def _check_inputs(searches: Sequence[Request]) -> None:
    """What the last search lacks should not be said hours after the first one began."""
    from elsa_tune.training.loop import evaluation_steps
    from elsa_tune.training.model.model_files import pinned

    # A task's sizes are subsets of the same rows.
    for one in {(one.model.location, one.task.name): one for one in searches}.values():
        inputs_of(specify(dataclasses.replace(one, model=pinned(one.model))))
    for search in searches:
        if search.recipe.train_size is not None:
            evaluation_steps(search.recipe, search.recipe.train_size)


def _go_on(search: Request, say: Say) -> None:
    """Raises InterruptedSearchError where it was interrupted, RunError where it is incomplete."""
    paths = SearchPaths(search.storage, search.name)
    if paths.exists:
        # A limit that the search was started with was that of another session.
        finished = resume(
            paths,
            say,
            more=None if search.seeds is None else partial(with_seeds, seeds=search.seeds),
            max_time=math.inf,
            tracking_uri=search.tracking_uri,
            address=search.address,
        )
    else:
        finished = start(search, say)
    if finished.unsent:
        say(f"{finished.unsent} records did not reach MLflow; `elsa-tune resume {search.name}`")
    if finished.status is SearchStatus.INTERRUPTED:
        raise InterruptedSearchError(finished.message)
    if finished.status is not SearchStatus.COMPLETED:
        raise RunError(finished.message)


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
        heading = [self.edition.heading, *(f"Not read: {name}." for name in self.unread)]
        if self.left:
            heading.append(f"Not finished: {self.left} trials to go.")
        answers = []
        for one in self.answers:
            task = "all tasks together" if one.task == ALL_TASKS else one.task
            asked = f"{one.model} on {task}{size_text(one.train_size, ', {:,} examples')}"
            answers.append(f"{asked}: {one.sentence} {one.certainty}".strip())
        return "\n\n".join(map("\n".join, (heading, [table_text(self.table)], answers)))


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
