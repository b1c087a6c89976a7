"""What is odd about a task's rows, found before anything trains, and rows dropped on request.

E is the number of rows of a split. One pass takes a key of each row: a hash of its text (of a pair
its texts), with case and blanks folded; everything else compares keys. Two texts share one by
chance with a probability of 2^-64. Companion splits are not looked at.
"""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.errors import DataError
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.row_findings import FindingCode, RowFinding, named
from elsa_tune.specs.task import TaskSpec, folded
from elsa_tune.tasks.types.registry import type_of
from elsa_tune.training.data.tokens import HOLDOUT, Split

# A larger share of rows that were left out is a finding; a smaller one stands in the notes.
MUCH_LOST = 0.05
# A smaller share of units to evaluation rows is a finding.
FEW_UNITS = 0.5
# What stands where a program or a person had no label. `none` is some tasks' own class, but more
# often Python's None.
_NO_LABEL = {"n/a", "#n/a", "<na>", "na", "nan", "nat", "null", "none", "nil", "-", "--", "?"}
_NO_LABEL |= {"missing", "undefined"}
# Odd, so that a key and a label give another key.
_MIXER = np.uint64(0x9E3779B97F4A7C15)
# str.split takes it for a blank, so that no folded text has one.
_BETWEEN_TEXTS = "\x1f"

Keys = NDArray[np.uint64]


def text_keys(split: Split) -> Keys:
    """Return a key of each row's texts [E]: the same where they differ in case and blanks alone."""
    digests = bytearray()
    for texts in zip(*split.texts, strict=True):
        text = _BETWEEN_TEXTS.join(map(folded, texts))
        digests += hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return np.frombuffer(digests, dtype="<u8").astype(np.uint64)


def units_of(split: Split, keys: Keys | None = None) -> NDArray[np.int32] | None:
    """Return the unit of each row [E], numbered in the rows' order; None where each is its own.

    Rows of one group are one unit. Without groups, rows with the same text are, whatever their
    labels: they are one thing to be right or wrong about. keys: of its texts, where they were made.
    """
    if split.groups is not None:
        keys = split.groups
    elif keys is None:
        keys = text_keys(split)
    _, first, unit_by_key = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) == len(keys):
        return None
    number = np.empty(len(first), dtype=np.int32)  # of each key's unit
    number[np.argsort(first)] = np.arange(len(first))
    return number[unit_by_key]


def row_findings(task: TaskSpec, splits: Mapping[str, Split]) -> tuple[RowFinding, ...]:
    """Return what is odd about the rows in use, the gravest first.

    splits: as `read_splits` gives them; a holdout counts as training, for it chooses what is
    measured.
    """
    evaluation = splits["evaluation"]
    holdout = splits.get(HOLDOUT)
    training = splits["train"] if holdout is None else _together(splits["train"], holdout)
    keys = {"training": text_keys(training), "evaluation": text_keys(evaluation)}
    by_name = {"training": training, "evaluation": evaluation}
    findings = [*_leaked(task, by_name, keys), *_groups_torn(training, evaluation)]
    findings += _few_units(evaluation, keys["evaluation"])
    if type_of(task.kind).names_classes:
        findings += [*_contradicting(by_name, keys), *_on_classes(task, by_name)]
    for split in splits.values():
        if split.lost is not None and split.lost.share > MUCH_LOST:
            findings.append(split.lost)
    findings += [*_repeated(by_name, keys), *_empty(task, by_name)]
    order = list(FindingCode)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.code)))


def cleaned(task: TaskSpec, splits: Mapping[str, Split]) -> dict[str, Split]:
    """Return the splits as they were read, training without the rows that the task drops.

    What is evaluated stays as it is. Where it is still to be held out, it comes from what is left.
    Raises DataError where nothing is left.
    """
    cleaning = task.cleaning
    train = splits["train"]
    if cleaning.drop_contradictions and type_of(task.kind).names_classes:
        every = train
        if "evaluation" in splits:
            every = _together(train, splits["evaluation"])
        contradicting = _contradicting_keys(text_keys(every), every.labels)
        kept = ~np.isin(text_keys(train), contradicting)
        train = _without(task, train, kept, "their text has another label too", "contradictions")
    if cleaning.drop_duplicates:
        kept = _is_first(_row_keys(text_keys(train), train.labels))
        train = _without(task, train, kept, "they repeat an earlier row", "duplicates")
    return without_leaked(task, {**splits, "train": train})


def without_leaked(task: TaskSpec, splits: Mapping[str, Split]) -> dict[str, Split]:
    """Return the splits, training without rows whose text is evaluated, if the task drops them."""
    train = splits["train"]
    if task.cleaning.drop_leaked and "evaluation" in splits:
        kept = ~np.isin(text_keys(train), text_keys(splits["evaluation"]))
        train = _without(task, train, kept, "their text is also evaluated", "leaked")
    return {**splits, "train": train}


def _without(task: TaskSpec, train: Split, kept: NDArray[np.bool_], why: str, field: str) -> Split:
    """Return the kept training rows. field: of the task, without `drop_`, for the note."""
    dropped = int((~kept).sum())
    if not dropped:
        return train
    if dropped == len(train):
        raise DataError(
            f"task '{task.name}': drop_{field} drops every training row, for {why}; leave it out"
        )
    note = f"{dropped:,} of {len(train):,} training rows dropped: {why} (drop_{field})"
    part = train.part(np.flatnonzero(kept), "", (*train.notes, note))
    return replace(part, where=train.where, lost=train.lost)


def _together(first: Split, second: Split) -> Split:
    texts = tuple([*own, *more] for own, more in zip(first.texts, second.texts, strict=True))
    groups = None
    if first.groups is not None and second.groups is not None:
        groups = np.concatenate([first.groups, second.groups])
    labels = np.concatenate([first.labels, second.labels])
    return Split(first.where, texts, labels, groups=groups)


def _row_keys(keys: Keys, labels: NDArray[Any]) -> Keys:
    """Return keys of text and label [E]. labels: [E, ...]."""
    same_size = labels.astype(np.int64 if labels.dtype.kind == "i" else np.float64)
    mixed = keys
    for column in same_size.reshape(len(keys), -1).T:
        bits = np.ascontiguousarray(column).view(np.uint64)
        mixed = (mixed ^ (bits + np.uint64(1))) * _MIXER
    return mixed


def _is_first(keys: Keys) -> NDArray[np.bool_]:
    """Return whether no earlier row has the same key [E]."""
    first = np.zeros(len(keys), dtype=np.bool_)
    first[np.unique(keys, return_index=True)[1]] = True
    return first


def _contradicting_keys(keys: Keys, labels: NDArray[Any]) -> Keys:
    """Return the keys of the texts that have two labels or more, each once."""
    different = _is_first(_row_keys(keys, labels))
    texts, labels_of_each = np.unique(keys[different], return_counts=True)
    return texts[labels_of_each > 1]


def _leaked(
    task: TaskSpec,
    splits: Mapping[str, Split],
    keys: Mapping[str, Keys],
) -> Iterator[RowFinding]:
    training = splits["training"]
    evaluation = splits["evaluation"]
    leaked = np.isin(keys["evaluation"], keys["training"])
    if not leaked.any():
        return
    leaking = np.flatnonzero(np.isin(keys["training"], keys["evaluation"][leaked]))
    trained = set(_rows(training, leaking))
    same_label = None
    if type_of(task.kind).names_classes:
        trained_rows = _row_keys(keys["training"], training.labels)
        same_label = int(
            np.isin(_row_keys(keys["evaluation"], evaluation.labels), trained_rows).sum()
        )
    yield RowFinding(
        code=FindingCode.LEAKED_ROWS,
        count=int(leaked.sum()),
        of=len(leaked),
        where="evaluation",
        exact=sum(texts in trained for texts in _rows(evaluation, np.flatnonzero(leaked))),
        same_label=same_label,
    )


def _groups_torn(training: Split, evaluation: Split) -> Iterator[RowFinding]:
    """Find evaluation rows of a group that is also trained on."""
    if training.groups is None or evaluation.groups is None:
        return
    torn = np.isin(evaluation.groups, training.groups)
    if torn.any():
        yield RowFinding(
            code=FindingCode.LEAKED_GROUPS,
            count=int(torn.sum()),
            of=len(torn),
            where="evaluation",
            groups=len(np.unique(evaluation.groups[torn])),
        )


def _few_units(evaluation: Split, keys: Keys) -> Iterator[RowFinding]:
    """Find evaluation rows that are less than half as many units, or too few to certify a depth."""
    units = units_of(evaluation, keys)
    if units is None:
        return
    count = int(units.max()) + 1
    if count < FEW_UNITS * len(units) or count < Policy().fewest_units:
        yield RowFinding(
            code=FindingCode.FEW_UNITS,
            count=count,
            of=len(units),
            where="evaluation",
            groups=None if evaluation.groups is None else count,
        )


def _rows(split: Split, rows: NDArray[np.int64]) -> Iterator[tuple[str, ...]]:
    for row in rows.tolist():
        yield tuple(column[row] for column in split.texts)


def _contradicting(splits: Mapping[str, Split], keys: Mapping[str, Keys]) -> Iterator[RowFinding]:
    every = np.concatenate([keys["training"], keys["evaluation"]])
    labels = np.concatenate([splits["training"].labels, splits["evaluation"].labels])
    texts = _contradicting_keys(every, labels)
    if len(texts):
        yield RowFinding(
            code=FindingCode.CONTRADICTING_LABELS,
            count=int(np.isin(every, texts).sum()),
            of=len(every),
            where="training and evaluation",
            texts=len(texts),
        )


def _repeated(splits: Mapping[str, Split], keys: Mapping[str, Keys]) -> Iterator[RowFinding]:
    for name, split in splits.items():
        repeated = int((~_is_first(_row_keys(keys[name], split.labels))).sum())
        if repeated:
            yield RowFinding(
                code=FindingCode.DUPLICATE_ROWS,
                count=repeated,
                of=len(split),
                where=name,
            )


def _on_classes(task: TaskSpec, splits: Mapping[str, Split]) -> Iterator[RowFinding]:
    rows = {}
    for name, split in splits.items():
        counts = type_of(task.kind).class_counts(split.labels, task.outputs)
        if counts is None:
            return
        rows[name] = counts
    for code, where in (
        (FindingCode.CLASSES_NOT_EVALUATED, "evaluation"),
        (FindingCode.CLASSES_NOT_TRAINED, "training"),
    ):
        lacking = [task.classes[number] for number in np.flatnonzero(rows[where] == 0)]
        if lacking:
            yield RowFinding(
                code=code,
                count=len(lacking),
                of=task.outputs,
                where=where,
                **named(lacking),
            )
    for code, ids in (
        (FindingCode.LABELS_ALIKE, _alike(task)),
        (FindingCode.LABEL_LOOKS_MISSING, _looks_missing(task)),
    ):
        if ids:
            yield RowFinding(
                code=code,
                count=sum(int(counts[ids].sum()) for counts in rows.values()),
                of=sum(map(len, splits.values())),
                where="training and evaluation",
                **named([task.classes[number] for number in ids]),
            )


def _alike(task: TaskSpec) -> list[int]:
    """Return the classes that equal another but for blanks and case, side by side."""
    groups: dict[str, list[int]] = {}
    for number, name in enumerate(task.classes):
        groups.setdefault(folded(name), []).append(number)
    alike = []
    for numbers in groups.values():
        if len(numbers) > 1:
            alike += numbers
    return alike


def _looks_missing(task: TaskSpec) -> list[int]:
    return [number for number, name in enumerate(task.classes) if folded(name) in _NO_LABEL]


def _empty(task: TaskSpec, splits: Mapping[str, Split]) -> Iterator[RowFinding]:
    """Find empty texts of pairs; a row without any text was left out when it was read."""
    every = _together(*splits.values())
    blank = np.array([[not text.strip() for text in column] for column in every.texts])
    columns = [
        name for name, is_blank in zip(task.text_columns, blank, strict=True) if is_blank.any()
    ]
    if columns:
        yield RowFinding(
            code=FindingCode.EMPTY_TEXTS,
            count=int(blank.any(axis=0).sum()),
            of=len(every),
            where="training and evaluation",
            **named(columns),
        )
