"""Freezing as a method of adaptation: how many of a model's first layers are not trained."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.candidate import Candidate

EMBEDDINGS = "embeddings"
# What sentences call that depth.
EMBEDDINGS_ONLY = "embeddings-only"
# What spaces' `methods` call the depth at which every layer is frozen.
HEAD = "head"


@dataclass(frozen=True, slots=True)
class FreezeDepth(Candidate):
    """Frozen layers N in 0..L, and whether the embedding side is frozen.

    N = 0 with trained embeddings is the full model; N = 0 with frozen embeddings is
    "embeddings-only"; N >= 1 always freezes the embeddings too.
    Ordering is by depth: full model < embeddings-only < N = 1 < ... < N = L.
    """

    method: ClassVar[str] = "freeze"  # the name in spaces and records
    trains_by: ClassVar[str] = "elsa_tune.training.adapt.freeze:METHOD"

    frozen_layers: int  # N, the first ones
    embeddings_frozen: bool  # with all that stands before the layers

    def __post_init__(self) -> None:
        if self.frozen_layers < 0:
            raise SpaceError(f"frozen_layers is {self.frozen_layers}; it must be 0 or more")
        if self.frozen_layers > 0 and not self.embeddings_frozen:
            raise SpaceError("with one or more frozen layers the embeddings are frozen too")

    @classmethod
    def of(cls, frozen_layers: int | str) -> Self:
        """Read 0, 1, ... or `embeddings`, as YAML and the command line write a depth."""
        depth = cls.read(str(frozen_layers).strip().lower())
        if depth is None:
            raise SpaceError(
                f"frozen_layers is '{frozen_layers}'; it must be a whole number or '{EMBEDDINGS}'"
            )
        return depth

    @classmethod
    def read(cls, text: str) -> Self | None:
        if text == EMBEDDINGS:
            return cls(0, True)
        if not re.fullmatch(r"-?[0-9]+", text):
            return None
        return cls(int(text), int(text) > 0)

    @classmethod
    def of_record(cls, values: Mapping[str, Any]) -> Self | None:
        if "frozen_layers" not in values and "embeddings_frozen" not in values:
            return None
        frozen_layers = _whole(values.get("frozen_layers") or 0)
        embeddings_frozen = _truth(values.get("embeddings_frozen", frozen_layers > 0))
        return cls(frozen_layers, embeddings_frozen)

    def record(self) -> dict[str, Any]:
        return {"frozen_layers": self.frozen_layers, "embeddings_frozen": self.embeddings_frozen}

    def check(self, layers: int) -> Self:
        """Return self if the model has that many layers (L >= 1), else raise SpaceError."""
        if self.frozen_layers > layers:
            raise SpaceError(
                f"frozen_layers is {self.frozen_layers}, but the model has {layers} layers; "
                f"it must be 0..{layers} or '{EMBEDDINGS}'"
            )
        return self

    @property
    def is_reference(self) -> bool:
        return not self.embeddings_frozen

    @property
    def is_depth(self) -> bool:
        return True

    @property
    def is_embeddings_only(self) -> bool:
        """The embeddings are frozen and every layer is trained."""
        return self.embeddings_frozen and self.frozen_layers == 0

    @property
    def is_tested(self) -> bool:
        return not self.is_embeddings_only

    @property
    def key(self) -> str:
        return f"N{self.label}"

    @property
    def label(self) -> str:
        """The text that `of` reads: `0`, `3`, ... or `embeddings`."""
        return EMBEDDINGS if self.is_embeddings_only else str(self.frozen_layers)

    @property
    def short(self) -> str:
        """The label, but `emb.` for embeddings-only."""
        return "emb." if self.is_embeddings_only else self.label

    @property
    def card(self) -> str:
        if self.is_reference:
            return ""
        frozen = "embeddings" if self.is_embeddings_only else "frozen layers"
        return (
            f"The {frozen} are the base model's, bit for bit: models exported from one base can "
            "share them."
        )

    @property
    def snippet(self) -> str:
        return f"elsa_tune.freeze(model, {self.frozen_layers})"

    @property
    def rank(self) -> float:
        """N; embeddings-only lies between the full model and N = 1."""
        return 0.5 if self.is_embeddings_only else float(self.frozen_layers)

    @property
    def entropy(self) -> tuple[int, ...]:
        return self.frozen_layers, int(self.embeddings_frozen)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return (cls.method, HEAD)

    def method_names(self, layers: int | None) -> tuple[str, ...]:
        if self.is_reference:  # what every method is compared with
            return ()
        is_head = self.frozen_layers == layers
        return (HEAD,) if is_head else (self.method,)

    @classmethod
    def named(cls, name: str, layers: int, settings: Any = None) -> "FreezeDepth":
        """Return the head alone; `freeze` stands for a space's depths, which it has itself."""
        assert name == HEAD
        return cls(layers, True)

    def fine_tuned_layers(self, layers: int) -> int:
        """Return k = L - N."""
        return layers - self.frozen_layers

    def relative_cost(self, layers: int, *, keeps_prefix: bool) -> float:
        """Return the cost in trials of the full model.

        With the frozen layers' output kept, fitted to bench/results/step.json, peer_rte.json and
        peer_sst2.json: the last layer works for one token only. Without, a frozen layer costs its
        forward pass, a third of a trained one.
        """
        frozen = self.frozen_layers
        if frozen == 0:
            return 1.0
        if not keeps_prefix:
            return (frozen / 3 + layers - frozen) / layers
        return max(0.003, (layers - frozen - 0.8) / (layers - 0.8))

    def describe(self, layers: int) -> str:
        """Return `all 6 layers`, `the last 2 layers`, `the last layer` or `the head alone`."""
        if self.is_embeddings_only:
            return f"all {layers} layers on frozen embeddings"
        fine_tuned = self.fine_tuned_layers(layers)
        if fine_tuned == layers:
            return f"all {layers} layers"
        if fine_tuned == 0:
            return "the head alone"
        if fine_tuned == 1:
            return "the last layer"
        return f"the last {fine_tuned} layers"

    def is_plural(self, layers: int) -> bool:
        return self.fine_tuned_layers(layers) > 1

    def name(self, layers: int) -> str:
        """Return what `describe` does, but `the full model` and `embeddings-only`."""
        if self.is_reference:
            return "the full model"
        if self.is_embeddings_only:
            return EMBEDDINGS_ONLY
        return self.describe(layers)

    def doing(self, layers: int) -> str:
        if self.is_embeddings_only:
            return "freezing the embeddings alone"
        return f"fine-tuning {self.describe(layers)}"


FULL_MODEL = FreezeDepth(0, False)

# How tables write truth, beside true and false.
_TRUE = ("true", "t", "yes", "y", "on", "1", "1.0")
_FALSE = ("false", "f", "no", "n", "off", "0", "0.0")


def _whole(value: object) -> int:
    """Return a recorded number of layers, which tables may write as `3.0`."""
    try:
        number = float(str(value))
    except ValueError:
        number = math.nan
    is_whole = number.is_integer() and abs(number) < 2**31
    if isinstance(value, bool) or not is_whole:
        raise SpaceError(f"frozen_layers is '{value}'; it must be a whole number")
    return int(number)


def _truth(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in (*_TRUE, *_FALSE):
        raise SpaceError(f"embeddings_frozen is '{value}'; it must be true or false")
    return word in _TRUE


def default_depths(layers: int) -> tuple[FreezeDepth, ...]:
    """Return the depths that a search has by default: the full model and N = floor(L/2)..L."""
    depths = [FULL_MODEL]
    for frozen_layers in range(max(1, layers // 2), layers + 1):
        depths.append(FreezeDepth(frozen_layers, True))
    return tuple(depths)
