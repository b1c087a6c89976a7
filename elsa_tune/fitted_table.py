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
    """The columns, by heading, without those whose cells are all empty or `-`.

    Where they do not fit in `width` characters they move together, then take the headings of
    `short`, and last those of `spared` (headings as given) are left out, in that order.
    """
    columns = {name: cells for name, cells in columns.items() if set(cells) - {"", "-"}}
    names = {name: name for name in columns}
    if _width(columns, names, 1) > width:
        names |= {name: word for name, word in (short or {}).items() if name in columns}
    for name in spared:
        if _width(columns, names, 1) > width:
            columns.pop(name, None)
    gap = 2 if _width(columns, names, 2) <= width else 1
    table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for name in columns:
        table.add_column(names[name], justify="right", no_wrap=True)
    rows = list(zip(*columns.values(), strict=True))
    for cells, is_bold in zip(rows, bold or [False] * len(rows), strict=True):
        table.add_row(*cells, style="bold" if is_bold else None)
    return table


def _width(columns: Columns, names: Mapping[str, str], gap: int) -> int:
    return sum(max(map(len, (names[name], *cells))) + gap for name, cells in columns.items())
