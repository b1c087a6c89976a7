"""How deep a model is frozen: the one value that every floor uses to name a depth."""

import re
from dataclasses import dataclass
from typing import Self

from elsa_tune.errors import SpaceError

EMBEDDINGS = "embeddings"


@dataclass(frozen=True, slots=True, order=True)
class FreezeDepth:
    """Frozen layers N in 0..L, and whether the embedding side is frozen.

    N = 0 with trained embeddings is the full model; N = 0 with frozen embeddings is
    "embeddings-only"; N >= 1 always freezes the embeddings too.
    Ordering is by depth: full model < embeddings-only < N = 1 < ... < N = L.
    """

    frozen_layers: int
    embeddings_frozen: bool

    def __post_init__(self) -> None:
        if self.frozen_layers < 0:
            raise SpaceError(f"frozen_layers is {self.frozen_layers}; it must be 0 or more")
        if self.frozen_layers > 0 and not self.embeddings_frozen:
            raise SpaceError("with one or more frozen layers the embeddings are frozen too")

    @classmethod
    def of(cls, frozen_layers: int | str) -> Self:
        """Read 0, 1, ... or `embeddings`, as YAML and the command line write a depth."""
        text = str(frozen_layers).strip().lower()
        if text == EMBEDDINGS:
            return cls(0, True)
        if not re.fullmatch(r"-?[0-9]+", text):
            raise SpaceError(
                f"frozen_layers is '{frozen_layers}'; it must be a whole number or '{EMBEDDINGS}'"
            )
        return cls(int(text), int(text) > 0)

    def check(self, layers: int) -> Self:
        """Return self if the model has that many layers (L >= 1), else raise SpaceError."""
        if self.frozen_layers > layers:
            raise SpaceError(
                f"frozen_layers is {self.frozen_layers}, but the model has {layers} layers; "
                f"it must be 0..{layers} or '{EMBEDDINGS}'"
            )
        return self

    @property
    def is_full_model(self) -> bool:
        return not self.embeddings_frozen

    @property
    def is_embeddings_only(self) -> bool:
        """The embeddings are frozen and every layer is trained."""
        return self.embeddings_frozen and self.frozen_layers == 0

    @property
    def label(self) -> str:
        """`0`, `3`, ... or `embeddings`: the inverse of `of`."""
        return EMBEDDINGS if self.is_embeddings_only else str(self.frozen_layers)

    def fine_tuned_layers(self, layers: int) -> int:
        """k = L - N."""
        return layers - self.frozen_layers


FULL_MODEL = FreezeDepth(0, False)


def default_depths(layers: int) -> tuple[FreezeDepth, ...]:
    """The depths a search looks at unless told otherwise: the full model and N = floor(L/2)..L."""
    first = max(1, layers // 2)
    return (FULL_MODEL, *(FreezeDepth(n, True) for n in range(first, layers + 1)))
