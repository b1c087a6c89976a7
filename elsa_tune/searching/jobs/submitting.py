"""Sends a search to a cluster as a job of Ray's: checked here first, started there.

The job is `elsa-tune search` with the options as they were typed. What it records lies where its
driver runs, and what it must know that is secret comes from that node's environment: a job's
description is shown to everybody who sees the dashboard.
"""

import re
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from elsa_tune.errors import UsageError
from elsa_tune.extensions import packages_that_bring
from elsa_tune.files import slug
from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.searching.extending_packages import packages_of_search
from elsa_tune.searching.inputs import SearchOptions, option_words
from elsa_tune.searching.jobs.parcel import Parcel, pack
from elsa_tune.searching.jobs.server import Job, JobServer
from elsa_tune.searching.output import Say
from elsa_tune.searching.request import Request, read_requests
from elsa_tune.specs.model import ModelSource
from elsa_tune.tracking.artifacts.places import asked_artifacts, check_scheme
from elsa_tune.tracking.artifacts.remote import packages_of
from elsa_tune.tracking.places import StorePaths, storage_path
from elsa_tune.tracking.stores import store_at
from elsa_tune.tracking.uris import (
    SQLITE,
    TRACKING_VARIABLE,
    is_on_loopback,
    scheme_of,
    shown_uri,
    without_credentials,
)
from elsa_tune.training.model.model_files import PACKAGE_DISTRIBUTION

# How a job's nodes come by the packages: they have them, or Ray installs them with pip.
Environment = Literal["there", "pip"]

# In a place on a node: the home of whoever runs Ray there, which a shell there puts in.
HOME = "$HOME"
# Where a job records, unless told otherwise. A search that is typed in this folder there has the
# same default places.
DEFAULT_PLACE = f"{HOME}/elsa-tune/mlruns"
# How long a job that is asked to end has for it; Ray would kill it after three seconds.
STOP_SECONDS = 120
NO_SUCH_PACKAGE = (
    "elsa-tune: this node's python has no elsa-tune; install it there, and start Ray in that "
    "environment"
)
# What a requirement begins with.
_PACKAGE = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Submitted:
    """A search that was sent to a cluster."""

    job: Job  # its session
    url: str  # of the dashboard
    record: str  # the folder of its record, on the node where its driver runs
    earlier: Job | None  # the session before it, which it goes on from


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlaces:
    """The places where a job works and records, as a shell on its node reads them."""

    storage: str  # the folder of the searches; may begin with $HOME
    tracking_uri: str  # likewise, the store that is taken where the node names none
    is_given: bool = False  # whether that store was asked for, and the node has no say
    folder: str | None = None  # the working directory, where that is one that all nodes share


def submit(
    options: SearchOptions, say: Say, *, environment: Environment = "there", uploads: bool = True
) -> Submitted:
    """Send a search to the cluster at its `address`, and return once the job is accepted.

    uploads: files go along; else all nodes see this working directory at the same path. Raises
    UsageErrors before anything is sent.
    """
    here = Path.cwd()
    places = _places(options, here, uploads)
    server = JobServer(options.address)
    places = _reached_there(places, server, say)
    requests = _checked(options)
    name = options.name or _name_of(requests)
    earlier = _ended_session(server, name)
    _check_shares(options, server)
    parcel = Parcel(options, {})
    if uploads:
        parcel = pack(options, requests, here)
    if environment == "pip":
        parcel = parcel.with_package()
    parcel.check_size(server.most_bytes)
    record = places.storage
    if len(requests) == 1:
        record = f"{places.storage}/{name}"
    job = Job(
        name=name,
        session=1 if earlier is None else earlier.session + 1,
        status="PENDING",
        metadata={
            "model": requests[0].spec.model.name,
            "task": ", ".join(request.spec.task.name for request in requests),
            "record": record,
        },
    )
    command = entrypoint(replace(parcel.options, name=name), places)
    runtime_env = _runtime_env(environment, more=_extras(requests, places))
    if parcel.is_empty:
        server.submit(job, command, None, runtime_env)
    else:
        say(f"submit: sending {len(parcel.files) + len(parcel.written)} files, {_size(parcel)}")
        with parcel.laid_out() as folder:
            server.submit(job, command, folder, runtime_env)
    return Submitted(job, server.url, record, earlier)


def _ended_session(server: JobServer, name: str) -> Job | None:
    """Return the last session of a search, None for its first. Raises UsageError while it runs."""
    job = server.latest(name)
    if job is not None and not job.is_over:
        raise UsageError(
            f"search '{name}' is {job.state} as job {job.id} on {server.url}; `elsa-tune watch "
            f"{name} --address {server.url}` follows it, `elsa-tune stop {name} --address "
            f"{server.url}` ends it"
        )
    return job


def entrypoint(options: SearchOptions, places: JobPlaces) -> str:
    """Return the line that a job's node runs in a shell: the search, with its places there."""
    left_out = ("address", "storage_path", "tracking_uri")
    words = ["search", *option_words(options, left_out), "--address", "auto"]
    parts = []
    if places.folder is not None:
        folder = shlex.quote(places.folder)
        missing = shlex.quote(
            f"elsa-tune: the driver's node has no folder {places.folder}; share it with the nodes, "
            "or have its files uploaded"
        )
        parts.append(f"cd {folder} 2>/dev/null || {{ echo {missing} >&2; exit 2; }}")
    unless_named = "" if places.is_given else f'[ -n "${TRACKING_VARIABLE}" ] || '
    uri = _for_shell(places.tracking_uri)
    parts.append(f"{unless_named}export {TRACKING_VARIABLE}={uri}")
    lacks = shlex.quote(NO_SUCH_PACKAGE)
    parts.append(f"python -c 'import elsa_tune' 2>/dev/null || {{ echo {lacks} >&2; exit 2; }}")
    command = shlex.join(words)
    storage = _for_shell(places.storage)
    # What is typed moves a recorded search; a variable does not.
    typed = f" --tracking-uri {uri}" if places.is_given else ""
    parts.append(f"exec python -m elsa_tune {command} --storage-path {storage}{typed}")
    return "; ".join(parts)


def _for_shell(text: str) -> str:
    """Quote a place for a shell, which still puts in the home."""
    before, home, behind = text.partition(HOME)
    if not home:
        return shlex.quote(text)
    return f'{shlex.quote(before) if before else ""}"{home}"{shlex.quote(behind)}'


def _places(options: SearchOptions, here: Path, uploads: bool) -> JobPlaces:
    """Return where the job records. Raises UsageError for a place that means nothing there."""
    given = options.tracking_uri
    if given is not None and shown_uri(given) != given:
        raise UsageError(
            f"`tracking_uri` {shown_uri(given)} has a password in it, and everybody who sees the "
            f"dashboard would see it too; set {TRACKING_VARIABLE} where Ray is started on the "
            "cluster's nodes, and leave `tracking_uri` out"
        )
    kept = asked_artifacts(options.artifacts, here)
    if kept is not None:
        check_scheme(kept)
    is_relative = kept != asked_artifacts(options.artifacts, here / "elsewhere")
    if uploads and is_relative:
        raise UsageError(
            f"`artifacts` {options.artifacts} is relative, and the job's own folder on the cluster "
            "is deleted after it; give an absolute path there, or a URL"
        )
    if not uploads:
        shared = StorePaths(here)
        uri = shared.tracking_uri(given)
        return JobPlaces(
            storage=str(shared.storage_at(options.storage_path)),
            tracking_uri=without_credentials(uri),
            is_given=given is not None,
            folder=str(here),
        )
    storage = storage_path(options.storage_path or f"{DEFAULT_PLACE}/searches")
    if storage.startswith("~/"):
        storage = f"{HOME}/{storage.removeprefix('~/')}"
    if not storage.startswith(("/", f"{HOME}/")):
        raise UsageError(
            f"`storage_path` {storage} is relative, and the job's own folder on the cluster is "
            "deleted after it; give an absolute path there, best one that all nodes share"
        )
    beside = _store_beside(storage)
    named = StorePaths(here).named_uri(given)
    if named is None:
        return JobPlaces(storage=storage, tracking_uri=beside)
    if scheme_of(named) != "sqlite":
        uri = without_credentials(named)
        return JobPlaces(storage=storage, tracking_uri=uri, is_given=given is not None)
    if given is None:
        return JobPlaces(storage=storage, tracking_uri=beside)  # the variable names a file of ours
    if not given.startswith(f"{SQLITE}/"):
        raise UsageError(
            f"`tracking_uri` {given} is relative, and the job's own folder on the cluster is "
            "deleted after it; give sqlite:////ABSOLUTE/FILE.db there, or a server"
        )
    return JobPlaces(storage=storage, tracking_uri=named, is_given=True)


def _store_beside(storage: str) -> str:
    """Return the store of a folder of searches for which none is named."""
    return f"{SQLITE}{PurePosixPath(storage).parent}/mlflow.db"


def _reached_there(places: JobPlaces, server: JobServer, say: Say) -> JobPlaces:
    """Return the places with a store that the job can reach.

    A server that this machine's variable names at localhost is another machine's there, unless the
    job runs on this one. One that was asked for stays: it is that of the driver's node.
    """
    uri = places.tracking_uri
    if places.is_given or not is_on_loopback(uri) or server.is_of_this_machine():
        return places
    beside = _store_beside(places.storage)
    say(
        f"submit: {TRACKING_VARIABLE} is {uri}, which is not reachable from the cluster: the "
        f"search is recorded in {beside} there, unless its nodes name a store"
    )
    return replace(places, tracking_uri=beside)


def _checked(options: SearchOptions) -> list[Request]:
    """Return the searches that are asked for, which this machine's record knows nothing of."""
    with tempfile.TemporaryDirectory() as nowhere:
        # Theirs would be where nodes join; this one takes jobs, and is checked already.
        return read_requests(replace(options, storage_path=nowhere, address=None))


def _name_of(requests: Sequence[Request]) -> str:
    """Return the name of a search, or the one that those of several tasks share."""
    first = requests[0]
    if len(requests) == 1:
        return first.name
    return first.name.removesuffix(f"-{slug(first.spec.task.name)}")


def _check_shares(options: SearchOptions, server: JobServer) -> None:
    """Raise UsageError for a trial that no node of the cluster has room for."""
    nodes = server.nodes()
    if nodes is None:
        return
    training = [node for node in nodes if node.get("CPU")]
    if not training:
        return  # the search itself says that it needs one
    asked = ""
    if options.gpus_per_trial:
        asked = f"`gpus_per_trial` is {options.gpus_per_trial:g}"
    elif options.gpu_hours is not None:
        asked = f"`gpu_hours` is {options.gpu_hours:g}"
    capacity = Capacity.of_nodes(training)
    if asked and capacity.gpus == 0:
        raise UsageError(
            f"{asked}, but no node of the cluster at {server.url} has a GPU that Ray knows of; "
            "leave it out to train on CPUs, or start Ray on nodes that have some"
        )
    capacity.resources(options.cpus_per_trial, options.gpus_per_trial)


def _extras(requests: Sequence[Request], places: JobPlaces) -> list[str]:
    """Return the packages that these searches need beside those that every search does."""
    extras: set[str] = set()
    for request in requests:
        if request.spec.model.source is ModelSource.PACKAGE:
            extras.add(PACKAGE_DISTRIBUTION)
        for candidate in request.spec.candidates:
            extras.update(candidate.packages)
        if request.spec.artifacts is not None:
            extras |= packages_of(request.spec.artifacts)
        extras.update(packages_of_search(request.spec))
    store = store_at(places.tracking_uri)
    extras |= store.packages()
    extras.update(packages_that_bring([type(store).__module__]))
    return sorted(extras)


def _runtime_env(environment: Environment, more: Sequence[str] = ()) -> dict[str, Any]:
    """Return what Ray is to see to before a job starts. It holds no secret.

    more: packages beside those that every search needs.
    """
    runtime_env: dict[str, Any] = {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)}}
    if environment == "pip":
        pins = pinned_packages()
        for package in more:
            name, _, _ = package.partition("[")
            try:
                pins.append(f"{package}=={metadata.version(name)}")
            except metadata.PackageNotFoundError:  # the node needs it, this machine may do without
                pins.append(package)
        runtime_env["pip"] = pins
    return runtime_env


def pinned_packages() -> list[str]:
    """Return what this package needs, at this machine's versions, as pip takes them.

    Ray is left out: a node runs it already, and its version was compared. So is the package itself,
    which goes along with the files.
    """
    pins = []
    for line in metadata.requires("elsa-tune") or ():
        match = _PACKAGE.match(line)
        assert match is not None
        package = match[0]
        if package == "ray" or "extra ==" in line:
            continue
        # A build for CPUs or one CUDA has a name of its own; the nodes take what suits them.
        public, _, _ = metadata.version(package).partition("+")
        pins.append(f"{package}=={public}")
    return pins


def _size(parcel: Parcel) -> str:
    mib = parcel.size / 1024**2
    if mib < 1:
        return f"{parcel.size / 1024:,.0f} KiB"
    return f"{mib:,.0f} MiB"
