"""LoRA as a way to adapt a model: narrow matrices beside its linear layers (Hu et al. 2022)."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, ClassVar, Self

from elsa_tune.errors import SpaceError, quoted
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.bounds import FewCount
from elsa_tune.specs.rate_space import RateRange

ALL_LINEAR = "all-linear"
# The usual rank and alpha, which labels leave out.
RANK = 8
ALPHA = 16
# In labels, what stands in front of a number, and between the names of linear layers.
_LAST = "last"
_AND = "+"
_FIELDS = {_LAST: "last", "r": "r", "a": "lora_alpha"}
_NUMBERED = re.compile(r"(last|r|a)([0-9]+)")
# A linear layer as an architecture calls it, with what it lies in where that tells it apart.
_LAYER_NAME = re.compile(r"[a-z_][a-z0-9_]*(\.[a-z0-9_]+)*")
# Whole numbers above this are mistyped: no encoder is so wide.
_MOST = 2**16
# What a space's `methods` calls LoRA on the last layers, below which a frozen trunk is kept.
_LORA_LAST = "lora_last"
# Behind every depth, and in front of what lies further from the full model.
_FIRST_RANK = 1000.0
# What LoRA costs where it trains, in trials of the full model: no gradient of the weights, and more
# small products.
_COST = 0.8


@dataclass(frozen=True, slots=True)
class Lora(Candidate):
    """Two matrices of rank r beside each linear layer train, and the head.

    The fields are named as the library peft names them.
    """

    method: ClassVar[str] = "lora"
    trains_by: ClassVar[str] = "elsa_tune.training.adapt.lora:METHOD"
    example: ClassVar[str] = "lora-last3"
    packages: ClassVar[tuple[str, ...]] = ("peft",)
    has_adapter: ClassVar[bool] = True

    r: int = RANK  # the rank, of both matrices
    lora_alpha: int = ALPHA  # what they add is multiplied by lora_alpha / r
    # Whose matrices there are: every linear layer of the encoder's layers, or those of these names,
    # ascending and without capitals. Peft by itself takes query and value alone in BERT.
    target_modules: str | tuple[str, ...] = ALL_LINEAR
    last: int | None = None  # in how many of the last encoder layers; None for all of them

    def __post_init__(self) -> None:
        _check_number(self.r, "r, LoRA's rank,")
        _check_number(self.lora_alpha, "lora_alpha")
        if self.last is not None:
            _check_number(self.last, "last, the number of last layers with LoRA,")
        names = _target_modules(self.target_modules)
        object.__setattr__(self, "target_modules", names)

    @property
    def key(self) -> str:
        # Dots and `+` may not stand in keys. No name has a hyphen, so that no two keys are alike.
        return self.label.replace(".", "--").replace(_AND, "-")

    @property
    def label(self) -> str:
        """`lora`, and behind it what is not as usual: `lora-last3-r16-a32-query+value`."""
        parts = [self.method]
        if self.last is not None:
            parts.append(f"{_LAST}{self.last}")
        if self.r != RANK:
            parts.append(f"r{self.r}")
        if self.lora_alpha != ALPHA:
            parts.append(f"a{self.lora_alpha}")
        if self.target_modules != ALL_LINEAR:
            parts.append(_AND.join(self.target_modules))
        return "-".join(parts)

    @property
    def is_ranked(self) -> bool:
        return False

    @property
    def rank(self) -> float:
        """Its place among others, by which learning rates are lent: near ones adapt alike.

        The fewer last layers, the further behind; a larger r stands a little in front.
        """
        behind = 0.0
        if self.last is not None:
            behind = 12 / self.last
        return _FIRST_RANK + behind - math.log2(self.r) / 100

    @property
    def rates(self) -> RateRange:
        """Higher ones than of full fine-tuning; a search goes on outward from there."""
        return RateRange(low=1e-4, high=1e-3)

    @property
    def card(self) -> str:
        plain = (
            "LoRA's matrices are added to the weights, so that these are a plain model's. "
            "The embeddings"
        )
        alike = "are the base model's, bit for bit"
        if self.last is None:
            return f"{plain} {alike}."
        layers = "layer" if self.last == 1 else f"{self.last} layers"
        return (
            f"{plain} and all layers before the last {layers} {alike}: models exported from one "
            "base can share them."
        )

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return (cls.method, _LORA_LAST)

    def method_names(self, layers: int | None) -> tuple[str, ...]:
        return (self.method,) if self.last is None else (_LORA_LAST,)

    @classmethod
    def named(cls, name: str, layers: int, settings: "LoraSettings | None" = None) -> "Lora":
        lora = settings or LoraSettings()
        return lora.on_last(layers) if name == _LORA_LAST else lora.everywhere()

    def fine_tuned_layers(self, layers: int) -> None:
        return None

    def relative_cost(self, layers: int, *, keeps_prefix: bool) -> float:
        """Return the cost in trials of the full model, fitted to bench/results/ways_step.json."""
        adapted = layers if self.last is None else self.last
        if keeps_prefix:
            return _COST * max(0.003, (adapted - 0.8) / (layers - 0.8))
        frozen = layers - adapted
        return (frozen / 3 + _COST * adapted) / layers

    def describe(self, layers: int) -> str:
        """Return `LoRA of rank 8 on the last 3 layers`."""
        matrices = f"LoRA of rank {self.r}"
        if self.lora_alpha != ALPHA:
            matrices += f" and alpha {self.lora_alpha}"
        where = "all layers"
        if self.last == 1:
            where = "the last layer"
        elif self.last is not None:
            where = f"the last {self.last} layers"
        if self.target_modules == ALL_LINEAR:
            return f"{matrices} on {where}"
        names = " and ".join(self.target_modules)
        return f"{matrices} on {names} of {where}"

    def is_plural(self, layers: int) -> bool:
        return False

    def doing(self, layers: int) -> str:
        return f"training {self.describe(layers)}"

    def record(self) -> dict[str, Any]:
        recorded: dict[str, Any] = {
            "lora_r": self.r,
            "lora_alpha": self.lora_alpha,
            "lora_target_modules": _names_text(self.target_modules),
        }
        if self.last is not None:
            recorded["lora_last"] = self.last
        return recorded

    @classmethod
    def read(cls, text: str) -> Self | None:
        first, *parts = text.split("-")
        if first != cls.method:
            return None
        fields: dict[str, Any] = {}
        for part in parts:
            name, value = _read_part(part, text)
            if name in fields:
                raise _unreadable(text)
            fields[name] = value
        return cls(**fields)

    @classmethod
    def of_record(cls, values: Mapping[str, Any]) -> Self | None:
        if not values.get("lora_r"):
            return None
        last = values.get("lora_last")
        return cls(
            r=_whole(values, "lora_r"),
            lora_alpha=_whole(values, "lora_alpha"),
            target_modules=_names_of(str(values.get("lora_target_modules", ALL_LINEAR))),
            last=_whole(values, "lora_last") if last else None,
        )

    def check(self, layers: int) -> Self:
        if self.last is not None and self.last > layers:
            fewer = f"a number from 1 to {layers - 1}, or " if layers > 1 else ""
            raise SpaceError(
                f"'{self.label}' has LoRA on the last {self.last} layers, but the model has "
                f"{layers}; write {fewer}none for all layers"
            )
        if self.last == layers:
            raise SpaceError(
                f"'{self.label}' has LoRA on all {layers} layers of the model, which is called "
                f"'{self._on_all_layers.label}'; write that"
            )
        return self

    @property
    def _on_all_layers(self) -> "Lora":
        return Lora(r=self.r, lora_alpha=self.lora_alpha, target_modules=self.target_modules)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
    """How the methods `lora` and `lora_last` adapt, by peft's names."""

    r: FewCount = RANK  # LoRA's rank
    lora_alpha: FewCount = ALPHA  # what its matrices add is multiplied by lora_alpha / r
    target_modules: str | list[str] = ALL_LINEAR  # names of linear layers, or every one
    # How many of the last layers `lora_last` adapts, or which share of them.
    last: int | float | str = "1/2"

    def everywhere(self) -> Lora:
        """Return LoRA on all layers."""
        return self._lora(None)

    def on_last(self, layers: int) -> Lora:
        """Return LoRA on the last of so many layers, but not on all of several.

        A share of the layers is rounded up, as a depth's share of frozen ones is rounded down.
        Raises SpaceError for a `last` that is no number of layers, or not fewer than there are.
        """
        problem = SpaceError(
            f"lora.last is {quoted(self.last)}; it must be a number of layers, or a share of them "
            "such as 1/2"
        )
        try:
            asked = Fraction(str(self.last))
        except (ValueError, ZeroDivisionError):
            raise problem from None
        is_share = "/" in str(self.last) or "." in str(self.last)
        if asked <= 0 or (is_share and asked > 1):
            raise problem
        last = int(asked)
        if is_share:
            share_below = 1 - asked
            last = layers - int(share_below * layers)
        if last == layers == 1:  # the last of a single layer is all
            return self.everywhere()
        self._check_is_not_all(last, layers)
        return self._lora(last)

    def _check_is_not_all(self, last: int, layers: int) -> None:
        """Raise SpaceError where these last layers are all that the model has, or more."""
        asked = quoted(self.last)
        if last == layers:
            raise SpaceError(
                f"lora.last is {asked}, which is every layer of this model (it has {layers}); set "
                "fewer, or name the method lora, which is LoRA on all layers, instead of lora_last"
            )
        if last > layers:
            raise SpaceError(
                f"lora.last is {asked}, but this model has {layers}; set a number below that, or a "
                "share of its layers such as 1/2"
            )

    def _lora(self, last: int | None) -> Lora:
        names = self.target_modules
        targets = names if isinstance(names, str) else tuple(names)
        return Lora(r=self.r, lora_alpha=self.lora_alpha, target_modules=targets, last=last)


def _check_number(value: object, what: str) -> None:
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value not in range(1, _MOST + 1):
        raise SpaceError(f"{what} is {quoted(value)}; it must be a whole number, 1..{_MOST}")


def _target_modules(given: str | Sequence[str]) -> str | tuple[str, ...]:
    """Return `all-linear`, or names in the one order in which they are compared and recorded."""
    if isinstance(given, str):
        if given.strip().lower() == ALL_LINEAR:
            return ALL_LINEAR
        given = [given]
    names = set()
    for name in given:
        lowered = str(name).strip().lower()
        if not _LAYER_NAME.fullmatch(lowered) or _NUMBERED.fullmatch(lowered):
            raise SpaceError(
                f"target_modules has {quoted(name)}, which is no name of a linear layer; write "
                f"{ALL_LINEAR}, or names such as query and value"
            )
        names.add(lowered)
    if not names:
        raise SpaceError(f"target_modules is empty; write {ALL_LINEAR}, or names such as query")
    return tuple(sorted(names))


def _names_text(names: str | Sequence[str]) -> str:
    if isinstance(names, str):
        return names
    return _AND.join(names)


def _names_of(text: str) -> str | tuple[str, ...]:
    if text == ALL_LINEAR:
        return text
    return tuple(text.split(_AND))


def _read_part(part: str, label: str) -> tuple[str, Any]:
    """Return the field that a part of a label names, and its value."""
    numbered = _NUMBERED.fullmatch(part)
    if numbered is None:
        names = tuple(part.split(_AND))
        for name in names:
            if not _LAYER_NAME.fullmatch(name):
                raise _unreadable(label)
        return "target_modules", names
    letters, digits = numbered.groups()
    return _FIELDS[letters], int(digits)


def _unreadable(label: str) -> SpaceError:
    return SpaceError(
        f"{quoted(label)} is no label of LoRA; write lora and behind it, with hyphens, at most one "
        "each of last3 (layers), r16 (rank), a32 (alpha) and query+value (linear layers)"
    )


def _whole(values: Mapping[str, Any], name: str) -> int:
    """Return a recorded number, which tables may write as `8.0`."""
    text = str(values.get(name))
    number = re.fullmatch(r"([0-9]{1,9})(\.0*)?", text)
    if number is None:
        raise SpaceError(f"{name} is {quoted(text)}; it must be a whole number")
    return int(number[1])
