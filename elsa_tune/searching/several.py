"""Several searches one after another, in one Ray: of a study's models and sizes, or of tasks."""

import contextlib
import dataclasses
import math
from collections.abc import Sequence

from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.analysis.curve import FreezeCurve
from elsa_tune.errors import ElsaTuneError, InterruptedSearchError, RunError
from elsa_tune.searching.inputs import Request
from elsa_tune.searching.launch import inputs_of, resume, start
from elsa_tune.searching.output import Say
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.specification import load_specification, more_of, specify
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.tracking.state import read_state
from elsa_tune.tracking.uris import hidden


def standing(search: Request) -> Plan:
    """How far it has come, from its journal; raises StorageError where that cannot be read."""
    paths = SearchPaths(search.storage, search.name)
    state = read_state(paths.journal)
    spec = specify(search)
    with contextlib.suppress(ElsaTuneError):  # of one that has begun, what its data gave
        begun = load_specification(paths)
        spec = dataclasses.replace(
            specify(search, begun.policy),
            chance=begun.chance,
            evaluation_examples=begun.evaluation_examples,
        )
    return Plan.of(spec, paths, state)


def carry_out(searches: Sequence[Request], say: Say) -> dict[str, str]:
    """Start what has not begun and go on with what is incomplete, in the plan's order; returns the
    reason of each search that failed, by name, which does not keep the others from running.

    Raises UsageErrors before the first search starts where weights or data of any are missing,
    InterruptedSearchError where the user ends it.
    """
    from elsa_tune.searching.tune.cluster import ray_session

    failed: dict[str, str] = {}
    try:
        unfinished = list(searches)
        for search in searches:
            with contextlib.suppress(ElsaTuneError):  # its turn says why
                if standing(search).is_complete:
                    unfinished.remove(search)
        _check_inputs(unfinished)
        if not unfinished:
            return failed
        with ray_session(searches[0].address) as session:
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
            more=more_of(search.seeds, search.until_certified),
            max_time=math.inf,
            tracking_uri=search.tracking_uri,
            address=search.address,
        )
    else:
        finished = start(search, say)
    if finished.unsent:
        say(f"{finished.unsent_words}; `{paths.resume}` sends the rest")
    if finished.status is SearchStatus.INTERRUPTED:
        raise InterruptedSearchError(finished.message)
    if finished.unwritten:
        raise RunError(finished.unwritten)
    if finished.status is not SearchStatus.COMPLETED:
        raise RunError(finished.message)


def curves_of(searches: Sequence[Request]) -> list[FreezeCurve]:
    """Of those that have results; their answers together have the joint one."""
    rows = []
    for search in searches:
        paths = SearchPaths(search.storage, search.name)
        with contextlib.suppress(ElsaTuneError):  # why was said when it was carried out
            rows += rows_of(read_state(paths.journal), paths.folder)
    return freeze_curves(rows, KeptPredictions())
