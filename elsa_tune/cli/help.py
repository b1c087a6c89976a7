"""`--help` in plain text, with options and commands listed under headings by subject."""

from typing import Any

from typer.core import TyperCommand, TyperGroup

# A shorter list needs no headings.
_FEW = 8

# What stands below each heading: what is typed, and its help.
_Panels = dict[str, list[tuple[str, str]]]


class Command(TyperCommand):
    """A command whose options, where there are many, stand below their `rich_help_panel`."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        parameters = self.get_params(ctx)
        options = []
        for parameter in parameters:
            if parameter.param_type_name == "option":
                options.append(parameter)
        if len(options) <= _FEW:
            super().format_options(ctx, formatter)
            return
        panels: _Panels = {"Arguments": [], "Options": []}
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
            command = self.commands[name]
            panel = getattr(command, "rich_help_panel", None) or "Commands"
            names_by_panel.setdefault(panel, []).append(name)
        records_by_panel: _Panels = {}
        for panel, names in names_by_panel.items():
            longest = max(len(name) for name in names)
            width = formatter.width - 6 - longest
            records: list[tuple[str, str]] = []
            for name in names:
                command = self.commands[name]
                short_help = command.get_short_help_str(width)
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
    if parameter.param_type_name == "argument":
        return "Arguments"
    return "Options"


def _write(panels: _Panels, formatter: Any) -> None:
    """Write records below their headings."""
    for name, records in panels.items():
        if records:
            with formatter.section(name):
                formatter.write_dl(records)
