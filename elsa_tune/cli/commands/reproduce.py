"""`elsa-tune reproduce`: one of the two published studies, whole or shrunk, with its own tables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from elsa_tune.cli.options import StoragePath, TrackingUri, out_folder
from elsa_tune.errors import ElsaTuneError, InterruptedSearchError, RunError, UsageError
from elsa_tune.search.saying import say
from elsa_tune.studies.protocols import (
    PROTOCOLS,
    Edition,
    Extent,
    Scale,
    Study,
    Trained,
    departures,
)

if TYPE_CHECKING:
    from elsa_tune.studies.reproduction import Carried, Part, Place, PlannedSearch, Standing

_SEPARATORS = re.compile(r"[,\s]+")


def reproduce(
    study: Annotated[Study, typer.Argument(help="The paper's study, or the low-resource one.")],
    models: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODELS", help="Comma-separated or repeated. Default: the study's base models."
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(metavar="TASKS", help="Comma-separated or repeated. Default: the scale's."),
    ] = None,
    scale: Annotated[
        Scale, typer.Option(help="How much of the study: fewer seeds, tasks, examples.")
    ] = Scale.FULL,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="Measuring trials per depth, instead of the scale's."
        ),
    ] = None,
    train_size: Annotated[
        list[str] | None,
        typer.Option(
            metavar="K",
            help="elsa: at most so many training examples; low-resource: these sizes, "
            "comma-separated.",
        ),
    ] = None,
    max_time: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="End after e.g. 30m, 2h; the same command goes on."),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(metavar="DIR", help="Local GLUE folder in the official layout."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=out_folder,
            help="Write tables (text, CSV), answers (JSON), figures here.",
        ),
    ] = None,
    tracking_uri: TrackingUri = None,
    storage_path: StoragePath = None,
    address: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="A running Ray cluster: `auto` or HOST:PORT."),
    ] = None,
    gpus_per_trial: Annotated[
        float | None, typer.Option(metavar="N", help="GPUs per trial; fractions share one.")
    ] = None,
    cpus_per_trial: Annotated[
        float | None, typer.Option(metavar="N", help="CPUs, and so threads, per trial.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print trials and hours; start no search.")
    ] = False,
) -> None:
    """Repeat a published study and print its tables, ours beside theirs.

    The same command goes on where it stopped, and adds seeds, tasks, models or sizes to what is
    there. Exit status: 0 the plan was carried out or the time was over; 1 some search failed, the
    others ran; 2 bad input, before anything starts; 130 interrupted.
    """
    say(f"reproduce: reading the {study} study's models and tasks, and what is recorded")
    from elsa_tune.cli.inputs import read_duration
    from elsa_tune.studies.reproduction import Place, carry_out, plan, recorded_searches, standing
    from elsa_tune.tracking.paths import StorePaths

    seconds = None if max_time is None else read_duration(max_time)
    places = StorePaths(Path.cwd())
    place = Place(
        storage=Path(storage_path).absolute() if storage_path else places.storage,
        tracking_uri=places.tracking_uri(tracking_uri),
        address=address,
        cpus_per_trial=cpus_per_trial,
        gpus_per_trial=gpus_per_trial,
    )
    if out is not None:
        from elsa_tune.report.folder import check_folder

        check_folder(out)
    extent = _extent(study, scale, seeds, tasks, train_size)
    names = _split(models) or PROTOCOLS[study].models
    parts, trained = _parts(study, names, extent, data_dir)
    searches = plan(parts, extent.seeds, recorded_searches(place.storage))
    edition = _edition(study, scale, searches, trained)
    if dry_run:
        _print_plan(edition, [standing(search, place) for search in searches], place)
        return
    say(f"reproducing {study}: {len(searches)} searches")
    for sentence in edition.departures:
        say(f"  not as published: {sentence}")
    carried = carry_out(searches, place, say, seconds)
    _conclude(edition, searches, place, carried, out)


# ---- what is asked ----


def _extent(
    study: Study,
    scale: Scale,
    seeds: int | None,
    tasks: Sequence[str] | None,
    train_size: Sequence[str] | None,
) -> Extent:
    """The scale's, with what was asked for in its place."""
    scaled = PROTOCOLS[study].extents[scale]
    sizes = [_size(text) for text in _split(train_size)]
    if study is Study.ELSA and len(sizes) > 1:
        raise UsageError(
            f"--train-size {' '.join(map(str, sizes))}: the paper's study has one training size a "
            "task; give one number, at most so many examples are used"
        )
    return Extent(
        seeds=seeds or scaled.seeds,
        tasks=_split(tasks) or scaled.tasks,
        train_sizes=tuple(dict.fromkeys(sizes)) or scaled.train_sizes,
    )


def _split(texts: Sequence[str] | None) -> tuple[str, ...]:
    words = (word for text in texts or () for word in _SEPARATORS.split(text))
    return tuple(dict.fromkeys(word for word in words if word))


def _size(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise UsageError(f"--train-size is '{text}'; it must be a number of examples above 0")
    return int(text)


def _parts(
    study: Study, models: Sequence[str], extent: Extent, data_dir: str | None
) -> tuple[list[Part], list[Trained]]:
    """What each search answers, and what each task is trained on; everything is checked here."""
    from elsa_tune.cli.inputs import read_inputs
    from elsa_tune.search.launch import sizes
    from elsa_tune.specs.task import TaskKind
    from elsa_tune.specs.tasks import resolve_task
    from elsa_tune.studies.reproduction import Part

    protocol = PROTOCOLS[study]
    parts: list[Part] = []
    trained: list[Trained] = []
    for task in extent.tasks:
        if protocol.metric is not None and resolve_task(task).kind is TaskKind.REGRESSION:
            raise UsageError(
                f"the {study} study scores every task by {protocol.metric}, which task '{task}' "
                "does not have; leave it out of --tasks"
            )
        whole = read_inputs(models[0], task, space=protocol.space, data_dir=data_dir)
        available, _ = sizes(whole.task, whole.recipe)
        for size in extent.train_sizes:
            if size is not None and size > available and study is Study.LOW_RESOURCE:
                raise UsageError(
                    f"task '{task}' has {available:,} training examples, and {size:,} were asked "
                    "for; name smaller sizes with --train-size"
                )
            # The paper's study takes at most so many.
            is_all = size is None or (size >= available and study is Study.ELSA)
            used = None if is_all else size
            trained.append(Trained(task=whole.task.name, examples=used or available, of=available))
            overrides = [] if used is None else [f"train_size={used}"]
            for model in models:
                inputs = read_inputs(
                    model,
                    task,
                    space=protocol.space,
                    overrides=overrides,
                    data_dir=data_dir,
                    metric=protocol.metric,
                )
                parts.append(
                    Part(
                        study=study,
                        model=inputs.model,
                        layers=inputs.facts.layers,
                        task=inputs.task,
                        space=inputs.space,
                        space_name=protocol.space,
                        recipe=inputs.recipe,
                    )
                )
    return parts, trained


def _edition(
    study: Study, scale: Scale, searches: Sequence[PlannedSearch], trained: Sequence[Trained]
) -> Edition:
    models = tuple(dict.fromkeys(search.part.model.name for search in searches))
    seeds = tuple(sorted({search.seeds for search in searches}))
    return Edition(
        study=study,
        scale=scale,
        models=models,
        trained=tuple(trained),
        seeds=seeds,
        departures=departures(study, models, seeds, trained),
    )


# ---- a dry run ----


def _print_plan(edition: Edition, standings: Sequence[Standing], place: Place) -> None:
    hours, why_not = _forecast(standings, place)
    typer.echo(f"{edition.study}, scale {edition.scale}: {PROTOCOLS[edition.study].source}")
    for sentence in edition.departures or ("As published.",):
        typer.echo(f"  {sentence}")
    width = max(len(one.search.name) for one in standings)
    for one in standings:
        left = one.left.total()
        state = "not begun" if one.status is None else one.status.value.replace("_", " ")
        time = f"  {_hours(hours[one.search.name])}" if one.search.name in hours else ""
        typer.echo(
            f"{one.search.name:<{width}}  {one.trials:>4} trials, {left:>4} to go, {state}{time}"
        )
    trials = sum(one.trials for one in standings)
    left = sum(one.left.total() for one in standings)
    typer.echo(f"{'in all':<{width}}  {trials:>4} trials, {left:>4} to go")
    if not left:
        typer.echo("time: none, everything is there")
    elif why_not:
        typer.echo(f"time: not known, {why_not}")
    else:
        typer.echo(f"time: about {_hours(sum(hours.values()))} on this machine, from a short probe")


def _forecast(standings: Sequence[Standing], place: Place) -> tuple[dict[str, float], str]:
    """Seconds by search, or why they are not known."""
    from elsa_tune.studies.forecast import forecast

    if not any(one.left for one in standings):
        return {}, ""
    say("training for a few seconds for each model and task, to tell the hours")
    try:
        return forecast(standings, place), ""
    except (ElsaTuneError, OSError) as error:
        return {}, f"{error}"


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:.1f} h" if seconds >= 3600 else f"{seconds / 60:.1f} min"


# ---- what came out ----


def _conclude(
    edition: Edition,
    searches: Sequence[PlannedSearch],
    place: Place,
    carried: Carried,
    out: Path | None,
) -> None:
    """Print the tables (stdout), where everything is (stderr); exit status."""
    from elsa_tune.cli.commands.report import say_missing_signs
    from elsa_tune.cli.given_command import given_command
    from elsa_tune.cli.study_tables import print_study, read_study, write_study
    from elsa_tune.studies.reproduction import standing

    standings: list[Standing] = []
    failed = dict(carried.failed)
    for search in searches:
        try:
            standings.append(standing(search, place))
        except ElsaTuneError as error:
            failed[search.name] = f"{error}"
    left = sum(one.left.total() for one in standings if not one.is_complete)
    results = read_study(edition, searches, place.storage, left)
    for name, reason in results.unread.items():
        say(f"search '{name}' is not in the tables: {reason}")
    if results.rows:
        print_study(results)
        if out is not None:
            page = write_study(results, out, given_command())
            say_missing_signs(results.answers)
            say(f"written: {page}, and the tables beside it")
    say(f"journals: {place.storage}")
    if carried.interrupted:
        raise InterruptedSearchError("interrupted; the same command goes on")
    failed = {**results.unread, **failed}
    if failed:
        raise RunError(
            f"{len(failed)} of {len(searches)} searches are not whole ({', '.join(failed)}); the "
            "same command tries the rest again"
        )
    if not all(one.is_complete for one in standings):
        say(f"time was up with {left} trials to go; the same command goes on")
