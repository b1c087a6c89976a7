"""How commands print what they list or describe, and name settings as options."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import typer

from elsa_tune.visible import visible, visible_cell
from elsa_tune.words import aligned, points

FormatOption = Annotated[Literal["table", "json"], typer.Option("--format", help="Output format.")]


def show(values: Any, format: str = "table", columns: Sequence[str] = ()) -> None:
    """Print JSON-ready values: rows as a table of these columns, without any of all; fields line by
    line; or either as JSON.
    """
    # Made visible here: click would drop some of what is not seen, without a word.
    if format == "json":
        typer.echo(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))
    elif isinstance(values, Mapping):
        typer.echo(visible("\n".join(_lines(values))))
    elif values:
        typer.echo(visible(_table(values, columns or list(values[0]))))


def _lines(fields: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    for name, value in fields.items():
        # Below a name stand those of a user's classes.
        label = indent + visible_cell(name) if indent else name.replace("_", " ")
        if isinstance(value, Mapping):
            yield label
            yield from _lines(value, indent + "  ")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            table = _table(value, list(value[0])).splitlines()
            yield "\n  ".join([label, *table])
        elif name == "notes" and value:
            # Sentences: each on its own line.
            yield from (
                f"{label if not place else '':<20} {one}" for place, one in enumerate(value)
            )
        else:
            yield f"{label:<20} {_cell(name, value)}"


def _table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> str:
    header = [name.replace("_", " ") for name in columns]
    cells = [[_cell(name, row.get(name)) for name in columns] for row in rows]
    right = [place for place, name in enumerate(columns) if type(rows[0][name]) in (int, float)]
    return aligned([header, *cells], right=right)


def _cell(name: str, value: Any) -> str:
    """Chances and shares x 100, as in every table; `-` for what is not there."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return points(value) if name == "chance" or name.endswith("share") else f"{value:g}"
    if isinstance(value, list):
        return ", ".join(_cell(name, one) for one in value) or "-"
    return f"{value:,}" if isinstance(value, int) else visible_cell(str(value or "-"))


def local_time(seconds: float) -> str | None:
    """In ISO form, of seconds since the epoch; None for 0, where nothing was recorded."""
    if not seconds:
        return None
    return datetime.fromtimestamp(seconds).astimezone().isoformat("T", "seconds")


# What the code calls `storage_path` is typed as --storage-path.
_SETTINGS = re.compile(
    r"`(address|cpus_per_trial|data_dir|format|gpu_hours|gpus_per_trial|input_format|label|layers|"
    r"map|max_time|model|name|onnx|out|overwrite|push|scale|search|seeds|set|space|storage_path|task|"
    r"text|tracking_uri|train_size|trials|until)`"
)


def with_options(message: str) -> str:
    """An error's message with its settings as they are typed."""
    return _SETTINGS.sub(lambda found: "--" + found[1].replace("_", "-"), message)
