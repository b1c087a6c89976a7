"""How commands that list or describe something print it: for a person, or as JSON."""

from __future__ import annotations

import enum
import json
import shlex
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

import typer

from elsa_tune.tracking.paths import shown_uri


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


def local_time(seconds: float) -> str | None:
    """In ISO form, of seconds since the epoch; None for 0, where nothing was recorded."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds).astimezone().isoformat("T", "seconds")


def given_command() -> str:
    """The command line of this process, quoted for a shell, without the passwords in URIs."""
    return shlex.join(["elsa-tune", *map(_shown, sys.argv[1:])])


def _shown(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if equals and name.startswith("--"):
        return f"{name}={shown_uri(value)}"
    return shown_uri(argument)
