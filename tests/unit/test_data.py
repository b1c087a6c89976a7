"""Ready for a model: subsets, held-out shares, truncation, the cache, and the fingerprint."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from elsa_tune.errors import DataError
from elsa_tune.files import cache_dir
from elsa_tune.specs.model import ModelSpec, resolve_model
from elsa_tune.specs.task import FilesSource, GlueSource, Metric, TaskKind, TaskSpec
from elsa_tune.specs.trial import Recipe, Selection
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tasks.types.registry import type_of, with_metric
from elsa_tune.training.data import preparation as data_module
from elsa_tune.training.data import subsets
from elsa_tune.training.data.batches import pad_batch
from elsa_tune.training.data.keys import numbered
from elsa_tune.training.data.preparation import prepare, read_splits, tokenised, tokenizer_identity
from elsa_tune.training.data.subsets import (
    SELECTION,
    held_out_rows,
    permutation,
    stratified_order,
)
from elsa_tune.training.data.tokens import Split
from elsa_tune.training.model.encoder import load_tokenizer
from tests.unit.tiny_models import make_tiny

BINS_OF = type_of(TaskKind.REGRESSION).strata
# stratified_order of six zeros and six ones, seed 0.
PINNED = [7, 0, 1, 6, 3, 10, 5, 8, 11, 2, 9, 4]
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "then", "it", "was", "gone", "for", "good"]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, ModelSpec]:
    folder = tmp_path_factory.mktemp("models")
    return {
        name: resolve_model(str(make_tiny(name, folder / name)))
        for name in ("bert", "roberta", "xlnet")
    }


@pytest.fixture
def pairs(tmp_path: Path) -> TaskSpec:
    """Forty rows of two texts of very different lengths, and ten to evaluate on."""
    for name, rows in (("train", 40), ("dev", 10)):
        lines = [
            {"one": " ".join(WORDS[: 1 + n % 13]), "two": f"row {n} of {name}", "label": n % 2}
            for n in range(rows)
        ]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return TaskSpec(
        name="pairs",
        kind=TaskKind.CLASSIFICATION,
        text_columns=("one", "two"),
        label_column="label",
        classes=("0", "1"),
        metric=Metric.ACCURACY,
        source=FilesSource(
            format="jsonl",
            train=(str(tmp_path / "train.jsonl"),),
            evaluation=(str(tmp_path / "dev.jsonl"),),
        ),
    )


def held_out(task: TaskSpec, share: float) -> TaskSpec:
    source = task.source
    assert isinstance(source, FilesSource)
    source = dataclasses.replace(source, evaluation=(), evaluation_share=share)
    return dataclasses.replace(task, source=source)


# --- Subsets -------------------------------------------------------------------------------------


def test_every_prefix_mirrors_the_whole() -> None:
    labels = np.repeat([0, 1, 2], [700, 250, 50])
    labels = np.random.default_rng(0).permutation(labels)
    order = stratified_order(labels, seed=3)
    assert sorted(order.tolist()) == list(range(1000))
    for size in (20, 50, 100, 200, 333, 500, 999):
        counts = np.bincount(labels[order[:size]], minlength=3)
        assert np.abs(counts - size * np.array([0.7, 0.25, 0.05])).max() <= 1


def test_values_are_stratified_by_quantiles() -> None:
    values = np.random.default_rng(0).exponential(size=500).astype(np.float32)
    order = stratified_order(BINS_OF(values), seed=3)
    edges = np.quantile(values, np.linspace(0, 1, 11)[1:-1])
    for size in (20, 50, 200):
        counts = np.bincount(np.searchsorted(edges, values[order[:size]]), minlength=10)
        assert np.abs(counts - size / 10).max() <= 1.5


def test_the_order_follows_its_seed_and_nothing_else() -> None:
    labels = np.arange(300) % 3
    np.random.seed(1)
    one = stratified_order(labels, seed=5)
    np.random.seed(2)
    assert one.tolist() == stratified_order(labels, seed=5).tolist()
    assert one.tolist() != stratified_order(labels, seed=6).tolist()
    # Within a class the order is random, not the file's.
    zeros = [row for row in one.tolist() if labels[row] == 0]
    assert zeros != sorted(zeros)


def test_the_order_is_the_same_on_every_machine() -> None:
    """Pinned: a search that is resumed elsewhere, or in a year, must train on the same rows."""
    assert stratified_order(np.arange(12) % 2, seed=0).tolist() == PINNED


def test_subsets_are_nested_and_keep_the_files_order(pairs: TaskSpec) -> None:
    chosen = [
        read_splits(pairs, Recipe(train_size=size))["train"].texts[1] for size in (6, 12, 24, 40)
    ]
    for smaller, larger in itertools.pairwise(chosen):
        assert set(smaller) < set(larger)
        assert [text for text in larger if text in set(smaller)] == smaller
    other = read_splits(pairs, Recipe(train_size=12, subset_seed=1))["train"].texts[1]
    assert set(other) != set(chosen[1])


def test_a_subset_of_the_whole_is_the_whole(pairs: TaskSpec) -> None:
    whole = read_splits(pairs, Recipe())["train"]
    assert read_splits(pairs, Recipe(train_size=40))["train"].texts == whole.texts


def test_more_rows_than_there_are(pairs: TaskSpec) -> None:
    with pytest.raises(DataError, match=r"train_size is 41, .*40 training rows; give at most 40,"):
        read_splits(pairs, Recipe(train_size=41))


def test_a_subset_with_one_class_only(pairs: TaskSpec) -> None:
    with pytest.raises(DataError, match=r"every row of the subset of 1 rows \(train_size\)"):
        read_splits(pairs, Recipe(train_size=1))


def test_a_share_is_held_out(pairs: TaskSpec) -> None:
    splits = read_splits(held_out(pairs, 0.25), Recipe(subset_seed=4))
    train, evaluation = splits["train"], splits["evaluation"]
    assert (len(train), len(evaluation)) == (30, 10)
    assert evaluation.labels.mean() == 0.5
    assert not set(train.texts[1]) & set(evaluation.texts[1])
    assert train.notes == (
        "no evaluation file: 10 of 40 rows (0.25, stratified, subset_seed 4) are held out",
    )
    # A smaller training set keeps the evaluation rows.
    smaller = read_splits(held_out(pairs, 0.25), Recipe(subset_seed=4, train_size=12))
    assert smaller["evaluation"].texts == evaluation.texts
    assert set(smaller["train"].texts[1]) < set(train.texts[1])


def test_a_share_that_leaves_nothing(pairs: TaskSpec) -> None:
    with pytest.raises(DataError, match=r"the held-out share of 0.001 \(0 rows\).*no usable row"):
        read_splits(held_out(pairs, 0.001), Recipe())


HOLDOUT = Recipe(selection=Selection.HOLDOUT, holdout=0.2)


def rows_of(split: Split) -> set[str]:
    """Their second texts, which are all different."""
    return set(split.texts[1])


def test_a_holdout_is_taken_out_of_the_training_rows(pairs: TaskSpec) -> None:
    splits = read_splits(pairs, HOLDOUT)
    train, holdout = splits["train"], splits["holdout"]
    assert (len(train), len(holdout)) == (32, 8)
    assert not rows_of(train) & rows_of(holdout)
    assert holdout.labels.mean() == 0.5  # stratified
    assert rows_of(splits["evaluation"]) == rows_of(read_splits(pairs, Recipe())["evaluation"])
    assert train.notes == (
        "selection holdout: 8 of 40 training rows (0.2, stratified, subset_seed 0) are not trained "
        "on; they choose learning rate and evaluation",
    )
    again = read_splits(pairs, HOLDOUT)["holdout"]
    assert again.texts == holdout.texts
    other = read_splits(pairs, dataclasses.replace(HOLDOUT, subset_seed=1))["holdout"]
    assert rows_of(other) != rows_of(holdout)
    # Beside a share that is held out for the evaluation it is another part of the rows.
    three = read_splits(held_out(pairs, 0.25), HOLDOUT)
    parts = [rows_of(three[name]) for name in ("train", "holdout", "evaluation")]
    assert [len(part) for part in parts] == [24, 6, 10] and len(set.union(*parts)) == 40


def test_a_holdout_comes_out_of_the_subset_and_is_nested_with_it(pairs: TaskSpec) -> None:
    found = [
        read_splits(pairs, dataclasses.replace(HOLDOUT, train_size=size)) for size in (10, 20, 40)
    ]
    assert [len(one["train"]) for one in found] == [8, 16, 32]
    assert [len(one["holdout"]) for one in found] == [2, 4, 8]
    for smaller, larger in itertools.pairwise(found):
        for name in ("train", "holdout"):
            assert rows_of(smaller[name]) < rows_of(larger[name])
    # The labelled rows in use are those of any other selection.
    without = read_splits(pairs, Recipe(train_size=20))["train"]
    assert rows_of(found[1]["train"]) | rows_of(found[1]["holdout"]) == rows_of(without)


def test_every_class_is_held_out_in_its_share() -> None:
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [700, 250, 50]))
    order = stratified_order(labels, seed=3)
    for size in (100, 333, 1000):
        chosen = order[:size]
        held = held_out_rows(labels[chosen], 0.1, None)
        for label in range(3):
            count = (labels[chosen] == label).sum()
            assert abs((labels[chosen[held]] == label).sum() - 0.1 * count) <= 0.5


def test_values_are_held_out_from_their_whole_range() -> None:
    # 507: the bins are not of one size, so the order of their rows repeats itself.
    values = np.random.default_rng(0).exponential(size=507).astype(np.float32)
    order = stratified_order(BINS_OF(values), seed=3)
    places = permutation(10, 3, SELECTION)
    for size in (50, 333, 507):
        held = held_out_rows(BINS_OF(values)[order[:size]], 0.1, places)
        assert abs(held.sum() - size / 10) <= 1
    edges = np.quantile(values, np.linspace(0, 1, 11)[1:-1])
    bins = np.bincount(np.searchsorted(edges, values[order[held]]), minlength=10)
    assert bins.min() >= 4 and bins.max() <= 6


def test_a_holdout_that_is_too_small(pairs: TaskSpec) -> None:
    recipe = Recipe(selection=Selection.HOLDOUT, train_size=8)
    # A tenth of four rows is none, but a class that nobody holds out cannot choose anything.
    assert sorted(read_splits(pairs, recipe)["holdout"].labels) == [0, 1]
    half = dataclasses.replace(recipe, train_size=2, holdout=0.5)
    with pytest.raises(
        DataError, match=r"leaves none to train on of class '0', of which there are 1"
    ):
        read_splits(pairs, half)
    values = dataclasses.replace(
        pairs, kind=TaskKind.REGRESSION, classes=(), metric=Metric.SPEARMAN
    )
    with pytest.raises(
        DataError, match=r"every row of the holdout of .* nothing can be learnt or scored"
    ):
        read_splits(values, dataclasses.replace(recipe, train_size=10))


# --- Tokens --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet"])
def test_padded_batches_are_the_tokenizers_own(
    models: dict[str, ModelSpec], pairs: TaskSpec, name: str
) -> None:
    data = prepare(models[name], pairs, Recipe(max_length=16))
    texts = read_splits(pairs, Recipe())["train"].texts
    rows = [0, 12, 25, 3]
    expected = load_tokenizer(models[name])(
        [texts[0][row] for row in rows],
        [texts[1][row] for row in rows],
        truncation="longest_first",
        max_length=16,
        padding=True,
        return_tensors="pt",
    )
    batch = pad_batch(data.train, rows, data)
    assert set(batch.inputs) == set(expected)
    for key, tensor in batch.inputs.items():
        assert tensor.tolist() == expected[key].tolist(), key
    assert data.padding_side == ("left" if name == "xlnet" else "right")


def test_pairs_are_truncated_from_the_longer_text(
    models: dict[str, ModelSpec], pairs: TaskSpec
) -> None:
    def halves(max_length: int) -> tuple[int, int]:
        """Tokens of row 12 (13 words, then 4) in its first and second text."""
        rows = prepare(models["bert"], pairs, Recipe(max_length=max_length)).train
        assert rows.token_type_ids is not None
        types = rows.token_type_ids[rows.offsets[12] : rows.offsets[13]]
        return int((types == 0).sum()), int(types.sum())

    first, second = halves(128)
    assert first > second + 4
    assert halves(first + second - 3) == (first - 3, second)


def test_a_long_batch_does_not_change_what_a_text_becomes(
    models: dict[str, ModelSpec], pairs: TaskSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = prepare(models["bert"], pairs, Recipe(max_length=16))
    monkeypatch.setattr(data_module, "CHUNK", 7)
    other = prepare(models["bert"], pairs, Recipe(max_length=16))
    assert one.train.input_ids.tolist() == other.train.input_ids.tolist()
    assert one.train.offsets.tolist() == other.train.offsets.tolist()
    assert one.fingerprint == other.fingerprint


def test_one_text(models: dict[str, ModelSpec], pairs: TaskSpec) -> None:
    single = dataclasses.replace(pairs, text_columns=("two",))
    data = prepare(models["bert"], single, Recipe())
    assert data.train.token_type_ids is not None
    assert data.train.token_type_ids.max() == 0
    assert len(data.train) == 40
    assert data.chance == 0.5


def test_a_regression(models: dict[str, ModelSpec], pairs: TaskSpec) -> None:
    task = dataclasses.replace(pairs, kind=TaskKind.REGRESSION, classes=(), metric=Metric.SPEARMAN)
    data = prepare(models["bert"], task, Recipe(train_size=20))
    assert data.train.labels.dtype == np.float32
    assert data.chance == 0.0


def test_mnli_keeps_its_second_evaluation(models: dict[str, ModelSpec], tmp_path: Path) -> None:
    folder = tmp_path / "MNLI"
    folder.mkdir()
    rows = "a\tb\tneutral\nc\td\tentailment\ne\tf\tcontradiction\ng\th\t-\n"
    for name in ("train", "dev_matched", "dev_mismatched"):
        (folder / f"{name}.tsv").write_text(f"sentence1\tsentence2\tgold_label\n{rows}")
    data = prepare(models["bert"], resolve_task("mnli", data_dir=str(tmp_path)), Recipe())
    assert list(data.companions) == ["mnli_mismatched"]
    assert data.companions["mnli_mismatched"].labels.tolist() == [1, 0, 2]
    assert len(data.notes) == 3
    assert data.notes[0].startswith("1 of 4 rows of train.tsv skipped: the annotators")


# --- Fingerprints --------------------------------------------------------------------------------


def test_the_same_data_and_settings_are_the_same_tokens(
    models: dict[str, ModelSpec], pairs: TaskSpec
) -> None:
    one = prepare(models["bert"], pairs, HOLDOUT)
    two = prepare(models["bert"], pairs, dataclasses.replace(HOLDOUT, epochs=7, batch_size=4))
    assert two.fingerprint == one.fingerprint
    assert list(one.splits()) == list(two.splits()) == ["train", "evaluation", "holdout"]
    for name, rows in one.splits().items():
        assert two.splits()[name].input_ids.tolist() == rows.input_ids.tolist()
        assert two.splits()[name].labels.tolist() == rows.labels.tolist()
    assert one.holdout is not None
    assert (len(one.train), len(one.holdout)) == (32, 8)


def test_whatever_changes_the_tokens_has_another_fingerprint(
    models: dict[str, ModelSpec], pairs: TaskSpec, tmp_path: Path
) -> None:
    seen = {prepare(models["bert"], pairs, Recipe()).fingerprint}
    for model, recipe in (
        ("bert", Recipe(max_length=20)),
        ("bert", Recipe(train_size=20)),
        ("bert", Recipe(train_size=20, subset_seed=1)),
        ("bert", HOLDOUT),
        ("roberta", Recipe()),
    ):
        fingerprint = prepare(models[model], pairs, recipe).fingerprint
        assert fingerprint not in seen
        seen.add(fingerprint)
    # One letter, the file's size and time as they were.
    path = tmp_path / "train.jsonl"
    before = path.stat()
    path.write_text(path.read_text().replace("row 7 of", "row 8 of"))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert prepare(models["bert"], pairs, Recipe()).fingerprint not in seen


def test_a_row_without_a_token_is_refused() -> None:
    """A tokenizer that adds no special tokens makes none of an empty text."""

    class Bare:
        model_input_names = ("input_ids",)

        def __call__(self, *columns: list[str], **_: object) -> dict[str, list[list[int]]]:
            return {"input_ids": [[7] * len(text.split()) for text in columns[0]]}

    labels = np.zeros(2, dtype=np.int64)
    split = Split(where="rows", texts=(["a cat", ""],), labels=labels)
    with pytest.raises(DataError, match=r"the tokenizer makes no token of \[''\], and adds none"):
        tokenised(split, 8, Bare())


@pytest.mark.parametrize("name", ["bert", "roberta", "xlnet"])
@pytest.mark.parametrize("width", [1, 2])
def test_the_tokens_of_a_cut_row_are_counted_as_if_it_were_whole(
    models: dict[str, ModelSpec], name: str, width: int
) -> None:
    tokenizer = load_tokenizer(models[name])
    lengths = (1, 2, 3, 4, 5, 6, 7, 8, 20)
    columns = tuple([" ".join(["film"] * length) for length in lengths] for _ in range(width))
    split = Split(where="rows", texts=columns, labels=np.zeros(len(lengths), dtype=np.int64))
    rows = tokenised(split, 8, tokenizer)
    whole = [len(ids) for ids in tokenizer(*columns, verbose=False)["input_ids"]]
    assert rows.full_lengths.tolist() == whole
    assert rows.lengths.tolist() == [min(length, 8) for length in whole]
    chosen = np.array([8, 0])
    assert rows.take(chosen).full_lengths.tolist() == [whole[8], whole[0]]
    assert tokenised(split, 1000, tokenizer).uncut is None


def test_a_tokenizers_identity_is_not_what_the_last_call_wanted(
    models: dict[str, ModelSpec],
) -> None:
    tokenizer = load_tokenizer(models["bert"])
    fresh = tokenizer_identity(tokenizer)
    tokenizer(["a cat"], truncation=True, max_length=8, padding="max_length")
    assert tokenizer_identity(tokenizer) == fresh == tokenizer_identity(tokenizer)
    tokenizer.add_tokens(["elsa"])
    assert tokenizer_identity(tokenizer) != fresh


def test_the_same_texts_elsewhere_are_the_same_data(
    models: dict[str, ModelSpec], pairs: TaskSpec, tmp_path: Path
) -> None:
    one = prepare(models["bert"], pairs, Recipe())
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("train", "dev"):
        (tmp_path / f"{name}.jsonl").rename(moved / f"{name}.jsonl")
    source = FilesSource(
        format="jsonl",
        train=(str(moved / "train.jsonl"),),
        evaluation=(str(moved / "dev.jsonl"),),
    )
    two = prepare(models["bert"], dataclasses.replace(pairs, source=source), Recipe())
    assert two.fingerprint == one.fingerprint


def test_chance_and_notes_are_of_the_rows_as_they_are(
    models: dict[str, ModelSpec], pairs: TaskSpec, tmp_path: Path
) -> None:
    path = tmp_path / "dev.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    for row in rows[:6:2]:
        row["label"] = 1
    path.write_text("\n".join(map(json.dumps, rows)))
    assert prepare(models["bert"], pairs, Recipe()).chance == 0.8
    by_f1 = prepare(models["bert"], with_metric(pairs, "f1"), Recipe())
    assert by_f1.chance == pytest.approx(2 * 0.8 / 1.8)
    path.write_text(path.read_text() + '\n{"one": "", "two": " ", "label": 0}')
    assert len(prepare(models["bert"], pairs, Recipe()).notes) == 1


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert cache_dir() == Path(os.environ["ELSA_TUNE_CACHE"])
    monkeypatch.delenv("ELSA_TUNE_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "elsa-tune"


def test_reading_needs_none_of_the_heavy_packages(root: Path, pairs: TaskSpec) -> None:
    """On a machine with torch and transformers alone, files and the embedded task are read.

    Without these two as well: whoever looks at a task does not wait for them.
    """
    code = (
        "import sys\n"
        "from elsa_tune.specs.trial import Recipe\n"
        "from elsa_tune.training.data.preparation import read_splits\n"
        "import pickle\n"
        "print(len(read_splits(pickle.loads(bytes.fromhex(sys.argv[1])), Recipe())['train']))\n"
        "heavy = 'torch transformers datasets pyarrow pandas scipy yaml pydantic ray optuna "
        "mlflow rich typer'.split()\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, pickle.dumps(pairs).hex()],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout.splitlines() == ["40", "[]"]


def test_a_recorded_data_folder_that_is_relative_says_where_it_leads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who passes a search's record on may shorten its paths."""
    monkeypatch.chdir(tmp_path)
    task = resolve_task("rte")
    assert isinstance(task.source, GlueSource)
    source = dataclasses.replace(task.source, data_dir="glue")
    moved = dataclasses.replace(task, source=source)
    with pytest.raises(DataError) as caught:
        read_splits(moved, Recipe())
    assert str(caught.value) == (
        f"the data folder is recorded as 'glue', which leads nowhere from {tmp_path}; run the "
        "command in the folder that 'glue' lies in"
    )


def test_the_commonest_stratum_of_a_group_is_the_first_of_equal_ones() -> None:
    rng = np.random.default_rng(0)
    groups = numbered(rng.integers(0, 60, 500).astype(np.uint64))
    strata = rng.integers(0, 7, 500)
    rows = np.zeros((60, 7), int)
    np.add.at(rows, (groups, strata), 1)
    assert (subsets._commonest_stratum(groups, strata) == rows.argmax(axis=1)).all()
