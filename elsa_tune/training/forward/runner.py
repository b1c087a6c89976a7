"""How logits come from rows: on packed tokens where that is right, else on padded batches.

Shapes: B rows of a batch, C outputs, H hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.specs.trial import PrefixCache
from elsa_tune.training.data.tokens import IndexArray, TaskData
from elsa_tune.training.forward.equality import Setting, packed_doubt, packed_layout, tail_doubt
from elsa_tune.training.forward.packed import length_groups
from elsa_tune.training.forward.packed_model import PackedModel, use_compact_vocabulary
from elsa_tune.training.forward.padded_model import PaddedModel
from elsa_tune.training.forward.prefix import Prefix
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
    frozen layers of some splits.
    """

    model: PackedModel | PaddedModel
    data: TaskData
    setting: Setting
    frozen_prefix: list[nn.Module]
    prefix: str
    notes: list[str]
    kept: Reading = field(default_factory=Reading)

    def logits(self, split: str, indices: IndexArray) -> tuple[Tensor, Tensor]:
        """Logits [B, C] in fp32, and the rows' numbers [B] in the order of the logits."""
        batch = self.model.batch(self.data.splits()[split], indices)
        kept = self.kept.hidden.get(split)
        given = None if kept is None else kept[batch.places].float()
        with self.setting.arithmetic():
            logits = self.model(batch, given)
        return logits.float(), batch.rows

    def parts(self, split: str, batch: IndexArray, largest: int) -> list[IndexArray]:
        """A batch divided into passes of at most `largest` rows: into rows of similar length where
        a CPU pads them, else into one pass unless memory asks for more.
        """
        lengths = self.data.splits()[split].lengths[batch]
        # A GPU is bound by launches at this size: padding costs it less than another pass.
        if isinstance(self.model, PaddedModel) and self.setting.device.type == "cpu":
            return [batch[group] for group in length_groups(lengths, largest, GROUP_COST)]
        if len(batch) > largest:
            batch = batch[np.argsort(lengths, kind="stable")]
        return [batch[start : start + largest] for start in range(0, len(batch), largest)]

    def train(self, training: bool) -> None:
        """Training mode (the prefix's dropout as the recipe says) or evaluation mode."""
        self.model.train(training)
        for module in self.frozen_prefix:
            module.eval()

    def close(self) -> None:
        """Let go of memory and files."""
        del self.model, self.frozen_prefix
        self.kept.close()


def runner_for(model: PreTrainedModel, data: TaskData, setting: Setting) -> Runner:
    """The fastest way to run this frozen model that computes what the whole model computes.

    The model is on its device, its parameters are frozen. It may be taken apart: afterwards only
    the runner may be used.
    """
    depth, recipe = setting.depth, setting.recipe
    layers = list(layer_list(model))
    frozen_prefix = [] if recipe.frozen_dropout else prefix_modules(model, depth)
    doubt = packed_doubt(model, data, setting)
    runs: PackedModel | PaddedModel
    if doubt is None:
        layout, notes = packed_layout(model, data, setting)
        runs = PackedModel(model, depth, recipe.pooling, layout)
    else:
        runs, notes = PaddedModel(model, data), [f"padded batches: {doubt}"]
    deep = depth.frozen_layers > 0
    runner = Runner(runs, data, setting, frozen_prefix, "recomputed" if deep else "none", notes)
    if deep and runs.deepest > 0 and recipe.prefix_cache is not PrefixCache.NONE:
        why = _not_read(runner, model, layers)
        if why is not None:
            notes.append(f"the frozen prefix is computed in every step: {why}")
    if isinstance(runs, PackedModel) and not depth.embeddings_frozen and not setting.keeps_words:
        runner.data = use_compact_vocabulary(runs, data)
    return runner


def _not_read(runner: Runner, model: PreTrainedModel, layers: Sequence[nn.Module]) -> str | None:
    """Read the frozen layers' output from now on; or say why it is computed in every step."""
    setting, runs = runner.setting, runner.model
    frozen = setting.depth.frozen_layers
    n = min(frozen, runs.deepest)
    noise = "frozen_dropout is on" if setting.recipe.frozen_dropout else None
    if isinstance(runs, PaddedModel):
        doubt = noise or tail_doubt(model, runner.data, setting)
        if doubt is not None:
            return doubt
    others = {min(other, runs.deepest) for other in setting.depths}
    try:
        prefix = Prefix(model, runner.data, setting, runs.how)
        runner.kept = prefix.reading(n, others, runs.behind)
    except (NotKeptError, OSError) as error:
        return str(error)
    if noise is not None:  # training needs other masks every time: only evaluation reads
        return noise
    runs.drop_prefix(n)
    runner.frozen_prefix, runner.prefix = list(layers[n:frozen]), "cached"
    return None
