"""How logits come from rows: on packed tokens where that is right, else on padded batches.

They begin at the frozen layers' output where that is kept.

Shapes: B rows of a batch, C outputs, H hidden size.
"""

import contextlib
import hashlib
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
import transformers
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.specs.trial import PrefixCache
from elsa_tune.training.adapt.trainable import frozen_modules
from elsa_tune.training.data.tokens import IndexArray, TaskData, TokenRows
from elsa_tune.training.forward.equality import Setting, packed_doubt, packed_layout, tail_doubt
from elsa_tune.training.forward.packed import length_buckets
from elsa_tune.training.forward.packed_model import PackedModel, use_compact_vocabulary
from elsa_tune.training.forward.padded_model import PaddedModel
from elsa_tune.training.forward.prefix_store import NotKeptError, PrefixStore, Reading, Shape
from elsa_tune.training.machine import free_bytes
from elsa_tune.training.model.encoder import unchanged_checkpoint
from elsa_tune.training.model.parts import layer_list

# What one more length group costs on a CPU, in tokens of forward and backward: the value with the
# fastest steps, at N = 0 and N = 4 alike. Measured: bench/results/length_groups.json.
BUCKET_COST = 64
# Changes whenever the same inputs would give other rows.
_FORMAT = 3
# Tokens of one pass over the layers while a cache is filled: enough for full speed, little memory.
_CHUNK_TOKENS = 4096
# Of a GPU's memory that a trial may take, what the kept hidden states of its depth may: the rest is
# for the layers that train.
_MEMORY_SHARE = 0.4
# Why the frozen layers' output is not read in training.
_DROPOUT = "frozen_dropout is on"


@dataclass
class Runner:
    """Computes logits; owns the modules that run and puts them into training or evaluation mode."""

    model: PackedModel | PaddedModel  # all that runs, and so all that trains
    data: TaskData  # whose rows are run
    setting: Setting  # of the trial
    frozen_prefix: list[nn.Module]  # stays in evaluation mode
    prefix: str  # `none` without frozen layers, else `cached` or `recomputed`
    notes: list[str]  # what a reader of the results should be told
    # Hidden states behind the frozen layers, of some splits.
    kept_states: Reading = field(default_factory=Reading)

    def logits(self, split: str, indices: IndexArray) -> tuple[Tensor, Tensor]:
        """Return logits [B, C] in fp32, and the rows' numbers [B] in the order of the logits."""
        rows = self.data.splits()[split]
        batch = self.model.batch(rows, indices)
        states_of_split = self.kept_states.hidden.get(split)
        given = None
        if states_of_split is not None:
            given = states_of_split[batch.places].float()
        with self.setting.arithmetic():
            logits = self.model(batch, given)
        return logits.float(), batch.rows

    def parts(self, split: str, batch: IndexArray, largest: int) -> list[IndexArray]:
        """Divide a batch into passes of at most `largest` rows.

        Into rows of similar length where a CPU pads them, else into one pass unless memory asks for
        more.
        """
        rows = self.data.splits()[split]
        lengths = rows.lengths[batch]
        is_padded = isinstance(self.model, PaddedModel)
        # A GPU is bound by launches at this size: padding costs it less than another pass.
        if is_padded and self.setting.device.type == "cpu":
            groups = length_buckets(lengths, largest, BUCKET_COST)
            return [batch[group] for group in groups]
        if len(batch) <= largest:
            return [batch]
        order = np.argsort(lengths, kind="stable")
        by_length = batch[order]
        parts = []
        for start in range(0, len(batch), largest):
            part = by_length[start : start + largest]
            parts.append(part)
        return parts

    def train(self, training: bool) -> None:
        """Set training mode (the prefix's dropout as the recipe says) or evaluation mode."""
        self.model.train(training)
        for module in self.frozen_prefix:
            module.eval()

    def close(self) -> None:
        """Let go of memory and files."""
        del self.model, self.frozen_prefix
        self.kept_states.close()


def runner_for(model: PreTrainedModel, data: TaskData, setting: Setting) -> Runner:
    """Return the fastest way to run this model that computes what the complete one computes.

    The model is on its device and frozen. It may be taken apart: use the runner alone afterwards.
    """
    why_padded = packed_doubt(model, data, setting)
    trainable = setting.trainable
    recipe = setting.recipe
    layers = list(layer_list(model))
    without_dropout = []
    if not recipe.frozen_dropout:
        without_dropout = frozen_modules(model, trainable)
    runs, notes = taken_apart(model, data, setting, why_padded)
    has_prefix = trainable.first_trained_layer > 0
    runner = Runner(
        model=runs,
        data=data,
        setting=setting,
        frozen_prefix=without_dropout,
        prefix="recomputed" if has_prefix else "none",
        notes=notes,
    )
    can_be_kept = has_prefix and runs.deepest > 0
    if can_be_kept and recipe.prefix_cache is not PrefixCache.NONE:
        why = _not_read(runner, model, layers)
        if why is not None:
            notes.append(f"the frozen prefix is computed in every step: {why}")
    words_may_go = trainable.embeddings_train and not setting.keeps_words
    if isinstance(runs, PackedModel) and words_may_go:
        use_compact_vocabulary(runs, data)
    return runner


def taken_apart(
    model: PreTrainedModel,
    data: TaskData,
    setting: Setting,
    why_padded: str | None,
) -> tuple[PackedModel | PaddedModel, list[str]]:
    """Return what runs this model, on padded batches if there is a reason, and notes on why."""
    if why_padded is not None:
        note = f"padded batches: {why_padded}"
        return PaddedModel(model, data), [note]
    layout, notes = packed_layout(model, data, setting)
    begin = setting.trainable.first_trained_layer
    packed = PackedModel(model, begin, setting.recipe.pooling, layout)
    return packed, notes


def _not_read(runner: Runner, model: PreTrainedModel, layers: Sequence[nn.Module]) -> str | None:
    """Read the frozen layers' output from now on; or say why it is computed in every step."""
    setting = runner.setting
    runs = runner.model
    frozen = setting.trainable.first_trained_layer
    behind = min(frozen, runs.deepest)
    has_dropout = setting.recipe.frozen_dropout
    if isinstance(runs, PaddedModel):
        if has_dropout:
            return _DROPOUT
        doubt = tail_doubt(model, runner.data, setting)
        if doubt is not None:
            return doubt
    others = {min(other, runs.deepest) for other in setting.others}
    try:
        prefix = Prefix(runs, model.config.hidden_size, runner.data, setting)
        runner.kept_states = prefix.reading(behind, others)
    except (NotKeptError, OSError) as error:
        return str(error)
    if has_dropout:  # training needs other masks every time: only evaluation reads
        return _DROPOUT
    runs.drop_prefix(behind)
    runner.frozen_prefix = list(layers[behind:frozen])
    runner.prefix = "cached"
    return None


def _shape(hidden_size: int, data: TaskData, setting: Setting) -> Shape:
    """Return the shape of what is kept: no training rows where frozen layers have dropout."""
    recipe = setting.recipe
    tokens: dict[str, int] = {}
    for split, rows in data.splits().items():
        is_training = split == "train"
        if is_training and recipe.frozen_dropout:
            continue
        tokens[split] = len(rows.input_ids)
    dtype = torch.float32
    if recipe.prefix_cache is PrefixCache.BF16:
        dtype = torch.bfloat16
    return Shape(tokens=tokens, hidden_size=hidden_size, dtype=dtype)


def _fits(shape: Shape, device: torch.device) -> bool:
    """Return whether a GPU has room for it; a CPU's lies on disk."""
    room = _MEMORY_SHARE * free_bytes(device)
    return shape.bytes <= room


class Prefix:
    """The hidden states of one model's frozen layers on one task's data, on this node.

    runs: what computes them, the complete model. setting: of the trial that does; where dropout is
    on in frozen layers, nothing is kept of the training rows. A GPU with room keeps them in its
    memory, for a CPU they lie on disk.
    """

    def __init__(
        self,
        runs: PackedModel | PaddedModel,
        hidden_size: int,
        data: TaskData,
        setting: Setting,
    ) -> None:
        self._shape = _shape(hidden_size, data, setting)
        splits = data.splits()
        self._splits = {split: splits[split] for split in self._shape.tokens}
        self._runs = runs
        self._setting = setting
        self._store = PrefixStore()
        # The fingerprint is of the task as it was read; the digests are of the tokens themselves.
        self._what = [data.fingerprint]
        for split, rows in self._splits.items():
            digest = _rows_digest(rows)
            self._what.append(f"{split} {digest}")
        kept_precision = setting.recipe.prefix_cache.value
        self._what.append(f"{setting.precision}-{kept_precision}")
        self._what.append(runs.how)

    def reading(self, frozen_layers: int, others: Iterable[int]) -> Reading:
        """Return the hidden states behind so many frozen layers, computed if need be.

        others: depths that later trials will want, kept on disk in the same pass if there is room.
        Raises NotKeptError where there is none for this one, OSError where it cannot be written.
        """
        shape = self._shape
        device = self._setting.device
        if _fits(shape, device):
            return self._computed_here(frozen_layers)
        if device.type != "cpu":
            gigabytes = shape.bytes / 1e9
            raise NotKeptError(f"{gigabytes:.1f} GB of the GPU would be needed to keep its output")
        store = self._store
        key = self._key(frozen_layers)
        reading = store.open(key, shape)
        if reading is not None:
            return reading
        # One builder a model and task, whatever the depth: it will fill the others' too.
        with store.building(self._key(0)):
            reading = store.open(key, shape)
            if reading is None:
                self._build(frozen_layers, others)
                reading = store.open(key, shape)
        if reading is not None:
            return reading
        raise OSError(f"what was written to {store.folder} cannot be read back")

    def _computed_here(self, frozen_layers: int) -> Reading:
        """Compute them into the memory of the device."""
        shape = self._shape
        device = self._setting.device
        reading = Reading()
        for split, rows in self._splits.items():
            size = (len(rows.input_ids), shape.hidden_size)
            hidden = torch.empty(size, dtype=shape.dtype, device=device)
            start = 0
            for _, _, chunk in rows_behind(self._runs, rows, [frozen_layers], self._setting):
                stop = start + len(chunk)
                hidden[start:stop] = chunk
                start = stop
            reading.hidden[split] = hidden
        return reading

    def _key(self, frozen_layers: int) -> str:
        """Return an entry's name: of the checkpoint's files, the data, and what computes."""
        lines = [str(_FORMAT), torch.__version__, transformers.__version__]
        lines.append(unchanged_checkpoint())
        lines += self._what
        lines.append(str(frozen_layers))
        text = "\n".join(lines)
        digest = hashlib.sha256(text.encode())
        return digest.hexdigest()[:32]

    def _build(self, frozen_layers: int, others: Iterable[int]) -> None:
        """Write the entry of this depth, and of others where there is room for all of them."""
        store = self._store
        shape = self._shape
        precision = self._setting.recipe.prefix_cache
        with contextlib.ExitStack() as written:
            append = {}
            with store.taking_room():
                depths = self._with_room(frozen_layers, others)
                for n in depths:
                    what = f"{self._setting.name}, {n} frozen layers, {precision}"
                    entry = store.writing(self._key(n), what, shape)
                    append[n] = written.enter_context(entry)
            for rows in self._splits.values():
                for _, n, hidden in rows_behind(self._runs, rows, depths, self._setting):
                    append[n](hidden)

    def _with_room(self, frozen_layers: int, others: Iterable[int]) -> list[int]:
        """Make room; return the depths that have it: this one, and all others that lack an entry.

        Or this one alone. Raises NotKeptError where there is no room for that either.
        """
        store = self._store
        size = self._shape.bytes
        # What a killed process left unfinished is no entry: it is written anew.
        present_keys = {entry.key for entry in store.entries() if not entry.is_damaged}
        missing = {frozen_layers}
        for n in others:
            if self._key(n) not in present_keys:
                missing.add(n)
        try:
            store.make_room(size * len(missing))
        except NotKeptError:
            store.make_room(size)
            return [frozen_layers]
        return sorted(missing)


def rows_behind(
    runs: PackedModel | PaddedModel,
    rows: TokenRows,
    wanted: Collection[int],
    setting: Setting,
) -> Iterator[tuple[IndexArray, int, Tensor]]:
    """Yield (row numbers, N, hidden states [tokens, H] of these rows behind N layers).

    For all rows in their order, about _CHUNK_TOKENS tokens at a time, and each wanted N.
    """
    for chunk in passes(rows):
        with torch.inference_mode(), setting.arithmetic():
            for n, hidden in runs.behind(rows, chunk, wanted):
                yield chunk, n, hidden


def passes(rows: TokenRows) -> Iterator[IndexArray]:
    """Yield the numbers of all rows in their order, about _CHUNK_TOKENS tokens at a time."""
    start = 0
    while start < len(rows):
        limit = rows.offsets[start] + _CHUNK_TOKENS
        behind_limit = int(np.searchsorted(rows.offsets, limit, side="right"))
        stop = max(start + 1, behind_limit - 1)
        yield np.arange(start, stop)
        start = stop


def _rows_digest(rows: TokenRows) -> str:
    """Return a digest of the rows' tokens."""
    digest = hashlib.blake2b()
    for array in (rows.input_ids, rows.offsets, rows.token_type_ids):
        if array is None:
            digest.update(b"-")
        else:
            contiguous = np.ascontiguousarray(array)
            digest.update(contiguous.data)
    return digest.hexdigest()[:32]
