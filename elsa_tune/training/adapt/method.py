"""What every method of adaptation does to a model."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from transformers import PreTrainedModel

from elsa_tune.specs.adaptation import Candidate
from elsa_tune.training.adapt.trainable import Trainable

SomeCandidate = TypeVar("SomeCandidate", bound=Candidate)


class Method(ABC, Generic[SomeCandidate]):
    """Applies the candidates of one method to models."""

    @abstractmethod
    def apply(self, model: PreTrainedModel, candidate: SomeCandidate) -> Trainable:
        """Change the model as the candidate says, in place, and return what trains of it.

        Raises SpaceError where the model cannot be adapted so, ModelError where it cannot be
        divided.
        """

    def first_trained_layer(self, candidate: SomeCandidate, layers: int) -> int:
        """Return what `apply` will find for a model of so many layers, 0 where that is not known.

        A hint: the prefixes of a search's candidates are computed in one pass, where they are known
        beforehand.
        """
        return 0
