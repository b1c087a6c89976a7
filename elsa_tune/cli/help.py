"""`--help` in plain text, with what is listed under headings by subject."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

# A shorter list needs no headings.
_FEW = 8


class Command(TyperCommand):
    """A command whose options, where there are many, stand below their `rich_help_panel`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)
        if sum(one.param_type_name == "option" for one in parameters) <= _FEW:
            super().format_options(ctx, formatter)
            return
        panels: dict[str, list[Any]] = {"Arguments": [], "Options": []}
        for one in parameters:
            panels.setdefault(_panel(one), []).append(one.get_help_record(ctx))
        _write({name: list(filter(None, records)) for name, records in panels.items()}, formatter)


class Group(TyperGroup):
    """A program whose commands stand below their `rich_help_panel`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[str]] = {}
        for name in self.list_commands(ctx):
            panel = getattr(self.commands[name], "rich_help_panel", None) or "Commands"
            panels.setdefault(panel, []).append(name)
        listed = {}
        for panel, names in panels.items():
            room = formatter.width - 6 - max(map(len, names))
            listed[panel] = [(name, self.commands[name].get_short_help_str(room)) for name in names]
        _write(listed, formatter)


def _panel(parameter: Any) -> str:
    if parameter.name == "help":
        return "Help"
    usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
    return getattr(parameter, "rich_help_panel", None) or usual


def _write(panels: dict[str, list[Any]], formatter: Any) -> None:
    for name, records in panels.items():
        if records:
            with formatter.section(name):
                formatter.write_dl(records)
