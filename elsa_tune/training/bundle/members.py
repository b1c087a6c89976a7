"""Exported models, complete or in a bundle's folder: read, written, taken by themselves.

Shapes: E texts, C outputs of a task.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import PreTrainedModel

from elsa_tune.errors import UnknownMethodError, quoted
from elsa_tune.files import PLAIN_NAME
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import recorded_candidate
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.tasks.types.base import Logits
from elsa_tune.training.adapt import methods
from elsa_tune.training.adapt.trainable import Trainable, frozen_prefix, recorded_trainable
from elsa_tune.training.bundle.texts import Texts, split_texts
from elsa_tune.training.data.batches import Tensors
from elsa_tune.training.forward.equality import twin
from elsa_tune.training.model.encoder import (
    LOCAL,
    explained,
    plain_configuration,
    save_tokenizer,
)
from elsa_tune.training.model.model_files import check_tokenizer

ABOUT = "bundle.json"
PREFIX = "prefix.safetensors"
BRANCHES = "branches"

Facts = dict[str, Any]  # what a configuration or a bundle's ABOUT says


@dataclass(frozen=True, slots=True)
class Member:
    """One task's complete model, in evaluation mode, with its tokenizer."""

    model: PreTrainedModel  # with its head
    tokenizer: Any  # as transformers loads it
    # What was trained of it: found once, for a bundle takes the model apart.
    trainable: Trainable = field(init=False)

    def __post_init__(self) -> None:
        trainable = _trained_of(self.model, self.facts)
        object.__setattr__(self, "trainable", trainable)

    @property
    def facts(self) -> Facts:
        """What `export` wrote of it into its configuration."""
        return self.model.config.elsa_tune  # type: ignore[no-any-return]  # untyped

    @property
    def candidate(self) -> Candidate:
        """How it was adapted; where nobody here knows how, the depth from which it is its own."""
        try:
            return recorded_candidate(self.facts)
        except UnknownMethodError:
            trainable = self.trainable
            return FreezeDepth(trainable.first_trained_layer, not trainable.embeddings_train)

    @property
    def has_prefix(self) -> bool:
        """Whether its first layers, or its embeddings, are the base model's."""
        return not self.trainable.embeddings_train

    def frozen(self) -> Tensors:
        """Return the tensors of its frozen prefix, by name."""
        names = frozen_prefix(self.model, self.trainable)
        tensors: Tensors = {}
        for name, parameter in self.model.named_parameters():
            if name in names:
                tensors[name] = parameter.detach()
        return tensors


def _trained_of(model: PreTrainedModel, facts: Facts) -> Trainable:
    """Return what was trained of an exported model.

    Raises UnknownMethodError where nobody here knows how, and an early export does not say what.
    """
    try:
        candidate = recorded_candidate(facts)
    except UnknownMethodError:
        recorded = recorded_trainable(model, facts)
        if recorded is None:
            raise
        return recorded
    return methods.trained_of(model, candidate)


Members = dict[str, Member]  # by the names of their tasks


def read_members(folder: Path) -> Members:
    """Read the models of a bundle, each complete, or an exported model, called as its folder.

    What the models of a bundle share is in memory once. Raises ModelError.
    """
    is_bundle = (folder / ABOUT).is_file()
    what = "a bundle" if is_bundle else "an exported model"
    with explained(f"{folder} cannot be read as {what}"):
        if is_bundle:
            models = _read_bundled(folder)
        else:
            name = _name_of(folder)
            models = {name: _read_exported(folder)}
        # Without one, transformers makes a tokenizer to which every word is unknown.
        check_tokenizer(folder, _name_of(folder))
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
        members = {}
        for name, model in models.items():
            members[name] = Member(model, tokenizer)
        return members


def _name_of(folder: Path) -> str:
    """Return a folder's own name, also where it is a link to another or is written `.`."""
    return Path(os.path.abspath(folder)).name


def read_about(folder: Path) -> Facts:
    """Return what a bundle's ABOUT says of it. Raises OSError or ValueError."""
    text = (folder / ABOUT).read_text()
    about: Facts = json.loads(text)
    return about


def _read_bundled(folder: Path) -> dict[str, PreTrainedModel]:
    """Read a bundle's models by the names of their tasks."""
    prefix = load_file(folder / PREFIX)
    models = {}
    for name, task in read_about(folder)["tasks"].items():
        check_name(name)
        recorded = transformers.AutoConfig.for_model(**task["config"])
        config = plain_configuration(recorded, name)
        kinds = transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING
        kind: Any = kinds[type(config)]
        branch = load_file(_branch_file(folder, name))
        # A branch has its own of the prefix's deeper layers.
        state = prefix | branch
        model, report = kind.from_pretrained(
            None,
            config=config,
            state_dict=state,
            output_loading_info=True,
        )
        _check_complete(model, report)
        models[name] = model
    return models


def _read_exported(folder: Path) -> PreTrainedModel:
    recorded = transformers.AutoConfig.from_pretrained(folder, **LOCAL)
    config = plain_configuration(recorded, _name_of(folder))
    model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
        folder,
        config=config,
        output_loading_info=True,
        **LOCAL,
    )
    _check_complete(model, report)
    return cast(PreTrainedModel, model)


def _check_complete(model: PreTrainedModel, report: Mapping[str, Any]) -> None:
    """Raise ValueError for a model that says nothing of its layers, or lacks weights."""
    if not hasattr(model.config, "elsa_tune"):
        raise ValueError("its config.json does not say what is frozen, as exports do")
    missing = report["missing_keys"]
    if missing:
        raise ValueError(f"its weights lack {min(missing)}")


def _branch_file(folder: Path, name: str) -> Path:
    return folder / BRANCHES / f"{name}.safetensors"


def check_name(name: str) -> None:
    """Refuse a task's name that is no file's name: a foreign one must not lead out of a bundle.

    Raises ValueError.
    """
    if not PLAIN_NAME.fullmatch(name):
        raise ValueError(
            f"{quoted(name)} cannot be a task's name in a bundle; write letters, digits, '.', '_' "
            "and '-', beginning with a letter or digit, at most 100 of them"
        )


def write_members(folder: Path, members: Members) -> Facts:
    """Write a bundle's prefix, branches and tokenizer into a folder that is there.

    The prefix goes down to the deepest frozen layer; a branch is what a model has beside its own
    frozen layers. Returns the `tasks` of its ABOUT. Raises OSError or SafetensorError.
    """
    base = deepest(members)
    save_file(base.frozen(), folder / PREFIX)
    (folder / BRANCHES).mkdir()
    tasks = {}
    for name, member in members.items():
        branch = member.model.state_dict()
        for key in member.frozen():
            branch.pop(key, None)
        save_file(branch, _branch_file(folder, name))
        config = member.model.config.to_json_string()
        tasks[name] = {"config": json.loads(config)}
    tokenizer = base.tokenizer
    tokenizer.chat_template = None  # their names would become files, and nothing here reads them
    save_tokenizer(tokenizer, folder)
    return tasks


def deepest(members: Members) -> Member:
    """Return the first of those with the longest frozen prefix."""

    def length(member: Member) -> tuple[int, bool]:
        return member.trainable.first_trained_layer, member.has_prefix

    return max(members.values(), key=length)


def alone(member: Member, texts: Texts) -> Logits:
    """Return logits [E, C] of one model by transformers' own code, on one padded batch."""
    columns = split_texts(texts).texts
    inputs = member.tokenizer(
        *columns,
        padding=True,
        truncation=True,
        max_length=member.facts["max_length"],
        return_tensors="pt",
    )
    with torch.inference_mode():
        output = member.model(**inputs)
        logits: Logits = output.logits.numpy()
    return logits


def twins(members: Members) -> Members:
    """Return the same around the same weights, to be taken apart while the given ones stay."""
    copies: Members = {}
    for name, member in members.items():
        model = twin(member.model)
        copies[name] = Member(model, member.tokenizer)
    return copies
