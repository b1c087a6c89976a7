"""What every method of adaptation does to a model."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Generic, TypeVar

from transformers import PreTrainedModel

from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.training.adapt.trainable import Trainable

SomeCandidate = TypeVar("SomeCandidate", bound=Candidate)


class Method(ABC, Generic[SomeCandidate]):
    """Applies the candidates of one method to models.

    A method that adds parameters may put a module around one of the model's, in its place: what
    that holds is then called otherwise, but stays in its layer (`model/parts.py: divide`), and the
    place has the attributes that others read there (a linear layer's `out_features`). It also
    writes `merged`, which gives all their names back, and `trained_of`.
    """

    @abstractmethod
    def apply(self, model: PreTrainedModel, candidate: SomeCandidate) -> Trainable:
        """Change the model as the candidate says, in place, and return what trains of it.

        The model's tensors may be the checkpoint in memory: none is changed in place. What torch
        draws here on the CPU follows the trial's seed, whatever was drawn before. Raises SpaceError
        where the model cannot be adapted so, ModelError where it cannot be divided.
        """

    def check(self, model: PreTrainedModel, candidate: SomeCandidate) -> None:
        """Raise SpaceError where this model cannot be adapted so, before anything is trained.

        model: without memory for its weights (on the meta device), and thrown away afterwards: by
        default `apply` is tried on it. A method that needs weights for that writes its own.
        """
        self.apply(model, candidate)

    def merged(self, model: PreTrainedModel, candidate: SomeCandidate) -> None:
        """Turn an adapted and trained model into one of the base model's architecture, in place.

        It then computes the same, and has the base model's parameters and no others, as
        transformers loads them. The model's memory is its own.
        """

    def trained_of(self, model: PreTrainedModel, candidate: SomeCandidate) -> Trainable:
        """Return what was trained of an exported model, which is as `merged` leaves it.

        In parameters that the base model has, too: no other model has these tensors.
        """
        return self.apply(model, candidate)

    def save_adapter(
        self,
        folder: Path,
        adapted: PreTrainedModel,
        base: PreTrainedModel,
        candidate: SomeCandidate,
        location: str,
        revision: str | None,
    ) -> None:
        """Write what the method added, and the head, as its library loads them onto the base.

        Called where the candidate `has_adapter`. adapted: as it trained. base: the same model as it
        was before, which may be changed. location: where others find it, a folder or a name on the
        hub, with its revision.
        """
        raise NotImplementedError

    def first_trained_layer(self, candidate: SomeCandidate, layers: int) -> int:
        """Return what `apply` will find for a model of so many layers, 0 where that is not known.

        A hint: the prefixes of a search's candidates are computed in one pass, where they are known
        beforehand.
        """
        return 0
