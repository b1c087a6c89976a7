"""How logits come from rows: on packed tokens where that is right, else on padded batches.

It must not know losses, optimisers or schedules. Shapes: B rows of a batch, P tokens of them
together, C outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.specs.trial import PrefixCache
from elsa_tune.training.data.tokens import IndexArray, TaskData, pad_batch
from elsa_tune.training.forward.equality import Setting, packed_doubt, packed_layout, tail_doubt
from elsa_tune.training.forward.frozen_layers import FrozenLayers, PackedLayers, PaddedLayers
from elsa_tune.training.forward.groups import length_groups
from elsa_tune.training.forward.packed_model import PackedModel, use_compact_vocabulary
from elsa_tune.training.forward.padded_model import (
    begin_behind,
    kept_layers,
    masks_without_asking,
)
from elsa_tune.training.forward.prefix import Prefix
from elsa_tune.training.forward.prefix_store import NotKeptError, Reading
from elsa_tune.training.model.parts import layer_list, prefix_modules

# What one more length group costs on a CPU, in tokens of forward and backward: the value with the
# fastest steps, at N = 0 and N = 4 alike. Measured: bench/results/length_groups.json.
GROUP_COST = 64

_COMPUTED = "the frozen prefix is computed in every step"


@dataclass
class Runner:
    """Computes logits; owns the modules that run and puts them into training or evaluation mode.

    model: all that runs, and so all that trains. prefix: `none` at N = 0, else `cached` or
    `recomputed`. notes: what a reader of the results should be told. kept: hidden states behind the
    frozen layers of some splits. how: a word for the record.
    """

    model: Any
    data: TaskData
    setting: Setting
    frozen_prefix: list[nn.Module]
    prefix: str
    notes: list[str] = field(default_factory=list)
    kept: Reading = field(default_factory=Reading)
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
        self.kept.close()

    def given(self, split: str, places: Tensor) -> Tensor | None:
        """Kept hidden states [..., H] in fp32 of a split's tokens at these places [...]; None where
        none are kept.
        """
        kept = self.kept.hidden.get(split)
        return None if kept is None else kept[places].float()


class Padded(Runner):
    """Batches padded to their longest row, divided by length on a CPU: any architecture.

    From the first layer on, or from where a cache gives hidden states.
    """

    how = "padded"

    def logits(self, split: str, indices: IndexArray) -> tuple[Tensor, Tensor]:
        """As `Runner.logits`."""
        batch = pad_batch(self.data.splits()[split], indices, self.data, self.setting.device)
        inputs = batch.inputs
        given = self.given(split, batch.places)
        if given is not None:
            # At padding stands the row's first token: finite, and attended by nobody.
            del inputs["input_ids"]
            inputs["inputs_embeds"] = given
        with self.setting.arithmetic(), masks_without_asking(self.setting.device):
            logits = self.model(**inputs).logits
        return logits.float(), batch.rows

    def parts(self, split: str, batch: IndexArray, largest: int) -> list[IndexArray]:
        """As `Runner.parts`: by length on a CPU."""
        if self.setting.device.type != "cpu":
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
        given = self.given(split, batch.places)
        with self.setting.arithmetic():
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
    deep = setting.depth.frozen_layers > 0
    common: dict[str, Any] = {
        "data": data,
        "setting": setting,
        "frozen_prefix": (
            [] if setting.recipe.frozen_dropout else prefix_modules(model, setting.depth)
        ),
        "prefix": "recomputed" if deep else "none",
    }
    keeps = deep and setting.recipe.prefix_cache is not PrefixCache.NONE
    doubt = packed_doubt(model, data, setting)
    if doubt is not None:
        padded = Padded(model=model, notes=[f"padded batches: {doubt}"], **common)
        if keeps:
            _give_to_padded(padded, setting)
        return padded
    prefix = Prefix(model, data, setting, Packed.how) if keeps else None
    layout, notes = packed_layout(model, data, setting)
    packed_model = PackedModel(model, setting.depth, setting.recipe.pooling, layout)
    packed = Packed(model=packed_model, notes=notes, **common)
    if prefix is not None:
        _give_to_packed(packed, prefix, setting)
    if not setting.depth.embeddings_frozen:
        packed.data = use_compact_vocabulary(packed.model, data)
    return packed


def _give_to_packed(runner: Packed, prefix: Prefix, setting: Setting) -> None:
    """Let the runner read its frozen layers' output, where that is allowed, possible and worth it.

    Where dropout is on in them, training needs other masks every time: only evaluation reads.
    """
    if setting.recipe.frozen_dropout:
        runner.notes.append(f"{_COMPUTED}: frozen_dropout is on")
    n, layers = setting.depth.frozen_layers, PackedLayers(runner.model)
    if _reads(runner, prefix, n, setting.depths, layers) and not setting.recipe.frozen_dropout:
        runner.model.drop_prefix()
        runner.frozen_prefix = []
        runner.prefix = "cached"


def _give_to_padded(runner: Padded, setting: Setting) -> None:
    """The same on padded batches. With dropout in frozen layers the whole model stays in use."""
    every = list(layer_list(runner.model))
    n = kept_layers(setting.depth, len(every))
    if n == 0:
        return
    if setting.recipe.frozen_dropout:
        runner.notes.append(f"{_COMPUTED}: frozen_dropout is on")
        return
    doubt = tail_doubt(runner.model, runner.data, setting, n)
    if doubt is not None:
        runner.notes.append(f"{_COMPUTED}: {doubt}")
        return
    prefix = Prefix(runner.model, runner.data, setting, runner.how)
    others = sorted({min(other, len(every) - 1) for other in setting.depths})
    if _reads(runner, prefix, n, others, PaddedLayers(runner.model, runner.data)):
        begin_behind(runner.model, n)
        runner.frozen_prefix = every[n : setting.depth.frozen_layers]
        runner.prefix = "cached"


def _reads(
    runner: Runner, prefix: Prefix, n: int, others: Sequence[int], layers: FrozenLayers
) -> bool:
    """Whether the runner was given the hidden states behind layer n; a note says why not."""
    try:
        runner.kept = prefix.reading(n, others, layers)
    except (NotKeptError, OSError) as error:
        runner.notes.append(f"{_COMPUTED}: {error}")
        return False
    return True
