"""Makes a folder that transformers loads of a search: choose, train once more, write, hand on."""

import dataclasses
import importlib.util
import json
import math
import shlex
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from elsa_tune.analysis.answer_json import answer_object
from elsa_tune.analysis.answers import answer_rows, complete_curves
from elsa_tune.errors import DivergedError, RunError, StorageError, UsageError, first_line
from elsa_tune.exporting.choice import (
    FIGURE,
    Choice,
    choose,
    example_row,
    model_card,
    pipeline_options,
)
from elsa_tune.exporting.folder import aside, check_out, free_name, scratch, writing_alone
from elsa_tune.exporting.progress_line import ProgressLine
from elsa_tune.files import write_aside
from elsa_tune.report import charts, figures
from elsa_tune.report.page import by_name
from elsa_tune.searching.extending_packages import packages_of_search
from elsa_tune.searching.output import Say
from elsa_tune.searching.planning.known import known_trial
from elsa_tune.searching.record import SearchRecord, facts_of
from elsa_tune.searching.specification import load_specification
from elsa_tune.searching.startup.fingerprints import check_unchanged, inputs_of
from elsa_tune.searching.startup.stores import store_of
from elsa_tune.searching.startup.versions import versions_here
from elsa_tune.specs.adapt.candidates import DEPTH_FIELDS, candidate_fields
from elsa_tune.specs.model import HUB_ID_FORM, is_hub_id
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.trial import QUALITY, Phase, TrialSpec, TrialStatus
from elsa_tune.tasks.types.scores import task_scores
from elsa_tune.tracking.forwarder import Forwarder
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.journal_records import SearchStarted
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.rows import KeptPredictions, rows_of
from elsa_tune.tracking.state import SearchState, read_state
from elsa_tune.tracking.store import RecordStore
from elsa_tune.tracking.uris import hidden, reason
from elsa_tune.training import saved
from elsa_tune.training.data.preparation import prepare
from elsa_tune.training.data.tokens import TaskData
from elsa_tune.training.loop import train
from elsa_tune.training.machine import plain_torch, precision_here
from elsa_tune.training.model.encoder import quiet
from elsa_tune.visible import visible
from elsa_tune.words import candidates_text, duration, metric_text, points, rate_text

ABOUT = "elsa-tune.json"
CARD = "README.md"
# Seconds that a trained model waits for room on a disk, and between two tries.
PATIENCE = 600.0
AGAIN = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What is exported, and where to."""

    paths: SearchPaths  # of the search
    out: Path  # the folder to create
    layers: int | None = None  # fine-tuned ones; None for what the search's answer recommends
    way: str | None = None  # by its label or another name; None as above
    check: Path | None = None  # a file of labelled rows
    full: bool = False  # train on all rows of a task of which the search used a subset
    onnx: bool = False  # write an ONNX file, too
    adapter: bool = False  # write what the way added to the model as its library loads it, too
    push: str | None = None  # a name on the hub
    overwrite: bool = False  # the folder of an earlier export may be replaced


@torch.random.fork_rng(devices=[])  # the caller's generator goes on as if nothing had drawn
@plain_torch()
def export(request: ExportRequest, say: Say) -> float:
    """Train the search's answer once more and write it as a folder; returns the model's quality.

    Raises UsageErrors before anything is trained, NoAnswerError without an answer, RunErrors for
    what training or other libraries could not do. Once it is trained, the model is kept: where a
    later step fails, RunError says at the end which one, and where the model is.
    """
    check(request)
    with writing_alone(request.out, "a model"):
        return _carried_out(request, say)


def _carried_out(request: ExportRequest, say: Say) -> float:
    """Do as `export`, of which nothing but the folder was checked."""
    spec = load_specification(request.paths)
    saved.check_exportable(spec.recipe)
    to_check = None
    if request.check is not None:
        to_check = saved.read_labelled(request.check, spec.task)
    store = store_of(spec)
    final = _trained(request, spec, store, say)
    out, failed = _saved(request, final, say)
    say(final.choice.judged(final.quality))
    if to_check is not None:
        try:
            predictions = saved.predict(out, to_check.texts)
            scores = task_scores(spec.task, predictions, to_check.labels)
            parts = [f"{metric_text(name)} {points(value)}" for name, value in scores.items()]
            say(f"On the {len(to_check):,} rows of {request.check}: {', '.join(parts)}.")
        except Exception as error:  # of memory, transformers or the machine
            failed.append(f"{request.check} was not scored ({first_line(error)})")
    _keep_in_store(store, final, out, say)
    if failed:
        if request.push is not None:
            failed.append(f"it was not pushed: to do so, run `hf upload {request.push} {out}`")
        raise RunError(f"the model itself is complete in {out}, but {'; '.join(failed)}")
    if request.push is not None:
        address = push(out, request.push)
        say(f"On the hub: {address}")
    folder = shlex.quote(str(out))
    say(f"Next: elsa-tune predict {folder} ROWS.csv > scored.csv")
    return final.quality


@dataclass(frozen=True, slots=True, kw_only=True)
class _Final:
    """A trained model."""

    choice: Choice  # what is exported, and why
    spec: SearchSpec  # with the sizes of its data
    search: SearchStarted  # as it is recorded
    trial: TrialSpec  # how it was trained
    data: TaskData  # what it was trained on
    weights: Mapping[str, Tensor]  # what trained, by name
    quality: float  # of the trial, under its selection


def _trained(request: ExportRequest, spec: SearchSpec, store: RecordStore, say: Say) -> _Final:
    """Choose what is exported, and train it, as one more trial of its search."""
    paths = request.paths
    with Journal(paths.journal) as journal:
        sink = store.sink(paths.journal)
        forwarder = Forwarder(paths, sink, journal.earlier).start()
        record = SearchRecord(spec, paths, journal, forwarder, say)
        try:
            choice = _choice(request, spec, record.state())
            rate = choice.learning_rate
            used, data = _data(spec, full=request.full)
            if used.train_examples != spec.train_examples:
                choice = choice.for_other_rows(spec.train_examples)
            say(f"export: {choice.in_words} at learning rate {rate_text(rate)}")
            if choice.measured_on is not None:
                say(
                    f"the learning rate was chosen on {choice.measured_on:,} rows; this model "
                    f"trains on {used.train_examples:,}"
                )
            used = _in_precision_here(used, say)
            trial = _fresh_trial(used, choice, record.state())
            _rehearse(request, trial, data)
            quality, weights = train_final(used, trial, data, record, say)
        finally:
            forwarder.close()
    return _Final(
        choice=choice,
        spec=used,
        search=record.state().search,
        trial=trial,
        data=data,
        weights=weights,
        quality=quality,
    )


def _keep_in_store(store: RecordStore, final: _Final, folder: Path, say: Say) -> None:
    """Hand a written model to the store, too. Where that fails, a line says so."""
    try:
        row = example_row(final.spec.task)
        packages = _packages(final.spec)
        with quiet():
            classifier = saved.classifier(folder)
            options = pipeline_options(final.spec.task)
            place = store.keep_model(final.search, classifier, row, options, packages)
        if place is not None:
            say(f"In {store.name}: {place}")
    except Exception as error:  # the store's, the server's and the network's have no common base
        why = reason(error, store.uri)
        say(f"the model did not reach {store.name}: {why}")


def _fresh_trial(spec: SearchSpec, choice: Choice, state: SearchState) -> TrialSpec:
    """Return the trial to train, with a seed that no other trial had.

    It is the same trial however often a model is exported, but another one where it trains on
    another number of rows. spec: with the sizes of the data that it trains on.
    """
    seeds = list(spec.measuring_seeds)
    for recorded in state.planned_trials:
        planned = known_trial(spec, recorded).trial
        seeds.append(planned.seed)
    seed = max(seeds)
    while True:
        seed += 1
        trial = spec.trial(Phase.FINAL, choice.point.candidate, choice.learning_rate, seed)
        earlier = state.trials.get(trial.key)
        if earlier is None:
            return trial
        if earlier.facts.train_size == facts_of(spec, trial).train_size:
            return trial


def check(request: ExportRequest) -> None:
    """Raise UsageError for what cannot be carried out, before anything is read."""
    check_out(request.out, "export", ABOUT, overwrite=request.overwrite)
    if request.push is not None and not is_hub_id(request.push):
        raise UsageError(
            f"`push` {request.push} is no name of a model on the hub; it is written {HUB_ID_FORM}"
        )
    if request.onnx and not importlib.util.find_spec("onnxscript"):
        raise UsageError(
            "ONNX files need onnxscript, which is not installed; pip install onnxscript, or leave "
            "`onnx` out"
        )


def check_choice(request: ExportRequest) -> None:
    """Raise NoAnswerError or UsageError where the record has nothing to export, as asked for."""
    spec = load_specification(request.paths)
    saved.check_exportable(spec.recipe)
    state = read_state(request.paths.journal)
    _choice(request, spec, state)


def _choice(request: ExportRequest, spec: SearchSpec, state: SearchState) -> Choice:
    rows = rows_of(state, request.paths.folder)
    answers = answer_rows(rows, spec.target, evidence=KeptPredictions())
    curves = complete_curves(rows, KeptPredictions())
    choice = choose(answers, request.layers, request.way, curves)
    _check_adapter(request, choice)
    return choice


def _check_adapter(request: ExportRequest, choice: Choice) -> None:
    """Raise UsageError where an adapter is wanted of what has none."""
    candidate = choice.point.candidate
    if request.adapter and not candidate.has_adapter:
        name = candidates_text([candidate], choice.answer.layers)
        raise UsageError(
            f"`adapter` writes what a way such as LoRA adds to the model, and what is exported is "
            f"{name}; leave `adapter` out, or name such a way by `way`"
        )


def _rehearse(request: ExportRequest, trial: TrialSpec, data: TaskData) -> None:
    """Write the model as it is before training, beside its place, and throw it away.

    A place without room and a model that cannot be traced are found now, and cost no training.
    """
    with scratch(request.out, "the model") as folder:
        saved.save_classifier(folder, trial, data, {})
        if request.onnx:
            saved.save_onnx(folder)
        if request.adapter:
            saved.save_adapter(folder, trial, data, {})


def _saved(request: ExportRequest, final: _Final, say: Say) -> tuple[Path, list[str]]:
    """Return the folder with the model, and what is not as it was asked for.

    Where the folder asked for has no room any more, the search's own or the temporary one may, and
    nothing there is replaced; if none has, this waits for room as long as PATIENCE. Raises
    StorageError.
    """
    elsewhere = Path(tempfile.gettempdir(), f"elsa-tune-{final.spec.name}-model")
    fallbacks = (request.paths.folder / "model", elsewhere)
    deadline = time.monotonic() + PATIENCE
    is_said = False
    replaced = ABOUT if request.overwrite else None
    while True:
        refused: StorageError | None = None
        # An earlier model that found no room lies there still.
        places = [request.out, *(free_name(place) for place in fallbacks)]
        for out in places:
            try:
                with aside(out, "the model", replaced) as folder:
                    failed = _write(folder, request, final)
            except StorageError as error:
                refused = refused or error
                continue
            if refused is not None:
                failed.insert(0, str(refused))
            return out, failed
        assert refused is not None
        if time.monotonic() > deadline:
            raise refused
        if not is_said:
            is_said = True
            say(
                f"no room for the trained model, which is in memory only: make some beside "
                f"{request.out} within {duration(PATIENCE)}, and it is written"
            )
        time.sleep(AGAIN)


def _write(folder: Path, request: ExportRequest, final: _Final) -> list[str]:
    """Write everything into a folder; return what could not be made beside the model.

    Raises OSError or SafetensorError where the model itself cannot be written.
    """
    facts = saved.save_classifier(folder, final.trial, final.data, final.weights)
    exported = _exported(final, facts)
    steps: dict[str, Callable[[], object]] = {
        ABOUT: partial(_write_about, folder, final, exported),
        CARD: partial(_write_card, folder, final, exported),
        FIGURE: partial(_write_figure, folder, final.choice),
    }
    if request.onnx:
        steps["an ONNX file"] = partial(saved.save_onnx, folder)
    if request.adapter:
        save = partial(saved.save_adapter, folder, final.trial, final.data, final.weights)
        steps["the adapter"] = save
    failed = []
    for what, step in steps.items():
        try:
            step()
        except (Exception, KeyboardInterrupt) as error:  # whatever it is, the model is worth more
            failed.append(f"{what} could not be written ({first_line(error)})")
    return failed


def _data(spec: SearchSpec, *, full: bool) -> tuple[SearchSpec, TaskData]:
    """Return the data to train on, and the search as if it had used them and these versions."""
    data, fingerprints = inputs_of(spec)
    check_unchanged(spec, fingerprints)
    spec = dataclasses.replace(spec, versions=versions_here(packages_of_search(spec)))
    if not full or spec.recipe.train_size is None:
        return spec, data
    recipe = dataclasses.replace(spec.recipe, train_size=None)
    data = prepare(spec.model, spec.task, recipe)
    rows = len(data.train)
    held_out = 0
    if data.holdout:
        held_out = len(data.holdout)
    fingerprints["data"] = data.fingerprint
    spec = dataclasses.replace(
        spec,
        recipe=recipe,
        fingerprints=fingerprints,
        train_examples=rows,
        holdout_examples=held_out,
    )
    return spec, data


def _in_precision_here(spec: SearchSpec, say: Say) -> SearchSpec:
    """Return the search as if it had trained in a precision that this machine has."""
    asked_for = spec.recipe.precision
    precision = precision_here(asked_for)
    if precision is not asked_for:
        say(
            f"note: the search trained in {asked_for}, for which this machine has no units; this "
            f"model trains in {precision}, which rounds less"
        )
    recipe = dataclasses.replace(spec.recipe, precision=precision)
    return dataclasses.replace(spec, recipe=recipe)


def _write_figure(folder: Path, choice: Choice) -> None:
    answers = by_name([choice.answer])
    chart = charts.freeze_curve(answers)
    drawn = figures.draw(chart)
    write_aside(folder / FIGURE, drawn["png"])


def _write_about(folder: Path, final: _Final, exported: Mapping[str, Any]) -> None:
    answer = {**answer_object(final.choice.answer), "exported": exported}
    text = json.dumps(answer, indent=2, allow_nan=False)
    write_aside(folder / ABOUT, f"{text}\n".encode())


def _write_card(folder: Path, final: _Final, exported: Mapping[str, Any]) -> None:
    card = model_card(final.choice, final.trial.task, final.trial.model, exported)
    write_aside(folder / CARD, visible(card).encode())


def _exported(final: _Final, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is exported and how it was trained. facts: as its configuration has them."""
    choice = final.choice
    trial = final.trial
    spec = final.spec
    promised = None
    if choice.promised is not None:
        promised = [choice.promised.low, choice.promised.high]
    named = candidate_fields(trial.candidate)
    for name in DEPTH_FIELDS:
        named.pop(name, None)
    return {
        **facts,
        "quality": final.quality,
        "fine_tuned_layers": choice.point.fine_tuned_layers,
        **named,
        "chosen": choice.reason,
        "promised": promised,
        "seeds_measured": choice.point.seeds,
        "learning_rate": trial.learning_rate,
        "seed": trial.seed,
        "epochs": trial.recipe.epochs,
        "precision": trial.recipe.precision.value,
        "train_examples": spec.train_examples,
        "search": spec.name,
        **_packages(spec),
    }


def _packages(spec: SearchSpec) -> dict[str, str]:
    names = ("elsa-tune", "torch", "transformers")
    return {name: spec.versions[f"version.{name}"] for name in names}


def train_final(
    spec: SearchSpec, trial: TrialSpec, data: TaskData, record: SearchRecord, say: Say
) -> tuple[float, dict[str, Tensor]]:
    """Train to the end and record it, whatever the end is.

    Returns the trial's quality, and what trained, by name. spec: with the sizes of these data.
    Raises RunErrors as `train` does.
    """
    weights: dict[str, Tensor] = {}
    progress = ProgressLine(say)
    epochs = trial.recipe.epochs

    def on_step(done: int, planned: int) -> None:
        epoch = math.ceil(done * epochs / planned)
        progress.at(f"training: epoch {epoch} of {epochs}", done / planned)

    def keep(trained: Mapping[str, Tensor]) -> None:
        for name, tensor in trained.items():
            weights[name] = tensor.detach().cpu().clone()

    say(f"training: {epochs} epochs of {len(data.train):,} rows")
    record.begin(trial, spec)
    status = TrialStatus.INTERRUPTED
    message = ""
    artifact = None
    try:
        for result in train(trial, data, keep=keep, on_step=on_step):
            record.report(trial.key, dataclasses.asdict(result), {})
            metric = metric_text(trial.task.metric.value)
            quality = points(result.quality)
            say(f"epoch {result.epoch:g} of {epochs}: {metric} {quality}")
        predictions = np.asarray(result.predictions)
        labels = data.evaluation.labels
        artifact = record.keep_predictions(trial.key, predictions, labels, data.units)
        status = TrialStatus.COMPLETED
    except Exception as error:  # whatever ends it is recorded and goes on to the caller
        status = TrialStatus.FAILED
        if isinstance(error, DivergedError):
            status = TrialStatus.DIVERGED
        message = hidden(f"{type(error).__name__}: {error}")
        raise
    finally:
        ended = record.end(trial.key, status, message, artifact)
    return ended.latest[QUALITY], weights


def push(folder: Path, name: str) -> str:
    """Upload the folder, private where it is new; returns the model's address. Raises RunError."""
    from huggingface_hub import HfApi

    from elsa_tune.training.hub import without_bars

    api = HfApi()
    try:
        address = api.create_repo(name, private=True, exist_ok=True)
        with without_bars():
            api.upload_folder(
                repo_id=name, folder_path=folder, commit_message="Exported by elsa-tune"
            )
    except Exception as error:  # the client's, the server's and the network's: no common base
        raise RunError(
            f"{name} could not be pushed ({first_line(error)}); {folder} is complete: log in by "
            f"`hf auth login`, then run `hf upload {name} {folder}`"
        ) from error
    return str(address)
