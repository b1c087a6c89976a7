"""A task made ready for a model: texts read, the subset taken, tokenised.

E is the number of rows of a split.
"""

import hashlib
import itertools
import json
import os
from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.errors import DataError, quoted
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.row_findings import RowFinding
from elsa_tune.specs.task import Cleaning, DataSetSource, FilesSource, TaskSpec
from elsa_tune.specs.trial import Recipe
from elsa_tune.tasks.types.registry import type_of
from elsa_tune.tasks.types.scores import chance
from elsa_tune.training.data.cut_texts import cut_texts, full_lengths
from elsa_tune.training.data.keys import utf8
from elsa_tune.training.data.row_checks import (
    cleaned,
    gravest_first,
    row_findings,
    units_of,
    without_leaked,
)
from elsa_tune.training.data.subsets import (
    EVALUATION,
    SELECTION,
    held_out_units,
    order_of_groups,
    permutation,
    stratified_order,
)
from elsa_tune.training.data.texts import check_variety, read_texts
from elsa_tune.training.data.tokens import HOLDOUT, Split, Splits, TaskData, TokenRows

CHUNK = 1000  # texts handed to the tokenizer at once
SAMPLE = 2000  # rows of a split that are tokenised for a plan, at most


def prepare(model: ModelSpec, task: TaskSpec, recipe: Recipe) -> TaskData:
    """Read the task, take the recipe's subset, tokenise it for the model.

    Raises DataError as `read_texts` does, and for a train_size above the rows or below a holdout.
    """
    splits = read_splits(task, recipe)
    evaluation = splits["evaluation"]
    tokenizer = _tokenizer_of(model)
    rows: dict[str, TokenRows] = {}
    notes: dict[str, None] = {}  # each once, in order
    for name, split in splits.items():
        rows[name] = tokenised(split, recipe.max_length, tokenizer)
        notes.update(dict.fromkeys(split.notes))
    cut = cut_texts(rows, recipe.max_length, model)
    findings = gravest_first([*row_findings(task, splits), *cut])
    return TaskData(
        train=rows.pop("train"),
        evaluation=rows.pop("evaluation"),
        holdout=rows.pop(HOLDOUT, None),
        companions=rows,
        pad_token_id=int(tokenizer.pad_token_id or 0),
        padding_side=tokenizer.padding_side,
        pad_token_type_id=int(tokenizer.pad_token_type_id),
        fingerprint=_fingerprint(task, splits, recipe, tokenizer),
        chance=chance(task.metric, evaluation.labels, task.class_count),
        units=units_of(evaluation),
        notes=tuple(notes),
        findings=findings,
    )


def fingerprint_of(model: ModelSpec, task: TaskSpec, recipe: Recipe) -> str:
    """Return the fingerprint that `prepare` gives the data, without tokenising them.

    Raises DataError as `prepare` does, ModelError without a tokenizer.
    """
    splits = read_splits(task, recipe)
    return _fingerprint(task, splits, recipe, _tokenizer_of(model))


def planned_findings(
    model: ModelSpec | None,
    task: TaskSpec,
    recipe: Recipe,
    splits: Splits,
) -> tuple[RowFinding, ...]:
    """Return the findings of `prepare`, those about cut texts from at most SAMPLE rows of a split.

    model: None to look at no lengths.
    """
    findings = row_findings(task, splits)
    if model is None:
        return findings
    tokenizer = _tokenizer_of(model)
    rows: dict[str, TokenRows] = {}
    is_sampled = False
    for name, split in splits.items():
        looked_at = split
        if len(split) > SAMPLE:
            is_sampled = True
            chosen = np.linspace(0, len(split) - 1, SAMPLE).astype(np.int64)
            looked_at = split.part(chosen, what="a sample")
        rows[name] = tokenised(looked_at, recipe.max_length, tokenizer)
    cut = cut_texts(rows, recipe.max_length, model, is_sampled=is_sampled)
    return gravest_first([*findings, *cut])


def _tokenizer_of(model: ModelSpec) -> Any:
    # Before the tokenizer's first use: its threads would fight with the trials for the cores, and a
    # process forked after them would be told so at length.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from elsa_tune.training.model.encoder import load_tokenizer

    return load_tokenizer(model)


def read_splits(task: TaskSpec, recipe: Recipe) -> Splits:
    """Read by name: train (the recipe's subset), evaluation, holdout if any, and the companions.

    Raises DataError as `prepare` does.
    """
    splits = cleaned(task, read_texts(task))
    if "evaluation" not in splits:
        splits |= _with_evaluation(task, splits["train"], recipe.subset_seed)
        splits = without_leaked(task, splits)
    splits |= _in_use(task, splits["train"], recipe)
    for split in splits.values():
        check_variety(task, split)
    return splits


def size_in_use(task: TaskSpec, recipe: Recipe, rows: int) -> int:
    """Return how many training rows the recipe takes, its holdout included. Raises DataError."""
    size = rows if recipe.train_size is None else recipe.train_size
    if size > rows:
        raise DataError(
            f"train_size is {size:,}, but task '{task.name}' has {rows:,} training rows; "
            f"give at most {rows:,}, or leave it out to use all of them"
        )
    return size


def _with_evaluation(task: TaskSpec, every: Split, seed: int) -> Splits:
    """Return the rows as `train` and the share of them that is held out as `evaluation`."""
    source = task.source
    assert isinstance(source, FilesSource | DataSetSource)
    share = source.evaluation_share
    assert share is not None
    rows = len(every)
    strata = type_of(task.kind).strata(every.labels)
    if every.groups is None:
        order = stratified_order(strata, seed, EVALUATION)
        held_out = round(rows * share)
        by = "stratified"
    else:
        order, held_out = order_of_groups(task, every.groups, strata, share, seed)
        by = f"by {task.group_column}, stratified"
    left = rows - held_out
    lacking = "file" if isinstance(source, FilesSource) else "split with labels"
    note = (
        f"no evaluation {lacking}: {held_out:,} of {rows:,} rows ({share:g}, {by}, subset_seed "
        f"{seed}) are held out"
    )
    evaluation = every.part(
        order[:held_out],
        what=f"the held-out share of {share:g} ({held_out} rows)",
    )
    train = every.part(
        order[held_out:],
        what=f"the remaining share ({left} rows)",
        notes=(*every.notes, note),
    )
    return {"train": replace(train, lost=every.lost), "evaluation": evaluation}


def _in_use(task: TaskSpec, train: Split, recipe: Recipe) -> Splits:
    """Return the recipe's subset of the training rows: `train`, and a `holdout` if it has one."""
    share = recipe.holdout
    if recipe.train_size is None and share is None:
        return {"train": train}
    size = size_in_use(task, recipe, len(train))
    task_type = type_of(task.kind)
    strata = task_type.strata(train.labels)
    order = stratified_order(strata, recipe.subset_seed)
    chosen = order[:size]
    if share is None:
        what = f"the subset of {size} rows (train_size)"
        subset = train.part(chosen, what, train.notes)
        return {"train": replace(subset, lost=train.lost)}
    places_of_bins = None
    if task_type.bins is not None:
        places_of_bins = permutation(task_type.bins, recipe.subset_seed, SELECTION)
    # Rows of one unit on both sides would choose the rate that remembers best.
    units = units_of(train)
    if units is None:
        units = np.arange(len(train), dtype=np.int32)
    is_held_out = held_out_units(units[chosen], strata[chosen], share, places_of_bins)
    holdout = train.part(chosen[is_held_out], "the holdout")
    count = len(holdout)
    by = "stratified"
    if task.group_column is not None:
        by = f"by {task.group_column}, stratified"
    note = (
        f"selection holdout: {count:,} of {size:,} training rows ({share:g}, {by}, "
        f"subset_seed {recipe.subset_seed}) are not trained on; they choose learning rate and "
        "evaluation"
    )
    subset = train.part(
        chosen[~is_held_out],
        what=f"the remainder beside the holdout ({size - count} rows)",
        notes=(*train.notes, note),
    )
    _check_classes(task, subset, holdout, share)
    return {"train": replace(subset, lost=train.lost), HOLDOUT: holdout}


def _check_classes(task: TaskSpec, subset: Split, holdout: Split, share: float) -> None:
    """Raise DataError unless every class of the rows in use is trained on and held out."""
    size = len(subset) + len(holdout)
    count = type_of(task.kind).class_counts
    trained = count(subset.labels, task.class_count)
    held_out = count(holdout.labels, task.class_count)
    if trained is None or held_out is None:
        return
    is_trained = trained > 0
    is_held_out = held_out > 0
    is_on_one_side = is_trained != is_held_out
    for number in np.flatnonzero(is_on_one_side):
        name = task.classes[number]
        rows = int(trained[number] + held_out[number])
        lacks = "leaves none to train on" if held_out[number] else "has none"
        remedy = "give a larger train_size or holdout"
        if task.group_column is not None:
            remedy += f", or rows of more groups ({task.group_column})"
        raise DataError(
            f"task '{task.name}': a holdout of {share:g} of {size:,} training rows {lacks} of "
            f"class '{name}', of which there are {rows}; {remedy}"
        )


def tokenised(split: Split, max_length: int, tokenizer: Any) -> TokenRows:
    """Tokenise the rows of a split, at least one, cut to `max_length` tokens.

    Raises DataError for a row without a token, which no model can read.
    """
    with_types = "token_type_ids" in tokenizer.model_input_names
    ids: list[NDArray[np.int32]] = []
    types: list[NDArray[np.int8]] = []
    lengths: list[int] = []
    full: list[int] = []  # the lengths without a limit
    for start in range(0, len(split), CHUNK):
        columns = [column[start : start + CHUNK] for column in split.texts]
        encoded = tokenizer(
            *columns,
            truncation="longest_first",
            max_length=max_length,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=with_types,
        )
        rows = encoded["input_ids"]
        lengths += map(len, rows)
        full += full_lengths(tokenizer, columns, encoded, max_length)
        ids.append(_flat(rows, np.int32))
        if with_types:
            types_of_rows = encoded["token_type_ids"]
            types.append(_flat(types_of_rows, np.int8))
    if 0 in lengths:
        row = lengths.index(0)
        texts = quoted([column[row] for column in split.texts])
        raise DataError(
            f"the tokenizer makes no token of {texts}, and adds none of its own; leave such rows "
            "out, or give the tokenizer special tokens"
        )
    token_type_ids = None
    if with_types:
        token_type_ids = np.concatenate(types)
    uncut = None
    if full != lengths:
        uncut = np.array(full, dtype=np.int64)
    return TokenRows(
        input_ids=np.concatenate(ids),
        offsets=np.cumsum([0, *lengths], dtype=np.int64),
        token_type_ids=token_type_ids,
        labels=split.labels,
        uncut=uncut,
    )


def _flat(rows: list[list[int]], kind: type[Any]) -> NDArray[Any]:
    numbers = itertools.chain.from_iterable(rows)
    return np.fromiter(numbers, dtype=kind)


def _fingerprint(
    task: TaskSpec,
    splits: Splits,
    recipe: Recipe,
    tokenizer: Any,
) -> str:
    """Return sha256 of what decides the tokens and labels of all splits."""
    settings: list[Any] = [
        recipe.train_size,
        recipe.subset_seed,
        recipe.max_length,
        tokenizer_identity(tokenizer),
    ]
    if task.cleaning != Cleaning():
        # Merged classes may leave every id as it was.
        cleaning = asdict(task.cleaning)
        settings.append([cleaning, task.classes])
    if task.group_column is not None:
        settings.append({"group": task.group_column})
    digest = hashlib.sha256()
    digest.update(_json_bytes(settings))
    for name, split in splits.items():
        shape = [name, len(split), len(split.texts)]
        digest.update(_json_bytes(shape))
        for column in split.texts:
            # The lengths keep ("ab", "c") and ("a", "bc") apart.
            lengths = np.fromiter(map(len, column), dtype="<i8")
            digest.update(lengths.tobytes())
            # Not joined: one rare character would make that four bytes for each of all.
            for text in column:
                digest.update(utf8(text))
        labels = np.ascontiguousarray(split.labels)
        digest.update(labels.tobytes())
    if task.group_column is not None:
        units = units_of(splits["evaluation"])
        if units is not None:
            digest.update(units.tobytes())
    return digest.hexdigest()


def _json_bytes(values: list[Any]) -> bytes:
    return json.dumps(values).encode()


def tokenizer_identity(tokenizer: Any) -> str:
    """Return sha256 of everything that decides how a tokenizer splits texts, wherever it lies."""
    special_tokens: dict[str, str] = {}
    for name, token in tokenizer.special_tokens_map.items():
        special_tokens[name] = str(token)
    properties = {
        "class": type(tokenizer).__name__,
        "special": special_tokens,
        "padding_side": tokenizer.padding_side,
        "inputs": list(tokenizer.model_input_names),
    }
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        vocabulary = sorted(tokenizer.get_vocab().items())
        rules = json.dumps(vocabulary)
    else:
        # What the last caller wanted, not what the tokenizer is; every call sets them anew.
        backend.no_truncation()
        backend.no_padding()
        rules = backend.to_str()
    digest = hashlib.sha256()
    digest.update(json.dumps(properties, sort_keys=True).encode())
    digest.update(utf8(rules))
    return digest.hexdigest()
