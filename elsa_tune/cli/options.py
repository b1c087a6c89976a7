"""Options that several commands share, so that they read and behave alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsa_tune.errors import UsageError

TrackingUri = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="MLflow store: sqlite:///FILE.db or a server's address. "
        "Default: MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db.",
    ),
]
# Of commands that ask what is recorded.
AskedUri = Annotated[
    str | None,
    typer.Option(
        "--tracking-uri",
        metavar="URI",
        help="An MLflow store to ask instead of the journals: sqlite:///FILE.db or a server's "
        "address. Default: MLFLOW_TRACKING_URI.",
    ),
]
StoragePath = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="Where searches keep their journals. Default: ./mlruns/searches."
    ),
]
DataDir = Annotated[
    str | None,
    typer.Option(metavar="DIR", help="A local GLUE folder in the official layout (RTE/train.tsv)."),
]
Metric = Annotated[str | None, typer.Option(help="Use this metric instead of the task's.")]
Address = Annotated[
    str | None,
    typer.Option(metavar="ADDRESS", help="A running Ray cluster: `auto` or HOST:PORT."),
]
GpusPerTrial = Annotated[
    float | None,
    typer.Option(metavar="N", help="GPUs per trial; a fraction shares one. Default: 1 if any."),
]
CpusPerTrial = Annotated[
    float | None, typer.Option(metavar="N", help="CPUs (and threads) per trial.")
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan and its estimated time; start nothing.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a field of the space or recipe, e.g. epochs=6."
    ),
]


def out_folder(text: str) -> Path:
    """The folder of an `--out` option; '' would silently be the working directory."""
    if not text.strip():
        raise UsageError("--out is empty; name a folder, '.' for the one you are in")
    return Path(text)
