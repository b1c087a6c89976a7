"""Data sets as `datasets` holds them: which columns and splits are meant, and which are refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import datasets
import pytest
import yaml
from datasets import ClassLabel, Dataset, DatasetDict, Features, List, Value
from huggingface_hub.utils import logging as hub_logging
from pydantic import TypeAdapter

from elsa_tune.errors import DataError, UnknownNameError
from elsa_tune.specs.task import DataSetSource, Metric, TaskKind, TaskSource, TaskSpec
from elsa_tune.specs.trial import Recipe
from elsa_tune.tasks.data_set_task import Wanted, read_reference, task_of
from elsa_tune.tasks.data_sets.data_set import DataSet
from elsa_tune.tasks.data_sets.reading import read_data_set
from elsa_tune.tasks.frames import write_task
from elsa_tune.tasks.hub import HUB_TASKS
from elsa_tune.tasks.task_file import read_task_file, resolve_task
from elsa_tune.training.data.preparation import read_splits
from elsa_tune.training.data.texts import read_texts
from tests.conftest import Run

STRING, FLOAT, WHOLE = Value("string"), Value("float64"), Value("int64")
MOOD = ClassLabel(names=["bad", "good"])
ROWS = 8

_VALUES: dict[str, Any] = {"string": "some text", "float64": 0.5, "int64": 1}


def data_set(count: int = ROWS, **columns: Any) -> Dataset:
    """Rows of these columns: features with made-up values, or a feature with its values."""
    features = {name: one[0] if isinstance(one, tuple) else one for name, one in columns.items()}
    values = {
        name: one[1]
        if isinstance(one, tuple)
        else [_made_up(features[name], n) for n in range(count)]
        for name, one in columns.items()
    }
    return Dataset.from_dict(values, features=Features(features))


def _made_up(feature: Any, row: int) -> Any:
    if isinstance(feature, ClassLabel):
        return row % feature.num_classes
    if isinstance(feature, List):
        return [_made_up(feature.feature, row), _made_up(feature.feature, row + 1)]
    value = _VALUES[feature.dtype]
    return f"{value} {row}" if isinstance(value, str) else value * row


def task(splits: Mapping[str, Dataset] | Dataset, **wanted: Any) -> TaskSpec:
    found = dict(splits) if isinstance(splits, Mapping) else {"train": splits}
    return task_of(DataSet("owner/name", found), Wanted(name="mood", **wanted))


def test_what_annotators_did_not_agree_on_is_no_class() -> None:
    labels = ["neutral", "entailment", "-", "contradiction"] * 2
    found = task(data_set(text=STRING, gold_label=(STRING, labels)))
    assert found.classes == ("contradiction", "entailment", "neutral")


def test_a_folder_called_as_a_task_that_ships_gets_a_name_of_its_own(tmp_path: Path) -> None:
    rows = data_set(text=STRING, label=MOOD)
    for name in ("rte", "all", "imdb"):  # the last may be a copy of the hub's
        rows.save_to_disk(tmp_path / name)
    names = [resolve_task(str(tmp_path / name)).name for name in ("rte", "all", "imdb")]
    assert names == ["rte_own", "all_own", "imdb"]


def source(of: TaskSpec) -> DataSetSource:
    assert isinstance(of.source, DataSetSource)
    return of.source


@pytest.mark.parametrize(
    ("columns", "texts", "label"),
    [
        ({"idx": WHOLE, "text": STRING, "label": MOOD}, ("text",), "label"),
        (
            {"premise": STRING, "hypothesis": STRING, "label": MOOD},
            ("premise", "hypothesis"),
            "label",
        ),
        ({"title": STRING, "content": STRING, "topic": MOOD}, ("title", "content"), "topic"),
        ({"utterance": STRING, "id": STRING, "intent": STRING}, ("utterance",), "intent"),
        ({"narrative": STRING, "verdict": MOOD}, ("narrative",), "verdict"),
        # Beside its text a label is only a number.
        ({"text": STRING, "label": WHOLE, "label_text": STRING}, ("text",), "label_text"),
        ({"text": STRING, "fine_label": MOOD, "coarse_label": MOOD}, ("text",), "coarse_label"),
        # Tags beside a label are no labels of ours.
        ({"text": STRING, "label": MOOD, "tags": List(STRING)}, ("text",), "label"),
    ],
)
def test_columns_are_chosen_by_what_they_hold_and_by_their_names(
    columns: dict[str, Any], texts: tuple[str, ...], label: str
) -> None:
    found = task(data_set(**columns))
    assert (found.text_columns, found.label_column) == (texts, label)


def test_columns_that_are_named_win() -> None:
    rows = data_set(text=STRING, note=STRING, label=MOOD, urgent=ClassLabel(names=["no", "yes"]))
    found = task(rows, text=("note",), label="urgent")
    assert (found.text_columns, found.label_column) == (("note",), "urgent")
    assert found.classes == ("no", "yes")


@pytest.mark.parametrize(
    ("columns", "wanted", "said"),
    [
        (
            {"text": STRING, "labels": List(ClassLabel(names=["joy", "fear", "rage"]))},
            {},
            r"column 'labels' of data set 'owner/name' has several labels a row; elsa-tune learns "
            r"one label a row.*'text' \(string\)",
        ),
        ({"text": STRING, "labels": List(WHOLE)}, {}, "several labels a row"),
        ({"text": STRING, "tags": List(STRING)}, {"label": "tags"}, "several labels a row"),
        (
            {"tokens": List(STRING), "ner_tags": List(ClassLabel(names=["O", "B-PER"]))},
            {},
            "column 'ner_tags' .* has token labels, a label for each word; .* a row: none",
        ),
        ({"text": STRING, "one": MOOD, "two": MOOD}, {}, r"several labels \(one, two\); name the"),
        ({"text": STRING, "length": WHOLE}, {}, r"names no label; .* 'length' \(int64\)"),
        ({"label": MOOD, "length": WHOLE}, {}, "holds no column of texts"),
        (
            {"left": STRING, "right": STRING, "label": MOOD},
            {},
            "several columns of texts; name one",
        ),
        ({"text": STRING, "label": MOOD}, {"label": "lable"}, "`label` lable: .* no such column"),
        ({"text": STRING, "label": MOOD}, {"text": ("label",)}, "both name the column 'label'"),
        ({"text": STRING, "label": MOOD}, {"text": ("text",) * 2}, "names the column 'text' twice"),
        (
            {"a": STRING, "b": STRING, "c": STRING, "label": MOOD},
            {"text": ("a", "b", "c")},
            r"`text` names 3 columns \(a, b and c\), but a row is a text or a pair",
        ),
        ({"text": STRING, "label": MOOD}, {"text": ("txt",)}, "`text` txt: .* no such column"),
        ({"text": STRING, "label": (STRING, ["a"] * ROWS)}, {}, "has 1 different labels"),
    ],
)
def test_what_is_not_plain_or_not_learnt_here_is_named(
    columns: dict[str, Any], wanted: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=said) as refusal:
        task(data_set(**columns), **wanted)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    ("label", "kind", "classes"),
    [
        (MOOD, TaskKind.CLASSIFICATION, ("bad", "good")),
        ((WHOLE, [2, 10] * 4), TaskKind.CLASSIFICATION, ("2", "10")),
        ((WHOLE, [-1, 0, 1, 1] * 2), TaskKind.CLASSIFICATION, ("-1", "0", "1")),
        ((Value("bool"), [True, False] * 4), TaskKind.CLASSIFICATION, ("false", "true")),
        ((FLOAT, [1.0, 2.0] * 4), TaskKind.CLASSIFICATION, ("1", "2")),
        ((FLOAT, [0.5, 2.0] * 4), TaskKind.REGRESSION, ()),
    ],
)
def test_classes_and_numbers(label: Any, kind: TaskKind, classes: tuple[str, ...]) -> None:
    found = task(data_set(text=STRING, label=label))
    assert (found.kind, found.classes) == (kind, classes)
    usual = Metric.ACCURACY if classes else Metric.SPEARMAN
    assert found.metric is usual


def unlabelled(rows: int = 4) -> Dataset:
    return data_set(rows, text=STRING, label=(MOOD, [-1] * rows))


def labelled(rows: int = ROWS) -> Dataset:
    return data_set(rows, text=STRING, label=MOOD)


@pytest.mark.parametrize(
    ("splits", "train", "evaluation"),
    [
        (
            {"train": labelled(), "test": labelled(), "validation": labelled()},
            "train",
            "validation",
        ),
        ({"train": labelled(), "dev": labelled()}, "train", "dev"),
        ({"train": labelled(), "unsupervised": unlabelled(), "test": labelled()}, "train", "test"),
        ({"train": labelled(), "validation": unlabelled(), "test": labelled()}, "train", "test"),
        ({"train": labelled(), "test": unlabelled()}, "train", None),
        ({"train": labelled(), "test": data_set(text=STRING)}, "train", None),
        ({"full": labelled()}, "full", None),
    ],
)
def test_the_evaluation_split_is_the_validation_split_else_a_test_split_with_labels(
    splits: dict[str, Dataset], train: str, evaluation: str | None
) -> None:
    found = source(task(splits))
    assert (found.train, found.evaluation) == (train, evaluation)
    assert found.evaluation_share == (None if evaluation else 0.2)


@pytest.mark.parametrize("first", [data_set(text=STRING, label=(WHOLE, [-1] * ROWS)), unlabelled()])
def test_labels_are_what_the_training_split_holds_whichever_split_comes_first(
    first: Dataset, tmp_path: Path, run: Run
) -> None:
    moods = ClassLabel(names=["pos", "neg"])
    classes = task({"test": first, "train": data_set(text=STRING, label=moods)})
    assert classes.classes == ("pos", "neg")
    numbers = task({"test": first, "train": data_set(text=STRING, label=FLOAT)})
    assert numbers.kind is TaskKind.REGRESSION
    named = task({"a": first, "b": data_set(text=STRING, label=moods)}, train="b")
    assert named.classes == ("pos", "neg")
    folder = saved(tmp_path / "moods", test=first, train=data_set(text=STRING, label=moods))
    told = json.loads(run("tasks", str(folder), "--format", "json").out)
    assert told["columns"]["label"] == "2 classes: pos, neg"


def test_a_first_split_without_the_label_is_no_error() -> None:
    found = task({"test": data_set(text=STRING), "train": labelled()})
    assert (found.label_column, source(found).train) == ("label", "train")


@pytest.mark.parametrize(
    ("splits", "wanted", "said"),
    [
        ({"a": labelled(), "b": labelled()}, {}, "has no split 'train', only a, b; name the one"),
        (
            {"train": labelled()},
            {"train": "trian"},
            "`train` trian: .* no such split; it has train",
        ),
        ({"train": labelled()}, {"evaluation": "dev"}, "`evaluation` dev: .* no such split"),
        ({"train": labelled()}, {"evaluation": "train"}, "both trained on and evaluated"),
        (
            {"train": labelled(), "test": unlabelled()},
            {"evaluation": "test"},
            r"split 'test' of data set 'owner/name' has no labels in column 'label' \(all are "
            r"empty or -1\); give rows with labels, or none, so that a part of 'train' is",
        ),
        (
            {"train": labelled(), "dev": labelled(), "test": unlabelled()},
            {"evaluation": "test"},
            r"split 'test' .* has no labels .*; evaluate on another split: dev$",
        ),
        (
            {"train": labelled(), "test": data_set(text=STRING)},
            {"evaluation": "test"},
            r"split 'test' of data set 'owner/name' has no column 'label'; it has 'text' \(string"
            r"\): all splits that are read need the same columns",
        ),
    ],
)
def test_splits_that_cannot_be_used_are_refused(
    splits: dict[str, Dataset], wanted: dict[str, Any], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        task(splits, **wanted)


def saved(folder: Path, **splits: Dataset) -> Path:
    DatasetDict(splits).save_to_disk(folder)
    return folder


def test_a_saved_data_set_is_a_task(tmp_path: Path, run: Run) -> None:
    rows = data_set(
        text=(STRING, [f"text {n}" for n in range(7)] + [None]),
        label=(MOOD, [0, 1, -1, 1, 0, 1, 0, 1]),
        idx=WHOLE,
    )
    folder = saved(tmp_path / "moods", train=rows, test=labelled(4))
    found = resolve_task(str(folder))
    assert (found.name, found.classes, found.metric) == ("moods", ("bad", "good"), Metric.ACCURACY)
    splits = read_texts(found)
    # Rows without a text or a label are left out, and counted.
    assert splits["train"].labels.tolist() == [0, 1, 1, 0, 1, 0]
    assert splits["train"].texts[0][:3] == ["text 0", "text 1", "text 3"]
    switched, no_label, no_text = splits["train"].notes
    assert "'test' is evaluated, and chooses learning rate and evaluation, too" in switched
    assert "1 of 8 rows of" in no_label and "missing label (line 3)" in no_label
    assert "missing text (line 8)" in no_text
    assert splits["evaluation"].labels.tolist() == [0, 1, 0, 1]
    # What a search keeps of it is what it was.
    kept: TypeAdapter[TaskSource] = TypeAdapter(TaskSource)
    assert kept.validate_json(kept.dump_json(found.source)) == found.source
    shown = run("tasks", str(folder), "--format", "json")
    assert shown.status == 0
    told = json.loads(shown.out)
    assert told["columns"] == {"text": "string", "label": "2 classes: bad, good", "idx": "int64"}
    assert told["splits"]["train"]["labels"] == {"bad": 3, "good": 3}


def test_libraries_say_afterwards_what_they_said_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = saved(tmp_path / "moods", train=labelled())
    during: list[tuple[int, int, bool]] = []

    def said() -> tuple[int, int, bool]:
        return (
            datasets.logging.get_verbosity(),
            hub_logging.get_verbosity(),
            datasets.are_progress_bars_disabled(),
        )

    def load(place: Path) -> Dataset:
        during.append(said())
        return labelled()

    monkeypatch.setattr(datasets, "load_from_disk", load)
    datasets.enable_progress_bars()
    before = said()
    read_data_set(str(folder))
    assert during == [(logging.CRITICAL, logging.ERROR, True)]
    assert said() == before


def test_a_single_saved_data_set_is_divided_like_a_file(tmp_path: Path) -> None:
    labelled(20).save_to_disk(tmp_path / "all")
    splits = read_splits(resolve_task(str(tmp_path / "all")), Recipe())
    assert {name: len(split) for name, split in splits.items()} == {"train": 16, "evaluation": 4}
    assert any("no evaluation split with labels: 4 of 20" in one for one in splits["train"].notes)
    assert read_splits(resolve_task(str(tmp_path / "all")), Recipe(train_size=8))["train"].where


def test_a_task_file_names_a_saved_data_set_and_what_is_meant_of_it(tmp_path: Path) -> None:
    rows = data_set(20, said=STRING, aside=STRING, mood=MOOD, urgent=MOOD)
    saved(tmp_path / "moods", train=rows, holdout=rows)
    described: dict[str, Any] = {"name": "own", "files": "moods", "label": "mood", "text": "said"}
    file = tmp_path / "task.yaml"
    file.write_text(yaml.safe_dump({**described, "evaluation": "holdout", "metric": "f1_macro"}))
    found = read_task_file(file)
    assert (found.name, found.text_columns, found.metric) == ("own", ("said",), Metric.F1_MACRO)
    assert (source(found).location, source(found).evaluation) == (
        str(tmp_path / "moods"),
        "holdout",
    )
    for more, said in (
        ({"hub": "owner/name"}, "hub and files both name the rows"),
        ({"revision": "main"}, "a folder has none"),
        (
            {"config": "plain"},
            "`config` plain: .* was written by save_to_disk.* leave `config` out",
        ),
        ({"lable": "mood"}, "did you mean 'label'|lable"),
        ({"evaluation": "holdout", "evaluation_share": 0.1}, "give one of the two"),
        ({"classes": ["a", "b"], "regression": True}, "give one of the two"),
        ({"text": ["a", "b", "c"]}, "2 or fewer"),
        ({"name": "imdb"}, "'imdb' is a built-in name"),
    ):
        file.write_text(yaml.safe_dump({**described, **more}))
        with pytest.raises(DataError, match=said):
            read_task_file(file)


def test_a_folder_that_is_no_data_set_is_refused_with_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("words")
    with pytest.raises(DataError, match=r"is no data set: save_to_disk did not.*notes\.md"):
        resolve_task(str(tmp_path))
    folder = saved(tmp_path / "cut", train=labelled())
    (folder / "train" / "dataset_info.json").write_text("{")
    with pytest.raises(DataError, match=r"cannot be read .*; save it again"):
        resolve_task(str(folder))


def test_a_broken_file_of_a_data_set_is_told_from_a_wrong_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    rows = folder / "train.parquet"
    rows.write_text("no rows")
    with pytest.raises(DataError, match=r"cannot be read \(ArrowInvalid: .*holds train\.parquet"):
        read_data_set(str(folder))
    with pytest.raises(DataError, match="has no configuration 'plain'; it has default"):
        read_data_set(str(folder), "plain")
    # Of several configurations, one is taken where none is named.
    other = folder / "other.parquet"
    data_set(2, text=STRING).to_parquet(other)
    card = folder / "README.md"
    first = {"config_name": "a", "data_files": "train.parquet"}
    second = {"config_name": "b", "data_files": "other.parquet"}
    configs = {"configs": [{**first, "default": True}, second]}
    card.write_text(f"---\n{yaml.safe_dump(configs)}---\n")
    with pytest.raises(DataError, match="ArrowInvalid"):
        read_data_set(str(folder))
    card.write_text(f"---\n{yaml.safe_dump({'configs': [first, second]})}---\n")
    with pytest.raises(DataError, match="has several configurations; it has a, b"):
        read_data_set(str(folder))


def test_a_pointer_of_git_lfs_in_a_data_set_is_told(tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "train.parquet").write_text(pointer)
    folder = saved(tmp_path / "saved", train=labelled())
    [rows] = (folder / "train").glob("*.arrow")
    rows.write_text(pointer)
    for place, file in ((copy, "train.parquet"), (folder, f"train/{rows.name}")):
        with pytest.raises(DataError, match=rf"{file} is a pointer of git-lfs; `git lfs pull`"):
            read_data_set(str(place))


def test_references_and_names() -> None:
    assert read_reference("hub:owner/name") == ("owner/name", None)
    assert read_reference("owner/na.me/con-fig") == ("owner/na.me", "con-fig")
    for slip in ("hub:imdb", "hub:a/b/c/d", "hub:"):
        with pytest.raises(DataError, match="write hub:owner/name, or hub:owner/name/config"):
            resolve_task(slip)
    with pytest.raises(UnknownNameError, match=r"did you mean 'ag_news'\?.*hub:owner/name"):
        resolve_task("agnews")
    for one in HUB_TASKS.values():
        assert read_reference(one.reference) == (one.repository, one.config)


def test_a_program_gives_a_data_set_as_it_is(tmp_path: Path) -> None:
    rows = DatasetDict(train=labelled(), validation=labelled(4), test=unlabelled())
    found = read_task_file(write_task(rows, tmp_path, "mood"))
    assert (found.text_columns, found.label_column) == (("text",), "label")
    assert found.classes == ("bad", "good")
    splits = read_texts(found)
    assert splits["evaluation"].labels.tolist() == [0, 1, 0, 1]
    assert splits["train"].texts[0] == rows["train"]["text"][:]
    # One split alone, and other columns than the usual ones.
    one = data_set(20, said=STRING, aside=STRING, score=FLOAT)
    alone = read_task_file(write_task(one, tmp_path, "mood", "said", "score"))
    assert (alone.kind, alone.text_columns) == (TaskKind.REGRESSION, ("said",))
    assert write_task(one, tmp_path, "mood", "said", "score").parent.name.startswith("mood-")
    with pytest.raises(DataError, match="several labels a row"):
        write_task(data_set(text=STRING, labels=List(MOOD)), tmp_path, "mood")


def test_a_pair_of_data_sets_is_read_as_their_splits_are(tmp_path: Path) -> None:
    some = data_set(text=STRING, label=(MOOD, [0, 1, -1, 1] * 2))
    pair = read_task_file(write_task((some, labelled(4)), tmp_path, "mood"))
    assert pair.classes == ("bad", "good")
    assert [len(split) for split in read_texts(pair).values()] == [6, 4]


@pytest.mark.parametrize(
    ("second", "said"),
    [
        # As the hub marks the rows of a test split whose labels are kept back.
        (unlabelled(), "split 'evaluation' of data set 'the rows' has no labels in column 'label'"),
        (data_set(text=STRING), "split 'evaluation' .* has no column 'label'"),
        (data_set(label=MOOD), "split 'evaluation' .* has no column 'text'"),
    ],
)
def test_what_a_program_gives_to_evaluate_is_evaluated_or_refused(
    second: Dataset, said: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=said):
        write_task((labelled(), second), tmp_path, "mood")
    assert not list(tmp_path.iterdir())


def test_a_data_set_that_streams_is_refused(tmp_path: Path) -> None:
    streaming = labelled().to_iterable_dataset()
    said = "rows are an IterableDataset, which streams; load the data set without `streaming`"
    for rows in (streaming, (labelled(), streaming), {"train": streaming}):
        with pytest.raises(DataError, match=said):
            write_task(rows, tmp_path, "mood")


def test_a_program_says_what_a_data_sets_numbers_are(tmp_path: Path) -> None:
    whole = data_set(text=STRING, label=(WHOLE, list(range(ROWS))))
    for regression, kind in ((True, TaskKind.REGRESSION), (False, TaskKind.CLASSIFICATION)):
        file = write_task(whole, tmp_path, "mood", further={"regression": regression})
        assert read_task_file(file).kind is kind


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("rows.jsonl", '{"text": "a", "label": ["x", "y"]}\n{"text": "b", "label": ["x"]}\n'),
        ("rows.csv", "text,label\na,\"['x', 'y']\"\nb,['x']\nc,[]\n"),
        ("rows.csv", 'text,label\na,"[0, 1]"\nb,[1]\n'),
    ],
)
def test_lists_as_labels_of_a_file_are_refused_by_name(
    name: str, content: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    file = tmp_path / "task.yaml"
    file.write_text(f"name: many\nfiles: {name}\ntext: text\nlabel: label\n")
    with pytest.raises(DataError, match=r"several labels a row(, token labels| and token labels)"):
        read_task_file(file)


def test_classes_in_brackets_are_classes(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("text,label\na,[spam]\nb,[ham]\n")
    file = tmp_path / "task.yaml"
    file.write_text("name: mail\nfiles: rows.csv\ntext: text\nlabel: label\n")
    assert read_task_file(file).classes == ("[ham]", "[spam]")


def test_a_saved_data_set_is_cleaned_as_files_are(tmp_path: Path) -> None:
    names = ClassLabel(names=["bad", "good", "Good ", "N/A"])
    rows = data_set(12, text=(STRING, [f"t {n % 8}" for n in range(12)]), label=names)
    saved(tmp_path / "moods", train=rows, validation=data_set(4, text=STRING, label=names))
    file = tmp_path / "task.yaml"
    described: dict[str, Any] = {"name": "own", "files": "moods", "missing_labels": "N/A"}
    file.write_text(yaml.safe_dump({**described, "merge_labels": True, "drop_duplicates": True}))
    found = read_task_file(file)
    assert found.classes == ("bad", "good")
    splits = read_splits(found, Recipe())
    # Rows 8 to 11 repeat earlier ones, and each fourth has no label.
    assert splits["train"].texts == (["t 0", "t 1", "t 2", "t 4", "t 5", "t 6"],)
    assert splits["train"].labels.tolist() == [0, 1, 1, 0, 1, 1]
    assert splits["evaluation"].labels.tolist() == [0, 1, 1]
    file.write_text(yaml.safe_dump({**described, "missing_labels": ["N/A", "good", "Good "]}))
    with pytest.raises(DataError, match="there are 1 classes; a classification needs two"):
        read_task_file(file)


def test_columns_are_named_on_the_command_line(tmp_path: Path, run: Run) -> None:
    rows = data_set(20, said=STRING, aside=STRING, mood=MOOD, urgent=MOOD)
    folder = saved(tmp_path / "moods", train=rows)
    unclear = run("tasks", folder)
    assert unclear.status == 2
    assert "has several labels (mood, urgent); name the column by --label" in unclear.err
    named = run("tasks", folder, "--label", "urgent", "--text", "aside", "--format", "json")
    assert named.status == 0
    told = json.loads(named.out)
    assert (told["texts"], told["label"]) == (["aside"], "urgent")
