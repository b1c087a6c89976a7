"""What must agree before results are pooled."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """What results must have in common before they are pooled: weights, data, recipe.

    Two are equal when they read alike, wherever they come from: a journal has numbers where MLflow
    and tables have texts.
    """

    # In their order. What a table says in words of its own has the name "".
    values: tuple[tuple[str, object], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, object]) -> Self:
        """Return the comparison by these values; None says nothing."""
        stated: list[tuple[str, object]] = []
        for name, value in values.items():
            if value is not None:
                stated.append((name, value))
        return cls(tuple(stated))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the comparison that `str` wrote, or one of a text in other words."""
        values: list[tuple[str, str]] = []
        for part in text.split(", "):
            name, equals, value = part.partition("=")
            if name and equals:
                values.append((name, value))
            elif part:
                values.append(("", part))
        comparison = cls(tuple(values))
        reads_alike = str(comparison) == text
        if not reads_alike:
            in_other_words = ("", text)
            return cls((in_other_words,))
        return comparison

    def record(self) -> dict[str, object] | str:
        """Return what a journal keeps: an object, or a text in other words as it is."""
        names = [name for name, _ in self.values]
        has_repeated_names = len(set(names)) < len(names)
        if "" in names or has_repeated_names:
            return str(self)
        return dict(self.values)

    @property
    def data(self) -> str | None:
        """The first digits of the data's fingerprint, where they are known."""
        for name, value in self.values:
            if name == "data":
                return str(value)
        return None

    def __str__(self) -> str:
        parts = []
        for name, value in self.values:
            part = str(value)
            if name:
                part = f"{name}={value}"
            parts.append(part)
        return ", ".join(parts)

    def __repr__(self) -> str:
        return f"Comparison({str(self)!r})"

    def __bool__(self) -> bool:
        return bool(self.values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Comparison) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        """Let pydantic read an object, or a text of an older record or of a table."""
        # Only where pydantic is there: a trial does without it.
        from pydantic_core import core_schema

        return core_schema.no_info_plain_validator_function(_recorded)


def _recorded(values: object) -> Comparison:
    if isinstance(values, Comparison):
        return values
    if isinstance(values, str):
        return Comparison.read(values)
    if isinstance(values, Mapping):
        return Comparison.of(values)
    raise ValueError("must be a table of `field: value`, or a text")
