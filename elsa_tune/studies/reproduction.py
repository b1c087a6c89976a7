"""A published study as a plan of ordinary searches, carried out one after another.

A search's name follows from study, model, task and training size, so the same command finds what is
there, goes on with it, and adds only what is missing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from elsa_tune.errors import (
    ElsaTuneError,
    InterruptedSearchError,
    RunError,
    StorageError,
    UsageError,
)
from elsa_tune.files import slug
from elsa_tune.search.inputs import SearchOptions, read_request
from elsa_tune.search.launch import Say, resume, sizes, start
from elsa_tune.search.planned import Plan
from elsa_tune.search.specification import (
    Request,
    differences,
    load_specification,
    specify,
    with_seeds,
)
from elsa_tune.studies.protocols import PROTOCOLS, Extent, Scale, asked, published
from elsa_tune.tables.published import Study
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import read_state

# ---- the plan ----


@dataclass(frozen=True, slots=True, kw_only=True)
class Edition:
    """A study as it is carried out here: a search for each model, task and training size, in this
    order. extents: what is carried out and what was published, a line each.
    """

    study: Study
    scale: Scale
    searches: tuple[Request, ...]
    extents: tuple[str, str]


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
    return Edition(
        study=study,
        scale=scale,
        searches=tuple(searches),
        extents=(f"Here: {here}.", f"Published: {published(study)}."),
    )


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


# ---- how far it has come ----


def standing(search: Request) -> Plan:
    """How far it has come, from its journal; raises StorageError where that cannot be read."""
    paths = SearchPaths(search.storage, search.name)
    return Plan.of(specify(search), paths, read_state(paths.journal))


# ---- carrying it out ----


def carry_out(
    searches: Sequence[Request], say: Say, max_time: float | None = None
) -> dict[str, str]:
    """Start what has not begun and go on with what is incomplete, in the plan's order; returns the
    reason of each search that failed, by name, which does not keep the others from running.

    max_time: seconds in all; the search that is under way then is interrupted, and goes on when the
    plan is carried out again. Raises UsageErrors before the first search starts where weights or
    data of any are missing, InterruptedSearchError where the user ends it.
    """
    failed: dict[str, str] = {}
    end = math.inf if max_time is None else time.monotonic() + max_time
    try:
        with _interrupted_after(max_time):
            unfinished = [search for search in searches if not _is_complete(search)]
            _check_inputs(unfinished)
            for number, search in enumerate(searches, start=1):
                if search not in unfinished or time.monotonic() >= end:
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
        if time.monotonic() < end:
            raise InterruptedSearchError("interrupted; the same command goes on") from error
    return failed


def _is_complete(search: Request) -> bool:
    try:
        return standing(search).is_complete
    except ElsaTuneError:
        return False  # its turn says why


def _check_inputs(searches: Sequence[Request]) -> None:
    """What the last search lacks should not be said hours after the first one began."""
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.loop import evaluation_steps
    from elsa_tune.training.model.model_files import pinned, weights_fingerprint

    for model in {search.model.location: search.model for search in searches}.values():
        weights_fingerprint(pinned(model))
    # A task's sizes are subsets of the same rows.
    for one in {(one.model.location, one.task.name): one for one in searches}.values():
        prepare(one.model, one.task, one.recipe)
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


@contextlib.contextmanager
def _interrupted_after(seconds: float | None) -> Iterator[None]:
    """Interrupt this process after so many seconds, as Ctrl-C does.

    A search's own `max_time` would shorten the line search over learning rates and then measure at
    the rate found so far, which is another protocol; what Ctrl-C cuts off is run again.
    """
    if seconds is None:
        yield
        return
    timer = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    # A shell starts what runs in its background with SIGINT ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
