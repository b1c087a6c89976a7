"""Write what the documents take from code and measurements.

Type `python -m tools.documents [NAME...]`, or `make documents` for all of it.

A computed part stands in its page between `<!-- computed: NAME -->` and `<!-- end -->`. Without a
name every part is written anew; tests/repo/test_reference.py and tests/published compare.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from elsa_tune.specs.space import Space
from elsa_tune.tasks.task_file import DataSetFile, TaskFile
from tools import measurements, published_tables, reference, what_90_percent_hides

ROOT = Path(__file__).resolve().parents[1]
MARKED = re.compile(r"(<!-- computed: (.+?) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


class Part(NamedTuple):
    """A computed part of a page."""

    page: str  # path from the top of the checkout
    make: Callable[[], str]  # its text, with the last line's end


PARTS: dict[str, Part] = {
    "command line": Part("docs/reference/command-line.md", reference.command_line),
    "space fields": Part("docs/reference/spaces.md", lambda: reference.fields(Space)),
    "task file fields": Part("docs/reference/task-files.md", lambda: reference.fields(TaskFile)),
    "data set file fields": Part(
        "docs/reference/task-files.md", lambda: reference.fields(DataSetFile)
    ),
    "decisions": Part("docs/decisions.md", reference.decisions),
    "demo": Part("README.md", measurements.demo),
    "ways_example": Part("README.md", measurements.ways_example),
    "ways": Part("docs/measured.md", measurements.ways),
    "ways_rates": Part("docs/measured.md", measurements.ways_rates),
    "ways_step": Part("docs/measured.md", measurements.ways_step),
    "hunts": Part("docs/measured.md", measurements.hunts),
    "hunt_rates": Part("docs/measured.md", measurements.hunt_rates),
    "faults": Part("docs/reliability.md", measurements.faults),
    "fair_rates": Part("docs/measured.md", measurements.fair_rates),
    "fair_rates_mpnet": Part(
        "docs/measured.md", lambda: measurements.fair_rates("fair_rates_mpnet.json")
    ),
    "calibration": Part("docs/measured.md", measurements.calibration),
    "units": Part("docs/measured.md", measurements.units),
    "strategy": Part("docs/measured.md", measurements.strategy),
    "certified": Part("docs/measured.md", measurements.certified),
    "bundle": Part("docs/measured.md", measurements.bundle),
    "bundle_mpnet": Part("docs/measured.md", lambda: measurements.bundle("bundle_mpnet.json")),
    "rows": Part("docs/measured.md", measurements.rows),
    "ways_error": Part("docs/concepts/comparing-ways.md", measurements.ways_error),
}
for _name, _make in what_90_percent_hides.TABLES.items():
    PARTS[_name] = Part("docs/concepts/what-90-percent-hides.md", _make)
for _name, (_page, _make) in published_tables.PARTS.items():
    PARTS[_name] = Part(_page, _make)


def marked(page: str) -> dict[str, str]:
    """Return the computed parts of a page as they stand there, by name."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return {match[2]: match[3] for match in MARKED.finditer(text)}


def write(name: str) -> None:
    """Write one part into its page anew."""
    page, make = PARTS[name]
    path = ROOT / page
    made = make()
    text = MARKED.sub(
        lambda match: f"{match[1]}{made}{match[4]}" if match[2] == name else match[0],
        path.read_text(encoding="utf-8"),
    )
    path.write_text(text, encoding="utf-8")


def main() -> None:
    """Write the named parts, or all."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="*", help=f"one of: {', '.join(PARTS)}")
    for name in parser.parse_args().name or PARTS:
        if name not in PARTS:
            parser.error(f"no part is named '{name}'; there are: {', '.join(PARTS)}")
        write(name)


if __name__ == "__main__":
    main()
