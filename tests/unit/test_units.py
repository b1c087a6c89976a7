"""Which evaluation rows are one unit, and what follows: splits, findings, record, answer."""

from __future__ import annotations

import dataclasses
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from datasets import ClassLabel, Dataset, Features, List, Value

from elsa_tune.analysis.answer import Answer, Reason
from elsa_tune.analysis.answer_json import answer_object, answers_csv, curves_csv
from elsa_tune.analysis.answers import answer_rows, freeze_curves
from elsa_tune.analysis.comparing.comparison import compare_ways
from elsa_tune.analysis.comparing.ways import way_curves
from elsa_tune.analysis.groups import equal_units
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.errors import DataError, UnknownNameError
from elsa_tune.results.results_csv import write_results
from elsa_tune.searching.record import SearchRecord, facts_of
from elsa_tune.searching.specification import differing_settings
from elsa_tune.sources.source import Question
from elsa_tune.sources.tables import Table
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.result_row import Predictions, ResultRow
from elsa_tune.specs.row_findings import FindingCode, finding_lines
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import Phase, Recipe, Selection
from elsa_tune.tasks.data_set_task import Wanted, task_of
from elsa_tune.tasks.data_sets.data_set import DataSet
from elsa_tune.tasks.draft import Columns
from elsa_tune.tasks.frames import write_task
from elsa_tune.tasks.task_file import read_task_file, resolve_task
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import KeptPredictions
from elsa_tune.training.data.preparation import prepare, read_splits
from elsa_tune.training.data.row_checks import row_findings, units_of
from elsa_tune.training.data.tokens import Split
from tests.unit.result_rows import falling_curve, row, warned
from tests.unit.search_examples import make_spec
from tests.unit.tiny_models import make_tiny

GroupedTask = Callable[..., TaskSpec]


def frame(documents: Sequence[object], prefix: str = "text") -> pd.DataFrame:
    """Rows of two classes by turns, each of the document that is given for it."""
    count = len(documents)
    return pd.DataFrame(
        {
            "text": [f"{prefix} {number}" for number in range(count)],
            "label": ["no" if number % 2 else "yes" for number in range(count)],
            "document": list(documents),
        }
    )


def write(path: Path, rows: pd.DataFrame) -> None:
    if path.suffix == ".parquet":
        rows.to_parquet(path, index=False)
    elif path.suffix == ".jsonl":
        rows.to_json(path, orient="records", lines=True)
    else:
        rows.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")


@pytest.fixture
def grouped(tmp_path: Path) -> GroupedTask:
    """Return what writes a task of rows for training and evaluation, in files of an ending."""

    def _task(
        train: pd.DataFrame,
        dev: pd.DataFrame | None = None,
        suffix: str = ".jsonl",
        **fields: object,
    ) -> TaskSpec:
        files = {"train": f"train{suffix}"}
        write(tmp_path / files["train"], train)
        if dev is not None:
            files["evaluation"] = f"dev{suffix}"
            write(tmp_path / files["evaluation"], dev)
        values = {"name": "own", "files": files, "text": "text", "label": "label", **fields}
        file = tmp_path / "task.yaml"
        file.write_text(json.dumps(values), encoding="utf-8")
        return read_task_file(file)

    return _task


def units(task: TaskSpec) -> list[int] | None:
    found = units_of(read_splits(task, Recipe())["evaluation"])
    return None if found is None else found.tolist()


# --- Units ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_rows_with_the_same_cell_are_one_unit_in_every_format(
    grouped: GroupedTask, suffix: str
) -> None:
    dev = frame(["b", "a", "b", "c"], "other")
    task = grouped(frame(["x", "y", "z"]), dev, suffix, group="document")
    assert units(task) == [0, 1, 0, 2]
    assert units(dataclasses.replace(task, group_column=None)) is None


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_a_row_with_an_empty_cell_is_a_unit_of_its_own(grouped: GroupedTask, suffix: str) -> None:
    dev = frame([None, "a", None, "a", " "], "other")
    task = grouped(frame([None, "y", "z"]), dev, suffix, group="document")
    assert units(task) == [0, 1, 2, 1, 3]
    # Nor are empty cells of both splits one group.
    assert FindingCode.LEAKED_GROUPS not in codes(task)


def test_without_a_group_the_same_text_is_one_unit_whatever_its_label(
    grouped: GroupedTask,
) -> None:
    dev = frame([1, 2, 3, 4], "other")
    dev["text"] = ["One  text", "another", "one text ", "a third"]
    dev["label"] = ["no", "no", "yes", "yes"]
    assert units(grouped(frame([1, 2, 3]), dev)) == [0, 1, 0, 2]
    # With a group, its rows alone are: people may well write the same.
    assert units(grouped(frame([1, 2, 3]), dev, group="document")) is None


def test_a_text_may_be_the_group(grouped: GroupedTask) -> None:
    dev = frame([1, 2, 3], "other")
    dev["document"] = ["said", "said", "done"]
    fields = {"text": ["document", "text"], "group": "document"}
    train = frame([4, 5, 6]).astype({"document": str})
    assert units(grouped(train, dev, **fields)) == [0, 0, 1]


def test_lost_rows_leave_each_row_its_own_group(grouped: GroupedTask) -> None:
    dev = frame(["a", "b", "b", "c", "c", "a"], "other")
    dev.loc[1, "label"] = None
    assert units(grouped(frame(["x", "y", "z"]), dev, group="document")) == [0, 1, 2, 2, 0]


# --- Held out by group ---------------------------------------------------------------------------


def documents_of(split: Split) -> set[int]:
    assert split.groups is not None
    return set(split.groups.tolist())


def test_no_group_is_torn_where_rows_are_held_out(grouped: GroupedTask) -> None:
    rows = frame(np.random.default_rng(0).integers(0, 60, 600).tolist())
    task = grouped(rows, group="document")
    splits = read_splits(task, Recipe())
    train = splits["train"]
    evaluation = splits["evaluation"]
    assert not documents_of(train) & documents_of(evaluation)
    assert len(documents_of(train) | documents_of(evaluation)) == 60
    assert len(train) + len(evaluation) == 600
    assert len(evaluation) == pytest.approx(120, abs=10)
    assert "600 rows (0.2, by document, stratified, subset_seed 0) are held out" in train.notes[0]
    again = read_splits(task, Recipe(subset_seed=1))["evaluation"]
    assert documents_of(again) != documents_of(evaluation)
    # By row groups would be torn: the test could fail.
    by_row = read_splits(dataclasses.replace(task, group_column=None), Recipe())
    torn = set(by_row["train"].texts[0]) & set(evaluation.texts[0])
    assert torn


def test_groups_of_one_class_are_held_out_in_that_classs_share(grouped: GroupedTask) -> None:
    rows = frame([number // 4 for number in range(400)])
    rows["label"] = ["rare" if document % 10 == 0 else "common" for document in rows["document"]]
    evaluation = read_splits(grouped(rows, group="document"), Recipe())["evaluation"]
    assert len(evaluation) == 80
    assert np.bincount(evaluation.labels).tolist() == [72, 8]


@pytest.mark.parametrize(
    ("sizes", "held_out"),
    [
        ((50, 50), 50),  # the share cannot be met, and a group is evaluated all the same
        ((90, 4, 6), 10),  # one that is far too large is left out
        ((6, 4), 4),
    ],
)
def test_large_groups_are_held_out_as_well_as_that_allows(
    grouped: GroupedTask, sizes: tuple[int, ...], held_out: int
) -> None:
    documents = np.repeat(np.arange(len(sizes)), sizes).tolist()
    task = grouped(frame(documents), group="document")
    splits = read_splits(task, Recipe())
    assert len(splits["evaluation"]) == held_out
    assert not documents_of(splits["train"]) & documents_of(splits["evaluation"])


def test_values_are_held_out_by_group_too(grouped: GroupedTask) -> None:
    rows = frame([number // 5 for number in range(300)])
    rows["label"] = np.random.default_rng(0).random(300)
    task = grouped(rows, group="document", regression=True)
    splits = read_splits(task, Recipe())
    assert len(splits["evaluation"]) == 60
    assert not documents_of(splits["train"]) & documents_of(splits["evaluation"])


@pytest.mark.parametrize("group", ["document", None])
def test_no_unit_is_torn_where_rates_are_chosen_on_a_holdout(
    grouped: GroupedTask, group: str | None
) -> None:
    """Else the rate is chosen that remembers best. Without a group, rows of one text are a unit."""
    rows = frame(np.random.default_rng(0).integers(0, 100, 600).tolist())
    rows["text"] = [f"text of {document}" for document in rows["document"]]
    task = grouped(rows, frame([1, 2, 3], "other"), **({"group": group} if group else {}))
    holdouts = []
    for size in (300, 600):
        splits = read_splits(task, Recipe(selection=Selection.HOLDOUT, train_size=size))
        holdout = splits["holdout"]
        assert not set(splits["train"].texts[0]) & set(holdout.texts[0])
        assert len(splits["train"]) + len(holdout) == size
        assert len(holdout) == pytest.approx(size / 10, rel=0.4)
        holdouts.append(set(holdout.texts[0]))
    # A larger subset holds out what a smaller one does, and more.
    assert holdouts[0] <= holdouts[1]
    [note] = [note for note in splits["train"].notes if "selection holdout" in note]
    assert ("by document, stratified" in note) is (group is not None)


@pytest.mark.parametrize("documents", [4, 8, 12])
def test_few_groups_leave_one_of_each_class_to_be_held_out(
    grouped: GroupedTask, documents: int
) -> None:
    rows = frame([number % documents for number in range(40 * documents)])
    rows["label"] = ["yes" if document % 2 else "no" for document in rows["document"]]
    task = grouped(rows, frame([1, 2, 3], "other"), group="document")
    splits = read_splits(task, Recipe(selection=Selection.HOLDOUT))
    assert not documents_of(splits["train"]) & documents_of(splits["holdout"])
    assert np.bincount(splits["holdout"].labels).tolist() == [40, 40]


def test_one_text_that_is_most_rows_stays_in_training(grouped: GroupedTask) -> None:
    rows = frame(range(1000))
    rows.loc[:899, "text"] = "the same"
    splits = read_splits(
        grouped(rows, frame([1, 2, 3], "other")), Recipe(selection=Selection.HOLDOUT)
    )
    assert 9 <= len(splits["holdout"]) <= 11


def test_a_holdout_of_one_group_is_refused(grouped: GroupedTask) -> None:
    task = grouped(frame(["x"] * 40), frame([1, 2, 3], "other"), group="document")
    with pytest.raises(DataError, match=r"class 'no', .* or rows of more groups \(document\)"):
        read_splits(task, Recipe(selection=Selection.HOLDOUT))


# --- What is odd ---------------------------------------------------------------------------------


def codes(task: TaskSpec) -> dict[FindingCode, Any]:
    findings = row_findings(task, read_splits(task, Recipe()))
    return {finding.code: finding for finding in findings}


def test_groups_in_both_splits_are_found(grouped: GroupedTask) -> None:
    task = grouped(frame(["a", "b", "c"]), frame(["c", "c", "d", "b"], "other"), group="document")
    finding = codes(task)[FindingCode.LEAKED_GROUPS]
    assert (finding.count, finding.of, finding.groups) == (3, 4, 2)
    [line, *_] = finding_lines([finding])
    assert line.startswith(
        "! 3 of 4 evaluation rows (75.0 %), of 2 groups, have rows of their group in training: "
        "every measured quality may be too high for new groups; keep a group's rows in one split"
    )
    assert FindingCode.LEAKED_GROUPS not in codes(dataclasses.replace(task, group_column=None))


def test_far_fewer_units_than_rows_are_said(grouped: GroupedTask) -> None:
    few = frame([number // 3 for number in range(360)], "other")
    finding = codes(grouped(frame(["x", "y", "z"]), few, group="document"))[FindingCode.FEW_UNITS]
    assert (finding.count, finding.of) == (120, 360)
    assert finding.text == (
        "the 360 evaluation rows count as 120 units (the same group: one unit): an answer is only "
        "as sure as so many units make it"
    )
    assert "more groups" in finding.remedy
    half = frame([number // 2 for number in range(360)], "other")
    task = grouped(frame(["x", "y", "z"]), half, group="document")
    assert FindingCode.FEW_UNITS not in codes(task)


def test_repeated_texts_are_said_where_they_are_most(grouped: GroupedTask) -> None:
    dev = frame(range(9), "other")
    dev["text"] = [f"text {number // 3} again" for number in range(9)]
    finding = codes(grouped(frame(["x", "y", "z"]), dev))[FindingCode.FEW_UNITS]
    assert "9 evaluation rows count as 3 units (the same text: one unit): nothing can" in (
        finding.text
    )
    assert finding.remedy == "evaluate on more different texts"


def test_one_unit_certifies_nothing_and_cannot_be_held_out(grouped: GroupedTask) -> None:
    task = grouped(frame(["x", "y", "z"]), frame(["a", "a", "a"], "other"), group="document")
    assert "count as 1 unit (the same group: one unit): nothing can be certified" in (
        codes(task)[FindingCode.FEW_UNITS].text
    )
    alone = grouped(frame(["a"] * 10), group="document")
    with pytest.raises(DataError, match=r"all 10 rows are of one group \(column 'document'\)"):
        read_splits(alone, Recipe())


# --- Who names the column ------------------------------------------------------------------------


def test_a_column_that_is_missing_or_the_label_is_refused(grouped: GroupedTask) -> None:
    rows = frame(["a", "b", "c", "d"])
    with pytest.raises(DataError, match="has no column 'docment'; its columns are"):
        read_splits(grouped(rows, group="docment"), Recipe())
    with pytest.raises(DataError, match="group and label both name the column 'label'"):
        grouped(rows, group="label")
    with pytest.raises(DataError, match="field 'group'"):
        grouped(rows, group="")


def test_a_table_alone_is_grouped_by_an_option(tmp_path: Path) -> None:
    rows = frame([f"d{number // 4}" for number in range(80)])
    write(tmp_path / "t.csv", rows)
    table = str(tmp_path / "t.csv")
    task = resolve_task(table, columns=Columns(group="document"))
    assert task.group_column == "document"
    # It is neither guessed for the label nor for a text.
    assert (task.label_column, task.text_columns) == ("label", ("text",))
    with pytest.raises(UnknownNameError, match="did you mean 'document'"):
        resolve_task(table, columns=Columns(group="documents"))
    with pytest.raises(DataError, match="`label`, `text` and `group` name columns of a table"):
        resolve_task("stdlib", columns=Columns(group="document"))


def test_a_data_set_is_grouped() -> None:
    features = {
        "text": Value("string"),
        "label": ClassLabel(names=["bad", "good"]),
        "user": Value("int64"),
        "tags": List(Value("string")),
    }
    rows: dict[str, Any] = {
        "text": [f"text {number}" for number in range(8)],
        "label": [0, 1] * 4,
        "user": [1, 1, 2, 2, 3, 3, 4, None],
        "tags": [["a"]] * 8,
    }
    data_set = DataSet("owner/name", {"train": Dataset.from_dict(rows, Features(features))})
    task = task_of(data_set, Wanted(name="own", group="user"))
    assert task.group_column == "user"
    assert task.columns == ("text", "label", "user")
    for column, said in (
        ("usr", "`group` usr: data set 'owner/name' has no such column"),
        ("label", "`group` and `label` both name the column 'label'"),
        ("tags", "`group` tags: the column holds lists"),
    ):
        with pytest.raises(DataError, match=said):
            task_of(data_set, Wanted(name="own", group=column))


@pytest.mark.parametrize("as_data_set", [False, True])
def test_rows_of_a_program_are_grouped(tmp_path: Path, as_data_set: bool) -> None:
    train = frame([1, 2, 3, 4])
    dev = frame([5, 5, None, 6], "other")
    rows: Any = (train, dev)
    if as_data_set:
        rows = {
            "train": Dataset.from_pandas(train),
            "validation": Dataset.from_pandas(dev.astype({"document": "Int64"})),
        }
    file = write_task(rows, tmp_path, "own", "text", "label", {"group": "document"})
    task = read_task_file(file)
    assert task.group_column == "document"
    assert units(task) == [0, 0, 1, 2]
    assert write_task(rows, tmp_path, "own", "text", "label") != file


def test_numbers_of_a_program_are_the_same_with_and_without_gaps(tmp_path: Path) -> None:
    """Pandas makes floats of whole numbers where some are missing."""
    rows = (frame([1, 2, 3]), frame([3, None, 4], "other"))
    task = read_task_file(write_task(rows, tmp_path, "own", "text", "label", {"group": "document"}))
    assert codes(task)[FindingCode.LEAKED_GROUPS].count == 1


def test_a_program_that_names_a_wrong_column_is_told(tmp_path: Path) -> None:
    rows = (frame([1, 2]), frame([3, 4], "other"))
    with pytest.raises(DataError, match=r"the train rows have no column 'doc'.*`group`"):
        write_task(rows, tmp_path, "own", "text", "label", {"group": "doc"})
    with pytest.raises(DataError, match="`group` and `label` both name the column 'label'"):
        write_task(rows, tmp_path, "own", "text", "label", {"group": "label"})


# --- The record ----------------------------------------------------------------------------------


def test_results_with_and_without_a_group_are_never_pooled(
    grouped: GroupedTask, tmp_path: Path
) -> None:
    model = resolve_model(str(make_tiny("bert", tmp_path / "bert")))
    dev = frame(["a", "a", "b", "c"], "other")
    task = grouped(frame(["x", "y", "z"]), dev, group="document")
    data = prepare(model, task, Recipe())
    assert data.units is not None and data.units.tolist() == [0, 0, 1, 2]
    assert data.evaluation_units == 3
    by_row = prepare(model, dataclasses.replace(task, group_column=None), Recipe())
    assert by_row.units is None and by_row.evaluation_units == 4
    dev["document"] = ["a", "b", "b", "c"]
    other = prepare(model, grouped(frame(["x", "y", "z"]), dev, group="document"), Recipe())
    assert len({one.fingerprint for one in (data, by_row, other)}) == 3
    # Names do not matter, nor does the folder: what is one unit does.
    dev["document"] = ["e", "e", "f", None]
    renamed = prepare(model, grouped(frame(["x", "y", "z"]), dev, group="document"), Recipe())
    assert renamed.fingerprint == data.fingerprint


def test_a_search_with_another_group_is_another() -> None:
    recorded = make_spec()
    task = dataclasses.replace(recorded.task, group_column="document")
    asked = dataclasses.replace(recorded, task=task)
    assert differing_settings(asked, recorded) == ["group document (recorded: None)"]


@pytest.mark.parametrize("known", [3, 0])
def test_units_are_kept_beside_predictions_unless_the_search_is_older(
    tmp_path: Path, known: int
) -> None:
    spec = make_spec(evaluation_units=known)
    paths = SearchPaths(tmp_path, spec.name)
    labels = np.array([0, 1, 1, 0])
    with Journal(paths.journal) as journal:
        unsent = Forwarder(paths, MlflowStore("sqlite://").sink(paths.journal))
        record = SearchRecord(spec, paths, journal, unsent, pytest.fail)
        place = record.keep_predictions("t", labels, labels, np.array([0, 0, 1, 2]))
        alone = record.keep_predictions("u", labels, labels)
    assert place is not None and alone is not None
    kept = KeptPredictions()(row(0, 1.0, trial="t", predictions=str(paths.folder / place)))
    assert kept is not None
    assert (None if kept.units is None else kept.units.tolist()) == (
        [0, 0, 1, 2] if known else None
    )
    kept = KeptPredictions()(row(0, 1.0, trial="u", predictions=str(paths.folder / alone)))
    assert kept is not None and kept.units is None
    facts = facts_of(spec, spec.trial(Phase.MEASURE, FreezeDepth.of(3), 1e-4, 1))
    assert facts.evaluation_units == (known or None)


@pytest.mark.parametrize("units_of_rows", [[0, 1], [0, 2, 2], [-1, 0, 1], [0.0, 1.0, 2.0]])
def test_damaged_units_are_as_good_as_no_predictions(
    tmp_path: Path, units_of_rows: list[float]
) -> None:
    file = tmp_path / "t.npz"
    labels = np.array([0, 1, 0], dtype=np.int8)
    arrays: dict[str, Any] = {"predictions": labels, "labels": labels, "classes": np.int64(2)}
    np.savez_compressed(file, **arrays, units=np.array(units_of_rows))
    assert KeptPredictions()(row(3, 1.0, trial="t", predictions=str(file))) is None


# --- The answer ----------------------------------------------------------------------------------

COPIES = 5
EXAMPLES = 500


class Kept:
    """What each trial of a curve answered. is_known: whether the units are."""

    def __init__(self, *, is_known: bool, count: int = EXAMPLES // COPIES) -> None:
        self.units = (np.arange(EXAMPLES) * count // EXAMPLES).astype(np.int32)
        self.is_known = is_known

    def __call__(self, asked: ResultRow) -> Predictions | None:
        generator = np.random.default_rng([int(asked.candidate.rank), asked.seed or 0])
        right = generator.permutation(EXAMPLES) < round((asked.quality or 0) * EXAMPLES)
        labels = np.arange(EXAMPLES, dtype=np.int8) % 2
        return Predictions(
            predictions=np.where(right, labels, 1 - labels).astype(np.int8),
            labels=labels,
            classes=2,
            units=self.units if self.is_known else None,
        )


def answered(count: int | None, **changes: Any) -> Answer:
    rows = [
        dataclasses.replace(one, trial=f"{one.candidate.key}-{one.seed}", **changes)
        for one in falling_curve(examples=EXAMPLES, evaluation_units=count)
    ]
    [answer] = answer_rows(rows, evidence=Kept(is_known=count is not None, count=count or EXAMPLES))
    return answer


def test_an_answer_says_how_many_units_there_are() -> None:
    answer = answered(100)
    told = answer_object(answer)
    assert (told["evaluation_examples"], told["evaluation_units"]) == (500, 100)
    assert "The 500 evaluation rows count as 100 units" in answer.certainty
    unknown = answered(None)
    assert not {"evaluation_units", "evaluation_examples"} & answer_object(unknown).keys()
    assert "evaluation_units" not in answers_csv([unknown])
    assert "units" not in unknown.certainty
    assert "units" not in answered(EXAMPLES).certainty
    table = pd.read_csv(io.StringIO(answers_csv([answer])))
    assert table["evaluation_units"].tolist() == [100]
    curves = freeze_curves(falling_curve(examples=EXAMPLES, evaluation_units=100))
    assert set(pd.read_csv(io.StringIO(curves_csv(curves)))["evaluation_units"]) == {100}


@pytest.mark.parametrize("count", [1, 99])
def test_too_few_units_certify_nothing(count: int) -> None:
    answer = answered(count)
    assert answer.reason is Reason.TOO_FEW_UNITS
    assert answer.certified is None and answer.corrected_certified is None
    assert (
        "Nothing is certified: that takes evaluation rows of 100 groups or different texts, and "
        f"there are {count}"
    ) in answer.certainty
    assert answered(100).reason is not Reason.TOO_FEW_UNITS
    assert answered(EXAMPLES).certified is not None
    # A few rows that share none are as before.
    [few] = answer_rows(falling_curve(examples=20, evaluation_units=20))
    assert few.reason is None
    # Together with a task that would certify something, nothing is certified either.
    rows = falling_curve(examples=EXAMPLES, evaluation_units=1)
    rows += falling_curve(examples=EXAMPLES, evaluation_units=EXAMPLES, task="cola")
    *_, joint = answer_rows(rows)
    assert joint.certified is None and joint.reason is Reason.TOO_FEW_UNITS


def test_scores_alone_count_the_fewest_equal_units() -> None:
    assert equal_units(500, None) == equal_units(500, 500) == 500
    # One unit of 401 rows beside 99 single ones.
    assert equal_units(500, 100) == 1
    assert equal_units(500, 1) == 1
    assert equal_units(1043, 1039) == 1023


def width_of_accuracies(count: int) -> float:
    [answer] = answer_rows(falling_curve(examples=EXAMPLES, evaluation_units=count))
    return answer.points[0].ci_high - answer.points[0].ci_low


def test_accuracies_alone_are_as_sure_as_their_fewest_equal_units() -> None:
    by_rows = width_of_accuracies(EXAMPLES)
    assert width_of_accuracies(EXAMPLES - 2) < 1.02 * by_rows
    assert width_of_accuracies(300) > 4 * by_rows


def test_grouped_rows_certify_nothing_by_scores_alone() -> None:
    [answer] = answer_rows(falling_curve(examples=EXAMPLES, evaluation_units=300))
    assert answer.reason is Reason.TOO_FEW_UNITS and answer.certified is None
    why = "these 300 may be worth 6: scores alone do not tell how many rows each has"
    assert why in answer.certainty and why in str(answer.first_lines)
    assert "rows of 300 units count as 6, the fewest" in answer.certainty
    # By predictions, which tell the units, nothing is in the way.
    assert answered(300).reason is None
    # Nor where hardly any rows share a unit.
    [few] = answer_rows(falling_curve(examples=EXAMPLES, evaluation_units=EXAMPLES - 2))
    assert few.reason is None and few.certified is not None
    assert not few.certified.candidate.is_reference
    # Ways are compared likewise, and tasks together.
    rows = falling_curve(examples=EXAMPLES, evaluation_units=300)
    [curve] = way_curves(rows)
    assert compare_ways(curve).reason is Reason.TOO_FEW_UNITS
    rows += falling_curve(examples=EXAMPLES, evaluation_units=EXAMPLES, task="cola")
    *_, joint = answer_rows(rows)
    assert joint.certified is None and joint.reason is Reason.TOO_FEW_UNITS


def test_a_table_keeps_the_units(tmp_path: Path) -> None:
    table = tmp_path / "trials.csv"
    table.write_text(write_results(falling_curve(examples=EXAMPLES, evaluation_units=50)))
    found = Table(table).ask(Question(), pytest.fail)
    assert {one.evaluation_units for one in found} == {50}
    assert "evaluation_units" not in write_results(falling_curve(examples=EXAMPLES))


def test_findings_about_units_are_warnings(grouped: GroupedTask) -> None:
    dev = frame(["a", "a", "a", "c"] * 3, "other")
    findings = tuple(codes(grouped(frame(["a", "x", "y"]), dev, group="document")).values())
    [answer] = answer_rows(falling_curve(findings=findings))
    assert "of 1 group, have rows" in warned(answer, WarningCode.LEAKED_GROUPS)
    assert "12 evaluation rows count as 2 units" in warned(answer, WarningCode.FEW_UNITS)
