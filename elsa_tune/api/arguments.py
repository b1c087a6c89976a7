"""What a program gives to a function, as the command line has it."""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

from elsa_tune.errors import UsageError
from elsa_tune.tracking.places import StorePaths

# `90s`, `30m`, `2h`; a number is seconds.
Time: TypeAlias = str | float | timedelta


def given_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that were given; None stands for one that was not."""
    return {name: value for name, value in values.items() if value is not None}


def text_of(path: str | Path | None) -> str | None:
    """Return a path as the command line has it; None stays None."""
    if path is None:
        return None
    return str(path)


def storage_at(place: str | Path | None) -> Path:
    """Return the folder that holds the searches: this one, or the working directory's own."""
    paths = StorePaths(Path.cwd())
    return paths.storage_at(text_of(place))


def json_of(field: str, value: Any) -> str:
    """Return a field of the space as it is written.

    Numpy's numbers and lists are what they look like.
    """
    try:
        return json.dumps(value, default=lambda array: array.tolist())
    except (AttributeError, TypeError, ValueError, RecursionError):
        kind = type(value).__name__
        raise UsageError(f"field '{field}' is a {kind}; give a number, a text or a list") from None


def time_text(time: Time) -> str:
    if isinstance(time, str):
        return time
    if isinstance(time, timedelta):
        time = time.total_seconds()
    return f"{time:.3f}s"
