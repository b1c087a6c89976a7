"""`elsa-tune doctor` and `cache`: what this machine has for a search, and what is kept on it."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elsa_tune.cli.options import SEARCH_OPTIONS, DataDir, TrackingUri
from elsa_tune.cli.printing import FormatOption, local_time, show, with_options
from elsa_tune.errors import RunError
from elsa_tune.searching.inputs import read_inputs
from elsa_tune.searching.output import say
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.trial import Precision, TrialSpec
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tracking.paths import StorePaths
from elsa_tune.tracking.uris import hidden
from elsa_tune.words import depths_text, listed

if TYPE_CHECKING:
    from elsa_tune.searching.checkup import Check
    from elsa_tune.training.throughput import Division

cache = typer.Typer(no_args_is_help=True, help="List or prune the frozen layers' output kept here.")


@cache.command("ls")
def list_entries(format: FormatOption = "table") -> None:
    """List what is kept, the most recently used first."""
    from elsa_tune.training.forward.prefix_store import PrefixStore

    store = PrefixStore()
    entries = store.entries()
    rows = [dataclasses.asdict(one) | {"last_used": local_time(one.last_used)} for one in entries]
    show(rows, format, ("bytes", "last_used", "in_use", "what"))
    if format == "table":
        total = sum(entry.bytes for entry in entries)
        say(
            f"{total / 1e9:.2f} of {store.budget / 1e9:g} GB in {store.folder}; "
            "ELSA_TUNE_PREFIX_CACHE_GB sets the limit"
        )


@cache.command()
def prune(
    keep_gb: Annotated[
        float, typer.Option(min=0, help="Keep the most recently used, up to this many GB.")
    ] = 0.0,
) -> None:
    """Remove what no running trial reads."""
    from elsa_tune.training.forward.prefix_store import PrefixStore

    store = PrefixStore()
    kept = removed = 0
    for entry in store.entries():
        if kept + entry.bytes <= keep_gb * 1e9 or not store.evict(entry.key):
            kept += entry.bytes
        else:
            removed += entry.bytes
    say(f"removed {removed / 1e9:.2f} GB, kept {kept / 1e9:.2f} GB")


def doctor(
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="Train for a minute or more to find how many trials to run at once."
        ),
    ] = False,
    model: Annotated[str, typer.Option(help="What --tune trains: as for a search.")] = "minilm",
    task: Annotated[
        str | None,
        typer.Option(
            help="Whose rows are tried, and what --tune trains on: as for a search. With --tune by "
            "default stdlib."
        ),
    ] = None,
    data_dir: DataDir = None,
    tracking_uri: TrackingUri = None,
    address: Annotated[str | None, SEARCH_OPTIONS["address"]] = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="How long --tune trains each division of the machine.")
    ] = 8.0,
) -> None:
    """Show what this machine has; try store, Ray and data.

    Each is tried for 90 s at most and left as it was. --tune, instead of that, finds and
    remembers how many trials to run at once. Exit status: 1 where a search would not work.
    """
    if not tune:
        checks = _checks(task, data_dir, tracking_uri, address)
        _show_machine()
        _show_findings(checks)
        return
    inputs = read_inputs(model, task or "stdlib", data_dir=data_dir)
    device = _show_machine()
    # The full model, on which a search spends most; on a GPU also a depth whose trials leave more
    # of it to others.
    depths = [FULL_MODEL]
    if device == "cuda":
        depths.append(FreezeDepth.of(3 * inputs.layers // 4))
    trials = [inputs.trial(depth) for depth in depths]
    _tune(trials, inputs.layers, device, seconds)


def _checks(
    task: str | None, data_dir: str | None, tracking_uri: str | None, address: str | None
) -> "dict[str, Check]":
    from elsa_tune.searching import checkup

    uri = StorePaths(Path.cwd()).tracking_uri(tracking_uri)
    if task is not None:
        data: Check = checkup.task_rows, (resolve_task(task, data_dir),)
    elif data_dir is not None:
        data = checkup.glue_rows, (data_dir,)
    else:
        data = checkup.cached_glue, ()
    return {"store": (checkup.store, (uri,)), "Ray": (checkup.ray, (address,)), "data": data}


def _show_findings(checks: "dict[str, Check]") -> None:
    """A line for each; raises RunError where one is not well."""
    from elsa_tune.searching.checkup import examine

    faults = []
    for one in examine(checks):
        text = hidden(with_options(one.text))
        show({one.name: text if one.is_well else f"does not work: {text}"})
        if not one.is_well:
            faults.append(one.name)
    if faults:
        raise RunError(f"a search would not work here yet: see {listed(faults)}")


def _show_machine() -> str:
    import platform
    from importlib import metadata

    import torch

    from elsa_tune.training.forward.prefix_store import PrefixStore
    from elsa_tune.training.machine import look_at_gpu, resolve_precision, usable_cores
    from elsa_tune.training.throughput import memory_mb, remembered

    fault = look_at_gpu().fault
    device = "cpu"
    gpus = f"none ({fault})"
    if fault is None:
        device = "cuda"
        every = range(torch.cuda.device_count())
        gpus = ", ".join(torch.cuda.get_device_name(index) for index in every)
    store = PrefixStore()
    versions = (f"{name} {metadata.version(name)}" for name in ("torch", "transformers", "ray"))
    lines = {
        "CPU": f"{usable_cores()} cores, {memory_mb('cpu') / 1024:.1f} GiB",
        "GPU": gpus,
        "software": f"Python {platform.python_version()}, {', '.join(versions)}",
        "precision": f"`auto` is {resolve_precision(Precision.AUTO, device).value}",
        "prefix cache": f"{store.folder}, at most {store.budget / 1e9:g} GB",
        "trials": "; ".join(
            f"{name}: {_words(one.division, device)} ({one.task}, {one.date})"
            for name, one in remembered(device).items()
        )
        or "not measured: `elsa-tune doctor --tune` finds the best number",
    }
    show(lines)
    return device


def _tune(trials: Sequence[TrialSpec], layers: int, device: str, seconds: float) -> None:
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.machine import has_bf16_units
    from elsa_tune.training.throughput import Throughput, measure, remember, tune

    trial = trials[0]
    data = prepare(trial.model, trial.task, trial.recipe)
    model = trial.model.name
    task = trial.task.name
    depths = depths_text([one.depth for one in trials], layers)
    say(f"training {model} on {task} at {depths} in each way for {seconds:g} s:")
    found: dict[Division, float] = {}
    for division, one in tune(trials, data, device, seconds):
        told = one
        if isinstance(one, Throughput):
            found[division] = one.tokens_per_second
            told = f"{one.tokens_per_second:,.0f} tokens/s, {one.peak_memory_mb:,.0f} MiB each"
        say(f"  {_words(division, device)}: {told}")
    best = max(found, key=found.__getitem__)
    bf16 = None
    if device == "cpu" and has_bf16_units(device):
        recipe = dataclasses.replace(trial.recipe, precision=Precision.BF16)
        trial = dataclasses.replace(trial, recipe=recipe)
        try:
            [one] = measure([(trial, data)], best, device, seconds)
            bf16 = round(one.tokens_per_second / found[best], 2)
            told = f"{one.tokens_per_second:,.0f} tokens/s, {one.peak_memory_mb:,.0f} MiB each"
        except RunError as error:
            told = str(error)
        say(f"  {_words(best, device)}, in bf16: {told}")
    options = f"--cpus-per-trial {best.threads}"
    if device == "cuda":
        options = f"--gpus-per-trial {1 / best.trials:g} {options}"
    try:
        remember(best, device, model, task, bf16)
        kept = f"searches of {model} on this machine take {options} unless you give others"
    except OSError as error:
        kept = f"not kept ({error}); give {options} to your searches"
    faster = "" if bf16 is None else f"; with precision=bf16 {bf16:.2f} times as fast"
    show({"best": _words(best, device) + faster, "from now on": kept})


def _words(division: "Division", device: str) -> str:
    on = " on each GPU" if device == "cuda" else ""
    threads = "1 CPU thread" if division.threads == 1 else f"{division.threads} CPU threads"
    if division.trials == 1:
        return f"1 trial at once{on}, with {threads}"
    return f"{division.trials} trials at once{on}, each with {threads}"
