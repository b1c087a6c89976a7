"""Bundles of tiny models answer as each model alone, share what is frozen, and refuse others."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    modeling_utils,
    pipeline,
)

import elsa_tune
from elsa_tune.errors import DataError, ModelError, StorageError, UnknownNameError, UsageError
from elsa_tune.exporting import bundle as bundling
from elsa_tune.specs.task import FilesSource, Metric, TaskKind, TaskSpec
from elsa_tune.training import saved
from elsa_tune.training.bundle import fastest
from elsa_tune.training.bundle.members import Members, read_members
from elsa_tune.training.bundle.texts import Texts
from elsa_tune.training.bundle.together import Bundle, Prediction
from tests.conftest import Run
from tests.exporting import exported_model
from tests.pairs import thorough
from tests.searching import make_bench
from tests.unit.tiny_models import make_tiny

TEXTS = ["the film was great", "dull", "a very good story but the plot was never fun " * 4, "best"]
PAIRS = [(text, "it was bad") for text in TEXTS]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows to compare, and to measure, once each."""
    monkeypatch.setattr(bundling, "REPEATS", 1)
    monkeypatch.setattr(bundling, "ROWS", 8)
    monkeypatch.setattr(bundling, "BATCHES", (1, 4))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Models of one BERT by task: intent (N = 1), spam (N = 3) and heat (a regression, N = 2)."""
    folder = tmp_path_factory.mktemp("models")
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("ELSA_TUNE_CACHE", str(folder / "cache"))
        environment.chdir(folder)
        base = make_tiny("bert", Path("base"))
        exported_model(folder / "intent", base, task_of(folder), 1)
        exported_model(folder / "spam", base, task_of(folder), 3)
        degrees = regression_of(folder)
        exported_model(folder / "heat", base, degrees, 2, standardize_targets=True)
        yield folder


@pytest.fixture
def models(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the working directory, with copies of them that may be changed."""
    for name in ("base", "intent", "spam", "heat"):
        shutil.copytree(made / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def task_of(folder: Path) -> TaskSpec:
    make_bench(folder / "task")
    files = (str(folder / "task" / "train.csv"),), (str(folder / "task" / "dev.csv"),)
    return TaskSpec(
        name="mood",
        kind=TaskKind.CLASSIFICATION,
        text_columns=("text",),
        label_column="label",
        classes=("bad", "good"),
        metric=Metric.ACCURACY,
        source=FilesSource(format="csv", train=files[0], evaluation=files[1]),
    )


def regression_of(folder: Path) -> TaskSpec:
    """Return the same texts, good and bad as degrees around a hundred."""
    task = task_of(folder / "degrees")
    for file in (folder / "degrees" / "task").glob("*.csv"):
        text = file.read_text().replace(",good", ",105.0").replace(",bad", ",95.0")
        file.write_text(text)
    kind = {"kind": TaskKind.REGRESSION, "classes": (), "metric": Metric.PEARSON}
    return dataclasses.replace(task, **kind)


def single(folder: Path, texts: list[Any]) -> np.ndarray:
    """Logits of one exported model, as transformers alone gives them."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    columns = (
        [texts] if isinstance(texts[0], str) else [list(one) for one in zip(*texts, strict=True)]
    )
    inputs = tokenizer(*columns, padding=True, truncation=True, return_tensors="pt")
    with torch.no_grad():
        return AutoModelForSequenceClassification.from_pretrained(folder)(**inputs).logits.numpy()


def about(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "bundle.json").read_text())
    return found


@pytest.mark.parametrize("texts", [TEXTS, PAIRS], ids=["texts", "pairs"])
def test_together_they_answer_as_each_alone(models: Path, texts: list[Any]) -> None:
    folder = elsa_tune.bundle(["intent", "spam", "heat"], "router")
    router = elsa_tune.load_bundle(folder)
    assert (router.tasks, router.how) == (("intent", "spam", "heat"), "packed")
    found = router.predict_either(texts)
    for name, prediction in found.items():
        expected = single(models / name, texts)
        np.testing.assert_allclose(prediction.logits, expected, rtol=1e-5, atol=1e-5)
        rows = texts if texts is TEXTS else [{"text": a, "text_pair": b} for a, b in texts]
        answers = pipeline("text-classification", str(models / name), truncation=True)(rows)
        assert list(prediction.labels) == [answer["label"] for answer in answers]
        scores = [answer["score"] for answer in answers]
        np.testing.assert_allclose(prediction.scores, scores, rtol=1e-5)
    assert found["heat"].labels == ("label",) * 4 and found["heat"].scores.min() > 80
    [(name, alone)] = router.predict_either(texts, ["spam"]).items()
    np.testing.assert_allclose(alone.logits, found[name].logits, atol=1e-6)


@pytest.mark.parametrize(
    ("architecture", "how"),
    [
        ("mpnet", "packed"),
        ("modernbert", "padded"),
        *thorough(("roberta", "packed"), ("deberta-v2", "padded")),
    ],
)
def test_other_kinds_from_no_frozen_layer_to_all(
    architecture: str, how: str, tmp_path: Path
) -> None:
    base, task = make_tiny(architecture, tmp_path / "base"), task_of(tmp_path)
    names = {"none": 0, "tables": "embeddings", "two": 2, "all": 4}
    folders = [exported_model(tmp_path / n, base, task, depth) for n, depth in names.items()]
    router = elsa_tune.load_bundle(elsa_tune.bundle(folders, tmp_path / "router"))
    assert router.how == how
    for name, found in router.predict(TEXTS).items():
        np.testing.assert_allclose(found.logits, single(tmp_path / name, TEXTS), atol=1e-5)


def test_shared_layers_run_once_and_no_deeper_than_asked(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[str, int]] = []
    router = elsa_tune.load_bundle(elsa_tune.bundle(["intent", "spam", "heat"], "router"))
    for part in (router._prefix, *router._branches.values()):
        who = "shared" if part is router._prefix else "own"
        for number, layer in enumerate(part.layers, part.first_layer):
            layer.intermediate.register_forward_hook(
                lambda *_, at=(who, number): runs.append(at) if at else None
            )
    router.predict(TEXTS)
    assert [n for who, n in runs if who == "shared"] == [0, 1, 2]
    assert sorted(n for who, n in runs if who == "own") == [1, 2, 2, 3, 3, 3]
    runs.clear()
    router.predict(TEXTS, ["intent"])
    assert runs == [("shared", 0), ("own", 1), ("own", 2), ("own", 3)]


def test_what_is_shared_is_written_and_kept_once(models: Path) -> None:
    elsa_tune.bundle(["intent", "spam"], "router")
    base = load_file("base/model.safetensors")
    prefix = load_file("router/prefix.safetensors")
    parts = ("embeddings.", *(f"encoder.layer.{n}." for n in range(3)))
    assert prefix.keys() == {f"bert.{name}" for name in base if name.startswith(parts)}
    assert all(torch.equal(x, base[name.removeprefix("bert.")]) for name, x in prefix.items())
    spam, intent = (load_file(f"router/branches/{name}.safetensors") for name in ("spam", "intent"))
    assert not spam.keys() & prefix.keys()
    assert {name.split(".")[3] for name in intent if "layer" in name} == {"1", "2", "3"}
    members = read_members(Path("router"))
    places = [
        {name: x.data_ptr() for name, x in member.frozen().items()} for member in members.values()
    ]
    assert places[0].items() <= places[1].items() and places[0]


def test_a_text_is_cut_where_its_own_task_cut_it(models: Path) -> None:
    exported_model(models / "short", Path("base"), task_of(models), 2, max_length=8)
    router = elsa_tune.load_bundle(elsa_tune.bundle(["short", "spam"], "router"))
    for texts in (TEXTS, TEXTS[:2]):
        for name, found in router.predict(texts).items():
            np.testing.assert_allclose(found.logits, single(models / name, texts), atol=1e-5)
            if name == "short":
                assert found.is_cut.tolist() == [False, False, True, False][: len(texts)]


def test_the_command_says_what_it_keeps(models: Path, run: Run) -> None:
    status, out, said = run("bundle", "intent", "spam", "--out", "router")
    assert (status, out) == (0, "router\n"), said
    assert "intent: 3 of 4 layers of its own; logits differ by " in said
    assert "alone: " in said and "bundled: " in said and " MB" in said
    found = about(Path("router"))
    assert (found["base"], found["runs"]) == ("base", "packed")
    assert max(found["largest_difference"].values()) <= 1e-5
    alone, together = (found["measured"]["cost"][how] for how in ("alone", "bundled"))
    assert together["megabytes"] < alone["megabytes"]
    assert set(alone["milliseconds"]) == set(together["milliseconds"]) == {"1", "4"}
    assert torch.__version__.startswith(found["measured"]["versions"]["torch"])
    assert not [path for path in Path("router").rglob("*") if path.suffix in (".bin", ".pkl")]


def test_alone_and_bundled_are_timed_in_turns(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []
    answer = Bundle.predict_either

    def noted(
        runs: Bundle, texts: Texts, tasks: Sequence[str] | None = None
    ) -> dict[str, Prediction]:
        if tasks is not None:
            asked.append(tuple(tasks))
        return answer(runs, texts, tasks)

    monkeypatch.setattr(Bundle, "predict_either", noted)
    elsa_tune.bundle(["intent", "spam"], "router")
    # Of four texts there are four batches of one and one of four.
    assert asked == 5 * [("intent",), ("spam",), ("intent", "spam")]


def test_a_bundle_is_changed_by_one_at_a_time(
    models: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each would write what it has read, without what the other one adds."""
    elsa_tune.bundle(["intent", "spam"], "router")
    read = bundling.read_members
    refused: list[str] = []

    def read_meanwhile(folder: Path) -> Members:
        if not refused:
            refused.append("")
            [refused[0]] = [run("bundle", "router", "--remove", "spam").err]
        return read(folder)

    monkeypatch.setattr(bundling, "read_members", read_meanwhile)
    elsa_tune.bundle(["router", "heat"])
    assert "another process writes a bundle to router: wait for it" in refused[0]
    assert list(about(Path("router"))["tasks"]) == ["intent", "spam", "heat"]
    assert not list(models.glob(".router*"))


def test_tasks_are_added_replaced_and_removed(models: Path, run: Run) -> None:
    run("bundle", "intent", "spam", "--out", "router")
    before = elsa_tune.load_bundle("router").predict(TEXTS)
    status, out, said = run("bundle", "router", "--add", "heat")
    assert (status, out) == (0, "router\n"), said
    router = elsa_tune.load_bundle("router")
    assert router.tasks == ("intent", "spam", "heat")
    for name, found in before.items():
        np.testing.assert_allclose(router.predict(TEXTS)[name].logits, found.logits, atol=1e-6)
    # Without the deepest task fewer layers are shared, and nothing else changes.
    assert run("bundle", "router", "--remove", "spam", "--out", "small").status == 0
    assert elsa_tune.load_bundle("small").tasks == ("intent", "heat")
    assert not [n for n in load_file("small/prefix.safetensors") if ".layer.2." in n]
    shutil.rmtree("heat")
    exported_model(models / "heat", Path("base"), regression_of(models), 4)
    assert run("bundle", "router", "--remove", "heat", "--add", "heat").status == 0
    replaced = elsa_tune.load_bundle("router").predict(TEXTS)["heat"]
    np.testing.assert_allclose(
        replaced.logits, single(models / "heat", TEXTS), rtol=1e-5, atol=1e-6
    )
    status, _, said = run("bundle", "router", "--remove", "tone")
    assert status == 2 and "unknown task 'tone'" in said and "heat, intent, spam" in said


def test_fewer_than_two_that_share_are_refused(models: Path, run: Run) -> None:
    """One task shares with nobody: a second format of one model would help nobody either."""
    status, _, said = run("bundle", "intent", "--out", "router")
    assert status == 2 and "two models" in said
    exported_model(models / "full", Path("base"), task_of(models), 0)
    status, _, said = run("bundle", "intent", "full", "--out", "router")
    assert status == 2 and "(here: intent and full)" in said
    run("bundle", "intent", "spam", "--out", "router")
    assert run("bundle", "router", "--remove", "spam").status == 2
    assert elsa_tune.load_bundle("router").tasks == ("intent", "spam")


def test_equal_names_are_refused(models: Path, run: Run) -> None:
    shutil.copytree("intent", "other/spam")
    status, _, said = run("bundle", "intent", "spam", "other/spam", "--out", "router")
    assert status == 2 and "'spam'" in said
    elsa_tune.bundle(["intent", "spam"], "router")
    with pytest.raises(UsageError, match="'spam'"):
        elsa_tune.bundle(["router", "other/spam"])


def test_a_link_to_a_folder_is_a_task_of_the_links_name(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("urgent").symlink_to("spam")
    elsa_tune.bundle(["intent", "urgent", "spam"], "router")
    assert elsa_tune.load_bundle("router").tasks == ("intent", "urgent", "spam")
    monkeypatch.chdir("spam")
    assert list(read_members(Path())) == ["spam"]


def edited(folder: str, **facts: object) -> None:
    """Change what an exported model's configuration says of it."""
    path = Path(folder, "config.json")
    config = json.loads(path.read_text())
    config["elsa_tune"].update(facts)
    path.write_text(json.dumps(config))


def test_a_model_that_was_edited_by_hand_is_refused(models: Path) -> None:
    weights = Path("spam/model.safetensors")
    good, state = weights.read_bytes(), load_file(weights)
    state["bert.encoder.layer.1.output.dense.bias"][0] += 1e-3
    save_file(state, weights, {"format": "pt"})
    with pytest.raises(ModelError, match="layers of 'spam'"):
        elsa_tune.bundle(["intent", "spam"], "router")
    weights.write_bytes(good)
    edited("spam", frozen_layers=4)
    with pytest.raises(ModelError, match="layers of 'spam'"):
        elsa_tune.bundle(["intent", "spam"], "router")
    edited("spam", frozen_layers=3)
    # What changes how layers compute, and no weight.
    path = Path("spam/config.json")
    path.write_text(path.read_text().replace('"hidden_act": "gelu"', '"hidden_act": "relu"'))
    with pytest.raises(ModelError, match="logits"):
        elsa_tune.bundle(["intent", "spam"], "router")
    del state["classifier.weight"]
    save_file(state, weights, {"format": "pt"})
    with pytest.raises(ModelError, match=r"spam .*classifier\.weight"):
        elsa_tune.bundle(["intent", "spam"], "router")
    with pytest.raises(ModelError, match=r"base .*config\.json"):
        elsa_tune.bundle(["intent", "base"], "router")
    assert not list(models.glob("*router*"))


def test_a_name_of_somebodys_bundle_leads_nowhere(models: Path, run: Run) -> None:
    elsa_tune.bundle(["intent", "spam"], "theirs/router")
    file = Path("theirs/router/bundle.json")
    good = file.read_text()
    for name in ("../../../pwn", "/pwn", "..", ".hidden", "a/b", "a\\b", "a\0b", "", "a b"):
        edited = json.loads(good)
        edited["tasks"] = {name: edited["tasks"]["intent"], "spam": edited["tasks"]["spam"]}
        file.write_text(json.dumps(edited))
        # Where the name would lead there is a file, so that it could be read.
        with contextlib.suppress(OSError, ValueError):
            place = Path("theirs/router/branches", f"{name}.safetensors")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy("theirs/router/branches/intent.safetensors", place)
        before = sorted(models.rglob("*"))
        status, _, said = run("bundle", "theirs/router", "--out", "out/router")
        assert status == 2 and "task's name" in said, name
        assert sorted(models.rglob("*")) == before
        with pytest.raises(ModelError, match="task's name"):
            elsa_tune.load_bundle("theirs/router")
    shutil.copytree("intent", "my intent")
    with pytest.raises(ModelError, match="'my intent'"):
        elsa_tune.bundle(["my intent", "spam"], "other")


def test_no_kernel_that_a_foreign_file_names_is_fetched(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    for name in ("is_kernel", "lazy_import_flash_attention"):
        monkeypatch.setattr(modeling_utils, name, lambda *given, **_: asked.append(given))
    elsa_tune.bundle(["intent", "spam"], "router")
    asked.clear()
    file = Path("router/bundle.json")
    found = about(Path("router"))
    for value in ("someone/kernel", "kernels-community/flash-attn2", "flash_attention_2"):
        for key in ("attn_implementation", "_attn_implementation"):
            found["tasks"]["intent"]["config"][key] = value
            file.write_text(json.dumps(found))
            members = read_members(Path("router"))
            assert members["intent"].model.config._attn_implementation == "sdpa"
            path = Path("spam/config.json")
            path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
            spam = read_members(Path("spam"))["spam"].model
            answers = saved.classifier(Path("spam")).model
            assert spam.config._attn_implementation == answers.config._attn_implementation == "sdpa"
    assert not any("/" in str(given[0]) or "flash" in str(given[0]) for given in asked if given)
    quantised = {"quant_method": "mxfp4"}
    path.write_text(json.dumps({**json.loads(path.read_text()), "quantization_config": quantised}))
    with pytest.raises(ModelError, match="'spam' are quantised"):
        read_members(Path("spam"))


def test_one_base_may_have_several_names(models: Path) -> None:
    edited("spam", base="/elsewhere/base", revision="v2")
    elsa_tune.bundle(["intent", "spam"], "router")
    assert about(Path("router"))["base"] == "/elsewhere/base"


def test_other_tokenizers_are_named(models: Path) -> None:
    file = Path("spam/tokenizer.json")
    good = file.read_text()
    file.write_text(
        good.replace('"lowercase":true', '"lowercase":false').replace(
            '"lowercase": true', '"lowercase": false'
        )
    )
    with pytest.raises(ModelError, match=r"same tokenizer: that of 'intent' is not that of 'spam'"):
        elsa_tune.bundle(["intent", "spam"], "router")
    file.write_text(good)
    # The same name, but its weights were others: an honest hash of other layers.
    base = make_tiny("bert", Path("base"), initializer_range=0.3)
    shutil.rmtree("spam")
    exported_model(models / "spam", base, task_of(models), 3)
    with pytest.raises(ModelError, match=r"'intent', of base, are not those of 'spam', of base"):
        elsa_tune.bundle(["intent", "spam"], "router")


def test_a_folder_that_was_copied_without_its_tokenizer_is_refused(models: Path) -> None:
    """Transformers makes one up, to which every word is unknown."""
    elsa_tune.bundle(["intent", "heat"], "router")
    for name in ("spam", "router"):
        for file in Path(name).glob("tokenizer*"):
            file.unlink()
    refused = "has no tokenizer in"
    with pytest.raises(ModelError, match=rf"spam cannot be read as an exported .* {refused} spam"):
        elsa_tune.predict("spam", TEXTS)
    with pytest.raises(ModelError, match=refused):
        elsa_tune.bundle(["intent", "spam"], "other")
    with pytest.raises(ModelError, match=f"router cannot be read as a bundle: .* {refused} router"):
        elsa_tune.load_bundle("router")


def test_a_vocabulary_alone_is_a_tokenizer(models: Path) -> None:
    expected = elsa_tune.predict("spam", TEXTS)
    whole = json.loads(Path("spam/tokenizer.json").read_text())
    words = whole["model"]["vocab"]
    ordered = sorted(words, key=words.__getitem__)
    Path("spam/vocab.txt").write_text("".join(f"{word}\n" for word in ordered))
    for file in Path("spam").glob("tokenizer*"):
        file.unlink()
    pd.testing.assert_frame_equal(elsa_tune.predict("spam", TEXTS), expected)


def test_what_is_there_is_not_written_over(models: Path) -> None:
    Path("router").mkdir()
    Path("router/mine").write_text("mine")
    with pytest.raises(UsageError, match="router is there"):
        elsa_tune.bundle(["intent", "spam"], "router")
    with pytest.raises(UsageError, match=r"router has no bundle\.json"):
        elsa_tune.bundle(["intent", "spam"], "router", overwrite=True)
    elsa_tune.bundle(["intent", "spam"], "other")
    with pytest.raises(UsageError, match="other is there"):
        elsa_tune.bundle(["intent", "heat"], "other")
    elsa_tune.bundle(["intent", "heat"], "other", overwrite=True)
    assert elsa_tune.load_bundle("other").tasks == ("intent", "heat")
    with pytest.raises(UsageError, match="`out`"):
        elsa_tune.bundle(["intent", "spam"])
    with pytest.raises(UsageError, match="nowhere"):
        elsa_tune.bundle(["intent", "nowhere"], "new")


@pytest.mark.parametrize("crash", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_end_in_mid_write_leaves_what_was(
    crash: BaseException, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise crash

    elsa_tune.bundle(["intent", "spam"], "router")
    before = sorted(models.rglob("*"))
    monkeypatch.setattr(bundling, "write_pyfunc", fail)
    kind = StorageError if isinstance(crash, OSError) else KeyboardInterrupt
    for what, out in ((["router", "heat"], None), (["intent", "spam"], "new")):
        with pytest.raises(kind):
            elsa_tune.bundle(what, out)
    assert sorted(models.rglob("*")) == before
    assert elsa_tune.load_bundle("router").tasks == ("intent", "spam")


def test_a_difference_that_is_too_large_is_refused(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fastest, "LIMIT", -1.0)
    with pytest.raises(ModelError, match=r"packed .*padded "):
        elsa_tune.bundle(["intent", "spam"], "router")
    assert not list(models.glob("*router*"))


def test_logits_that_are_no_numbers_are_refused_whichever_task_has_them(models: Path) -> None:
    weights = Path("spam/model.safetensors")
    state = load_file(weights)
    state["classifier.bias"].fill_(torch.nan)
    save_file(state, weights, {"format": "pt"})
    for order in (["intent", "spam"], ["spam", "intent"]):
        with pytest.raises(ModelError, match="logits differ by nan"):
            elsa_tune.bundle(order, "router")


def test_what_cannot_run_from_its_middle_is_refused(tmp_path: Path) -> None:
    base, task = make_tiny("xlnet", tmp_path / "base"), task_of(tmp_path)
    folders = [exported_model(tmp_path / str(n), base, task, n) for n in (1, 2)]
    with pytest.raises(ModelError, match="embeddings"):
        elsa_tune.bundle(folders, tmp_path / "router")


def test_what_is_no_text_or_no_task_is_refused(models: Path) -> None:
    router = elsa_tune.load_bundle(elsa_tune.bundle(["intent", "spam"], "router"))
    with pytest.raises(UnknownNameError, match=r"'spamm'.*'spam'"):
        router.predict(TEXTS, ["spamm"])
    for wrong in (
        "a text",
        [{"text": "a"}],
        [("a", "b", "c")],
        ["a", ("a", "b")],
        [1],
        {"text": ["a"]},
    ):
        with pytest.raises(DataError, match="list of texts"):
            router.predict(wrong)  # type: ignore[arg-type]
    for lacks_one in ([("a", None)], ["a", None], pd.Series(["a", None]), ["a", pd.NA]):
        with pytest.raises(DataError, match="one of them is missing"):
            router.predict(lacks_one)  # type: ignore[arg-type]
    for half in (["good", "a \ud800 b"], [("good", "a \ud800 b")]):
        with pytest.raises(DataError, match=f"row {len(half)} of the texts has half of a char"):
            router.predict(half)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="there is no folder nowhere"):
        elsa_tune.load_bundle("nowhere")
    assert [one.logits.shape for one in router.predict([]).values()] == [(0, 2), (0, 2)]
    assert router.predict(TEXTS, []) == {}
    for damage in ("branches/spam.safetensors", "bundle.json"):
        Path("router", damage).write_text("nothing")
        with pytest.raises(ModelError, match="router"):
            elsa_tune.load_bundle("router")


def test_a_task_is_never_given_the_texts_of_another(models: Path) -> None:
    """One that reads pairs beside one that reads single texts."""
    edited("spam", text_columns=["text", "other"])
    router = elsa_tune.load_bundle(elsa_tune.bundle(["intent", "spam"], "router"))
    with pytest.raises(DataError, match="each row is a text, but 'spam' reads a pair of texts"):
        router.predict(TEXTS)
    with pytest.raises(DataError, match="each row is a pair of texts, but 'intent' reads a text"):
        router.predict(PAIRS, ["intent"])
    intent = router.predict(TEXTS, ["intent"])["intent"]
    spam = router.predict(PAIRS, ["spam"])["spam"]
    asked = bundling._Answering("router")
    rows = pd.DataFrame(PAIRS, columns=["text", "text_pair"])
    found = asked.predict(rows)
    assert list(found.columns) == ["intent", "spam", "intent_score", "spam_score"]
    np.testing.assert_allclose(found["intent_score"], intent.scores, rtol=1e-6)
    np.testing.assert_allclose(found["spam_score"], spam.scores, rtol=1e-6)
    with pytest.raises(DataError, match="'spam' reads a pair of texts"):
        asked.predict(rows[["text"]])


def test_mlflow_is_given_the_columns_that_the_folder_declares(models: Path) -> None:
    """A task that reads pairs stands between two that read single texts."""
    from mlflow.models import Model

    edited("spam", text_columns=["text", "other"])
    elsa_tune.bundle(["intent", "spam", "heat"], "router")
    declared = Model.load("router").get_output_schema().input_names()
    rows = pd.DataFrame(PAIRS, columns=["text", "text_pair"])
    assert list(bundling._Answering("router").predict(rows).columns) == declared


def test_a_task_is_not_called_as_what_another_answers(models: Path) -> None:
    Path("spam").rename("intent_score")
    with pytest.raises(UsageError, match="'intent_score' beside 'intent' would be called as what"):
        elsa_tune.bundle(["intent", "intent_score"], "router")


def test_threads_may_share_it(models: Path) -> None:
    router = elsa_tune.load_bundle(elsa_tune.bundle(["intent", "spam"], "router"))
    expected, found = router.predict(TEXTS)["spam"].logits, list[np.ndarray]()
    threads = [
        threading.Thread(target=lambda: found.append(router.predict(TEXTS)["spam"].logits))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and all(np.array_equal(one, expected) for one in found)


@pytest.mark.filterwarnings("ignore:.*Any type hint:UserWarning")  # of MLflow's own code
def test_mlflow_loads_the_folder(models: Path) -> None:
    import mlflow

    elsa_tune.bundle(["intent", "heat"], "router")
    loaded = mlflow.pyfunc.load_model("router")
    rows = pd.DataFrame({"text": TEXTS}, index=[3, 1, 4, 5])
    found = loaded.predict(rows)
    expected = elsa_tune.load_bundle("router").predict(TEXTS)
    assert list(found.columns) == ["intent", "heat", "intent_score", "heat_score"]
    assert list(found.index) == [3, 1, 4, 5]
    assert tuple(found["intent"]) == expected["intent"].labels
    np.testing.assert_allclose(found["heat_score"], expected["heat"].scores, rtol=1e-6)
    some = loaded.predict(rows, {"tasks": ["heat"]})
    assert list(some.columns) == ["heat", "heat_score"]
    assert not mlflow.is_tracking_uri_set()
