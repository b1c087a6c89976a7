"""What a label column holds: values to predict, the numbers of classes, or no label at all."""

import re
from collections.abc import Collection, Iterable

from elsa_tune.errors import DataError
from elsa_tune.specs.task import folded

# More different whole numbers than this are values rather than classes, unless they count classes.
MOST_STEPS = 20
# More different labels than this, where no classes are declared, are numbers or texts.
MOST_CLASSES = 1000
# What stands where a program or a person had no label. `none` is some tasks' own class, but more
# often Python's None.
_NO_LABEL = {"n/a", "#n/a", "<na>", "na", "nan", "nat", "null", "none", "nil", "-", "--", "?"}
_NO_LABEL |= {"missing", "undefined"}
# What stands in the column of that name where the annotators did not agree (MNLI, SNLI).
_GOLD_LABEL = "gold_label"
_NOT_AGREED = "-"
# The class id by which data sets of the hub mark rows without a label.
UNLABELLED_ID = "-1"
# A word of a column's name that says that its numbers are values, however many there are.
_VALUE_WORDS = re.compile(r"(?<![a-z])(score|rating|stars|degree|price|value)s?(?![a-z])")

# A list as Python, JSON or NumPy write it into a cell. Where some write no quotes, `[a, b]` is one;
# `[a]` is one beside it, and alone may be the name of a class.
_LIST = re.compile(r"\[(\s*['\"\d].*|.*,.*)?\]", re.DOTALL)
# A tuple as Python writes it: with a comma always, and texts in quotes.
_TUPLE = re.compile(r"\((\s*['\"\d-].*,.*)?\)", re.DOTALL)
# Two numbers in round brackets: the ends of a range, where the lower one comes first.
_PAIR = re.compile(r"\(([^,]+),([^,]+)\)")
_IN_BRACKETS = re.compile(r"\[.*\]|\(.*\)", re.DOTALL)


def means_no_label(label: str) -> bool:
    """Whether a cell of the label column rather says that there is none."""
    return folded(label) in _NO_LABEL


def is_not_agreed(label: str | None, column: str) -> bool:
    """Whether a cell of the label column says that the annotators did not agree on one."""
    return column == _GOLD_LABEL and label == _NOT_AGREED


def check_no_lists(labels: Iterable[str], column: str) -> None:
    """Raise DataError where all labels, but for words for none, are lists written as texts.

    Tuples are such lists, too, but for ranges such as `(18, 25)`. column: as the message names it.
    """
    filled = [label for label in labels if not means_no_label(label)]
    lists = [label for label in filled if _is_list(label)]
    if lists and all(map(_IN_BRACKETS.fullmatch, filled)):
        raise DataError(
            f"the labels in {column} are lists, as {min(lists)}; several labels a row and token "
            "labels are not supported: write one label a row"
        )


def _is_list(label: str) -> bool:
    """Whether a text is a list or a tuple, as programs write them."""
    if _LIST.fullmatch(label):
        return True
    return bool(_TUPLE.fullmatch(label)) and not _is_range(label)


def _is_range(label: str) -> bool:
    """Whether a text is a range of numbers, as `(18, 25)`: programs that cut ages write those."""
    pair = _PAIR.fullmatch(label)
    if pair is None:
        return False
    try:
        low, high = map(float, pair.groups())
    except ValueError:
        return False
    return low < high


def are_values(numbers: Collection[float], column: str) -> bool:
    """Whether different numbers are values: they have fractions, or are many and count no classes.

    column: its name, which may say that they are values.
    """
    if not all(number.is_integer() for number in numbers):
        return True
    return len(numbers) > MOST_STEPS and not are_class_numbers(numbers, column)


def are_class_numbers(numbers: Iterable[float], column: str = "") -> bool:
    """Whether different numbers count classes, which may be many: 0, 1, 2 ... without a gap.

    They may begin at 1. column: its name, which may say that they are values.
    """
    in_order = sorted(numbers)
    if _VALUE_WORDS.search(column.lower()) or not 0 < len(in_order) <= MOST_CLASSES:
        return False
    if in_order[0] not in (0, 1):
        return False
    return in_order == [in_order[0] + place for place in range(len(in_order))]
