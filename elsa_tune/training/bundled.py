"""Several exported models as one: the frozen layers that they share run once for all of them.

Shapes: E texts, C outputs of a task.
"""

import json
import math
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedModel

from elsa_tune.errors import DataError, ModelError, UnknownNameError, first_line, quoted
from elsa_tune.files import PLAIN_NAME
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import recorded_candidate
from elsa_tune.specs.arguments import checked
from elsa_tune.tasks.table_file import check_characters
from elsa_tune.tasks.types.base import Logits, TaskType
from elsa_tune.tasks.types.registry import type_of_export
from elsa_tune.training.adapt import methods
from elsa_tune.training.adapt.trainable import Trainable, frozen_prefix
from elsa_tune.training.data.preparation import tokenised
from elsa_tune.training.data.tokens import Split, Tensors, TokenRows
from elsa_tune.training.forward.equality import twin
from elsa_tune.training.forward.packed_model import PackedModel
from elsa_tune.training.forward.padded_model import PaddedModel
from elsa_tune.training.forward.runner import passes
from elsa_tune.training.model.encoder import LOCAL, explained, plain_configuration
from elsa_tune.training.model.model_files import check_tokenizer

ABOUT = "bundle.json"
PREFIX = "prefix.safetensors"
BRANCHES = "branches"

# Of a logit beside the model alone; where logits are larger than 1, a share of the largest.
LIMIT = 1e-5
COMPARED = 8  # of the texts that models are to answer

Text = str | tuple[str, str]
Texts = Sequence[Text]
Cells = dict[str, NDArray[Any]]  # of each column, by name
Facts = dict[str, Any]  # what a configuration or a bundle's ABOUT says


@dataclass(frozen=True, slots=True)
class Member:
    """One task's complete model, in evaluation mode, with its tokenizer."""

    model: PreTrainedModel  # with its head
    tokenizer: Any  # as transformers loads it
    # What was trained of it: found once, for a bundle takes the model apart.
    trainable: Trainable = field(init=False)

    def __post_init__(self) -> None:
        trainable = methods.trained_of(self.model, self.candidate)
        object.__setattr__(self, "trainable", trainable)

    @property
    def facts(self) -> Facts:
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

    def frozen(self) -> Tensors:
        """Return the tensors of its frozen prefix, by name."""
        names = frozen_prefix(self.model, self.trainable)
        tensors: Tensors = {}
        for name, parameter in self.model.named_parameters():
            if name in names:
                tensors[name] = parameter.detach()
        return tensors


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
    tokenizer.save_pretrained(folder)
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


@dataclass(frozen=True, slots=True, eq=False)
class Prediction:
    """One task's answers to E texts, as transformers' pipeline gives them."""

    labels: tuple[str, ...]  # [E], as the type of task has them; of a regression its value's name
    scores: NDArray[np.float32]  # [E], the label's probability, or the value
    logits: Logits  # [E, C]

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

    def _answers(self, split: Split, names: Sequence[str]) -> dict[str, Prediction]:
        logits_of: dict[str, Logits] = {}
        for name in names:
            shape = (len(split), self._configs[name].num_labels)
            logits_of[name] = np.zeros(shape, np.float32)
        if names and len(split):
            with self._turn, torch.inference_mode():
                self._fill(split, logits_of)
        predictions = {}
        for name, logits in logits_of.items():
            predictions[name] = self._prediction(name, logits)
        return predictions

    def _prediction(self, task: str, logits: Logits) -> Prediction:
        task_type = self.type_of(task)
        names = self._names(task)
        labels, scores = task_type.answers(torch.from_numpy(logits), names)
        return Prediction(tuple(labels), scores.numpy(), logits)

    def _fill(self, split: Split, logits_of: Mapping[str, Logits]) -> None:
        """Compute the logits of all rows in place. logits_of: by task."""
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


def twins(members: Members) -> Members:
    """Return the same around the same weights, to be taken apart while the given ones stay."""
    copies: Members = {}
    for name, member in members.items():
        model = twin(member.model)
        copies[name] = Member(model, member.tokenizer)
    return copies


class UnlikeError(Exception):
    """Says why models together do not compute what each computes alone."""


def fastest(
    members: Members,
    read: Callable[[], Members],
    parts: Sequence[Texts],
) -> tuple[Bundle, dict[str, float]]:
    """Return models together as they run fastest, and by task how far they are from each alone.

    members: each computes alone what is expected, and stays as it is. read: gives the models that
    are put together. parts: texts to compare, each part of single texts or of pairs. Raises
    UnlikeError where neither packed tokens nor padded batches keep every logit within LIMIT.
    """
    expected: dict[str, Logits] = {}
    for name, member in members.items():
        logits = [alone(member, part) for part in parts]
        expected[name] = np.concatenate(logits)
    doubts: list[str] = []
    for packed in (True, False):
        try:
            runs = Bundle(read(), packed)
            differences = _differences(runs, parts, expected)
        except Exception as error:  # an architecture may break in any way when taken apart
            doubts.append(first_line(error))
            continue
        largest = np.max(list(differences.values()))
        if largest <= LIMIT:  # which NaN is not
            return runs, differences
        doubts.append(f"logits differ by {largest:.2g}")
    on_packed, on_padded = doubts
    raise UnlikeError(f"on packed tokens, {on_packed}; on padded batches, {on_padded}")


def fastest_alone(name: str, member: Member, texts: Texts) -> Bundle:
    """Return a model without others as it runs fastest.

    That is on packed tokens, if these give what transformers' own code does, else by that code, on
    padded batches. texts: of which a few are compared.
    """
    members = {name: member}
    some = few_of(texts)
    try:
        runs, _ = fastest(members, partial(twins, members), [some])
    except UnlikeError:
        return Bundle(members, packed=False)
    return runs


def few_of(texts: Texts) -> Texts:
    """Return at most COMPARED of some texts, from the shortest to the longest."""
    by_length = sorted(texts, key=_length)
    count = min(COMPARED, len(texts))
    last = len(texts) - 1
    places = np.linspace(0, last, count).round()
    return [by_length[int(place)] for place in places]


def _length(text: Text) -> int:
    if isinstance(text, str):
        return len(text)
    return sum(len(part) for part in text)


def _differences(
    runs: Bundle,
    parts: Sequence[Texts],
    expected: Mapping[str, Logits],
) -> dict[str, float]:
    """Return, by task, how far a bundle's logits are from those of each model alone."""
    predictions = [runs.predict_either(part) for part in parts]
    differences = {}
    for name, of_task in expected.items():
        logits = [prediction[name].logits for prediction in predictions]
        together = np.concatenate(logits)
        differences[name] = _relative_difference(of_task, together)
    return differences


def _relative_difference(expected: Logits, computed: Logits) -> float:
    """Return the largest difference of logits [E, C], where they exceed 1 as a share of that."""
    differences = np.abs(expected - computed)
    largest = float(np.abs(expected).max())
    scale = max(1.0, largest)
    return float(differences.max()) / scale


@checked()
def load_bundle(folder: str | Path) -> Bundle:
    """Load a folder that `elsa-tune bundle` wrote, on the CPU. Raises ModelError."""
    path = Path(folder)
    if not path.is_dir():
        raise ModelError(f"there is no folder {folder}; `elsa-tune bundle` writes one")
    members = read_members(path)
    with explained(f"{folder} cannot be read as a bundle"):
        is_packed = read_about(path)["runs"] == "packed"
        return Bundle(members, is_packed)


def split_texts(texts: Texts, missing: str | None = None) -> Split:
    """Return texts, or pairs of texts, as columns.

    missing: what stands for a text that is missing. Raises DataError for what are no texts, and
    unless `missing` is given for one that is missing.
    """
    no_list = "give a list of texts, or a list of pairs of texts"
    # Of a mapping the keys would be taken for texts.
    if isinstance(texts, str | Mapping) or not isinstance(texts, Iterable):
        raise DataError(no_list)
    rows = []
    widths = set()
    for row in texts:
        cells: Any = row
        if isinstance(row, str) or _is_missing(row):
            cells = (row,)
        if not isinstance(cells, tuple | list):
            raise DataError(no_list)
        rows.append([missing if _is_missing(cell) else cell for cell in cells])
        widths.add(len(cells))
    is_table = widths in (set(), {1}, {2})
    if not is_table:
        raise DataError(no_list)
    for number, cells in enumerate(rows, start=1):
        if not all(isinstance(cell, str) for cell in cells):
            raise DataError("each text must be a string: one of them is missing, or something else")
        for cell in cells:
            check_characters(cell, f"row {number} of the texts")
    columns: list[list[str]] = [[]]
    if rows:
        columns = [list(column) for column in zip(*rows, strict=True)]
    return Split(
        where="the texts",
        texts=tuple(columns),
        labels=np.zeros(len(rows)),
    )


def _is_missing(cell: object) -> bool:
    """Whether a cell is None, NaN or pandas' NA."""
    if isinstance(cell, float):
        return math.isnan(cell)
    return cell is None or type(cell).__name__ == "NAType"
