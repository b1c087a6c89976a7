"""`elsa-tune bundle`: exported models that answer together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from elsa_tune.cli.options import out_folder
from elsa_tune.searching.saying import say


def bundle(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR...",
            help="Exported models, each a task that is called as its folder; or a bundle.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="DIR",
            parser=out_folder,
            help="The folder to create. Default: the bundle given first, changed in place.",
        ),
    ] = None,
    add: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="A model to add to a bundle.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A task to take out of a bundle.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the folder of an earlier bundle.")
    ] = False,
) -> None:
    """Put exported models of one base together, on shared layers.

    The folder is what elsa_tune.load_bundle and MLflow load. Prints its path.
    """
    say(f"bundle: reading {len(models) + len(add or [])} folders")
    from elsa_tune.exporting.bundle import bundle as write

    typer.echo(write([*models, *(add or [])], out, remove=remove or [], overwrite=overwrite))
