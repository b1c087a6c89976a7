"""`elsa-tune export` on a search with made-up trials and a tiny model that is really trained."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import math
import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import mlflow
import numpy as np
import onnxruntime
import pytest
import torch
import yaml
from safetensors import SafetensorError

import elsa_tune
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.cli.printing import with_options
from elsa_tune.errors import (
    DataError,
    DivergedError,
    ModelError,
    NoAnswerError,
    RunError,
    SpaceError,
    StorageError,
    UsageError,
)
from elsa_tune.exporting import model, progress_line
from elsa_tune.exporting.choice import choose
from elsa_tune.exporting.folder import aside, scratch
from elsa_tune.exporting.model import ExportRequest, export
from elsa_tune.searching.launch import resume
from elsa_tune.searching.record import facts_of
from elsa_tune.searching.specification import load_specification, replace_specification
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.trial import Phase, Pooling, Precision, TrialStatus
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import Report, TrialEnded, TrialStarted
from elsa_tune.tracking.mlflow import models
from elsa_tune.tracking.mlflow.sink import MlflowSink
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.mlflow.writer import MlflowWriter
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import read_state
from elsa_tune.training.data.preparation import read_splits
from elsa_tune.training.saved import classifier, predict
from elsa_tune.words import points
from tests.conftest import Run
from tests.exporting import CURVE, kept_predictions, made_up_search
from tests.searching import make_bench
from tests.unit.result_rows import seeds
from tests.unit.tiny_models import make_tiny


@pytest.fixture
def paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SearchPaths:
    """Return the search, whose MLflow is a dummy that takes everything."""
    writer = Mock(spec=MlflowWriter, uri="sqlite:////nowhere/mlflow.db")
    monkeypatch.setattr(MlflowStore, "sink", lambda store, journal: MlflowSink(journal, writer))
    monkeypatch.setattr(MlflowStore, "keep_model", lambda *arguments: "models:/m-1")
    make_bench(tmp_path)
    return made_up_search(tmp_path, str(tmp_path / "model"), str(tmp_path / "task.yaml"))


@dataclasses.dataclass(frozen=True)
class Exported:
    folder: Path
    quality: float
    said: list[str]


def exported(paths: SearchPaths, name: str = "out", **changes: object) -> Exported:
    out, said = paths.storage.parent / name, list[str]()
    request = ExportRequest(paths=paths, out=out, **changes)  # type: ignore[arg-type]
    quality = export(request, said.append)
    return Exported(out, quality, said)


@pytest.fixture
def torch_of_the_program() -> Iterator[Callable[[], None]]:
    """Return what gives torch defaults that a program may have; they are taken back at the end."""

    def set_defaults() -> None:
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)

    yield set_defaults
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)


def test_what_a_program_has_set_in_torch_changes_no_model_and_no_answer(
    paths: SearchPaths,
    torch_of_the_program: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(paths.storage.parent)
    texts = ["a fine day", "no"]

    def confidence(folder: Path) -> list[float]:
        return elsa_tune.predict(folder, texts)["confidence"].tolist()

    plain = exported(paths, "plain")
    expected = confidence(plain.folder)
    torch_of_the_program()
    with torch.inference_mode():
        done = exported(paths, "done")
        assert torch.is_inference_mode_enabled()
    name = "model.safetensors"
    assert (done.folder / name).read_bytes() == (plain.folder / name).read_bytes()
    assert confidence(done.folder) == expected
    elsa_tune.bundle([plain.folder, done.folder], "both")
    found = elsa_tune.load_bundle("both").predict(texts)
    np.testing.assert_allclose(found["done"].scores, expected, rtol=1e-5)
    assert torch.get_default_dtype() is torch.float64
    assert torch.get_default_device().type == "meta"
    assert not torch.is_grad_enabled()


WAYS = {**CURVE, "lora-last1": (0.92, 0.91, 0.93), "bitfit": (0.9, 0.9, 0.91)}


@pytest.fixture
def ways(paths: SearchPaths, tmp_path: Path) -> SearchPaths:
    """Return a search beside it, which compares other ways, too."""
    model, task = str(tmp_path / "model"), str(tmp_path / "task.yaml")
    return made_up_search(tmp_path, model, task, WAYS, name="ways")


def test_a_way_that_no_curve_has_is_exported_by_its_label(ways: SearchPaths) -> None:
    rows = rows_of(read_state(ways.journal))
    [answer] = answer_rows(rows)
    assert [point.candidate.label for point in answer.points] == ["0", "1", "2"]
    done = exported(ways, way="lora-last1", adapter=True)
    about = json.loads((done.folder / "elsa-tune.json").read_text())
    assert about["exported"]["label"] == "lora-last1" and about["exported"]["seeds_measured"] == 3
    low, high = about["exported"]["promised"]
    assert low < 0.92 < high
    card = (done.folder / "README.md").read_text()
    assert "LoRA of rank 8 on the last layer (as asked for)" in card
    assert "In the search this way kept 101.1 % of the full model's accuracy" in card
    assert {file.name for file in (done.folder / "adapter").iterdir()} == {
        "README.md",
        "adapter_config.json",
        "adapter_model.safetensors",
    }
    assert predict(done.folder, [["a good film"]]).shape == (1,)
    # What is recommended is a depth as before.
    assert "1 of 2 layers" in exported(ways, "other").said[0]


def test_without_an_answer_the_measured_ways_are_named(paths: SearchPaths, tmp_path: Path) -> None:
    arguments = (str(tmp_path / "model"), str(tmp_path / "task.yaml"))
    no_depth = {label: WAYS[label] for label in (0, "bitfit", "lora-last1")}
    no_depths = made_up_search(tmp_path, *arguments, no_depth, name="no-depths", layers=2)
    with pytest.raises(NoAnswerError) as refused:
        exported(no_depths)
    assert with_options(str(refused.value)) == (
        "No answer: no depth with frozen layers was measured. To export a way anyway, give --way; "
        "measured: 0 (the full model), bitfit, lora-last1"
    )
    nothing_learnt = dict.fromkeys(WAYS, CURVE[2])
    at_chance = made_up_search(tmp_path, *arguments, nothing_learnt, name="at-chance")
    with pytest.raises(NoAnswerError, match="The full model did not learn: ") as refused:
        exported(at_chance)
    assert str(refused.value).endswith(
        ". To export a way anyway, give `way`; measured: 0 (the full model), "
        "1 (1 frozen layer, 1 fine-tuned), 2 (the head alone), bitfit, lora-last1"
    )


def test_what_has_no_adapter_and_what_was_not_measured_is_refused(ways: SearchPaths) -> None:
    with pytest.raises(UsageError, match="what is exported is the biases; leave `adapter` out"):
        exported(ways, way="bitfit", adapter=True)
    with pytest.raises(UsageError, match="what is exported is the last layer; leave"):
        exported(ways, adapter=True)
    with pytest.raises(UsageError) as refused:
        exported(ways, way="lora")
    assert str(refused.value) == (
        "`way` is lora, which was not measured, so that its learning rate is not known; measured: "
        "0 (the full model), 1 (1 frozen layer, 1 fine-tuned), 2 (the head alone), bitfit, "
        "lora-last1"
    )
    with pytest.raises(UsageError) as refused:
        exported(ways, way="adapters")
    assert str(refused.value).startswith("`way` is 'adapters', which was not measured, ")
    assert with_options("`way` and `adapter`") == "--way and --adapter"
    assert with_options("`cost` latency or `group`") == "--cost latency or --group"


def test_neither_export_nor_resume_begins_without_the_library(
    ways: SearchPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    lacks = "'lora-last1' needs the library peft, which is not installed"
    with pytest.raises(SpaceError, match=lacks):
        exported(ways, way="lora-last1")
    spec = load_specification(ways)
    unfinished = dataclasses.replace(spec, seeds=4, planned_seeds=4)
    replace_specification(unfinished, ways)
    with pytest.raises(SpaceError, match=lacks):
        resume(ways, print)


def test_the_certified_depth_is_trained_once_more_and_counted_nowhere(paths: SearchPaths) -> None:
    before = answer_rows(rows_of(read_state(paths.journal)))
    done = exported(paths)
    state = read_state(paths.journal)
    assert answer_rows(rows_of(state)) == before
    assert state.is_complete and len(state.planned_trials) == 9
    [key] = state.trials.keys() - {trial.key for trial in state.planned_trials}
    assert key == "final-N1-lr3e-03-s4"
    assert state.trials[key].status is TrialStatus.COMPLETED
    assert state.trials[key].latest["quality"] == done.quality

    about = json.loads((done.folder / "elsa-tune.json").read_text())
    assert about["certified"]["fine_tuned_layers"] == 1
    said = about["exported"]
    assert said["fine_tuned_layers"] == 1 and said["frozen_layers"] == 1 and said["seed"] == 4
    assert said["chosen"] == "certified to keep 90 % of the full model"
    low, high = said["promised"]
    # Of one more run: .9, .91, .91 with the spread of .9, .91, .92 as a prior of one degree of
    # freedom, and the rounding of them all; Student's t with three.
    variance = (2 * 1e-4 / 3 + 1e-4) / 3 + 1e-4 / 12
    half = 3.18245 * math.sqrt(variance * (1 + 1 / 3))
    assert (low, high) == pytest.approx((0.906667 - half, 0.906667 + half), abs=1e-5)
    place = "below" if done.quality < low else "above" if done.quality > high else "within"
    assert f", {place} 87.7..93.6, the 95 % interval" in done.said[-3]

    spec = load_specification(paths)
    texts = read_splits(spec.task, spec.recipe)["evaluation"].texts
    kept = kept_predictions(paths, key).tolist()
    assert predict(done.folder, texts).tolist() == kept
    scored = elsa_tune.predict(done.folder, paths.storage.parent / "dev.csv")
    assert list(scored["prediction"]) == [spec.task.classes[one] for one in kept]

    exported(paths, "again")
    weights = "model.safetensors"
    again = (paths.storage.parent / "again" / weights).read_bytes()
    assert again == (done.folder / weights).read_bytes()
    assert read_state(paths.journal).trials[key].start.attempt == 2


def test_the_card_says_what_the_search_found(paths: SearchPaths) -> None:
    done = exported(paths)
    _, head, body = (done.folder / "README.md").read_text().split("---\n", 2)
    metadata = yaml.safe_load(head)
    assert metadata["library_name"] == "transformers"
    assert metadata["tags"] == ["elsa-tune", "frozen-layers:1"]
    [result] = metadata["model-index"][0]["results"]
    assert result["metrics"] == [{"type": "accuracy", "value": pytest.approx(done.quality)}]
    assert "Fine-tuned layers: 1 of 2 layers (certified to keep 90 % of the full model)." in body
    assert done.said[-3] in body
    assert "| **1** | **1** | **90.7 ± 0.6** |" in body
    assert "The labels are `bad`, `good`, read from `text`." in body
    assert "elsa-tune predict . ROWS.csv > scored.csv" in body
    assert "The frozen layers are the base model's, bit for bit: models exported" in body
    assert (done.folder / "freeze_curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_card_of_frozen_embeddings_speaks_of_no_frozen_layers() -> None:
    assert read_candidate("embeddings").card == (
        "The embeddings are the base model's, bit for bit: models exported from one base can share "
        "them."
    )


def test_the_card_has_no_command_where_a_linear_model_is_enough(paths: SearchPaths) -> None:
    spec = load_specification(paths)
    trial = spec.trial(Phase.PROBE, read_candidate("2"), 1.0, 0)
    facts = dataclasses.replace(facts_of(spec, trial), learning_rate=None, seed=None)
    found = {"quality": 0.9, "probe_examples": 96.0}
    with Journal(paths.journal) as journal:
        journal.append(TrialStarted(trial="probe-N2", params=facts))
        journal.append(Report(trial="probe-N2", evaluation=1, step=0, metrics=found))
        journal.append(
            TrialEnded(trial="probe-N2", status=TrialStatus.COMPLETED, metrics={"quality": 0.9})
        )
    done = exported(paths)
    card = (done.folder / "README.md").read_text()
    assert "**Fine-tune nothing: a linear model on the frozen features scores 90.0" in card
    otherwise = "- **Otherwise** fine-tuned all the same, the last layer scores 90.7"
    assert f"{otherwise} at learning rate 3e-3\n" in card
    assert "elsa-tune export" not in card


def test_a_depth_that_is_asked_for_and_a_file_to_check(paths: SearchPaths) -> None:
    check = paths.storage.parent / "dev.csv"
    done = exported(paths, layers=2, check=check)
    assert "64 rows of" in done.said[-3]
    assert f": accuracy {points(done.quality)}" in done.said[-3]  # they are the evaluation rows
    about = json.loads((done.folder / "elsa-tune.json").read_text())["exported"]
    assert about["frozen_layers"] == 0 and about["chosen"] == "as asked for"
    assert "bit for bit" not in (done.folder / "README.md").read_text()
    with pytest.raises(UsageError, match=r"is 5, but .* measured: 2, 1, 0"):
        exported(paths, "other", layers=5)


def test_metrics_are_printed_in_words(paths: SearchPaths, tmp_path: Path) -> None:
    written = (tmp_path / "task.yaml").read_text()
    task = tmp_path / "macro.yaml"
    task.write_text(written.replace("metric: accuracy", "metric: f1_macro"))
    macro = made_up_search(tmp_path, str(tmp_path / "model"), str(task), name="macro")
    said = exported(macro, "macro", check=tmp_path / "dev.csv").said
    assert [line for line in said if line.startswith("epoch 1 of 2: macro F1 ")]
    assert "macro F1 " in said[-3] and "f1_macro" not in said[-3]


def test_all_rows_where_the_search_used_a_subset(paths: SearchPaths, tmp_path: Path) -> None:
    spec = load_specification(paths)
    small = made_up_search(
        tmp_path,
        spec.model.name,
        str(tmp_path / "task.yaml"),
        name="small",
        recipe=dataclasses.replace(spec.recipe, train_size=48),
    )
    done = exported(small, "full", full=True)
    assert "the learning rate was chosen on 48 rows; this model trains on 96" in done.said
    about = json.loads((tmp_path / "full" / "elsa-tune.json").read_text())["exported"]
    assert about["train_examples"] == 96 and about["promised"] is None
    # What the search measured, it says of its own models.
    chosen = "certified to keep 90 % of the full model; the search trained on 48 rows"
    assert about["chosen"] == chosen
    card = (tmp_path / "full" / "README.md").read_text()
    assert f"Fine-tuned layers: 1 of 2 layers ({chosen})." in card
    assert "At this depth the search kept, on 48 training rows, 99.6 % of" in card
    judged = (
        f"The exported model has {points(done.quality)} accuracy; the search measured models of "
        "48 training rows and promises nothing of this one."
    )
    assert judged in done.said and judged in card
    subset = exported(small, "subset")
    about = json.loads((tmp_path / "subset" / "elsa-tune.json").read_text())["exported"]
    assert about["train_examples"] == 48 and about["promised"] is not None
    assert any("the 95 % interval" in line for line in subset.said)
    # Each is a trial of its own, the same one when it is exported again.
    exported(small, "full-again", full=True)
    exported(small, "subset-again")
    trials = read_state(small.journal).trials
    on_all_rows = trials["final-N1-lr3e-03-s4"]
    on_subset = trials["final-N1-lr3e-03-s5"]
    assert on_all_rows.facts.train_size == 96 and on_subset.facts.train_size == 48
    assert on_all_rows.start.attempt == 2 and on_subset.start.attempt == 2
    assert sum(key.startswith("final-") for key in trials) == 2
    weights = "model.safetensors"
    for name in ("full", "subset"):
        again = (tmp_path / f"{name}-again" / weights).read_bytes()
        assert again == (tmp_path / name / weights).read_bytes()


def test_all_rows_that_are_no_more_than_the_search_had_keep_its_promise(
    paths: SearchPaths, tmp_path: Path
) -> None:
    spec = load_specification(paths)
    equal = made_up_search(
        tmp_path,
        spec.model.name,
        str(tmp_path / "task.yaml"),
        name="equal",
        recipe=dataclasses.replace(spec.recipe, train_size=96),
    )
    said = exported(equal, full=True).said
    assert any("the 95 % interval" in line for line in said)


def test_a_search_in_a_gpu_s_precision_is_exported_on_a_cpu(
    paths: SearchPaths, tmp_path: Path
) -> None:
    spec = load_specification(paths)
    in_tf32 = made_up_search(
        tmp_path,
        spec.model.name,
        str(tmp_path / "task.yaml"),
        name="on-a-gpu",
        recipe=dataclasses.replace(spec.recipe, precision=Precision.TF32),
    )
    done = exported(in_tf32)
    assert (
        "note: the search trained in tf32, for which this machine has no units; this model trains "
        "in fp32, which rounds less"
    ) in done.said
    about = json.loads((done.folder / "elsa-tune.json").read_text())["exported"]
    assert about["precision"] == "fp32"
    assert load_specification(in_tf32).recipe.precision is Precision.TF32


def test_without_a_certificate_the_operating_point_and_without_that_nothing(
    paths: SearchPaths, tmp_path: Path
) -> None:
    arguments = (str(tmp_path / "model"), str(tmp_path / "task.yaml"))
    one = made_up_search(tmp_path, *arguments, {0: (0.9,), 1: (0.89,), 2: (0.5,)}, name="one-seed")
    choice = choose(answer_rows(rows_of(read_state(one.journal))))
    assert (
        choice.in_words == "1 of 2 layers (measured to keep 90 % of the full model, not certified)"
    )
    assert choice.judged(0.9).endswith("by one measured seed the search promised no interval.")
    all_of_it = made_up_search(
        tmp_path, *arguments, {0: CURVE[0], 1: CURVE[2], 2: CURVE[2]}, name="all-layers"
    )
    full = choose(answer_rows(rows_of(read_state(all_of_it.journal))))
    why = "no smaller number keeps 90 %"
    assert full.in_words == f"all 2 layers, so that none stays frozen ({why})"
    nothing = made_up_search(
        tmp_path, *arguments, {0: CURVE[2], 1: CURVE[2], 2: CURVE[2]}, name="nothing"
    )
    with pytest.raises(NoAnswerError, match="The full model did not learn: ") as refused:
        exported(nothing)
    assert str(refused.value).endswith(". To export a depth anyway, give `layers` K")
    with pytest.raises(NoAnswerError, match="nothing"):
        choose([])


@pytest.mark.parametrize("what", ["a file", "a full folder"])
def test_what_is_there_is_not_written_over(what: str, paths: SearchPaths, tmp_path: Path) -> None:
    if what == "a file":
        (tmp_path / "out").write_text("mine")
    else:
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "mine").write_text("mine")
    with pytest.raises(UsageError, match="out is there"):
        exported(paths)
    with pytest.raises(UsageError, match=r"out has no elsa-tune\.json, by which .*; delete it, or"):
        exported(paths, overwrite=True)
    (tmp_path / "empty").mkdir()
    exported(paths, "empty")
    assert (tmp_path / "empty" / "model.safetensors").exists()
    (tmp_path / "empty" / "notes").write_text("of the first")
    exported(paths, "empty", overwrite=True)
    assert (tmp_path / "empty" / "model.safetensors").exists()
    assert not (tmp_path / "empty" / "notes").exists()
    assert not list(tmp_path.glob(".empty*"))


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_place_without_room_is_found_before_the_training(
    paths: SearchPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = {file.name for file in tmp_path.iterdir()} - {"cache"}
    monkeypatch.setattr(model, "train_final", Mock(side_effect=AssertionError))
    for error, why in (
        (OSError(28, "No space left on device"), "No space left on device"),
        (SafetensorError("disk full"), "the weights could not be written: disk full"),
    ):
        monkeypatch.setattr(model.saved, "save_classifier", Mock(side_effect=error))
        with pytest.raises(StorageError, match=f"out: {why}"):
            exported(paths)
    assert {file.name for file in tmp_path.iterdir()} - {"cache"} == before


@pytest.mark.parametrize(
    ("step", "error", "why"),
    [
        ("_write_about", OSError(28, "No space left on device"), "elsa-tune.json .*No space left"),
        ("_write_card", OSError(28, "No space left on device"), "but README.md .*No space left"),
        ("_write_figure", ValueError("no font"), "freeze_curve.png .*no font"),
        ("_write_figure", KeyboardInterrupt(), "freeze_curve.png .*KeyboardInterrupt"),
    ],
)
def test_a_step_behind_the_training_that_fails_costs_no_model(
    step: str,
    error: BaseException,
    why: str,
    paths: SearchPaths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model, step, Mock(side_effect=error))
    with pytest.raises(RunError, match=rf"/out, .*{why}"):
        exported(paths)
    assert classifier(tmp_path / "out")("a good film")[0]["label"] in ("bad", "good")


@pytest.mark.parametrize(
    ("step", "files"),
    [
        ("_write_about", ["elsa-tune.json"]),
        ("_write_card", ["README.md"]),
        ("_write_figure", ["freeze_curve.png"]),
    ],
)
def test_what_found_no_room_beside_the_model_leaves_no_half_of_a_file(
    step: str,
    files: list[str],
    paths: SearchPaths,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = getattr(model, step)

    def in_little_room(*arguments: Any) -> None:
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))  # bytes of a file
        try:
            real(*arguments)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr(model, step, in_little_room)
    with pytest.raises(RunError, match=r"/out, but .* could not be written \(.*File too large"):
        exported(paths)
    written = {file.name for file in (tmp_path / "out").iterdir()}
    assert "model.safetensors" in written and not written.intersection(files)
    assert not [name for name in written if name.endswith(".part")]


def test_a_check_that_fails_costs_no_model(
    paths: SearchPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model.saved, "predict", Mock(side_effect=MemoryError("too long")))
    monkeypatch.setattr(model, "push", Mock(side_effect=AssertionError))
    not_pushed = r"not pushed: to do so, run `hf upload owner/name \S+/out`$"
    with pytest.raises(RunError, match=rf"/out, .*dev\.csv .*too long\); it was {not_pushed}"):
        exported(paths, check=tmp_path / "dev.csv", push="owner/name")
    assert (tmp_path / "out" / "model.safetensors").exists()


def test_a_disk_that_fills_while_it_trains_moves_the_model(
    paths: SearchPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = model.aside

    @contextlib.contextmanager
    def no_room(out: Path, what: str, replaced: str | None) -> Iterator[Path]:
        with real(out, what, replaced) as folder:
            if out == tmp_path / "out":
                full()
            yield folder

    monkeypatch.setattr(model, "aside", no_room)
    with pytest.raises(RunError, match=r"/first/model, .*out: No space"):
        exported(paths)
    assert not (tmp_path / "out").exists()
    first = paths.folder / "model"
    assert classifier(first)("a good film")[0]["label"] in ("bad", "good")
    # The next one that finds no room replaces no model.
    weights = (first / "model.safetensors").read_bytes()
    with pytest.raises(RunError, match=r"/first/model-2, .*out: No space"):
        exported(paths, layers=2)
    assert (first / "model.safetensors").read_bytes() == weights
    assert (paths.folder / "model-2" / "model.safetensors").read_bytes() != weights


def test_without_room_anywhere_the_model_waits_for_some(
    paths: SearchPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = model.saved.save_classifier, list[Path]()

    def fuller(folder: Path, *arguments: Any) -> dict[str, Any]:
        tries.append(folder)
        if 1 < len(tries) < 6:  # the rehearsal fits, and the second try of the place asked for
            full()
        return real(folder, *arguments)

    monkeypatch.setattr(model.saved, "save_classifier", fuller)
    monkeypatch.setattr(model, "AGAIN", 0.01)
    monkeypatch.setattr(model.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    with pytest.raises(RunError, match="/first/model"):
        exported(paths)
    monkeypatch.setattr(model, "PATIENCE", 0.0)
    tries.clear()
    with pytest.raises(StorageError, match="No space left"):
        exported(paths)
    assert len(tries) == 4  # the rehearsal, and each place once


def test_how_far_the_training_is(paths: SearchPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "EVERY", 0.0)
    said = exported(paths).said
    assert "training: 2 epochs of 96 rows" in said
    steps = [line for line in said if line.startswith("training: epoch")]
    assert len(steps) == 12  # 6 batches an epoch
    assert steps[2].startswith("training: epoch 1 of 2, 25%")
    assert steps[-1] == "training: epoch 2 of 2, 100%"


def test_bad_input_is_said_before_anything_is_trained(
    paths: SearchPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "train_final", Mock(side_effect=AssertionError))
    for name in ("name", "me/model.git"):
        with pytest.raises(UsageError, match=f"`push` {name} is no name .* written owner/name"):
            exported(paths, push=name)
    with monkeypatch.context() as without:
        without.setattr(model.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(UsageError, match="onnxscript"):
            exported(paths, onnx=True)
    with pytest.raises(DataError, match="column"):
        (tmp_path / "other.csv").write_text("a,b\n1,2\n")
        exported(paths, check=tmp_path / "other.csv")
    with Journal(paths.journal), pytest.raises(StorageError, match=str(os.getpid())):
        exported(paths)
    spec = load_specification(paths)
    changed = dataclasses.replace(
        spec, fingerprints={**spec.fingerprints, "weights": "those of another model"}
    )
    replace_specification(changed, paths)
    with pytest.raises(ModelError, match="weights"):
        exported(paths)
    mean = dataclasses.replace(spec.recipe, pooling=Pooling.MEAN)
    replace_specification(dataclasses.replace(spec, recipe=mean), paths)
    with pytest.raises(ModelError, match="pooling"):
        exported(paths)
    assert with_options("`layers` K, `push` and `onnx`") == "--layers K, --push and --onnx"


def test_a_trial_that_ends_badly_is_recorded(
    paths: SearchPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error, status in (
        (DivergedError("the loss became nan"), TrialStatus.DIVERGED),
        (RunError("out of memory"), TrialStatus.FAILED),
        (KeyboardInterrupt(), TrialStatus.INTERRUPTED),
    ):
        monkeypatch.setattr(model, "train", Mock(side_effect=error))
        with pytest.raises(type(error)):
            exported(paths)
        state = read_state(paths.journal)
        assert state.trials["final-N1-lr3e-03-s4"].status is status
        assert state.is_complete


@pytest.mark.thorough
def test_an_onnx_file_answers_as_the_model(
    paths: SearchPaths, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    exported(paths, onnx=True)
    assert "onnx" not in capfd.readouterr().out
    folder = tmp_path / "out"
    ask = classifier(folder)
    rows = ["one", "the good film is a film", "bad"]
    batch = ask.tokenizer(rows, padding=True, return_tensors="pt")
    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx")
    [found] = session.run(["logits"], {name: one.numpy() for name, one in batch.items()})
    with torch.no_grad():
        assert np.abs(found - ask.model(**batch).logits.numpy()).max() < 1e-4


@pytest.mark.thorough
def test_a_tokenizer_of_another_architecture_gives_what_the_model_reads(
    paths: SearchPaths, tmp_path: Path
) -> None:
    """BERT's tokenizer gives token types, which DistilBERT cannot read."""
    mixed = make_tiny("distilbert", tmp_path / "mixed", layers=2)
    for file in (tmp_path / "model").glob("tokenizer*"):
        shutil.copy(file, mixed)
    other = made_up_search(tmp_path, str(mixed), str(tmp_path / "task.yaml"), name="mixed")
    done = exported(other, "out", onnx=True)
    session = onnxruntime.InferenceSession(done.folder / "onnx" / "model.onnx")
    ask = classifier(done.folder)
    batch = ask.tokenizer(["a good film"], return_tensors="np")
    assert {one.name for one in session.get_inputs()} == {"input_ids", "attention_mask"}
    [found] = session.run(["logits"], dict(batch))
    label = ask.model.config.id2label[int(found.argmax())]
    assert label == ask("a good film")[0]["label"]


def test_what_torch_cannot_trace_is_said_before_the_training(
    paths: SearchPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model, "train_final", Mock(side_effect=AssertionError))
    wrapped = RuntimeError("Failed to export; next steps")
    wrapped.__cause__ = ValueError("no\nway")
    monkeypatch.setattr(torch.onnx, "export", Mock(side_effect=wrapped))
    with pytest.raises(ModelError, match=r"\(no\).*`onnx`"):
        exported(paths, onnx=True)
    assert not (tmp_path / "out").exists()
    assert logging.getLogger("torch.onnx").level == logging.NOTSET


def test_a_trace_that_fails_behind_the_training_costs_no_model(
    paths: SearchPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rehearsed = list[Path]()

    def once(folder: Path) -> None:
        rehearsed.append(folder)
        if len(rehearsed) > 1:
            full()

    monkeypatch.setattr(model.saved, "save_onnx", once)
    with pytest.raises(RunError, match=r"ONNX .*No space"):
        exported(paths, onnx=True)
    assert classifier(tmp_path / "out")("a good film")[0]["label"] in ("bad", "good")


def test_an_mlflow_that_fails_costs_nothing_else(
    paths: SearchPaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = Mock(side_effect=OSError("no room"))
    monkeypatch.setattr(MlflowStore, "keep_model", keep)
    done = exported(paths)
    _, _, row, options, versions = keep.call_args.args
    assert row.keys() == {"text"} and "torch" in versions
    # Beside them those of the type of task, of which a classification has none.
    assert options == {"truncation": True}
    assert "the model did not reach MLflow: no room" in done.said
    assert done.said[-1] == f"Next: elsa-tune predict {done.folder} ROWS.csv > scored.csv"
    assert (done.folder / "config.json").exists()


def test_torchs_generator_is_as_it_was(paths: SearchPaths, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where MLflow tries the model: that draws from it, whatever comes of it."""
    monkeypatch.setattr(MlflowStore, "keep_model", lambda *arguments: str(torch.rand(1)))
    before = torch.get_rng_state()
    exported(paths)
    assert torch.equal(torch.get_rng_state(), before)


STORE = "sqlite:////nowhere/mlflow.db"


@pytest.mark.parametrize("own", [None, "sqlite:////own/mlflow.db", STORE])
@pytest.mark.parametrize("variable", [None, "sqlite:////variable/mlflow.db", STORE])
def test_the_store_that_a_program_has_set_stays_its_own(
    own: str | None, variable: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is named by the variable alone is what the variable says, also when it changes."""
    name = "MLFLOW_TRACKING_URI"
    logger = logging.getLogger("mlflow")
    monkeypatch.setattr(logger, "level", logging.INFO)
    monkeypatch.delenv(name, raising=False)
    try:
        mlflow.set_tracking_uri(own)  # type: ignore[arg-type]  # which sets the variable, too
        monkeypatch.delenv(name, raising=False)
        if variable is not None:
            monkeypatch.setenv(name, variable)
        with pytest.raises(OSError, match="no room"), models._logging_to(STORE):
            assert mlflow.get_tracking_uri() == STORE
            assert logger.level == logging.ERROR
            raise OSError("no room")
        assert os.environ.get(name) == variable
        assert logger.level == logging.INFO
        later = "sqlite:////later/mlflow.db"
        monkeypatch.setenv(name, later)
        assert mlflow.get_tracking_uri() == (own or later)
    finally:
        mlflow.set_tracking_uri(None)  # type: ignore[arg-type]


def test_what_is_promised_lies_within_the_metrics_range() -> None:
    rows = [
        *seeds(0, [0.97, 0.99, 1.0]),
        *seeds(3, [0.96, 0.99, 1.0]),
        *seeds(6, [0.6, 0.6, 0.61]),
    ]
    promised = choose(answer_rows(rows), layers=3).promised
    assert promised is not None
    assert promised.high == 1.0 and promised.low < 0.97


def test_failed_seeds_of_one_score_promise_no_interval() -> None:
    # Not rounded, as a record has them.
    full = [0.9, 0.91 + 1 / 3e5]
    rows = [*seeds(0, full), *seeds(3, [0.89, 0.9]), *seeds(6, [0.5, 0.5])]
    choice = choose(answer_rows(rows), layers=0)
    assert choice.promised is None
    assert choice.judged(0.48) == (
        "The exported model has 48.0 accuracy; by 2 measured seeds that all score the same the "
        "search promised no interval."
    )


@pytest.fixture
def pair(paths: SearchPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of searches on two tasks, of which `calm` has no answer and `mood` has."""
    monkeypatch.chdir(tmp_path)
    weights = str(tmp_path / "model")
    mood = tmp_path / "task.yaml"
    calm = tmp_path / "calm.yaml"
    calm.write_text(mood.read_text().replace("name: mood", "name: calm"))
    no_answer = {0: CURVE[2], 1: CURVE[2], 2: CURVE[2]}
    made_up_search(tmp_path, weights, str(calm), no_answer, name="pair-calm")
    return made_up_search(tmp_path, weights, str(mood), name="pair-mood").storage


def test_of_several_tasks_those_with_an_answer_are_exported(pair: Path, run: Run) -> None:
    arguments = ("export", "pair", "--all", "--out", "models", "--storage-path", str(pair))
    done = run(*arguments)
    assert (done.status, done.out) == (0, "models/mood\n"), done.err
    assert "models/calm is not written: " in done.err
    assert "To export a depth anyway, give --layers K" in done.err
    assert Path("models/mood/model.safetensors").exists() and not Path("models/calm").exists()
    shutil.rmtree(pair / "pair-mood")
    done = run(*arguments)
    assert (done.status, done.out) == (3, "")
    assert "models/calm is not written: " in done.err
    assert done.err.splitlines()[-1] == (
        "elsa-tune: none of the tasks of 'pair' has an answer to export"
    )


def test_what_a_task_did_not_measure_is_said_before_another_is_trained(
    pair: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_model_alone = {0: CURVE[0], 2: CURVE[2]}
    here = Path.cwd()
    made_up_search(here, "model", "calm.yaml", full_model_alone, name="three-calm")
    made_up_search(here, "model", "task.yaml", name="three-mood")
    monkeypatch.setattr(model, "train_final", Mock(side_effect=AssertionError))
    arguments = ("export", "three", "--all", "--out", "models", "--storage-path", str(pair))
    done = run(*arguments, "--layers", "1")
    assert (done.status, done.out) == (2, "")
    assert "models/calm cannot be exported: --layers is 1, but no model with that" in done.err


@pytest.mark.parametrize("error", [DivergedError("the loss is nan"), DataError("rows changed")])
def test_a_task_that_fails_costs_the_others_no_model(
    error: Exception, pair: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = model.export

    def failing(request: ExportRequest, say: Any) -> float:
        if request.out.name == "calm":
            raise error
        return real(request, say)

    monkeypatch.setattr(model, "export", failing)
    arguments = ("export", "pair", "--all", "--out", "models", "--storage-path", str(pair))
    done = run(*arguments, "--layers", "1")
    assert (done.status, done.out) == (1, "models/mood\n"), done.err
    assert f"models/calm: {error}" in done.err
    assert done.err.splitlines()[-1] == (
        "elsa-tune: models/calm could not be exported as asked for; each reason is printed above"
    )


def test_a_damaged_search_of_another_name_is_in_nobodys_way(pair: Path, run: Run) -> None:
    other = pair / "zzz"
    other.mkdir()
    (other / "search.json").write_text("{")
    arguments = ("export", "pair", "--all", "--out", "models", "--storage-path", str(pair))
    done = run(*arguments)
    assert (done.status, done.out) == (0, "models/mood\n"), done.err


def test_every_tasks_folder_is_looked_at_before_the_first_training(pair: Path, run: Run) -> None:
    Path("models/mood").mkdir(parents=True)
    Path("models/mood/mine").write_text("mine")
    arguments = ("export", "pair", "--all", "--out", "models", "--storage-path", str(pair))
    done = run(*arguments, "--layers", "1")
    assert (done.status, done.out) == (2, "")
    assert "models/mood is there already" in done.err and not Path("models/calm").exists()


def test_a_folder_of_another_process_is_neither_in_the_way_nor_removed(tmp_path: Path) -> None:
    """In containers every process has the same id."""
    out = tmp_path / "out"
    with scratch(out, "the model") as first:
        (first / "weights").write_text("half of them")
        with aside(out, "the model") as second:
            (second / "weights").write_text("all of them")
        assert (first / "weights").read_text() == "half of them"
    assert (out / "weights").read_text() == "all of them"
    assert list(tmp_path.iterdir()) == [out]


def test_what_is_checked_and_handed_on_is_what_was_written(
    paths: SearchPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another export into the folder is refused until the end of the first one."""
    refused: list[str] = []

    def keep(*_: Any) -> None:
        monkeypatch.setattr(model, "_keep_in_store", lambda *_: None)
        with pytest.raises(StorageError) as error:
            exported(paths, overwrite=True)
        refused.append(str(error.value))

    monkeypatch.setattr(model, "_keep_in_store", keep)
    exported(paths)
    assert len(refused) == 1 and f"another process writes a model to {tmp_path}/out" in refused[0]
    assert not list(tmp_path.glob(".out*"))


def test_what_appears_while_it_is_written_stays(tmp_path: Path) -> None:
    out = tmp_path / "out"
    refused = pytest.raises(StorageError, match=r"the model cannot be written to .*not empty")
    for replaced in (None, "weights"):  # with the second the folder is of no earlier export
        with refused, aside(out, "the model", replaced) as new:
            (new / "weights").write_text("mine")
            out.mkdir(exist_ok=True)
            (out / "notes").write_text("of somebody")
        assert [file.name for file in out.iterdir()] == ["notes"]
    assert list(tmp_path.iterdir()) == [out]


def test_a_url_is_no_folder(paths: SearchPaths) -> None:
    for out in (Path("s3://bucket/model"), Path("gs://bucket/model")):
        with pytest.raises(UsageError, match="bucket/model is a URL; name a place on this machine"):
            export(ExportRequest(paths=paths, out=out), lambda text: None)


def test_the_folder_one_is_in_is_not_replaced(
    paths: SearchPaths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "below").mkdir(parents=True)
    monkeypatch.chdir(here / "below")
    for out in (".", here, ".."):
        with pytest.raises(UsageError, match="is the folder you are in, or around it"):
            exported(paths, str(out))
    monkeypatch.setattr(Path, "is_mount", lambda path: path.name == "volume")
    with pytest.raises(UsageError, match=r"volume is a mounted volume.*such as .*volume/export"):
        exported(paths, str(tmp_path / "volume"))


def test_an_interruption_leaves_the_earlier_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "weights").write_text("of the first")
    real = Path.rename

    def interrupted(path: Path, target: Path) -> Path:
        if path.suffix == ".part":
            raise KeyboardInterrupt
        return real(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), aside(out, "the model", "weights") as new:
        (new / "weights").write_text("of the second")
    assert (out / "weights").read_text() == "of the first"
    assert list(tmp_path.iterdir()) == [out]


def test_a_name_that_no_folder_can_have_is_one_sentence(paths: SearchPaths) -> None:
    with pytest.raises(StorageError, match=r"the export cannot be written to .*: File name too"):
        exported(paths, "n" * 300)


def test_a_name_with_a_nul_is_one_sentence(paths: SearchPaths) -> None:
    with pytest.raises(StorageError, match=r"the export cannot be written to .*; name another"):
        exported(paths, "q\0")
