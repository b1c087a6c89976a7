"""What docs/measured.md says is what the committed measurements and the code give.

Its tables are compared in tests/repo/test_reference.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from elsa_tune.analysis.answers import answer_rows
from tools.measurements import ROOT, measured, program


def test_the_leaks_of_glue_are_as_many_as_they_were(shared: Path) -> None:
    bench = program("rows.py")
    recorded = measured("rows.json")["results"]["tasks"]
    for name in ("cola", "stsb", "rte"):
        again = json.loads(json.dumps(bench.looked_at(name, str(shared / "glue"))))
        assert _without_empty({**again, "seconds": 0}) == {**recorded[name], "seconds": 0}


def _without_empty(looked_at: dict[str, Any]) -> dict[str, Any]:
    """Return what was looked at without the facts that findings did not have when it was recorded.

    None of them concerns these findings.
    """
    later = {"groups", "max_length", "read", "longest", "most"}
    findings = []
    for finding in looked_at["findings"]:
        assert all(finding[name] is None for name in later)
        findings.append({name: finding[name] for name in finding if name not in later})
    return {**looked_at, "findings": findings}


def test_the_first_figure_shows_the_answer_of_the_recorded_trials() -> None:
    bench = program("first_figure.py")
    [answer] = answer_rows(list(bench.measured()))
    point = answer.recommendation.point
    assert point is not None and point.fine_tuned_layers == 1
    assert 0.95 < (point.retention or 0) < 0.97
    drawn = (ROOT / "docs" / "figures" / "first.svg").read_text(encoding="utf-8")
    assert "answer: 1 of 6 layers" in drawn and "layers fine-tuned" in drawn


def test_the_range_of_the_time_left_holds_as_often_as_it_did() -> None:
    bench = program("time_left.py")
    results = measured("time_left.json")["results"]
    searches = results["searches"]
    folders = {f"{folder.parent.name}/{folder.name}": folder for folder in bench.recorded()}
    assert searches == {name: bench.replayed(folders[name]) for name in searches}
    assert results["inside"] == bench.inside(searches)
    page = (ROOT / "docs" / "measured.md").read_text(encoding="utf-8")
    for counts in results["inside"].values():
        looks = counts["below"] + counts["inside"] + counts["above"]
        assert f"{counts['inside']} of {looks}" in page
        assert counts["inside"] >= 0.85 * looks


def test_as_many_recorded_runs_failed_at_an_edge_as_they_did() -> None:
    bench = program("edge.py")
    recorded = measured("edge.json")["results"]["recorded"]
    assert recorded == json.loads(json.dumps(bench.recorded()))
