"""A real search over every way: killed, resumed, exported by a way's label.

What each way computes is in tests/unit/test_lora.py and tests/unit/test_bitfit.py.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from elsa_tune.searching.cluster.capacity import Capacity
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import read_state
from tests.conftest import Run
from tests.searching import ONE_AT_A_TIME, Bench, family, make_bench, of_kind, wait_for

pytestmark = pytest.mark.timeout(600)

NAME = "ways"
WAYS = ("0", "1", "2", "lora", "lora-last1", "bitfit")
SETTINGS = (
    *("--set", "epochs=2", "--set", f"depths=[{', '.join(WAYS)}]", "--set", "asha=null"),
    *("--set", "learning_rate=[0.002, 0.005]", "--set", "tries=1", "--seeds", "2"),
    *ONE_AT_A_TIME,
)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return make_bench(tmp_path_factory.mktemp("ways") / "bench", train=640)


def ended(bench: Bench) -> dict[str, Any]:
    """Return the finished trials, with the record of their end."""
    ends = {}
    for record in of_kind(bench.records(NAME), "trial_ended"):
        if record["status"] == "completed":
            ends[record["trial"]] = record
    return ends


def killed_while_lora_trains(bench: Bench) -> None:
    """Start the search and kill it as soon as a trial of LoRA has ended."""
    driver = bench.start(*bench.search(NAME, *SETTINGS))
    wait_for(lambda: any("lora" in trial for trial in ended(bench)), 200)
    os.kill(next(iter(family(driver.pid))), signal.SIGKILL)  # the command's own child
    _, said = driver.communicate(timeout=200)
    assert "was killed (SIGKILL" in said


@pytest.fixture
def searched(bench: Bench, run: Run, ray: Capacity, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Return the directory of the search, which runs once: it is killed, and resumed."""
    monkeypatch.chdir(bench.folder)
    if bench.journal(NAME).exists():
        return bench
    killed_while_lora_trains(bench)
    before = ended(bench)
    assert 0 < len(before) < 3 * len(WAYS)
    resumed = run("resume", NAME)
    assert resumed.status in (0, 3), resumed.err
    after = ended(bench)
    assert all(after[trial] == record for trial, record in before.items())
    return bench


@pytest.mark.thorough
def test_every_way_is_explored_and_measured_alike_after_a_kill(searched: Bench) -> None:
    paths = SearchPaths(StorePaths(searched.folder).storage, NAME)
    state = read_state(paths.journal)
    assert state.is_complete
    rows = rows_of(state)
    assert {row.status for row in rows} == {TrialStatus.COMPLETED}
    for label in WAYS:
        candidate = read_candidate(label)
        own = [row for row in rows if row.candidate == candidate]
        measured = [row for row in own if row.phase is Phase.MEASURE]
        assert len(own) == 3 and [row.seed for row in measured] == [1, 2]
        assert len({row.learning_rate for row in measured}) == 1
        low, high = own[0].given_rates or (0.0, 0.0)
        assert (low, high) == ((1e-4, 1e-3) if candidate.rates else (0.002, 0.005))
    trained = {row.candidate.label: row.trainable_parameters or 0 for row in rows}
    assert trained["2"] < trained["bitfit"] < trained["lora"] < trained["0"]
    assert trained["2"] < trained["lora-last1"] < trained["lora"]
    # Only these keep the first layer's output.
    reports = of_kind(searched.records(NAME), "report")
    cached = {record["trial"].split("-lr")[0] for record in reports if "cached" in str(record)}
    assert {name.removeprefix("measure-") for name in cached if name.startswith("measure")} == {
        "N1",
        "N2",
        "lora-last1",
    }


@pytest.mark.thorough
def test_the_answer_is_freezings_alone(searched: Bench, run: Run) -> None:
    printed = run("curve", "--search", NAME, "--format", "json").out
    [curve] = json.loads(printed)
    assert [point["frozen_layers"] for point in curve["curve"]] == [0, 1, 2]


@pytest.mark.thorough
def test_a_way_is_exported_by_its_label_with_the_adapter_beside_it(
    searched: Bench, run: Run
) -> None:
    import peft

    done = run("export", NAME, "--way", "lora-last1", "--adapter", "--out", "adapted")
    assert done.status == 0, done.err
    folder = searched.folder / "adapted"
    about = json.loads((folder / "elsa-tune.json").read_text())["exported"]
    assert (about["candidate"], about["chosen"]) == ("lora-last1", "as asked for")
    assert about["lora_last"] == 1 and len(about["promised"]) == 2
    card = (folder / "README.md").read_text()
    assert "LoRA of rank 8 on the last layer (as asked for)" in card
    assert "all layers before the last layer are the base model's, bit for bit" in card
    merged = AutoModelForSequenceClassification.from_pretrained(folder)
    base = AutoModelForSequenceClassification.from_pretrained(searched.folder / "model")
    # Peft 0.21 asks transformers for a name that goes in its version 6.
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        adapted = peft.PeftModel.from_pretrained(base, folder / "adapter")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    inputs = tokenizer(["the film was good", "a dull plot"], padding=True, return_tensors="pt")
    logits = [model.eval()(**inputs).logits.detach().numpy() for model in (merged, adapted)]
    assert np.abs(logits[0] - logits[1]).max() < 1e-5
    (searched.folder / "rows.csv").write_text("text\nthe film was good\na dull plot\n")
    assert "prediction" in run("predict", "adapted", "rows.csv").out


@pytest.mark.thorough
def test_what_cannot_be_exported_is_said_in_one_sentence(searched: Bench, run: Run) -> None:
    refused = run("export", NAME, "--way", "bitfit", "--adapter", "--out", "refused")
    assert refused.status == 2
    assert "`" not in refused.err
    assert "--adapter writes what a way such as LoRA adds to the model, and what is" in refused.err
    lacking = run("export", NAME, "--candidate", "lora-r4", "--out", "refused")
    assert lacking.status == 2
    assert "--way is lora-r4, which was not measured" in lacking.err
    assert "measured: 0 (the full model), 1 (1 frozen layer, 1 fine-tuned), " in lacking.err
    assert "2 (the head alone), bitfit, lora, lora-last1" in lacking.err
    both = run("export", NAME, "--way", "lora", "--layers", "1", "--out", "refused")
    assert (both.status, "exclude each other" in both.err) == (2, True)
    assert not (searched.folder / "refused").exists()


def test_without_peft_a_search_is_refused_before_anything_runs(
    bench: Bench, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bench.folder)
    monkeypatch.setitem(sys.modules, "peft", None)
    refused = run(*bench.search("without", "--set", "depths=[0, lora]"))
    assert (refused.status, refused.out) == (2, "")
    [line] = [line for line in refused.err.splitlines() if "peft" in line]
    assert line.endswith("is not installed: pip install 'elsa-tune[lora]'")
    assert not Path(bench.journal("without")).parent.exists()
