"""The command `ui`: MLflow's user interface on the recorded searches.

It must not speak MLflow itself beyond starting its server.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from elsa_tune.cli.commands.searches import TrackingOption
from elsa_tune.errors import RunError


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    tracking_uri: TrackingOption = None,
) -> None:
    """Open MLflow's pages on the recorded searches."""
    from elsa_tune.cli.server import check_port, serve
    from elsa_tune.tracking.mlflow_writer import MlflowStore
    from elsa_tune.tracking.paths import StorePaths, shown_uri

    places = StorePaths(Path.cwd())
    uri = places.tracking_uri(tracking_uri)
    if uri.startswith("http"):
        print(f"the record is on a server; open {shown_uri(uri)}", file=sys.stderr)
        return
    check_port(host, port)
    artifacts = places.artifact_root_for(uri)
    store = MlflowStore(uri, artifacts)
    store.check()
    store.initialise()
    command = [sys.executable, "-m", "mlflow", "server", "--workers", "1"]
    command += ["--host", host, "--port", str(port)]
    # Not an argument: every user of the machine sees those.
    os.environ["MLFLOW_BACKEND_STORE_URI"] = uri
    if artifacts is not None:
        command += ["--default-artifact-root", artifacts.as_uri()]
    status = serve(command, f"http://{host}:{port}")
    if status != 0:
        raise RunError(f"the MLflow server ended with status {status}; its last words stand above")
