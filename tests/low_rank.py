"""A method that adds parameters, as another package would bring it: LoRA on query and value.

Hu et al. 2022. Both halves; nothing else of elsa-tune knows of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt import candidates
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.rate_space import RateRange
from elsa_tune.training.adapt.method import Method
from elsa_tune.training.adapt.trainable import Trainable, train_only
from elsa_tune.training.model.parts import divide, layer_list

# What architectures call the projections to query and value.
PROJECTIONS = ("query", "value", "q_lin", "v_lin", "q", "v")
ALPHA = 16


@candidates.register
@dataclass(frozen=True, slots=True)
class LowRank(Candidate):
    """Two narrow matrices beside each projection to query and value train, and the head."""

    method: ClassVar[str] = "low_rank"
    trains_by: ClassVar[str] = "tests.low_rank:METHOD"
    example: ClassVar[str] = "low8"
    packages: ClassVar[tuple[str, ...]] = ("numpy",)  # as if it took that alone
    has_adapter: ClassVar[bool] = True

    width: int  # what LoRA calls its rank
    first: int = 0  # the layer, from 0, in which it begins

    @property
    def key(self) -> str:
        return f"L{self.label}"

    @property
    def label(self) -> str:
        return f"low{self.width}" + (f"-from{self.first}" if self.first else "")

    @property
    def rank(self) -> float:
        return 100 + self.first + 1 / (1 + self.width)

    @property
    def rates(self) -> RateRange:
        return RateRange(low=1e-4, high=2e-3)

    def fine_tuned_layers(self, layers: int) -> None:
        return None

    def relative_cost(self, layers: int, *, keeps_prefix: bool) -> float:
        return 0.8

    def describe(self, layers: int) -> str:
        return f"LoRA of rank {self.width}" + (f" from layer {self.first}" if self.first else "")

    def is_plural(self, layers: int) -> bool:
        return False

    def record(self) -> dict[str, Any]:
        return {"low_rank_width": self.width, "low_rank_first": self.first}

    @classmethod
    def read(cls, text: str) -> Self | None:
        match = re.fullmatch(r"low([0-9]+)(?:-from([0-9]+))?", text)
        if match is None:
            return None
        if int(match[1]) == 0:
            raise SpaceError(f"'{text}' has no rank; write e.g. {cls.example}")
        return cls(int(match[1]), int(match[2] or 0))

    @classmethod
    def of_record(cls, values: Mapping[str, Any]) -> Self | None:
        if not values.get("low_rank_width"):
            return None
        return cls(int(values["low_rank_width"]), int(values["low_rank_first"]))

    def check(self, layers: int) -> Self:
        if self.first >= layers:
            raise SpaceError(f"'{self.label}' begins behind the last of {layers} layers")
        return self


class LowRankLinear(nn.Linear):
    """A projection with its two matrices; what it had keeps its name."""

    def __init__(self, base: nn.Linear, width: int) -> None:
        nn.Module.__init__(self)
        self.in_features = base.in_features
        self.out_features = base.out_features
        self.weight = base.weight
        self.bias = base.bias
        self.low_a = nn.Parameter(torch.empty(width, base.in_features))
        self.low_b = nn.Parameter(torch.zeros(base.out_features, width))
        nn.init.kaiming_uniform_(self.low_a, a=5**0.5)

    def forward(self, inputs: Tensor) -> Tensor:
        scale = ALPHA / len(self.low_a)
        return super().forward(inputs) + scale * inputs @ self.low_a.T @ self.low_b.T

    def plain(self) -> nn.Linear:
        """Return a linear module that computes the same."""
        with torch.device("meta"):
            linear = nn.Linear(self.in_features, self.out_features)
        scale = ALPHA / len(self.low_a)
        linear.weight = nn.Parameter(self.weight + scale * self.low_b @ self.low_a)
        linear.bias = self.bias
        return linear


class AddLowRank(Method[LowRank]):
    """What it does to a model."""

    def apply(self, model: PreTrainedModel, candidate: LowRank) -> Trainable:
        trained = set(divide(model).head)
        for name, linear in projections(model, candidate):
            model.set_submodule(name, LowRankLinear(linear, candidate.width))
            trained |= {f"{name}.low_a", f"{name}.low_b"}
        return train_only(model, trained)

    @torch.no_grad()
    def merged(self, model: PreTrainedModel, candidate: LowRank) -> None:
        for name, linear in projections(model, candidate):
            assert isinstance(linear, LowRankLinear)
            model.set_submodule(name, linear.plain())

    def trained_of(self, model: PreTrainedModel, candidate: LowRank) -> Trainable:
        names = {f"{name}.weight" for name, _ in projections(model, candidate)}
        return train_only(model, names.union(divide(model).head))

    def save_adapter(
        self,
        folder: Path,
        adapted: PreTrainedModel,
        base: PreTrainedModel,
        candidate: LowRank,
        location: str,
        revision: str | None,
    ) -> None:
        values = {}
        for name, parameter in adapted.named_parameters():
            if parameter.requires_grad:
                values[name] = parameter.detach()
        torch.save(values, folder / "low_rank.pt")

    def first_trained_layer(self, candidate: LowRank, layers: int) -> int:
        return candidate.first


def projections(model: PreTrainedModel, candidate: LowRank) -> list[tuple[str, nn.Linear]]:
    """Return the projections by name. Raises SpaceError where a layer has no two of them."""
    layers = list(layer_list(model))
    wanted: dict[int, nn.Module] = {}
    for layer in layers[candidate.first :]:
        here = list(_of_layer(layer))
        if len(here) != 2:
            raise SpaceError(
                f"'{candidate.label}' needs projections to query and value, which the "
                f"architecture '{model.config.model_type}' has not apart"
            )
        wanted |= {id(module): module for module in here}
    found = []
    for name, module in model.named_modules():
        if id(module) in wanted:
            assert isinstance(module, nn.Linear)
            found.append((name, module))
    return found


def _of_layer(layer: nn.Module) -> Iterator[nn.Module]:
    for name, module in layer.named_modules():
        if isinstance(module, nn.Linear) and name.rpartition(".")[2] in PROJECTIONS:
            yield module


METHOD = AddLowRank()
