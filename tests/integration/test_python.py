"""The main job from Python, in a Ray that runs already: rows in, an answer, a model out."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jedi
import numpy as np
import pytest
import ray
import torch
from transformers import AutoModelForSequenceClassification
from typer.testing import CliRunner

import elsa_tune
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.cli.app import app
from elsa_tune.errors import StorageError
from elsa_tune.searching.inputs import read_inputs
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.row_findings import FindingCode
from elsa_tune.specs.trial import TrialStatus
from elsa_tune.tracking.places import StorePaths
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.data.tokens import TokenRows
from elsa_tune.training.loop import train
from tests.searching import make_bench

pytestmark = pytest.mark.timeout(600)


def code_of(guide: Path) -> list[str]:
    """Return the guide's Python, block by block."""
    return re.findall(r"^```python\n(.*?)^```", guide.read_text(), flags=re.MULTILINE | re.DOTALL)


# Quickly: the same search typed, in test_search.py; the functions, in tests/unit/test_api.py.
@pytest.mark.thorough
@pytest.mark.usefixtures("ray")
def test_the_guides_rows_become_a_model(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    bench = make_bench(tmp_path, train=256)
    monkeypatch.chdir(bench.folder)
    trained = (bench.folder / "train.csv").read_text().splitlines()
    with (bench.folder / "dev.csv").open("a") as dev:
        dev.write("\n".join(trained[1:7]) + "\n")
    lines, *_ = code_of(root / "docs/guides/python.md")
    tiny = (
        "epochs=3, depths=[0, 1], learning_rate=[2e-3], extend=False, seeds=2, cpus_per_trial=1.5"
    )
    for theirs, ours in (('"minilm", rows', f'"model", rows, {tiny}'), ("print(", "said = (")):
        assert lines.count(theirs) == 1
        lines = lines.replace(theirs, ours)
    names: dict[str, Any] = {}
    exec(lines, names)
    assert ray.is_initialized()
    assert "Fine-tune" in str(names["said"]) or "full model" in str(names["said"])
    model = AutoModelForSequenceClassification.from_pretrained("mood-model")
    assert model.config.id2label == {0: "bad", 1: "good"}

    found: elsa_tune.Search = names["found"]
    assert (found.name, found.answer().task) == ("moods", "mood")
    # Six evaluation rows that are trained on: the journal and MLflow say so beside the answer.
    for asked in (found, f"sqlite:///{bench.folder}/mlruns/mlflow.db"):
        [one] = elsa_tune.answer(asked)
        leaked = one.findings[0]
        assert (leaked.code, leaked.count, leaked.of) == (FindingCode.LEAKED_ROWS, 6, 70)
        assert WarningCode.LEAKED_ROWS in [warning.code for warning in one.warnings]
    trials = found.trials()
    assert list(trials["phase"]) == ["measure"] * 4
    assert set(found.to_dataframe()["frozen_layers"]) == {0, 1}
    [again], [recorded] = elsa_tune.answer(trials), elsa_tune.answer("moods")
    assert again.operating_point is not None and recorded.operating_point is not None
    assert again.operating_point.retention == recorded.operating_point.retention
    # The same once more is answered at once; with other settings it is refused.
    assert elsa_tune.resume("moods") == elsa_tune.load_search("moods") == found
    with pytest.raises(StorageError, match=r"epochs 4 \(recorded: 3\)"):
        exec(lines.replace("epochs=3", "epochs=4"), {})
    assert capsys.readouterr().out == ""


def ids_of(rows: TokenRows) -> list[list[int]]:
    """Each row's tokens; all rows of this task have as many."""
    return [ids.tolist() for ids in np.split(rows.input_ids, rows.offsets[1:-1])]


@pytest.mark.filterwarnings("ignore")  # Trainer's and accelerate's are not ours
def test_the_guides_trainer_gives_what_a_trial_gives(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Quality within the noise of three seeds of `elsa-tune trial`'s own loop."""
    bench = make_bench(tmp_path, train=256)
    monkeypatch.chdir(bench.folder)
    inputs = read_inputs("model", "task.yaml", overrides=["epochs=3", "batch_size=8"])
    data = prepare(inputs.model, inputs.task, inputs.recipe)
    trials = [
        list(train(inputs.trial(FreezeDepth.of(1), 2e-3, seed), data, device="cpu"))[-1].quality
        for seed in (1, 2, 3)
    ]
    rows = [
        {"input_ids": ids, "labels": int(label)}
        for ids, label in zip(ids_of(data.train), data.train.labels, strict=True)
    ]
    _, _, lines, _ = code_of(root / "docs/guides/python.md")
    for theirs, ours in (
        ('"FacebookAI/roberta-base"', '"model"'),
        ("frozen_layers=9", "frozen_layers=1"),
        ("learning_rate=5e-5", "learning_rate=2e-3, report_to=[], use_cpu=True"),
    ):
        assert lines.count(theirs) == 1
        lines = lines.replace(theirs, ours)
    names: dict[str, Any] = {"train": rows}
    exec(lines, names)
    model = names["model"].eval()
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(ids_of(data.evaluation))).logits
    quality = float(np.mean(logits.argmax(1).numpy() == data.evaluation.labels))
    spread = max(trials) - min(trials)
    assert min(trials) - spread - 0.05 <= quality <= max(trials) + spread + 0.05


@pytest.mark.usefixtures("ray")
def test_the_guides_pretended_search_is_recorded_as_any_other(
    root: Path, places: StorePaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(places.working_directory)
    *_, lines = code_of(root / "docs/guides/python.md")
    names: dict[str, Any] = {}
    exec(lines, names)
    statuses = {trial.status for trial in names["record"].trials.values()}
    assert TrialStatus.COMPLETED in statuses
    assert [point.candidate.frozen_layers for point in elsa_tune.curve("pretended")[0].points] == [
        0,
        3,
        6,
    ]


# Quickly, without training, in tests/unit/test_several.py.
@pytest.mark.thorough
@pytest.mark.usefixtures("ray")
def test_two_tasks_in_one_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the Ray that is there: two searches, the joint answer, then a model of each."""
    bench = make_bench(tmp_path, train=128)
    monkeypatch.chdir(bench.folder)
    task = Path("task.yaml").read_text()
    name = re.search(r"^name: (.*)$", task, flags=re.MULTILINE)
    assert name is not None
    Path("other.yaml").write_text(task.replace(name[0], "name: other"))
    tiny = ("epochs=2", "depths=[0, 1]", "learning_rate=[2e-3]", "extend=false", "seeds=2")
    command = [
        *("search", "--model", "model", "--task", "task.yaml", "--task", "other.yaml"),
        *("--name", "both", "--cpus-per-trial", "1.5"),
        *(part for text in tiny for part in ("--set", text)),
    ]
    first = CliRunner().invoke(app, command, catch_exceptions=False)
    assert "search 2 of 2: both-other" in first.stderr
    assert "all tasks together" in first.stdout
    assert ray.is_initialized()
    again = CliRunner().invoke(app, command, catch_exceptions=False)
    assert (again.stdout, again.exit_code) == (first.stdout, first.exit_code)
    assert "search 1 of 2" not in again.stderr
    models = ["export", "--search", "both", "--all", "--layers", "1", "--out", "models"]
    CliRunner().invoke(app, models, catch_exceptions=False)
    saved = sorted(path.parent.name for path in Path("models").glob("*/model.safetensors"))
    assert saved == sorted(["other", name[1]])


def test_an_editor_completes_names_and_arguments(root: Path) -> None:
    """As Jupyter and editors ask for them: nothing is run."""
    project = jedi.Project(root)
    names = {
        one.name for one in jedi.Script("import elsa_tune\nelsa_tune.", project=project).complete()
    }
    assert set(elsa_tune.__all__) <= names
    for function, argument in (("search", "max_time"), ("export", "onnx"), ("freeze", "model")):
        code = f"import elsa_tune\nelsa_tune.{function}("
        [signature] = jedi.Script(code, project=project).get_signatures()
        assert argument in [parameter.name for parameter in signature.params]
    code = "import elsa_tune\nelsa_tune.load_search('moods')."
    methods = {one.name for one in jedi.Script(code, project=project).complete()}
    assert {"answer", "trials", "to_dataframe"} <= methods
