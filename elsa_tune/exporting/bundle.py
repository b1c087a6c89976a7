"""Puts exported models of one base into one folder: checked, written, compared, measured."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from elsa_tune.errors import ModelError, UnknownNameError, UsageError
from elsa_tune.exporting.folder import aside, check_out, writing_alone
from elsa_tune.files import expanded, why_no_folder
from elsa_tune.searching.output import say
from elsa_tune.specs.arguments import checked
from elsa_tune.tracking.mlflow.models import write_pyfunc
from elsa_tune.training.bundle.fastest import UnlikeError, fastest
from elsa_tune.training.bundle.members import (
    ABOUT,
    Member,
    Members,
    check_name,
    deepest,
    read_members,
    write_members,
)
from elsa_tune.training.bundle.texts import Text, Texts
from elsa_tune.training.bundle.together import Bundle, Prediction, load_bundle
from elsa_tune.training.data.batches import Tensors
from elsa_tune.training.data.preparation import tokenizer_identity
from elsa_tune.training.machine import plain_torch
from elsa_tune.training.saved import digest
from elsa_tune.words import listed, part_text

ROWS = 64  # that are compared, half of them pairs of texts
BATCHES = (1, 32)
REPEATS = 3  # of which the fastest counts
_COLUMNS = ("text", "text_pair")  # of the rows that MLflow asks with


@checked()
@plain_torch()
def bundle(
    models: Sequence[str | Path],
    out: str | Path | None = None,
    *,
    remove: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Write exported models as one folder, which `load_bundle` and MLflow load.

    models: their folders, each a task of that name; or bundles, of which each task is one. out: by
    default the first of `models`, if that is a bundle, which is then changed in place. remove:
    tasks to leave out. Returns the folder. Raises UsageErrors; then nothing is written.
    """
    folders = [expanded(model) for model in models]
    target, is_changed = _target(folders, out)
    may_replace = overwrite or is_changed
    check_out(target, "bundle", ABOUT, overwrite=may_replace)
    with writing_alone(target, "a bundle"):
        _write(target, folders, remove, may_replace=may_replace)
    return target


def _write(
    target: Path, folders: Sequence[Path], remove: Sequence[str], *, may_replace: bool
) -> None:
    """Read the models, bundle them in the target, and say what that costs."""
    members = _members(folders, remove)
    _check(members)
    facts = deepest(members).facts
    about: dict[str, Any] = {
        "base": facts["base"],
        "revision": facts["revision"],
    }
    replaced = ABOUT if may_replace else None
    with aside(target, "the bundle", replaced) as folder:
        about["tasks"] = write_members(folder, members)
        (folder / ABOUT).write_text(json.dumps(about))
        runs, differences = _compared(folder, members)
        about["runs"] = runs.how
        about["largest_difference"] = differences
        measured = _measured(folder, members, runs)
        about["measured"] = measured
        text = json.dumps(about, indent=2, allow_nan=False)
        (folder / ABOUT).write_text(text + "\n")
        write_pyfunc(folder, __name__, runs.tasks)
    for name, off in differences.items():
        member = members[name]
        layers = member.model.config.num_hidden_layers
        own = part_text(member.candidate, layers)
        say(f"{name}: {own} of its own; logits differ by {off:.1e} from the model's alone")
    for how, cost in measured["cost"].items():
        line = _cost_text(cost)
        say(f"{how}: {line}")


def _target(models: Sequence[Path], out: str | Path | None) -> tuple[Path, bool]:
    """Return the folder to write, and whether that is a bundle which is changed in place."""
    if out is not None:
        return expanded(out), False
    if models:
        first = models[0]
        if os.path.isfile(first / ABOUT):  # no error either where no folder has such a name
            return first, True
    raise UsageError("name the folder to create with `out`")


def _cost_text(cost: Mapping[str, Any]) -> str:
    """Write `2.10 ms a text, 0.50 ms with 32 at once, 91.2 MB`."""
    milliseconds = cost["milliseconds"]
    single, many = BATCHES
    alone = milliseconds[str(single)]
    at_once = milliseconds[str(many)]
    megabytes = cost["megabytes"]
    return f"{alone:.2f} ms a text, {at_once:.2f} ms with {many} at once, {megabytes:.1f} MB"


def _members(folders: Sequence[Path], remove: Sequence[str]) -> Members:
    """Read every task's model. remove: the first of that name, so that another can be added."""
    members: Members = {}
    to_remove = set(remove)
    for folder in folders:
        for name, member in _read(folder).items():
            if name in to_remove:
                to_remove.remove(name)
                continue
            if name in members:
                raise UsageError(f"two models are called '{name}', as their folders: rename one")
            members[name] = member
    for name in to_remove:
        raise UnknownNameError.among("task", name, members)
    for name in members:
        for added in (f"{name}_score", f"{name}_prediction", f"{name}_confidence"):
            if added in members:
                raise UsageError(
                    f"a task '{added}' beside '{name}' would be called as what '{name}' answers; "
                    "rename its folder"
                )
    return members


def _read(folder: Path) -> Members:
    """Read the models of a folder by their names, which must do for tasks."""
    fault = why_no_folder(folder)
    if fault is not None:
        raise UsageError(f"{fault}; `elsa-tune export` writes one")
    members = read_members(folder)
    for name in members:
        try:
            check_name(name)
        except ValueError as error:
            raise ModelError(f"{error}; rename the folder {folder}") from error
    return members


def _check(members: Members) -> None:
    """Raise UsageError unless two share frozen layers, ModelError unless those are the same."""
    sharing = sum(member.has_prefix for member in members.values())
    if sharing < 2:
        raise UsageError(
            f"a bundle needs two models with frozen layers, or nothing is shared (here: "
            f"{listed(members) or 'no model'}); transformers loads an exported model as it is"
        )
    base = deepest(members)
    [base_name] = [name for name, member in members.items() if member is base]
    tokenizer = tokenizer_identity(base.tokenizer)
    for name, member in members.items():
        if tokenizer_identity(member.tokenizer) != tokenizer:
            raise ModelError(
                f"models of a bundle have the same tokenizer: that of '{name}' is not that of "
                f"'{base_name}'"
            )
        frozen = member.frozen()
        if digest(frozen) != member.facts["prefix_sha256"]:
            raise ModelError(
                f"the frozen layers of '{name}' are not those that it was exported with, by the "
                "hash in its config.json: export it again"
            )
        # By their values: one base may be called by a short name, an id of the hub and a path.
        if not _is_part(frozen, base.frozen()):
            raise ModelError(
                f"the frozen layers of '{name}', of {member.facts['base']}, are not those of "
                f"'{base_name}', of {base.facts['base']}: models of a bundle have the same base; "
                "if its weights changed between the exports, export them again"
            )


def _is_part(weights: Tensors, of: Tensors) -> bool:
    """Whether all of these weights are among others, with the same values."""
    for name, weight in weights.items():
        if name not in of:
            return False
        if not torch.equal(weight, of[name]):
            return False
    return True


def _texts(member: Member, count: int) -> list[str]:
    """Make texts of the vocabulary, the same each time, of 2 tokens to more than a model reads."""
    tokenizer = member.tokenizer
    special = set(tokenizer.all_special_ids)
    words = [token for token in range(len(tokenizer)) if token not in special]
    draw = np.random.default_rng(0)
    longest = 1.2 * member.facts["max_length"]
    lengths = np.geomspace(2, longest, count)
    texts = []
    for length in draw.permutation(lengths):
        tokens = draw.choice(words, int(length))
        text = tokenizer.decode(tokens)
        texts.append(text)
    return texts


def _compared(folder: Path, members: Members) -> tuple[Bundle, dict[str, float]]:
    """Return the written bundle as it runs fastest, and by task its largest difference.

    Raises ModelError where it does not compute what each model alone does.
    """
    texts = _texts(deepest(members), 3 * ROWS // 2)
    half = ROWS // 2
    singles = texts[:half]
    first_texts = texts[half:-half]
    second_texts = texts[-half:]
    pairs = list(zip(first_texts, second_texts, strict=True))
    parts: list[Texts] = [singles, pairs]
    try:
        return fastest(members, partial(read_members, folder), parts)
    except UnlikeError as error:
        raise ModelError(
            f"these models cannot be bundled: together they would not compute what each computes "
            f"alone ({error})"
        ) from error


def _measured(folder: Path, members: Members, runs: Bundle) -> dict[str, Any]:
    """Measure megabytes, and milliseconds a text by size of batch: alone in a row, and bundled."""
    texts = _texts(deepest(members), max(BATCHES))
    of_weights = 0
    for member in members.values():
        for tensor in member.model.state_dict().values():
            of_weights += tensor.nbytes
    of_files = 0
    for file in folder.rglob("*.safetensors"):
        of_files += file.stat().st_size
    calls: dict[str, list[Sequence[str]]] = {
        "alone": [[name] for name in members],
        "bundled": [runs.tasks],
    }
    cost: dict[str, dict[str, Any]] = {
        "alone": {"milliseconds": {}, "megabytes": of_weights / 1e6},
        "bundled": {"milliseconds": {}, "megabytes": of_files / 1e6},
    }
    for size in BATCHES:
        for how, milliseconds in _in_turns(runs, texts, size, calls).items():
            cost[how]["milliseconds"][str(size)] = milliseconds
    versions = {}
    for name in ("torch", "transformers"):
        versions[name] = metadata.version(name)
    return {
        "rows": ROWS,
        "cost": cost,
        "versions": versions,
        "threads": torch.get_num_threads(),
        "date": time.strftime("%Y-%m-%d"),
    }


def _in_turns(
    runs: Bundle,
    texts: Texts,
    size: int,
    calls: Mapping[str, Sequence[Sequence[str]]],
) -> dict[str, float]:
    """Return the milliseconds that a text takes in batches of `size`, of each way to ask.

    calls: for each, the groups of tasks that are asked for one after the other. All take turns, so
    that a slow spell of the machine hits them alike.
    """
    seconds: dict[str, list[float]] = {how: [] for how in calls}
    for _ in range(REPEATS):
        sums = dict.fromkeys(calls, 0.0)
        for start in range(0, len(texts), size):
            batch = texts[start : start + size]
            for how, groups in calls.items():
                begun = time.perf_counter()
                for tasks in groups:
                    runs.predict_either(batch, tasks)
                sums[how] += time.perf_counter() - begun
        for how, spent in sums.items():
            seconds[how].append(spent)
    return {how: 1000 * min(spent) / len(texts) for how, spent in seconds.items()}


class _Answering:
    """A bundle as MLflow asks a model."""

    def __init__(self, folder: str) -> None:
        self._bundle = load_bundle(folder)

    def predict(self, rows: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return a DataFrame with each task's label and then each one's score, in their order.

        rows: a DataFrame with `text` and, for tasks that read pairs, `text_pair`. params: `tasks`,
        those asked.
        """
        tasks = self._bundle.tasks
        if params:
            tasks = tuple(str(name) for name in params["tasks"])
        predictions: dict[str, Prediction] = {}
        for columns, names in self._by_columns(tasks, rows).items():
            texts: list[Text] = list(rows[columns[0]])
            if len(columns) > 1:
                texts = list(zip(*(rows[column] for column in columns), strict=True))
            predictions |= self._bundle.predict(texts, names)
        added: dict[str, Any] = {}
        for name in tasks:
            added[name] = predictions[name].labels
        for name in tasks:
            added[f"{name}_score"] = predictions[name].scores.astype(float)
        return rows[[]].assign(**added)

    def _by_columns(self, tasks: Sequence[str], rows: Any) -> dict[tuple[str, ...], list[str]]:
        """Return the tasks that read the same of these columns, which are answered at once."""
        given = tuple(name for name in _COLUMNS if name in rows)
        groups: dict[tuple[str, ...], list[str]] = {}
        for name in tasks:
            count = len(given)
            if name in self._bundle.tasks:
                count = self._bundle.texts_read(name) or count
            groups.setdefault(given[:count], []).append(name)
        return groups


_load_pyfunc = _Answering  # MLflow calls this name with the folder
