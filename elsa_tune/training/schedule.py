"""Which optimiser steps a trial takes: how many, on which examples, at which rate, and when it is
evaluated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch

from elsa_tune.errors import SpaceError
from elsa_tune.specs.trial import Recipe, TrialSpec
from elsa_tune.training.data.tokens import IndexArray

# MiniLM's full model on 1,000 examples loses 2 (SST-2) and 4 points (STS-B) with 126 steps against
# 252, and 22 and 45 with 63; 504 add 1 to 252 (SST-2, one seed each).
FEW_STEPS = 150


def evaluation_steps(recipe: Recipe, train_size: int) -> tuple[int, ...]:
    """The optimiser steps (1-based) after which a trial is evaluated; the last one ends it."""
    per_epoch = math.ceil(train_size / recipe.batch_size)
    parts = recipe.evaluations_per_epoch
    if parts > per_epoch:
        raise SpaceError(
            f"evaluations_per_epoch is {parts}, but {train_size} examples in batches of "
            f"{recipe.batch_size} make only {per_epoch} steps an epoch; lower it or the batch size"
        )
    return tuple(
        epoch * per_epoch + math.ceil(per_epoch * part / parts)
        for epoch in range(recipe.epochs)
        for part in range(1, parts + 1)
    )


def few_steps(recipe: Recipe, steps: int) -> str | None:
    """What to tell who plans trials of so few optimiser steps; None where they are enough."""
    if steps >= FEW_STEPS:
        return None
    per_epoch = steps // recipe.epochs
    return (
        f"{steps} optimiser steps per trial are few: below about {FEW_STEPS} a full model still "
        f"gains points from more; set epochs={math.ceil(FEW_STEPS / per_epoch)}, or a batch_size "
        f"below {recipe.batch_size}"
    )


def shuffled_batches(trial: TrialSpec, examples: int) -> Iterator[IndexArray]:
    """Indices of the training examples, batch after batch, a fresh order each epoch, without end.

    By a generator of their own: the order is the same at every depth and whatever dropout draws.
    """
    generator = torch.Generator().manual_seed(trial.seed)
    size = trial.recipe.batch_size
    while True:
        order = torch.randperm(examples, generator=generator).numpy()
        for start in range(0, len(order), size):
            yield order[start : start + size]
