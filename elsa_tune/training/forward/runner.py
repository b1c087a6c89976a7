"""How logits come from rows: on packed tokens where that is right, else on padded batches.

Shapes: B rows of a batch, C outputs, H hidden size.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.specs.trial import PrefixCache
from elsa_tune.training.data.tokens import IndexArray, TaskData, pad_batch
from elsa_tune.training.forward.equality import Setting, packed_doubt, packed_layout, tail_doubt
from elsa_tune.training.forward.packed import length_groups
from elsa_tune.training.forward.packed_model import PackedModel, use_compact_vocabulary
from elsa_tune.training.forward.padded_model import (
    begin_behind,
    masks_without_asking,
    rows_in_order,
)
from elsa_tune.training.forward.prefix import FrozenLayers, Prefix
from elsa_tune.training.forward.prefix_store import NotKeptError, Reading
from elsa_tune.training.model.parts import layer_list, prefix_modules

# What one more length group costs on a CPU, in tokens of forward and backward: the value with the
# fastest steps, at N = 0 and N = 4 alike. Measured: bench/results/length_groups.json.
GROUP_COST = 64


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
        """Kept hidden states [..., H] in fp32 of a split's tokens at these places [...], if any."""
        kept = self.kept.hidden.get(split)
        return None if kept is None else kept[places].float()

    def reads(self, prefix: Prefix, n: int, others: Iterable[int], layers: FrozenLayers) -> bool:
        """Whether the hidden states behind layer n are kept from now on; a note says why not."""
        try:
            self.kept = prefix.reading(n, others, layers)
        except (NotKeptError, OSError) as error:
            self.note_computed(error)
            return False
        return True

    def note_computed(self, why: object) -> None:
        """Say why nothing is kept."""
        self.notes.append(f"the frozen prefix is computed in every step: {why}")


class Padded(Runner):
    """Batches padded to their longest row, divided by length on a CPU: any architecture."""

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
    depth, recipe = setting.depth, setting.recipe
    deep = depth.frozen_layers > 0
    common: dict[str, Any] = {
        "data": data,
        "setting": setting,
        "frozen_prefix": [] if recipe.frozen_dropout else prefix_modules(model, depth),
        "prefix": "recomputed" if deep else "none",
    }
    keeps = deep and recipe.prefix_cache is not PrefixCache.NONE
    doubt = packed_doubt(model, data, setting)
    if doubt is not None:
        padded = Padded(model=model, notes=[f"padded batches: {doubt}"], **common)
        if keeps:
            _let_read(padded)
        return padded
    prefix = Prefix(model, data, setting, Packed.how) if keeps else None
    layout, notes = packed_layout(model, data, setting)
    packed_model = PackedModel(model, depth, recipe.pooling, layout)
    packed = Packed(model=packed_model, notes=notes, **common)
    if prefix is not None:
        if recipe.frozen_dropout:  # training needs other masks every time: only evaluation reads
            packed.note_computed("frozen_dropout is on")
        is_read = packed.reads(prefix, depth.frozen_layers, setting.depths, packed_model.behind)
        if is_read and not recipe.frozen_dropout:
            packed_model.drop_prefix()
            packed.frozen_prefix, packed.prefix = [], "cached"
    if not depth.embeddings_frozen and not setting.keeps_words:
        packed.data = use_compact_vocabulary(packed_model, data)
    return packed


def _let_read(runner: Padded) -> None:
    """Begin behind the frozen layers where that is possible and worth it. With dropout in them the
    whole model stays in use.
    """
    model, setting = runner.model, runner.setting
    every = list(layer_list(model))
    n = setting.kept_layers(model)
    if n == 0:
        return
    if setting.recipe.frozen_dropout:
        doubt: str | None = "frozen_dropout is on"
    else:
        doubt = tail_doubt(model, runner.data, setting)
    if doubt is not None:
        runner.note_computed(doubt)
        return
    prefix = Prefix(model, runner.data, setting, runner.how)
    others = {min(other, len(every) - 1) for other in setting.depths}
    if runner.reads(prefix, n, others, partial(rows_in_order, model, runner.data)):
        begin_behind(model, n)
        runner.frozen_prefix = every[n : setting.depth.frozen_layers]
        runner.prefix = "cached"
