"""`elsa-tune export`, from a search to a folder that transformers loads: choose, train once more,
write, and hand it on.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from elsa_tune.analysis.answer import Answer
from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows
from elsa_tune.errors import ElsaTuneError, StorageError, UsageError, first_line
from elsa_tune.export.card import FIGURE, example_row, model_card
from elsa_tune.export.choice import Choice, choose
from elsa_tune.export.final import Trained, fresh_seed, train_final
from elsa_tune.export.publish import check_hub_id, check_onnx, push, write_onnx
from elsa_tune.report import figures, freeze_charts
from elsa_tune.report.subjects import subjects_of
from elsa_tune.search.launch import check_unchanged, inputs_of, store_of, versions_here
from elsa_tune.search.record import SearchRecord
from elsa_tune.search.specification import load_specification
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import Phase
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal, read_journal
from elsa_tune.tracking.model_log import log_model
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.predictions import KeptPredictions
from elsa_tune.tracking.rows import rows_of
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.model.encoder import quiet
from elsa_tune.training.saved import (
    check_exportable,
    classifier,
    label_names,
    predict,
    read_labelled,
    save_classifier,
    scores,
)
from elsa_tune.words import points

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is exported, and where to.

    layers: fine-tuned layers, None for the search's answer. check: a file of labelled rows. full:
    train on all rows of a task of which the search used a subset. push: a name on the hub.
    """

    paths: SearchPaths
    out: Path
    layers: int | None = None
    check: Path | None = None
    full: bool = False
    onnx: bool = False
    push: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What came of it. lines: what a person should read. address: on the hub, if it was pushed."""

    folder: Path
    quality: float
    lines: tuple[str, ...]
    address: str | None = None


def export(request: ExportRequest, say: Say) -> Exported:
    """Train the search's answer once more and write it as a folder.

    Raises UsageErrors before anything is trained, NoAnswerError without an answer, RunErrors for
    what training or other libraries could not do.
    """
    _check_out(request.out)
    if request.push is not None:
        check_hub_id(request.push)
    if request.onnx:
        check_onnx()
    spec = load_specification(request.paths)
    check_exportable(spec.recipe)
    rows_to_check = None if request.check is None else read_labelled(request.check, spec.task)
    store = store_of(spec)
    with Journal(request.paths.journal) as journal:
        earlier = read_journal(request.paths.journal)
        forwarder = Forwarder(request.paths.journal, store, request.paths.forwarded).start()
        record = SearchRecord(spec, request.paths, journal, forwarder, earlier, say)
        try:
            answers, rows = _answers(record, request.paths)
            choice = choose(answers, request.layers)
            say(f"export: {choice.in_words} at learning rate {choice.learning_rate:g}")
            used, data = _data(spec, full=request.full, say=say)
            trial = used.trial(Phase.FINAL, choice.depth, choice.learning_rate, fresh_seed(record))
            trained = train_final(used, trial, data, record, say)
        finally:
            forwarder.close()
        search = record.state().search
    lines = [choice.judged(trained.quality)]
    with _aside(request.out) as folder:
        facts = save_classifier(folder, trial, data, trained.weights)
        _write_about(folder, choice, trained, used, rows, facts)
        if request.onnx:
            write_onnx(folder)
    if rows_to_check is not None:
        found = scores(spec.task, rows_to_check, predict(request.out, rows_to_check.texts))
        said = ", ".join(f"{name} {points(value)}" for name, value in found.items())
        lines.append(f"On the {len(rows_to_check):,} rows of {request.check}: {said}.")
    with _left_out("the model did not reach MLflow", say), quiet():
        uri = log_model(
            store,
            store.run_id(search),
            classifier(request.out),
            example_row(spec.task),
            _packages(used),
        )
        lines.append(f"In MLflow: {uri}")
    address = None if request.push is None else push(request.out, request.push)
    return Exported(
        folder=request.out, quality=trained.quality, lines=tuple(lines), address=address
    )


def _answers(record: SearchRecord, paths: SearchPaths) -> tuple[list[Answer], list[ResultRow]]:
    rows = rows_of(record.state(), paths.folder)
    return answer_rows(rows, evidence=KeptPredictions(rows, paths.folder)), rows


def _data(spec: SearchSpec, *, full: bool, say: Say) -> tuple[SearchSpec, TaskData]:
    """The data to train on, and the search as if it had used them and these versions."""
    data, fingerprints = inputs_of(spec)
    check_unchanged(spec, fingerprints)
    spec = dataclasses.replace(spec, versions=versions_here())
    subset = spec.recipe.train_size
    if not full or subset is None:
        return spec, data
    recipe = dataclasses.replace(spec.recipe, train_size=None)
    data = prepare(spec.model, spec.task, recipe)
    say(
        f"the learning rate was chosen on {subset:,} rows; this model trains on {len(data.train):,}"
    )
    return dataclasses.replace(
        spec,
        recipe=recipe,
        train_examples=len(data.train),
        holdout_examples=len(data.holdout) if data.holdout else 0,
        fingerprints={**fingerprints, "data": data.fingerprint},
    ), data


def _write_about(
    folder: Path,
    choice: Choice,
    trained: Trained,
    spec: SearchSpec,
    rows: list[ResultRow],
    facts: dict[str, Any],
) -> None:
    """The answer, the card and its figure."""
    trial, promised = trained.trial, choice.promised
    exported = {
        **facts,
        "fine_tuned_layers": choice.point.fine_tuned_layers,
        "chosen": choice.why,
        "learning_rate": trial.learning_rate,
        "seed": trial.seed,
        "train_examples": spec.train_examples,
        "quality": trained.quality,
        "promised": None if promised is None else [promised.low, promised.high],
        "search": spec.name,
        "versions": _packages(spec),
    }
    answer = {**answer_object(choice.answer), "exported": exported}
    (folder / "elsa-tune.json").write_text(json.dumps(answer, indent=2, allow_nan=False) + "\n")
    chart = freeze_charts.freeze_curve(subjects_of([choice.answer], rows), ())
    (folder / FIGURE).write_bytes(figures.draw(chart)["png"])
    about = {
        "training examples": f"{spec.train_examples:,}",
        "epochs": str(trial.recipe.epochs),
        "seeds measured at this depth": str(choice.point.seeds),
        "search": spec.name,
        **_packages(spec),
    }
    labels = label_names(trial.task, trial.task.outputs)
    card = model_card(choice, trial, trained.quality, labels, about)
    (folder / "README.md").write_text(card, "utf-8")


def _packages(spec: SearchSpec) -> dict[str, str]:
    names = ("elsa-tune", "torch", "transformers")
    return {name: spec.versions[f"version.{name}"] for name in names}


def _check_out(out: Path) -> None:
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise UsageError(f"{out} is there already; name a folder that is not, or an empty one")
    place = out.absolute().parent
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        raise StorageError(f"cannot write in {place}; name another folder with `out`")


@contextlib.contextmanager
def _aside(out: Path) -> Iterator[Path]:
    """A folder beside `out` that gets its name once it is complete, and goes if it never is."""
    target = out.absolute()
    aside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        aside.mkdir(parents=True)
        yield aside
        for file in aside.rglob("*"):
            if file.is_file():
                with file.open("rb") as opened:
                    os.fsync(opened.fileno())
        aside.rename(target)
    except OSError as error:
        raise StorageError(
            f"the model cannot be written to {out}: {error.strerror or error}"
        ) from (error)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _left_out(what: str, say: Say) -> Iterator[None]:
    """What goes wrong inside is said, and costs nothing else."""
    try:
        yield
    except ElsaTuneError as error:
        say(f"{what}: {error}")
    except Exception as error:  # MLflow's, the server's and the network's have no common base
        say(f"{what}: {first_line(error)}")
