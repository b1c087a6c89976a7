"""Query, key and value of a trained layer as one matrix product.

In the last layer, whose query is asked of first tokens only, that is key and value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.training import loop
from elsa_tune.training.forward.attention import Heads, attend
from elsa_tune.training.forward.packed import PackedBatch
from elsa_tune.training.forward.packed_model import Block, PackedModel
from elsa_tune.training.forward.runner import Runner

JOINED = "joined"  # name of the common linear module in a layer's attention


def join(model: PackedModel) -> None:
    """Give every trained layer's attention its common linear module; the parts are views of it."""
    block = model._block
    for number, layer in enumerate(model.layers, start=model.first_layer):
        attention: Any = layer.get_submodule(block.attention)
        last = number == model.deepest - 1 and not model._reads_mean
        parts = [getattr(attention, name) for name in block.projections[1 if last else 0 :]]
        if not all(part.weight.requires_grad for part in parts):
            continue
        width, inner = parts[0].weight.shape
        # Nothing is drawn for it: the random numbers that dropout gets are as before.
        joined = nn.Linear(inner, width * len(parts), device="meta")
        for name in ("weight", "bias"):
            whole = nn.Parameter(torch.cat([getattr(part, name).detach() for part in parts]))
            setattr(joined, name, whole)
            for part, own in zip(parts, whole.detach().split(width), strict=True):
                parameter = getattr(part, name)
                # Names and exports keep the parameter; training has the joined one.
                parameter.requires_grad_(False)
                parameter.data = own
        attention.add_module(JOINED, joined)


def run(
    self: Block,
    layer: nn.Module,
    hidden: Tensor,
    batch: PackedBatch,
    cls_only: bool,
    bias: Tensor | None,
) -> Tensor:
    """As `Block.run`, of which it is a copy."""
    attention: Any = layer.get_submodule(self.attention)
    asking = batch.cls_tokens(hidden) if cls_only else hidden
    read = batch.operand(hidden)
    query, key, value = (getattr(attention, name) for name in self.projections)
    joined = getattr(attention, JOINED, None)
    found: Sequence[Tensor] = []
    if joined is not None:
        found = joined(read).split(query.out_features, dim=-1)
    if not found:
        found = (query(asking if cls_only else read), key(read), value(read))
    elif len(found) == 2:
        found = (query(asking if cls_only else read), *found)
    count = getattr(attention, self.heads)
    dropout = attention.dropout.p if attention.training else 0.0
    heads = Heads(count, dropout, (query.out_features // count) ** -0.5)
    context = attend(*found, batch, heads, bias)
    return self.behind(layer, context, asking)


class OneProduct(loop._Run):
    """A trial whose model is joined; `run` must stand in the place of `Block.run`."""

    def _frozen_model(self, depths: Sequence[Candidate]) -> Runner:
        runner = super()._frozen_model(depths)
        if isinstance(runner.model, PackedModel):
            join(runner.model)
        return runner
