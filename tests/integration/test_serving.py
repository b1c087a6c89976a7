"""Two exported MiniLM models of different depths as one bundle, in MLflow and behind Ray Serve."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

import elsa_tune
from tests.conftest import Run
from tests.exporting import exported_model
from tests.integration.conftest import free_port
from tests.integration.test_export import start
from tests.unit.test_bundle import task_of

pytestmark = pytest.mark.thorough

TEXTS = ["Return the median of data.", "A plot as thin as paper, and an hour too long.", "Why?"]
# The same packages and Ray Serve's (Makefile).
SERVE = Path(sys.prefix) / "serve/bin/python"
PAIRS = [(text, "It returns a number") for text in TEXTS]
# What stands behind the guide's code, in a Ray of its own.
ASK = """
import json, sys, urllib.error, urllib.request
from concurrent.futures import ThreadPoolExecutor

port, bodies = int(sys.argv[1]), json.loads(sys.argv[2])
serve.start(http_options={"port": port})
serve.run(app)
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

def ask(body):
    try:
        with opener.open(f"http://127.0.0.1:{port}", body.encode(), timeout=200) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code

with ThreadPoolExecutor(len(bodies)) as pool:
    print(json.dumps(list(pool.map(ask, bodies))))
serve.shutdown()
"""


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of `topic`, whose last layer was trained, and `mood`, whose last three were."""
    folder = tmp_path_factory.mktemp("serving")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ELSA_TUNE_CACHE", str(folder / "cache"))
        environment.setenv("HF_HUB_OFFLINE", "1")
        exported_model(folder / "topic", Path("minilm"), task_of(folder), 5, max_length=32)
        exported_model(folder / "mood", Path("minilm"), task_of(folder), 3, max_length=32)
        return elsa_tune.bundle([folder / "topic", folder / "mood"], folder / "router")


@pytest.mark.timeout(600)
def test_real_models_of_two_depths_answer_as_each_alone(router: Path) -> None:
    about = json.loads((router / "bundle.json").read_text())
    assert (about["base"], about["runs"]) == ("minilm", "packed")
    assert 0 < max(about["largest_difference"].values()) <= 1e-5
    # Two models of 90.9 MB; embeddings and three layers are there once.
    cost = about["measured"]["cost"]
    assert cost["alone"]["megabytes"] == pytest.approx(181.7, abs=0.1)
    assert cost["bundled"]["megabytes"] == pytest.approx(112.7, abs=0.2)
    loaded = elsa_tune.load_bundle(router)
    for texts in (TEXTS, PAIRS):
        for name, found in loaded.predict_either(texts).items():
            tokenizer = AutoTokenizer.from_pretrained(router.parent / name)
            columns = [texts] if texts is TEXTS else [list(one) for one in zip(*texts, strict=True)]
            inputs = tokenizer(*columns, padding=True, truncation=True, return_tensors="pt")
            model = AutoModelForSequenceClassification.from_pretrained(router.parent / name)
            with torch.inference_mode():
                np.testing.assert_allclose(found.logits, model(**inputs).logits, atol=1e-5)


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore:.*Any type hint:UserWarning")  # of MLflow's own code
def test_the_command_changes_it_and_mlflow_loads_it(router: Path, run: Run, tmp_path: Path) -> None:
    status, out, said = run("bundle", router, "--remove", "mood", "--out", tmp_path / "one")
    assert (status, out) == (2, ""), said
    loaded = mlflow.pyfunc.load_model(str(router))
    found = loaded.predict(pd.DataFrame(PAIRS, columns=["text", "text_pair"]))
    expected = elsa_tune.load_bundle(router).predict(TEXTS)  # both read the first column alone
    for name, prediction in expected.items():
        assert tuple(found[name]) == prediction.labels
        np.testing.assert_allclose(found[f"{name}_score"], prediction.scores, rtol=1e-6)


@pytest.mark.timeout(600)
@pytest.mark.skipif(not SERVE.exists(), reason="needs Ray Serve: make .venv/.serve")
def test_the_guides_service_answers(
    router: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A Ray of its own, whatever other tests have running.
    monkeypatch.setenv("RAY_ADDRESS", "local")
    guide = (root / "docs/guides/serving.md").read_text()
    [code] = [
        block
        for block in re.findall(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
        if "serve.deployment" in block
    ]
    assert len(code.splitlines()) <= 30
    assert code.count('"num_cpus": 2') == 1
    code = code.replace('"num_cpus": 2', '"num_cpus": 1')
    (router.parent / "app.py").write_text(code + ASK)
    bodies = [json.dumps({"text": text}) for text in [*TEXTS, 3, None, "\ud800"]]
    bodies += ["", "no JSON", "[]", "{}", '"a text"']
    asked = ("app.py", str(free_port()), json.dumps(bodies))
    process = start(*asked, cwd=router.parent, python=SERVE)
    out, said = process.communicate(timeout=300)
    assert process.returncode == 0, said
    assert "max_batch_size" not in out + said  # as Ray warns where a batch can never be so large
    [answers] = [json.loads(line) for line in out.splitlines() if line.startswith("[{")]
    # What is no text fails no other request.
    refused = len(bodies) - len(TEXTS)
    assert answers[len(TEXTS) :] == [400] * refused
    answers = answers[: len(TEXTS)]
    for name, found in elsa_tune.load_bundle(router).predict(TEXTS).items():
        assert [answer[name][0] for answer in answers] == list(found.labels)
        scores = [answer[name][1] for answer in answers]
        np.testing.assert_allclose(scores, found.scores, atol=1e-5)


def test_the_guides_python_runs(
    router: Path, root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    guide = (root / "docs/guides/serving.md").read_text()
    block = re.search(r"^```python\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    assert block is not None
    monkeypatch.chdir(router.parent)
    exec(block[1].replace('"intent"', '"topic"').replace('"spam"', '"mood"'), {})
    out, said = capsys.readouterr()
    assert out.startswith("(") and said == ""
