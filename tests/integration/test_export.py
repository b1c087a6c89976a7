"""`elsa-tune export` as a user has it: a real encoder, an MLflow server, a hub that takes files."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import mlflow
import pytest
from mlflow.tracking import MlflowClient

from elsa_tune.searching.specification import load_specification
from elsa_tune.specs.trial import Recipe
from elsa_tune.training.data.preparation import read_splits
from elsa_tune.training.saved import predict
from tests.conftest import Run
from tests.exporting import kept_predictions, made_up_search
from tests.integration.conftest import Server
from tests.unit.tiny_models import make_tiny

SHA = "0123456789abcdef0123456789abcdef01234567"
# What a user would write, with neither our code nor our process; in the end what the card shows.
ASK = """
import contextlib, io, json, os, sys
import mlflow, pandas as pd
from transformers import pipeline
uri, model, folder, rows = sys.argv[1], sys.argv[2], sys.argv[3], json.loads(sys.argv[4])
mlflow.set_tracking_uri(uri)
loaded = mlflow.pyfunc.load_model(model)
answers = loaded.predict(pd.DataFrame(rows))
alone = pipeline("text-classification", folder, truncation=True)(rows)
os.chdir(folder)
with contextlib.redirect_stdout(io.StringIO()) as shown:
    exec(sys.argv[5], {})
print(json.dumps({
    "card": shown.getvalue(),
    "mlflow": answers["label"].tolist(),
    "alone": [one["label"] for one in alone],
    "example": sorted(loaded.input_example[0]),
    "signature": loaded.metadata.signature.inputs.input_names(),
}))
"""
# Once for each line that it is given.
PUSH = """
import sys
from pathlib import Path
from elsa_tune.errors import RunError
from elsa_tune.exporting.model import push
from huggingface_hub.utils.tqdm import are_progress_bars_disabled
for _ in sys.stdin:
    try:
        print(push(Path(sys.argv[1]), "owner/name"), flush=True)
    except RunError as error:
        print(f"refused: {error}", flush=True)
    assert not are_progress_bars_disabled()
"""


def start(
    *arguments: str, cwd: Path, python: Path | str = sys.executable, **environment: str
) -> subprocess.Popen[str]:
    """Start a Python of its own."""
    root = Path(__file__).resolve().parents[2]
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"}
    kept = {name: value for name, value in os.environ.items() if name.upper() not in proxies}
    kept |= {"PYTHONPATH": str(root), "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    return subprocess.Popen(
        [str(python), *arguments],
        cwd=cwd,
        env={**kept, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(process: subprocess.Popen[str]) -> str:
    """Return the rest of what it prints to stdout."""
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_real_encoder_in_a_folder_and_in_mlflow(
    server: Server, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.start()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    recipe = Recipe(epochs=1, max_length=16, train_size=64)
    curve = {0: (0.9, 0.91, 0.92), 5: (0.9, 0.91, 0.91), 6: (0.55, 0.5, 0.52)}
    paths = made_up_search(
        tmp_path, "minilm", "stdlib", curve, recipe=recipe, layers=6, tracking_uri=server.uri
    )
    arguments = ["--search", "first", "--storage-path", "searches", "--out", "out"]
    status, out, said = run("export", *arguments)
    assert (status, out) == (0, "out\n"), said
    assert not mlflow.is_tracking_uri_set()  # logging the model did, for a moment
    assert "export: 1 of 6 layers (certified to keep 90 % of the full model" in said

    spec = load_specification(paths)
    texts = read_splits(spec.task, spec.recipe)["evaluation"].texts
    [key] = [file.stem for file in paths.predictions.glob("final-*.npz")]
    predictions = kept_predictions(paths, key).tolist()
    assert predict(tmp_path / "out", texts).tolist() == predictions

    model = re.search(r"In MLflow: (models:\S+)", said)
    assert model is not None, said
    card = (tmp_path / "out" / "README.md").read_text()
    assert "base_model: sentence-transformers/all-MiniLM-L6-v2" in card
    usage = re.search(r"```python\n(.*?)```", card, re.DOTALL)
    assert usage is not None
    rows = [{"text": one, "text_pair": other} for one, other in zip(*texts, strict=True)][:8]
    asked = (server.uri, model[1], "out", json.dumps(rows), usage[1])
    columns = ["text", "text_pair"]
    found = json.loads(end(start("-c", ASK, *asked, cwd=tmp_path)))
    labels = [spec.task.classes[prediction] for prediction in predictions[:8]]
    assert found["mlflow"] == found["alone"] == labels
    assert found["example"] == found["signature"] == columns
    assert "'label': '" in found["card"]

    client = MlflowClient(server.uri)
    experiment = client.get_experiment_by_name("elsa-tune/stdlib")
    runs = client.search_runs([experiment.experiment_id])
    [parent] = [run for run in runs if "elsa_tune.trial" not in run.data.tags]
    assert [one.model_id for one in parent.outputs.model_outputs] == [model[1].partition("/")[2]]
    assert parent.info.status == "FINISHED"
    assert [run.info.run_name for run in runs if "final" in run.info.run_name] == ["N5 3e-3 final"]


class Taking(ThreadingHTTPServer):
    """A hub that takes one commit. files: by path, as they came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Uploads)
        self.files: dict[str, bytes] = {}
        self.created: dict[str, object] = {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Uploads(BaseHTTPRequestHandler):
    server: Taking

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/api/repos/create":
            self.server.created = json.loads(body)
            answer: dict[str, object] = {"url": f"{self.server.address}/owner/name"}
        elif self.path == "/api/validate-yaml":
            answer = {"errors": [], "warnings": []}
        elif "/preupload/" in self.path:
            names = [file["path"] for file in json.loads(body)["files"]]
            wanted = {"uploadMode": "regular", "shouldIgnore": False}
            answer = {"files": [{"path": name, **wanted} for name in names]}
        else:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    content = base64.b64decode(line["value"]["content"])
                    self.server.files[line["value"]["path"]] = content
            address = f"{self.server.address}/owner/name/commit/{SHA}"
            answer = {"commitUrl": address, "commitOid": SHA}
        self.answer(answer)

    def do_GET(self) -> None:
        self.answer({"id": "owner/name", "sha": SHA, "siblings": [], "tags": []})

    def answer(self, answer: dict[str, object]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_folder_is_pushed_to_the_hub(tmp_path: Path) -> None:
    folder = make_tiny("bert", tmp_path / "model")
    (folder / "README.md").write_text("---\nlibrary_name: transformers\n---\n# a card\n")
    hub = Taking()
    ours = {"HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "hf_ours", "HF_HUB_OFFLINE": "0"}
    ours |= {"HF_ENDPOINT": hub.address, "HF_HUB_DISABLE_XET": "1"}
    pushing = start("-c", PUSH, str(folder), cwd=tmp_path, **ours)
    assert pushing.stdin is not None and pushing.stdout is not None
    pushing.stdin.write("\n")
    pushing.stdin.flush()
    assert pushing.stdout.readline() == f"{hub.address}/owner/name\n"
    assert hub.created == {"name": "name", "organization": "owner", "visibility": "private"}
    assert hub.files == {file.name: file.read_bytes() for file in folder.iterdir()}
    hub.shutdown()
    hub.server_close()

    pushing.stdin.write("\n")
    refused = end(pushing)
    assert refused.startswith("refused: owner/name could not be pushed (")
    assert f"then run `hf upload owner/name {folder}`\n" in refused
