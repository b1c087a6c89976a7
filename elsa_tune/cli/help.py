"""`--help` in plain text, with options and commands listed under headings by subject."""

from collections.abc import Mapping, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

# A shorter list needs no headings.
_FEW = 8


class Command(TyperCommand):
    """A command whose options, where there are many, stand below their `rich_help_panel`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)
        options = [item for item in parameters if item.param_type_name == "option"]
        if len(options) <= _FEW:
            super().format_options(ctx, formatter)
            return
        panels: dict[str, list[Any]] = {"Arguments": [], "Options": []}
        for parameter in parameters:
            panel = panels.setdefault(_panel(parameter), [])
            record = parameter.get_help_record(ctx)
            if record is not None:  # a hidden option has none
                panel.append(record)
        _write(panels, formatter)


class Group(TyperGroup):
    """A program whose commands stand below their `rich_help_panel`."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        names_by_panel: dict[str, list[str]] = {}
        for name in self.list_commands(ctx):
            panel = getattr(self.commands[name], "rich_help_panel", None) or "Commands"
            names_by_panel.setdefault(panel, []).append(name)
        records_by_panel: dict[str, list[tuple[str, str]]] = {}
        for panel, names in names_by_panel.items():
            longest = max(len(name) for name in names)
            width = formatter.width - 6 - longest
            records: list[tuple[str, str]] = []
            for name in names:
                short_help = self.commands[name].get_short_help_str(width)
                records.append((name, short_help))
            records_by_panel[panel] = records
        _write(records_by_panel, formatter)


def _panel(parameter: Any) -> str:
    """Return the heading that a parameter stands below."""
    if parameter.name == "help":
        return "Help"
    panel: str | None = getattr(parameter, "rich_help_panel", None)
    if panel:
        return panel
    return "Arguments" if parameter.param_type_name == "argument" else "Options"


def _write(panels: Mapping[str, Sequence[Any]], formatter: Any) -> None:
    """Write records (what is typed, its help) below their headings."""
    for name, records in panels.items():
        if records:
            with formatter.section(name):
                formatter.write_dl(records)
