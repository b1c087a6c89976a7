"""The tables of docs/measured.md are those of the committed measurements.

Run as a program it writes them into the page anew.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "measured.md"
BEGIN, END = "<!-- computed: fair_rates -->\n", "<!-- end -->"


def written(page: str) -> str:
    """The page with its table made anew."""
    spec = importlib.util.spec_from_file_location("rules", ROOT / "bench" / "lab" / "rules.py")
    assert spec is not None and spec.loader is not None
    rules = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rules)
    found = json.loads((ROOT / "bench" / "results" / "fair_rates.json").read_text())
    before, rest = page.split(BEGIN)
    after = rest.split(END, 1)[1]
    return f"{before}{BEGIN}{rules.markdown(found['results'])}\n{END}{after}"


def test_the_table_of_fair_rates_is_the_measured_one() -> None:
    assert PAGE.read_text() == written(PAGE.read_text())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
