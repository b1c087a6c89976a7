"""MLflow's pages of a store: its own server, run until the user ends it, or one that runs already.

What these pages show is written in `pages.py`.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from elsa_tune.errors import RunError, TrackingError, UsageError
from elsa_tune.signals import handling_signals
from elsa_tune.tracking.mlflow.connection import MlflowConnection
from elsa_tune.tracking.mlflow.reader import latest_page
from elsa_tune.tracking.paths import artifact_root_for
from elsa_tune.tracking.uris import without_credentials

Say = Callable[[str], None]


def show(store: MlflowConnection, host: str, port: int, say: Say) -> None:
    """Say where the pages are; of a file or a database, serve them until the user ends that.

    Raises UsageError where nothing can listen there, RunError where the server ends by itself.
    """
    uri = store.uri
    if uri.startswith("http"):
        say(f"the record is on a server; open {without_credentials(uri)}")
        with contextlib.suppress(TrackingError):  # its address is all that was asked for
            store.check()
            _say_page(store, without_credentials(uri), say)
        return
    _check_port(host, port)
    store.check()
    store.initialise(say)
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", host, "--port", str(port)]
    artifact_root = artifact_root_for(uri, Path.cwd())
    if artifact_root is not None:
        command += ["--default-artifact-root", artifact_root.as_uri()]
    say(f"MLflow is starting on http://{host}:{port} (Ctrl-C ends it)")
    _say_page(store, f"http://{host}:{port}", say)
    if status := _serve(command, uri):
        raise RunError(f"the MLflow server ended with status {status}; see its output above")


def _say_page(store: MlflowConnection, address: str, say: Say) -> None:
    """Say the page of the latest search, which takes many clicks from MLflow's first one."""
    latest = latest_page(store.client(), address)
    if latest is not None:
        name, page = latest
        say(f"the runs of search '{name}': {page}")


def _check_port(host: str, port: int) -> None:
    """Raise UsageError where nothing can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        why = str(error.strerror).partition(" (")[0]
        raise UsageError(
            f"cannot listen on {host}:{port}: {why}; choose another port with `port`"
        ) from error


def _serve(command: list[str], uri: str) -> int:
    """Run the server until it or the user ends it; return its exit status, 0 when the user did."""
    environment = dict(os.environ)
    # Not an argument: every user of the machine sees those.
    environment["MLFLOW_BACKEND_STORE_URI"] = uri
    # Jobs are for MLflow's evaluation of language models: thirty processes that nothing here needs.
    environment.setdefault("MLFLOW_SERVER_ENABLE_JOB_EXECUTION", "false")
    signals = 0
    # A group of its own: the server's workers end with it, and Ctrl-C reaches them once, through
    # us. What it prints goes to stderr: nothing on stdout was asked for.
    server = subprocess.Popen(
        command, stdout=sys.stderr.fileno(), env=environment, start_new_session=True
    )

    def pass_on(_number: int, _frame: object) -> None:
        nonlocal signals
        signals += 1
        if server.poll() is None:
            # To the second Ctrl-C nobody wants a graceful end.
            os.killpg(server.pid, signal.SIGTERM if signals == 1 else signal.SIGKILL)

    with handling_signals(pass_on):
        status = server.wait()
    return 0 if signals else status
