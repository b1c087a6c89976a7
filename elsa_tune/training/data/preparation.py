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

from elsa_tune.errors import DataError
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.task import Cleaning, DataSetSource, FilesSource, TaskSpec
from elsa_tune.specs.trial import Recipe
from elsa_tune.tasks.types.registry import type_of
from elsa_tune.tasks.types.scores import chance
from elsa_tune.training.data.row_checks import cleaned, row_findings, units_of, without_leaked
from elsa_tune.training.data.texts import check_variety, read_texts
from elsa_tune.training.data.tokens import HOLDOUT, Split, TaskData, TokenRows

CHUNK = 1000  # texts handed to the tokenizer at once

# Streams of randomness that must not follow one another.
_SUBSET = 0
_EVALUATION = 1
_SELECTION = 2


def prepare(model: ModelSpec, task: TaskSpec, recipe: Recipe) -> TaskData:
    """Read the task, take the recipe's subset, tokenise it for the model.

    Raises DataError as `read_texts` does, and for a train_size above the rows or below a holdout.
    """
    # Before the tokenizer's first use: its threads would fight with the trials for the cores, and a
    # process forked after them would be told so at length.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from elsa_tune.training.model.encoder import load_tokenizer

    splits = read_splits(task, recipe)
    tokenizer: Any = load_tokenizer(model)
    rows = {name: tokenised(split, recipe.max_length, tokenizer) for name, split in splits.items()}
    notes = dict.fromkeys(note for split in splits.values() for note in split.notes)
    return TaskData(
        train=rows.pop("train"),
        evaluation=rows.pop("evaluation"),
        holdout=rows.pop(HOLDOUT, None),
        companions=rows,
        pad_token_id=int(tokenizer.pad_token_id or 0),
        padding_side=tokenizer.padding_side,
        pad_token_type_id=int(tokenizer.pad_token_type_id),
        fingerprint=_fingerprint(task, splits, recipe, tokenizer),
        chance=chance(task.metric, splits["evaluation"].labels, task.outputs),
        units=units_of(splits["evaluation"]),
        notes=tuple(notes),
        findings=row_findings(task, splits),
    )


def read_splits(task: TaskSpec, recipe: Recipe) -> dict[str, Split]:
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


def stratified_order(
    strata: NDArray[np.int64],
    seed: int,
    stream: int = _SUBSET,
) -> NDArray[np.int64]:
    """Order the rows [E] so that every prefix mirrors all of them: subsets by prefix are nested.

    strata: of each row, as its type of task has them. Within a stratum
    the order is random; a stratum of n rows has its r-th row at place (r + 1/2) / n, so that a
    prefix of K rows holds K n / E of them, give or take one. The same everywhere for one seed.
    """
    shuffled = _permutation(len(strata), seed, stream)
    strata = strata[shuffled]
    rank, sizes = _ranks(strata)
    # Equal places (strata of one size) keep the shuffled order, which is random.
    order = np.argsort((rank + 0.5) / sizes[strata], kind="stable")
    return shuffled[order].astype(np.int64)


def _permutation(count: int, seed: int, stream: int) -> NDArray[Any]:
    # RandomState and SeedSequence: the streams that numpy promises never to change (NEP 19).
    bits = np.random.MT19937(np.random.SeedSequence([seed, stream]))
    return np.random.RandomState(bits).permutation(count)


def _ranks(strata: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return each row's place within its stratum [E], from 0; and the rows of each stratum."""
    by_stratum = np.argsort(strata, kind="stable")
    sizes = np.bincount(strata)
    rank = np.empty(len(strata), dtype=np.int64)
    rank[by_stratum] = np.arange(len(strata)) - (np.cumsum(sizes) - sizes)[strata[by_stratum]]
    return rank, sizes


def _with_evaluation(task: TaskSpec, every: Split, seed: int) -> dict[str, Split]:
    source = task.source
    assert isinstance(source, FilesSource | DataSetSource) and source.evaluation_share is not None
    share = source.evaluation_share
    rows = len(every)
    strata = type_of(task.kind).strata(every.labels)
    by = "stratified"
    if every.groups is None:
        order = stratified_order(strata, seed, _EVALUATION)
        held_out = round(rows * share)
    else:
        order, held_out = _order_of_groups(task, every.groups, strata, share, seed)
        by = f"by {task.group_column}, stratified"
    evaluation = every.part(order[:held_out], f"the held-out share of {share:g} ({held_out} rows)")
    what = "file" if isinstance(source, FilesSource) else "split with labels"
    note = (
        f"no evaluation {what}: {held_out:,} of {rows:,} rows ({share:g}, {by}, subset_seed "
        f"{seed}) are held out"
    )
    what = f"the remaining share ({rows - held_out} rows)"
    train = every.part(order[held_out:], what, (*every.notes, note))
    return {"train": replace(train, lost=every.lost), "evaluation": evaluation}


def _order_of_groups(
    task: TaskSpec,
    groups: NDArray[np.uint64],
    strata: NDArray[np.int64],
    share: float,
    seed: int,
) -> tuple[NDArray[np.int64], int]:
    """Order the rows [E] by groups, those to evaluate first; also return how many these are.

    A group counts as of the stratum that most of its rows are of. In an order that is stratified by
    that, a group is evaluated where this brings the number of rows nearer to the share. Raises
    DataError where there is but one group.
    """
    _, first, group_of_row = np.unique(groups, return_index=True, return_inverse=True)
    sizes = np.bincount(group_of_row)
    if len(sizes) < 2:
        raise DataError(
            f"task '{task.name}': all {len(groups):,} rows are of one group (column "
            f"'{task.group_column}'), and none can be evaluated without tearing it; name another "
            "column by `group`, or give evaluation rows"
        )
    # The number of rows of each group and stratum, groups in the order of their first rows.
    place = np.empty(len(sizes), dtype=np.int64)
    place[np.argsort(first)] = np.arange(len(sizes))
    counts = np.zeros((len(sizes), int(strata.max()) + 1), dtype=np.int64)
    np.add.at(counts, (place[group_of_row], strata), 1)
    sizes = counts.sum(axis=1)
    wanted = share * len(groups)
    order = stratified_order(counts.argmax(axis=1), seed, _EVALUATION)
    chosen: list[int] = []
    held_out = 0
    for group in order.tolist():
        size = int(sizes[group])
        is_last = len(chosen) == len(sizes) - 1
        if not is_last and abs(held_out + size - wanted) < abs(held_out - wanted):
            chosen.append(group)
            held_out += size
    if not chosen:
        nearest = int(np.abs(sizes - wanted).argmin())
        chosen.append(nearest)
        held_out = int(sizes[nearest])
    is_chosen = np.isin(place[group_of_row], chosen)
    return np.argsort(~is_chosen, kind="stable").astype(np.int64), held_out


def _in_use(task: TaskSpec, train: Split, recipe: Recipe) -> dict[str, Split]:
    """Return the recipe's subset of the training rows: `train`, and a `holdout` if it has one."""
    if recipe.train_size is None and recipe.holdout is None:
        return {"train": train}
    size = size_in_use(task, recipe, len(train))
    strata = type_of(task.kind).strata(train.labels)
    chosen = stratified_order(strata, recipe.subset_seed)[:size]
    if recipe.holdout is None:
        what = f"the subset of {size} rows (train_size)"
        part = train.part(chosen, what, train.notes)
        return {"train": replace(part, lost=train.lost)}
    bins = type_of(task.kind).bins
    places = None if bins is None else _permutation(bins, recipe.subset_seed, _SELECTION)
    held_out = _held_out(strata[chosen], recipe.holdout, places)
    count = int(held_out.sum())
    note = (
        f"selection holdout: {count:,} of {size:,} training rows ({recipe.holdout:g}, stratified, "
        f"subset_seed {recipe.subset_seed}) are not trained on; they choose learning rate and "
        "evaluation"
    )
    what = f"the remainder beside the holdout ({size - count} rows)"
    subset = train.part(chosen[~held_out], what, (*train.notes, note))
    holdout = train.part(chosen[held_out], "the holdout")
    _check_classes(task, subset, holdout, recipe.holdout)
    return {"train": replace(subset, lost=train.lost), HOLDOUT: holdout}


def _held_out(
    strata: NDArray[np.int64],
    share: float,
    places_of_bins: NDArray[np.int64] | None,
) -> NDArray[np.bool_]:
    """Return which of the rows, a prefix of `stratified_order`, are held out.

    strata: of these rows, as all training rows have them. Within a stratum every 1/share-th row in
    the order, so that a larger prefix holds out what a smaller one does, and more. Of each class
    the nearest whole number. Bins of values are too small to be rounded alike: each begins at one
    of the `places_of_bins`, 0.. in a random order; None for strata that are no such bins.
    """
    rank, sizes = _ranks(strata)
    start = np.full(len(sizes), 0.5)
    if places_of_bins is not None:
        start = ((places_of_bins + 0.5) / len(places_of_bins))[: len(sizes)]
    before = np.floor(rank * share + start[strata])
    held_out: NDArray[np.bool_] = np.floor((rank + 1) * share + start[strata]) > before
    return held_out


def _check_classes(task: TaskSpec, subset: Split, holdout: Split, share: float) -> None:
    """Raise DataError unless every class of the rows in use is trained on and held out."""
    size = len(subset) + len(holdout)
    count = type_of(task.kind).class_counts
    trained = count(subset.labels, task.outputs)
    held_out = count(holdout.labels, task.outputs)
    if trained is None or held_out is None:
        return
    for number in np.flatnonzero((trained > 0) != (held_out > 0)):
        rows = int(trained[number] + held_out[number])
        lacks = "has none" if not held_out[number] else "leaves none to train on"
        raise DataError(
            f"task '{task.name}': a holdout of {share:g} of {size:,} training rows {lacks} of "
            f"class '{task.classes[number]}', of which there are {rows}; give a larger "
            "train_size or holdout"
        )


def tokenised(split: Split, max_length: int, tokenizer: Any) -> TokenRows:
    """Tokenise the rows of a split, at least one, cut to `max_length` tokens."""
    with_types = "token_type_ids" in tokenizer.model_input_names
    ids: list[NDArray[np.int32]] = []
    types: list[NDArray[np.int8]] = []
    lengths: list[int] = []
    for start in range(0, len(split), CHUNK):
        encoded = tokenizer(
            *(column[start : start + CHUNK] for column in split.texts),
            truncation="longest_first",
            max_length=max_length,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=with_types,
        )
        lengths += map(len, encoded["input_ids"])
        ids.append(_flat(encoded["input_ids"], np.int32))
        if with_types:
            types.append(_flat(encoded["token_type_ids"], np.int8))
    return TokenRows(
        input_ids=np.concatenate(ids),
        offsets=np.cumsum([0, *lengths], dtype=np.int64),
        token_type_ids=np.concatenate(types) if with_types else None,
        labels=split.labels,
    )


def _flat(rows: list[list[int]], kind: type[Any]) -> NDArray[Any]:
    return np.fromiter(itertools.chain.from_iterable(rows), dtype=kind)


def _fingerprint(task: TaskSpec, splits: dict[str, Split], recipe: Recipe, tokenizer: Any) -> str:
    digest = hashlib.sha256()
    identity = tokenizer_identity(tokenizer)
    settings: list[Any] = [recipe.train_size, recipe.subset_seed, recipe.max_length, identity]
    if task.cleaning != Cleaning():
        # Merged classes may leave every id as it was.
        settings.append([asdict(task.cleaning), task.classes])
    if task.group_column is not None:
        settings.append({"group": task.group_column})
    digest.update(json.dumps(settings).encode())
    for name, split in splits.items():
        digest.update(json.dumps([name, len(split), len(split.texts)]).encode())
        for column in split.texts:
            # The lengths keep ("ab", "c") and ("a", "bc") apart.
            digest.update(np.fromiter(map(len, column), dtype="<i8").tobytes())
            digest.update("".join(column).encode("utf-8", "surrogatepass"))
        digest.update(np.ascontiguousarray(split.labels).tobytes())
    if task.group_column is not None:
        units = units_of(splits["evaluation"])
        digest.update(b"" if units is None else units.tobytes())
    return digest.hexdigest()


def tokenizer_identity(tokenizer: Any) -> str:
    """Return sha256 of everything that decides how a tokenizer splits texts, wherever it lies."""
    special = {
        "class": type(tokenizer).__name__,
        "special": {name: str(token) for name, token in tokenizer.special_tokens_map.items()},
        "padding_side": tokenizer.padding_side,
        "inputs": list(tokenizer.model_input_names),
    }
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        rules = json.dumps(sorted(tokenizer.get_vocab().items()))
    else:
        # What the last caller wanted, not what the tokenizer is; every call sets them anew.
        backend.no_truncation()
        backend.no_padding()
        rules = backend.to_str()
    digest = hashlib.sha256(json.dumps(special, sort_keys=True).encode())
    digest.update(rules.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
