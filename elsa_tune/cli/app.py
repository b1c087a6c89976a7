"""Every command, and the one place that turns errors into exit statuses.

It must not import anything heavy: `elsa-tune --help` answers in 0.3 s.
"""

import errno
import os
import signal
import sys
from collections.abc import Callable

import typer

from elsa_tune import __version__
from elsa_tune.cli.commands import (
    answer,
    catalogue,
    compare,
    demo,
    export,
    jobs,
    machine,
    predict,
    reproduce,
    search,
    searches,
    ui,
)
from elsa_tune.cli.help import Command, Group
from elsa_tune.cli.printing import with_options
from elsa_tune.errors import ElsaTuneError, InterruptedSearchError, StorageError
from elsa_tune.searching.output import printing, say
from elsa_tune.signals import handling_signals, repeating_dropped_interrupts
from elsa_tune.tracking.uris import hidden

app = typer.Typer(
    name="elsa-tune",
    cls=Group,
    help="How many of an encoder's last layers must be fine-tuned to keep 90 % of its quality?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    # Plain help: rich's takes a third of the time that `--help` takes.
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# The commands by the headings of `elsa-tune --help`.
COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Search": (demo.demo, search.search, search.resume, searches.searches),
    "Send and follow": (jobs.submit, jobs.watch, jobs.logs, jobs.stop),
    "Ask": (answer.answer, compare.compare, answer.curve, answer.report),
    "Take the model": (export.export, predict.predict, export.bundle),
    "Look up": (catalogue.models, catalogue.tasks, catalogue.spaces),
    "This machine": (machine.doctor, ui.ui),
    "More": (reproduce.reproduce, search.trial),
}
for panel, commands in COMMANDS.items():
    for command in commands:
        app.command(command.__name__, cls=Command, rich_help_panel=panel)(command)
        if command is answer.answer:
            app.command(
                "operating-point",
                cls=Command,
                rich_help_panel=panel,
                help="Another name of `answer`.",
            )(command)
app.add_typer(machine.cache, name="cache", rich_help_panel="This machine")


# Why a path cannot be used, wherever a command meets that: never by a fault of ours.
_REFUSALS = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG)


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
    """Run `main`, for a search in a child of this process, which outlives it."""
    # The driver of these may die without a word.
    if sys.argv[1:2] in (["search"], ["resume"], ["reproduce"], ["demo"]):
        from elsa_tune.searching.process.supervision import supervise

        supervise(main)
    main()


def main() -> None:
    """Run the command line; every ElsaTuneError becomes one line on stderr and its exit status."""
    interrupted = InterruptedSearchError.exit_status
    try:
        # SIGTERM and a closed terminal end a command as Ctrl-C does, unless it takes them itself.
        with (
            handling_signals(signal.default_int_handler, (signal.SIGTERM, signal.SIGHUP)),
            repeating_dropped_interrupts(),
            printing(with_options),
        ):
            _check_folder()
            app()
    except ElsaTuneError as error:
        _say_error(error)
        sys.exit(error.exit_status)
    except OSError as error:
        if error.filename is None or error.errno not in _REFUSALS:
            raise
        refused = StorageError(
            f"{error.filename} cannot be used: {error.strerror}; name another place"
        )
        _say_error(refused)
        sys.exit(refused.exit_status)
    except SystemExit as end:
        # Typer takes Ctrl-C for itself and says nothing. What was watched is another process.
        if end.code == interrupted and not isinstance(end, jobs.WatchedEnd):
            say("elsa-tune: interrupted")
        raise
    except KeyboardInterrupt:
        say("elsa-tune: interrupted")
        sys.exit(interrupted)


def _check_folder() -> None:
    """Raise StorageError where the working directory was deleted: every command looks there."""
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise StorageError(
            "the folder that you are in was deleted; go to one that is there by `cd`"
        ) from error


def _say_error(error: ElsaTuneError) -> None:
    say(f"elsa-tune: {hidden(with_options(str(error)))}")
