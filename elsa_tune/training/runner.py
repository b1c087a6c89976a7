"""How logits come from rows: on packed tokens where that is right, else on padded batches.

It must not know losses, optimisers or schedules. Shapes: B rows of a batch, P tokens of them
together, C outputs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.specs.freeze import FreezeDepth
from elsa_tune.specs.trial import PrefixCache, Recipe
from elsa_tune.training.encoder import checkpoint_files
from elsa_tune.training.groups import length_groups
from elsa_tune.training.packed import IndexArray, pack
from elsa_tune.training.packed_model import (
    PackedModel,
    copy_of,
    use_compact_vocabulary,
    without_dropout,
)
from elsa_tune.training.parts import layer_list, prefix_modules
from elsa_tune.training.prefix import Prefix, prefix_digests, tokens_of
from elsa_tune.training.prefix_store import NoRoomError, PrefixStore, Reading
from elsa_tune.training.tokens import TaskData, TokenRows, pad_batch

# What one more length group costs on a CPU, in tokens of forward and backward: the value with the
# fastest steps, at N = 0 and N = 4 alike. Measured: bench/results/length_groups.json.
GROUP_COST = 64

# Of a GPU's free memory, what the kept hidden states of one depth may take.
_RESIDENT_SHARE = 0.4


class Runner(Protocol):
    """Computes logits; owns the modules that run and puts them into training or evaluation mode.

    how: a word for the record, `packed` or `padded`. prefix: `none` at N = 0, else `cached` or
    `recomputed`. notes: what a reader of the results should be told.
    """

    how: str
    prefix: str
    notes: list[str]

    @property
    def model(self) -> nn.Module:
        """All that runs, and so all that trains."""

    def logits(self, split: str, indices: IndexArray) -> tuple[Tensor, IndexArray]:
        """Logits [B, C] in fp32, and the rows' numbers [B] in the order of the logits."""

    def parts(self, split: str, batch: IndexArray, largest: int) -> list[IndexArray]:
        """A batch divided into passes of at most `largest` rows."""

    def train(self, training: bool) -> None:
        """Training mode (the prefix's dropout as the recipe says) or evaluation mode."""

    def close(self) -> None:
        """Let go of memory and files."""


@dataclass
class Padded:
    """Batches padded to their longest row, divided by length on a CPU: any architecture."""

    model: PreTrainedModel
    data: TaskData
    device: torch.device
    autocast: bool
    frozen_prefix: list[nn.Module]
    prefix: str
    notes: list[str] = field(default_factory=list)
    how: str = "padded"

    def logits(self, split: str, indices: IndexArray) -> tuple[Tensor, IndexArray]:
        """As `Runner.logits`."""
        batch = pad_batch(self.data.splits()[split], indices, self.data)
        inputs = {name: value.to(self.device, non_blocking=True) for name, value in batch.items()}
        inputs.pop("labels")
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            logits = self.model(**inputs).logits
        return logits.float(), indices

    def parts(self, split: str, batch: IndexArray, largest: int) -> list[IndexArray]:
        """As `Runner.parts`: by length on a CPU."""
        if self.device.type == "cuda":
            # A GPU is bound by launches at this size: padding costs it less than another pass.
            return _runs(batch, largest)
        lengths = self.data.splits()[split].lengths[batch].tolist()
        return [batch[group] for group in length_groups(lengths, largest, GROUP_COST)]

    def train(self, training: bool) -> None:
        """As `Runner.train`."""
        self.model.train(training)
        for module in self.frozen_prefix:
            module.eval()

    def close(self) -> None:
        """As `Runner.close`."""
        del self.model, self.frozen_prefix


@dataclass
class Packed:
    """Tokens one after the other, from the first layer on or from where a cache gives them."""

    model: PackedModel
    data: TaskData
    device: torch.device
    autocast: bool
    frozen_prefix: list[nn.Module]
    prefix: str
    notes: list[str] = field(default_factory=list)
    given: dict[str, Tensor] = field(default_factory=dict)
    reading: Reading | None = None
    vocabulary: Tensor | None = None
    how: str = "packed"

    def logits(self, split: str, indices: IndexArray) -> tuple[Tensor, IndexArray]:
        """As `Runner.logits`; rows come back in order of length."""
        rows = self.data.splits()[split]
        batch = pack(rows, indices, self.device, one_group=self.device.type == "cuda")
        given, tokens = None, None
        if split in self.given:
            kept = self.given[split]
            source = torch.from_numpy(batch.source).to(kept.device, non_blocking=True)
            given = kept[source].to(self.device, torch.float32)
        else:
            tokens = tokens_of(rows, batch)
            if self.vocabulary is not None:
                tokens = tokens.renumbered(self.vocabulary)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            logits = self.model(batch, tokens, given)
        return logits.float(), batch.chosen

    def parts(self, split: str, batch: IndexArray, largest: int) -> list[IndexArray]:
        """As `Runner.parts`: one pass unless memory asks for more, then by length."""
        if len(batch) <= largest:
            return [batch]
        lengths = self.data.splits()[split].lengths[batch]
        return _runs(batch[np.argsort(lengths, kind="stable")], largest)

    def train(self, training: bool) -> None:
        """As `Runner.train`."""
        self.model.train(training)
        for module in self.frozen_prefix:
            module.eval()

    def close(self) -> None:
        """As `Runner.close`."""
        del self.model, self.frozen_prefix
        self.given = {}
        if self.reading is not None:
            self.reading.close()


def _runs(batch: IndexArray, largest: int) -> list[IndexArray]:
    return [batch[start : start + largest] for start in range(0, len(batch), largest)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What decides how a trial's model is run. depths: N of every depth whose prefix the search
    will want. precision: as resolved, `fp32` or `bf16`.
    """

    depth: FreezeDepth
    recipe: Recipe
    precision: str
    device: torch.device
    name: str
    depths: Sequence[int] = ()

    @property
    def autocast(self) -> bool:
        """Whether matrix products are in bf16."""
        return self.precision == "bf16"


def runner_for(model: PreTrainedModel, data: TaskData, setting: Setting) -> Runner:
    """The fastest way to run this frozen model that computes what the whole model computes.

    The model is on its device, its parameters are frozen. It may be taken apart: afterwards only
    the runner may be used.
    """
    frozen_prefix = [] if setting.recipe.frozen_dropout else prefix_modules(model, setting.depth)
    deep = setting.depth.frozen_layers > 0
    common: dict[str, Any] = {
        "data": data,
        "device": setting.device,
        "autocast": setting.autocast,
        "frozen_prefix": frozen_prefix,
    }
    doubt = _doubt(model, data, setting)
    if doubt is not None:
        notes = [f"padded batches: {doubt}"]
        if deep and setting.recipe.prefix_cache is not PrefixCache.NONE:
            notes.append("the frozen prefix is computed in every step: only packed models keep it")
        return Padded(model=model, notes=notes, prefix="recomputed" if deep else "none", **common)
    digests = _digests(model) if deep else ()
    hidden_size = int(model.config.hidden_size)
    packed = PackedModel(model, setting.depth)
    runner = Packed(model=packed, prefix="recomputed" if deep else "none", **common)
    if deep:
        _give_prefix(runner, digests, hidden_size, setting)
    elif not setting.depth.embeddings_frozen:
        used = np.unique(np.concatenate([rows.input_ids for rows in data.splits().values()]))
        runner.vocabulary = use_compact_vocabulary(
            packed, torch.from_numpy(used.astype(np.int64)).to(setting.device)
        )
    return runner


# ---- is the packed model the model? ----

_agreed: dict[tuple[Any, ...], str | None] = {}


def _doubt(model: PreTrainedModel, data: TaskData, setting: Setting) -> str | None:
    """Why packed tokens would not give what the model gives; None where they do.

    Asked of every checkpoint, depth and way of training once a process, on a few short rows.
    """
    key = (
        checkpoint_files(),
        data.padding_side,
        setting.depth,
        setting.recipe.frozen_dropout,
        setting.device,
    )
    if key not in _agreed:
        try:
            _agreed[key] = _disagreement(model, data, setting)
        except ValueError as error:
            _agreed[key] = str(error)
        except Exception as error:  # an architecture may break in any way when it is taken apart
            _agreed[key] = f"it cannot be run on packed tokens ({type(error).__name__}: {error})"
    return _agreed[key]


def _disagreement(model: PreTrainedModel, data: TaskData, setting: Setting) -> str | None:
    rows = data.evaluation
    copied = copy_of(model)
    theirs, ours = _Randomness.of(model, setting), _Randomness.of(copied, setting)
    packed = PackedModel(copied, setting.depth)
    few = _probe_rows(rows)
    batch = pack(rows, few, setting.device, one_group=setting.device.type == "cuda")
    tokens = tokens_of(rows, batch)
    padded = pad_batch(rows, batch.chosen, data)
    inputs = {name: value.to(setting.device) for name, value in padded.items()}
    inputs.pop("labels")
    n = setting.depth.frozen_layers
    with torch.no_grad():
        packed.eval()
        behind = next(h for i, h in enumerate(packed.prefix(tokens, batch)) if i == n)
        for training in (False, True):
            given = behind if n > 0 and not (training and setting.recipe.frozen_dropout) else None
            with theirs.switched_off(model, training):
                expected = model(**inputs).logits.float()
            with ours.switched_off(packed, training):
                found = packed(batch, None if given is not None else tokens, given).float()
            off = float((expected - found).abs().max())
            if not off <= 1e-4 * float(expected.abs().max()) + 1e-6:
                mode = "training" if training else "evaluation"
                return f"on packed tokens its logits differ by {off:.2g} in {mode} mode"
    return None


@dataclass(frozen=True, slots=True)
class _Randomness:
    """What is random in a trial of this model: in what trains, and in its frozen prefix.

    A dropout that is in neither would act on hidden states that a cache gives, and then the packed
    model must be found to differ.
    """

    trained: list[nn.Dropout]
    prefix: list[nn.Module]

    @classmethod
    def of(cls, model: PreTrainedModel, setting: Setting) -> _Randomness:
        if setting.recipe.frozen_dropout or setting.depth.is_full_model:
            return cls(trained=_dropouts(model), prefix=[])
        base = model.base_model
        modules = [child for child in model.children() if child is not base]
        modules += [child for name, child in base.named_children() if "pool" in name.lower()]
        modules += list(layer_list(model))[setting.depth.frozen_layers :]
        trained = [dropout for module in modules for dropout in _dropouts(module)]
        return cls(trained=trained, prefix=prefix_modules(model, setting.depth))

    @contextlib.contextmanager
    def switched_off(self, runs: nn.Module, training: bool) -> Iterator[None]:
        """`runs` in the mode of a trial, but for the randomness of what trains."""
        runs.train(training)
        for module in self.prefix:
            module.eval()
        with without_dropout(self.trained):
            yield
        runs.eval()


def _dropouts(module: nn.Module) -> list[nn.Dropout]:
    return [found for found in module.modules() if isinstance(found, nn.Dropout)]


def _probe_rows(rows: TokenRows) -> IndexArray:
    """A few short rows of different lengths."""
    by_length = np.argsort(rows.lengths, kind="stable")
    lengths = rows.lengths[by_length]
    places = {0, *(int(np.searchsorted(lengths, n)) for n in (8, 14, 24))}
    return np.asarray([by_length[min(place, len(rows) - 1)] for place in sorted(places)])


# ---- the frozen prefix ----

_known_digests: tuple[tuple[Any, ...], tuple[str, ...]] | None = None


def _digests(model: PreTrainedModel) -> tuple[str, ...]:
    """Of the model, once for each checkpoint that this process uses one after the other."""
    global _known_digests
    files = checkpoint_files()
    if _known_digests is None or _known_digests[0] != files:
        _known_digests = (files, prefix_digests(model))
    return _known_digests[1]


def _give_prefix(
    runner: Packed, digests: Sequence[str], hidden_size: int, setting: Setting
) -> None:
    """Let the runner read its frozen prefix, where that is allowed, possible and worth it."""
    recipe, n = setting.recipe, setting.depth.frozen_layers
    if recipe.prefix_cache is PrefixCache.NONE:
        return
    splits = dict(runner.data.splits())
    if recipe.frozen_dropout:
        # Other masks every time: what training reads cannot be kept. Evaluation knows no dropout.
        del splits["train"]
        runner.notes.append("the frozen prefix is computed in every step: frozen_dropout is on")
    prefix = Prefix(
        digests,
        splits,
        runner.data.fingerprint,
        hidden_size,
        precision=setting.precision,
        dtype=recipe.prefix_cache.value,
        name=setting.name,
        store=PrefixStore(),
    )
    try:
        reading = prefix.open(n)
        if reading is None:
            rates = prefix.rates(n, runner.model)
            if rates.read >= rates.recompute:
                runner.notes.append(
                    "the frozen prefix is computed in every step: here reading takes "
                    f"{rates.read * 1e6:.1f} us a token, computing {rates.recompute * 1e6:.1f}"
                )
                return
            reading = prefix.read_or_build(n, setting.depths, runner.model)
    except (NoRoomError, OSError) as error:
        runner.notes.append(f"the frozen prefix is computed in every step: {error}")
        return
    if not recipe.frozen_dropout:
        runner.model.drop_prefix()
        runner.frozen_prefix = []
        runner.prefix = "cached"
    runner.reading = reading
    runner.given = _resident(reading, prefix.shape.bytes, setting.device)


def _resident(reading: Reading, size: int, device: torch.device) -> dict[str, Tensor]:
    """The kept rows in a GPU's memory where they fit, else as they are mapped."""
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        if size <= _RESIDENT_SHARE * free:
            return {split: rows.to(device) for split, rows in reading.hidden.items()}
    return reading.hidden
