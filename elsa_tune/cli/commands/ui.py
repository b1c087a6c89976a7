"""`elsa-tune ui`: a store's pages of the recorded searches, as MLflow has them."""

from pathlib import Path
from typing import Annotated

import typer

from elsa_tune.cli.options import TrackingUri
from elsa_tune.errors import UsageError
from elsa_tune.searching.output import say
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.uris import shown_uri


def ui(
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 5000,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    tracking_uri: TrackingUri = None,
) -> None:
    """Open MLflow's pages for the recorded searches."""
    from elsa_tune.tracking.stores import store_at

    uri = StorePaths(Path.cwd()).tracking_uri(tracking_uri)
    store = store_at(uri)
    if not store.has_pages:
        raise UsageError(
            f"{shown_uri(uri)} has no pages; `elsa-tune searches` lists what is recorded there"
        )
    store.show(host, port, say)
