"""One trial's share of the machine: as asked for, as `doctor --tune` measured it, or by a rule."""

import dataclasses
from collections.abc import Callable, Sequence

from elsa_tune.errors import UsageError
from elsa_tune.searching.cluster.capacity import Capacity, share_text
from elsa_tune.searching.cluster.recorded_peaks import recorded_peak
from elsa_tune.searching.output import Say
from elsa_tune.searching.request import Request
from elsa_tune.specs.model import ModelFacts
from elsa_tune.specs.search import Resources, SearchSpec
from elsa_tune.specs.trial import Precision, Recipe
from elsa_tune.training.machine import CONTEXT_MIB, MIB, Gpu, look_at_gpu, resolve_precision

GIB = 2**30
# What CUDA takes of a GPU for itself in each process.
CONTEXT_BYTES = CONTEXT_MIB * MIB
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
    request: Request,
    capacity: Capacity,
    say: Callable[[str], None] | None = None,
) -> Resources:
    """Return one trial's share of the machine.

    It is what was asked for, else what `doctor --tune` found for the model, else what has room for
    the peak of recorded trials, else for twice what the full model is estimated to need.
    Raises UsageError when no node could ever run such a trial.
    """
    cpus = request.spec.cpus_per_trial
    gpus = request.spec.gpus_per_trial
    nothing_asked_for = cpus is None and gpus is None
    # Of other machines' cores nothing is known. A program's own Ray may have joined some.
    is_this_machine = request.spec.address is None and len(capacity.nodes) == 1
    if nothing_asked_for and is_this_machine:
        cpus, gpus = _measured(request, capacity, say)
    if gpus is None and capacity.gpu_kinds:
        from elsa_tune.training.model.encoder import facts

        # Each trial has its cores: with fewer of them Ray would leave whole GPUs idle.
        cores = 1.0 if cpus is None else cpus
        most_trials = capacity.cpus_a_gpu // cores
        recorded = recorded_peak(request)
        if recorded is None:
            model = facts(request.spec.model)
            wanted = ROOM * needed_bytes(model, request.spec.recipe)
            gpus = smallest_share(wanted, capacity.gpu_kinds, most_trials)
        else:
            gpus = smallest_share(recorded.needed, capacity.gpu_kinds, most_trials)
            if say is not None:
                needed = _gib(recorded.needed)
                say(f"  {gpus:g} GPU per trial: by search '{recorded.search}' one takes {needed}")
    return capacity.resources(cpus, gpus)


def share_again(spec: SearchSpec, capacity: Capacity, say: Say) -> Resources:
    """Return one trial's share where a recorded search goes on; say where it is another one.

    It is the one that the search began with, or what was asked for since. CPUs that nobody asked
    for are decided anew where no node has them, or where a trial gets another part of a GPU; by
    itself that part stays as it was. Raises UsageError when no node could ever run such a trial.
    """
    recorded = spec.resources
    cpus = spec.cpus_per_trial
    gpus = spec.gpu_share
    is_as_recorded = cpus is None and gpus == recorded.gpus
    if is_as_recorded and capacity.room(recorded):
        return recorded
    taken = capacity.resources(cpus, gpus)
    if taken != recorded:
        say(
            f"note: a trial takes {share_text(taken)} in this session; search '{spec.name}' began "
            f"with {share_text(recorded)}"
        )
    return taken


def _measured(
    request: Request,
    capacity: Capacity,
    say: Callable[[str], None] | None,
) -> tuple[float | None, float | None]:
    """Return the CPUs and share of a GPU that `doctor --tune` found best for this model here.

    Both are None where it was not asked.
    """
    from elsa_tune.training.throughput import remembered

    device = "cpu"
    if capacity.gpus:
        if look_at_gpu().fault:
            return None, None  # a cluster's GPUs, of which this machine has none
        device = "cuda"
    tuned_models = remembered(device)
    tuned = tuned_models.get(request.spec.model.name)
    if tuned is None or tuned.division.threads > capacity.largest_cpus:
        return None, None
    cpus = float(tuned.division.threads)
    gpus = None
    if capacity.gpus:
        gpus = 1 / tuned.division.trials
    if say is None:
        return cpus, gpus
    resources = f"{cpus:g} CPU"
    if gpus:
        resources += f" and {gpus:g} GPU"
    say(f"  {resources} per trial, as `elsa-tune doctor --tune` found on {tuned.date}")
    is_open = request.spec.recipe.precision is Precision.AUTO
    is_faster = tuned.bf16 is not None and tuned.bf16 >= WORTH_BF16
    if is_open and is_faster:
        say(f"  precision=bf16 trains the full model {tuned.bf16:.1f} times as fast")
    return cpus, gpus


def least_bytes(model: ModelFacts) -> int:
    """Return what any trial takes of a GPU: CUDA's own part, and the model's weights."""
    weights = WEIGHT_BYTES * model.total
    return CONTEXT_BYTES + weights


def needed_bytes(model: ModelFacts, recipe: Recipe) -> int:
    """Estimate what a trial of the full model takes of a GPU.

    That is CUDA's own part, weights, gradients, AdamW's state, and what a batch keeps for its
    backward pass.
    """
    states = STATE_BYTES * model.total
    tokens = recipe.batch_size * recipe.max_length
    hidden_values = tokens * model.layers * model.hidden_size
    activations = hidden_values * ACTIVATION_BYTES
    return CONTEXT_BYTES + states + activations


def smallest_share(
    wanted: float,
    gpus: Sequence[Gpu],
    most_trials: float = max(SHARES),
) -> float:
    """Return the smallest part of any of these GPUs that has so many bytes; else all of one.

    most_trials: on a GPU.
    """
    smallest_memory = min(gpu.memory for gpu in gpus)
    for trials in SHARES:  # the most first
        if trials > most_trials:
            continue
        part = smallest_memory / trials
        if part >= wanted:
            return 1 / trials
    return 1.0


def check_memory(
    gpus_per_trial: float,
    model: ModelFacts,
    gpus: Sequence[Gpu],
) -> None:
    """Raise UsageError for a share of a GPU, or a GPU that others use, in which no trial fits."""
    least = least_bytes(model)
    taken = f"CUDA itself and the model's weights take {_gib(least)}"
    for gpu in gpus:
        part = gpus_per_trial * gpu.memory
        if part < least:
            remedy = "use a larger one, or give `gpus_per_trial` 0 to train on CPUs"
            if least <= gpu.memory:
                enough = 1.05 * least / gpu.memory
                remedy = f"give `gpus_per_trial` {enough:.2g} or more"
            raise UsageError(
                f"{gpus_per_trial:g} of a {gpu.name} is {_gib(part)}, but {taken}; {remedy}"
            )
        if gpu.free is None:
            continue
        # Who asked what is free had CUDA's own part already.
        within_reach = gpu.free + CONTEXT_BYTES
        if within_reach < least:
            free = f"{gpu.free / GIB:.1f}"
            memory = _gib(gpu.memory)
            raise UsageError(
                f"other processes hold all but {free} of the {gpu.name}'s {memory}, but {taken}; "
                "end them (`nvidia-smi` lists them), or give `gpus_per_trial` 0 to train on CPUs"
            )


def _gib(size: float) -> str:
    """Write a number of bytes in GiB."""
    number = size / GIB
    return f"{number:.1f} GiB"


def notes(spec: SearchSpec, model: ModelFacts, gpus: Sequence[Gpu]) -> list[str]:
    """Write what the user of these GPUs should know before the first trial, each thing once.

    spec: with its share of a GPU and its precision decided.
    """
    sentences: list[str] = []
    needed = needed_bytes(model, spec.recipe)
    trains_in_bf16 = spec.recipe.precision is Precision.BF16
    share_of_gpu = spec.resources.gpus
    for gpu in gpus:
        size = f"{gpu.name} ({_gib(gpu.memory)})"
        part = share_of_gpu * gpu.memory
        if part < needed:
            sentences.append(
                f"{share_of_gpu:g} of a {size} may be too little for a trial of the full "
                f"model, which takes about {_gib(needed)}: batches may be halved, or it may fail"
            )
        usually_free = (1 - NOTED_IN_USE) * gpu.memory - CONTEXT_BYTES
        if gpu.free is not None and gpu.free < usually_free:
            in_use = _gib(gpu.memory - gpu.free)
            sentences.append(
                f"other processes hold {in_use} of a {size}: "
                "trials may be slower, and their batches halved"
            )
        if " MIG " in gpu.name:
            sentences.append(
                f"trials train on one MIG slice, {size}: Ray counts the GPU, not its slices, and "
                "leaves the others idle"
            )
        if trains_in_bf16 and not gpu.has_flash:
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

    asked_for = spec.recipe.precision
    if not spec.resources.gpus:
        precision = resolve_precision(asked_for, "cpu")
        return dataclasses.replace(spec.recipe, precision=precision)
    model = facts(spec.model)
    check_memory(spec.resources.gpus, model, gpus)
    has_bf16 = all(gpu.has_bf16 for gpu in gpus)
    precision = resolve_precision(asked_for, "cuda", has_bf16)
    recipe = dataclasses.replace(spec.recipe, precision=precision)
    settled = dataclasses.replace(spec, recipe=recipe)
    for note in notes(settled, model, gpus):
        say(f"note: {note}")
    return recipe
