"""How commands print what they list or describe, and name settings as options."""

import contextlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from elsa_tune.errors import StorageError
from elsa_tune.searching.output import say
from elsa_tune.visible import visible, visible_cell
from elsa_tune.words import aligned, points

FormatOption = Annotated[Literal["table", "json"], typer.Option("--format", help="Output format.")]


def show(values: Any, format: str = "table", columns: Sequence[str] = ()) -> None:
    """Print JSON-ready values, or write them as JSON.

    Rows become a table of these columns, by default of all; fields stand line by line.
    """
    # `visible` here: click would drop some of what is not seen, without a word.
    if format == "json":
        typer.echo(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))
    elif isinstance(values, Mapping):
        text = "\n".join(_lines(values))
        typer.echo(visible(text))
    elif values:
        table = _table(values, columns or list(values[0]))
        typer.echo(visible(table))


@contextlib.contextmanager
def printing_recorded(again: str) -> Iterator[None]:
    """Print inside what a search has recorded, and go on where stdout cannot be written.

    The exit status stays the search's own. again: what prints it again. Print by `stdout_console`
    alone: what typer itself cannot write is raised again at the end.
    """
    try:
        yield
    except StorageError as error:
        say(f"{error}; what was to be printed there is recorded, and {again} prints it again")


def _lines(fields: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for name, value in fields.items():
        # What is indented may be the name of a user's class, and is written as it is.
        label = indent + visible_cell(name) if indent else name.replace("_", " ")
        if isinstance(value, Mapping):
            yield label
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            table = _table(value, list(value[0]))
            yield "\n  ".join([label, *table.splitlines()])
        elif name == "notes" and value:
            # Sentences: each on its own line.
            for note in value:
                yield f"{label:<20} {note}"
                label = ""
        else:
            yield f"{label:<20} {_cell(name, value)}"


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    """Return rows as a table; the first row says which columns hold numbers."""
    header = [name.replace("_", " ") for name in columns]
    lines = [header]
    for row in rows:
        lines.append([_cell(name, row.get(name)) for name in columns])
    number_columns: list[int] = []
    for column, name in enumerate(columns):
        if _is_number(rows[0][name]):
            number_columns.append(column)
    return aligned(lines, right=number_columns)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(name: str, value: Any) -> str:
    """Write a value for people: chances and shares x 100, and `-` for what is missing."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if name == "chance" or name.endswith("share"):
            return points(value)
        return f"{value:g}"
    if isinstance(value, list):
        return ", ".join(_cell(name, item) for item in value) or "-"
    if isinstance(value, int):
        return f"{value:,}"
    return visible_cell(str(value or "-"))


def local_time(seconds: float) -> str | None:
    """Write seconds since the epoch in ISO form; None for 0, where nothing was recorded."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds).astimezone().isoformat("T", "seconds")


# What messages call `storage_path` is typed as --storage-path. A field of a search space, such as
# `learning_rate`, has no option: it is not among them.
SETTINGS = (
    "adapter",
    "address",
    "artifacts",
    "checkpoint",
    "cost",
    "cpus_per_trial",
    "data_dir",
    "format",
    "gpu_hours",
    "gpus_per_trial",
    "group",
    "hung_after",
    "input_format",
    "label",
    "layers",
    "map",
    "max_failures",
    "max_time",
    "max_workers",
    "model",
    "name",
    "no_upload",
    "onnx",
    "out",
    "overwrite",
    "port",
    "push",
    "scale",
    "search",
    "seeds",
    "set",
    "space",
    "storage_path",
    "task",
    "text",
    "tracking_uri",
    "train_size",
    "trials",
    "until",
    "way",
)
_QUOTED_SETTING = re.compile(f"`({'|'.join(SETTINGS)})`")


def with_options(message: str) -> str:
    """Return a message with its settings as they are typed."""
    return _QUOTED_SETTING.sub(lambda match: "--" + match[1].replace("_", "-"), message)
