"""A candidate: one way to adapt a model, which a search compares with the full model.

A method of adaptation is a subclass of `Candidate` in a file of this folder, registered in
`candidates.py`, and the `Method` in `training/adapt/` that it names, which applies it to a model.
Planning, record, analysis and report know what this class declares, and nothing else.
"""

import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from elsa_tune.specs.rate_space import RateSpace


class Candidate(ABC):
    """One way to adapt a model: a frozen, hashable value, equal to whatever adapts it alike."""

    __slots__ = ()

    # The method's name in records; users see `method_names`.
    method: ClassVar[str]
    # The `Method` that applies it to a model, as `module:NAME`; "" for what nobody here trains.
    trains_by: ClassVar[str] = ""
    # A label as a message may show it, beside those of other methods; "": the method's name.
    example: ClassVar[str] = ""
    # What the method takes beside elsa-tune, as pip calls it: recorded, and the same on all nodes.
    packages: ClassVar[tuple[str, ...]] = ()
    # Whether `export --adapter` can write what was added to the model, by `Method.save_adapter`.
    has_adapter: ClassVar[bool] = False

    @property
    @abstractmethod
    def key(self) -> str:
        """Its stable name in the keys of trials, such as `N9`; letters, digits, `-` and `_`."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What YAML, the command line and tables call it, such as `9`: the inverse of `read`.

        Without capitals, for labels are read without them, and without `/`, which writes a share of
        the layers; and no number, which is a depth.
        """

    @property
    @abstractmethod
    def rank(self) -> float:
        """Its place in the order of tests: 0 for the full model, the higher the cheaper.

        The cheapest that keeps the target is the answer; tests end at the first that fails. Within
        a family near ranks are taken for near candidates, whose learning rates are alike. Those of
        one rank are ordered by their keys.
        """

    @property
    def is_reference(self) -> bool:
        """Whether it is the full model, with which every other candidate is compared."""
        return False

    @property
    def is_depth(self) -> bool:
        """Whether it is a freeze depth, so that a number of frozen layers tells all of it."""
        return False

    @property
    def is_tested(self) -> bool:
        """Whether it may be the operating point; what is only drawn beside the curve may not."""
        return True

    @property
    def is_ranked(self) -> bool:
        """Whether it has a place in the order of tests, and so is a point of the freeze curve.

        What has none is compared with everything else by its cost (`analysis/comparing/`); the
        curve, its spread and its certificate are the same with or without it.
        """
        return True

    @property
    def is_in_order_of_tests(self) -> bool:
        """Whether the freeze curve's tests come to it: it has a place, and may be their answer."""
        return self.is_tested and self.is_ranked

    @property
    def entropy(self) -> tuple[int, ...]:
        """Whole numbers, 0 or more, from which what is random about it is seeded."""
        return (zlib.crc32(self.key.encode()),)

    @property
    def family(self) -> str:
        """Whose learning rates tell of one another, by a name: by default its method's."""
        return self.method

    @property
    def rates(self) -> RateSpace | None:
        """The learning rates to begin with; None for those that the search was given."""
        return None

    @property
    def short(self) -> str:
        """Its label where there is little room, as below an axis."""
        return self.label

    @property
    def snippet(self) -> str:
        """The Python call that adapts a user's own model so, "" where there is none."""
        return ""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """Return how spaces' `methods`, tables and users name the method.

        It may have several names, for several kinds of candidates: FreezeDepth has `freeze` and
        `head`.
        """
        return (cls.method,)

    def method_names(self, layers: int | None) -> tuple[str, ...]:
        """Return which of these names name this candidate.

        layers: of the model, None where they are not known.
        """
        return self.names()

    @classmethod
    def named(cls, name: str, layers: int, settings: Any = None) -> "Candidate":
        """Return what one of these names adds to a comparison, for a model with L layers.

        By default the candidate of the method's `example`. settings: the value of the space's field
        that is called as the method is (`lora`), None where there is no such field. Raises
        SpaceError for what such a model has not.
        """
        candidate = cls.read(cls.example or cls.method)
        assert candidate is not None  # `register` saw to it
        return candidate

    @abstractmethod
    def fine_tuned_layers(self, layers: int) -> int | None:
        """Return k, how many of the model's last layers it trains.

        None where a number of last layers does not tell it.
        """

    @abstractmethod
    def relative_cost(self, layers: int, *, keeps_prefix: bool) -> float:
        """Return what a trial costs, in trials of the full model.

        keeps_prefix: whether the output of the layers below the first trained one is kept.
        """

    @abstractmethod
    def describe(self, layers: int) -> str:
        """Return what is trained in words that a sentence can begin with: `the last 2 layers`."""

    def is_plural(self, layers: int) -> bool:
        """Return whether `describe` takes its verb in the plural: `the biases alone keep`."""
        return True

    def name(self, layers: int) -> str:
        """Return what a sentence calls it among others; by default as `describe` does."""
        return self.describe(layers)

    def doing(self, layers: int) -> str:
        """Return what is done to the model: `fine-tuning the biases alone`."""
        return f"fine-tuning {self.describe(layers)}"

    @property
    def card(self) -> str:
        """What its model's card says of what the base model has alike; "" for nothing."""
        return ""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """Return what search.json, journal and MLflow keep of it: the inverse of `of_record`.

        MLflow gives values back as texts. The names must be its method's own: they share a table
        with the trial's facts (`TrialFacts`, the recipe's fields) and, in an exported model's
        configuration, with those of `training/saved.py`.
        """

    @classmethod
    @abstractmethod
    def read(cls, text: str) -> Self | None:
        """Return the candidate of this label, None where it is another method's.

        Raises SpaceError for a label that is this method's and wrong.
        """

    @classmethod
    @abstractmethod
    def of_record(cls, values: Mapping[str, Any]) -> Self | None:
        """Return the candidate that `record` described, None where it is another method's.

        Raises SpaceError for a record of this method that names no candidate.
        """

    @abstractmethod
    def check(self, layers: int) -> Self:
        """Return self if a model with so many layers can be adapted so, else raise SpaceError."""

    def __lt__(self, other: "Candidate") -> bool:
        """Order candidates as they are tested, those of one rank by their keys."""
        return (self.rank, self.key) < (other.rank, other.key)
