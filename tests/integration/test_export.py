"""`elsa-tune export` as a user has it: a real encoder and an MLflow server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from mlflow.tracking import MlflowClient

from elsa_tune.search.specification import load_specification
from elsa_tune.specs.trial import Recipe
from elsa_tune.training.data.preparation import read_splits
from elsa_tune.training.saved import predict
from tests.exporting import kept_predictions, made_up_search
from tests.integration.conftest import Server

# What a user would write, with neither our code nor our process.
ASK = """
import json, sys
import mlflow, pandas as pd
from transformers import pipeline
uri, model, folder, rows = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
mlflow.set_tracking_uri(uri)
loaded = mlflow.pyfunc.load_model(model)
answers = loaded.predict(pd.DataFrame(rows))
alone = pipeline("text-classification", folder, truncation=True)(rows)
print(json.dumps({
    "mlflow": answers["label"].tolist(),
    "alone": [one["label"] for one in alone],
    "example": sorted(loaded.input_example[0]),
    "signature": loaded.metadata.signature.inputs.input_names(),
}))
"""


def python(*arguments: str, cwd: Path, **environment: str) -> str:
    """What a Python of its own prints to stdout."""
    root = Path(__file__).resolve().parents[2]
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}
    kept = {name: value for name, value in os.environ.items() if name.upper() not in proxies}
    kept |= {"PYTHONPATH": str(root), "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**kept, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + "\n---\n" + done.stderr


@pytest.mark.timeout(600)
def test_a_real_encoder_in_a_folder_and_in_mlflow(server: Server, tmp_path: Path) -> None:
    server.start()
    recipe = Recipe(epochs=1, max_length=32, train_size=64)
    curve = {0: (0.9, 0.91, 0.92), 5: (0.9, 0.91, 0.91), 6: (0.55, 0.5, 0.52)}
    paths = made_up_search(
        tmp_path, "minilm", "stdlib", curve, recipe=recipe, layers=6, tracking_uri=server.uri
    )
    arguments = ["--search", "first", "--storage-path", "searches", "--out", "out"]
    out, _, said = python("-m", "elsa_tune", "export", *arguments, cwd=tmp_path).partition("---")
    assert out.strip() == "out"
    assert "export: 1 of 6 layers (certified to keep 90 % of the full model)" in said

    spec = load_specification(paths)
    texts = read_splits(spec.task, spec.recipe)["evaluation"].texts
    [key] = [file.stem for file in paths.predictions.glob("final-*.npz")]
    predictions = kept_predictions(paths, key).tolist()
    assert predict(tmp_path / "out", texts).tolist() == predictions

    model = re.search(r"In MLflow: (models:\S+)", said)
    assert model is not None
    rows = [{"text": one, "text_pair": other} for one, other in zip(*texts, strict=True)][:8]
    asked = (server.uri, model[1], "out", json.dumps(rows))
    columns = ["text", "text_pair"]
    found = json.loads(python("-c", ASK, *asked, cwd=tmp_path).partition("\n---")[0])
    labels = [spec.task.classes[prediction] for prediction in predictions[:8]]
    assert found["mlflow"] == found["alone"] == labels
    assert found["example"] == found["signature"] == columns

    client = MlflowClient(server.uri)
    experiment = client.get_experiment_by_name("elsa-tune/stdlib")
    runs = client.search_runs([experiment.experiment_id])
    [parent] = [run for run in runs if run.info.run_name == "first"]
    assert [one.model_id for one in parent.outputs.model_outputs] == [model[1].partition("/")[2]]
    assert parent.info.status == "FINISHED"
    assert [run.info.run_name for run in runs if "final" in run.info.run_name] == ["N5 0.003 final"]

    card = (tmp_path / "out" / "README.md").read_text()
    usage = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert usage is not None
    assert "'label': '" in python("-c", usage[1], cwd=tmp_path / "out")
    assert "base_model: sentence-transformers/all-MiniLM-L6-v2" in card
