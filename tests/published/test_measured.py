"""The tables of docs/measured.md are those of the committed measurements, and these are the code's.

Run as a program it writes them into the page anew.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from elsa_tune.analysis.answers import answer_rows

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "measured.md"
BEGIN, END = "<!-- computed: {} -->\n", "<!-- end -->"


def loaded(file: str) -> ModuleType:
    """A program of bench, as a module."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, ROOT / "bench" / file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def written(page: str) -> str:
    """The page with its tables made anew."""
    found = json.loads((ROOT / "bench" / "results" / "fair_rates.json").read_text())
    tables = {
        "fair_rates": loaded("lab/rules.py").markdown(found["results"]),
        "rows": loaded("rows.py").table(),
    }
    for name, table in tables.items():
        begin = BEGIN.format(name)
        before, rest = page.split(begin)
        page = f"{before}{begin}{table}\n{END}{rest.split(END, 1)[1]}"
    return page


def test_the_tables_are_the_measured_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    assert PAGE.read_text() == written(PAGE.read_text())


def test_the_leaks_of_glue_are_as_many_as_they_were(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    program = loaded("rows.py")
    file = ROOT / "bench" / "results" / "rows.json"
    found = json.loads(file.read_text(encoding="utf-8"))["results"]["tasks"]
    for name in ("cola", "stsb", "rte"):
        again = program.looked_at(name, str(shared / "glue"))
        assert json.loads(json.dumps({**again, "seconds": 0})) == {**found[name], "seconds": 0}


def test_the_first_figure_shows_the_answer_of_the_recorded_trials() -> None:
    program = loaded("first_figure.py")
    [answer] = answer_rows(list(program.measured()))
    point = answer.recommendation.point
    assert point is not None and point.fine_tuned_layers == 1
    assert 0.95 < (point.retention or 0) < 0.97
    drawn = (ROOT / "docs" / "figures" / "first.svg").read_text(encoding="utf-8")
    assert "answer: 1 of 6 layers" in drawn and "layers fine-tuned" in drawn


def test_the_time_left_is_as_far_off_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "bench")
    program = loaded("time_left.py")
    file = ROOT / "bench" / "results" / "time_left.json"
    found = json.loads(file.read_text(encoding="utf-8"))["results"]
    assert found == {folder.name: program.replayed(folder) for folder in program.SEARCHES.iterdir()}
    for one in found.values():
        *_, half, late = (at["off"] for at in one["at"])
        assert abs(half) < 0.2 and abs(late) < 0.25


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "bench"))
    PAGE.write_text(written(PAGE.read_text()))
