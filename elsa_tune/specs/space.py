"""A search space as a YAML file, checked once at the border.

It must not know a model or a task: what depends on them (depths as shares of L, default epochs)
stays open here and is settled when a search is planned.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from elsa_tune.errors import SpaceError, UnknownNameError, quoted
from elsa_tune.specs.checked import read_yaml
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth, default_depths
from elsa_tune.specs.search import Asha, RateList, RateRange, Rates, SamplerName
from elsa_tune.specs.shipped import search_space_folder
from elsa_tune.specs.task import Metric
from elsa_tune.specs.trial import (
    Pooling,
    Precision,
    PrefixCache,
    Recipe,
    Selection,
    canonical_rate,
)

Rate = Annotated[float, Field(gt=0, le=1)]
FROM_FULL_MODEL = "from_full_model"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class RateRangeFields(_Strict):
    """`{low: 1e-5, high: 5e-5, step: 1e-5}`, or without a step log-uniform between the two."""

    low: Rate
    high: Rate
    step: Rate | None = None

    @model_validator(mode="after")
    def _ordered(self) -> RateRangeFields:
        if self.low >= self.high:
            raise ValueError(f"low ({self.low:g}) must be below high ({self.high:g})")
        if self.step is not None and self.step > self.high - self.low:
            raise ValueError(f"step ({self.step:g}) must fit between low and high")
        return self


class AshaFields(_Strict):
    """See `specs.search.Asha`; without a grace it is half of a trial's evaluations."""

    grace: int | None = Field(None, ge=1)
    reduction_factor: float = Field(2.0, gt=1)


def _readable_rate(value: Any) -> Any:
    """Refuse what no branch of the union takes in one sentence instead of one per branch."""
    try:
        if isinstance(value, bool):
            raise ValueError("true and false are no rates")
        if isinstance(value, dict):
            return RateRangeFields.model_validate(value)
        if isinstance(value, list) and value:
            return [canonical_rate(float(rate)) for rate in value]
        if isinstance(value, RateRangeFields) or value in (None, FROM_FULL_MODEL):
            return value
        return canonical_rate(float(value))
    except ValidationError as error:
        problems = [
            ".".join(map(str, problem["loc"])) + " " + problem["msg"].removeprefix("Value error, ")
            for problem in error.errors()
        ]
        raise ValueError("; ".join(problems).strip()) from error
    except (TypeError, ValueError, SpaceError) as error:
        raise ValueError(
            "it must be a rate above 0 and up to 1, a list of such rates, "
            f"{{low: .., high: .., step: ..}}, or {FROM_FULL_MODEL}"
        ) from error


RateField = Annotated[
    Literal["from_full_model"] | RateRangeFields | float | list[float] | None,
    BeforeValidator(_readable_rate),
]


class Space(_Strict):
    """Every field of a search space, with its default; `--set key=value` sets any of them.

    depths: `half` (the full model and N = L/2..L), `all` (0..L), or a list of frozen-layer counts,
    shares of L such as `8/12` (rounded down), and `embeddings`. epochs: None takes the model's
    default. extend: a depth whose best rate lies at the border of those given goes on outward.
    linear_probe: a linear model on what the frozen encoder gives is tried too, as a floor. The
    remaining fields are those of `Recipe`.
    """

    depths: Literal["half", "all"] | list[int | str] = "half"
    learning_rate: RateField = RateRangeFields(low=1e-5, high=5e-5, step=1e-5)
    full_model_learning_rate: RateField = None
    tries: int = Field(3, ge=1)
    extend: bool = True
    sampler: SamplerName = SamplerName.TPE
    asha: AshaFields | None = AshaFields(grace=None, reduction_factor=2.0)
    seeds: int = Field(3, ge=1)
    seed: int = Field(0, ge=0, lt=2**31)
    linear_probe: bool = True

    epochs: int | None = Field(None, ge=1)
    batch_size: int = Field(16, ge=1)
    eval_batch_size: int = Field(64, ge=1)
    max_length: int = Field(128, ge=8)
    train_size: int | None = Field(None, ge=1)
    subset_seed: int = Field(0, ge=0, lt=2**31)
    warmup_ratio: float = Field(0.1, ge=0, le=1)
    weight_decay: float = Field(0.01, ge=0, lt=1)
    max_grad_norm: float = Field(1.0, gt=0)
    evaluations_per_epoch: int = Field(1, ge=1)
    frozen_dropout: bool = False
    precision: Precision = Precision.AUTO
    prefix_cache: PrefixCache = PrefixCache.FP32
    selection: Selection = Selection.LAST
    holdout: float | None = Field(None, gt=0, le=0.5)
    pooling: Pooling = Pooling.HEAD
    standardize_targets: bool = True
    metric: Metric | None = None
    revision: str | None = None

    @field_validator("depths")
    @classmethod
    def _readable_depths(cls, depths: str | list[int | str]) -> str | list[int | str]:
        if isinstance(depths, str):
            return depths
        if not depths:
            raise ValueError("the list is empty; give at least one depth")
        for depth in depths:
            try:
                _depth(depth, layers=12)
            except SpaceError as error:
                raise ValueError(str(error)) from error  # so that the file and field are named
        return depths

    @model_validator(mode="after")
    def _one_way_to_the_rate(self) -> Space:
        if self.learning_rate is None or self.full_model_learning_rate == FROM_FULL_MODEL:
            raise ValueError("learning_rate must be given, and full_model_learning_rate in rates")
        if self.sampler is SamplerName.GRID and self.rates_are_continuous:
            raise ValueError("sampler grid needs rates in steps or a list; give the range a step")
        follows = self.learning_rate == FROM_FULL_MODEL
        if follows != (self.full_model_learning_rate is not None):
            raise ValueError(
                f"full_model_learning_rate and learning_rate: {FROM_FULL_MODEL} go together: "
                "the first says which rates to try on the full model, the second uses the best one"
            )
        return self

    def depths_for(self, layers: int) -> tuple[FreezeDepth, ...]:
        """The depths for a model of L layers, shallowest first, each once. SpaceError when one is
        above L.
        """
        if self.depths == "half":
            return default_depths(layers)
        if self.depths == "all":
            return (FULL_MODEL, *(FreezeDepth(n, True) for n in range(1, layers + 1)))
        return tuple(sorted({_depth(depth, layers).check(layers) for depth in self.depths}))

    @property
    def rates_are_continuous(self) -> bool:
        """The range that exploring trials choose from has no step."""
        ranges = (self.learning_rate, self.full_model_learning_rate)
        return any(isinstance(rate, RateRangeFields) and rate.step is None for rate in ranges)

    @property
    def follows_full_model(self) -> bool:
        """Only the full model is explored; every depth then uses its best rate."""
        return self.learning_rate == FROM_FULL_MODEL

    @property
    def rates(self) -> Rates:
        """The learning rates that exploring trials choose from."""
        field = self.full_model_learning_rate if self.follows_full_model else self.learning_rate
        assert field is not None and not isinstance(field, str)  # the validator saw to it
        if isinstance(field, RateRangeFields):
            return RateRange(low=field.low, high=field.high, step=field.step)
        values = field if isinstance(field, list) else [field]
        return RateList(values=tuple(sorted({canonical_rate(value) for value in values})))

    def asha_setting(self, evaluations: int) -> Asha | None:
        """ASHA's settings for trials of so many evaluations, None where it is off."""
        if self.asha is None:
            return None
        grace = self.asha.grace or math.ceil(evaluations / 2)
        return Asha(grace=grace, reduction_factor=self.asha.reduction_factor)

    def recipe(self, default_epochs: int) -> Recipe:
        """How every trial trains."""
        return Recipe(
            epochs=self.epochs or default_epochs,
            batch_size=self.batch_size,
            eval_batch_size=self.eval_batch_size,
            max_length=self.max_length,
            train_size=self.train_size,
            subset_seed=self.subset_seed,
            warmup_ratio=self.warmup_ratio,
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
            evaluations_per_epoch=self.evaluations_per_epoch,
            frozen_dropout=self.frozen_dropout,
            prefix_cache=self.prefix_cache,
            precision=self.precision,
            selection=self.selection,
            holdout=self.holdout,
            pooling=self.pooling,
            standardize_targets=self.standardize_targets,
        )


def _depth(text: int | str, layers: int) -> FreezeDepth:
    if isinstance(text, str) and "/" in text:
        try:
            share = Fraction(text)
        except (ValueError, ZeroDivisionError):
            share = Fraction(-1)
        if not 0 <= share <= 1:
            raise SpaceError(f"depth '{text}' is no share of the layers; write e.g. 8/12")
        return FreezeDepth.of(int(share * layers))
    return FreezeDepth.of(text)


def load_space(path: str | Path, overrides: Sequence[str] = ()) -> Space:
    """Read a YAML file, or a shipped space by its name, and apply `key=value` overrides (dots go
    deeper).

    Raises SpaceError naming file, field, what came and what is allowed.
    """
    file = _find(str(path))
    try:
        fields = read_yaml(file.read_text(encoding="utf-8"), yaml.SafeLoader)
    except (OSError, ValueError) as error:
        raise SpaceError(f"search space {path} cannot be read: {error}") from error
    if fields is None:
        fields = {}
    if not isinstance(fields, dict):
        raise SpaceError(f"search space {path} must be a table of `field: value` lines")
    for override in overrides:
        _apply(fields, override)
    return _validated(fields, str(path))


def _find(path: str) -> Path:
    file = Path(path)
    if file.is_file():
        return file
    shipped = {file.stem: file for file in sorted(search_space_folder().glob("*.yaml"))}
    # `search_spaces/quick.yaml` is understood from any folder, and so is plain `quick`.
    is_shipped_name = file.parent in (Path("."), Path("search_spaces"))
    if is_shipped_name and file.suffix in ("", ".yaml") and file.stem in shipped:
        return shipped[file.stem]
    raise UnknownNameError.among("search space", path, shipped, hint="Or give a YAML file's path.")


def _apply(fields: dict[str, Any], override: str) -> None:
    key, equals, text = override.partition("=")
    if not equals or not key.strip():
        raise SpaceError(f"--set {override}: write it as key=value, e.g. --set epochs=6")
    *parents, last = key.strip().split(".")
    table = fields
    for parent in parents:
        inner = table.get(parent)
        if not isinstance(inner, dict):
            inner = {}
            table[parent] = inner
        table = inner
    try:
        table[last] = read_yaml(text, yaml.SafeLoader)
    except ValueError as error:
        raise SpaceError(f"--set {override}: '{text}' is not a YAML value") from error


def _validated(fields: dict[str, Any], source: str) -> Space:
    try:
        return Space.model_validate(fields)
    except ValidationError as error:
        raise SpaceError(_sentence(error, source)) from error


def _sentence(error: ValidationError, source: str) -> str:
    """One problem, in words: file, field, what came, what is allowed."""
    problems = error.errors(include_url=False)
    first = problems[0]
    # A union reports every branch; the last location parts are pydantic's names of the branches.
    path = [str(part) for part in first["loc"]]
    field = path[0] if path else ""
    if first["type"] == "extra_forbidden":
        known = list(Space.model_fields)
        if len(path) == 1:
            near = difflib.get_close_matches(field, known, n=1)
            hint = f"did you mean '{near[0]}'? " if near else ""
            return f"{source}: unknown field '{field}': {hint}fields are {', '.join(known)}"
        return f"{source}: unknown field '{'.'.join(path)}'"
    field = ".".join(part for part in path if part.isidentifier() and part.islower())
    reasons = []
    for problem in problems:
        if problem["loc"][:1] == first["loc"][:1]:
            reason = problem["msg"].removeprefix("Value error, ")
            reason = reason.replace("Input should be", "it must be")
            if reason not in reasons:
                reasons.append(reason)
    where = f"field '{field}'" if field else "its fields do not fit together:"
    came = f" came as {quoted(first['input'])};" if field else ""
    return f"{source}: {where}{came} {'; or '.join(reasons)}"
