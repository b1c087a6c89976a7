"""How logits come from rows: on packed tokens where that is right, else on padded batches.

It must not know losses, optimisers or schedules. Shapes: B rows of a batch, P tokens of them
together, C outputs.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.specs.trial import PrefixCache
from elsa_tune.training.data.tokens import IndexArray, TaskData, TokenRows, pad_batch
from elsa_tune.training.forward.equality import Setting, packed_doubt, tail_doubt
from elsa_tune.training.forward.frozen_layers import FrozenLayers, PackedLayers, PaddedLayers
from elsa_tune.training.forward.groups import length_groups
from elsa_tune.training.forward.packed_model import PackedModel, use_compact_vocabulary
from elsa_tune.training.forward.padded_model import (
    begin_behind,
    kept_layers,
    masks_without_asking,
)
from elsa_tune.training.forward.prefix import Prefix, prefix_digests
from elsa_tune.training.forward.prefix_store import NoRoomError, Reading
from elsa_tune.training.model.encoder import checkpoint_files
from elsa_tune.training.model.parts import layer_list, prefix_modules

# What one more length group costs on a CPU, in tokens of forward and backward: the value with the
# fastest steps, at N = 0 and N = 4 alike. Measured: bench/results/length_groups.json.
GROUP_COST = 64

_COMPUTED = "the frozen prefix is computed in every step"

# Of a GPU's free memory, what the kept hidden states of one depth may take.
_RESIDENT_SHARE = 0.4


@dataclass
class Runner:
    """Computes logits; owns the modules that run and puts them into training or evaluation mode.

    model: all that runs, and so all that trains. prefix: `none` at N = 0, else `cached` or
    `recomputed`. notes: what a reader of the results should be told. given: hidden states behind
    the frozen layers by split, where they are kept. how: a word for the record.
    """

    model: Any
    data: TaskData
    device: torch.device
    autocast: bool
    frozen_prefix: list[nn.Module]
    prefix: str
    notes: list[str] = field(default_factory=list)
    given: dict[str, Tensor] = field(default_factory=dict)
    reading: Reading | None = None
    how: ClassVar[str]

    def logits(self, split: str, indices: IndexArray) -> tuple[Tensor, Tensor]:
        """Logits [B, C] in fp32, and the rows' numbers [B] in the order of the logits."""
        raise NotImplementedError

    def parts(self, split: str, batch: IndexArray, largest: int) -> list[IndexArray]:
        """A batch divided into passes of at most `largest` rows."""
        raise NotImplementedError

    def train(self, training: bool) -> None:
        """Training mode (the prefix's dropout as the recipe says) or evaluation mode."""
        self.model.train(training)
        for module in self.frozen_prefix:
            module.eval()

    def close(self) -> None:
        """Let go of memory and files."""
        del self.model, self.frozen_prefix
        self.given = {}
        if self.reading is not None:
            self.reading.close()

    def arithmetic(self) -> contextlib.AbstractContextManager[Any]:
        """In which forward passes run."""
        if not self.autocast:
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _given(self, split: str, source: IndexArray, places: Tensor) -> Tensor:
        """Kept hidden states [..., H] in fp32 of a split's tokens, whose places [...] are beside
        the host and on the device.
        """
        kept = self.given[split]
        if kept.device == places.device:
            return kept[places].float()
        # Not held by the GPU: its rows travel without the host waiting for them.
        wanted = torch.from_numpy(source).view(-1)
        shape = (len(wanted), kept.shape[1])
        rows = torch.empty(shape, dtype=kept.dtype, pin_memory=self.device.type == "cuda")
        torch.index_select(kept, 0, wanted, out=rows)
        return rows.to(self.device, non_blocking=True).float().view(*source.shape, -1)


class Padded(Runner):
    """Batches padded to their longest row, divided by length on a CPU: any architecture.

    From the first layer on, or from where a cache gives hidden states.
    """

    how = "padded"

    def logits(self, split: str, indices: IndexArray) -> tuple[Tensor, Tensor]:
        """As `Runner.logits`."""
        batch = pad_batch(self.data.splits()[split], indices, self.data, self.device)
        inputs = batch.inputs
        if split in self.given:
            # At padding stands the row's first token: finite, and attended by nobody.
            del inputs["input_ids"]
            inputs["inputs_embeds"] = self._given(split, batch.source, batch.places)
        with self.arithmetic(), masks_without_asking(self.device):
            logits = self.model(**inputs).logits
        return logits.float(), batch.rows

    def parts(self, split: str, batch: IndexArray, largest: int) -> list[IndexArray]:
        """As `Runner.parts`: by length on a CPU."""
        if self.device.type != "cpu":
            # A GPU is bound by launches at this size: padding costs it less than another pass.
            return _runs(batch, largest)
        lengths = self.data.splits()[split].lengths[batch].tolist()
        return [batch[group] for group in length_groups(lengths, largest, GROUP_COST)]


class Packed(Runner):
    """Tokens one after the other, from the first layer on or from where a cache gives them."""

    how = "packed"

    def logits(self, split: str, indices: IndexArray) -> tuple[Tensor, Tensor]:
        """As `Runner.logits`; rows come back in order of length."""
        batch = self.model.pack(self.data.splits()[split], indices)
        given = self._given(split, batch.source, batch.places) if split in self.given else None
        with self.arithmetic():
            logits = self.model(batch, given)
        return logits.float(), batch.rows

    def parts(self, split: str, batch: IndexArray, largest: int) -> list[IndexArray]:
        """As `Runner.parts`: one pass unless memory asks for more, then by length."""
        if len(batch) <= largest:
            return [batch]
        lengths = self.data.splits()[split].lengths[batch]
        return _runs(batch[np.argsort(lengths, kind="stable")], largest)


def _runs(batch: IndexArray, largest: int) -> list[IndexArray]:
    return [batch[start : start + largest] for start in range(0, len(batch), largest)]


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
        "prefix": "recomputed" if deep else "none",
    }
    kept = deep and setting.recipe.prefix_cache is not PrefixCache.NONE
    doubt = packed_doubt(model, data, setting)
    if doubt is not None:
        padded = Padded(model=model, notes=[f"padded batches: {doubt}"], **common)
        if kept:
            _give_to_padded(padded, setting)
        return padded
    facts = _facts(model) if kept else None
    packed = Packed(model=PackedModel(model, setting.depth, setting.recipe.pooling), **common)
    if facts is not None:
        _give_to_packed(packed, facts, setting)
    if not setting.depth.embeddings_frozen:
        packed.data = use_compact_vocabulary(packed.model, data)
    return packed


# ---- the frozen prefix ----

_known_digests: tuple[tuple[Any, ...], tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class _Facts:
    """What names a model's kept hidden states: its digests, L and H."""

    digests: tuple[str, ...]
    layers: int
    hidden_size: int


def _facts(model: PreTrainedModel) -> _Facts:
    return _Facts(_digests(model), len(layer_list(model)), int(model.config.hidden_size))


def _digests(model: PreTrainedModel) -> tuple[str, ...]:
    """Of the model, once for each checkpoint that this process uses one after the other."""
    global _known_digests
    files = checkpoint_files()
    if _known_digests is None or _known_digests[0] != files:
        _known_digests = (files, prefix_digests(model))
    return _known_digests[1]


def _give_to_packed(runner: Packed, facts: _Facts, setting: Setting) -> None:
    """Let the runner read its frozen layers' output, where that is allowed, possible and worth it.

    Where dropout is on in them, training needs other masks every time: only evaluation reads.
    """
    splits = dict(runner.data.splits())
    if setting.recipe.frozen_dropout:
        del splits["train"]
        runner.notes.append(f"{_COMPUTED}: frozen_dropout is on")
    n = setting.depth.frozen_layers
    opened = _opened(runner, PackedLayers(runner.model), splits, n, facts, setting)
    if opened and not setting.recipe.frozen_dropout:
        runner.model.drop_prefix()
        runner.frozen_prefix = []
        runner.prefix = "cached"


def _give_to_padded(runner: Padded, setting: Setting) -> None:
    """The same on padded batches. With dropout in frozen layers the whole model stays in use."""
    n = kept_layers(setting.depth, len(layer_list(runner.model)))
    if n == 0:
        return
    if setting.recipe.frozen_dropout:
        runner.notes.append(f"{_COMPUTED}: frozen_dropout is on")
        return
    doubt = tail_doubt(runner.model, runner.data, setting, n)
    if doubt is not None:
        runner.notes.append(f"{_COMPUTED}: {doubt}")
        return
    facts = _facts(runner.model)
    layers = PaddedLayers(runner.model, runner.data)
    others = {min(other, facts.layers - 1) for other in setting.depths}
    left = list(layer_list(runner.model))[n : setting.depth.frozen_layers]
    splits = dict(runner.data.splits())
    setting = replace(setting, depths=sorted(others))
    if _opened(runner, layers, splits, n, facts, setting):
        begin_behind(runner.model, n)
        runner.frozen_prefix = left
        runner.prefix = "cached"


def _opened(
    runner: Packed | Padded,
    layers: FrozenLayers,
    splits: dict[str, TokenRows],
    n: int,
    facts: _Facts,
    setting: Setting,
) -> bool:
    """Whether the runner was given the hidden states behind layer n; a note says why not."""
    fingerprint = runner.data.fingerprint
    prefix = Prefix(facts.digests, splits, fingerprint, facts.hidden_size, setting, runner.how)
    try:
        reading = prefix.open(n)
        if reading is None:
            rates = prefix.rates(n, layers)
            if rates.read >= rates.recompute:
                runner.notes.append(
                    f"{_COMPUTED}: here reading takes {rates.read * 1e6:.1f} us a token, computing "
                    f"{rates.recompute * 1e6:.1f}"
                )
                return False
            reading = prefix.read_or_build(n, setting.depths, layers)
    except (NoRoomError, OSError) as error:
        runner.notes.append(f"{_COMPUTED}: {error}")
        return False
    runner.reading = reading
    runner.given = _resident(reading, prefix.shape.bytes, setting.device)
    return True


def _resident(reading: Reading, size: int, device: torch.device) -> dict[str, Tensor]:
    """The kept rows in a GPU's memory where they fit, else as they are mapped."""
    if device.type == "cuda":
        free, _total = torch.cuda.mem_get_info(device)
        if size <= _RESIDENT_SHARE * free:
            return {split: rows.to(device) for split, rows in reading.hidden.items()}
    return reading.hidden
