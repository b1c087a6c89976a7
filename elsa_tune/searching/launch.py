"""Starting and resuming a search: everything is checked first, while Ray is brought up."""

import contextlib
import dataclasses
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from elsa_tune import __version__
from elsa_tune.errors import DataError, ModelError, TrackingError, UsageError
from elsa_tune.searching.answering import Finished, answer_again
from elsa_tune.searching.cluster.join_address import NO_CLUSTER, asked_address
from elsa_tune.searching.earlier import StoreListing, in_folder, say_earlier, with_earlier
from elsa_tune.searching.extending_packages import packages_of_search
from elsa_tune.searching.output import Say
from elsa_tune.searching.planning.plan import Plan, said_before_training
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
from elsa_tune.specs.adapt.candidates import method_packages
from elsa_tune.specs.model import ModelSource, ModelSpec
from elsa_tune.specs.row_findings import finding_lines
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.task import DataSetSource, FilesSource, GlueSource, TaskSource, TaskSpec
from elsa_tune.specs.trial import Recipe
from elsa_tune.tracking.artifacts.copier import copies_of
from elsa_tune.tracking.artifacts.fetching import prepared
from elsa_tune.tracking.artifacts.places import artifacts_at
from elsa_tune.tracking.journal import Journal, is_held, running_error
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths, check_credentials
from elsa_tune.tracking.state import SearchState
from elsa_tune.tracking.store import RecordStore
from elsa_tune.tracking.stores import store_at
from elsa_tune.tracking.uris import shown_uri, without_credentials

if TYPE_CHECKING:
    # Speak Ray and torch, which take seconds to import: only once everything is checked.
    from elsa_tune.searching.cluster.capacity import Capacity
    from elsa_tune.training.data.tokens import TaskData

# So begins the name of the folder where Ray unpacks the files of a submitted job.
_JOB_FOLDER = "_ray_pkg_"
_PACKAGES = ("torch", "transformers", "ray", "optuna", "mlflow")

# How long a finished search's answer waits for a store to take what it lacks.
_REST_PATIENCE_S = 10.0

# Labelled training and (matched) evaluation rows of GLUE, by hub configuration (Wang et al. 2018,
# Table 1).
PUBLISHED_SIZES = {
    "cola": (8551, 1043),
    "sst2": (67349, 872),
    "mrpc": (3668, 408),
    "stsb": (5749, 1500),
    "qqp": (363846, 40430),
    "mnli": (392702, 9815),
    "qnli": (104743, 5463),
    "rte": (2490, 277),
    "wnli": (635, 71),
}


class Rows(NamedTuple):
    """How many examples a task has, and what guessing scores on them."""

    train: int  # those in use, a holdout included
    evaluation: int
    units: int  # how many independent units the evaluation examples are
    chance: float  # the quality of the best constant answer


def plan(request: Request, rows: Rows) -> SearchSpec:
    """Return the search as it would be carried out; nothing is touched."""
    from elsa_tune.training.loop import evaluation_steps

    spec = request.spec
    if spec.artifacts is not None:
        artifacts_at(spec.artifacts)  # raises for an unknown scheme
    train_examples = rows.train - round(rows.train * (spec.recipe.holdout or 0.0))
    evaluation_steps(spec.recipe, train_examples)  # raises where an epoch has fewer steps
    return dataclasses.replace(
        spec,
        chance=rows.chance,
        train_examples=train_examples,
        evaluation_examples=rows.evaluation,
        evaluation_units=rows.units,
    )


def rows_in_use(
    task: TaskSpec,
    recipe: Recipe,
    say: Say = lambda line: None,
    model: ModelSpec | None = None,
) -> Rows:
    """Return how many examples a task has, and what guessing scores on them.

    Nothing is written. GLUE on the hub is not downloaded for a plan: its sizes are published, and
    what guessing scores by most metrics; by the others an even guess is assumed.
    say: called with what is odd about the rows. model: whose tokens are counted, in some of the
    rows; of one on the hub they are not, for nothing is fetched here.
    """
    from elsa_tune.tasks.types.scores import chance
    from elsa_tune.training.data.preparation import planned_findings, read_splits, size_in_use
    from elsa_tune.training.data.row_checks import units_of

    if isinstance(task.source, GlueSource) and task.source.data_dir is None:
        train_rows, evaluation_rows = PUBLISHED_SIZES[task.source.config]
        guessing = task.known_chance
        if guessing is None:
            guessing = 1 / task.outputs
        in_use = size_in_use(task, recipe, train_rows)
        return Rows(in_use, evaluation_rows, units=evaluation_rows, chance=guessing)
    splits = read_splits(task, recipe)
    if model is not None and model.source is ModelSource.HUB:
        model = None
    findings = planned_findings(model, task, recipe, splits)
    for line in finding_lines(findings, task.is_published):
        say(line)
    train = len(splits["train"]) + len(splits.get("holdout", ()))
    evaluation = splits["evaluation"]
    units = units_of(evaluation)
    distinct = len(evaluation) if units is None else int(units.max()) + 1
    guessing = chance(task.metric, evaluation.labels, task.class_count)
    return Rows(train, len(evaluation), distinct, guessing)


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
        _check_same_files(spec, paths, say)
        say(f"search '{request.name}' is recorded with the same options: continuing it")
        more = more_of(None, request.until_certified, asked_settings(spec))
        return resume(
            paths,
            say,
            more=where_asked(spec, more),
            max_time=spec.max_time,
            tracking_uri=request.tracking_uri,
            address=spec.address or NO_CLUSTER,
        )
    with prepared(spec.artifacts, paths, say) as is_fetched:
        if is_fetched:
            raise taken(paths)  # whoever fetches a search reads its specification, and resumes it
        return _begin(request, say)


def _check_same_files(asked: SearchSpec, paths: SearchPaths, say: Say) -> None:
    """Raise DataError or ModelError where files of this machine are not what the search had.

    A complete search would else answer for rows or weights that it never saw. What the hub or the
    package has cannot have changed, for a search goes on with the revision that it began with.
    """
    from elsa_tune.training.data.preparation import fingerprint_of
    from elsa_tune.training.model.model_files import weights_fingerprint

    recorded = load_specification(paths)
    found: dict[str, str] = {}
    model = where_asked(asked)(recorded).model
    if model.source is ModelSource.DIRECTORY:
        found["weights"] = weights_fingerprint(model)
    if _has_own_rows(asked.task.source):
        try:
            found["data"] = fingerprint_of(model, asked.task, recorded.recipe)
        except ModelError as error:  # a complete search is answered without its model
            say(f"note: whether the rows are those of search '{paths.name}' is not known: {error}")
    if found:
        check_unchanged(recorded, {**recorded.fingerprints, **found})


def _has_own_rows(source: TaskSource) -> bool:
    """Whether rows are read from files of the user's, which may change."""
    if isinstance(source, GlueSource):
        return source.data_dir is not None
    if isinstance(source, DataSetSource):
        return source.revision is None
    return isinstance(source, FilesSource)


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
            store = _open_store(request.tracking_uri, say)
            listing = StoreListing(store)
            spec, data = _with_data(spec)
            for sentence in said_before_training(spec):
                say(sentence)
            from elsa_tune.searching.session import run_session

            _say_ready(data, say, spec.task.is_published)
            capacity = _with_gpus(session.ready(), spec.gpus_per_trial)
            resources = share(request, capacity, say)
            check_gpu_hours(spec.gpu_hours, resources.gpus)
            spec = dataclasses.replace(spec, resources=resources)
            recipe = settled_recipe(spec, capacity.gpu_kinds, say)
            spec = dataclasses.replace(spec, recipe=recipe)
            recorded = in_folder(spec, paths.storage) + listing.searches()
            spec = with_earlier(spec, recorded, seed_is_given=request.seed_is_given)
            say_earlier(spec, say)
            save_specification(spec, paths)
            return run_session(spec, paths, data, store, session.over)
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
    spec = load_specification(paths)
    uri = tracking_uri or _remembered(spec.tracking_uri)
    if is_held(paths.lock):
        raise running_error(paths.journal)
    state = _recorded_state(spec, paths, say)
    wanted = spec if more is None else more(spec)
    is_complete = Plan.of(wanted, paths, state).is_complete
    before = (spec.gpu_hours, spec.gpu_share)
    asked = (wanted.gpu_hours, wanted.gpu_share)
    if asked != before or not is_complete:
        check_gpu_hours(*asked)
    if not is_complete:
        _check_budget(wanted, state)
        _check_trainable(wanted)
    is_moved = tracking_uri is not None and shown_uri(tracking_uri) != shown_uri(spec.tracking_uri)
    if is_moved:
        wanted = dataclasses.replace(wanted, tracking_uri=shown_uri(uri))
    is_copied_elsewhere = wanted.artifacts != spec.artifacts
    copied_to = wanted.artifacts if is_copied_elsewhere or not is_complete else None
    with prepared(copied_to, paths, say):
        if is_complete and not is_moved:
            store = store_at(uri)  # it may be down: what it lacks stays in the journal
        else:
            is_remembered = uri not in (tracking_uri, spec.tracking_uri)
            store = _open_again(uri, say, is_remembered=is_remembered)
        if wanted != spec:
            # Before any work: whatever ends this session, the next one knows what was wanted.
            spec = replace_specification(wanted, paths)
        if is_complete:
            return _answer(spec, paths, store, say)
        if max_time is not None:
            spec = dataclasses.replace(spec, max_time=max_time)
        has_recorded_address = address is None
        if address == NO_CLUSTER and spec.address is not None:
            say(f"this session trains on this machine, not on the cluster at {spec.address}")
        if address is not None:
            spec = dataclasses.replace(spec, address=asked_address(address))
        return _go_on(spec, paths, store, say, has_recorded_address=has_recorded_address)


def _answer(spec: SearchSpec, paths: SearchPaths, store: RecordStore, say: Say) -> Finished:
    """Answer a finished search, and give its report and its stores what they lack."""
    finished = answer_again(spec, paths, store, say)
    uncopied = copies_of(spec.artifacts, paths, say).close(patience_s=_REST_PATIENCE_S)
    return dataclasses.replace(finished, uncopied=uncopied)


def _go_on(
    spec: SearchSpec,
    paths: SearchPaths,
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
        capacity = _with_gpus(here, spec.gpu_share)
        # Not recorded: the next session may have another machine.
        spec = dataclasses.replace(spec, resources=share_again(spec, capacity, say))
        settled_recipe(spec, capacity.gpu_kinds, say)
        return run_session(_with_versions(spec, say), paths, data, store, session.over)


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


def _recorded_state(spec: SearchSpec, paths: SearchPaths, say: Say) -> SearchState:
    """Return what the journal says, and take back what it had no room for."""
    with Journal(paths.journal, spec.search_id) as journal:
        if journal.taken_back:
            lacking, place = journal.missing
            still = f"; they stay in {place} until its disk has room" if lacking else ""
            say(f"{journal.taken_back} records that {paths.journal} had no room for count{still}")
        return SearchState.replay(journal.earlier, alive=False)


def _open_again(uri: str, say: Say, *, is_remembered: bool) -> RecordStore:
    """Open the store of a recorded search. Raises TrackingError.

    is_remembered: the URI is made of what was kept of it, which is never its password.
    """
    try:
        return _open_store(uri, say)
    except TrackingError as error:
        if not is_remembered:
            raise
        raise TrackingError(
            f"{error}; the password or token that the search was started with is never kept: give "
            f"it again, {store_at(uri).credentials_hint}"
        ) from error


def _with_versions(spec: SearchSpec, say: Say) -> SearchSpec:
    """Return the search as this session records it.

    What is installed otherwise than at its start is said, for it decides how trials train. What
    comes next, and what is certified, is decided by the recorded policy.
    """
    here = versions_here(packages_of_search(spec))
    before = []
    now = []
    for tag, version in here.items():
        recorded = spec.versions.get(tag, version)
        if recorded != version:
            name = tag.removeprefix("version.")
            before.append(f"{name} {recorded[:12]}")
            now.append(f"{name} {version[:12]}")
    if before:
        say(
            f"note: search '{spec.name}' was started with {', '.join(before)}; this session trains "
            f"with {', '.join(now)}, and chooses and certifies by the policy that the search was "
            "started with"
        )
    return dataclasses.replace(spec, versions=here)


def check_here(request: Request) -> None:
    """Raise where this machine cannot do what a search on it asks for.

    What Ray will find here is known without it; of a cluster nothing is. Raises UsageError for
    GPU-hours on CPUs and for more than there is, SpaceError for a precision it has not.
    """
    from elsa_tune.searching.cluster.capacity import Capacity
    from elsa_tune.searching.cluster.shares import settled_recipe, share

    spec = request.spec
    if spec.address is not None:
        return
    here = Capacity.of_this_machine()
    resources = share(request, here)
    check_gpu_hours(spec.gpu_hours, resources.gpus)
    settled_recipe(dataclasses.replace(spec, resources=resources), here.gpu_kinds, _silent)


def _silent(sentence: str) -> None:
    """Say nothing: the search says it when it begins."""


def _with_gpus(capacity: "Capacity", gpus_per_trial: float | None) -> "Capacity":
    """Add what torch finds of the GPUs, unless trials are to train on CPUs. Raises UsageError."""
    from elsa_tune.searching.cluster.nodes import ask_gpus

    if not capacity.gpus or gpus_per_trial == 0:
        return capacity
    return dataclasses.replace(capacity, gpu_kinds=ask_gpus())


def check_gpu_hours(gpu_hours: float | None, gpus_per_trial: float) -> None:
    """Raise UsageError for GPU-hours where trials train on CPUs."""
    if gpu_hours is not None and not gpus_per_trial:
        raise UsageError(
            f"`gpu_hours` is {gpu_hours:g}, but trials train on CPUs here; give `max_time`"
        )


def _check_budget(spec: SearchSpec, state: SearchState) -> None:
    """Raise UsageError for a search that has used up its GPU-hours."""
    if spec.gpu_hours is None:
        return
    used = state.gpu_hours(time.time())
    if used >= spec.gpu_hours:
        raise UsageError(
            f"search '{spec.name}' has used {used:.3g} of its {spec.gpu_hours:g} GPU-hours; give a "
            "larger number as `gpu_hours`, which counts earlier sessions, too"
        )


def _say_ready(data: "TaskData", say: Say, is_published: bool = False) -> None:
    for line in finding_lines(data.findings, is_published):
        say(line)
    for note in data.notes:
        say(f"note: {note}")
    say("starting Ray")


def store_of(spec: SearchSpec) -> RecordStore:
    """Return the store that a saved search names. It is not asked whether it answers.

    Raises TrackingError where it would be sent another server's credentials.
    """
    return store_at(_remembered(spec.tracking_uri))


def _remembered(stored: str) -> str:
    """Return the store that a specification names, with its credentials, which are never stored.

    Raises TrackingError where the environment has another server's.
    """
    check_credentials(stored)
    # They are in MLFLOW_TRACKING_URI, where it is this store's, or wherever else its client looks.
    if without_credentials(stored) == stored:
        return stored
    with contextlib.suppress(TrackingError):  # it names no store
        given = StorePaths(Path.cwd()).named_uri()
        if given is not None and shown_uri(given) == shown_uri(stored):
            return given
    return without_credentials(stored)


def _open_store(tracking_uri: str, say: Say) -> RecordStore:
    store = store_at(tracking_uri)
    store.check()
    store.initialise(say)
    return store


def inputs_of(spec: SearchSpec) -> "tuple[TaskData, dict[str, str]]":
    """Return the tokenised data, and fingerprints of it and of the weights. Raises without any."""
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.forward.prefix_store import budget_bytes
    from elsa_tune.training.model.model_files import weights_fingerprint

    budget_bytes()  # a mistyped setting is said here, not by every trial
    try:
        data = prepare(spec.model, spec.task, spec.recipe)
        weights = weights_fingerprint(spec.model)
    except (DataError, ModelError) as error:
        if not _is_lost_with_job(spec):
            raise
        raise type(error)(
            f"{error}; it lay in the folder of a submitted job, which is gone: to go on, submit "
            "the same command again; or copy its files here and type it as `elsa-tune search`, "
            "after which `elsa-tune resume` and `elsa-tune export` find them"
        ) from error
    return data, {"weights": weights, "data": data.fingerprint}


def _is_lost_with_job(spec: SearchSpec) -> bool:
    """Whether the search's own files were in the folder of a job, which Ray has deleted."""
    source = spec.task.source
    places: list[str | None] = []
    if isinstance(source, FilesSource):
        places += [*source.train, *source.evaluation]
    elif isinstance(source, GlueSource):
        places.append(source.data_dir)
    elif isinstance(source, DataSetSource):
        places.append(source.location)
    if spec.model.source is ModelSource.DIRECTORY:
        places.append(spec.model.location)
    return any(place and _JOB_FOLDER in place and not Path(place).exists() for place in places)


def check_unchanged(spec: SearchSpec, fingerprints: dict[str, str]) -> None:
    """Raise DataError or ModelError where data or weights are not what the search had."""
    for what, of, error in (
        ("data", f"task '{spec.task.name}'", DataError),
        ("weights", f"'{spec.model.name}'", ModelError),
    ):
        if fingerprints[what] != spec.fingerprints[what]:
            raise error(
                f"the {what} of {of} are not those that search '{spec.name}' began with; put them "
                "back, or start a search of another `name`: results on others are not comparable"
            )


def versions_here(more: Iterable[str] = ()) -> dict[str, str]:
    """Return the versions of Python, the packages that decide results, and this repository.

    more: packages that a search uses beside what every search takes.
    """
    versions = {"python": platform.python_version(), "elsa-tune": __version__}
    for package in _PACKAGES:
        versions[package] = metadata.version(package)
    for package in (*method_packages(), *more):  # decide results where they are installed
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[package] = metadata.version(package)
    versions["git_commit"] = _commit()
    return {f"version.{name}": version for name, version in versions.items()}


def _commit() -> str:
    """Return the commit of the repository that this package's files are of; else "unknown".

    One that only surrounds an installed package says nothing of it.
    """
    file = Path(__file__)
    # Git ends with an error where the commit does not have the file.
    what = ("HEAD", f"HEAD:./{file.name}")
    command = ["git", "-C", str(file.parent), "rev-parse", *what]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        run = subprocess.run(command, capture_output=True, text=True, timeout=5, check=True)
        commit, _ = run.stdout.split()
        return commit
    return "unknown"
