"""Starting and resuming a search: everything is checked first, while Ray is brought up."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from elsa_tune.errors import UsageError
from elsa_tune.searching.answering import Finished, answer_again
from elsa_tune.searching.cluster.join_address import NO_CLUSTER, asked_address
from elsa_tune.searching.earlier import StoreListing, in_folder, say_earlier, with_earlier
from elsa_tune.searching.extending_packages import packages_of_search
from elsa_tune.searching.leaving import leave_store
from elsa_tune.searching.output import Say
from elsa_tune.searching.planning.outlook import said_before_training
from elsa_tune.searching.planning.plan import Plan
from elsa_tune.searching.request import Request
from elsa_tune.searching.specification import (
    asked_settings,
    check_same,
    load_specification,
    more_of,
    replace_specification,
    save_specification,
    taken,
    where_asked,
)
from elsa_tune.searching.startup.fingerprints import check_same_files, check_unchanged, inputs_of
from elsa_tune.searching.startup.gpus import check_budget, check_gpu_hours, check_here, with_gpus
from elsa_tune.searching.startup.stores import open_again, open_store, remembered
from elsa_tune.searching.startup.versions import versions_here, with_versions
from elsa_tune.specs.model import ModelSource
from elsa_tune.specs.row_findings import finding_lines
from elsa_tune.specs.search import SearchSpec
from elsa_tune.tracking.artifacts.copier import copies_of
from elsa_tune.tracking.artifacts.fetching import prepared
from elsa_tune.tracking.journal import Journal, is_held, running_error
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.store import RecordStore
from elsa_tune.tracking.stores import store_at
from elsa_tune.tracking.uris import shown_uri

if TYPE_CHECKING:
    # Speaks torch, which takes seconds to import: only once everything is checked.
    from elsa_tune.training.data.tokens import TaskData

# How long a finished search's answer, or a search that leaves a store, waits for that to take what
# it lacks.
_REST_PATIENCE_S = 10.0


def start(request: Request, say: Say) -> Finished:
    """Carry out a new search, or go on with one of this name that was asked the same.

    Raises UsageErrors before any work starts, RunError when nothing works.
    """
    paths = request.paths
    spec = request.spec
    check_same(spec, paths)
    if paths.exists:
        if is_held(paths.lock):
            raise running_error(paths.journal)
        check_same_files(spec, paths, say)
        say(f"search '{request.name}' is recorded with the same options: continuing it")
        more = more_of(None, request.until_certified, asked_settings(spec))
        return resume(
            paths,
            say,
            more=where_asked(spec, more),
            max_time=spec.max_time,
            tracking_uri=request.named_uri,
            address=spec.address or NO_CLUSTER,
        )
    with prepared(spec.artifacts, paths, say) as is_fetched:
        if is_fetched:
            raise taken(paths)  # whoever fetches a search reads its specification, and resumes it
        return _begin(request, say)


def _begin(request: Request, say: Say) -> Finished:
    """Carry out a new search of a name that nothing has."""
    paths = request.paths
    spec = request.spec
    from elsa_tune.searching.cluster.environment import ray_environment
    from elsa_tune.searching.cluster.ray_session import ray_session

    with ray_environment(spec.address):
        import ray

        from elsa_tune.searching.cluster.shares import settled_recipe, share

    if not ray.is_initialized():
        check_here(request)
    paths.check_writable()
    try:
        with ray_session(spec.address, packages_of_search(spec)) as session:
            store = open_store(request.tracking_uri, say)
            listing = StoreListing(store)
            spec, data = _with_data(spec)
            for sentence in said_before_training(spec):
                say(sentence)
            from elsa_tune.searching.session import run_session

            _say_ready(data, say, spec.task.is_published)
            capacity = with_gpus(session.ready(), spec.gpus_per_trial)
            resources = share(request, capacity, say)
            check_gpu_hours(spec.gpu_hours, resources.gpus)
            spec = dataclasses.replace(spec, resources=resources)
            recipe = settled_recipe(spec, capacity.gpu_kinds, say)
            spec = dataclasses.replace(spec, recipe=recipe)
            recorded = in_folder(spec, paths.storage) + listing.searches()
            spec = with_earlier(spec, recorded, seed_is_given=request.seed_is_given)
            say_earlier(spec, say)
            save_specification(spec, paths)
            with Journal(paths.journal, spec.search_id) as journal:
                return run_session(spec, journal, data, store, session.over)
    finally:
        with contextlib.suppress(OSError):
            paths.folder.rmdir()  # where nothing has begun the name stays free


def _with_data(spec: SearchSpec) -> "tuple[SearchSpec, TaskData]":
    """Return a new search with what its weights and data are, and the data.

    Raises UsageErrors where any of them lacks, or where an epoch has fewer steps than evaluations.
    """
    from elsa_tune.training.loop import evaluation_steps
    from elsa_tune.training.model.encoder import check_weights
    from elsa_tune.training.model.model_files import pinned

    spec = dataclasses.replace(spec, model=pinned(spec.model))
    if spec.model.source is ModelSource.HUB:
        check_weights(spec.model)  # those of this machine were checked before
    data, fingerprints = inputs_of(spec)
    evaluation_steps(spec.recipe, len(data.train))
    described = dataclasses.replace(
        spec,
        chance=data.chance,
        train_examples=len(data.train),
        holdout_examples=len(data.holdout) if data.holdout else 0,
        evaluation_examples=len(data.evaluation),
        evaluation_units=data.evaluation_units,
        fingerprints=fingerprints,
        versions=versions_here(packages_of_search(spec)),
        findings=data.findings,
    )
    return described, data


def resume(
    paths: SearchPaths,
    say: Say,
    *,
    more: Callable[[SearchSpec], SearchSpec] | None = None,
    max_time: float | None = None,
    tracking_uri: str | None = None,
    address: str | None = None,
) -> Finished:
    """Go on with a search after any interruption.

    A finished one is only answered, and given what its report or its store lack.

    more: changes what the search is to do, as `with_seeds` and `until_certain` do; a finished one
    does what is new. max_time (seconds for this session), tracking_uri and address: None takes
    what the search was started with; an address may be NO_CLUSTER, and holds for this session. A
    new store is given everything from the journal's beginning, and is the search's from then on.
    """
    search_id = load_specification(paths).search_id
    # Held to the end: while Ray starts, nobody else may resume, change or delete the search.
    with Journal(paths.journal, search_id) as journal:
        spec = load_specification(paths)  # another may have changed it before we held it
        uri = tracking_uri or remembered(spec.tracking_uri)
        state = _recorded_state(journal, say)
        wanted = spec if more is None else more(spec)
        is_complete = Plan.of(wanted, paths, state).is_complete
        before = (spec.gpu_hours, spec.gpu_share)
        asked = (wanted.gpu_hours, wanted.gpu_share)
        if asked != before or not is_complete:
            check_gpu_hours(*asked)
        if not is_complete:
            check_budget(wanted, state)
            _check_trainable(wanted)
        is_named = tracking_uri is not None
        is_moved = is_named and shown_uri(uri) != shown_uri(spec.tracking_uri)
        if is_moved:
            wanted = dataclasses.replace(wanted, tracking_uri=shown_uri(uri))
        is_copied_elsewhere = wanted.artifacts != spec.artifacts
        copied_to = wanted.artifacts if is_copied_elsewhere or not is_complete else None
        with prepared(copied_to, paths, say):
            if is_complete and not is_moved:
                store = store_at(uri)  # it may be down: what it lacks stays in the journal
            else:
                is_remembered = uri not in (tracking_uri, spec.tracking_uri)
                store = open_again(uri, say, is_remembered=is_remembered)
            if is_moved:
                old, new = spec.tracking_uri, wanted.tracking_uri
                say(f"search '{paths.name}' was sent to {old}; from now on it is sent to {new}")
                leave_store(spec, paths, journal, say, patience_s=_REST_PATIENCE_S)
            if wanted != spec:
                # Before any work: whatever ends this session, the next one knows what was wanted.
                spec = replace_specification(wanted, paths)
            if is_complete:
                return _answer(spec, paths, journal, store, say)
            spec = _in_this_session(spec, max_time, address, say)
            is_recorded = address is None
            return _go_on(spec, paths, journal, store, say, has_recorded_address=is_recorded)


def _in_this_session(
    spec: SearchSpec, max_time: float | None, address: str | None, say: Say
) -> SearchSpec:
    """Return the search with this session's own time and machines, where it was given any."""
    if max_time is not None:
        # An infinite one takes back the limit that the search was started with.
        limit = max_time if math.isfinite(max_time) else None
        spec = dataclasses.replace(spec, max_time=limit)
    if address is None:
        return spec
    if address == NO_CLUSTER and spec.address is not None:
        say(f"this session trains on this machine, not on the cluster at {spec.address}")
    return dataclasses.replace(spec, address=asked_address(address))


def _answer(
    spec: SearchSpec, paths: SearchPaths, journal: Journal, store: RecordStore, say: Say
) -> Finished:
    """Answer a finished search, and give its report and its stores what they lack."""
    finished = answer_again(spec, paths, journal, store, say)
    uncopied = copies_of(spec.artifacts, paths, say).close(patience_s=_REST_PATIENCE_S)
    return dataclasses.replace(finished, uncopied=uncopied)


def _go_on(
    spec: SearchSpec,
    paths: SearchPaths,
    journal: Journal,
    store: RecordStore,
    say: Say,
    *,
    has_recorded_address: bool,
) -> Finished:
    """Carry out what is left of a search, with the weights and the data that it began with.

    has_recorded_address: the address is the one that it began with, which was not given again.
    """
    from elsa_tune.searching.cluster.ray_session import ray_session
    from elsa_tune.searching.cluster.shares import settled_recipe, share_again

    with ray_session(spec.address, packages_of_search(spec)) as session:
        data, fingerprints = inputs_of(spec)
        check_unchanged(spec, fingerprints)
        from elsa_tune.searching.session import run_session

        # A search that an earlier version began has none.
        spec = dataclasses.replace(spec, findings=data.findings)
        _say_ready(data, say, spec.task.is_published)
        with _address_told(spec if has_recorded_address else None):
            here = session.ready()
        capacity = with_gpus(here, spec.gpu_share)
        # Not recorded: the next session may have another machine.
        spec = dataclasses.replace(spec, resources=share_again(spec, capacity, say))
        settled_recipe(spec, capacity.gpu_kinds, say)
        spec = with_versions(spec, say)
        return run_session(spec, journal, data, store, session.over)


@contextlib.contextmanager
def _address_told(spec: SearchSpec | None) -> Iterator[None]:
    """Add to a UsageError about a cluster that its address is recorded with this search."""
    try:
        yield
    except UsageError as error:
        if spec is None or spec.address is None:
            raise
        sentence, *further = error.args
        told = f"{sentence}; search '{spec.name}' began at that address"
        raise type(error)(told, *further) from error


def _check_trainable(spec: SearchSpec) -> None:
    """Raise SpaceError for what can no longer be trained here, such as LoRA without its library.

    Raises ExtensionError for a method or a kind of label that workers cannot import.
    """
    from elsa_tune.tasks.types.registry import check_importable
    from elsa_tune.training.adapt import methods
    from elsa_tune.training.model.encoder import skeleton

    check_importable(spec.task)
    methods.check(spec.candidates, partial(skeleton, spec.model))


def _recorded_state(journal: Journal, say: Say) -> SearchState:
    """Return what the journal says; what it had no room for counts, which is said."""
    if journal.taken_back:
        lacking, place = journal.missing
        still = f"; they stay in {place} until its disk has room" if lacking else ""
        say(f"{journal.taken_back} records that {journal.path} had no room for count{still}")
    return SearchState.replay(journal.earlier, alive=False)


def _say_ready(data: "TaskData", say: Say, is_published: bool = False) -> None:
    for line in finding_lines(data.findings, is_published):
        say(line)
    for note in data.notes:
        say(f"note: {note}")
    say("starting Ray")
