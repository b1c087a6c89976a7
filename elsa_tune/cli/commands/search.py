"""`elsa-tune search` and `resume`, and `trial`, which runs one of a search's trials."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elsa_tune.cli.options import (
    PLAN,
    SEARCH_OPTIONS,
    DataDir,
    DryRun,
    Group,
    Label,
    Metric,
    SearchName,
    SearchOption,
    StoragePath,
    Text,
    grouped,
    wanted_search,
)
from elsa_tune.cli.printing import printing_recorded, show
from elsa_tune.errors import InterruptedSearchError, NoAnswerError, RunError, UsageError, shortlist
from elsa_tune.files import slug
from elsa_tune.searching.fetched import fetch_lacking
from elsa_tune.searching.inputs import SearchOptions, read_share_again
from elsa_tune.searching.output import say
from elsa_tune.searching.request import Request, read_requests
from elsa_tune.searching.resuming import ResumeOptions, resume_as_asked
from elsa_tune.specs.trial import EvaluationResult, Phase, TrialSpec, trial_quality
from elsa_tune.tasks.draft import Columns
from elsa_tune.tasks.task_file import has_columns, is_table
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.words import duration, kind_text, points

if TYPE_CHECKING:
    from elsa_tune.searching.answering import Finished
    from elsa_tune.searching.startup.rows import Rows
    from elsa_tune.specs.search import SearchSpec


@grouped
def search(
    wanted: SearchOptions,
    dry_run: DryRun = False,
    probe: Annotated[
        bool,
        typer.Option(
            "--probe",
            rich_help_panel=PLAN,
            help="With --dry-run: train for a few seconds to estimate the time.",
        ),
    ] = False,
) -> None:
    """Search for the operating point of a model and a task.

    Explores learning rates at every depth, measures each depth's best one (or one a step below
    where training collapses just above), and prints the answer.
    """
    task_names = ", ".join(wanted.task)
    say(f"search: reading {wanted.model}, {task_names} and the space {wanted.space}")
    if probe and not dry_run:
        raise UsageError("--probe is for --dry-run, which says how long the search would take")
    requests = read_requests(wanted)
    if not dry_run and fetch_lacking(requests, say):
        requests = read_requests(wanted)
    if any(has_columns(task) for task in wanted.task):
        are_tables = any(is_table(task) for task in wanted.task)
        hint = "; `elsa-tune tasks` writes a table's task file" if are_tables else ""
        for request in requests:
            say(f"search: {request.columns}{hint}")

    from elsa_tune.searching.launch import start

    if dry_run:
        for request in requests:
            _print_plan(request, probe=probe)
        return
    for request in requests:
        what = f"{request.spec.model.name} on {request.spec.task.name}, space {wanted.space}"
        say(f"search '{request.name}': {what}")
    if len(requests) == 1:
        _conclude(start(requests[0], say))
    else:
        _conclude_several(requests)


def resume(
    name: SearchName = None,
    search: SearchOption = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help="Measuring trials per depth or other way; those added count for the curve alone."
        ),
    ] = None,
    until: Annotated[Literal["certified"] | None, SEARCH_OPTIONS["until"]] = None,
    max_time: Annotated[
        str | None, typer.Option(help="Time limit of this session. Default: as at the start.")
    ] = None,
    gpu_hours: Annotated[
        float | None,
        typer.Option(help="GPU-hours of the search, earlier sessions' included."),
    ] = None,
    max_workers: Annotated[
        int | None, typer.Option(help="Most trials at once. Default: as at the start.")
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="How often a running trial's state is saved. Default: as at the start.",
        ),
    ] = None,
    artifacts: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="The store of the record's copy, from which the search is fetched where this "
            "machine lacks it; `none` copies it no more. Default: as at the start.",
        ),
    ] = None,
    hung_after: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="When a trial without news is begun again. Default: as at the start.",
        ),
    ] = None,
    max_failures: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="How many trials may fail in this session. Default: as at the start."
        ),
    ] = None,
    storage_path: StoragePath = None,
    tracking_uri: Annotated[
        str | None,
        typer.Option(
            metavar="URI",
            help="The MLflow store that has the search from now on, with its whole record: "
            "sqlite:///FILE.db or a server's address. Default: as at the start. A password belongs "
            "in MLFLOW_TRACKING_URI: what is typed here, `ps` shows to everybody on this machine.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="A running Ray cluster, or `none` for this machine. Default: as at the start."
        ),
    ] = None,
    gpus_per_trial: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            parser=read_share_again,
            help="GPUs per trial, at most 1; a fraction shares one, 0 trains on CPUs. "
            "Default: as before.",
        ),
    ] = None,
    cpus_per_trial: Annotated[
        float | None,
        typer.Option(
            metavar="N",
            help="CPUs (threads) per trial. Default: as before; fewer where no node has as many, "
            "unless they were asked for.",
        ),
    ] = None,
) -> None:
    """Continue a search, or give it more seeds.

    What was finished before Ctrl-C, a crash or a kill is kept.
    """
    storage = StorePaths(Path.cwd()).storage_at(storage_path)
    chosen = wanted_search(name, search, storage)
    say(f"resume: reading search '{chosen}'")
    options = ResumeOptions(
        seeds=seeds,
        until=until,
        max_time=max_time,
        tracking_uri=tracking_uri,
        address=address,
        checkpoint=checkpoint,
        hung_after=hung_after,
        gpu_hours=gpu_hours,
        max_workers=max_workers,
        max_failures=max_failures,
        artifacts=artifacts,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
    )
    finished = resume_as_asked(chosen, storage, options, say)
    _conclude(finished)


def _conclude_several(requests: Sequence[Request]) -> None:
    """Carry out searches of several tasks; print each task's answer and the joint one."""
    from elsa_tune.analysis.answers import answer_curves
    from elsa_tune.cli.answer_tables import print_curves
    from elsa_tune.cli.comparison_tables import print_comparisons
    from elsa_tune.searching.several import carry_out, comparisons_of, curves_of, rows_of_all
    from elsa_tune.searching.specification import check_same

    first = requests[0]
    for request in requests:
        check_same(request.spec, request.paths)
    try:
        failed = carry_out(requests, say)
    except InterruptedSearchError:
        so_far = answer_curves(curves_of(rows_of_all(requests)), first.spec.target)
        with printing_recorded("the same command"):
            print_curves(so_far)
        raise
    rows = rows_of_all(requests)
    comparisons = comparisons_of(rows)
    answers = answer_curves(curves_of(rows), first.spec.target)
    with printing_recorded("the same command"):
        print_comparisons(comparisons)
        print_curves(answers)
    if failed:
        raise RunError(
            f"{len(failed)} of {len(requests)} searches are incomplete ({shortlist(failed)}); the "
            "same command tries the rest again"
        )
    if not any(answer.operating_point for answer in answers):
        if any(comparison.is_answered for comparison in comparisons):
            return  # each comparison says what to export
        raise typer.Exit(NoAnswerError.exit_status)
    name = first.name.removesuffix(f"-{slug(first.spec.task.name)}")
    which = SearchPaths(first.storage, name).arguments
    say(f"Next: elsa-tune export {which} --all --out {name}-models")


def _print_plan(request: Request, *, probe: bool) -> None:
    """Print what a search would do. probe: train for a few seconds to estimate its time."""
    from elsa_tune.searching.checkpoint_size import checkpoint_text
    from elsa_tune.searching.planning.outlook import (
        plan_warnings,
        planned_power,
        power_text,
        ways_outlook,
    )
    from elsa_tune.searching.planning.plan import steps_per_trial, trial_range, trial_ranges
    from elsa_tune.searching.startup.gpus import check_here
    from elsa_tune.searching.startup.rows import plan, rows_in_use

    check_here(request)
    asked = request.spec
    rows = rows_in_use(asked.task, asked.recipe, say, asked.model)
    spec = plan(request, rows)
    for warning in plan_warnings(spec):
        say(warning)
    trials = trial_ranges(spec, ())
    _, most_trials = trial_range(spec, ())
    trial_steps = steps_per_trial(spec)
    most_steps = trial_steps * most_trials
    candidates = ", ".join(candidate.label for candidate in spec.candidates)
    if all(candidate.is_depth for candidate in spec.candidates):
        candidates += " frozen layers"
    lines = {
        "model": f"{spec.model.name} ({spec.layers} layers)",
        "task": f"{spec.task.name}: {_examples_text(rows)}",
        f"{kind_text(spec.candidates)}s": candidates,
        "exploring": f"{_up_to(*trials[Phase.EXPLORE])} trials",
        "measuring": f"{_up_to(*trials[Phase.MEASURE])} trials",
        **_asked_before(request, spec),
        "epochs": f"{spec.recipe.epochs} per trial, {spec.recipe.evaluations} evaluations",
        "steps": f"at most {most_steps:,} ({trial_steps:,} per trial)",
        "time": _time(request, spec, probe=probe),
        "checkpoints": checkpoint_text(spec),
        "would be at": str(request.paths.folder),
    }
    power = planned_power(spec)
    if power is not None:
        lines["certifies"] = power_text(power, spec)
    ways = ways_outlook(spec)
    if ways is not None:
        lines["compares"] = ways
    if spec.recipe.holdout is not None:
        share = f"{spec.recipe.holdout:.0%} of the training examples"
        lines["holdout"] = f"{share} choose learning rate and evaluation"
    show(lines)


def _examples_text(rows: "Rows") -> str:
    """Write how many examples a task has."""
    text = f"{rows.train:,} training, {rows.evaluation:,} evaluation examples"
    if rows.units < rows.evaluation:
        text += f" of {rows.units:,} units"
    return text


def _asked_before(request: Request, spec: "SearchSpec") -> dict[str, str]:
    """Return the line that names the recorded searches of the same question; {} without any."""
    from elsa_tune.searching.earlier import behind, likely_in_folder

    earlier = likely_in_folder(spec, request.storage)
    if not earlier:
        return {}
    later = behind(spec, earlier, seed_is_given=request.seed_is_given)
    names = later.earlier.names
    seeds = later.measuring_seeds
    are_fresh = "which none of them had" if later.earlier.seeds_are_fresh else "which are not fresh"
    text = (
        f"by {shortlist(names)}, if weights and data are the same; this one measures with seeds "
        f"{seeds[0]} to {seeds[-1]}, {are_fresh}"
    )
    return {"asked before": text}


def _up_to(fewest: int, most: int) -> str:
    """Write how few and how many there may be.

    More come of rates beyond the given ones, and of all that a hunt may end before.
    """
    if most == fewest:
        return f"{fewest:,}"
    return f"{fewest:,} to {most:,}"


def _time(request: Request, spec: "SearchSpec", *, probe: bool) -> str:
    """Write how long the expected trials take, as far as a like search or a probe tells it."""
    from elsa_tune.searching.eta import expected_trials
    from elsa_tune.searching.probe_time import probed_time, recorded_seconds

    trials = expected_trials(spec)
    if probe:
        say("training for a few seconds to estimate the time")
        return probed_time([(request, trials)])
    recorded = recorded_seconds(request, trials)
    if recorded is None:
        return "not known; --probe trains for a few seconds to find out"
    like, seconds = recorded
    device = "GPUs" if like.resources.gpus else "CPU"
    about = f"about {duration(seconds)} on this machine's {device}"
    return f"{about}, at the pace of search '{like.name}'"


def _say_where_it_is(finished: "Finished") -> None:
    """Print what of the record is where, what it lacks there, and the GPU-hours that it took."""
    from elsa_tune.tracking.stores import store_at

    spec = finished.spec
    if finished.unsent:
        resume_it = finished.paths.resume
        say(f"{finished.unsent_words}; the journal has all, and `{resume_it}` sends the rest")
    if finished.gpu_hours:
        say(f"GPUs:    {finished.gpu_hours:.2f} GPU-hours used, in all sessions")
    if finished.uncopied:
        say(finished.uncopied)
    say(f"journal: {finished.paths.journal}")
    store = store_at(spec.tracking_uri)
    shown = " (`elsa-tune ui` shows it)" if store.has_pages else ""
    say(f"{store.name + ':':<8} {spec.tracking_uri}{shown}")
    if spec.artifacts is not None:
        say(f"copy:    {spec.artifacts}/{spec.name}")


def _conclude(finished: "Finished") -> None:
    """Print the answer and what to type next (stdout), where the record is (stderr); exit."""
    from elsa_tune.tracking.journal_records import SearchStatus

    name = finished.spec.name
    resume_it = finished.paths.resume
    if finished.message:
        say(f"search '{name}': {finished.message}")
    ask = "answer" if finished.compares_depths else "compare"
    with printing_recorded(f"`elsa-tune {ask} {finished.paths.arguments}`"):
        _print_found(finished)
    _say_where_it_is(finished)
    if finished.unwritten:
        raise RunError(finished.unwritten)
    if finished.status is SearchStatus.INTERRUPTED:
        raise InterruptedSearchError(f"interrupted; `{resume_it}` goes on")
    if finished.status is SearchStatus.FAILED:
        raise RunError(f"search '{name}' is not complete; `{resume_it}` tries the rest again")
    if not finished.answers:
        raise NoAnswerError(f"no trial has a result; `{resume_it}` goes on")
    if not finished.is_answered:  # why is printed
        raise typer.Exit(NoAnswerError.exit_status)


def _print_found(finished: "Finished") -> None:
    """Print the comparisons and the answers of a search."""
    from elsa_tune.cli.answer_tables import print_curves, stdout_console

    console = stdout_console()
    if finished.comparisons:
        from elsa_tune.cli.comparison_tables import print_comparisons

        print_comparisons(finished.comparisons, console)
        if finished.compares_depths:
            console.print()
    if finished.compares_depths:
        print_curves(finished.answers, console)


def trial(
    model: Annotated[str, typer.Option(help="Short name, local folder or hub id.")],
    task: Annotated[str, typer.Option(help="Task name, YAML file or table.")],
    learning_rate: Annotated[float, typer.Option(help="Peak learning rate, above 0 and up to 1.")],
    frozen_layers: Annotated[
        str,
        typer.Option(
            "--frozen-layers",
            "--way",
            help="N: 0 (nothing frozen) .. L; or another way: `embeddings`, `bitfit`, `lora`, "
            "`lora-last3`.",
        ),
    ] = "0",
    seed: Annotated[int, typer.Option(min=0, help="Seed of everything random.")] = 1,
    train_size: Annotated[int | None, SEARCH_OPTIONS["train_size"]] = None,
    data_dir: DataDir = None,
    label: Label = None,
    text: Text = None,
    group: Group = None,
    metric: Metric = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override a field of the recipe, e.g. epochs=6; fields of a search are refused.",
        ),
    ] = None,
    output: Annotated[
        Literal["lines", "json"],
        typer.Option("--format", help="`lines`, or `json`: one object per evaluation."),
    ] = "lines",
) -> None:
    """Run one trial here, without Ray or MLflow."""
    from elsa_tune.searching.inputs import read_inputs
    from elsa_tune.specs.adapt.candidates import read_candidate

    candidate = read_candidate(frozen_layers)
    inputs = read_inputs(
        model,
        task,
        overrides=_trial_overrides(settings or [], train_size, metric),
        data_dir=data_dir,
        columns=Columns(label, tuple(text or ()), group),
    )
    spec = inputs.trial(candidate, learning_rate, seed)

    from elsa_tune.specs.row_findings import finding_lines
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.loop import few_steps, train

    data = prepare(spec.model, spec.task, spec.recipe)
    for line in finding_lines(data.findings, spec.task.is_published):
        say(line)
    printed_notes: set[str] = set()
    results = []
    for result in train(spec, data):
        results.append(result)
        for note in (few_steps(spec.recipe, result.steps), *result.notes):
            if note is not None and note not in printed_notes:
                printed_notes.add(note)
                say(f"note: {note}")
        if output == "json":
            typer.echo(json.dumps(dataclasses.asdict(result)))
        else:
            typer.echo(_evaluation_line(result, spec.recipe.epochs))
    _say_quality(spec, results)


def _trial_overrides(
    settings: Sequence[str], train_size: int | None, metric: str | None
) -> list[str]:
    """Return the overrides of the default space. Raises UsageError for a field of a search."""
    from elsa_tune.specs.space import OWN_FIELDS

    search_fields = OWN_FIELDS - {"epochs", "metric", "revision"}
    overrides = list(settings)
    for override in overrides:
        path, _, _ = override.partition("=")
        field = path.split(".")[0].strip()
        if field in search_fields:
            raise UsageError(f"--set {override}: {field} belongs to a search; a trial has options")
    if train_size is not None:
        overrides.append(f"train_size={train_size}")
    if metric is not None:
        overrides.append(f"metric={metric}")
    return overrides


def _evaluation_line(result: EvaluationResult, epochs: int) -> str:
    parts = [f"epoch {result.epoch:g}/{epochs}", f"step {result.step}/{result.steps}"]
    scores = {**result.metrics, "holdout_quality": result.holdout_quality}
    for name, value in scores.items():
        if value is not None:
            parts.append(f"{name} {points(value)}")
    parts.append(f"train_loss {result.train_loss:.4f}")
    parts.append(f"eval_loss {result.eval_loss:.4f}")
    parts.append(f"{result.train_seconds:.1f} s")
    parts.append(f"{result.peak_memory_mb:.0f} MiB")
    return "  ".join(parts)


def _say_quality(spec: TrialSpec, results: Sequence[EvaluationResult]) -> None:
    """Say what the trial's quality is and how it was trained. results: of every evaluation."""
    qualities = []
    held_out = []
    for result in results:
        qualities.append(result.quality)
        if result.holdout_quality is not None:
            held_out.append(result.holdout_quality)
    quality = trial_quality(spec.recipe.selection, qualities, held_out)
    last = results[-1]
    say(
        f"{spec.key}: {spec.task.metric.value} {points(quality)} "
        f"(a {spec.task.metric.guess} scores {points(last.chance)}); "
        f"{last.trainable_parameters:,} parameters trained, {last.precision}, "
        f"{last.batches} batches, frozen layers {last.prefix}"
    )
