"""Tables of the reference pages, made from the code: the command line, and the fields of files."""

from __future__ import annotations

import json
import re
import typing
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any

import typer.main
from pydantic import BaseModel

from elsa_tune.cli.app import app
from elsa_tune.specs.space import Space

DECISIONS = Path(__file__).resolve().parents[1] / "docs" / "decisions.md"


def command_line() -> str:
    """Return every command with its arguments and options, from the command line itself."""
    group = typer.main.get_command(app)
    return "\n".join(_commands(group, "elsa-tune"))


def _commands(command: Any, name: str) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if command.help and name != "elsa-tune":
        yield f"## {name}\n\n{_plain(command.help)}\n"
    if command.help and command.help.startswith("Another name of "):
        return
    rows = [_row(parameter) for parameter in command.params if parameter.name != "help"]
    if rows and not children:
        yield "\n".join(["| | |", "|---|---|", *rows, ""])
    for child, inner in children.items():
        yield from _commands(inner, f"{name} {child}")


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        shown = _value_of(parameter).strip("[]")
    else:
        shown = ", ".join([*parameter.opts, *parameter.secondary_opts])
        if not parameter.is_flag:
            shown += f" {_value_of(parameter)}"
    default = _default(parameter.default)
    if parameter.required:
        default = "" if parameter.param_type_name == "argument" else " Required."
    return f"| `{shown}` | {_plain(parameter.help or '')}{default} |".replace("<", "\\<")


def _value_of(parameter: Any) -> str:
    """Return the words that it takes, if it takes only some, or else what stands for its value."""
    words = _words(parameter.type_descriptor.annotation)
    return "\\|".join(words) or (parameter.metavar or parameter.name).upper()


def _words(annotation: Any) -> list[str]:
    if isinstance(annotation, str):
        return [annotation]
    if isinstance(annotation, type) and issubclass(annotation, StrEnum):
        return [member.value for member in annotation]
    words = []
    for inner in typing.get_args(annotation):
        words += _words(inner)
    return words


def _default(value: Any) -> str:
    shown = isinstance(value, str | int | float) and not isinstance(value, bool)
    return f" Default: `{value}`." if shown else ""


def _plain(text: str) -> str:
    return " ".join(text.split())


def fields(model: type[BaseModel]) -> str:
    """Return a settings model as a table: field, what it takes, default."""
    schema = model.model_json_schema()
    properties, definitions = schema["properties"], schema.get("$defs", {})
    defaults = {name: field.get("default") for name, field in properties.items()}
    if model is Space:  # a file has the fields of `training` beside the others
        del properties["training"]
        properties |= {**definitions["Recipe"]["properties"], **properties}
        defaults |= Space.model_validate({}).model_dump(mode="json")["training"] | {"epochs": None}
    rows = ["| field | takes | default |", "|---|---|---|"]
    for name in _in_reading_order(model, list(properties)):
        field = properties[name]
        needed = name in schema.get("required", ())
        default = "needed" if needed else _value(defaults[name])
        rows.append(f"| `{name}` | {_takes(field, definitions)} | {default} |")
    return "\n".join(rows) + "\n"


def _in_reading_order(model: type[BaseModel], names: list[str]) -> list[str]:
    """Order a model's fields as a reader meets them: the name, its own, what it inherits."""
    own = model.__annotations__
    return sorted(names, key=lambda name: (name != "name", name not in own and model is not Space))


def _takes(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in field:
        field = {**definitions[field["$ref"].rsplit("/", 1)[1]], "default": None}
    if "anyOf" in field:
        kinds = dict.fromkeys(_takes(kind, definitions) for kind in field["anyOf"])
        return ", ".join(kind for kind in kinds if kind != "nothing")
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    if field.get("title") == "RateList":
        return "a number, a list of numbers"
    if field.get("type") == "object":
        if "properties" not in field:
            return "a table of `field: value`"
        return "{" + ", ".join(field["properties"]) + "}"
    if field.get("type") == "array":
        return f"a list of {_takes(field['items'], definitions)}"
    name = {
        "integer": "a whole number",
        "number": "a number",
        "string": "text",
        "boolean": "true, false",
        "null": "nothing",
    }[field["type"]]
    signs = {
        "minimum": "from {}",
        "exclusiveMinimum": "above {}",
        "maximum": "to {}",
        "exclusiveMaximum": "below {}",
    }
    bounds = [text.format(_number(field[key])) for key, text in signs.items() if key in field]
    return " ".join([name, *bounds])


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:g}"


def _value(value: Any) -> str:
    return "" if value is None else f"`{json.dumps(value)}`"


def decisions() -> str:
    """Return the table of contents of the decisions, from their headings."""
    lines: list[str] = []
    for line in DECISIONS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            lines += ["", f"**{line.removeprefix('## ')}**", ""]
        elif line.startswith("### "):
            heading = line.removeprefix("### ")
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            lines.append(f"- [{heading}](#{anchor})")
    return "\n".join([*lines[1:], ""])
