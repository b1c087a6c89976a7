"""A search whose evaluation rows belong together: its record and its answers know the units."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Run
from tests.searching import ONE_AT_A_TIME, make_bench, of_kind, without_export

# Quickly, part by part, in tests/unit/test_units.py.
pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]

SETTINGS = (
    *("--set", "epochs=2", "--set", "depths=[0, 1]", "--set", "learning_rate=[0.002]"),
    *("--set", "tries=1", "--seeds", "2", *ONE_AT_A_TIME),
)


@pytest.mark.usefixtures("ray")
def test_a_grouped_table_is_answered_by_its_units(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = make_bench(tmp_path, train=600)
    monkeypatch.chdir(bench.folder)
    header, *lines = (bench.folder / "train.csv").read_text().splitlines()
    rows = [f"{line},user {number // 2}" for number, line in enumerate(lines)]
    (bench.folder / "said.csv").write_text("\n".join([f"{header},user", *rows]) + "\n")
    command = bench.search("grouped", *SETTINGS, "--group", "user")
    command[command.index("task.yaml")] = "said.csv"
    done = run(*command)
    assert done.status == 0, done.err
    assert "group user" in done.err
    assert "are held out" in done.err and "by user" in done.err

    records = bench.records("grouped")
    started = of_kind(records, "trial_started")
    [count] = {record["params"]["evaluation_units"] for record in started}
    [rows_evaluated] = {record["params"]["evaluation_examples"] for record in started}
    assert (count, rows_evaluated) == (60, 120)
    folder = bench.journal("grouped").parent
    for record in of_kind(records, "trial_ended"):
        if record["status"] == "completed":
            kept = np.load(folder / record["artifact"])
            assert np.bincount(kept["units"]).tolist() == [2] * 60
    specification = json.loads((folder / "search.json").read_text())
    assert specification["task"]["group_column"] == "user"
    assert specification["evaluation_units"] == 60
    assert "--group user" in specification["command"]

    question = ("answer", "grouped", "--format", "json")
    [answer] = json.loads(run(*question).out)
    assert (answer["evaluation_examples"], answer["evaluation_units"]) == (120, 60)
    assert answer["certified"] is None and answer["corrected_certified"] is None
    assert "few_units" in {warning["code"] for warning in answer["warnings"]}

    # MLflow's record alone says the same, except that nothing is left to export.
    folder.rename(folder.with_name("elsewhere"))
    asked = run(*question)
    folder.with_name("elsewhere").rename(folder)
    assert json.loads(asked.out) == [without_export(answer)]

    # The same search without the group is another.
    refused = run(*command[:-2])
    assert refused.status != 0 and "group" in refused.err
