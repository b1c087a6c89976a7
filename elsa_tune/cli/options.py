"""Options that several commands share, so that they read and behave alike."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

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
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan and its estimated time; start nothing.")
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a field of the space or recipe, e.g. epochs=6."
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """Where data, records and Ray are, and what a trial takes."""

    data_dir: DataDir = None
    tracking_uri: TrackingUri = None
    storage_path: StoragePath = None
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A running Ray cluster: `auto` or HOST:PORT."),
    ] = None
    gpus_per_trial: Annotated[
        float | None,
        typer.Option(metavar="N", help="GPUs per trial; a fraction shares one. Default: 1 if any."),
    ] = None
    cpus_per_trial: Annotated[
        float | None, typer.Option(metavar="N", help="CPUs (and threads) per trial.")
    ] = None


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: a dataclass among its parameters stands for its fields, each
    an option.
    """
    own = _options(command)
    groups: dict[str, Any] = {
        one.name: one.annotation for one in own if is_dataclass(one.annotation)
    }
    options = [
        option
        for one in own
        for option in (_options(one.annotation) if one.name in groups else [one])
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            there = [one.name for one in _options(group) if one.name in given]
            given[name] = group(**{each: given.pop(each) for each in there})
        command(**given)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _options(of: Any) -> list[inspect.Parameter]:
    """Its parameters, to be given by name, with their types as they are."""
    hints = get_type_hints(of, include_extras=True)
    return [
        one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name])
        for one in inspect.signature(of).parameters.values()
    ]


def out_folder(text: str) -> Path:
    """The folder of an `--out` option; '' would silently be the working directory."""
    if not text.strip():
        raise UsageError("--out is empty; name a folder, '.' for the one you are in")
    return Path(text)
