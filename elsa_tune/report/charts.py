"""A figure as data: panels of series, ready to be drawn by `figures`; qualities are x 100."""

from __future__ import annotations

from dataclasses import dataclass

INK = -1  # the colour slot of what belongs to no series: target, chance


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """How a series is told from the others: always by more than its colour.

    colour: a slot of `figures.SERIES`, or INK. marker, line: as matplotlib names them, "" for none.
    size: of the marker, in points.
    """

    colour: int = 0
    marker: str = "o"
    line: str = "-"
    hollow: bool = False
    size: float = 6.0
    width: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points under one name of the legend; the same name in several panels is one entry.

    x, y: as long as each other. low, high: a band around y, None where a point has none, () for no
    band at all. hover: what each point tells when it is pointed at, () for nothing.
    """

    name: str
    look: Look
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()
    hover: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One pair of axes. ticks: (position, text) on the x axis."""

    title: str
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    ticks: tuple[tuple[float, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure with its panels. key: its name in file names. caption: how to read it.

    left_out: sentences that say what could not be drawn, and why.
    """

    key: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    left_out: tuple[str, ...] = ()

    @property
    def legend(self) -> dict[str, Look]:
        """Each name once, in the order of appearance."""
        found: dict[str, Look] = {}
        for panel in self.panels:
            for series in panel.series:
                found.setdefault(series.name, series.look)
        return found
