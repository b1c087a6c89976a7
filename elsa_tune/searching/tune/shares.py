"""One trial's share of the machine: as asked for, as `doctor --tune` measured it, or by a rule."""

import dataclasses
from collections.abc import Callable, Sequence

from elsa_tune.errors import UsageError
from elsa_tune.searching.output import Say
from elsa_tune.searching.request import Request
from elsa_tune.searching.tune.cluster import Capacity
from elsa_tune.specs.model import ModelFacts
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.trial import Precision, Recipe
from elsa_tune.training.machine import CONTEXT_MIB, MIB, Gpu, look_at_gpu, resolve_precision

GIB = 2**30
# How many trials may share a GPU. At BERT-base's size it waits for its host most of the time, so
# that trials fill each other's pauses. An estimate from launch counts: `doctor --tune` measures it
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
# How many times as fast bf16 must be to be worth a line.
WORTH_BF16 = 1.2


def share(
    request: Request, capacity: Capacity, say: Callable[[str], None] | None = None
) -> Resources:
    """Return one trial's share of the machine.

    It is what was asked for, else what `doctor --tune` found for the model, else what a rule gives.
    Raises UsageError when no node could ever run such a trial.
    """
    cpus = request.cpus_per_trial
    gpus = request.gpus_per_trial
    # Of other machines' cores nothing is known.
    if cpus is None and gpus is None and request.spec.address is None:
        cpus, gpus = _measured(request, capacity, say)
    if gpus is None and capacity.gpu_kinds:
        from elsa_tune.training.model.encoder import facts

        # Each trial has a core: with fewer of them Ray would leave whole GPUs idle.
        most = capacity.cpus // capacity.gpus
        model = facts(request.spec.model)
        gpus = default_gpu_share(model, request.spec.recipe, capacity.gpu_kinds, most)
    return capacity.resources(cpus, gpus)


def _measured(
    request: Request, capacity: Capacity, say: Callable[[str], None] | None
) -> tuple[float | None, float | None]:
    """Return the CPUs and share of a GPU that `doctor --tune` found best for this model here.

    Both are None where it was not asked.
    """
    from elsa_tune.training.throughput import remembered

    if capacity.gpus and look_at_gpu().fault:
        return None, None  # a cluster's GPUs, of which this machine has none
    device = "cuda" if capacity.gpus else "cpu"
    tuned = remembered(device).get(request.spec.model.name)
    if tuned is None or tuned.division.threads > capacity.largest_cpus:
        return None, None
    cpus = float(tuned.division.threads)
    gpus = None
    if capacity.gpus:
        gpus = 1 / tuned.division.trials
    if say is not None:
        resources = f"{cpus:g} CPU"
        if gpus:
            resources += f" and {gpus:g} GPU"
        say(f"  {resources} per trial, as `elsa-tune doctor --tune` found on {tuned.date}")
        is_faster = tuned.bf16 is not None and tuned.bf16 >= WORTH_BF16
        if is_faster and request.spec.recipe.precision is Precision.AUTO:
            say(f"  precision=bf16 trains the full model {tuned.bf16:.1f} times as fast")
    return cpus, gpus


def least_bytes(model: ModelFacts) -> int:
    """Return what any trial takes of a GPU: CUDA's own part, and the model's weights."""
    return CONTEXT_MIB * MIB + WEIGHT_BYTES * model.total


def needed_bytes(model: ModelFacts, recipe: Recipe) -> int:
    """Estimate what a trial of the full model takes of a GPU.

    That is CUDA's own part, weights, gradients, AdamW's state, and what a batch keeps for its
    backward pass.
    """
    tokens = recipe.batch_size * recipe.max_length
    activations = tokens * model.layers * model.hidden_size * ACTIVATION_BYTES
    return CONTEXT_MIB * MIB + STATE_BYTES * model.total + activations


def default_gpu_share(
    model: ModelFacts, recipe: Recipe, gpus: Sequence[Gpu], most: float = max(SHARES)
) -> float:
    """Return the part of a GPU that a trial takes where nothing was asked for or measured.

    It is the smallest that gives the trial twice what the full model is estimated to need. most:
    trials on a GPU at most.
    """
    wanted = ROOM * needed_bytes(model, recipe)
    smallest = min(gpu.memory for gpu in gpus)
    for trials in SHARES:  # the most first
        if trials > most:
            continue
        part = smallest / trials
        if part >= wanted:
            return 1 / trials
    return 1.0


def check_memory(gpus_per_trial: float, model: ModelFacts, gpus: Sequence[Gpu]) -> None:
    """Raise UsageError for a share of a GPU, or a GPU that others use, in which no trial fits."""
    least = least_bytes(model)
    taken = f"CUDA itself and the model's weights take {_gib(least)}"
    for gpu in gpus:
        part = gpus_per_trial * gpu.memory
        if part < least:
            enough = 1.05 * least / gpu.memory
            remedy = f"give `gpus_per_trial` {enough:.2g} or more"
            if least > gpu.memory:
                remedy = "use a larger one, or give `gpus_per_trial` 0 to train on CPUs"
            raise UsageError(
                f"{gpus_per_trial:g} of a {gpu.name} is {_gib(part)}, but {taken}; {remedy}"
            )
        if gpu.free is None:
            continue
        # Who asked what is free had CUDA's own part already.
        within_reach = gpu.free + CONTEXT_MIB * MIB
        if within_reach < least:
            raise UsageError(
                f"other processes hold all but {gpu.free / GIB:.1f} of the {gpu.name}'s "
                f"{_gib(gpu.memory)}, but {taken}; end them (`nvidia-smi` lists them), or give "
                "`gpus_per_trial` 0 to train on CPUs"
            )


def _gib(size: float) -> str:
    """Write a number of bytes in GiB."""
    return f"{size / GIB:.1f} GiB"


def notes(spec: SearchSpec, model: ModelFacts, gpus: Sequence[Gpu]) -> list[str]:
    """Write what the user of these GPUs should know before the first trial, each thing once.

    spec: with its share of a GPU and its precision decided.
    """
    sentences: list[str] = []
    needed = needed_bytes(model, spec.recipe)
    share_of_gpu = spec.resources.gpus
    for gpu in gpus:
        size = f"{gpu.name} ({_gib(gpu.memory)})"
        if share_of_gpu * gpu.memory < needed:
            sentences.append(
                f"{share_of_gpu:g} of a {size} may be too little for a trial of the full "
                f"model, which takes about {_gib(needed)}: batches may be halved, or it may fail"
            )
        usually_free = (1 - NOTED_IN_USE) * gpu.memory - CONTEXT_MIB * MIB
        if gpu.free is not None and gpu.free < usually_free:
            in_use = gpu.memory - gpu.free
            sentences.append(
                f"other processes hold {_gib(in_use)} of a {size}: "
                "trials may be slower, and their batches halved"
            )
        if " MIG " in gpu.name:
            sentences.append(
                f"trials train on one MIG slice, {size}: Ray counts the GPU, not its slices, and "
                "leaves the others idle"
            )
        if spec.recipe.precision is Precision.BF16 and not gpu.has_flash:
            sentences.append(
                f"torch {gpu.torch} has no flash attention for a {size}: rows are attended in "
                "padded squares, which is slower"
            )
    return list(dict.fromkeys(sentences))


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
    has_bf16 = all(gpu.has_bf16 for gpu in gpus)
    precision = resolve_precision(spec.recipe.precision, "cuda", has_bf16)
    recipe = dataclasses.replace(spec.recipe, precision=precision)
    settled = dataclasses.replace(spec, recipe=recipe)
    for note in notes(settled, model, gpus):
        say(f"note: {note}")
    return recipe
