"""What the documentation takes from the code is what the code says now.

Run as a program it writes them anew: `.venv/bin/python tests/repo/test_reference.py`.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import typing
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import pytest
import typer.main
from pydantic import BaseModel

from elsa_tune.cli.app import app
from elsa_tune.specs.space import Space
from elsa_tune.tables.task_file import DataSetFile, TaskFile
from elsa_tune.tracking.paths import StorePaths

ROOT = Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- computed: ([\w ]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def command_line() -> str:
    """Every command with its arguments and options, from the command line itself."""
    group = typer.main.get_command(app)
    return "\n".join(_commands(group, "elsa-tune"))


def _commands(command: Any, name: str) -> Iterator[str]:
    children = getattr(command, "commands", {})
    if command.help and name != "elsa-tune":
        yield f"## {name}\n\n{_plain(command.help)}\n"
    if command.help and command.help.startswith("Another name of "):
        return
    rows = [_row(one) for one in command.params if one.name != "help"]
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
    default = "" if parameter.required else _default(parameter.default)
    return f"| `{shown}` | {_plain(parameter.help or '')}{default} |".replace("<", "\\<")


def _value_of(parameter: Any) -> str:
    """Its choices, where only some words are taken; else what stands for it."""
    words = _words(parameter.type_descriptor.annotation)
    return "\\|".join(words) or (parameter.metavar or parameter.name).upper()


def _words(taken: Any) -> list[str]:
    if isinstance(taken, str):
        return [taken]
    if isinstance(taken, type) and issubclass(taken, StrEnum):
        return [one.value for one in taken]
    return [word for one in typing.get_args(taken) for word in _words(one)]


def _default(value: Any) -> str:
    shown = isinstance(value, str | int | float) and not isinstance(value, bool)
    return f" Default: `{value}`." if shown else ""


def _plain(text: str) -> str:
    return " ".join(text.split())


def fields(model: type[BaseModel]) -> str:
    """A settings model as a table: field, what it takes, default."""
    schema = model.model_json_schema()
    properties, definitions = schema["properties"], schema.get("$defs", {})
    defaults = {name: field.get("default") for name, field in properties.items()}
    if model is Space:  # a file has the fields of `training` beside the others
        del properties["training"]
        properties |= {**definitions["Recipe"]["properties"], **properties}
        defaults |= Space.model_validate({}).model_dump(mode="json")["training"] | {"epochs": None}
    rows = ["| field | takes | default |", "|---|---|---|"]
    for name, field in properties.items():
        needed = name in schema.get("required", ())
        default = "needed" if needed else _value(defaults[name])
        rows.append(f"| `{name}` | {_takes(field, definitions)} | {default} |")
    return "\n".join(rows) + "\n"


def _takes(field: dict[str, Any], definitions: dict[str, Any]) -> str:
    if "$ref" in field:
        field = {**definitions[field["$ref"].rsplit("/", 1)[1]], "default": None}
    if "anyOf" in field:
        several = [_takes(one, definitions) for one in field["anyOf"]]
        return ", ".join(one for one in dict.fromkeys(several) if one != "nothing")
    if "enum" in field or "const" in field:
        return ", ".join(f"`{one}`" for one in field.get("enum", [field.get("const")]))
    if field.get("title") == "RateList":
        return "a number, a list of numbers"
    if field.get("type") == "object":
        return "{" + ", ".join(field.get("properties", {})) + "}"
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


def demo() -> str:
    """The beginning of the answer of a recorded `make demo`."""
    printed = io.StringIO()
    recorded = ROOT / "bench" / "results" / "demo"
    name = json.loads((recorded / "search.json").read_text())["name"]
    with TemporaryDirectory() as place, contextlib.chdir(place), redirect_stdout(printed):
        shutil.copytree(recorded, StorePaths(Path.cwd()).storage / name)
        asked = ["operating-point", "--search", name]
        with mock.patch.dict("os.environ", {"COLUMNS": "200"}):
            app(asked, standalone_mode=False)
    lines = printed.getvalue().splitlines()
    last = max(number for number, line in enumerate(lines) if line.startswith("▶ "))
    return "```\n" + "\n".join(line.rstrip() for line in lines[1 : last + 1]) + "\n```\n"


def faults() -> str:
    """Faults at random moments, by kind, as bench/faults.py counted them."""
    measured = json.loads((ROOT / "bench" / "results" / "faults.json").read_text())
    names = {
        "driver": "the driver",
        "worker": "a trial's worker",
        "mailbox": "the process that holds predictions",
        "raylet": "Ray's raylet",
        "server": "the MLflow server",
        "paused": "Ray's raylet, stopped",
        "full": "the journal's room, to the end",
        "deleted": "the search's folder",
        "no_store": "driver and MLflow server, which is back after a `resume`",
    }
    rows = [
        "| killed or taken | injected | searches | complete after `resume` | lost | doubled "
        "| other quality | left RUNNING | predictions lost |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, found in measured["results"].items():
        count = found["counts"]
        cells = (
            *(found["injected"], count["searches"], count["whole"]),
            count["trials_lost"] + count["points_lost"],
            count["trials_doubled"] + count["points_doubled"],
            *(count["trials_of_another_quality"], count["left_running"], count["predictions_lost"]),
        )
        rows.append(f"| {names[kind]} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(rows) + "\n"


# Layers, examples, workers and metric of the studies in the table.
SHOWN = (12, 1000, 1, "accuracy")


def strategy() -> str:
    """What hunts and even searches cost and claim, as bench/strategy.py simulated them."""
    measured = json.loads((ROOT / "bench" / "results" / "strategy.json").read_text())
    by_family: dict[str, dict[str, dict[str, Any]]] = {}
    for one in measured["results"]:
        if (one["layers"], one["examples"], one["workers"], one["metric"]) == SHOWN:
            by_family.setdefault(one["family"], {})[one["plan"]] = one
    names = {
        "hunt": "hunt",
        "hunt, thorough": "thorough hunt",
        "even, 3 seeds": "three seeds",
        "even, 5 seeds": "five seeds",
    }
    rows = [f"| studies | {' | '.join(names.values())} |", "|---" * (1 + len(names)) + "|"]
    for family, plans in by_family.items():
        cells = []
        for one in map(plans.get, names):
            if one is None:
                cells.append("")
                continue
            near = "-" if one["near"] is None else f"{100 * one['near']:.0f}"
            cells.append(f"{one['cost']:.1f} / {near} / {100 * one['false']:.1f}")
        rows.append(f"| {family.replace('_', ' ')} | " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def boundary() -> str:
    """Hunts that end in a false claim, in percent, where one depth lies exactly at the target."""
    measured = json.loads((ROOT / "bench" / "results" / "strategy_boundary.json").read_text())
    false = {(r["metric"], r["examples"], r["family"]): r["false"] for r in measured["results"]}
    families = dict.fromkeys(family for _, _, family in false)
    shown = (one.replace("_", " ") for one in families)
    rows = [
        f"| metric | examples | {' | '.join(shown)} |",
        "|---|---" + "|---" * len(families) + "|",
    ]
    for metric, examples in sorted({key[:2] for key in false}):
        cells = (false.get((metric, examples, family)) for family in families)
        told = ("" if cell is None else f"{100 * cell:.1f}" for cell in cells)
        rows.append(f"| {metric} | {examples:,} | {' | '.join(told)} |")
    return "\n".join(rows) + "\n"


def bundle() -> str:
    """What T tasks cost alone and bundled, as bench/bundle.py measured it."""
    measured = json.loads((ROOT / "bench" / "results" / "bundle.json").read_text())
    found = measured["results"]["rows"]
    depths = sorted({row["frozen_layers"] for row in found})
    times, sizes = (
        " | ".join(f"{unit}: bundled, N = {n}" for n in depths) for unit in ("ms", "MB")
    )
    rows = [
        f"| texts at once | T | ms: transformers | ms: packed | {times} | MB: alone | {sizes} |",
        "|---|---|---|---|---" + 2 * len(depths) * "|---" + "|",
    ]
    for batch, tasks in sorted({(row["batch"], row["tasks"]) for row in found}):
        same = {r["frozen_layers"]: r for r in found if (r["batch"], r["tasks"]) == (batch, tasks)}
        first = same[depths[0]]
        cells = [
            *(f"{first[key]:.1f}" for key in ("transformers", "alone")),
            *(f"{same[n]['bundled']:.1f}" for n in depths),
            f"{first['megabytes_alone']:.0f}",
            *(f"{same[n]['megabytes_bundled']:.0f}" for n in depths),
        ]
        rows.append(f"| {batch} | {tasks} | " + " | ".join(cells) + " |")
    return "\n".join([*rows, "", f"{measured['note']}.", ""])


def certified() -> str:
    """What it takes until an answer is certified, as bench/peer.py measured it."""
    measured = json.loads((ROOT / "bench" / "results" / "certified_sst2.json").read_text())
    names = {
        "hunt": "elsa-tune, `--space hunt --until certified`",
        "even": "elsa-tune, five seeds at every depth",
        "peer": "the peer's grid",
    }
    rows = ["| | minutes | trials | epochs | answer | certified |", "|---|---|---|---|---|---|"]
    for name, told in names.items():
        found = measured["results"][name]
        answers = [found["operating_point"], found["certified"]]
        cells = (found["minutes"], found["trials"], found["epochs"])
        told_of = ("-" if layers is None else f"{layers} of 6" for layers in answers)
        rows.append(f"| {told} | " + " | ".join([*map(str, cells), *told_of]) + " |")
    return "\n".join(rows) + "\n"


def decisions() -> str:
    """The table of contents of the decisions, from their headings."""
    lines = []
    for line in (ROOT / "docs" / "decisions.md").read_text().splitlines():
        if line.startswith("## "):
            lines += ["", f"**{line.removeprefix('## ')}**", ""]
        elif line.startswith("### "):
            heading = line.removeprefix("### ")
            anchor = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            lines.append(f"- [{heading}](#{anchor})")
    return "\n".join([*lines[1:], ""])


COMPUTED: dict[str, tuple[str, Callable[[], str]]] = {
    "command line": ("docs/reference/command-line.md", command_line),
    "space fields": ("docs/reference/spaces.md", lambda: fields(Space)),
    "task file fields": ("docs/reference/task-files.md", lambda: fields(TaskFile)),
    "data set file fields": ("docs/reference/task-files.md", lambda: fields(DataSetFile)),
    "decisions": ("docs/decisions.md", decisions),
    "demo": ("README.md", demo),
    "faults": ("docs/reliability.md", faults),
    "strategy": ("docs/measured.md", strategy),
    "boundary": ("docs/measured.md", boundary),
    "certified": ("docs/measured.md", certified),
    "bundle": ("docs/measured.md", bundle),
}


def written(name: str) -> tuple[Path, str]:
    """The page, and its text with the named block made anew."""
    place, make = COMPUTED[name]
    text = (ROOT / place).read_text(encoding="utf-8")
    assert name in [found[1] for found in BLOCK.findall(text)], f"{place} has no block '{name}'"
    return ROOT / place, BLOCK.sub(
        lambda block: f"{block[1]}{make()}{block[4]}" if block[2] == name else block[0], text
    )


@pytest.mark.parametrize("name", COMPUTED)
def test_the_page_says_what_the_code_says(name: str) -> None:
    page, text = written(name)
    assert page.read_text(encoding="utf-8") == text, __doc__


if __name__ == "__main__":
    for one in COMPUTED:
        path, anew = written(one)
        path.write_text(anew, encoding="utf-8")
