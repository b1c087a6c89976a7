"""How commands that list or describe something print it: for a person, or as JSON."""

from __future__ import annotations

import enum
import json
from collections.abc import Callable
from typing import Annotated, Any

import typer


class Format(enum.StrEnum):
    """How the answer is printed on stdout."""

    TABLE = "table"
    JSON = "json"


FormatOption = Annotated[Format, typer.Option("--format", help="How to print it.")]


def show(values: Any, format: Format, in_words: Callable[[Any], str]) -> None:
    """Print JSON-ready values as `format` asks."""
    if format is Format.JSON:
        typer.echo(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))
    elif text := in_words(values):
        typer.echo(text)
