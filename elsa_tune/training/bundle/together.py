"""Several exported models as one: the frozen layers that they share run once for all of them.

Shapes: E texts, C outputs of a task.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PreTrainedModel

from elsa_tune.errors import DataError, ModelError, UnknownNameError
from elsa_tune.files import expanded, why_no_folder
from elsa_tune.specs.arguments import checked
from elsa_tune.tasks.types.base import Logits, TaskType
from elsa_tune.tasks.types.registry import is_known, type_of_export
from elsa_tune.training.bundle.members import (
    Facts,
    Members,
    deepest,
    read_about,
    read_members,
)
from elsa_tune.training.bundle.texts import Texts, split_texts
from elsa_tune.training.data.preparation import tokenised
from elsa_tune.training.data.tokens import IndexArray, Split, TokenRows
from elsa_tune.training.forward.equality import twin
from elsa_tune.training.forward.packed_model import PackedModel
from elsa_tune.training.forward.padded_model import PaddedModel
from elsa_tune.training.forward.runner import passes
from elsa_tune.training.machine import plain_torch
from elsa_tune.training.model.encoder import explained

Cells = dict[str, NDArray[Any]]  # of each column, by name


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """One task's answers to E texts, as transformers' pipeline gives them."""

    labels: tuple[str, ...]  # [E], as the type of task has them; of a regression its value's name
    scores: NDArray[np.float32]  # [E], the label's probability, or the value
    logits: Logits  # [E, C]
    is_cut: NDArray[np.bool_]  # [E], whether a text has more tokens than the model reads

    def __repr__(self) -> str:
        count = len(self.labels)
        texts = f"{count:,} texts"
        if count == 1:
            texts = "1 text"
        return f"Prediction({texts}: labels, scores, logits)"


class Bundle:
    """Models of one base that answer together. Threads may share it, and take turns.

    tasks: their names. how: `packed` or `padded`.
    """

    def __init__(self, members: Members, packed: bool) -> None:
        """Take the members apart. packed: run them on packed tokens, else on padded batches.

        Raises ValueError for an architecture that cannot be run so.
        """
        base = deepest(members)
        self._tokenizer = base.tokenizer
        self._turn = threading.Lock()

        def runs(model: PreTrainedModel, begin: int) -> PackedModel | PaddedModel:
            if packed:
                return PackedModel(model, begin)
            return PaddedModel(model, base.tokenizer)

        self._prefix = runs(twin(base.model), base.trainable.first_trained_layer)
        self.tasks = tuple(members)
        self.how = self._prefix.how
        self._configs: dict[str, Any] = {}
        self._branches: dict[str, PackedModel | PaddedModel] = {}
        # Behind which layer a task leaves the shared ones; the others run from the tokens, as one
        # does that has nobody to share with.
        self._begins: dict[str, int] = {}
        for name, member in members.items():
            self._configs[name] = member.model.config
            begin = member.trainable.first_trained_layer
            branch = runs(member.model, begin)
            if len(members) > 1 and member.has_prefix:
                shared = min(begin, self._prefix.deepest)
                branch.drop_prefix(shared)
                self._begins[name] = shared
            self._branches[name] = branch

    def __repr__(self) -> str:
        tasks = ", ".join(self.tasks)
        return f"Bundle({tasks}; {self.how})"

    def facts(self, task: str) -> Facts:
        """Return what `export` wrote of a task's model into its configuration."""
        recorded: Facts = self._configs[task].elsa_tune
        return recorded

    def labels(self, task: str) -> tuple[str, ...]:
        """Return a task's classes in the order of its logits; () of one without, a regression."""
        if not self.type_of(task).names_classes:
            return ()
        return self._names(task)

    def type_of(self, task: str) -> TaskType:
        """Return the type of a task, which says what its logits mean. Raises ModelError."""
        kind = self.facts(task).get("kind")
        problem_type = self._configs[task].problem_type
        return type_of_export(kind, problem_type)

    def unknown_kind(self, task: str) -> str | None:
        """Return the kind of a task's labels where nothing here knows it, so that another's count.

        None where it is known, or was not recorded. Raises ModelError as `type_of`.
        """
        kind: str | None = self.facts(task).get("kind")
        self.type_of(task)
        if kind is None or is_known(kind):
            return None
        return kind

    def cells(self, task: str, logits: Logits, *, probabilities: bool) -> Cells:
        """Return the columns that logits [E, C] add to rows, as `TaskType.cells` has them."""
        task_type = self.type_of(task)
        names = self._names(task)
        return task_type.cells(logits, names, probabilities=probabilities)

    def _names(self, task: str) -> tuple[str, ...]:
        """Return what each output of a task is called."""
        config = self._configs[task]
        numbers = range(config.num_labels)
        return tuple(config.id2label[number] for number in numbers)

    @checked("texts")
    def predict(
        self,
        texts: Texts,
        tasks: Sequence[str] | None = None,
    ) -> dict[str, Prediction]:
        """Return the answers to these texts, or pairs of texts, by task; to all tasks by default.

        The shared layers run once, as deep as the tasks need; each goes on from its own depth.
        Raises UnknownNameError, and DataError for what are no texts, or no pairs where a task reads
        pairs.
        """
        names = self._known(tasks)
        split = split_texts(texts)
        if len(split):
            self._check_width(names, len(split.texts))
        return self._answers(split, names)

    def predict_either(
        self,
        texts: Texts,
        tasks: Sequence[str] | None = None,
    ) -> dict[str, Prediction]:
        """Return the same for a model that reads a text and is given pairs, or the other way round.

        Its answers mean nothing, but what computes them can be compared and timed.
        """
        names = self._known(tasks)
        return self._answers(split_texts(texts), names)

    def texts_read(self, task: str) -> int | None:
        """Return how many texts of a row a task reads, 1 or 2; None of an export that is older."""
        columns: Sequence[str] | None = self.facts(task).get("text_columns")
        if columns is None:
            return None
        return len(columns)

    def _known(self, tasks: Sequence[str] | None) -> tuple[str, ...]:
        """Return the tasks asked for, by default all. Raises UnknownNameError."""
        if tasks is None:
            return self.tasks
        names = tuple(tasks)
        for name in names:
            if name not in self._branches:
                raise UnknownNameError.among("task", name, self.tasks)
        return names

    def _check_width(self, names: Iterable[str], width: int) -> None:
        """Raise DataError unless each task reads so many texts of a row."""
        kinds = {1: "a text", 2: "a pair of texts"}
        for name in names:
            reads = self.texts_read(name)
            if reads in (None, width):
                continue
            raise DataError(
                f"each row is {kinds[width]}, but '{name}' reads {kinds[reads]}; ask tasks that "
                "read pairs apart from those that do not, by `tasks`"
            )

    @plain_torch()
    def _answers(self, split: Split, names: Sequence[str]) -> dict[str, Prediction]:
        logits_of: dict[str, Logits] = {}
        for name in names:
            shape = (len(split), self._configs[name].num_labels)
            logits_of[name] = np.zeros(shape, np.float32)
        full_lengths = np.zeros(len(split), np.int64)
        if names and len(split):
            with self._turn, torch.inference_mode():
                full_lengths = self._fill(split, logits_of)
        predictions = {}
        for name, logits in logits_of.items():
            is_cut = full_lengths > self.facts(name)["max_length"]
            predictions[name] = self._prediction(name, logits, is_cut)
        return predictions

    def _prediction(self, task: str, logits: Logits, is_cut: NDArray[np.bool_]) -> Prediction:
        task_type = self.type_of(task)
        names = self._names(task)
        labels, scores = task_type.answers(torch.from_numpy(logits), names)
        return Prediction(tuple(labels), scores.numpy(), logits, is_cut)

    def _fill(self, split: Split, logits_of: Mapping[str, Logits]) -> IndexArray:
        """Compute the logits of all rows in place; returns the rows' tokens without a limit.

        logits_of: by task.
        """
        most_tokens = [self.facts(name)["max_length"] for name in logits_of]
        rows = tokenised(split, max(most_tokens), self._tokenizer)
        longest = int(rows.lengths.max())
        # Only where a text is cut do tasks with another limit read other tokens.
        tasks_by_limit: dict[int, dict[str, Logits]] = {}
        for name, logits in logits_of.items():
            limit = min(self.facts(name)["max_length"], longest)
            tasks_by_limit.setdefault(limit, {})[name] = logits
        for limit, tasks in tasks_by_limit.items():
            if limit < longest:
                cut = tokenised(split, limit, self._tokenizer)
                self._run(cut, tasks)
            else:
                self._run(rows, tasks)
        return rows.full_lengths

    def _run(self, rows: TokenRows, logits_of: Mapping[str, Logits]) -> None:
        order = np.argsort(rows.lengths, kind="stable")
        rows = rows.take(order)
        begins = {}
        for name in logits_of:
            if name in self._begins:
                begins[name] = self._begins[name]
        wanted = set(begins.values())
        for chunk in passes(rows):
            batch: Any = self._prefix.batch(rows, chunk)
            first_token = int(rows.offsets[chunk[0]])
            places = batch.places - first_token
            behind: dict[int, Tensor] = {}
            if wanted:
                behind = dict(self._prefix.behind(rows, chunk, wanted))
            for name, logits in logits_of.items():
                given = None
                if name in begins:
                    hidden = behind[begins[name]]
                    given = hidden[places]
                branch = self._branches[name]
                numbers = order[batch.rows]
                logits[numbers] = branch(batch, given)


@checked()
@plain_torch()
def load_bundle(folder: str | Path) -> Bundle:
    """Load a folder that `elsa-tune bundle` wrote, on the CPU. Raises ModelError."""
    path = expanded(folder)
    fault = why_no_folder(path)
    if fault is not None:
        raise ModelError(f"{fault}; `elsa-tune bundle` writes one")
    members = read_members(path)
    with explained(f"{folder} cannot be read as a bundle"):
        is_packed = read_about(path)["runs"] == "packed"
        return Bundle(members, is_packed)
