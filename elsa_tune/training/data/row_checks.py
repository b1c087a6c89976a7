"""What is odd about a task's rows, found before anything trains, and rows dropped on request.

E is the number of rows of a split. One pass takes a key of each row: a hash of its text (of a pair
its texts), with case and blanks folded; everything else compares keys. Companion splits are not
looked at.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from elsa_tune.errors import DataError
from elsa_tune.specs.policy import Policy
from elsa_tune.specs.row_findings import FindingCode, RowFinding, named
from elsa_tune.specs.task import TaskSpec, label_key
from elsa_tune.tasks.labels import UNLABELLED_ID, are_class_numbers, means_no_label
from elsa_tune.tasks.types.registry import type_of
from elsa_tune.training.data.keys import (
    Keys,
    contradicting_keys,
    is_first,
    numbered,
    row_keys,
    text_keys,
)
from elsa_tune.training.data.tokens import HOLDOUT, Split, Splits

# A larger share of rows that were left out is a finding; a smaller one stands in the notes.
MUCH_LOST = 0.05
# A smaller share of units to evaluation rows is a finding.
FEW_UNITS = 0.5


def units_of(split: Split, keys: Keys | None = None) -> NDArray[np.int32] | None:
    """Return the unit of each row [E], numbered in the rows' order; None where each is its own.

    Rows of one group are one unit. Without groups, rows with the same text are, whatever their
    labels: they are one thing to be right or wrong about. keys: of its texts, where they were made.
    """
    if split.groups is not None:
        keys = split.groups
    elif keys is None:
        keys = text_keys(split)
    units = numbered(keys)
    if not len(units) or units.max() + 1 == len(units):
        return None
    return units.astype(np.int32)


def row_findings(task: TaskSpec, splits: Splits) -> tuple[RowFinding, ...]:
    """Return what is odd about the rows in use, the gravest first.

    splits: as `read_splits` gives them; a holdout counts as training, for it chooses what is
    measured.
    """
    evaluation = splits["evaluation"]
    training = splits["train"]
    if HOLDOUT in splits:
        training = _together(training, splits[HOLDOUT])
    in_use = {"training": training, "evaluation": evaluation}
    keys = {name: text_keys(split) for name, split in in_use.items()}
    findings: list[RowFinding] = []
    findings += _leaked(task, in_use, keys)
    findings += _groups_torn(training, evaluation)
    findings += _few_units(evaluation, keys["evaluation"])
    if type_of(task.kind).names_classes:
        findings += _contradicting(in_use, keys)
        findings += _on_classes(task, in_use)
    for split in splits.values():
        if split.lost is not None and split.lost.share > MUCH_LOST:
            findings.append(split.lost)
    findings += _repeated(in_use, keys)
    findings += _empty(task, in_use)
    return gravest_first(findings)


def gravest_first(findings: Iterable[RowFinding]) -> tuple[RowFinding, ...]:
    """Return the findings in the order of their codes."""
    order = list(FindingCode)
    return tuple(sorted(findings, key=lambda finding: order.index(finding.code)))


def cleaned(task: TaskSpec, splits: Splits) -> Splits:
    """Return the splits as they were read, training without the rows that the task drops.

    What is evaluated stays as it is. Where it is still to be held out, it comes from what is left.
    Raises DataError where nothing is left.
    """
    cleaning = task.cleaning
    train = splits["train"]
    if cleaning.drop_contradictions:
        every = train
        if "evaluation" in splits:
            every = _together(train, splits["evaluation"])
        contradicting = contradicting_keys(text_keys(every), every.labels)
        has_other_label = np.isin(text_keys(train), contradicting)
        train = _without(
            task,
            train,
            has_other_label,
            why="their text has another label too",
            field="contradictions",
        )
    if cleaning.drop_duplicates:
        keys = row_keys(text_keys(train), train.labels)
        train = _without(
            task,
            train,
            ~is_first(keys),
            why="they repeat an earlier row",
            field="duplicates",
        )
    return without_leaked(task, {**splits, "train": train})


def without_leaked(task: TaskSpec, splits: Splits) -> Splits:
    """Return the splits, training without rows whose text is evaluated, if the task drops them."""
    train = splits["train"]
    if task.cleaning.drop_leaked and "evaluation" in splits:
        evaluated = text_keys(splits["evaluation"])
        is_evaluated = np.isin(text_keys(train), evaluated)
        train = _without(
            task,
            train,
            is_evaluated,
            why="their text is also evaluated",
            field="leaked",
        )
    return {**splits, "train": train}


def _without(
    task: TaskSpec,
    train: Split,
    is_dropped: NDArray[np.bool_],
    *,
    why: str,
    field: str,
) -> Split:
    """Return the other training rows. field: of the task, without `drop_`, for the note."""
    dropped = int(is_dropped.sum())
    if not dropped:
        return train
    if dropped == len(train):
        raise DataError(
            f"task '{task.name}': drop_{field} drops every training row, for {why}; leave it out"
        )
    note = f"{dropped:,} of {len(train):,} training rows dropped: {why} (drop_{field})"
    left = train.part(
        np.flatnonzero(~is_dropped),
        what="",
        notes=(*train.notes, note),
    )
    return replace(left, where=train.where, lost=train.lost)


def _together(first: Split, second: Split) -> Split:
    texts = []
    for first_column, second_column in zip(first.texts, second.texts, strict=True):
        texts.append([*first_column, *second_column])
    groups = None
    if first.groups is not None and second.groups is not None:
        groups = np.concatenate([first.groups, second.groups])
    return Split(
        where=first.where,
        texts=tuple(texts),
        labels=np.concatenate([first.labels, second.labels]),
        groups=groups,
    )


def _leaked(
    task: TaskSpec,
    splits: Splits,
    keys: Mapping[str, Keys],
) -> Iterator[RowFinding]:
    """Find evaluation rows whose text is also trained on."""
    training = splits["training"]
    evaluation = splits["evaluation"]
    training_keys = keys["training"]
    evaluation_keys = keys["evaluation"]
    is_leaked = np.isin(evaluation_keys, training_keys)
    if not is_leaked.any():
        return
    is_leaking = np.isin(training_keys, evaluation_keys[is_leaked])
    trained_texts = set(_texts_of(training, is_leaking))
    exact = 0
    for texts in _texts_of(evaluation, is_leaked):
        if texts in trained_texts:
            exact += 1
    same_label = None
    if type_of(task.kind).names_classes:
        trained_rows = row_keys(training_keys, training.labels)
        evaluated_rows = row_keys(evaluation_keys, evaluation.labels)
        is_same = np.isin(evaluated_rows, trained_rows)
        same_label = int(is_same.sum())
    yield RowFinding(
        code=FindingCode.LEAKED_ROWS,
        count=int(is_leaked.sum()),
        of=len(evaluation),
        where="evaluation",
        exact=exact,
        same_label=same_label,
    )


def _groups_torn(training: Split, evaluation: Split) -> Iterator[RowFinding]:
    """Find evaluation rows of a group that is also trained on."""
    if training.groups is None or evaluation.groups is None:
        return
    is_torn = np.isin(evaluation.groups, training.groups)
    if is_torn.any():
        torn_groups = np.unique(evaluation.groups[is_torn])
        yield RowFinding(
            code=FindingCode.LEAKED_GROUPS,
            count=int(is_torn.sum()),
            of=len(evaluation),
            where="evaluation",
            groups=len(torn_groups),
        )


def _few_units(evaluation: Split, keys: Keys) -> Iterator[RowFinding]:
    """Find evaluation rows that are less than half as many units, or too few to certify a depth."""
    units = units_of(evaluation, keys)
    if units is None:
        return
    count = int(units.max()) + 1
    is_small_share = count < FEW_UNITS * len(units)
    if is_small_share or count < Policy().fewest_units:
        yield RowFinding(
            code=FindingCode.FEW_UNITS,
            count=count,
            of=len(units),
            where="evaluation",
            groups=None if evaluation.groups is None else count,
        )


def _texts_of(split: Split, is_chosen: NDArray[np.bool_]) -> Iterator[tuple[str, ...]]:
    for row in np.flatnonzero(is_chosen).tolist():
        yield tuple(column[row] for column in split.texts)


def _contradicting(splits: Splits, keys: Mapping[str, Keys]) -> Iterator[RowFinding]:
    every_key = np.concatenate([keys["training"], keys["evaluation"]])
    labels = np.concatenate([splits["training"].labels, splits["evaluation"].labels])
    contradicting = contradicting_keys(every_key, labels)
    if len(contradicting):
        has_two_labels = np.isin(every_key, contradicting)
        yield RowFinding(
            code=FindingCode.CONTRADICTING_LABELS,
            count=int(has_two_labels.sum()),
            of=len(every_key),
            where="training and evaluation",
            texts=len(contradicting),
        )


def _repeated(splits: Splits, keys: Mapping[str, Keys]) -> Iterator[RowFinding]:
    for name, split in splits.items():
        first = is_first(row_keys(keys[name], split.labels))
        repeated = len(split) - int(first.sum())
        if repeated:
            yield RowFinding(
                code=FindingCode.DUPLICATE_ROWS,
                count=repeated,
                of=len(split),
                where=name,
            )


def _on_classes(task: TaskSpec, splits: Splits) -> Iterator[RowFinding]:
    """Find classes without rows on a side, and classes whose names are odd."""
    rows = {}  # of each class, by the split
    for name, split in splits.items():
        counts = type_of(task.kind).class_counts(split.labels, task.class_count)
        if counts is None:
            return
        rows[name] = counts
    for code, side in (
        (FindingCode.CLASSES_NOT_EVALUATED, "evaluation"),
        (FindingCode.CLASSES_NOT_TRAINED, "training"),
    ):
        absent = np.flatnonzero(rows[side] == 0)
        if len(absent):
            yield RowFinding(
                code=code,
                count=len(absent),
                of=task.class_count,
                where=side,
                **named([task.classes[number] for number in absent]),
            )
    rows_of_class = rows["training"] + rows["evaluation"]
    for code, odd in (
        (FindingCode.LABELS_ALIKE, _alike(task)),
        (FindingCode.LABEL_LOOKS_MISSING, _looks_missing(task)),
    ):
        if odd:
            yield RowFinding(
                code=code,
                count=int(rows_of_class[odd].sum()),
                of=sum(map(len, splits.values())),
                where="training and evaluation",
                **named([task.classes[number] for number in odd]),
            )


def _alike(task: TaskSpec) -> list[int]:
    """Return the classes that people take for another one, side by side."""
    numbers_by_key: dict[str, list[int]] = {}
    for number, name in enumerate(task.classes):
        numbers_by_key.setdefault(label_key(name), []).append(number)
    alike = []
    for numbers in numbers_by_key.values():
        if len(numbers) > 1:
            alike += numbers
    return alike


def _looks_missing(task: TaskSpec) -> list[int]:
    """Return the classes that rather mean that there is no label."""
    others = [name for name in task.classes if name != UNLABELLED_ID]
    # Beside 0, 1, 2 ... it marks rows without a label, as the hub does.
    others_count = all(map(str.isdecimal, others)) and are_class_numbers(map(float, others))
    missing = []
    for number, name in enumerate(task.classes):
        if means_no_label(name) or (name == UNLABELLED_ID and others_count):
            missing.append(number)
    return missing


def _empty(task: TaskSpec, splits: Splits) -> Iterator[RowFinding]:
    """Find empty texts of pairs; a row without any text was left out when it was read."""
    every = _together(splits["training"], splits["evaluation"])
    columns = []
    has_empty = np.zeros(len(every), dtype=np.bool_)
    for name, texts in zip(task.text_columns, every.texts, strict=True):
        is_empty = np.array([not text.strip() for text in texts])
        if is_empty.any():
            columns.append(name)
            has_empty |= is_empty
    if columns:
        yield RowFinding(
            code=FindingCode.EMPTY_TEXTS,
            count=int(has_empty.sum()),
            of=len(every),
            where="training and evaluation",
            **named(columns),
        )
