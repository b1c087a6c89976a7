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
from elsa_tune.searching.request import Request, request_of
from elsa_tune.searching.several import plan_of_recorded
from elsa_tune.searching.specification import differing_settings, load_specification, with_seeds
from elsa_tune.searching.startup.rows import rows_in_use
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.studies.protocols import PROTOCOLS, Scale, StudySize, asked, published
from elsa_tune.tasks.known import MISMATCHED
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.tracking.state import SearchState
from elsa_tune.words import aligned, number_text, percent, spread, trials_text

_NONE = CurvePoint(candidate=REFERENCE, fine_tuned_layers=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyRun:
    """A study as it is carried out here."""

    study: Study
    searches: tuple[Request, ...]  # by model, task and size
    heading: str  # what is carried out, and what the original was


def plan_study(
    study: Study, scale: Scale, models: Sequence[str], wanted: StudySize, options: SearchOptions
) -> StudyRun:
    """Return the study with these models of this size; all of it is checked here.

    A search that is recorded with more seeds keeps them: what is measured stays. options: where
    data and searches are and what trials take; the rest of them is replaced. Raises UsageError for
    what cannot be searched, and where two searches would share a name; StorageError where a
    recorded one was asked something else.
    """
    from elsa_tune.training.data.preparation import size_in_use

    protocol = PROTOCOLS[study]
    searches: list[Request] = []
    for task, size in itertools.product(wanted.tasks, wanted.train_sizes):
        of_task = dataclasses.replace(
            options,
            model=models[0],
            task=[task],
            space=protocol.space,
            metric=protocol.metric,
            seeds=wanted.seeds,
        )
        whole = asked_inputs(of_task, task)
        available = rows_in_use(whole.task, whole.recipe).train
        if size is not None and size >= available and study is Study.ELSA:
            size = None  # the paper's study takes at most that many
        size_in_use(whole.task, dataclasses.replace(whole.recipe, train_size=size), available)
        for model in models:
            of_model = dataclasses.replace(of_task, model=model, train_size=size)
            searches.append(_request(study, of_model, task))
    _check_names(searches)
    searches = [with_recorded_seeds(search) for search in searches]
    here = asked(
        study,
        [search.spec.model.name for search in searches],
        [search.seeds or 0 for search in searches],
        [search.spec.task.name for search in searches],
        wanted.train_sizes,
    )
    heading = f"{study.source}, scale {scale}\nHere: {here}.\nPublished: {published(study)}."
    return StudyRun(study=study, searches=tuple(searches), heading=heading)


def _request(study: Study, options: SearchOptions, task: str) -> Request:
    """Return a search of the study, named after it and what is searched."""
    inputs = asked_inputs(options, task)
    parts = [study, Path(inputs.model.name).name, inputs.task.name, str(options.train_size or "")]
    named = dataclasses.replace(options, name=slug("-".join(parts)))
    return request_of(named, inputs, command=search_command(options))


def _check_names(searches: Sequence[Request]) -> None:
    """Raise UsageError where two searches would share a name."""
    [(name, count)] = Counter(search.name for search in searches).most_common(1)
    if count > 1:
        raise UsageError(
            f"{count} of the models and tasks would share the search name '{name}'; reproduce "
            "them one by one, in different folders"
        )


def with_recorded_seeds(search: Request) -> Request:
    """Return the request with its recorded search's seeds, if those are more.

    Raises StorageError if that search is recorded with other settings.
    """
    paths = search.paths
    spec = search.spec
    try:
        recorded = load_specification(paths)
    except StorageError:
        return search  # not begun, or not to be read, which is said in its turn
    if recorded.seeds > spec.seeds:
        spec = with_seeds(spec, recorded.seeds)
    why = differing_settings(dataclasses.replace(spec, seeds=recorded.seeds), recorded)
    if why:
        raise StorageError(
            f"search '{search.name}' is recorded with other settings than this study's: here "
            f"{'; '.join(why)}; delete it by `elsa-tune searches --delete {paths.arguments}`, or "
            "name another place with `storage_path`"
        )
    return dataclasses.replace(search, spec=spec, seeds=spec.seeds)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonRow:
    """One depth of one search beside what the study printed of it."""

    curve: FreezeCurve
    candidate: Candidate
    ours: CurvePoint  # without a quality where it was not measured
    printed: CurvePoint | None  # None where the study has none


def compared(
    curves: Sequence[FreezeCurve], published: Sequence[FreezeCurve]
) -> list[ComparisonRow]:
    """Return the depths that were measured or printed, model by model."""
    printed = {(curve.model, curve.task, curve.train_size): curve for curve in published}
    models = list(dict.fromkeys(curve.model for curve in curves))
    rows = []
    for curve in sorted(curves, key=lambda curve: models.index(curve.model)):
        theirs = printed.get((curve.model, curve.task, curve.train_size))
        # The paper has one training size a task, however many of its examples are used here.
        theirs = theirs or printed.get((curve.model, curve.task, None))
        our_points = {point.candidate: point for point in curve.with_quality}
        their_points: dict[Candidate, CurvePoint] = {}
        if theirs is not None:
            their_points = {point.candidate: point for point in theirs.points}
        for candidate in sorted(our_points.keys() | their_points.keys()):
            rows.append(
                ComparisonRow(
                    curve=curve,
                    candidate=candidate,
                    ours=our_points.get(candidate, _NONE),
                    printed=their_points.get(candidate),
                )
            )
    return rows


def table_text(rows: Sequence[ComparisonRow]) -> str:
    """Return the table as text, its headings first."""
    lines = [("model", "task", "examples", "frozen", "seeds", "quality", "kept", "printed", "")]
    for row in rows:
        ours = row.ours
        theirs = row.printed or _NONE
        lines.append(
            (
                row.curve.model,
                row.curve.task,
                number_text(row.curve.train_size, "{:,}", "all"),
                f"{row.candidate.label} of {row.curve.layers}",
                str(ours.seeds or "-"),
                spread(ours.quality, ours.std),
                percent(ours.retention),
                spread(theirs.quality, theirs.std),
                percent(theirs.retention),
            )
        )
    return aligned(lines, right=(2, 4))


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResults:
    """What the trials so far say."""

    study_run: StudyRun
    left: int  # trials to go
    unread: Mapping[str, str]  # by a search's name why it could not be read
    rows: tuple[ResultRow, ...]  # of all trials
    answers: tuple[Answer, ...]  # by model, task and size, and for all tasks together
    table: tuple[ComparisonRow, ...]  # each depth beside what was printed

    @property
    def text(self) -> str:
        """The heading, the table and the answers."""
        heading = [self.study_run.heading]
        for name in self.unread:
            heading.append(f"Not read: {name}.")
        if self.left:
            heading.append(f"Not finished: {trials_text(self.left)} to go.")
        answers = []
        for answer in self.answers:
            task = "all tasks together" if answer.task == ALL_TASKS else answer.task
            size = number_text(answer.train_size, ", {:,} examples")
            answers.append(f"{answer.model} on {task}{size}: {answer}")
        parts = ["\n".join(heading), table_text(self.table), "\n".join(answers)]
        return "\n\n".join(parts)


def read_study(study_run: StudyRun) -> StudyResults:
    """Read the journals and lay out the study's table; what cannot be read is left out."""
    rows: list[ResultRow] = []
    curves: list[FreezeCurve] = []
    unread: dict[str, str] = {}
    left = 0
    for search in study_run.searches:
        try:
            plan = plan_of_recorded(search)
            search_rows = rows_of(plan.state, search.paths.folder)
            mismatched_rows = _mismatched(search, plan.state, search_rows)
            curves += freeze_curves([*search_rows, *mismatched_rows], KeptPredictions())
        except ElsaTuneError as error:
            unread[search.name] = str(error)
            continue
        left += plan.left.total()
        rows += search_rows
    printed = freeze_curves(printed_rows(study_run.study))
    of_tasks = [curve for curve in curves if curve.task != MISMATCHED]
    return StudyResults(
        study_run=study_run,
        left=left,
        unread=unread,
        rows=tuple(rows),
        answers=tuple(answer_curves(of_tasks)),
        table=tuple(compared(curves, printed)),
    )


def _mismatched(search: Request, state: SearchState, rows: Sequence[ResultRow]) -> list[ResultRow]:
    """Return the trials that MNLI's second split judged, with that as their task and quality.

    What is kept are the predictions on the task's own split.
    """
    mismatched_rows = []
    is_judged_twice = False
    for row in rows:
        scores = state.trials[row.trial].latest if row.trial else {}
        # It counts as chance.
        has_diverged_at_once = row.status is TrialStatus.DIVERGED and not scores
        if MISMATCHED not in scores and not has_diverged_at_once:
            continue
        is_judged_twice = is_judged_twice or MISMATCHED in scores
        mismatched_rows.append(
            dataclasses.replace(
                row,
                task=MISMATCHED,
                quality=scores.get(MISMATCHED),
                predictions=None,
                chance=search.spec.task.published_chance.get(MISMATCHED),
            )
        )
    return mismatched_rows if is_judged_twice else []
