"""The command line's table of contents: every command, and the one place that turns errors into
exit statuses.

It must not import anything heavy: `elsa-tune --help` answers in 0.3 s.
"""

from __future__ import annotations

import sys

import typer

from elsa_tune import __version__
from elsa_tune.cli import (
    answer,
    cache,
    doctor,
    models,
    report,
    reproduce,
    search,
    searches,
    spaces,
    tasks,
    trial,
    ui,
)
from elsa_tune.errors import ElsaTuneError, InterruptedSearchError
from elsa_tune.search.saying import say
from elsa_tune.tracking.paths import shown_uri

app = typer.Typer(
    name="elsa-tune",
    help="How many of an encoder's last layers must be fine-tuned to keep 90 % of its quality?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: rich's takes a third of the time that `--help` takes.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("search")(search.search)
app.command("resume")(search.resume)
app.command("searches")(searches.searches)
app.command("operating-point")(answer.operating_point)
app.command("curve")(answer.curve)
app.command("reproduce")(reproduce.reproduce)
app.command("report")(report.report)
app.command("trial")(trial.trial)
app.command("models")(models.models)
app.command("tasks")(tasks.tasks)
app.command("spaces")(spaces.spaces)
app.command("doctor")(doctor.doctor)
app.command("ui")(ui.ui)
app.add_typer(cache.app, name="cache")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"elsa-tune {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    pass


def main() -> None:
    """Run the command line; every ElsaTuneError becomes one line on stderr and its exit status."""
    try:
        app()
    except ElsaTuneError as error:
        say(f"elsa-tune: {shown_uri(str(error))}")
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        say("elsa-tune: interrupted")
        sys.exit(InterruptedSearchError.exit_status)
