"""BitFit as a way to adapt a model: its biases alone (Ben Zaken et al. 2022)."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.rate_space import RateRange


@dataclass(frozen=True, slots=True)
class BitFit(Candidate):
    """Every bias trains, of linear layers and of norms, and the head.

    As in the paper, that of the embeddings' norm does too, so that nothing of the model's output
    can be kept.
    """

    method: ClassVar[str] = "bitfit"
    trains_by: ClassVar[str] = "elsa_tune.training.adapt.bitfit:METHOD"
    key: ClassVar[str] = "bitfit"
    label: ClassVar[str] = "bitfit"
    # Behind every depth, and far from LoRA.
    rank: ClassVar[float] = 900.0

    @property
    def is_ranked(self) -> bool:
        return False

    @property
    def rates(self) -> RateRange:
        """Higher ones than of full fine-tuning; a search goes on outward from there."""
        return RateRange(low=1e-4, high=1e-3)

    @property
    def card(self) -> str:
        return "All but biases and head is the base model's, bit for bit."

    def fine_tuned_layers(self, layers: int) -> None:
        return None

    def relative_cost(self, layers: int, *, keeps_prefix: bool) -> float:
        """Return the cost in trials of the full model, by bench/results/ways_step.json."""
        return 0.68

    def describe(self, layers: int) -> str:
        return "the biases"

    def record(self) -> dict[str, Any]:
        return {"bitfit": True}

    @classmethod
    def read(cls, text: str) -> Self | None:
        if text == cls.label:
            return cls()
        if text.startswith(f"{cls.label}-"):
            raise SpaceError(f"'{text}' is no label: BitFit has no settings; write {cls.label}")
        return None

    @classmethod
    def of_record(cls, values: Mapping[str, Any]) -> Self | None:
        if str(values.get("bitfit")).lower() == "true":
            return cls()
        return None

    def check(self, layers: int) -> Self:
        return self
