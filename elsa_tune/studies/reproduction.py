"""A published study as ordinary searches, carried out one after another, and what they found."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from elsa_tune.analysis.answer import ALL_TASKS, Answer
from elsa_tune.analysis.answers import answer_curves, freeze_curves
from elsa_tune.analysis.curve import CurvePoint, FreezeCurve
from elsa_tune.errors import ElsaTuneError, StorageError, UsageError
from elsa_tune.files import slug
from elsa_tune.results.published import Study, printed_rows
from elsa_tune.searching.inputs import SearchOptions, asked_inputs, search_command
from elsa_tune.searching.launch import sizes
from elsa_tune.searching.request import Request, request_of
from elsa_tune.searching.several import standing
from elsa_tune.searching.specification import differences, load_specification, with_seeds
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.candidates import REFERENCE
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.studies.protocols import PROTOCOLS, Extent, Scale, asked, published
from elsa_tune.tasks.known import MISMATCHED
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.words import aligned, number_text, percent, spread

_NONE = CurvePoint(depth=REFERENCE, fine_tuned_layers=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """A study as it is carried out here, by model, task and size. heading: it and the original."""

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
            task=[task],
            space=protocol.space,
            metric=protocol.metric,
            seeds=extent.seeds,
        )
        whole = asked_inputs(one, task)
        available, _ = sizes(whole.task, whole.recipe)
        if size is not None and size >= available and study is Study.ELSA:
            size = None  # the paper's study takes at most so many
        size_in_use(whole.task, dataclasses.replace(whole.recipe, train_size=size), available)
        for model in models:
            sized = dataclasses.replace(one, model=model, train_size=size)
            inputs = asked_inputs(sized, task)
            parts = [study, Path(inputs.model.name).name, inputs.task.name, str(size or "")]
            named = dataclasses.replace(sized, name=slug("-".join(parts)))
            searches.append(request_of(named, inputs, command=search_command(sized)))
    name, count = Counter(search.name for search in searches).most_common(1)[0]
    if count > 1:
        raise UsageError(
            f"{count} of the models and tasks would share the search name '{name}'; reproduce "
            "them one by one, in different folders"
        )
    searches = [with_recorded_seeds(search) for search in searches]
    here = asked(
        study,
        [search.spec.model.name for search in searches],
        [search.seeds or 0 for search in searches],
        [search.spec.task.name for search in searches],
        extent.train_sizes,
    )
    heading = f"{study.source}, scale {scale}\nHere: {here}.\nPublished: {published(study)}."
    return Edition(study=study, searches=tuple(searches), heading=heading)


def with_recorded_seeds(search: Request) -> Request:
    """The request with its recorded search's seeds, if those are more.

    Raises StorageError if that search is recorded with other settings.
    """
    paths, spec = search.paths, search.spec
    try:
        recorded = load_specification(paths)
    except StorageError:
        return search  # not begun, or not to be read, which is said in its turn
    if recorded.seeds > spec.seeds:
        spec = with_seeds(spec, recorded.seeds)
    if why := differences(dataclasses.replace(spec, seeds=recorded.seeds), recorded):
        raise StorageError(
            f"search '{search.name}' is recorded with other settings than this study's: here "
            f"{'; '.join(why)}; delete it by `elsa-tune searches --delete {paths.arguments}`, or "
            "name another place with `storage_path`"
        )
    return dataclasses.replace(search, spec=spec, seeds=spec.seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One depth of one search. ours: without a quality where not measured. printed: the study's."""

    curve: FreezeCurve
    depth: Candidate
    ours: CurvePoint
    printed: CurvePoint | None


def beside(curves: Sequence[FreezeCurve], published: Sequence[FreezeCurve]) -> list[Line]:
    """The depths that were measured or printed, model by model."""
    printed = {(one.model, one.task, one.train_size): one for one in published}
    models = list(dict.fromkeys(curve.model for curve in curves))
    lines = []
    for curve in sorted(curves, key=lambda one: models.index(one.model)):
        theirs = printed.get((curve.model, curve.task, curve.train_size))
        # The paper has one training size a task, however many of its examples are used here.
        theirs = theirs or printed.get((curve.model, curve.task, None))
        ours = {point.depth: point for point in curve.with_quality}
        there = {} if theirs is None else {point.depth: point for point in theirs.points}
        lines += [
            Line(curve=curve, depth=depth, ours=ours.get(depth, _NONE), printed=there.get(depth))
            for depth in sorted({*ours, *there})
        ]
    return lines


def table_text(lines: Sequence[Line]) -> str:
    rows = [("model", "task", "examples", "frozen", "seeds", "quality", "kept", "printed", "")]
    for line in lines:
        curve = line.curve
        ours = line.ours
        theirs = line.printed or _NONE
        rows.append(
            (
                *(curve.model, curve.task, number_text(curve.train_size, "{:,}", "all")),
                *(f"{line.depth.label} of {curve.layers}", str(ours.seeds or "-")),
                *(spread(ours.quality, ours.std), percent(ours.retention)),
                *(spread(theirs.quality, theirs.std), percent(theirs.retention)),
            )
        )
    return aligned(rows, right=(2, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults:
    """What the trials so far say. left: trials to go. unread: why a search was not, by its name."""

    edition: Edition
    left: int
    unread: Mapping[str, str]
    rows: tuple[ResultRow, ...]
    answers: tuple[Answer, ...]
    table: tuple[Line, ...]

    @property
    def text(self) -> str:
        heading = [self.edition.heading, *(f"Not read: {name}." for name in self.unread)]
        if self.left:
            heading.append(f"Not finished: {self.left} trials to go.")
        answers = []
        for one in self.answers:
            task = "all tasks together" if one.task == ALL_TASKS else one.task
            asked = f"{one.model} on {task}{number_text(one.train_size, ', {:,} examples')}"
            answers.append(f"{asked}: {one}")
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
            own = rows_of(found.state, search.paths.folder)
            # Also the trials that MNLI's second split judged, with that as their task and quality;
            # what is kept are the predictions on the task's own split.
            second = [
                dataclasses.replace(
                    row,
                    task=MISMATCHED,
                    quality=trials[row.trial].latest[MISMATCHED],
                    predictions=None,
                    chance=search.spec.task.published_chance.get(MISMATCHED),
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
