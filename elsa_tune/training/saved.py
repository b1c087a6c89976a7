"""A trained classifier as a folder that `from_pretrained` loads, and what such a folder answers."""

import contextlib
import hashlib
import inspect
import logging
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel, pipeline

from elsa_tune.errors import DataError, ModelError, SpaceError, first_line
from elsa_tune.specs.model import ModelSource
from elsa_tune.specs.task import TaskSpec
from elsa_tune.specs.trial import Pooling, Recipe, TrialSpec
from elsa_tune.tasks.table_file import format_of, read_table
from elsa_tune.tasks.types.base import Unit
from elsa_tune.tasks.types.registry import type_of, type_of_export
from elsa_tune.training.adapt import methods
from elsa_tune.training.adapt.trainable import frozen_prefix
from elsa_tune.training.data.batches import CPU
from elsa_tune.training.data.texts import to_split
from elsa_tune.training.data.tokens import Split, TaskData
from elsa_tune.training.model.encoder import (
    LOCAL,
    load_classifier,
    load_tokenizer,
    plain_configuration,
    quiet,
    save_tokenizer,
)
from elsa_tune.training.model.model_files import model_folder
from elsa_tune.training.model.parts import final_linear
from elsa_tune.training.objective import Objective

# The folder of an export in which LoRA's matrices and the head lie.
ADAPTER = "adapter"


def check_exportable(recipe: Recipe) -> None:
    """Raise ModelError where no class of transformers computes what was trained."""
    if recipe.pooling is Pooling.MEAN:
        raise ModelError(
            "the search trained with pooling mean, which no classifier of transformers computes, "
            "so that a saved model would answer otherwise; search with pooling=head to export"
        )


def save_classifier(
    folder: Path, trial: TrialSpec, data: TaskData, trained: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Write model, configuration and tokenizer into a folder that is there.

    Returns our facts, as the configuration has them.

    trained: by name; everything else is the base model's, bit by bit. A regression's head gives
    values on the scale of the labels. Raises OSError or SafetensorError where it cannot be written.
    """
    model = _trained_model(trial, data, trained)
    with torch.no_grad():
        trainable = methods.merged(model, trial.candidate)
    prefix = frozen_prefix(model, trainable)
    frozen = {name: tensor for name, tensor in model.named_parameters() if name in prefix}
    facts = {
        "base": trial.model.name,
        "revision": trial.model.revision,
        **trial.candidate.record(),
        **trainable.record(),
        "prefix_sha256": digest(frozen),
        "max_length": trial.recipe.max_length,
        "text_columns": list(trial.task.text_columns),
        "kind": trial.task.kind.value,
    }
    names = trial.task.classes or (trial.task.label_column,)
    model.config.id2label = dict(enumerate(names))
    model.config.label2id = {name: number for number, name in enumerate(names)}
    model.config.elsa_tune = facts
    model.config.problem_type = type_of(trial.task.kind).problem_type
    tokenizer: Any = load_tokenizer(trial.model)
    tokenizer.model_max_length = trial.recipe.max_length
    tokenizer.chat_template = None  # their names would become files, and a classifier reads none
    # BERT's tokenizer beside DistilBERT's weights also gives token types, which that cannot read.
    taken = inspect.signature(model.forward).parameters
    tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name in taken]
    with quiet():
        model.save_pretrained(folder)
        save_tokenizer(tokenizer, folder)
    return facts


def save_adapter(
    folder: Path, trial: TrialSpec, data: TaskData, trained: Mapping[str, Tensor]
) -> None:
    """Write what trained of a model with an adapter into `adapter` in a folder, as peft loads it.

    trained: as for `save_classifier`. Raises OSError or SafetensorError where it cannot be written,
    SpaceError for a way without an adapter. Then no folder `adapter` is left.
    """
    candidate = trial.candidate
    if not candidate.has_adapter:
        raise SpaceError(f"'{candidate.label}' has no adapter, as lora has")
    adapted = _trained_model(trial, data, trained)
    outputs = Objective(trial, data, CPU).outputs
    base = load_classifier(trial.model, outputs, trial.seed)
    location = trial.model.location
    if trial.model.source is not ModelSource.HUB:
        location = str(model_folder(trial.model))
    with _new_folder(folder / ADAPTER) as target, quiet():
        methods.save_adapter(target, adapted, base, candidate, location, trial.model.revision)


def _trained_model(
    trial: TrialSpec, data: TaskData, trained: Mapping[str, Tensor]
) -> PreTrainedModel:
    """Return the adapted model with what trained, by name, and a head on the scale of the labels.

    Its memory is its own: a method may change any of it where it merges what it has added.
    """
    objective = Objective(trial, data, CPU)
    model = load_classifier(trial.model, objective.outputs, trial.seed)
    methods.apply(model, trial.candidate, trial.seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name in trained:
                parameter.copy_(trained[name])
        head = model.get_submodule(final_linear(model))
        assert isinstance(head, nn.Linear)
        unit = objective.unit
        if unit != Unit():
            head.weight.mul_(unit.std)
            head.bias.mul_(unit.std).add_(unit.mean)
    return model


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return sha256 of tensors and their names, as hexadecimal digits."""
    sha256 = hashlib.sha256()
    for name in sorted(tensors):
        sha256.update(name.encode())
        numbers = tensors[name].detach().contiguous().numpy()
        sha256.update(numbers.tobytes())
    return sha256.hexdigest()


def read_labelled(path: Path, task: TaskSpec) -> Split:
    """Read the rows of a file with the task's columns. Raises DataError as a task's files do."""
    kind = format_of(path)
    if kind is None:
        raise DataError(f"{path} is of no known kind; give a .csv, .tsv, .jsonl or .parquet file")
    table = read_table(path, kind, [*task.text_columns, task.label_column])
    split = to_split(replace(task, group_column=None), [table])  # a score counts every row
    if not len(split):
        raise DataError(f"{path} has no complete row of {', '.join(task.text_columns)} and label")
    return split


def classifier(folder: Path, device: str = "cpu") -> Any:
    """Load transformers' own pipeline on a saved model."""
    # Absolute: MLflow looks on the hub for whatever could be a name there.
    location = str(folder.absolute())
    with quiet():
        config = transformers.AutoConfig.from_pretrained(location, **LOCAL)
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            location, config=plain_configuration(config, folder.name), **LOCAL
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(location, **LOCAL)
        return pipeline(
            "text-classification", model, tokenizer=tokenizer, truncation=True, device=device
        )


def save_onnx(folder: Path) -> None:
    """Write a saved model's `onnx/model.onnx`, beside it model.onnx.data with the weights.

    It leads from the tokenizer's outputs [rows, tokens] to `logits` [rows, labels], rows and tokens
    as many as given.

    Raises ModelError where torch cannot, as for architectures that it cannot trace; OSError where
    the files cannot be written. Then no folder `onnx` is left.
    """
    ask = classifier(folder)
    row = " ".join(["word"] * 7)
    batch = dict(ask.tokenizer([row, row], return_tensors="pt"))
    shape = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    with _new_folder(folder / "onnx") as target, quiet(), _quiet_exporter():
        try:
            with warnings.catch_warnings(action="ignore"):
                torch.onnx.export(
                    ask.model,
                    kwargs=batch,
                    f=target / "model.onnx",
                    input_names=list(batch),
                    output_names=["logits"],
                    dynamic_shapes=dict.fromkeys(batch, shape),
                    verbose=False,
                )
        except OSError:
            raise
        except Exception as error:  # of torch, onnxscript or the architecture's own code
            raise ModelError(
                f"torch cannot make an ONNX file of this model ({_root(error)}); leave `onnx` out"
            ) from error


@contextlib.contextmanager
def _quiet_exporter() -> Iterator[None]:
    """Keep torch's exporter from telling what is not installed, while inside."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextlib.contextmanager
def _new_folder(folder: Path) -> Iterator[Path]:
    """Return a folder that was not there, and goes again where what is inside does not end well."""
    folder.mkdir()
    try:
        yield folder
    except BaseException:  # of libraries, or Ctrl-C
        shutil.rmtree(folder, ignore_errors=True)
        raise


def _root(error: BaseException) -> str:
    """Return what was wrong at first: torch's exporter wraps the reason in advice of its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    return first_line(error)


def predict(folder: Path, texts: Sequence[Sequence[str]]) -> np.ndarray:
    """Return predictions [E, ...] as the task's labels are. texts: E of each text column."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ask = classifier(folder, device)
    rows = []
    for cells in zip(*texts, strict=True):
        row = dict(zip(("text", "text_pair"), cells, strict=False))
        rows.append(row)
    answers = ask(rows, top_k=None, function_to_apply="none")
    config = ask.model.config
    logits = torch.zeros(len(rows), config.num_labels)
    for row_logits, scores in zip(logits, answers, strict=True):
        for answer in scores:
            output = config.label2id[answer["label"]]
            row_logits[output] = answer["score"]
    task_type = type_of_export(config.elsa_tune.get("kind"), config.problem_type)
    predictions = task_type.predictions(logits, Unit())
    return predictions.numpy()
