"""Every command, and the one place that turns errors into exit statuses.

It must not import anything heavy: `elsa-tune --help` answers in 0.3 s.
"""

import signal
import sys

import typer

from elsa_tune import __version__
from elsa_tune.cli.commands import (
    answer,
    catalogue,
    export,
    machine,
    predict,
    record,
    reproduce,
    search,
)
from elsa_tune.cli.printing import with_options
from elsa_tune.errors import ElsaTuneError, InterruptedSearchError
from elsa_tune.searching.saying import heard, results_piped, say
from elsa_tune.tracking.uris import hidden

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
for command in (
    *(search.search, search.resume, record.searches),
    *(answer.operating_point, answer.curve, reproduce.reproduce, answer.report),
    *(export.export, predict.predict, export.bundle),
    *(search.trial, catalogue.models, catalogue.tasks, catalogue.spaces, machine.doctor, record.ui),
):
    app.command(command.__name__.replace("_", "-"))(command)
app.add_typer(machine.cache, name="cache")


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


def entry() -> None:
    """What `elsa-tune` starts: `main`, of a search as the child of a process that outlives it."""
    # Of these the driver may die without a word.
    if sys.argv[1:2] in (["search"], ["resume"], ["reproduce"]):
        from elsa_tune.searching.supervision import supervise

        supervise(main)
    main()


def main() -> None:
    """Run the command line; every ElsaTuneError becomes one line on stderr and its exit status."""
    interrupted = InterruptedSearchError.exit_status
    try:
        # SIGTERM and a closed terminal end a command as Ctrl-C does, where it does not see to them.
        with heard(signal.default_int_handler, (signal.SIGTERM, signal.SIGHUP)), results_piped():
            app()
    except ElsaTuneError as error:
        say(f"elsa-tune: {hidden(with_options(str(error)))}")
        sys.exit(error.exit_status)
    except SystemExit as end:
        # Typer takes Ctrl-C for itself and says nothing.
        if end.code == interrupted:
            say("elsa-tune: interrupted")
        raise
    except KeyboardInterrupt:
        say("elsa-tune: interrupted")
        sys.exit(interrupted)
