"""`elsa-tune doctor` and `cache`: what this machine has for a search, and what it keeps."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elsa_tune.cli.options import SEARCH_OPTIONS, DataDir, TrackingUri
from elsa_tune.cli.printing import FormatOption, local_time, show, with_options
from elsa_tune.errors import ModelError, RunError
from elsa_tune.searching.inputs import read_inputs
from elsa_tune.searching.output import say
from elsa_tune.specs.adapt.candidates import REFERENCE, read_candidate
from elsa_tune.specs.model import KNOWN_MODELS, ModelSource, ModelSpec
from elsa_tune.specs.trial import Precision, TrialSpec
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.uris import hidden
from elsa_tune.words import candidates_text, listed

if TYPE_CHECKING:
    from elsa_tune.searching.checkup import Check
    from elsa_tune.training.throughput import Division, Throughput

cache = typer.Typer(no_args_is_help=True, help="List or prune the frozen layers' output kept here.")


@cache.command("ls")
def list_entries(format: FormatOption = "table") -> None:
    """List what is kept, the most recently used first."""
    from elsa_tune.training.forward.prefix_store import PrefixStore

    store = PrefixStore()
    entries = store.entries()
    rows = []
    for entry in entries:
        row = dataclasses.asdict(entry)
        row["last_used"] = local_time(entry.last_used)
        rows.append(row)
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
    budget = keep_gb * 1e9
    kept_bytes = 0
    removed_bytes = 0
    for entry in store.entries():
        has_room = kept_bytes + entry.bytes <= budget
        if not has_room and store.evict(entry.key):
            removed_bytes += entry.bytes
        else:
            kept_bytes += entry.bytes
    removed = removed_bytes / 1e9
    kept = kept_bytes / 1e9
    say(f"removed {removed:.2f} GB, kept {kept:.2f} GB")


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

    Each is tried for 120 s at most and left as it was. --tune, instead of that, finds and
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
    candidates = [REFERENCE]
    if device == "cuda":
        candidates.append(read_candidate(3 * inputs.layers // 4))
    trials = [inputs.trial(candidate) for candidate in candidates]
    _tune(trials, inputs.layers, device, seconds)


def _checks(
    task: str | None, data_dir: str | None, tracking_uri: str | None, address: str | None
) -> "dict[str, Check]":
    """Return what to try, by its name in the output."""
    from elsa_tune.searching import checkup

    uri = StorePaths(Path.cwd()).tracking_uri(tracking_uri)
    checks: dict[str, Check] = {}
    checks["store"] = (checkup.store, (uri,))
    checks["Ray"] = (checkup.ray, (address,))
    if task is not None:
        checks["data"] = (checkup.task_rows, (resolve_task(task, data_dir),))
    elif data_dir is not None:
        checks["data"] = (checkup.glue_rows, (data_dir,))
    else:
        checks["data"] = (checkup.cached_glue, ())
    return checks


def _show_findings(checks: "dict[str, Check]") -> None:
    """Print a line for each check. Raises RunError where one found something wrong."""
    from elsa_tune.searching.checkup import examine

    faults = []
    for finding in examine(checks):
        text = hidden(with_options(finding.text))
        if not finding.is_well:
            text = f"does not work: {text}"
            faults.append(finding.name)
        show({finding.name: text})
    if faults:
        raise RunError(f"a search would not work here yet: see {listed(faults)}")


def _show_machine() -> str:
    """Print what this machine has, and return the device that trains, cpu or cuda."""
    import platform
    from importlib import metadata

    import torch

    from elsa_tune.training.forward.prefix_store import PrefixStore
    from elsa_tune.training.machine import look_at_gpu, resolve_precision, usable_cores
    from elsa_tune.training.throughput import memory_mb, remembered

    fault = look_at_gpu().fault
    if fault is None:
        device = "cuda"
        names = [torch.cuda.get_device_name(gpu) for gpu in range(torch.cuda.device_count())]
        gpus = ", ".join(names)
    else:
        device = "cpu"
        gpus = f"none ({fault})"
    memory = memory_mb("cpu") / 1024  # GiB
    software = [f"Python {platform.python_version()}"]
    for name in ("torch", "transformers", "ray"):
        software.append(f"{name} {metadata.version(name)}")
    precision = resolve_precision(Precision.AUTO, device)
    store = PrefixStore()
    tuned_models = []
    for model, tuned in remembered(device).items():
        division = _words(tuned.division, device)
        tuned_models.append(f"{model}: {division} ({tuned.task}, {tuned.date})")
    if not tuned_models:
        tuned_models = ["not measured: `elsa-tune doctor --tune` finds the best number"]
    lines = {
        "CPU": f"{usable_cores()} cores, {memory:.1f} GiB",
        "GPU": gpus,
        "software": ", ".join(software),
        "precision": f"`auto` is {precision.value}",
        "prefix cache": f"{store.folder}, at most {store.budget / 1e9:g} GB",
        "trials": "; ".join(tuned_models),
    }
    for spec in KNOWN_MODELS.values():
        if spec.source is ModelSource.DOWNLOAD:
            lines[spec.name] = _where(spec)
    show(lines)
    return device


def _where(spec: ModelSpec) -> str:
    """Say where a model is that `elsa-tune models` downloads, or why it is not usable."""
    from elsa_tune.training.model.model_files import model_folder

    try:
        return f"the weights are in {model_folder(spec)}"
    except ModelError as error:
        return with_options(str(error))


def _tune(trials: Sequence[TrialSpec], layers: int, device: str, seconds: float) -> None:
    """Train in each division of the machine; print and remember the fastest."""
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.machine import has_bf16_units
    from elsa_tune.training.throughput import Throughput, measure, remember, tune

    trial = trials[0]
    data = prepare(trial.model, trial.task, trial.recipe)
    model = trial.model.name
    task = trial.task.name
    candidates = candidates_text([trial.candidate for trial in trials], layers)
    say(f"training {model} on {task} at {candidates} in each way for {seconds:g} s:")
    speeds: dict[Division, float] = {}  # tokens a second
    for division, measured in tune(trials, data, device, seconds):
        result = measured
        if isinstance(measured, Throughput):
            speeds[division] = measured.tokens_per_second
            result = _speed(measured)
        say(f"  {_words(division, device)}: {result}")
    best = max(speeds, key=lambda division: speeds[division])
    best_words = _words(best, device)
    bf16 = None  # how many times as fast
    if device == "cpu" and has_bf16_units(device):
        recipe = dataclasses.replace(trial.recipe, precision=Precision.BF16)
        bf16_trial = dataclasses.replace(trial, recipe=recipe)
        try:
            [throughput] = measure([(bf16_trial, data)], best, device, seconds)
            bf16 = round(throughput.tokens_per_second / speeds[best], 2)
            result = _speed(throughput)
        except RunError as error:
            result = str(error)
        say(f"  {best_words}, in bf16: {result}")
    options = f"--cpus-per-trial {best.threads}"
    if device == "cuda":
        options = f"--gpus-per-trial {1 / best.trials:g} {options}"
    try:
        remember(best, device, model, task, bf16)
        from_now_on = f"searches of {model} on this machine take {options} unless you give others"
    except OSError as error:
        from_now_on = f"not kept ({error}); give {options} to your searches"
    if bf16 is not None:
        best_words += f"; with precision=bf16 {bf16:.2f} times as fast"
    show({"best": best_words, "from now on": from_now_on})


def _speed(throughput: "Throughput") -> str:
    tokens = f"{throughput.tokens_per_second:,.0f} tokens/s"
    return f"{tokens}, {throughput.peak_memory_mb:,.0f} MiB each"


def _words(division: "Division", device: str) -> str:
    """Write a division of the machine: `2 trials at once, each with 1 CPU thread`."""
    on_gpu = " on each GPU" if device == "cuda" else ""
    threads = "1 CPU thread" if division.threads == 1 else f"{division.threads} CPU threads"
    if division.trials == 1:
        return f"1 trial at once{on_gpu}, with {threads}"
    return f"{division.trials} trials at once{on_gpu}, each with {threads}"
