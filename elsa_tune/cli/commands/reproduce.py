"""`elsa-tune reproduce`: one of the two published studies, whole or shrunk."""

import dataclasses
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elsa_tune.cli.options import DryRun, grouped
from elsa_tune.cli.printing import printing_recorded, show, with_options
from elsa_tune.errors import InterruptedSearchError, RunError, UsageError, shortlist
from elsa_tune.results.published import Study
from elsa_tune.searching.inputs import Places, SearchOptions
from elsa_tune.searching.output import say
from elsa_tune.studies.protocols import PROTOCOLS, Scale

if TYPE_CHECKING:
    from elsa_tune.studies.reproduction import StudyRun


@grouped
def reproduce(
    *,
    study: Annotated[Study, typer.Argument(help="The paper's study, or the low-resource one.")],
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--models",
            metavar="MODELS",
            help="Comma-separated or repeated. Default: the study's base models.",
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "--tasks",
            metavar="TASKS",
            help="Comma-separated or repeated. Default: the scale's.",
        ),
    ] = None,
    scale: Annotated[
        Scale, typer.Option(help="How much of the study to run: seeds, tasks, examples.")
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
            help="elsa: at most K training examples; low-resource: these sizes, comma-separated.",
        ),
    ] = None,
    places: Places,
    dry_run: DryRun = False,
) -> None:
    """Repeat a published study: our tables beside theirs.

    The same command continues where it stopped, and adds seeds, tasks, models or sizes to what is
    there. Exit status: 0 the plan was carried out; 1 some search failed, the others ran; 2 bad
    input, before anything starts; 130 interrupted.
    """
    say(f"reproduce: reading the {study} study's models and tasks, and what is recorded")
    from elsa_tune.searching.several import carry_out
    from elsa_tune.studies.reproduction import plan_study

    protocol = PROTOCOLS[study]
    size = protocol.sizes[scale]
    wanted = dataclasses.replace(
        size,
        seeds=seeds or size.seeds,
        tasks=_words(tasks) or size.tasks,
        train_sizes=_sizes(study, _words(train_size)) or size.train_sizes,
    )
    names = _words(models) or protocol.models
    options = SearchOptions(model=names[0], task=list(wanted.tasks), **dataclasses.asdict(places))
    planned = plan_study(study, scale, names, wanted, options)
    if dry_run:
        _print_plan(planned)
        return
    say(f"{planned.heading}\n{len(planned.searches)} searches")
    try:
        failed = carry_out(planned.searches, say)
    except InterruptedSearchError:
        _print_results(planned)
        raise
    conclude(planned, failed)


def _words(texts: Sequence[str] | None) -> tuple[str, ...]:
    """Return the words of texts that commas and spaces part, each once."""
    words: list[str] = []
    for text in texts or ():
        for word in re.split(r"[,\s]+", text):
            if word and word not in words:
                words.append(word)
    return tuple(words)


def _sizes(study: Study, texts: Sequence[str]) -> tuple[int, ...]:
    """Return training sizes as numbers. Raises UsageError where the study has no such sizes."""
    are_numbers = all(text.isdecimal() and int(text) > 0 for text in texts)
    too_many = study is Study.ELSA and len(texts) > 1
    if not are_numbers or too_many:
        raise UsageError(
            f"--train-size is {' '.join(texts)}; it must be a number of examples above 0, and the "
            "paper's study has one training size a task"
        )
    return tuple(dict.fromkeys(map(int, texts)))


def _print_plan(study_run: "StudyRun") -> None:
    from elsa_tune.searching.probe_time import probed_time
    from elsa_tune.searching.several import plan_of_recorded

    unfinished = []
    rows: list[dict[str, Any]] = []
    trials = 0
    to_go = 0
    for search in study_run.searches:
        plan = plan_of_recorded(search)
        if plan.left:
            unfinished.append((search, plan.left))
        left = plan.left.total()
        status = plan.state.status_text
        rows.append({"search": search.name, "trials": plan.trials, "to_go": left, "status": status})
        trials += plan.trials
        to_go += left
    rows.append({"search": "in all", "trials": trials, "to_go": to_go})
    time = "none, everything is there"
    if unfinished:
        say("training for a few seconds for each model and task, to estimate the hours")
        time = probed_time(unfinished)
    typer.echo(study_run.heading)
    show(rows)
    typer.echo(f"time: {with_options(time)}")


def conclude(study_run: "StudyRun", failed: Mapping[str, str]) -> None:
    """Print what came out; raises RunError where a search failed or cannot be read."""
    incomplete = {**_print_results(study_run), **failed}
    if incomplete:
        raise RunError(
            f"{len(incomplete)} of {len(study_run.searches)} searches are incomplete "
            f"({shortlist(incomplete)}); the same command tries the rest again"
        )


def _print_results(study_run: "StudyRun") -> Mapping[str, str]:
    """Print the table, say where everything is, and return why a search could not be read."""
    from elsa_tune.cli.answer_tables import stdout_console
    from elsa_tune.studies.reproduction import read_study

    results = read_study(study_run)
    for name, reason in results.unread.items():
        say(f"search '{name}' is not in the table: {reason}")
    if results.rows:
        with printing_recorded("the same command"):
            stdout_console().print(results.text)
    say(f"journals: {study_run.searches[0].storage}")
    return results.unread
