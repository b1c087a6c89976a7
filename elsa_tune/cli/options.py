"""Options that several commands share, so that they read and behave alike."""

from __future__ import annotations

from typing import Annotated

import typer

TrackingUri = Annotated[
    str | None,
    typer.Option(
        help="MLflow store: sqlite:///FILE.db or a server's address. "
        "Default: MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db."
    ),
]
StoragePath = Annotated[
    str | None, typer.Option(help="Where searches keep their journals. Default: ./mlruns/searches.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a field of the space, e.g. epochs=6."
    ),
]
