"""A second method of adaptation, as another package would bring it: biases and head.

It is BitFit (Ben Zaken et al. 2022), with both halves in one file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from transformers import PreTrainedModel

from elsa_tune.specs.adapt import candidates
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.training.adapt.method import Method
from elsa_tune.training.adapt.trainable import Trainable, train_only
from elsa_tune.training.model.parts import divide


@candidates.register
@dataclass(frozen=True, slots=True)
class Biases(Candidate):
    """Every bias and the head train."""

    method: ClassVar[str] = "biases"
    trains_by: ClassVar[str] = "tests.biases:METHOD"
    key: ClassVar[str] = "Bbiases"
    label: ClassVar[str] = "biases"
    rank: ClassVar[float] = 100.0

    def fine_tuned_layers(self, layers: int) -> None:
        return None

    def relative_cost(self, layers: int, *, keeps_prefix: bool) -> float:
        return 0.9

    def describe(self, layers: int) -> str:
        return "the biases"

    def record(self) -> dict[str, Any]:
        return {"biases": True}

    @classmethod
    def read(cls, text: str) -> Self | None:
        return cls() if text == cls.label else None

    @classmethod
    def of_record(cls, values: Mapping[str, Any]) -> Self | None:
        return cls() if values.get("biases") else None

    def check(self, layers: int) -> Self:
        return self


class TrainBiases(Method[Biases]):
    """What it does to a model."""

    def apply(self, model: PreTrainedModel, candidate: Biases) -> Trainable:
        biases = {name for name, _ in model.named_parameters() if name.endswith(".bias")}
        return train_only(model, biases.union(divide(model).head))


METHOD = TrainBiases()
