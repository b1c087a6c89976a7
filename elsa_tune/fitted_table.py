"""A table that fits a terminal's width, with no column that says nothing."""

from collections.abc import Mapping, Sequence

from rich.table import Table

Columns = Mapping[str, Sequence[str]]


def fitted_table(
    columns: Columns,
    width: int,
    *,
    short: Mapping[str, str] | None = None,
    spared: Sequence[str] = (),
    bold: Sequence[bool] = (),
) -> Table:
    """Return the columns, by heading, without those whose cells are all empty or `-`.

    Where they do not fit in `width` characters they move together, then take the headings of
    `short`, and last those of `spared` (headings as given) are left out, in that order.
    """
    shown: dict[str, Sequence[str]] = {}
    for heading, cells in columns.items():
        if any(cell not in ("", "-") for cell in cells):
            shown[heading] = cells
    short_headings: Mapping[str, str] = {}
    if _width(shown, short_headings, gap=1) > width:
        short_headings = short or {}
    for heading in spared:
        if _width(shown, short_headings, gap=1) > width:
            shown.pop(heading, None)
    has_room = _width(shown, short_headings, gap=2) <= width
    gap = 2 if has_room else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for heading in shown:
        name = short_headings.get(heading, heading)
        table.add_column(name, justify="right", no_wrap=True)
    rows = zip(*shown.values(), strict=True)
    for number, row in enumerate(rows):
        style = None
        if bold and bold[number]:
            style = "bold"
        table.add_row(*row, style=style)
    return table


def _width(columns: Columns, short_headings: Mapping[str, str], gap: int) -> int:
    """Return how many characters the columns take, with a gap behind each."""
    total = 0
    for heading, cells in columns.items():
        name = short_headings.get(heading, heading)
        widest = max(len(text) for text in (name, *cells))
        total += widest + gap
    return total
