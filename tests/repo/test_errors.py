"""Every error is explained, documented and raised as one of ours."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from elsa_tune import errors
from elsa_tune.cli import printing
from tests.repo.test_command_line import surface


def error_classes() -> dict[str, type[errors.ElsaTuneError]]:
    """Every error class that the module defines, by name."""
    return {
        name: value
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, errors.ElsaTuneError)
    }


def test_every_error_is_explained() -> None:
    assert not [name for name, kind in error_classes().items() if not kind.__doc__]


RAISE = """
import sys
from elsa_tune import errors
from elsa_tune.cli import app

def fail():
    raise getattr(errors, sys.argv[1])("this is what happened")

app.app = fail
app.main()
"""


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("UsageError", 2),
        ("DivergedError", 1),
        ("NoAnswerError", 3),
        ("InterruptedSearchError", 130),
    ],
)
def test_the_exit_status_is_that_of_the_class(name: str, status: int, root: Path) -> None:
    """One class of each status, through the command line's own door, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", RAISE, name],
        capture_output=True,
        text=True,
        cwd=root,
        timeout=200,
        check=False,
    )
    assert done.returncode == status
    assert done.stdout == ""
    assert done.stderr == "elsa-tune: this is what happened\n"


def texts_below_the_command_line(root: Path) -> Iterator[tuple[str, str]]:
    """Where it stands and what it says, of every text that is no docstring."""
    for path in sorted((root / "elsa_tune").rglob("*.py")):
        if "cli" in path.parts:
            continue
        tree = ast.parse(path.read_text())
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        within = {
            id(part)
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr)
            for part in node.values
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                text = "".join(str(getattr(part, "value", "…")) for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = "" if id(node) in alone | within else node.value
            else:
                continue
            yield f"{path.relative_to(root)}:{node.lineno}", text


def test_below_the_command_line_messages_name_settings_not_options(root: Path) -> None:
    """A user of Python reads them too; `cli.printing.with_options` writes them as options."""
    options = re.compile(r"(?<![\w(-])--[a-z]+[a-z-]*(?![\w:;])")
    # Whole commands to type, their own and other programs'; one is put together of parts.
    commands = re.compile(
        r"elsa-tune [a-z]|hf download|ray start|install --force|pip download|^ --target "
    )
    found = []
    for place, text in dict(texts_below_the_command_line(root)).items():
        is_an_argument = options.fullmatch(text)  # of a program that is started: no message
        if options.search(text) and not is_an_argument and not commands.search(text):
            found.append(place)
    assert not found


def test_settings_in_messages_are_options_of_some_command() -> None:
    known = set(" ".join(" ".join(names) for names in surface().values()).split())
    names = printing.SETTINGS
    assert len(names) > 15
    assert {f"--{name.replace('_', '-')}" for name in names} <= known
    said = printing.with_options(
        "leave `tracking_uri` out, or try `elsa-tune search`; `auto` will do"
    )
    assert said == "leave --tracking-uri out, or try `elsa-tune search`; `auto` will do"
