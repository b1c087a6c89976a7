"""Several exported models as one: the frozen layers that they share run once for all of them.

Shapes: E texts, C outputs of a task.
"""

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from elsa_tune.errors import DataError, UnknownNameError, quoted
from elsa_tune.files import PLAIN_NAME
from elsa_tune.specs.adaptation import Candidate
from elsa_tune.specs.arguments import checked
from elsa_tune.specs.candidates import recorded_candidate
from elsa_tune.tasks.types.base import TaskType
from elsa_tune.tasks.types.registry import type_of_export
from elsa_tune.training.adapt import methods
from elsa_tune.training.adapt.trainable import Trainable, frozen_prefix
from elsa_tune.training.data.preparation import tokenised
from elsa_tune.training.data.tokens import Split, TokenRows
from elsa_tune.training.forward.equality import twin
from elsa_tune.training.forward.packed_model import PackedModel
from elsa_tune.training.forward.padded_model import PaddedModel
from elsa_tune.training.forward.runner import passes
from elsa_tune.training.model.encoder import LOCAL, explained, without_kernels

ABOUT = "bundle.json"
PREFIX = "prefix.safetensors"
BRANCHES = "branches"

Text = str | tuple[str, str]
Cells = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Member:
    """One task's complete model, in evaluation mode, with its tokenizer."""

    model: PreTrainedModel
    tokenizer: Any
    # What was trained of it: found once, for a bundle takes the model apart.
    trainable: Trainable = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trainable", methods.trained_of(self.model, self.candidate))

    @property
    def facts(self) -> dict[str, Any]:
        """What `export` wrote of it into its configuration."""
        return self.model.config.elsa_tune  # type: ignore[no-any-return]  # untyped

    @property
    def candidate(self) -> Candidate:
        """How it was adapted."""
        return recorded_candidate(self.facts)

    @property
    def has_prefix(self) -> bool:
        """Whether its first layers, or its embeddings, are the base model's."""
        return not self.trainable.embeddings_train

    def frozen(self) -> dict[str, Tensor]:
        """Return the tensors of its frozen prefix, by name."""
        names = frozen_prefix(self.model, self.trainable)
        return {name: x.detach() for name, x in self.model.named_parameters() if name in names}


def read_members(folder: Path) -> dict[str, Member]:
    """Read the models of a bundle, each complete, or an exported model, called as its folder.

    What the models of a bundle share is in memory once. Raises ModelError.
    """
    is_bundle = (folder / ABOUT).is_file()
    with explained(
        f"{folder} cannot be read as {'a bundle' if is_bundle else 'an exported model'}"
    ):
        loaded: dict[str, tuple[Any, dict[str, Any]]] = {}
        if is_bundle:
            prefix = load_file(folder / PREFIX)
            for name, task in json.loads((folder / ABOUT).read_text())["tasks"].items():
                check_name(name)
                config = transformers.AutoConfig.for_model(**task["config"])
                config = without_kernels(config, name)
                kind: Any = transformers.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]
                # A branch has its own of the prefix's deeper layers.
                state = prefix | load_file(folder / BRANCHES / f"{name}.safetensors")
                loaded[name] = kind.from_pretrained(
                    None, config=config, state_dict=state, output_loading_info=True
                )
        else:
            kind = transformers.AutoModelForSequenceClassification
            name = folder.resolve().name
            config = transformers.AutoConfig.from_pretrained(folder, **LOCAL)
            loaded[name] = kind.from_pretrained(
                folder,
                config=without_kernels(config, name),
                output_loading_info=True,
                **LOCAL,
            )
        for model, report in loaded.values():
            if not hasattr(model.config, "elsa_tune"):
                raise ValueError("its config.json does not say what is frozen, as exports do")
            if missing := report["missing_keys"]:
                raise ValueError(f"its weights lack {min(missing)}")
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
        return {name: Member(model, tokenizer) for name, (model, _) in loaded.items()}


def check_name(name: str) -> None:
    """Refuse a task's name that is no file's name: a foreign one must not lead out of a bundle.

    Raises ValueError.
    """
    if not PLAIN_NAME.fullmatch(name):
        raise ValueError(
            f"{quoted(name)} cannot be a task's name in a bundle; write letters, digits, '.', '_' "
            "and '-', beginning with a letter or digit, at most 100 of them"
        )


def write_members(folder: Path, members: Mapping[str, Member]) -> dict[str, Any]:
    """Write a bundle's prefix, branches and tokenizer into a folder that is there.

    The prefix goes down to the deepest frozen layer; a branch is what a model has beside its own
    frozen layers. Returns the `tasks` of its ABOUT. Raises OSError or SafetensorError.
    """
    (folder / BRANCHES).mkdir()
    save_file(deepest(members).frozen(), folder / PREFIX)
    for name, member in members.items():
        state = member.model.state_dict()
        frozen = member.frozen()
        branch = {key: x for key, x in state.items() if key not in frozen}
        save_file(branch, folder / BRANCHES / f"{name}.safetensors")
    tokenizer = deepest(members).tokenizer
    tokenizer.chat_template = None  # their names would become files, and nothing here reads them
    tokenizer.save_pretrained(folder)
    configs = {name: member.model.config.to_json_string() for name, member in members.items()}
    return {name: {"config": json.loads(config)} for name, config in configs.items()}


def deepest(members: Mapping[str, Member]) -> Member:
    """Return the first of those with the longest frozen prefix."""
    return max(
        members.values(),
        key=lambda member: (member.trainable.first_trained_layer, member.has_prefix),
    )


def alone(member: Member, texts: Sequence[Text]) -> NDArray[np.float32]:
    """Return logits [E, C] of one model by transformers' own code, on one padded batch."""
    inputs = member.tokenizer(
        *split_texts(texts).texts,
        padding=True,
        truncation=True,
        max_length=member.facts["max_length"],
        return_tensors="pt",
    )
    with torch.inference_mode():
        return member.model(**inputs).logits.numpy()  # type: ignore[no-any-return]  # untyped


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """One task's answers to E texts, as transformers' pipeline gives them."""

    labels: tuple[str, ...]  # [E], as the type of task has them; of a regression its value's name
    scores: NDArray[np.float32]  # [E], the label's probability, or the value
    logits: NDArray[np.float32]  # [E, C]

    def __repr__(self) -> str:
        texts = len(self.labels)
        return f"Prediction({texts:,} {'text' if texts == 1 else 'texts'}: labels, scores, logits)"


class Bundle:
    """Models of one base that answer together. Threads may share it, and take turns.

    tasks: their names. how: `packed` or `padded`.
    """

    def __init__(self, members: Mapping[str, Member], packed: bool) -> None:
        """Take the members apart. packed: run them on packed tokens, else on padded batches.

        Raises ValueError for an architecture that cannot be run so.
        """
        base = deepest(members)
        self._tokenizer = base.tokenizer
        self._turn = threading.Lock()
        self._configs: dict[str, Any] = {n: member.model.config for n, member in members.items()}

        def runs(model: PreTrainedModel, begin: int) -> PackedModel | PaddedModel:
            return PackedModel(model, begin) if packed else PaddedModel(model, base.tokenizer)

        self._prefix = runs(twin(base.model), base.trainable.first_trained_layer)
        self._branches = {
            name: runs(member.model, members[name].trainable.first_trained_layer)
            for name, member in members.items()
        }
        self.tasks = tuple(members)
        self.how = self._prefix.how
        # Behind which layer a task leaves the shared ones; the others run from the tokens, as one
        # does that has nobody to share with.
        self._begins = {
            name: min(members[name].trainable.first_trained_layer, self._prefix.deepest)
            for name in members
            if len(members) > 1 and not members[name].trainable.embeddings_train
        }
        for name, begin in self._begins.items():
            self._branches[name].drop_prefix(begin)

    def __repr__(self) -> str:
        return f"Bundle({', '.join(self.tasks)}; {self.how})"

    def facts(self, task: str) -> dict[str, Any]:
        """Return what `export` wrote of a task's model into its configuration."""
        return self._configs[task].elsa_tune  # type: ignore[no-any-return]  # untyped

    def labels(self, task: str) -> tuple[str, ...]:
        """Return a task's classes in the order of its logits; () of one without, a regression."""
        return self._names(task) if self.type_of(task).names_classes else ()

    def type_of(self, task: str) -> TaskType:
        """Return the type of a task, which says what its logits mean. Raises ModelError."""
        return type_of_export(self.facts(task).get("kind"), self._configs[task].problem_type)

    def cells(self, task: str, logits: NDArray[np.float32], *, probabilities: bool) -> Cells:
        """Return the columns that logits [E, C] add to rows, as `TaskType.cells` has them."""
        names = self._names(task)
        return self.type_of(task).cells(logits, names, probabilities=probabilities)

    def _names(self, task: str) -> tuple[str, ...]:
        config = self._configs[task]
        return tuple(config.id2label[number] for number in range(config.num_labels))

    @checked("texts")
    def predict(
        self, texts: Sequence[Text], tasks: Sequence[str] | None = None
    ) -> dict[str, Prediction]:
        """Return the answers to these texts, or pairs of texts, by task; to all tasks by default.

        The shared layers run once, as deep as the tasks need; each goes on from its own depth.
        Raises UnknownNameError, and DataError for what are no texts.
        """
        names = self.tasks if tasks is None else tuple(tasks)
        for name in names:
            if name not in self._branches:
                raise UnknownNameError.among("task", name, self.tasks)
        split = split_texts(texts)
        shapes = {name: (len(split), self._configs[name].num_labels) for name in names}
        logits_of = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        if names and len(split):
            with self._turn, torch.inference_mode():
                self._fill(split, logits_of)
        predictions = {}
        for name, logits in logits_of.items():
            task_type = self.type_of(name)
            labels, scores = task_type.answers(torch.from_numpy(logits), self._names(name))
            predictions[name] = Prediction(tuple(labels), scores.numpy(), logits)
        return predictions

    def _fill(self, split: Split, logits_of: Mapping[str, NDArray[np.float32]]) -> None:
        limits = {name: self._configs[name].elsa_tune["max_length"] for name in logits_of}
        rows = tokenised(split, max(limits.values()), self._tokenizer)
        longest = int(rows.lengths.max())
        # Only where a text is cut do tasks with another limit read other tokens.
        for limit in {min(limit, longest) for limit in limits.values()}:
            cut = rows if limit == longest else tokenised(split, limit, self._tokenizer)
            self._run(cut, {n: logits_of[n] for n in logits_of if min(limits[n], longest) == limit})

    def _run(self, rows: TokenRows, logits_of: Mapping[str, NDArray[np.float32]]) -> None:
        order = np.argsort(rows.lengths, kind="stable")
        rows = rows.take(order)
        wanted = {self._begins[name] for name in logits_of if name in self._begins}
        for chunk in passes(rows):
            batch: Any = self._prefix.batch(rows, chunk)
            places = batch.places - int(rows.offsets[chunk[0]])
            behind = dict(self._prefix.behind(rows, chunk, wanted)) if wanted else {}
            for name, into in logits_of.items():
                given = behind[self._begins[name]][places] if name in self._begins else None
                into[order[batch.rows]] = self._branches[name](batch, given)


@checked()
def load_bundle(folder: str | Path) -> Bundle:
    """Load a folder that `elsa-tune bundle` wrote, on the CPU. Raises ModelError."""
    members = read_members(Path(folder))
    with explained(f"{folder} cannot be read as a bundle"):
        return Bundle(members, json.loads((Path(folder) / ABOUT).read_text())["runs"] == "packed")


def split_texts(texts: Sequence[Text]) -> Split:
    """Return texts, or pairs of texts, as columns. Raises DataError for what are no texts."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise DataError("give a list of texts, or a list of pairs of texts")
    rows = [(row,) if isinstance(row, str) else row for row in texts]
    widths = {len(row) if isinstance(row, tuple | list) else 0 for row in rows}
    if len(widths) > 1 or not widths <= {1, 2}:
        raise DataError("give a list of texts, or a list of pairs of texts")
    columns = tuple(map(list, zip(*rows, strict=True))) or ([],)
    if not all(isinstance(text, str) for column in columns for text in column):
        raise DataError("each text must be a string: one of them is missing, or something else")
    return Split("the texts", columns, np.zeros(len(rows)))
