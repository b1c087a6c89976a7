"""`elsa-tune spaces`: the search spaces that come with the tool."""

from __future__ import annotations

from typing import Annotated

import typer


def spaces(
    name: Annotated[
        str | None, typer.Argument(help="Print this space's YAML file, to copy and change.")
    ] = None,
) -> None:
    """List the shipped search spaces, or print one."""
    from elsa_tune.errors import UnknownNameError
    from elsa_tune.specs.space import search_space_folder

    files = {file.stem: file for file in sorted(search_space_folder().glob("*.yaml"))}
    if name is not None:
        if name not in files:
            raise UnknownNameError.among("search space", name, files)
        typer.echo(files[name].read_text(encoding="utf-8"), nl=False)
        return
    for stem, file in files.items():
        comment = []
        for line in file.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                break
            comment.append(line.lstrip("# "))
        typer.echo(f"{stem}\n    " + "\n    ".join(comment))
