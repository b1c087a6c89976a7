"""`elsa-tune submit`: a search sent to a cluster; `watch`, `logs` and `stop`, from any shell."""

import contextlib
import functools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from elsa_tune.cli.options import (
    MACHINES,
    RECORD,
    AskedUri,
    JobAddress,
    StoragePath,
    asking_store,
    grouped,
    pointing_at_clusters,
    refuse_several_places,
    wanted_search,
)
from elsa_tune.errors import InterruptedSearchError, NoAnswerError, RunError, UsageError
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.output import say
from elsa_tune.tracking.journal_records import SearchStatus
from elsa_tune.tracking.paths import SearchPaths, find_search
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.record_names import ANSWER, COMPARISON, HOST_TAG
from elsa_tune.tracking.store import arguments_elsewhere
from elsa_tune.visible import visible

if TYPE_CHECKING:
    from elsa_tune.searching.jobs.server import Job, JobServer
    from elsa_tune.searching.jobs.submitting import Submitted
    from elsa_tune.tracking.state import SearchState


class WatchedEnd(SystemExit):
    """The end of `watch`, with the exit status of its search, of which all is said."""


WatchedName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="The search. Default: the latest one in this folder, or with --address the one "
        "submitted last.",
    ),
]
StoppedName = Annotated[
    str | None,
    typer.Argument(
        metavar="NAME",
        help="The search. Default: the latest one in this folder, or with --address the only one "
        "under way.",
    ),
]
# Of a search's options, those that mean a place on the cluster.
_PLACES = {
    "address": typer.Option(
        rich_help_panel=MACHINES,
        metavar="URL",
        help="The cluster's dashboard, http://HOST:8265.",
    ),
    "storage_path": typer.Option(
        rich_help_panel=RECORD,
        metavar="PATH",
        help="Where the cluster keeps journals, absolute; best a folder that all nodes share. "
        "Default: elsa-tune/mlruns/searches in the home of whoever runs Ray on the driver's node.",
    ),
    "tracking_uri": typer.Option(
        rich_help_panel=RECORD,
        metavar="URI",
        help="MLflow store, as the driver's node reaches it, without a password. Default: that "
        "node's MLFLOW_TRACKING_URI, else the server in this machine's (unless at localhost), else "
        "mlflow.db beside the journals' folder; a search that goes on stays where it is recorded.",
    ),
}


@functools.partial(grouped, instead=_PLACES)
def submit(
    wanted: SearchOptions,
    environment: Annotated[
        Literal["there", "pip"],
        typer.Option(
            rich_help_panel=MACHINES,
            help="`there`: the nodes have elsa-tune. `pip`: it goes along, and Ray installs what "
            "it needs, at this machine's versions.",
        ),
    ] = "there",
    uploads: Annotated[
        bool,
        typer.Option(
            "--upload/--no-upload",
            rich_help_panel=MACHINES,
            help="Send the files that the search reads. Without it all nodes see this folder, at "
            "the same path, and the record lies here.",
        ),
    ] = True,
) -> None:
    """Send a search to a Ray cluster, and return at once.

    It takes the options of `search` but --dry-run and --probe. The files that it reads go along;
    what it records lies where its driver runs.
    """
    say(f"submit: reading {wanted.model}, {', '.join(wanted.task)} and the space {wanted.space}")
    from elsa_tune.searching.jobs.submitting import submit as send

    submitted = send(wanted, say, environment=environment, uploads=uploads)
    _say_submitted(submitted)


def _say_submitted(submitted: "Submitted") -> None:
    """Print the job's id (stdout), where its record lies and what to type next (stderr)."""
    job = submitted.job
    earlier = submitted.earlier
    if earlier is not None:
        goes_on = "this one goes on from its record"
        its_record = (earlier.metadata or {}).get("record", submitted.record)
        if its_record != submitted.record:
            goes_on = f"it recorded in {its_record}; this one goes on from {submitted.record}"
        say(
            f"search '{job.name}' was submitted before (job {earlier.id}, {earlier.state}): "
            f"{goes_on}"
        )
    typer.echo(job.id)
    say(
        f"record: {submitted.record} on the driver's node, usually the cluster's head; elsewhere "
        "`watch` and `resume` find it if that folder is shared"
    )
    address = f"--address {submitted.url}"
    say(f"follow: elsa-tune watch {job.name} {address}")
    say(f"end:    elsa-tune stop {job.name} {address}")


def watch(
    name: WatchedName = None,
    storage_path: StoragePath = None,
    tracking_uri: AskedUri = None,
    address: JobAddress = None,
) -> None:
    """Follow a running search; Ctrl-C leaves it running.

    Reads its journal (in this folder, or in --storage-path), an MLflow store (--tracking-uri), or
    the log of its job (--address), and writes nothing. Exit status: that of the search once it has
    ended, 0 where you left it.
    """
    places = {
        "--storage-path": storage_path,
        "--tracking-uri": tracking_uri or None,  # an empty one is none
        "--address": address,
    }
    refuse_several_places(places)
    if address is None:
        status = _watch_record(name, storage_path, tracking_uri)
    else:
        status = _watch_job(name, address)
    raise WatchedEnd(status)


@contextlib.contextmanager
def _leaving_by_ctrl_c() -> Iterator[None]:
    """Take Ctrl-C, while a search is followed, as leaving it."""
    try:
        yield
    except KeyboardInterrupt:
        say("left; the search goes on")


def _watch_record(name: str | None, storage_path: str | None, tracking_uri: str | None) -> int:
    """Show a search from its journal, or from a store where only that has it.

    Return its exit status, 0 where it was left.
    """
    places = StorePaths(Path.cwd())
    storage = places.storage_at(storage_path)
    uri = places.named_uri(tracking_uri)
    is_here = name is None or SearchPaths(storage, name).exists
    if is_here and not tracking_uri:
        uri = None  # a store that the environment names is behind the journal
    say(f"watch: reading {storage if uri is None else 'the store'}")

    from elsa_tune.searching.jobs.watched import stored, watch_journal, watch_store

    if uri is None:
        with pointing_at_clusters():
            paths = find_search(storage, wanted_search(name, None, storage))
        status = 0
        with _leaving_by_ctrl_c():
            state = watch_journal(paths)
            _say_end(state, paths)
            status = _exit_status(state)
        return status
    if name is None:
        raise UsageError("a store has many searches; name the one to watch")
    found = stored(uri, name, storage)
    status = 0
    with _leaving_by_ctrl_c():
        state, paths_here = watch_store(uri, found)
        _say_end(state, paths_here, tracking_uri, asked=name)
        status = _exit_status(state)
    return status


def _exit_status(state: "SearchState") -> int:
    """Return the exit status with which a search's last session ended, as its record tells it."""
    if state.status is SearchStatus.INTERRUPTED:
        return InterruptedSearchError.exit_status
    if state.status not in (SearchStatus.COMPLETED, SearchStatus.TIME_UP):
        return RunError.exit_status
    if not _is_answered(state):
        return NoAnswerError.exit_status
    return 0


def _is_answered(state: "SearchState") -> bool:
    """Whether anything that the search was asked has an answer, as its record tells it."""
    from elsa_tune.analysis.comparing.ways import NO_ANSWER

    for answer in _recorded(state, ANSWER):
        if answer.get("operating_point") is not None:
            return True
    for comparison in _recorded(state, COMPARISON):
        if comparison.get("best") is not None and comparison.get("reason") not in NO_ANSWER:
            return True
    return False


def _recorded(state: "SearchState", what: str) -> list[dict[str, Any]]:
    """Return the objects of a decision; none where a store has something else there."""
    value = state.decisions.get(what)
    if not isinstance(value, list):
        return []
    return [each for each in value if isinstance(each, dict)]


def _say_end(
    state: "SearchState",
    paths: SearchPaths | None,
    tracking_uri: str | None = None,
    asked: str | None = None,
) -> None:
    """Print how a search that was watched has ended, and what to type next.

    paths: None where its journal is not on this machine. tracking_uri: the store, where one was
    typed. asked: by which name or id it was asked for there.
    """
    name = state.search.name if paths is None else paths.name
    message = ""
    if state.end is not None and state.end.message:
        message = f" ({state.end.message})"
    say(f"search '{name}': {state.status_text}{message}")
    say(_next(state, paths, tracking_uri, asked or name))


def _next(
    state: "SearchState", paths: SearchPaths | None, tracking_uri: str | None, asked: str
) -> str:
    """Return what to type next; a search that was cut short goes on where its journal is."""
    asks = "compare" if COMPARISON in state.decisions else "answer"
    if paths is not None:
        verb = asks if state.is_complete else "resume"
        return f"Next: elsa-tune {verb} {paths.arguments}"
    tags = state.search.tags
    arguments = arguments_elsewhere(tags)
    if arguments is not None and not state.is_complete:
        return f"Next, on {tags.get(HOST_TAG)}: elsa-tune resume {arguments}"
    return f"Next: elsa-tune {asks} {asked}{asking_store(tracking_uri)}"


def _watch_job(name: str | None, address: str) -> int:
    """Print what a job has said and says until it ends, and how it ends.

    Return its search's exit status, 0 where it was left.
    """
    from elsa_tune.searching.jobs.server import JobServer
    from elsa_tune.searching.jobs.watched import print_log

    server = JobServer(address)
    job = server.named(name)
    say(f"search '{job.name}', job {job.id} on {server.url}: {job.state}")
    status = 0
    with _leaving_by_ctrl_c():
        print_log(_followed(server, job), say)
        ended = _again(server, job)
        say(f"job {ended.id}: {_end_of(ended)}")
        status = _exit_status_of(ended)
    return status


def _exit_status_of(job: "Job") -> int:
    """Return the exit status of a job's search; of one that Ray ended, what it would have been."""
    if job.state == "interrupted":
        return InterruptedSearchError.exit_status
    if job.status == "SUCCEEDED":
        return 0
    if job.exit_status in (UsageError.exit_status, NoAnswerError.exit_status):
        return job.exit_status
    return RunError.exit_status


def _followed(server: "JobServer", job: "Job") -> Iterator[str]:
    """Yield the lines that a job says until it ends; a dashboard may be gone for minutes."""
    from elsa_tune.searching.jobs.watched import new_lines, patiently

    def log() -> str:
        return patiently(lambda: server.log(job), say)

    return new_lines(log, lambda: _again(server, job).is_over)


def _again(server: "JobServer", job: "Job") -> "Job":
    """Return how a job stands by now; a dashboard may be gone for minutes."""
    from elsa_tune.searching.jobs.watched import patiently

    return patiently(lambda: server.again(job), say)


def _end_of(job: "Job") -> str:
    """Return how a job has ended, and of one that never began why, in words."""
    if job.why:
        return f"{job.state} ({job.why})"
    return job.state


def logs(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="The search. Default: the one submitted last."),
    ] = None,
    address: JobAddress = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Print what comes, until the job has ended.")
    ] = False,
) -> None:
    """Print what a submitted search has said: the log of its job."""
    if address is None:
        raise UsageError(
            "only a search that was submitted has a log; give `address`, the dashboard it was "
            "submitted to, or see its record with `elsa-tune watch`"
        )
    from elsa_tune.searching.jobs.server import JobServer

    server = JobServer(address)
    job = server.named(name)
    if not follow:
        typer.echo(visible(server.log(job)), nl=False)
        return
    with _leaving_by_ctrl_c():
        for line in _followed(server, job):
            typer.echo(visible(line))


def stop(
    name: StoppedName = None,
    storage_path: StoragePath = None,
    address: JobAddress = None,
) -> None:
    """End a running search as Ctrl-C would; it can go on later.

    A search of this machine is found by its journal, a submitted one by --address. Everything so
    far is kept.
    """
    refuse_several_places({"--storage-path": storage_path, "--address": address})
    if address is not None:
        from elsa_tune.searching.jobs.server import JobServer

        _stop_job(JobServer(address), name)
        return
    storage = StorePaths(Path.cwd()).storage_at(storage_path)
    with pointing_at_clusters():
        paths = find_search(storage, wanted_search(name, None, storage))

    from elsa_tune.searching.process.stopping import stop_here

    status = stop_here(paths, say)
    say(f"search '{paths.name}': {status}; `{paths.resume}` goes on")


def _stop_job(server: "JobServer", name: str | None) -> None:
    """Ask a job to end, and wait until it has."""
    from elsa_tune.searching.jobs.submitting import STOP_SECONDS

    job = server.under_way() if name is None else server.find(name)
    if job.is_over:
        raise UsageError(f"search '{job.name}' is not running: job {job.id} is {job.state}")
    server.stop(job)
    say(f"stop: job {job.id} ends its trials")
    # Ray kills what has not ended by then.
    deadline = time.monotonic() + STOP_SECONDS + 10
    ended = _again(server, job)
    while not ended.is_over:
        if time.monotonic() >= deadline:
            raise RunError(f"job {job.id} still runs; see the dashboard at {server.url}")
        time.sleep(0.5)
        ended = _again(server, job)
    if ended.state != "interrupted":
        say(
            f"search '{job.name}': {_end_of(ended)} before it was stopped; `elsa-tune logs "
            f"{job.name} --address {server.url}` prints what it said"
        )
        return
    say(
        f"search '{job.name}': interrupted, everything so far is kept; the same `elsa-tune submit` "
        f"with --name {job.name} goes on"
    )
