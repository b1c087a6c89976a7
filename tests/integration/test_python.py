"""The main job from Python, in a Ray that runs already: rows in, an answer, a model out."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from transformers import AutoModelForSequenceClassification

import elsa_tune
from elsa_tune.errors import StorageError
from tests.searching import make_bench

pytestmark = pytest.mark.timeout(300)


@pytest.mark.usefixtures("ray")
def test_rows_in_a_model_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import ray

    bench = make_bench(tmp_path, train=256)
    monkeypatch.chdir(bench.folder)
    rows = (pd.read_csv("train.csv"), pd.read_csv("dev.csv"))
    settings = {"depths": [0, 1], "learning_rate": [0.002], "epochs": 3, "extend": False}
    asked = {"name": "first", "seeds": 2, "task_name": "mood", "cpus_per_trial": 1.5}
    found = elsa_tune.search("model", rows, **asked, **settings)
    assert ray.is_initialized()
    assert (found.name, found.answer().task) == ("first", "mood")
    trials = found.trials()
    assert list(trials["phase"]) == ["measure"] * 4
    assert set(found.to_dataframe()["frozen_layers"]) == {0, 1}
    [again], [recorded] = elsa_tune.answer(trials), elsa_tune.answer("first")
    assert again.operating_point is not None and recorded.operating_point is not None
    assert again.operating_point.retention == recorded.operating_point.retention

    # Twice in one process: the same is answered, another one refused, and more seeds are taken.
    assert elsa_tune.search("model", rows, **asked, **settings) == found
    with pytest.raises(StorageError, match=r"epochs 4 \(recorded: 3\)"):
        elsa_tune.search("model", rows, **asked, **{**settings, "epochs": 4})
    more = elsa_tune.resume("first", seeds=3)
    assert more == elsa_tune.load_search("first") and len(more.trials()) == 6

    folder = elsa_tune.export(more, "out", layers=1)
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert capsys.readouterr().out == ""
