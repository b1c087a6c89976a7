"""Each option has the name that the documents give it, whichever version of typer is there."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from typer.main import get_command_name
from typer.models import OptionInfo

from elsa_tune.cli.app import app


def commands() -> Iterator[tuple[str, Any]]:
    for command in app.registered_commands:
        assert command.callback is not None
        yield command.name or get_command_name(command.callback.__name__), command.callback


def options(callback: Any) -> Iterator[tuple[str, OptionInfo]]:
    for parameter in inspect.signature(callback, eval_str=True).parameters.values():
        for extra in get_args(parameter.annotation)[1:]:
            if isinstance(extra, OptionInfo):
                yield parameter.name, extra


def own_name(option: OptionInfo) -> bool:
    """Within Annotated, typer holds the first name as the default until it reads the command."""
    return str(option.default).startswith("--") or bool(option.param_decls)


@pytest.mark.parametrize(("command", "callback"), list(commands()))
def test_an_option_whose_placeholder_is_its_name_in_capitals_names_itself(
    command: str, callback: Any
) -> None:
    """Else typer 0.27 takes the placeholder for the name: `--ADDRESS` in place of `--address`."""
    unnamed = [
        name
        for name, option in options(callback)
        if (option.metavar or "").lower() == name and not own_name(option)
    ]
    assert unnamed == []


def test_options_are_found() -> None:
    found = {name: dict(options(callback)) for name, callback in commands()}
    assert own_name(found["search"]["address"]) and not own_name(found["search"]["model"])
    assert {"models", "tasks"} <= set(found["reproduce"])
