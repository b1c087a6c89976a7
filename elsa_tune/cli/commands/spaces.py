"""`elsa-tune spaces`: the search spaces that come with the tool."""

from __future__ import annotations

import itertools
from typing import Annotated

import typer


def spaces(
    name: Annotated[
        str | None, typer.Argument(help="Print this space's YAML file, to copy and change.")
    ] = None,
) -> None:
    """List the shipped search spaces, or print one."""
    from elsa_tune.errors import UnknownNameError
    from elsa_tune.specs.space import shipped_spaces

    files = shipped_spaces()
    if name is not None:
        if name not in files:
            raise UnknownNameError.among("search space", name, files)
        typer.echo(files[name].read_text(encoding="utf-8"), nl=False)
        return
    for stem, file in files.items():
        lines = file.read_text(encoding="utf-8").splitlines()
        comment = itertools.takewhile(lambda line: line.startswith("#"), lines)
        typer.echo("\n    ".join([stem, *(line.lstrip("# ") for line in comment)]))
