"""The ways to adapt a model that a space's `methods` compare beside freeze depths."""

import enum
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction

from elsa_tune.errors import SpaceError, quoted
from elsa_tune.specs.adapt.bitfit import BitFit
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.adapt.lora import ALL_LINEAR, ALPHA, RANK, Lora
from elsa_tune.specs.bounds import FewCount


class MethodName(enum.StrEnum):
    """What a space's `methods` may name; the ways of each have it among their `method_names`."""

    FREEZE = "freeze"  # the depths of the space's `depths`
    HEAD = "head"  # the head alone: every layer is frozen
    LORA = "lora"  # LoRA on all layers
    LORA_LAST = "lora_last"  # LoRA on the last layers; those below stay a frozen trunk
    BITFIT = "bitfit"  # every bias


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
        """Return LoRA on the last of so many layers, but not on all of them.

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
        self._check_is_not_all(last, layers)
        return self._lora(last)

    def _check_is_not_all(self, last: int, layers: int) -> None:
        """Raise SpaceError where these last layers are all that the model has, or more."""
        asked = quoted(self.last)
        if layers == 1:
            raise SpaceError(
                "the method lora_last adapts some of a model's layers, and this one has 1; name "
                "lora, which is LoRA on all layers, instead"
            )
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


def other_ways(methods: Collection[MethodName], lora: LoraSettings, layers: int) -> list[Candidate]:
    """Return the ways that methods name beside freeze depths, for a model with L layers.

    Raises SpaceError for one that the model has not.
    """
    ways: list[Candidate] = []
    if MethodName.HEAD in methods:
        ways.append(FreezeDepth(layers, True))
    if MethodName.LORA in methods:
        ways.append(lora.everywhere())
    # Of a single layer the last is all: LoRA on all layers stands for both.
    is_same = layers == 1 and MethodName.LORA in methods
    if MethodName.LORA_LAST in methods and not is_same:
        ways.append(lora.on_last(layers))
    if MethodName.BITFIT in methods:
        ways.append(BitFit())
    for way in ways:
        way.check(layers)
    return ways
