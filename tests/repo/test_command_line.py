"""The command line's surface is a contract: scripts depend on its commands and options.

docs/reference/command-line.md is the whole of it, held by tests/repo/test_reference.py. Name a
deliberate change in the CHANGELOG.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from elsa_tune import __version__
from elsa_tune.cli.app import app
from elsa_tune.cli.commands.jobs import submit
from elsa_tune.cli.options import grouped
from elsa_tune.searching.inputs import SearchOptions

# What was promised from the first release on; the surface may grow beyond it, never lose any of it.
PROMISED = {
    "search": "--model --task --space --name --trials --seeds --train-size --max-time --data-dir "
    "--tracking-uri --storage-path --address --gpus-per-trial --cpus-per-trial --set --dry-run "
    "--metric",
    "resume": "NAME --seeds",
    "searches": "NAME --delete",
    "answer": "NAME --model --task --target --search --from --format --exclude-task --scale --map",
    "operating-point": "--model --task --target --search --from --format --exclude-task --scale "
    "--map",
    "curve": "NAME --model --task --search --from --format",
    "report": "NAME --model --task --search --from --out",
    "reproduce": "--models --tasks --scale --dry-run",
    "trial": "--model --task --learning-rate --frozen-layers --seed",
    "models": "",
    "tasks": "",
    "spaces": "",
    "ui": "",
    "export": "NAME --search --out",
    "demo": "",
}


def surface() -> dict[str, list[str]]:
    """Each command with the names of its arguments (in capitals) and options, sorted."""
    found = commands().items()
    return {name.removeprefix("elsa-tune "): _parameters(command) for name, command in found}


def commands() -> dict[str, Any]:
    """Every command by its whole name, `elsa-tune cache ls`: a group before what is in it."""
    found: dict[str, Any] = {}
    left = [("elsa-tune", typer.main.get_command(app))]
    while left:
        name, command = left.pop(0)
        found[name] = command
        inner = getattr(command, "commands", {})
        left[:0] = [(f"{name} {one}", inner[one]) for one in sorted(inner)]
    return found


def _parameters(command: object) -> list[str]:
    names = []
    for parameter in command.params:  # type: ignore[attr-defined]
        if parameter.param_type_name == "argument":
            names.append((parameter.metavar or parameter.name).strip("[].").upper())
        else:
            names += [*parameter.opts, *parameter.secondary_opts]
    return sorted(names)


@pytest.mark.parametrize("command", sorted(PROMISED))
def test_what_was_promised_is_there(command: str) -> None:
    assert set(PROMISED[command].split()) <= set(surface()[command])


def test_every_command_and_option_is_explained() -> None:
    """`--help` says what each command and each option is for."""
    for name, command in commands().items():
        assert command.help, f"{name} has no help"
        for parameter in command.params:
            assert getattr(parameter, "help", None), f"{name} {parameter.name} has no help"


GROUPS = [name for name, command in commands().items() if hasattr(command, "commands")]


@pytest.mark.parametrize("name", GROUPS)
def test_no_summary_is_cut_in_eighty_columns(name: str) -> None:
    """The list of commands shows each one's first sentence whole."""
    asked = [*name.split()[1:], "--help"]
    shown = CliRunner().invoke(app, asked, terminal_width=80).stdout
    lines = shown.split("  -h, --help")[1].splitlines()[1:]
    listed = [line for line in lines if line.startswith("  ")]
    assert {line.split()[0] for line in listed} == commands()[name].commands.keys()
    assert not [line for line in lines if line.endswith(("...", "…")) or len(line) > 80]


def test_commands_and_many_options_stand_under_headings() -> None:
    """Whoever looks for one reads a part of the list; a short list has no parts."""
    assert {"Search:", "Ask:", "Take the model:"} <= headings()
    assert {"What is searched:", "How much:", "Machines:", "Help:"} <= headings("search")
    assert {"Arguments:", "Which results:", "The answer:"} <= headings("answer")
    assert headings("ui") == {"Options:"}
    for name, command in commands().items():
        shown = CliRunner().invoke(app, [*name.split()[1:], "--help"]).stdout
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert parameter.opts[-1] in shown, (name, parameter.name)


def headings(*command: str) -> set[str]:
    shown = CliRunner().invoke(app, [*command, "--help"]).stdout
    return {line for line in shown.splitlines() if line.endswith(":") and line[0] != " "}


def test_a_field_of_a_search_that_no_option_describes_is_not_lost_silently() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Wider(SearchOptions):
        undescribed: str | None = None

    def command(options: Wider) -> None: ...

    command.__annotations__["options"] = Wider
    with pytest.raises(KeyError, match="undescribed"):
        grouped(command)


def test_submit_names_the_options_of_search_that_it_does_not_take() -> None:
    found = surface()
    lacking = set(found["search"]) - set(found["submit"])
    assert lacking == {"--dry-run", "--probe"}
    assert submit.__doc__ is not None and "of `search` but --dry-run and --probe" in submit.__doc__


def test_answer_and_operating_point_are_one_command() -> None:
    found = surface()
    assert found["answer"] == found["operating-point"]
    assert {"NAME", "--search"} <= set(found["answer"])


WAYS_IN = pytest.mark.parametrize(
    "program",
    [["-m", "elsa_tune"], ["-c", "from elsa_tune.__main__ import run; run()"]],
    ids=["python -m elsa_tune", "console script"],
)


@WAYS_IN
def test_both_ways_in_answer_alike(program: list[str], root: Path) -> None:
    done = subprocess.run(
        [sys.executable, *program, "--version"],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, f"elsa-tune {__version__}\n"), done.stderr
    scripts = tomllib.loads((root / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"elsa-tune": "elsa_tune.__main__:run"}


@WAYS_IN
def test_ctrl_c_while_modules_load_leaves_no_trace(
    program: list[str], root: Path, tmp_path: Path
) -> None:
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt\n")
    done = subprocess.run(
        [sys.executable, *program, "--version"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"},
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "elsa-tune: interrupted\n"
