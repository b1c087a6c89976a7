"""Tiny trials on made-up tokens: real models with random weights.

They take seconds to train, and have something to learn.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np

from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.model import ModelSpec, resolve_model
from elsa_tune.specs.task import EmbeddedSource, Metric, TaskKind, TaskSpec
from elsa_tune.specs.trial import Precision, Recipe, TrialSpec
from elsa_tune.training.data.tokens import TaskData, TokenRows
from tests.unit.tiny_models import make_tiny

TASK = TaskSpec(
    name="made_up",
    kind=TaskKind.CLASSIFICATION,
    text_columns=("text",),
    label_column="label",
    classes=("no", "yes"),
    metric=Metric.ACCURACY,
    companions=(Metric.F1,),
    source=EmbeddedSource(),
)
REGRESSION = dataclasses.replace(
    TASK, kind=TaskKind.REGRESSION, classes=(), metric=Metric.SPEARMAN, companions=()
)
# Tokens 0..4 are the special ones of the tiny tokenizers.
FIRST_WORD, LAST_WORD = 10, 60
# Every name under which the ten architectures keep a dropout probability.
DROPOUTS = {
    *("hidden_dropout_prob", "attention_probs_dropout_prob", "dropout", "attention_dropout"),
    *("seq_classif_dropout", "summary_last_dropout", "classifier_dropout", "embedding_dropout"),
    *("mlp_dropout", "pooler_dropout"),
}


def make_rows(count: int, seed: int, regression: bool = False) -> TokenRows:
    """Return rows of 4..12 tokens whose first word alone gives the label.

    It is one of two, or one of five values.
    """
    draw = np.random.default_rng(seed)
    lengths = draw.integers(4, 13, count)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    ids = draw.integers(FIRST_WORD + 5, LAST_WORD, offsets[-1]).astype(np.int32)
    level = draw.integers(0, 5 if regression else 2, count)
    ids[offsets[:-1]] = FIRST_WORD + level
    labels: Any = (level / 4).astype(np.float32) if regression else level.astype(np.int64)
    return TokenRows(input_ids=ids, offsets=offsets, token_type_ids=None, labels=labels)


def make_data(train: int = 40, evaluation: int = 30, regression: bool = False) -> TaskData:
    """Tokenised data of the made-up task."""
    return TaskData(
        train=make_rows(train, 1, regression),
        evaluation=make_rows(evaluation, 2, regression),
        companions={},
        pad_token_id=0,
        padding_side="right",
        pad_token_type_id=0,
        fingerprint="made-up",
        chance=0.0 if regression else 0.5,
        notes=(),
    )


def tiny_bert(folder: Path, layers: int = 4) -> ModelSpec:
    """Return a BERT of four layers with random weights, in a folder."""
    return resolve_model(str(make_tiny("bert", folder, layers)))


def make_trial(model: ModelSpec, frozen_layers: int | str = 0, **changes: Any) -> TrialSpec:
    """Return a short fp32 trial; fields of the trial or of its recipe can be replaced."""
    recipe_names = {field.name for field in dataclasses.fields(Recipe)}
    recipe = {name: value for name, value in changes.items() if name in recipe_names}
    rest = {name: value for name, value in changes.items() if name not in recipe_names}
    depth = FreezeDepth.of(frozen_layers) if frozen_layers != 0 else FULL_MODEL
    fields: dict[str, Any] = {
        "model": model,
        "task": TASK,
        "recipe": Recipe(**{"epochs": 2, "precision": Precision.FP32, **recipe}),
        "candidate": depth,
        "learning_rate": 3e-3,
        "seed": 1,
        **rest,
    }
    return TrialSpec(**fields)


def calm(architecture: str, folder: Path, layers: int = 3) -> ModelSpec:
    """Return a tiny model without any dropout."""
    make_tiny(architecture, folder, layers)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update({name: 0.0 for name in DROPOUTS if name in config})
    config.update({"summary_last_dropout": 0.0} if architecture == "xlnet" else {})
    path.write_text(json.dumps(config))
    return resolve_model(str(folder))


def data_for(architecture: str, train: int = 80) -> TaskData:
    """Rows of very different lengths, padded as the architecture's tokenizer does it."""
    data = make_data(train=train)
    pad = {"xlnet": 5, "roberta": 1, "camembert": 1, "xlm-roberta": 1, "mpnet": 1}
    side: Any = "left" if architecture == "xlnet" else "right"
    return dataclasses.replace(
        data,
        train=with_long_rows(data.train),
        pad_token_id=pad.get(architecture, 0),
        padding_side=side,
    )


def with_long_rows(rows: TokenRows) -> TokenRows:
    """Return the same rows, every third one three times as long."""
    parts, lengths = [], []
    for number, (start, stop) in enumerate(zip(rows.offsets, rows.offsets[1:], strict=False)):
        part = np.tile(rows.input_ids[start:stop], 3 if number % 3 == 0 else 1)
        parts.append(part)
        lengths.append(len(part))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    return dataclasses.replace(rows, input_ids=np.concatenate(parts), offsets=offsets)
