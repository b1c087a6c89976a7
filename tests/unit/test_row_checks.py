"""What is odd about rows is found, said with its remedy, mended on request, and recorded."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from elsa_tune.analysis.answers import answer_rows
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.errors import DataError, RunError
from elsa_tune.searching.record import started
from elsa_tune.searching.specification import (
    differing_settings,
    load_specification,
    save_specification,
)
from elsa_tune.specs.model import ModelSpec, resolve_model
from elsa_tune.specs.row_findings import FindingCode, RowFinding, finding_lines
from elsa_tune.specs.task import Cleaning, FilesSource, TaskSpec
from elsa_tune.specs.trial import Recipe, Selection
from elsa_tune.tasks.frames import write_task
from elsa_tune.tasks.task_file import read_task_file
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import findings_of
from elsa_tune.tracking.state import SearchState
from elsa_tune.training import loop
from elsa_tune.training.data import preparation
from elsa_tune.training.data.keys import text_keys
from elsa_tune.training.data.preparation import planned_findings, prepare, read_splits
from elsa_tune.training.data.row_checks import row_findings
from elsa_tune.training.data.tokens import Split
from tests.conftest import Run
from tests.unit.result_rows import falling_curve
from tests.unit.search_examples import make_spec
from tests.unit.tiny_models import make_tiny

Rows = Sequence[Sequence[object]]
Task = Callable[..., TaskSpec]
# Fourteen rows that nothing is odd about.
PLAIN: list[tuple[object, ...]] = [(f"text {n}", "ab"[n % 2]) for n in range(14)]


def _write(path: Path, rows: Rows, columns: Sequence[str]) -> None:
    lines = [dict(zip(columns, row, strict=True)) for row in rows]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


@pytest.fixture
def task(tmp_path: Path) -> Task:
    """Return a task of these training and evaluation rows, the texts first, the label last."""

    def _task(train: Rows, dev: Rows | None = None, **fields: object) -> TaskSpec:
        columns = [f"text{n}" for n in range(len(train[0]) - 1)]
        _write(tmp_path / "train.jsonl", train, [*columns, "label"])
        files = {"train": "train.jsonl"}
        if dev is not None:
            _write(tmp_path / "dev.jsonl", dev, [*columns, "label"])
            files["evaluation"] = "dev.jsonl"
        values = {"name": "own", "files": files, "text": columns, "label": "label", **fields}
        file = tmp_path / "task.yaml"
        file.write_text(json.dumps(values), encoding="utf-8")
        return read_task_file(file)

    return _task


def found(task: TaskSpec, recipe: Recipe | None = None) -> dict[str, RowFinding]:
    """By code, and for duplicates by split."""
    findings = row_findings(task, read_splits(task, recipe or Recipe()))
    return {
        f"{one.code}.{one.where}" if one.code is FindingCode.DUPLICATE_ROWS else one.code: one
        for one in findings
    }


def test_nothing_is_said_of_rows_without_a_fault(task: Task) -> None:
    assert found(task(PLAIN[:10], PLAIN[10:])) == {}


def test_evaluation_rows_that_are_trained_on(task: Task) -> None:
    dev = [("text 1", "b"), ("  TEXT\t2 ", "a"), ("text 99", "a"), ("Text 3", "b")]
    leaked = found(task(PLAIN, dev))["leaked_rows"]
    assert (leaked.count, leaked.of, leaked.exact, leaked.same_label) == (3, 4, 1, 3)
    assert leaked.share == 0.75
    [line] = finding_lines([leaked])
    assert line == (
        "! 3 of 4 evaluation rows (75.0 %) are also in training (1 letter for letter, 3 "
        "with the same label): every measured quality may be too high; `drop_leaked: true` drops "
        "these rows from training"
    )


def test_rows_that_are_trained_on_with_another_label_are_not_too_easy(task: Task) -> None:
    leaked = found(task(PLAIN, [("text 1", "a"), ("text 99", "b")]))["leaked_rows"]
    assert (leaked.count, leaked.same_label) == (1, 0)
    assert "too high" not in leaked.text


def test_a_pair_is_leaked_as_a_pair(task: Task) -> None:
    train = [("a", f"b {n}", "yn"[n % 2]) for n in range(8)]
    dev = [("a", "b 9", "y"), ("A", "b 1", "n"), ("a b", "1", "n"), ("b 1", "a", "y")]
    assert found(task(train, dev))["leaked_rows"].count == 1


def test_a_holdout_counts_as_training_and_rows_not_in_use_do_not(task: Task) -> None:
    own = task(PLAIN * 10, [(f"text {n}", "ab"[n % 2]) for n in range(4)])
    every = Recipe(holdout=0.5, selection=Selection.HOLDOUT)
    assert found(own, every)["leaked_rows"].count == 4
    few = found(task(PLAIN, [(f"text {n}", "ab"[n % 2]) for n in range(14)]), Recipe(train_size=6))
    assert few["leaked_rows"].count == 6


def test_rows_that_repeat_others(task: Task) -> None:
    dev = [("text 90", "a"), ("text 90 ", "a"), ("text 90", "b")]
    seen = found(task([*PLAIN, PLAIN[0], ("TEXT 0", "a"), ("text 0", "b")], dev))
    training, evaluation = seen["duplicate_rows.training"], seen["duplicate_rows.evaluation"]
    assert (training.count, training.of) == (2, 17)
    assert (evaluation.count, evaluation.of) == (1, 3)
    assert evaluation.concerns_answers and not training.concerns_answers
    two = seen["contradicting_labels"]
    assert (two.texts, two.count, two.of) == (2, 7, 20)


def test_a_text_with_another_label_where_it_is_evaluated(task: Task) -> None:
    two = found(task(PLAIN, [("text 0", "b"), ("text 99", "a")]))["contradicting_labels"]
    assert (two.texts, two.count) == (1, 2)


def test_odd_classes(task: Task) -> None:
    more = [("x", "Fonts"), ("y", " Fonts"), ("z", "N/A"), ("u", "rare"), ("v", "FONTS")]
    seen = found(task([*PLAIN, *more], [("w", "a"), ("ww", "b"), ("www", "Fonts")]))
    alike = seen["labels_alike"]
    assert (alike.count, alike.of, alike.named) == (4, 22, 3)
    assert set(alike.names) == {"'Fonts'", "' Fonts'", "'FONTS'"}
    assert seen["label_looks_missing"].remedy == "`missing_labels: ['N/A']` leaves its rows out"
    lacking = seen["classes_not_evaluated"]
    assert (lacking.count, lacking.of, lacking.named) == (4, 7, 4)
    assert lacking.fact.endswith("have no evaluation row (' Fonts', 'FONTS', 'N/A' and 1 more)")


def test_numbers_that_are_written_in_two_ways_are_alike(task: Task) -> None:
    rows = [(f"text {n}", str(n % 2) + (".0" if n > 7 else "")) for n in range(14)]
    alike = found(task(rows[:11], rows[11:]))["labels_alike"]
    assert alike.named == 4
    assert "differ by blanks, case or a trailing .0 alone ('0', '0.0'" in alike.fact
    merged = task(rows[:11], rows[11:], merge_labels=True)
    assert merged.classes == ("0", "1")
    assert "labels_alike" not in found(merged)
    assert read_splits(merged, Recipe())["evaluation"].labels.tolist() == [1, 0, 1]


@pytest.mark.parametrize(("labels", "is_odd"), [("012", True), ("ab", False), ("57", False)])
def test_minus_one_beside_class_ids_looks_like_no_label(
    task: Task, labels: str, is_odd: bool
) -> None:
    rows = [(f"text {n}", labels[n % len(labels)]) for n in range(14)]
    seen = found(task([*rows, ("x", "-1"), ("y", "-1")], rows))
    assert ("label_looks_missing" in seen) is is_odd


def test_words_for_no_label_among_values_are_left_out(task: Task) -> None:
    rows = [(f"text {n}", "NA" if n == 3 else n / 10) for n in range(14)]
    read = read_splits(
        task(rows, rows[4:], regression=True, missing_labels=["NA"]),
        Recipe(),
    )
    assert len(read["train"]) == 13


@pytest.mark.parametrize(("cell", "missing"), [("-999.0", "-999"), (-999, "-999.0")])
def test_a_number_for_no_label_is_left_out_however_it_is_written(
    task: Task, cell: object, missing: str
) -> None:
    rows = [(f"text {n}", cell if n == 3 else n / 10) for n in range(14)]
    values = task(rows, rows[4:], regression=True, missing_labels=[missing])
    train = read_splits(values, Recipe())["train"]
    assert len(train) == 13 and train.labels.min() == 0
    assert train.notes == (f"1 of 14 rows of train.jsonl skipped: label is '{missing}' (line 4)",)


def test_contradictions_are_of_classes(task: Task) -> None:
    rows = [(f"text {n}", n / 10) for n in range(14)]
    with pytest.raises(DataError, match="drop_contradictions is about classes, but regression"):
        task(rows, rows[4:], regression=True, drop_contradictions=True)


def test_a_class_that_is_declared_and_never_trained(task: Task) -> None:
    seen = found(task(PLAIN, [("x", "c"), ("y", "a")], classes=["a", "b", "c"]))
    assert seen["classes_not_trained"].names == ("'c'",)
    assert seen["classes_not_evaluated"].names == ("'b'",)
    assert "1 of 3 classes has no training row ('c')" in seen["classes_not_trained"].text


def test_one_empty_text_of_two_is_counted_and_kept(task: Task) -> None:
    rows = [(f"t {n}", "" if n < 3 else "body", "ab"[n % 2]) for n in range(10)]
    empty = found(task(rows, [("t", "b", "a"), ("u", "c", "b")]))["empty_texts"]
    assert (empty.count, empty.of, empty.names) == (3, 12, ("'text1'",))
    assert not empty.concerns_answers


def test_many_lost_rows_come_first_and_few_are_a_note(task: Task) -> None:
    lost = [("", "a"), ("x", "")]
    own = task([*PLAIN, *PLAIN, *lost], [("x", "a"), ("y", "b")])
    seen = row_findings(own, read_splits(own, Recipe()))
    first = finding_lines(seen)[0]
    assert first.startswith("! 2 of 30 rows of train.jsonl are left out (6.7 %): 1 missing text0")
    own = task([*PLAIN, *PLAIN, *PLAIN, *lost], [("x", "a"), ("y", "b")])
    assert "rows_lost" not in found(own)
    assert len(read_splits(own, Recipe())["train"].notes) == 2


def test_lost_rows_are_said_of_a_subset_and_of_rows_held_out(task: Task) -> None:
    own = task([*PLAIN, ("", "a")], evaluation_share=0.5)
    for recipe in (Recipe(), Recipe(train_size=4)):
        lost = found(own, recipe)["rows_lost"]
        assert (lost.count, lost.of) == (1, 15)


def test_numbers_are_no_classes(task: Task) -> None:
    rows = [(f"text {n // 2}", n / 7) for n in range(20)]
    seen = found(task(rows, rows[:4], regression=True))
    assert set(seen) == {"leaked_rows", "few_units"}
    assert seen["leaked_rows"].same_label is None


def test_published_rows_are_one_line_without_a_remedy() -> None:
    findings = [
        RowFinding(code=FindingCode.LEAKED_ROWS, count=16, of=1043, where="evaluation", exact=16),
        RowFinding(code=FindingCode.DUPLICATE_ROWS, count=1, of=8551),
    ]
    assert finding_lines(findings, is_published=True) == [
        "! in the published rows, kept as they are: 16 of 1,043 evaluation rows (1.5 %) are also "
        "in training; 1 training row repeats an earlier one"
    ]
    assert finding_lines([], is_published=True) == []


# --- Mended --------------------------------------------------------------------------------------


def texts(split: Split) -> list[str]:
    return split.texts[0]


def test_leaked_rows_are_dropped_from_training_alone(task: Task) -> None:
    dev = [("TEXT 1", "b"), ("text 2", "b"), ("text 99", "a")]
    own = task(PLAIN, dev, drop_leaked=True)
    splits = read_splits(own, Recipe())
    assert texts(splits["evaluation"]) == ["TEXT 1", "text 2", "text 99"]
    assert [f"text {n}" in texts(splits["train"]) for n in range(4)] == [True, False, False, True]
    assert splits["train"].notes == (
        "2 of 14 training rows dropped: their text is also evaluated (drop_leaked)",
    )
    assert found(own) == {}


def test_leaked_rows_are_dropped_where_rows_are_held_out(task: Task) -> None:
    rows = [*PLAIN, *PLAIN, *PLAIN]
    assert "leaked_rows" in found(task(rows))
    own = task(rows, drop_leaked=True)
    assert "leaked_rows" not in found(own)
    assert len(read_splits(own, Recipe())["evaluation"]) == round(0.2 * 42)


def test_duplicates_are_dropped_before_rows_are_held_out(task: Task) -> None:
    own = task([*PLAIN, *PLAIN, ("TEXT 3", "b")], drop_duplicates=True)
    splits = read_splits(own, Recipe())
    assert sorted(texts(splits["train"]) + texts(splits["evaluation"])) == sorted(
        str(text) for text, _ in PLAIN
    )
    assert found(own) == {}


def test_contradictions_are_dropped_from_training_alone(task: Task) -> None:
    train = [*PLAIN, ("text 0", "b"), ("text 50", "a")]
    dev = [("text 50", "b"), ("text 51", "a")]
    own = task(train, dev, drop_contradictions=True)
    splits = read_splits(own, Recipe())
    assert not {"text 0", "text 50"} & set(texts(splits["train"]))
    assert texts(splits["evaluation"]) == ["text 50", "text 51"]
    assert "contradicting_labels" not in found(own)


def test_labels_are_merged(task: Task) -> None:
    train = [*PLAIN, ("x", "A"), ("y", " b"), ("z", "b ")]
    own = task(train, [("v", "A "), ("w", "B")], merge_labels=True)
    assert own.classes == ("a", "b")
    assert read_splits(own, Recipe())["evaluation"].labels.tolist() == [0, 1]
    assert found(own) == {}
    declared = task(train, [("v", "a"), ("w", "b")], merge_labels=True, classes=["B", "b", "A"])
    assert declared.classes == ("B", "A")


def test_a_label_that_merging_would_know_is_said(task: Task) -> None:
    with pytest.raises(DataError, match="`merge_labels: true` takes it for 'a'"):
        read_splits(task(PLAIN, [("v", "A "), ("w", "b")]), Recipe())


def test_labels_that_mean_that_there_is_none(task: Task) -> None:
    own = task([*PLAIN, ("x", "N/A")], [("v", "a"), ("w", "b")], missing_labels=["N/A"])
    assert own.classes == ("a", "b")
    train = read_splits(own, Recipe())["train"]
    assert len(train) == 14 and train.notes[0].endswith("label is 'N/A' (line 15)")
    assert train.lost is None  # it is what was asked for


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"drop_leaked": "maybe"}, "field 'drop_leaked' must be true or false"),
        ({"drop_leek": True}, "unknown field 'drop_leek': did you mean 'drop_leaked'"),
        ({"regression": True, "merge_labels": True}, "merge_labels is about classes"),
        ({"missing_labels": ["a"]}, r"1 different labels in column 'label' \(b\)"),
    ],
)
def test_a_task_file_that_asks_for_what_cannot_be(
    task: Task, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        task(PLAIN, **fields)


def test_what_drops_every_row_is_refused(task: Task) -> None:
    with pytest.raises(DataError, match="drop_leaked drops every training row"):
        read_splits(task(PLAIN, PLAIN, drop_leaked=True), Recipe())


def test_results_before_and_after_are_never_pooled(task: Task, tmp_path: Path) -> None:
    model = resolve_model(str(make_tiny("bert", tmp_path / "bert")))
    own = task(PLAIN[:10], PLAIN[10:])
    seen = {prepare(model, own, Recipe()).fingerprint}
    for cleaning in (Cleaning(drop_leaked=True), Cleaning(merge_labels=True)):
        # These rows have nothing to drop: what was asked for counts.
        changed = dataclasses.replace(own, cleaning=cleaning)
        seen.add(prepare(model, changed, Recipe()).fingerprint)
    assert len(seen) == 3


def test_rows_from_python_are_mended_alike(tmp_path: Path) -> None:
    frame = pd.DataFrame(PLAIN * 3, columns=["text", "label"])
    given = (frame, tmp_path, "own", "text", "label")
    own = read_task_file(write_task(*given, {"drop_duplicates": True}))
    assert own.cleaning == Cleaning(drop_duplicates=True)
    assert sum(map(len, read_splits(own, Recipe()).values())) == len(PLAIN)
    # As they are, they are another task file.
    assert len({write_task(*given, one) for one in ({"drop_duplicates": True}, {})}) == 2


# --- Cut texts ------------------------------------------------------------------------------------

MODEL_MOST = 128  # tokens that the tiny models take


def _texts(count: int, long: int, words: int, first: int = 0) -> list[tuple[object, ...]]:
    """Return rows of which the first ones are long."""
    rows: list[tuple[object, ...]] = []
    for number in range(first, first + count):
        length = words if number - first < long else 1
        rows.append((" ".join(["film"] * length + list(str(number))), "ab"[number % 2]))
    return rows


def _cut(task: TaskSpec, model: ModelSpec, recipe: Recipe) -> list[RowFinding]:
    findings = prepare(model, task, recipe).findings
    planned = planned_findings(model, task, recipe, read_splits(task, recipe))
    assert planned == findings
    return [one for one in findings if one.code is FindingCode.CUT_TEXTS]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    return resolve_model(str(make_tiny("bert", tmp_path_factory.mktemp("tiny") / "bert")))


def test_texts_that_are_cut_are_said_with_the_length_that_reads_them(
    task: Task, tiny: ModelSpec
) -> None:
    own = task(_texts(10, 5, 40), _texts(8, 8, 20, first=90))
    training, evaluation = _cut(own, tiny, Recipe(max_length=16))
    assert (training.count, training.of, training.where) == (5, 10, "training")
    assert (training.longest, training.most) == (43, MODEL_MOST)
    assert training.read == round(16 / 43, 4)
    assert (evaluation.count, evaluation.of, evaluation.longest) == (8, 8, 43)
    assert finding_lines([training]) == [
        "! 5 of 10 training rows (50.0 %) are longer than max_length 16, and 37.2 % of their "
        "tokens are read: an answer is about these parts of the texts alone; "
        "`--set max_length=43` reads them whole"
    ]
    assert _cut(own, tiny, Recipe(max_length=43)) == []


def test_what_the_model_takes_limits_the_advice_on_cut_texts(task: Task, tiny: ModelSpec) -> None:
    own = task(_texts(10, 5, 200), _texts(8, 0, 0, first=90))
    [finding] = _cut(own, tiny, Recipe(max_length=16))
    assert finding.remedy == "`--set max_length=128` reads the most that the model takes"
    [finding] = _cut(own, tiny, Recipe(max_length=MODEL_MOST))
    assert finding.remedy.startswith("the model takes no more")


def test_less_than_a_hundredth_of_cut_rows_is_not_said(task: Task, tiny: ModelSpec) -> None:
    own = task(_texts(200, 1, 40), _texts(100, 1, 40, first=900))
    [finding] = _cut(own, tiny, Recipe(max_length=16))
    assert (finding.where, finding.count, finding.of) == ("evaluation", 1, 100)


def test_cut_texts_of_a_holdout_count_as_training(task: Task, tiny: ModelSpec) -> None:
    recipe = Recipe(max_length=16, holdout=0.5, selection=Selection.HOLDOUT)
    training, _ = _cut(task(_texts(20, 20, 40), _texts(8, 8, 20, first=90)), tiny, recipe)
    assert (training.count, training.of) == (20, 20)


def test_a_plan_counts_cut_texts_in_a_sample(
    task: Task, tiny: ModelSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation, "SAMPLE", 10)
    recipe = Recipe(max_length=16)
    own = task(_texts(40, 40, 40), _texts(8, 0, 0, first=90))
    [finding] = planned_findings(tiny, own, recipe, read_splits(own, recipe))
    assert finding.fact.startswith("10 of 10 sampled training rows (100.0 %) are longer")
    assert planned_findings(None, own, recipe, read_splits(own, recipe)) == ()


def test_how_much_of_published_rows_is_read_is_said_for_itself() -> None:
    cut = RowFinding(
        code=FindingCode.CUT_TEXTS, count=1, of=2, max_length=8, read=0.5, longest=16, most=None
    )
    lines = finding_lines([LEAKED, cut], is_published=True)
    assert [line[:27] for line in lines] == [
        "! in the published rows, ke",
        "! 1 of 2 training rows (50.",
    ]
    assert lines[1].endswith("`--set max_length=16` reads them whole")


@pytest.mark.parametrize(
    "command", [("trial", "--learning-rate", "1e-4"), ("search", "--dry-run")], ids=" ".join
)
def test_a_trial_and_a_plan_say_what_is_cut(
    command: tuple[str, ...], tiny: ModelSpec, task: Task, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def train(*_: object) -> None:
        raise RunError("enough")

    monkeypatch.setattr(loop, "train", train)
    own = task(_texts(100, 50, 40), _texts(80, 0, 0, first=900))
    assert isinstance(own.source, FilesSource)
    file = str(Path(own.source.train[0]).with_name("task.yaml"))
    said = run(*command, "--model", tiny.location, "--task", file, "--set", "max_length=16").err
    assert "! 50 of 100 training rows (50.0 %) are longer than max_length 16" in said


# --- Recorded ------------------------------------------------------------------------------------

PINNED_KEY = int.from_bytes(blake2b(b"one two\x1fthree", digest_size=8).digest(), "little")
LEAKED = RowFinding(code=FindingCode.LEAKED_ROWS, count=41, of=484, where="evaluation", exact=37)
REPEATED = RowFinding(code=FindingCode.DUPLICATE_ROWS, count=9, of=900)


def test_a_search_records_what_is_odd_about_its_rows() -> None:
    state = SearchState.replay([started(make_spec(findings=(LEAKED, REPEATED)), attempt=1)])
    assert findings_of(state) == (LEAKED, REPEATED)


def test_a_specification_keeps_findings_and_cleaning_and_an_older_one_has_none(
    tmp_path: Path,
) -> None:
    spec, paths = make_spec(), SearchPaths(tmp_path, "example")
    paths.folder.mkdir()
    mended = dataclasses.replace(
        spec,
        task=dataclasses.replace(spec.task, cleaning=Cleaning(missing_labels=("N/A",))),
        findings=(LEAKED, REPEATED),
    )
    save_specification(mended, paths)
    assert load_specification(paths) == mended
    values = json.loads(paths.specification.read_text())
    del values["findings"], values["task"]["cleaning"]
    paths.specification.write_text(json.dumps(values))
    assert load_specification(paths) == spec


def test_a_search_that_is_recorded_with_other_rows_is_another() -> None:
    recorded = make_spec()
    cleaned = dataclasses.replace(recorded.task, cleaning=Cleaning(drop_leaked=True))
    asked = dataclasses.replace(recorded, task=cleaned)
    assert differing_settings(asked, recorded) == ["drop_leaked True (recorded: False)"]
    other = dataclasses.replace(recorded.task, label_column="team")
    [why] = differing_settings(dataclasses.replace(recorded, task=other), recorded)
    assert why == "label team (recorded: label)"


@pytest.mark.parametrize("tag", [None, "", "{", '[{"code": "of_a_later_version", "count": 1}]'])
def test_a_record_without_readable_findings_has_none(tag: str | None) -> None:
    record = started(make_spec(), attempt=1)
    tags = {name: value for name, value in record.tags.items() if name != "row_findings"}
    if tag is not None:
        tags["row_findings"] = tag
    state = SearchState.replay([dataclasses.replace(record, tags=tags)])
    assert findings_of(state) == ()


def test_an_answer_has_them_and_warns_of_those_that_concern_it() -> None:
    [answer] = answer_rows(falling_curve(findings=(LEAKED, REPEATED)))
    assert answer.findings == (LEAKED, REPEATED)
    warnings = {one.code: one.text for one in answer.warnings}
    assert warnings[WarningCode.LEAKED_ROWS].startswith("41 of 484 evaluation rows (8.5 %)")
    assert WarningCode.DUPLICATE_ROWS not in warnings


def test_every_finding_that_concerns_answers_has_its_warning() -> None:
    codes = {code.value for code in WarningCode}
    for code in FindingCode:
        finding = RowFinding(code=code, count=1, of=2, where="evaluation", texts=1)
        assert (code.value in codes) is finding.concerns_answers
        assert finding.text and finding.remedy and finding.brief


def test_keys_do_not_depend_on_the_process() -> None:
    """They decide which rows are trained on: a search that is resumed must drop the same."""
    split = Split("here", (["One  two", "\ud800"], ["Three", ""]), np.array([0, 1]))
    assert text_keys(split).tolist() == [PINNED_KEY, text_keys(split)[1]]
