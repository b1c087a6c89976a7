"""Parameters of which some are for thorough tests alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest


def thorough(*values: Any) -> list[Any]:
    """Return values for `parametrize` that are thorough tests. A tuple is several arguments."""
    marked = []
    for value in values:
        arguments = value if isinstance(value, tuple) else (value,)
        marked.append(pytest.param(*arguments, marks=pytest.mark.thorough))
    return marked


def one_of_each(*parameters: Sequence[Any]) -> list[Any]:
    """Return all combinations for `parametrize`, most of them thorough tests.

    The others are the fewest that have every value of every parameter.

    Neighbours in the list of the longest parameter get different values of the others. A value that
    is a tuple stands for several arguments.
    """
    length = max(map(len, parameters))
    quick = {tuple(row % len(values) for values in parameters) for row in range(length)}
    combinations = []
    for numbers in itertools.product(*(range(len(values)) for values in parameters)):
        arguments: list[Any] = []
        for values, number in zip(parameters, numbers, strict=True):
            value = values[number]
            arguments += value if isinstance(value, tuple) else [value]
        marks = () if numbers in quick else pytest.mark.thorough
        combinations.append(pytest.param(*arguments, marks=marks))
    return combinations
