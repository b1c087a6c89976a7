"""BERT-base's exact configuration and real vocabulary with random weights, on real RTE rows.

And a hub id end to end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

from elsa_tune.cli.app import app
from elsa_tune.specs.model import KNOWN_MODELS, shipped_configuration
from tests.integration.test_hub import StandIn
from tests.unit.tiny_models import make_tiny

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def rte(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the first rows of RTE, in the official layout."""
    folder = tmp_path_factory.mktemp("glue")
    (folder / "RTE").mkdir()
    for split, rows in (("train", 9), ("dev", 9)):
        text = (shared / "glue" / "RTE" / f"{split}.tsv").read_text(encoding="utf-8")
        (folder / "RTE" / f"{split}.tsv").write_text("\n".join(text.split("\n")[:rows]) + "\n")
    return folder


@pytest.fixture(scope="module")
def bert_base(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """110 million random parameters in a folder, with the real vocabulary; removed afterwards."""
    folder = tmp_path_factory.mktemp("models") / "bert-base"
    config = BertConfig(**shipped_configuration("bert_base"))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        BertForSequenceClassification(config).save_pretrained(folder)
    shutil.copy(shared / "vocab" / "bert-base-uncased" / "vocab.txt", folder)
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "BertTokenizer", "do_lower_case": True})
    )
    assert len(AutoTokenizer.from_pretrained(folder)) == 30522
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize(("frozen", "trained"), [("11", 7_680_002), ("0", 109_483_778)])
def test_bert_base_trains_a_few_steps(
    bert_base: Path, rte: Path, frozen: str, trained: int, capsys: pytest.CaptureFixture[str]
) -> None:
    app(
        [
            *("trial", "--model", str(bert_base), "--task", "rte", "--data-dir", str(rte)),
            *("--learning-rate", "3e-5", "--frozen-layers", frozen, "--format", "json"),
            *("--set", "epochs=1", "--set", "batch_size=4"),
        ],
        standalone_mode=False,
    )
    (result,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert result["step"] == result["steps"] == 2
    assert result["trainable_parameters"] == trained
    assert 0.4 < result["train_loss"] < 1.5 and len(result["predictions"]) == 8


def test_the_named_model_comes_through_the_hub(rte: Path, tmp_path: Path) -> None:
    """`--model bert_base` against a loopback hub that serves twelve tiny layers under its name."""
    name = KNOWN_MODELS["bert_base"].location
    hub = StandIn({name: make_tiny("bert", tmp_path / "tiny", layers=12)})
    proxies = {"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_HUB_OFFLINE"}
    environment = {key: value for key, value in os.environ.items() if key.upper() not in proxies}
    environment |= {
        "HF_HOME": str(tmp_path / "home"),
        "HF_ENDPOINT": f"http://127.0.0.1:{hub.port}",
    }
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "elsa_tune", "trial", "--model", "bert_base"),
                *("--task", "rte", "--data-dir", str(rte), "--learning-rate", "3e-5"),
                *("--frozen-layers", "9", "--set", "epochs=1", "--format", "json"),
            ],
            capture_output=True,
            text=True,
            env=environment,
            timeout=200,
        )
    finally:
        hub.stop()
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["step"] == 1 and "accuracy" in result["metrics"]
    assert any("model.safetensors" in request for request in hub.requests)
