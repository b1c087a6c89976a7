"""Several labels a row: a type of task in one file goes every way that the shipped ones go."""

from __future__ import annotations

import dataclasses
import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml
from pydantic import TypeAdapter

import elsa_tune
from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.statistics.intervals import Interval
from elsa_tune.errors import DataError, ExtensionError, ModelError
from elsa_tune.exporting import bundle as bundling
from elsa_tune.exporting.choice import choose, model_card, pipeline_options
from elsa_tune.exporting.model import train_final
from elsa_tune.searching.inputs import read_inputs
from elsa_tune.searching.launch import _check_trainable
from elsa_tune.searching.record import SearchRecord, started
from elsa_tune.searching.tune import trainable
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.row_findings import FindingCode
from elsa_tune.specs.task import Metric, TaskKind, TaskSpec
from elsa_tune.specs.trial import Phase, Precision, Recipe, Selection, TrialSpec
from elsa_tune.tasks.task_file import read_task_file
from elsa_tune.tasks.types.base import Kernel, TaskType, register
from elsa_tune.tasks.types.registry import type_of, type_of_export
from elsa_tune.tasks.types.scores import chance, score
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.mlflow.models import log_model
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.tracking.state import read_state
from elsa_tune.training import saved
from elsa_tune.training.data.preparation import prepare, read_splits
from elsa_tune.training.data.row_checks import row_findings
from elsa_tune.training.loop import train
from elsa_tune.training.probe import linear_probe
from tests.conftest import Run
from tests.exporting import exported_model
from tests.registering import registered
from tests.unit.result_rows import row as result_row
from tests.unit.search_examples import make_spec
from tests.unit.test_saved import task_of
from tests.unit.tiny_trials import make_trial, tiny_bert

ROOT = Path(__file__).resolve().parents[2]
WORDS = {"war": "the best film", "love": "a dull story", "crime": "never good fun"}
DESCRIBED = """
name: topics
kind: several
files: {train: [train.csv], evaluation: [dev.csv]}
text: [text]
label: topics
"""
RECIPE = Recipe(epochs=4, batch_size=16, precision=Precision.FP32, max_length=24)
SEEDS = 3
# In place of what sends records to MLflow.
NOBODY: Any = SimpleNamespace(offer=lambda record: None)


def rows_with(count: int, seed: int) -> pd.DataFrame:
    """Texts, each of which has the words of its topics, mostly; some have none."""
    draw = np.random.default_rng(seed)
    rows = []
    for number in range(count):
        topics = [name for name in WORDS if draw.random() < 0.4]
        words = [WORDS[name] for name in topics if draw.random() < 0.9]
        rows.append({"text": f"{' '.join(words)} {number} of {seed}", "topics": "; ".join(topics)})
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def several() -> Iterator[Any]:
    with registered("tests.several_labels") as module:
        yield module


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("topics")
    rows_with(160, 1).to_csv(folder / "train.csv", index=False)
    rows_with(80, 2).to_csv(folder / "dev.csv", index=False)
    (folder / "task.yaml").write_text(DESCRIBED)
    tiny_bert(folder / "bert", layers=2)
    return folder


@pytest.fixture(scope="module")
def task(several: Any, folder: Path) -> TaskSpec:
    return read_task_file(folder / "task.yaml")


@pytest.fixture(scope="module")
def trial(task: TaskSpec, folder: Path) -> TrialSpec:
    trial = make_trial(resolve_model(str(folder / "bert")), 1)
    return dataclasses.replace(trial, task=task, recipe=RECIPE, learning_rate=1e-2)


def test_classes_are_found_in_the_rows_and_an_empty_cell_has_none(
    task: TaskSpec, folder: Path, several: Any
) -> None:
    assert task.classes == ("crime", "love", "war") and task.outputs == 3
    assert (task.metric, task.companions) == (several.MICRO, (several.MACRO, several.SUBSET))
    cells = pd.read_csv(folder / "train.csv", keep_default_na=False)["topics"]
    splits = read_splits(task, RECIPE)
    train = splits["train"]
    assert (cells == "").any() and len(train) == len(cells) and not train.notes
    for row, cell in zip(train.labels, cells, strict=True):
        assert type_of(task.kind).label_text(task, row) == sorted(filter(None, cell.split("; ")))
    listed = DESCRIBED + "classes: [war, love, crime]\n"
    (folder / "listed.yaml").write_text(listed)
    again = read_splits(read_task_file(folder / "listed.yaml"), RECIPE)["train"]
    assert again.labels.tolist() == train.labels[:, ::-1].tolist()


def test_a_label_that_is_none_of_the_listed_ones_is_refused_with_its_place(
    folder: Path, several: Any
) -> None:
    (folder / "few.yaml").write_text(DESCRIBED + "classes: [war, love]\n")
    with pytest.raises(DataError, match=r"train\.csv line \d+: label 'crime' is not one of"):
        read_splits(read_task_file(folder / "few.yaml"), RECIPE)


@pytest.mark.parametrize(
    ("name", "said"),
    [("SEVERAL", "kind of label 'several'"), ("SUBSET", "metric 'subset_accuracy'")],
)
def test_what_the_program_itself_defines_is_refused_before_a_search_starts(
    name: str,
    said: str,
    task: TaskSpec,
    folder: Path,
    several: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    inputs = read_inputs(str(folder / "bert"), str(folder / "task.yaml"))
    inputs.check([])
    monkeypatch.setattr(getattr(several, name), "home", "__main__")
    sentence = f"{said} is defined in the program itself, which workers cannot import"
    with pytest.raises(ExtensionError, match=sentence):
        inputs.check([])
    with pytest.raises(ExtensionError, match=sentence):
        _check_trainable(make_spec(task=task))


def test_one_label_alone_is_refused_without_a_word_of_numbers(several: Any, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,topics\none,war\ntwo,\nthree,war\n")
    shutil.copy(tmp_path / "train.csv", tmp_path / "dev.csv")
    (tmp_path / "task.yaml").write_text(DESCRIBED)
    with pytest.raises(DataError, match=r"\(war\); a task of kind several needs two") as refused:
        read_task_file(tmp_path / "task.yaml")
    assert "regression" not in str(refused.value)


def test_rows_are_checked_as_those_of_any_task(
    task: TaskSpec, folder: Path, tmp_path: Path
) -> None:
    frame = rows_with(60, 3)
    frame.loc[0] = ["one text", "war"]
    frame.loc[1] = ["One  text", "war; love"]
    frame.loc[2] = ["one text", "war"]
    frame.to_csv(tmp_path / "train.csv", index=False)
    dev = rows_with(30, 4)
    dev["topics"] = dev["topics"].str.replace("crime", "")
    dev.to_csv(tmp_path / "dev.csv", index=False)
    text = DESCRIBED + "classes: [war, love, crime, peace]\n"
    (tmp_path / "task.yaml").write_text(text)
    odd = read_task_file(tmp_path / "task.yaml")
    found = {f.code: f for f in row_findings(odd, read_splits(odd, RECIPE))}
    assert found[FindingCode.CONTRADICTING_LABELS].count == 3
    assert found[FindingCode.DUPLICATE_ROWS].count == 1
    assert found[FindingCode.CLASSES_NOT_EVALUATED].named == 2
    assert found[FindingCode.CLASSES_NOT_TRAINED].names == ("'peace'",)


def test_a_holdout_has_every_label_or_the_search_does_not_begin(
    task: TaskSpec, several: Any
) -> None:
    recipe = dataclasses.replace(RECIPE, selection=Selection.HOLDOUT)
    splits = read_splits(task, recipe)
    assert splits["holdout"].labels.sum(axis=0).min() > 0
    few = dataclasses.replace(recipe, train_size=5)
    with pytest.raises(DataError, match=r"a holdout of .* of 5 training rows .* of class '"):
        read_splits(task, few)


def test_tasks_shows_the_rows_of_each_label(task: TaskSpec, folder: Path, run: Run) -> None:
    status, out, said = run("tasks", str(folder / "task.yaml"), "--format", "json")
    assert status == 0, said
    shown = json.loads(out)
    cells = pd.read_csv(folder / "train.csv", keep_default_na=False)["topics"]
    counts = {name: int(cells.str.contains(name).sum()) for name in task.classes}
    assert shown["kind"] == "several"
    assert shown["splits"]["train"]["labels"] == counts
    first = [example["label"] for example in shown["examples"]]
    assert first[0] == sorted(filter(None, cells[0].split("; ")))


@pytest.mark.parametrize("metric", ["labels_f1_micro", "labels_f1_macro", "subset_accuracy"])
def test_its_metrics_are_scikit_learns_and_chance_is_the_best_constants(
    metric: str, several: Any
) -> None:
    from sklearn.metrics import accuracy_score, f1_score

    draw = np.random.default_rng(5)
    labels = (draw.random((90, 4)) < (0.6, 0.4, 0.2, 0.1)).astype(np.int64)
    answers = np.where(draw.random(labels.shape) < 0.8, labels, 1 - labels)

    def expected(answers: np.ndarray) -> float:
        if metric == "subset_accuracy":
            return float(accuracy_score(labels, answers))
        average = metric.rsplit("_", 1)[1]
        return float(f1_score(labels, answers, average=average, zero_division=0))

    assert score(Metric(metric), answers, labels, 4) == pytest.approx(expected(answers))
    constants = [np.tile(row, (90, 1)) for row in itertools.product((0, 1), repeat=4)]
    best = max(map(expected, constants))
    assert chance(Metric(metric), labels, 4) == pytest.approx(best)


def test_a_trial_learns_and_so_does_the_probe(trial: TrialSpec) -> None:
    task = trial.task
    data = prepare(trial.model, task, trial.recipe)
    *_, last = train(trial, data)
    predictions = np.asarray(last.predictions)
    assert predictions.shape == data.evaluation.labels.shape == (80, 3)
    assert last.quality == score(task.metric, predictions, data.evaluation.labels, 3)
    assert list(last.metrics) == ["labels_f1_micro", "labels_f1_macro", "subset_accuracy"]
    assert last.quality > data.chance + 0.1
    probed = linear_probe(trial.model, task, trial.recipe, data)
    assert probed.predictions.shape == (80, 3)
    assert probed.quality == score(task.metric, probed.predictions, data.evaluation.labels, 3)
    assert probed.quality > data.chance


@pytest.mark.parametrize("made", [((0, 1), (1, 1)), ((0.5, 1.5), (2.0, 0.0)), (3, 70000)])
def test_a_worker_sends_predictions_of_any_shape(made: Any, monkeypatch: Any) -> None:
    sent: list[np.ndarray] = []
    monkeypatch.setattr(trainable, "_leave", lambda work, trial, what: sent.append(what))
    monkeypatch.setattr(trainable.tune, "report", lambda told: None)
    monkeypatch.setattr(trainable, "_node", lambda: "node")

    @dataclasses.dataclass
    class Result:
        predictions: Any

    spec = SimpleNamespace(resources=None, candidates=())

    def yields(*given: Any, **more: Any) -> Iterator[Any]:
        yield Result(made)

    work: Any = SimpleNamespace(spec=spec, data=None, train=yields, checkpoints=None)
    trainable.run_trial({trainable.TRIAL: SimpleNamespace(phase=Phase.MEASURE)}, work)
    assert np.array_equal(sent[0], np.asarray(made))


@dataclasses.dataclass
class Searched:
    answer: Answer
    paths: SearchPaths
    trial: TrialSpec  # the final one
    export: Path


@pytest.fixture(scope="module")
def searched(trial: TrialSpec, tmp_path_factory: pytest.TempPathFactory) -> Searched:
    """Return a search over two depths and three seeds, exported.

    Each trial is trained here and recorded.
    """
    folder = tmp_path_factory.mktemp("search")
    depths = (FreezeDepth.of(0), FreezeDepth.of(1))
    data = prepare(trial.model, trial.task, trial.recipe)
    spec = make_spec(
        name="topics",
        model=trial.model,
        layers=2,
        task=trial.task,
        recipe=trial.recipe,
        candidates=depths,
        explored=depths,
        seeds=SEEDS,
        chance=data.chance,
        train_examples=len(data.train),
        evaluation_examples=len(data.evaluation),
    )
    paths = SearchPaths(folder, spec.name)
    paths.check_writable()
    with Journal(paths.journal) as journal:
        record = SearchRecord(spec, paths, journal, NOBODY, print)
        record.write(started(spec, 1))
        for depth in depths:
            for seed in spec.measuring_seeds:
                measured = spec.trial(Phase.MEASURE, depth, 1e-2, seed)
                train_final(spec, measured, data, record, lambda line: None)
        final = spec.trial(Phase.FINAL, depths[1], 1e-2, 99)
        _, weights = train_final(spec, final, data, record, lambda line: None)
    saved.save_classifier(mkdir(folder / "out"), final, data, weights)
    [answer] = answer_rows(
        rows_of(read_state(paths.journal), paths.folder), evidence=KeptPredictions()
    )
    return Searched(answer, paths, final, folder / "out")


def mkdir(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_kept_predictions_are_read_back_and_the_answer_is_as_sure_as_they_make_it(
    searched: Searched,
) -> None:
    rows = rows_of(read_state(searched.paths.journal), searched.paths.folder)
    assert len(rows) == 2 * SEEDS
    for row in rows:
        kept = KeptPredictions()(row)
        assert kept is not None and kept.classes == 3
        assert kept.predictions.shape == kept.labels.shape == (80, 3)
        assert kept.predictions.dtype == np.int8
        metric = Metric("labels_f1_micro")
        assert score(metric, kept.predictions, kept.labels, 3) == row.quality
    answer = searched.answer
    assert not [warning for warning in answer.warnings if "predictions" in warning.text]
    assert answer.uncertainty.examples is not None
    assert not answer.uncertainty.examples.are_counted
    assert "examples" in answer.uncertainty.basis
    alone = answer_rows(rows, evidence=lambda row: None)[0]
    assert [w for w in alone.warnings if "predictions were not used" in w.text]


def test_predictions_that_are_values_of_each_class_are_kept_as_values(
    task: TaskSpec, tmp_path: Path
) -> None:
    paths = SearchPaths(tmp_path, "shares")
    paths.check_writable()
    shares = np.random.default_rng(0).random((5, 3)).astype(np.float32)
    with Journal(paths.journal) as journal:
        record = SearchRecord(make_spec(name="shares", task=task), paths, journal, NOBODY, print)
        artifact = record.keep_predictions("one", shares + 1, shares)
    row = result_row(1, 0.5, trial="one", predictions=str(paths.folder / str(artifact)))
    kept = KeptPredictions()(row)
    assert kept is not None and kept.classes == 3
    assert kept.labels.tolist() == shares.tolist()
    assert kept.predictions.tolist() == (shares + 1).tolist()


def test_subset_accuracy_is_a_share_whose_examples_can_be_counted(searched: Searched) -> None:
    rows = rows_of(read_state(searched.paths.journal), searched.paths.folder)
    shares = [dataclasses.replace(row, metric="subset_accuracy", chance=0.1) for row in rows]
    [counted] = answer_rows(shares)
    assert counted.uncertainty.examples is not None and counted.uncertainty.examples.are_counted
    [other] = answer_rows(rows)
    assert other.uncertainty.examples is None


def test_an_export_is_what_transformers_calls_multi_label_and_answers_as_the_trial_did(
    searched: Searched,
) -> None:
    from transformers import pipeline

    task = searched.trial.task
    config = json.loads((searched.export / "config.json").read_text())
    assert config["problem_type"] == "multi_label_classification"
    assert config["elsa_tune"]["kind"] == "several"
    split = read_splits(task, searched.trial.recipe)["evaluation"]
    with np.load(searched.paths.predictions / f"{searched.trial.key}.npz") as kept:
        predictions = kept["predictions"]
    assert saved.predict(searched.export, split.texts).tolist() == predictions.tolist()
    # As the card says it: the labels with a score above one half.
    ask = pipeline("text-classification", str(searched.export), truncation=True, top_k=None)
    for text, row in zip(split.texts[0][:10], predictions, strict=False):
        above = {answer["label"] for answer in ask([text])[0] if answer["score"] > 0.5}
        assert above == set(type_of(task.kind).label_text(task, row))


def test_predict_and_a_bundle_give_the_labels_of_each_row(
    searched: Searched, folder: Path, run: Run, tmp_path: Path
) -> None:
    task = searched.trial.task
    with np.load(searched.paths.predictions / f"{searched.trial.key}.npz") as kept:
        expected = [
            ";".join(type_of(task.kind).label_text(task, row)) for row in kept["predictions"]
        ]
    scored = elsa_tune.predict(searched.export, folder / "dev.csv", probabilities=True)
    assert scored["prediction"].tolist() == expected
    probabilities = [f"probability_{name}" for name in task.classes]
    assert list(scored)[-4:] == ["prediction", *probabilities]
    above = (scored[probabilities] > 0.5).to_numpy()
    assert [";".join(np.array(task.classes)[row]) for row in above] == expected
    out = tmp_path / "scored.parquet"
    status, _, said = run("predict", str(searched.export), str(folder / "dev.csv"), f"--out={out}")
    assert status == 0, said
    assert pd.read_parquet(out)["prediction"].fillna("").tolist() == expected


def test_in_a_bundle_it_answers_beside_other_types_of_task(
    searched: Searched, folder: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundling, "ROWS", 8)
    monkeypatch.setattr(bundling, "BATCHES", (1, 4))
    monkeypatch.chdir(tmp_path)
    mood = task_of(tmp_path / "mood_task")
    exported_model(tmp_path / "mood", folder / "bert", mood, 1, max_length=24)
    shutil.copytree(searched.export, tmp_path / "topics")
    status, _, said = run("bundle", "mood", "topics", "--out", "both")
    assert status == 0, said
    texts = pd.read_csv(folder / "dev.csv")["text"].tolist()
    found = elsa_tune.load_bundle("both").predict(texts)
    alone = elsa_tune.predict(searched.export, texts, probabilities=True)
    assert list(found["topics"].labels) == alone["prediction"].tolist()
    assert found["topics"].logits.shape == (len(texts), 3)
    assert set(found["mood"].labels) <= {"bad", "good"}
    # As sure as the least sure choice of the row.
    least = alone.filter(like="probability_").map(lambda p: max(p, 1 - p)).min(axis=1)
    assert found["topics"].scores == pytest.approx(least.to_numpy(), abs=1e-4)
    both = elsa_tune.predict("both", texts)
    assert both["topics_prediction"].tolist() == alone["prediction"].tolist()


def test_the_card_says_how_its_answers_are_read(searched: Searched) -> None:
    choice = choose([searched.answer], layers=1)
    task = searched.trial.task
    card = model_card(choice, task, searched.trial.model, {"quality": 0.5})
    _, head, body = card.split("---\n", 2)
    assert yaml.safe_load(head)["metrics"] == ["labels_f1_micro"]
    assert 'model=".", truncation=True, top_k=None)' in body
    assert "The labels are `crime`, `love`, `war`, read from `text`. A row has every" in body
    assert "micro F1 of labels" in body


def test_the_card_leaves_out_what_is_not_known(searched: Searched) -> None:
    choice = choose([searched.answer], layers=1)
    task = searched.trial.task
    point = dataclasses.replace(choice.point, retention=None, corrected_retention=None)
    everywhere = Interval(value=0.5, low=0.0, high=1.0, lower=0.0)
    unlearnt = dataclasses.replace(choice, point=point, promised=everywhere)
    card = model_card(unlearnt, task, searched.trial.model, {"quality": 0.5})
    assert "the search kept" not in card and ",\ncorrected for chance" not in card
    assert "\nThe exported model has 50.0 micro F1 of labels.\n" in card


@pytest.mark.filterwarnings("ignore")  # MLflow and its libraries warn of their own code
def test_the_model_in_mlflow_answers_as_the_card_says(searched: Searched, tmp_path: Path) -> None:
    store = MlflowStore(f"sqlite:///{tmp_path}/mlflow.db")
    store.initialise(lambda line: None)
    experiment = store.client().create_experiment("topics", (tmp_path / "files").as_uri())
    run_id = store.client().create_run(experiment).info.run_id
    options = pipeline_options(searched.trial.task)
    assert options == {"truncation": True, "top_k": None}
    text = "the best film never good fun"
    ask = saved.classifier(searched.export)
    versions = {"python": "3.12.1", "torch": "2.13.0+cpu", "transformers": "5.20.0"}
    log_model(store, run_id, ask, {"text": text}, options, versions)
    [model] = store.client().search_logged_models([experiment])
    file = Path(model.artifact_location.removeprefix("file://"), "requirements.txt")
    required = file.read_text().splitlines()
    assert {"torch==2.13.0", "transformers==5.20.0"} < set(required)
    assert not [line for line in required if "+" in line]  # builds that PyPI does not have
    loaded = mlflow.pyfunc.load_model(model.artifact_location)
    [answers] = loaded.predict([{"text": text}]).to_numpy().tolist()
    assert {answer["label"] for answer in answers} == {"crime", "love", "war"}
    assert answers == ask([text], **options)[0]


def test_an_export_of_a_kind_that_is_not_here_is_read_by_its_problem_type(several: Any) -> None:
    classification = type_of(TaskKind.CLASSIFICATION)
    assert type_of_export("of_another", "single_label_classification") is classification
    assert type_of_export(None, None) is classification
    assert type_of_export(None, "regression") is type_of(TaskKind.REGRESSION)
    assert type_of_export(None, "multi_label_classification") is type_of(several.SEVERAL)
    with pytest.raises(ModelError, match="of_another"):
        type_of_export("of_another", None)


def test_a_metric_belongs_to_one_file(several: Any) -> None:
    class Accuracy(Kernel):
        def scorer(self, *given: Any) -> Any:
            raise NotImplementedError

    class Mine(type(type_of(several.SEVERAL))):  # type: ignore[misc]
        pass

    mine: TaskType = Mine()
    with pytest.raises(ValueError, match=r"classification computes metric 'accuracy'"):
        register(mine, {Metric.ACCURACY: Accuracy()})
    assert type(type_of(several.SEVERAL)) is not Mine
    with pytest.raises(ValueError, match="has a metric 'f1' already"):
        Metric.define("f1", __name__)


SHIPPED = """
import sys
from pathlib import Path
from pydantic import TypeAdapter
from elsa_tune.specs.task import Metric
assert "numpy" not in sys.modules
assert TypeAdapter(Metric).validate_python("subset_accuracy").is_share
from elsa_tune.searching.specification import load_specification
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.words import metric_text
spec = load_specification(SearchPaths(Path(sys.argv[1]), "topics"))
print(spec.task.kind.home, metric_text(spec.task.metric))
"""


def test_as_one_that_ships_it_is_its_file_and_a_name_in_the_registry(
    searched: Searched, folder: Path, tmp_path: Path
) -> None:
    """In a copy of the package, `tasks FILE` and a recorded search know it.

    Nothing else is edited.
    """
    copy = tmp_path / "elsa_tune"
    shutil.copytree(ROOT / "elsa_tune", copy, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "search_spaces", tmp_path / "search_spaces")
    types = copy / "tasks" / "types"
    shutil.copy(ROOT / "tests" / "several_labels.py", types)
    registry = (types / "registry.py").read_text()
    imported = re.search(r"from elsa_tune.tasks.types import \(?", registry)
    assert imported is not None
    end = imported.end()
    (types / "registry.py").write_text(f"{registry[:end]}several_labels, {registry[end:]}")

    def ran(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    out = ran("-m", "elsa_tune", "tasks", str(folder / "task.yaml"), "--format", "json")
    assert set(json.loads(out)["splits"]["train"]["labels"]) == {"crime", "love", "war"}
    spec = make_spec(name="topics", task=searched.trial.task)
    recorded = TypeAdapter(type(spec)).dump_json(spec)
    place = SearchPaths(tmp_path / "searches", "topics")
    place.folder.mkdir(parents=True)
    place.specification.write_bytes(recorded)
    home, words = ran("-c", SHIPPED, str(tmp_path / "searches")).strip().split(" ", 1)
    assert (home, words) == ("elsa_tune.tasks.types.several_labels", "micro F1 of labels")
