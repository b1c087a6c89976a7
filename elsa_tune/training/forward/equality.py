"""Does what runs fast compute what the whole model computes? Asked of a checkpoint, on few rows."""

import contextlib
import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from elsa_tune.specs.trial import Recipe
from elsa_tune.training.adapt.trainable import Trainable, frozen_modules
from elsa_tune.training.data.batches import pad_batch
from elsa_tune.training.data.tokens import IndexArray, TaskData, TokenRows
from elsa_tune.training.forward.attention import Heads, attend
from elsa_tune.training.forward.packed import Attention, Layout, pack
from elsa_tune.training.forward.packed_model import PackedModel, has_position_bias
from elsa_tune.training.forward.padded_model import PaddedModel
from elsa_tune.training.machine import has_flash_attention, is_out_of_memory
from elsa_tune.training.model.encoder import checkpoint_parameters, loaded_checkpoint
from elsa_tune.training.model.parts import layer_list


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What decides how a trial's model is run."""

    trainable: Trainable  # what of the model trains
    recipe: Recipe  # the trial's
    precision: str  # as resolved: `fp32`, `tf32` or `bf16`
    device: torch.device  # where the model lies
    name: str  # for whoever lists what is kept
    # The first trained layers of other candidates, whose prefixes the search will want, too.
    others: Sequence[int] = ()
    keeps_words: bool = False  # the word table stays complete, for a model that is saved

    @property
    def autocast(self) -> bool:
        """Whether matrix products are in bf16."""
        return self.precision == "bf16"

    def arithmetic(self) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which forward passes run."""
        return torch.autocast(
            self.device.type,
            dtype=torch.bfloat16,
            enabled=self.autocast,
        )


_TOLERANCE = 1e-4
# Two roundings to eight bits, with room for sums in another order.
_BF16_TOLERANCE = 0.02

Modules = list[nn.Module]
# Returns how what runs fast differs, None where it does not.
Test = Callable[[], str | None]

# What tests found, by what decides that.
_doubts: dict[tuple[Any, ...], str | None] = {}


def _tested_once(
    what: str,
    data: TaskData,
    setting: Setting,
    test: Test,
) -> str | None:
    """Return what a test of what runs fast finds.

    It is run once a process for every checkpoint, candidate and way of training, on a few short
    rows, in exact arithmetic. An error is an answer too.
    """
    recipe = setting.recipe
    key = (
        what,
        loaded_checkpoint(),
        data.padding_side,
        setting.trainable,
        recipe.frozen_dropout,
        recipe.pooling,
        setting.device,
    )
    if key not in _doubts:
        products = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("highest")  # whatever the trial has
        try:
            _doubts[key] = _result_of(what, test)
        finally:
            torch.set_float32_matmul_precision(products)
    return _doubts[key]


def _result_of(what: str, test: Test) -> str | None:
    """Return what a test finds, or which error ended it. Raises those of memory alone."""
    try:
        difference = test()
    except ValueError as error:
        return str(error)
    except Exception as error:  # an architecture may break in any way when taken apart
        if isinstance(error, RuntimeError | MemoryError) and is_out_of_memory(error):
            raise  # which says nothing of the architecture
        kind = type(error).__name__
        return f"{what} it cannot be run ({kind}: {error})"
    if difference is None:
        return None
    return f"{what} {difference}"


def packed_doubt(model: PreTrainedModel, data: TaskData, setting: Setting) -> str | None:
    """Return why packed tokens would not give what the model gives; None where they do."""
    begin = setting.trainable.first_trained_layer
    fast = partial(
        PackedModel,
        begin=begin,
        pooling=setting.recipe.pooling,
    )
    test = partial(_difference, model, data, setting, fast)
    return _tested_once("on packed tokens", data, setting, test)


def tail_doubt(model: PreTrainedModel, data: TaskData, setting: Setting) -> str | None:
    """Return why padded batches behind kept layers would not give what the model gives, or None."""
    fast = partial(PaddedModel, data=data)
    test = partial(_difference, model, data, setting, fast)
    return _tested_once("behind kept layers", data, setting, test)


@torch.no_grad()
def _difference(
    model: PreTrainedModel,
    data: TaskData,
    setting: Setting,
    fast: Callable[[PreTrainedModel], PackedModel | PaddedModel],
) -> str | None:
    """Return how the logits of what runs fast differ from the model's, on a few rows, or None."""
    model = _with_effect(model, setting)
    complete, complete_prefix = _calm_copy(model, setting)
    ours, our_prefix = _calm_copy(model, setting)
    runs = fast(ours)
    few = _probe_rows(data.evaluation)
    rows = data.evaluation.take(few)
    numbers = np.arange(len(rows))
    batch = runs.batch(rows, numbers)
    order = batch.rows.cpu().numpy()
    inputs = pad_batch(rows, order, data, setting.device).inputs
    frozen_dropout = setting.recipe.frozen_dropout
    n = min(setting.trainable.first_trained_layer, runs.deepest)
    given = None
    if n > 0:
        [(_, hidden)] = runs.behind(rows, numbers, [n])
        given = hidden[batch.places]
        if not frozen_dropout:
            runs.drop_prefix(n)
    for training in (False, True):
        complete.train(training)
        runs.train(training)
        for module in (*complete_prefix, *our_prefix):
            module.eval()
        output = complete(**inputs)
        expected = output.logits.float()
        reads = given
        if training and frozen_dropout:
            reads = None  # only evaluation reads what was kept
        logits = runs(batch, reads).float()
        off = _largest(expected - logits)
        tolerated = _TOLERANCE * _largest(expected) + 1e-6
        is_equal = off <= tolerated  # nor NaN
        if not is_equal:
            mode = "training" if training else "evaluation"
            return f"its logits differ by {off:.2g} in {mode} mode"
    return None


def _largest(numbers: Tensor) -> float:
    """Return the largest absolute value."""
    return float(numbers.abs().max())


def _calm_copy(model: PreTrainedModel, setting: Setting) -> tuple[Any, Modules]:
    """Return a copy of a model without the randomness of what trains, and its frozen prefix.

    It can be taken apart while the other stays complete; both share their weights.

    Any other dropout stays on. The complete model has it in front of what trains, and the fast one
    would apply it to kept states: the test must then find that they differ.
    """
    copied = twin(model)
    behind_prefix: Modules = [copied]
    prefix: Modules = []
    trainable = setting.trainable
    if not setting.recipe.frozen_dropout and not trainable.embeddings_train:
        base = copied.base_model
        behind_prefix = []
        for child in copied.children():
            if child is not base:
                behind_prefix.append(child)
        for name, child in base.named_children():
            if "pool" in name.lower():
                behind_prefix.append(child)
        layers = list(layer_list(copied))
        behind_prefix += layers[trainable.first_trained_layer :]
        prefix = frozen_modules(copied, trainable)
    for module in behind_prefix:
        for part in module.modules():
            if isinstance(part, nn.Dropout):
                part.p = 0.0
    return copied, prefix


def _with_effect(model: PreTrainedModel, setting: Setting) -> PreTrainedModel:
    """Return a copy in which what a method added is moved away from where it begins.

    There it often changes nothing (LoRA's second matrix is zero), and whether it is computed at all
    would not show. The same each time; a model to which nothing was added is returned as it is.
    """
    of_checkpoint = checkpoint_parameters()
    added = setting.trainable.parameters - of_checkpoint
    if not of_checkpoint or not added:
        return model
    moved = twin(model, copied=added)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in moved.named_parameters():
        if name in added:
            scale = parameter.shape[-1] ** -0.5
            step = torch.randn(parameter.shape, generator=generator) * scale
            parameter.add_(step.to(parameter.device))
    return cast(PreTrainedModel, moved)


def twin(model: PreTrainedModel, copied: Collection[str] = ()) -> Any:
    """Return a copy that can be taken apart, around the same weights.

    copied: names of parameters that it has for itself.
    """
    shared: dict[int, Any] = {}
    for name, parameter in model.named_parameters():
        if name not in copied:
            shared[id(parameter)] = parameter
    for buffer in model.buffers():
        shared[id(buffer)] = buffer
    return copy.deepcopy(model, shared)


def packed_layout(
    model: PreTrainedModel,
    data: TaskData,
    setting: Setting,
) -> tuple[Layout, list[str]]:
    """Return the fastest layout of packed rows for this model on this device.

    With it a note where the device has a faster one that does not give the same.
    """
    dtype = torch.bfloat16 if setting.autocast else torch.float32
    layout = Layout.plain(setting.device, dtype)
    if not _attends_varlen(model, setting):
        return layout, []
    test = partial(_varlen_difference, model, data, setting)
    doubt = _tested_once("by varlen attention", data, setting, test)
    if doubt is not None:
        return layout, [f"attention on padded rows: {doubt}"]
    return replace(layout, attention=Attention.VARLEN), []


def _attends_varlen(model: PreTrainedModel, setting: Setting) -> bool:
    """Return whether this GPU has flash attention that takes this model's heads."""
    device = setting.device
    if device.type != "cuda" or not setting.autocast:
        return False
    size = _head_size(model)
    is_taken = size % 8 == 0 and size <= 256
    if not is_taken or has_position_bias(model):
        return False
    return has_flash_attention(device)


def _head_size(model: PreTrainedModel) -> int:
    config = model.config
    size: int = config.hidden_size // config.num_attention_heads
    return size


def _varlen_difference(model: PreTrainedModel, data: TaskData, setting: Setting) -> str | None:
    """Return how varlen attention differs from padded attention, gradients included, or None.

    Of attention alone: in bf16 a complete model's difference would tell little."""
    padded_outcome = _outcome(Attention.PADDED, model, data.evaluation, setting.device)
    varlen_outcome = _outcome(Attention.VARLEN, model, data.evaluation, setting.device)
    for padded, varlen in zip(padded_outcome, varlen_outcome, strict=True):
        difference = (padded - varlen).float().abs().max()
        largest = padded.float().abs().max()
        off = float(difference / largest)
        is_equal = off <= _BF16_TOLERANCE  # nor NaN
        if not is_equal:
            return f"it differs by {off:.2g} of its largest value"
    return None


def _outcome(
    attention: Attention,
    model: PreTrainedModel,
    rows: TokenRows,
    device: torch.device,
) -> list[Tensor]:
    """Return the context that random queries of a few rows gather, and their gradients."""
    config = model.config
    scaling = _head_size(model) ** -0.5
    heads = Heads(config.num_attention_heads, 0.0, scaling)
    layout = Layout(device, attention, torch.bfloat16)
    batch = pack(rows, _probe_rows(rows), layout)
    generator = torch.Generator(device).manual_seed(0)

    def drawn(count: int) -> Tensor:
        shape = (count, config.hidden_size)
        values = torch.randn(shape, generator=generator, device=device)
        return values.bfloat16()

    tokens = len(batch.ids)
    q = drawn(tokens).requires_grad_()
    k = drawn(tokens).requires_grad_()
    v = drawn(tokens).requires_grad_()
    every_token = attend(q, k, v, batch, heads)
    first_queries = batch.cls_tokens(q)
    cls_tokens = attend(first_queries, k, v, batch, heads)
    context = torch.cat([every_token, cls_tokens])
    context_gradient = drawn(len(context))
    gradients = torch.autograd.grad(context, (q, k, v), context_gradient)
    return [context.detach(), *gradients]


def _probe_rows(rows: TokenRows) -> IndexArray:
    """Choose a few short rows of different lengths."""
    by_length = np.argsort(rows.lengths, kind="stable")
    lengths = rows.lengths[by_length]
    last = len(rows) - 1
    places = {0}
    for length in (8, 14, 24):
        place = int(np.searchsorted(lengths, length))
        places.add(place)
    chosen = [min(place, last) for place in sorted(places)]
    return by_length[chosen]
