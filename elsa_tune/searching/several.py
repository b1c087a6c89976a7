"""Several searches one after another, in one Ray: a study's models and sizes, or tasks."""

import contextlib
import dataclasses
import math
from collections.abc import Sequence

from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.ways import WayComparison, way_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.errors import ElsaTuneError, InterruptedSearchError, RunError
from elsa_tune.searching.cluster.join_address import NO_CLUSTER
from elsa_tune.searching.extending_packages import packages_of_search
from elsa_tune.searching.launch import resume, start
from elsa_tune.searching.output import Say
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.request import Request
from elsa_tune.searching.specification import (
    asked_settings,
    load_specification,
    more_of,
    replace_specification,
    where_asked,
)
from elsa_tune.searching.startup.fingerprints import check_same_files, inputs_of
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.tracking.state import read_state
from elsa_tune.tracking.uris import hidden


def plan_of_recorded(search: Request) -> Plan:
    """Return the plan of a search beside its journal, recorded or not begun.

    Raises StorageError where the journal cannot be read.
    """
    paths = search.paths
    state = read_state(paths.journal)
    spec = search.spec
    # A search that has begun knows more, from its data.
    with contextlib.suppress(ElsaTuneError):
        begun = load_specification(paths)
        spec = dataclasses.replace(
            spec,
            chance=begun.chance,
            evaluation_examples=begun.evaluation_examples,
            seed=begun.seed,
        )
    return Plan.of(spec, paths, state)


def carry_out(searches: Sequence[Request], say: Say) -> dict[str, str]:
    """Start the searches that have not begun and continue the incomplete ones, in their order.

    Return why each search that failed did, by its name; the others run nevertheless. Raises
    UsageErrors before the first search starts where weights or data of any are missing, or are not
    those of a complete search; InterruptedSearchError where the user ends it.
    """
    try:
        unfinished = []
        for search in searches:
            if _is_complete(search):
                _keep_answer(search, say)
            else:
                unfinished.append(search)
        _check_inputs(unfinished)
        if not unfinished:
            return {}
        return _carry_out(searches, unfinished, say)
    except (InterruptedSearchError, KeyboardInterrupt) as error:
        # The latter between two searches, or before one of them takes signals itself.
        raise InterruptedSearchError("interrupted; the same command goes on") from error


def _is_complete(search: Request) -> bool:
    """Return whether nothing is left to do; False if that cannot be read: its turn says why."""
    try:
        load_specification(search.paths)  # the plan passes over one that cannot be read
        return plan_of_recorded(search).is_complete
    except ElsaTuneError:
        return False


def _keep_answer(search: Request, say: Say) -> None:
    """Note where a complete search's files are now, so that its answer holds.

    Raises DataError or ModelError where they are not those that it had.
    """
    check_same_files(search.spec, search.paths, say)
    moved = where_asked(search.spec)
    recorded = load_specification(search.paths)
    if moved(recorded) == recorded:
        return
    with Journal(search.paths.journal, recorded.search_id):
        recorded = load_specification(search.paths)  # another may have changed it before
        replace_specification(moved(recorded), search.paths)


def _carry_out(
    searches: Sequence[Request], unfinished: Sequence[Request], say: Say
) -> dict[str, str]:
    """Run the unfinished ones of the searches in one Ray; return why each that failed did."""
    from elsa_tune.searching.cluster.ray_session import ray_session

    failed: dict[str, str] = {}
    packages: set[str] = set()
    for search in searches:
        packages.update(packages_of_search(search.spec))
    with ray_session(searches[0].spec.address, packages) as session:
        session.ready()
        for number, search in enumerate(searches, start=1):
            if search not in unfinished:
                continue
            say(f"search {number} of {len(searches)}: {search.name}")
            try:
                _go_on(search, say)
            except InterruptedSearchError:
                raise
            except ElsaTuneError as error:
                say(hidden(f"search '{search.name}' is incomplete: {error}"))
                failed[search.name] = str(error)
    return failed


def _check_inputs(searches: Sequence[Request]) -> None:
    """Find what any search lacks now, and not hours after the first one began."""
    from elsa_tune.training.loop import evaluation_steps
    from elsa_tune.training.model.model_files import pinned

    # A task's sizes are subsets of the same rows: one of them is enough.
    specs = [search.spec for search in searches]
    by_inputs = {(spec.model.location, spec.task.name): spec for spec in specs}
    for spec in by_inputs.values():
        inputs_of(dataclasses.replace(spec, model=pinned(spec.model)))
    for spec in specs:
        if spec.recipe.train_size is not None:
            evaluation_steps(spec.recipe, spec.recipe.train_size)


def _go_on(search: Request, say: Say) -> None:
    """Start a search, or continue it.

    Raises InterruptedSearchError where it was interrupted, RunError where it is incomplete.
    """
    paths = search.paths
    if paths.exists:
        seeds = search.seeds
        if seeds is not None and seeds < load_specification(paths).seeds:
            seeds = None  # `resume` has added some, which stay
        # A time limit that the search was started with was that of another session.
        more = more_of(seeds, search.until_certified, asked_settings(search.spec))
        finished = resume(
            paths,
            say,
            more=where_asked(search.spec, more),
            max_time=math.inf,
            tracking_uri=search.named_uri,
            address=search.spec.address or NO_CLUSTER,
        )
    else:
        finished = start(search, say)
    if finished.unsent:
        say(f"{finished.unsent_words}; `{paths.resume}` sends the rest")
    if finished.uncopied:
        say(finished.uncopied)
    if finished.status is SearchStatus.INTERRUPTED:
        raise InterruptedSearchError(finished.message)
    if finished.unwritten:
        raise RunError(finished.unwritten)
    if finished.status is not SearchStatus.COMPLETED:
        raise RunError(finished.message)


def curves_of(rows: Sequence[ResultRow]) -> list[FreezeCurve]:
    """Return the freeze curve of each search that these rows are of."""
    return freeze_curves(rows, KeptPredictions())


def comparisons_of(rows: Sequence[ResultRow]) -> list[WayComparison]:
    """Return the comparison of each search's ways; none where they have freeze depths alone."""
    if all(row.candidate.is_ranked for row in rows):
        return []
    return [compare_ways(curve) for curve in way_curves(rows, KeptPredictions())]


def rows_of_all(searches: Sequence[Request]) -> list[ResultRow]:
    """Return the rows of the searches that have results."""
    rows: list[ResultRow] = []
    for search in searches:
        with contextlib.suppress(ElsaTuneError):  # why was said when it was carried out
            rows += rows_of(read_state(search.paths.journal), search.paths.folder)
    return rows
