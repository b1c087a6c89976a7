"""`elsa-tune searches` and `ui`: what is recorded, listed, deleted, or shown by MLflow's pages."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elsa_tune.cli.options import AskedUri, StoragePath, TrackingUri
from elsa_tune.cli.printing import FormatOption, local_time, show, with_options
from elsa_tune.errors import RunError, TrackingError, UnknownNameError, UsageError
from elsa_tune.searching.output import say
from elsa_tune.searching.signals import handling_signals
from elsa_tune.tracking.paths import SearchPaths, StorePaths, find_search
from elsa_tune.tracking.uris import without_credentials

if TYPE_CHECKING:
    from elsa_tune.tracking.mlflow_writer import MlflowStore
    from elsa_tune.tracking.state import SearchState

LISTED = ("name", "model", "task", "status", "trials_done", "trials_planned", "started", "answer")


def searches(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A search to look at. Default: all.")
    ] = None,
    delete: Annotated[
        str | None, typer.Option(metavar="NAME", help="Delete this search and its MLflow runs.")
    ] = None,
    storage_path: StoragePath = None,
    tracking_uri: AskedUri = None,
    format: FormatOption = "table",
) -> None:
    """List the recorded searches: state, answer, what to type."""
    from elsa_tune.sources import list_searches
    from elsa_tune.tracking.deletion import delete_search

    places = StorePaths(Path.cwd())
    storage = places.storage_at(storage_path)
    named = places.named_uri(tracking_uri)
    if delete is not None:
        if name not in (None, delete):
            raise UsageError(f"search '{name}' and --delete {delete} are two; name one")
        runs = delete_search(storage, delete, named or places.tracking_uri())
        say(f"deleted search '{delete}' and {runs} MLflow runs")
        return
    warnings: dict[str, None] = {}
    recorded = list_searches(storage, named, warnings.setdefault)
    names_no_place = named is None and storage_path is None
    if names_no_place and not recorded and places.database.exists():
        # The searches of other folders: MLflow takes seconds to ask.
        recorded = list_searches(storage, places.tracking_uri(), warnings.setdefault)
    for warning in warnings:
        say(with_options(f"elsa-tune: {warning}"))
    if not recorded and not warnings:
        if name is not None:
            find_search(storage, name)
        if format == "table":
            say(f"no search is recorded in {storage}; `elsa-tune search` starts one")
            return
    rows = _named([_as_json(folder, state) for folder, state in recorded], name)
    if format == "table":
        rows = [row | {"answer": _answer_text(row["answer"])} for row in rows]
    show(rows, format, LISTED)
    if format == "table":
        _say_next(rows)


def _named(rows: list[dict[str, Any]], name: str | None) -> list[dict[str, Any]]:
    """Return the rows of this name, all of them for None. Raises UnknownNameError."""
    if name is None:
        return rows
    of_name = [row for row in rows if row["name"] == name]
    if not of_name:
        raise UnknownNameError.among("search", name, {row["name"] for row in rows})
    return of_name


def _say_next(rows: Sequence[dict[str, Any]]) -> None:
    """Say what to type about the latest search that is complete, and about those that are not."""
    ended = [row for row in rows if row["next"] is not None]
    unfinished = [row for row in ended if row["next"].split()[1] == "resume"]
    for row in ended:
        if row not in unfinished:
            say(f"Next: {row['next']}")
            break
    if unfinished:
        others = f" ({len(unfinished)} are not complete)" if len(unfinished) > 1 else ""
        say(f"Next: {unfinished[0]['next']}{others}")


def _next(folder: Path | None, state: "SearchState") -> str | None:
    """Return the command for a search; None while it runs."""
    from elsa_tune.tracking.journal_records import SearchStatus

    if folder is None:
        return f"elsa-tune answer {state.search.name}"
    if state.status is SearchStatus.RUNNING:
        return None
    verb = "answer" if state.is_complete else "resume"
    return f"elsa-tune {verb} {SearchPaths(folder.parent, folder.name).arguments}"


def _as_json(folder: Path | None, state: "SearchState") -> dict[str, Any]:
    from elsa_tune.searching.planning.plan import trials_in_all
    from elsa_tune.tracking.names import ANSWER

    return {
        "name": state.search.name if folder is None else folder.name,
        "model": state.search.model,
        "task": state.search.task,
        "status": state.status.value,
        "trials_done": state.trials_done,
        "trials_planned": trials_in_all(folder, state),
        "started": local_time(state.started),
        "answer": state.decisions.get(ANSWER),
        "folder": None if folder is None else str(folder),
        "next": _next(folder, state),
    }


def _answer_text(answer: Any) -> str:
    """Write a recorded answer in a few words; several answers one after the other."""
    if isinstance(answer, list) and answer:
        return "; ".join(map(_answer_text, answer))
    if isinstance(answer, dict) and "operating_point" in answer:
        # Searches of earlier versions recorded no recommendation.
        point = answer.get("recommendation", answer["operating_point"])
        advice = point if isinstance(point, dict) else {}
        if advice.get("action") == "linear_model":
            return "fine-tune nothing: a linear model is enough"
        if advice.get("fine_tuned_layers") is not None:
            return f"{advice['fine_tuned_layers']} of {answer.get('layers', '?')} layers fine-tuned"
        return f"none: {str(answer.get('reason')).replace('_', ' ')}"
    return answer if isinstance(answer, str) and answer else "-"


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    tracking_uri: TrackingUri = None,
) -> None:
    """Open MLflow's pages for the recorded searches."""
    from elsa_tune.tracking.mlflow_writer import MlflowStore

    uri = StorePaths(Path.cwd()).tracking_uri(tracking_uri)
    store = MlflowStore(uri)
    if uri.startswith("http"):
        say(f"the record is on a server; open {without_credentials(uri)}")
        with contextlib.suppress(TrackingError):  # its address is all that was asked for
            store.check()
            _say_page(store, without_credentials(uri))
        return
    _check_port(host, port)
    store.check()
    store.initialise(say)
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", host, "--port", str(port)]
    # Not an argument: every user of the machine sees those.
    os.environ["MLFLOW_BACKEND_STORE_URI"] = uri
    # Jobs are for MLflow's evaluation of language models: thirty processes that nothing here needs.
    os.environ.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    if store.artifact_root is not None:
        command += ["--default-artifact-root", store.artifact_root.as_uri()]
    say(f"MLflow is starting on http://{host}:{port} (Ctrl-C ends it)")
    _say_page(store, f"http://{host}:{port}")
    if status := _serve(command):
        raise RunError(f"the MLflow server ended with status {status}; see its output above")


def _say_page(store: "MlflowStore", address: str) -> None:
    """The page of the latest search, which takes many clicks from MLflow's first one."""
    from elsa_tune.tracking.mlflow_reader import latest_page

    if found := latest_page(store.client(), address):
        say("the runs of search '{}': {}".format(*found))


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise UsageError(
            f"cannot listen on {host}:{port}: {why}; choose another port with --port"
        ) from error


def _serve(command: list[str]) -> int:
    """Run the server until it or the user ends it; its exit status, 0 when the user did."""
    signals = 0
    # A group of its own: the server's workers end with it, and Ctrl-C reaches them once, through
    # us. What it prints goes to stderr: nothing on stdout was asked for.
    server = subprocess.Popen(command, stdout=sys.stderr.fileno(), start_new_session=True)

    def pass_on(_number: int, _frame: object) -> None:
        nonlocal signals
        signals += 1
        if server.poll() is None:
            # To the second Ctrl-C nobody wants a graceful end.
            os.killpg(server.pid, signal.SIGTERM if signals == 1 else signal.SIGKILL)

    with handling_signals(pass_on):
        status = server.wait()
    return 0 if signals else status
