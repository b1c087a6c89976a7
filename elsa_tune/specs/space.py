"""A search space as a YAML file, checked before a model or task is known."""

import dataclasses
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from elsa_tune.errors import SpaceError, UnknownNameError, nearest, quoted
from elsa_tune.files import expanded
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import (
    REFERENCE,
    check_told_apart,
    default_candidates,
    method_names,
    method_of_name,
    read_candidate,
)
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.adapt.lora import Lora, LoraSettings
from elsa_tune.specs.bounds import Bounds, FewCount, Seed
from elsa_tune.specs.checked import problems, read_yaml, read_yaml_file
from elsa_tune.specs.rate_space import RateList, RateRange, RateSpace, canonical_rate, check_few
from elsa_tune.specs.search import Asha, SamplerName
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import Recipe

_PACKAGE = Path(__file__).resolve().parent.parent
FROM_FULL_MODEL = "from_full_model"
_NARROWEST = 1.01  # how many times its low end the high end of a continuous range must be
# A list, as pydantic takes no configuration beside a bare dataclass.
_RANGES = TypeAdapter(list[RateRange], config=ConfigDict(extra="forbid"))


def _readable_rates(value: Any) -> Any:
    """Read a range, a list, one rate, or the words that stand for the full model's best."""
    if value == FROM_FULL_MODEL:
        return value
    if isinstance(value, dict):
        try:
            [rate_range] = _RANGES.validate_python([value])
        except ValidationError as error:
            names = {"": RateRange.__dataclass_fields__}
            raise ValueError(problems(error, names)) from error
        _check_wide(rate_range)
        return rate_range
    rates = value if isinstance(value, list) else [value]
    check_few(rates, "rates")
    try:
        has_booleans = any(isinstance(rate, bool) for rate in rates)
        if not rates or has_booleans:
            raise ValueError
        different = {canonical_rate(float(rate)) for rate in rates}
        ascending = sorted(different)
        return RateList(values=tuple(ascending))
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            "must be a rate above 0 and up to 1, a list of such rates, "
            f"{{low: .., high: .., step: ..}}, or {FROM_FULL_MODEL}, not {quoted(value)}"
        ) from error


def _check_wide(rates: RateRange) -> None:
    """Raise ValueError for a continuous range that has hardly any rates of five digits."""
    if rates.step is None and rates.high < _NARROWEST * rates.low:
        raise ValueError(
            f"low ({rates.low:g}) and high ({rates.high:g}) lie less than 1 % apart; write one rate"
        )


def _readable_depths(value: Any) -> Any:
    """Check depths as a file has them; how many layers there are is not known yet.

    Several without brackets, `0,4,6`, are a list, too: so the command line has methods.
    """
    if isinstance(value, str) and "," in value:
        value = read_yaml(f"[{value}]", yaml.SafeLoader)
    if isinstance(value, list) and value:
        check_few(value, "depths")
        for depth in value:
            _depth(depth, layers=12)
    elif value not in ("half", "all"):
        raise ValueError(
            "must be half, all, or a list of depths (frozen layers, shares such as 8/12, "
            f"embeddings), not {quoted(value)}"
        )
    return value


def _listed(value: Any) -> Any:
    """Read one method as a list of one; how the command line has several is `a,b`."""
    if isinstance(value, str):
        value = [name.strip() for name in value.split(",")]
    if value in (None, []):
        raise ValueError("must name at least one method, such as freeze")
    for name in value if isinstance(value, list) else ():
        _check_method(name)
    return value


def _check_method(name: Any) -> None:
    """Raise ValueError for what is no method's name."""
    if isinstance(name, str) and method_of_name(name) is not None:
        return
    known = method_names()
    hint = ""
    try:
        label = read_candidate(name).label
        hint = f", which is named in depths: depths=[0,{label}]"
    except SpaceError:
        near = nearest(str(name), known)
        if near:
            hint = f": did you mean '{near}'?"
    raise ValueError(f"must be one of {', '.join(known)}, not {quoted(name)}{hint}")


class Space(BaseModel):
    """Every field of a search space, with its default; `--set key=value` sets any of them.

    docs/reference/spaces.md describes them for users.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    # Shares of L are rounded down.
    depths: Annotated[
        Literal["half", "all"] | list[int | str], BeforeValidator(_readable_depths)
    ] = "half"
    # Which ways are compared: `freeze` means the depths, which a comparison may do without.
    methods: Annotated[list[str], BeforeValidator(_listed)] = [FreezeDepth.method]
    lora: LoraSettings = LoraSettings()  # how LoRA adapts, where `methods` names it
    learning_rate: Annotated[
        RateSpace | Literal["from_full_model"], BeforeValidator(_readable_rates)
    ] = RateRange(low=1e-5, high=5e-5, step=1e-5)
    # What the full model explores, where the others take its best rate (FROM_FULL_MODEL).
    full_model_learning_rate: Annotated[RateSpace, BeforeValidator(_readable_rates)] | None = None
    # `even` measures every depth with `seeds` seeds; `hunt` those that can decide whether they keep
    # `target` of the full model's quality, with as many seeds as that takes.
    strategy: str = "even"
    strategy_settings: dict[str, Any] = {}  # of a strategy that has any, which checks them
    target: Annotated[float, Bounds(gt=0, le=1)] = 0.9
    thorough: bool = False  # whether a hunt takes every second look that may certify
    tries: FewCount | None = None  # exploring trials per depth; None: 2, of a list at most all
    extend: bool = True  # whether to go on outward from a best rate at the border
    sampler: SamplerName = SamplerName.TPE
    asha: Asha | None = Asha()  # when exploring trials stop early; None: never
    seeds: FewCount = 3  # measuring trials per depth
    seed: Seed = 0  # where all seeds are counted from
    linear_probe: bool = True
    epochs: FewCount | None = None  # None: the model's default
    metric: Metric | None = None  # None: the task's
    revision: str | None = None  # of a model on the hub
    training: Recipe  # every other field of a file

    @model_validator(mode="before")
    @classmethod
    def _with_training(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Gather the recipe's fields, which a file has beside the others."""
        own: dict[str, Any] = {}
        recipe: dict[str, Any] = {"standardize_targets": True}
        for name, value in values.items():
            if name in OWN_FIELDS:
                own[name] = value
            else:
                recipe[str(name)] = value
        return {**own, "training": recipe}

    @model_validator(mode="after")
    def _one_way_to_the_rate(self) -> Self:
        has_full_model_rates = self.full_model_learning_rate is not None
        if self.follows_full_model != has_full_model_rates:
            raise ValueError(
                f"full_model_learning_rate and learning_rate: {FROM_FULL_MODEL} go together: "
                "the first says which rates to try on the full model, the second uses the best one"
            )
        if self.sampler is SamplerName.GRID and self.rates.values is None:
            raise ValueError("sampler grid needs rates in steps or a list; give the range a step")
        return self

    def candidates_for(self, layers: int) -> tuple[Candidate, ...]:
        """Return what is compared on a model with L layers, each once, in the order of tests.

        Raises SpaceError for what such a model has not.
        """
        different: set[Candidate] = {REFERENCE}
        if FreezeDepth.method in self.methods:
            different = set(self._depths_for(layers))
        different.update(self._other_ways(layers))
        candidates = tuple(sorted(different))
        check_told_apart(candidates)
        return candidates

    def _other_ways(self, layers: int) -> Iterator[Candidate]:
        """Yield what `methods` name beside the depths."""
        settings = {Lora.method: self.lora}
        for name in self.methods:
            method = method_of_name(name)
            assert method is not None  # `_check_method` saw to it
            if name != FreezeDepth.method:
                way = method.named(name, layers, settings.get(method.method))
                yield way.check(layers)

    def _depths_for(self, layers: int) -> tuple[Candidate, ...]:
        if self.depths == "half":
            return default_candidates(layers)
        if self.depths == "all":
            frozen = range(1, layers + 1)
            return (REFERENCE, *map(read_candidate, frozen))
        different: set[Candidate] = set()
        for depth in self.depths:
            candidate = _depth(depth, layers)
            different.add(candidate.check(layers))
        return tuple(different)

    @property
    def follows_full_model(self) -> bool:
        """Whether only the full model is explored, and every depth uses its best rate."""
        return self.learning_rate == FROM_FULL_MODEL

    @property
    def rates(self) -> RateSpace:
        """The learning rates that are explored."""
        rates: object = self.learning_rate
        if self.follows_full_model:
            rates = self.full_model_learning_rate
        assert isinstance(rates, RateRange | RateList)  # the validator saw to it
        return rates

    def rates_for(self, candidate: Candidate) -> RateSpace:
        """Return the learning rates that a candidate explores: its own, if it has any."""
        return candidate.rates or self.rates

    def recipe(self, default_epochs: int) -> Recipe:
        """Return how every trial trains, on a model with this default of epochs."""
        epochs = self.epochs or default_epochs
        return dataclasses.replace(self.training, epochs=epochs)


OWN_FIELDS = frozenset(Space.model_fields) - {"training"}
# The names of fields, by the field that holds them; "" for a file's own.
FIELDS = {
    "": OWN_FIELDS | Recipe.__dataclass_fields__.keys(),
    "asha": Asha.__dataclass_fields__.keys(),
    "lora": LoraSettings.__dataclass_fields__.keys(),
}


def _depth(text: Any, layers: int) -> Candidate:
    """Return the candidate that a space's depth names, for a model with L layers."""
    if isinstance(text, str) and "/" in text:
        try:
            share = Fraction(text)
        except (ValueError, ZeroDivisionError):
            share = Fraction(-1)
        is_share = 0 <= share <= 1
        if not is_share:
            raise SpaceError(f"depth '{text}' is no share of the layers; write e.g. 8/12")
        frozen = int(share * layers)
        return read_candidate(frozen)
    if not isinstance(text, int | str):
        raise SpaceError(f"depth {quoted(text)} is no number of layers; write e.g. 6 or 8/12")
    return read_candidate(text)


def load_space(path: str | Path, overrides: Sequence[str] = ()) -> Space:
    """Read a YAML file, or a shipped space by its name; then apply overrides.

    overrides: `key=value` or `key.inner=value`. Raises SpaceError naming file, fields, what came
    and what is allowed.
    """
    file = _find(str(path))
    try:
        fields = read_yaml_file(file, yaml.SafeLoader)
    except (OSError, ValueError) as error:
        raise SpaceError(f"search space {path} cannot be read: {error}") from error
    if fields is None:  # an empty file
        fields = {}
    if not isinstance(fields, dict):
        raise SpaceError(f"search space {path} must be a table of `field: value` lines")
    for override in overrides:
        _apply(fields, override)
    try:
        return Space.model_validate(fields)
    except ValidationError as error:
        what = problems(error, FIELDS, inlined="training")
        raise SpaceError(f"search space {path}: {what}") from error


def shipped_spaces() -> dict[str, Path]:
    """Return the absolute paths of the shipped search spaces by name.

    A wheel has them inside the package, a checkout beside it. Raises SpaceError if neither does.
    """
    for folder in (_PACKAGE / "search_spaces", _PACKAGE.parent / "search_spaces"):
        if folder.is_dir():
            return {file.stem: file for file in sorted(folder.glob("*.yaml"))}
    raise SpaceError(
        f"the shipped search spaces are neither in {_PACKAGE} nor beside it; "
        "install elsa-tune again, or give `space` the path of your own file"
    )


def _find(path: str) -> Path:
    file = expanded(path)
    if file.is_file():
        return file
    shipped = shipped_spaces()
    # `search_spaces/quick.yaml` is understood from any folder, and so is plain `quick`.
    is_shipped_name = file.parent in (Path("."), Path("search_spaces"))
    if is_shipped_name and file.suffix in ("", ".yaml") and file.stem in shipped:
        return shipped[file.stem]
    raise UnknownNameError.among("search space", path, shipped, hint="Or give a YAML file's path.")


def _apply(fields: dict[str, Any], override: str) -> None:
    """Set the field that an override names; its parents become tables."""
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise SpaceError(f"`set` {override}: write it as key=value, as in epochs=6")
    *parents, last = key.strip().split(".")
    table = fields
    for parent in parents:
        if not isinstance(table.get(parent), dict):
            table[parent] = {}
        table = table[parent]
    try:
        table[last] = read_yaml(text, yaml.SafeLoader)
    except ValueError as error:
        raise SpaceError(f"`set` {override}: it is not a YAML value: {error}") from error
