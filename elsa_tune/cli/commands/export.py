"""`elsa-tune export`: a search's answer as a model that transformers loads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from elsa_tune.cli.options import StoragePath, out_folder
from elsa_tune.searching.saying import say


def export(
    search: Annotated[str, typer.Option("--search", metavar="NAME", help="The search's name.")],
    out: Annotated[
        Path,
        typer.Option("--out", metavar="DIR", parser=out_folder, help="The folder to create."),
    ],
    layers: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="K",
            help="Fine-tuned layers. Default: the certified number, else the operating point's.",
        ),
    ] = None,
    check: Annotated[
        Path | None,
        typer.Option("--check", metavar="FILE", help="Score the model on your own labelled rows."),
    ] = None,
    train_size: Annotated[
        Literal["full"] | None,
        typer.Option(metavar="full", help="Train on all rows where the search used a subset."),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Also write ONNX files, if optimum is installed.")
    ] = False,
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="OWNER/NAME", help="Upload the folder to the hub."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the folder of an earlier export.")
    ] = False,
    storage_path: StoragePath = None,
) -> None:
    """Train a search's answer once more, and save the model.

    The folder is what transformers' from_pretrained and pipeline load. Prints its path.
    """
    from elsa_tune.tracking.paths import StorePaths, find_search

    paths = find_search(StorePaths(Path.cwd()).storage_at(storage_path), search)
    say(f"export: reading search '{search}'")
    from elsa_tune.exporting import model

    request = model.ExportRequest(
        paths=paths,
        out=out,
        layers=layers,
        check=check,
        full=train_size is not None,
        onnx=onnx,
        push=push,
        overwrite=overwrite,
    )
    model.export(request, say)
    typer.echo(out)
