"""One trial's share of the machine: as asked for, as `doctor --tune` measured it, or by a rule."""

import dataclasses
from collections.abc import Callable, Sequence

from elsa_tune.errors import UsageError
from elsa_tune.searching.inputs import Request
from elsa_tune.searching.output import Say
from elsa_tune.searching.tune.cluster import Capacity
from elsa_tune.specs.model import ModelFacts
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.trial import Precision, Recipe
from elsa_tune.training.machine import CONTEXT_MIB, MIB, Gpu, look_at_gpu, resolve_precision

GIB = 2**30
# By launches a GPU waits for its host most of the time at BERT-base's size, so that trials on the
# same GPU fill each other's pauses. An estimate from launch counts: `doctor --tune` measures it
# (docs/guides/gpu.md).
SHARES = (4, 2, 1)
# Trials share a GPU only if each gets this many times what it is estimated to need.
ROOM = 2.0
# Of a parameter: its fp32 weight; and where it trains also gradient and AdamW's two moments.
WEIGHT_BYTES = 4
STATE_BYTES = 16
# Kept for the backward pass for each token, layer and hidden unit, in fp32: by counting what
# BERT's layer keeps (Korthikanti et al. 2022, "Reducing Activation Recomputation", eq. 2: 34).
ACTIVATION_BYTES = 34 * 4
# What another process may hold of a GPU before that is worth a line: a desktop takes less.
NOTED_IN_USE = 0.1


def share(
    request: Request, capacity: Capacity, say: Callable[[str], None] | None = None
) -> Resources:
    """One trial's share: as asked for, else as `doctor --tune` found for the model, else by a rule.

    Raises UsageError when no node could ever run such a trial.
    """
    cpus, gpus = request.cpus_per_trial, request.gpus_per_trial
    # Of other machines' cores nothing is known.
    if cpus is None and gpus is None and request.address is None:
        cpus, gpus = _measured(request, capacity, say)
    if gpus is None and capacity.gpu_kinds:
        from elsa_tune.training.model.encoder import facts

        # Each trial has a core: with fewer of them Ray would leave whole GPUs idle.
        most = capacity.cpus // capacity.gpus
        model = facts(request.model)
        gpus = default_gpu_share(model, request.recipe, capacity.gpu_kinds, most)
    return capacity.resources(cpus, gpus)


def _measured(
    request: Request, capacity: Capacity, say: Callable[[str], None] | None
) -> tuple[float | None, float | None]:
    """CPUs and share of a GPU that `doctor --tune` found best for this model here, if it did."""
    from elsa_tune.training.throughput import remembered

    if capacity.gpus and look_at_gpu().fault:
        return None, None  # a cluster's GPUs, of which this machine has none
    tuned = remembered("cuda" if capacity.gpus else "cpu").get(request.model.name)
    if tuned is None or tuned.division.threads > capacity.largest_cpus:
        return None, None
    cpus = float(tuned.division.threads)
    gpus = 1 / tuned.division.trials if capacity.gpus else None
    if say is not None:
        each = f"{cpus:g} CPU" + (f" and {gpus:g} GPU" if gpus else "")
        say(f"  {each} per trial, as `elsa-tune doctor --tune` found on {tuned.date}")
        if (tuned.bf16 or 0) >= 1.2 and request.recipe.precision is Precision.AUTO:
            say(f"  precision=bf16 trains the full model {tuned.bf16:.1f} times as fast")
    return cpus, gpus


def least_bytes(model: ModelFacts) -> int:
    """What any trial takes of a GPU: CUDA's own part, and the model's weights."""
    return CONTEXT_MIB * MIB + WEIGHT_BYTES * model.total


def needed_bytes(model: ModelFacts, recipe: Recipe) -> int:
    """About what a trial of the full model takes: beside these gradients, AdamW's state, and what a
    batch keeps for its backward pass.
    """
    tokens = recipe.batch_size * recipe.max_length
    activations = tokens * model.layers * model.hidden_size * ACTIVATION_BYTES
    return CONTEXT_MIB * MIB + STATE_BYTES * model.total + activations


def default_gpu_share(
    model: ModelFacts, recipe: Recipe, gpus: Sequence[Gpu], most: float = max(SHARES)
) -> float:
    """The part of a GPU that a trial takes where nothing was asked for or measured: the smallest
    that gives it twice what the full model is estimated to need. most: trials on a GPU at most.
    """
    wanted = ROOM * needed_bytes(model, recipe)
    smallest = min(gpu.memory for gpu in gpus)
    fitting = [n for n in SHARES if smallest / n >= wanted and n <= most]
    return 1 / max(fitting, default=1)


def check_memory(gpus_per_trial: float, model: ModelFacts, gpus: Sequence[Gpu]) -> None:
    """Raise UsageError for a share of a GPU, or a GPU that others use, in which no trial fits."""
    least = least_bytes(model)
    for gpu in gpus:
        part = gpus_per_trial * gpu.memory
        if part < least:
            remedy = f"give `gpus_per_trial` {1.05 * least / gpu.memory:.2g} or more"
            if least > gpu.memory:
                remedy = "use a larger one, or give `gpus_per_trial` 0 to train on CPUs"
            raise UsageError(
                f"{gpus_per_trial:g} of a {gpu.name} is {part / GIB:.1f} GiB, but CUDA itself and "
                f"the model's weights take {least / GIB:.1f} GiB; {remedy}"
            )
        # Who asked what is free had CUDA's own part already.
        if gpu.free is not None and gpu.free + CONTEXT_MIB * MIB < least:
            raise UsageError(
                f"other processes hold all but {gpu.free / GIB:.1f} of the {gpu.name}'s "
                f"{gpu.memory / GIB:.1f} GiB, but CUDA itself and the model's weights take "
                f"{least / GIB:.1f} GiB; end them (`nvidia-smi` lists them), or give "
                "`gpus_per_trial` 0 to train on CPUs"
            )


def notes(spec: SearchSpec, model: ModelFacts, gpus: Sequence[Gpu]) -> list[str]:
    """What the user of these GPUs should know before the first trial, each thing once. spec: with
    its share of a GPU and its precision decided.
    """
    found: list[str] = []
    needed = needed_bytes(model, spec.recipe)
    for gpu in gpus:
        size = f"{gpu.name} ({gpu.memory / GIB:.1f} GiB)"
        part = spec.resources.gpus * gpu.memory
        if part < needed:
            found.append(
                f"{spec.resources.gpus:g} of a {size} may be too little for a trial of the full "
                f"model, which takes about {needed / GIB:.1f} GiB: batches may be halved, or it "
                "may fail"
            )
        if gpu.free is not None and gpu.free < (1 - NOTED_IN_USE) * gpu.memory - CONTEXT_MIB * MIB:
            found.append(
                f"other processes hold {(gpu.memory - gpu.free) / GIB:.1f} GiB of a {size}: "
                "trials may be slower, and their batches halved"
            )
        if " MIG " in gpu.name:
            found.append(
                f"trials train on one MIG slice, {size}: Ray counts the GPU, not its slices, and "
                "leaves the others idle"
            )
        if spec.recipe.precision is Precision.BF16 and not gpu.has_flash:
            found.append(
                f"torch {gpu.torch} has no flash attention for a {size}: rows are attended in "
                "padded squares, which is slower"
            )
    return list(dict.fromkeys(found))


def settled_recipe(spec: SearchSpec, gpus: Sequence[Gpu], say: Say) -> Recipe:
    """Return the recipe with its precision decided, one for all nodes that may train.

    gpus: theirs. Says what whoever uses such GPUs should know. Raises SpaceError for a precision
    that one of them has not, UsageError for one without room for a trial.
    """
    from elsa_tune.training.model.encoder import facts

    if not spec.resources.gpus:
        precision = resolve_precision(spec.recipe.precision, "cpu")
        return dataclasses.replace(spec.recipe, precision=precision)
    model = facts(spec.model)
    check_memory(spec.resources.gpus, model, gpus)
    has_units = all(gpu.has_bf16 for gpu in gpus)
    precision = resolve_precision(spec.recipe.precision, "cuda", has_units)
    recipe = dataclasses.replace(spec.recipe, precision=precision)
    for note in notes(dataclasses.replace(spec, recipe=recipe), model, gpus):
        say(f"note: {note}")
    return recipe
