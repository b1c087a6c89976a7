"""Options that several commands share, so that they read and behave alike."""

import contextlib
import functools
import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

import typer

from elsa_tune.errors import UsageError
from elsa_tune.searching.inputs import Places, read_gpu_share
from elsa_tune.searching.output import say
from elsa_tune.tracking.uris import without_credentials
from elsa_tune.words import listed

# The headings of `--help`.
WHAT = "What is searched"
HOW = "How it is searched"
HOW_MUCH = "How much"
RECORD = "The record"
MACHINES = "Machines"
PLAN = "Before it starts"
WHICH = "Which results"
TABLE = "Other results than the record's"
ANSWER = "The answer"

# What the ways of a comparison may be ordered by.
CostName = Literal["time", "memory", "parameters", "latency", "bundle"]

# The options of a search, in the order of its help. Those that other commands share follow.
SEARCH_OPTIONS = {
    "model": typer.Option(
        rich_help_panel=WHAT, help="bert_base, ..., minilm; a local folder; or a hub id owner/name."
    ),
    "task": typer.Option(
        rich_help_panel=WHAT,
        help="A GLUE task, `stdlib`, a YAML file of your own, a table (.csv, ...), "
        "`hub:owner/name` for a data set of the hub (imdb and others have names), or a folder of "
        "save_to_disk. Several of them, or a .txt that lists them, are searched one after another, "
        "with a joint answer.",
    ),
    "label": typer.Option(
        rich_help_panel=WHAT,
        metavar="COLUMN",
        help="Of a table or a data set: the column with the labels.",
    ),
    "text": typer.Option(
        rich_help_panel=WHAT,
        metavar="COLUMN",
        help="Of a table or a data set: the column with the texts; twice for pairs of texts.",
    ),
    "group": typer.Option(
        rich_help_panel=WHAT,
        metavar="COLUMN",
        help="Of a table or a data set: rows with the same cell in this column (a document, a "
        "user) are one unit, which counts once in every certificate.",
    ),
    "data_dir": typer.Option(
        rich_help_panel=WHAT,
        metavar="DIR",
        help="A local GLUE folder in the official layout (RTE/train.tsv).",
    ),
    "train_size": typer.Option(
        rich_help_panel=WHAT, help="Train on a stratified, nested subset of N examples."
    ),
    "metric": typer.Option(rich_help_panel=WHAT, help="Use this metric instead of the task's."),
    "space": typer.Option(
        rich_help_panel=HOW, help="A search space: a YAML file, or the name of a shipped one."
    ),
    "methods": typer.Option(
        rich_help_panel=HOW,
        metavar="NAMES",
        help="What to compare, with commas: freeze (the space's depths), head, lora, lora_last, "
        "bitfit, or what an installed package brings. `--space ways` compares all of the former.",
    ),
    "settings": typer.Option(
        "--set",
        rich_help_panel=HOW,
        metavar="KEY=VALUE",
        help="Override a field of the space or recipe, e.g. epochs=6. sampler=gp has one "
        "model of all depths propose a search's learning rates.",
    ),
    "trials": typer.Option(
        rich_help_panel=HOW_MUCH,
        help="Most exploring trials in all; each depth or other way first has equally many.",
    ),
    "seeds": typer.Option(
        rich_help_panel=HOW_MUCH, help="Measuring trials per depth or other way."
    ),
    "max_time": typer.Option(
        rich_help_panel=HOW_MUCH,
        help="End after this time (90s, 30m, 2h) with what is done. Of one task alone.",
    ),
    "gpu_hours": typer.Option(
        rich_help_panel=HOW_MUCH,
        help="The same, once its trials have held GPUs for these hours: two trials on one GPU, an "
        "hour each, hold it for one. Every session counts. Of one task alone.",
    ),
    "until": typer.Option(
        rich_help_panel=HOW_MUCH,
        help="In a hunt: go on while a certificate for fewer layers still has a 2 % chance "
        "(without it, 30 %).",
    ),
    "checkpoint": typer.Option(
        rich_help_panel=RECORD,
        metavar="TIME",
        help="How often a running trial's state is saved, so that `resume` continues inside it: "
        "`never`, a time (90s, 10m), or `auto`: from its fifth minute on, for at most 1 % of its "
        "time. Results are the same.",
    ),
    "artifacts": typer.Option(
        rich_help_panel=RECORD,
        metavar="URL",
        help="A folder, s3://BUCKET/PREFIX, gs://... that keeps a copy of the record, from which "
        "another machine goes on. Credentials come from the environment.",
    ),
    "hung_after": typer.Option(
        rich_help_panel=MACHINES,
        metavar="TIME",
        help="When a trial without news is ended and begun once more: `never`, a time (10m), or "
        "`auto`: ten times what such trials take to an evaluation, five minutes at least.",
    ),
    "max_failures": typer.Option(
        rich_help_panel=MACHINES,
        metavar="N",
        help="How many trials may fail before the search ends; `resume` goes on. Trials of lost "
        "nodes do not count. Default: 10 before the first has completed, then any number.",
    ),
    "name": typer.Option(
        rich_help_panel=RECORD, help="The search's name. Default: model, task and time."
    ),
    "tracking_uri": typer.Option(
        rich_help_panel=RECORD,
        metavar="URI",
        help="MLflow store: sqlite:///FILE.db or a server's address. "
        "Default: MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db; a search that goes on stays where "
        "it is recorded. A password belongs in that variable: what is typed here, `ps` shows to "
        "everybody on this machine.",
    ),
    "storage_path": typer.Option(
        rich_help_panel=RECORD,
        metavar="PATH",
        help="Where searches keep their journals. Default: ./mlruns/searches.",
    ),
    "address": typer.Option(
        "--address",
        rich_help_panel=MACHINES,
        metavar="ADDRESS",
        help="A running Ray cluster: `auto` or HOST:PORT. Default, or `none`: this machine.",
    ),
    "max_workers": typer.Option(
        rich_help_panel=MACHINES,
        metavar="N",
        help="Trials at once, at most. Default: as many as find room, and beside other searches "
        "of a cluster a fair part.",
    ),
    "gpus_per_trial": typer.Option(
        rich_help_panel=MACHINES,
        metavar="N",
        parser=read_gpu_share,
        help="GPUs per trial, at most 1; a fraction shares one. Default, or `auto`: by `doctor "
        "--tune`, by the memory that recorded trials took, or by what the full model should take.",
    ),
    "cpus_per_trial": typer.Option(
        rich_help_panel=MACHINES,
        metavar="N",
        help="CPUs (threads) per trial. Default: by `doctor --tune`, or half; with GPUs up to 4.",
    ),
}
Metric = Annotated[str | None, SEARCH_OPTIONS["metric"]]
DataDir = Annotated[str | None, SEARCH_OPTIONS["data_dir"]]
Label = Annotated[str | None, SEARCH_OPTIONS["label"]]
Group = Annotated[str | None, SEARCH_OPTIONS["group"]]
Text = Annotated[list[str] | None, SEARCH_OPTIONS["text"]]
TrackingUri = Annotated[str | None, SEARCH_OPTIONS["tracking_uri"]]
StoragePath = Annotated[str | None, SEARCH_OPTIONS["storage_path"]]
# The store, as commands that ask what is recorded take it.
AskedUri = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        rich_help_panel=RECORD,
        help="An MLflow store to ask instead of the journals (`searches` lists both): "
        "sqlite:///FILE.db or a server's address. Default: MLFLOW_TRACKING_URI, where a "
        "password belongs: what is typed here, `ps` shows to everybody on this machine.",
    ),
]
# The cluster that a search was submitted to.
JobAddress = Annotated[
    str | None,
    typer.Option(
        "--address",
        rich_help_panel=MACHINES,
        metavar="URL",
        help="The dashboard of the cluster that searches were submitted to, http://HOST:8265.",
    ),
]
DryRun = Annotated[
    bool,
    typer.Option(
        "--dry-run",
        rich_help_panel=PLAN,
        help="Print the plan and its estimated time; start no search.",
    ),
]
# A search that is recorded, as every command but `search` takes it.
SearchName = Annotated[
    str | None,
    typer.Argument(metavar="NAME", help="The search. Default: the latest one in this folder."),
]
# A list, so that a second one is refused and not taken in place of the first.
SearchOption = Annotated[
    list[str] | None,
    typer.Option("--search", metavar="NAME", rich_help_panel=WHICH, help="The same as NAME."),
]


def named_search(name: str | None, options: list[str] | None) -> str | None:
    """Return the search that an argument or an option names; None where neither is given.

    Raises UsageError where they name two.
    """
    named = [] if name is None else [name]
    named += options or []
    if not named:
        return None
    if len(set(named)) > 1:
        raise UsageError(f"{' and '.join(named)} are {len(named)} searches; name one")
    return named[0]


def latest_search(storage: Path) -> str | None:
    """Return the search that began last, and print which; None where none is recorded."""
    from elsa_tune.tracking.journal import latest_search as latest_paths

    paths = latest_paths(storage)
    if paths is None:
        return None
    say(f"search '{paths.name}', the latest in {storage}")
    return paths.name


def wanted_search(name: str | None, options: list[str] | None, storage: Path) -> str:
    """Return the search that is named, else the latest. Raises UsageError where there is none."""
    chosen = named_search(name, options)
    if chosen is None:  # an empty name is none of a search: SearchPaths refuses it
        chosen = latest_search(storage)
    if chosen is not None:
        return chosen
    raise UsageError(
        f"no search is recorded in {storage}; `elsa-tune search` starts one, --storage-path names "
        "another place"
    )


def refuse_several_places(places: Mapping[str, object]) -> None:
    """Raise UsageError where several options say where to look: all but one would be ignored.

    places: what was typed by the option's name, None where it was not.
    """
    given = [option for option, value in places.items() if value is not None]
    if len(given) > 1:
        raise UsageError(f"{listed(given)} each say where to look; give one of them")


def asking_store(tracking_uri: str | None) -> str:
    """Return the option that has a printed command ask the store that was typed; "" for none.

    It begins with a space. A password is left out: the command needs it in the environment.
    """
    if not tracking_uri:
        return ""
    return f" --tracking-uri {shlex.quote(without_credentials(tracking_uri))}"


@contextlib.contextmanager
def pointing_at_clusters(address: str | None = None) -> Iterator[None]:
    """Have the error for a search that is not recorded here say where a submitted one is found.

    address: where one was looked for already; None for nowhere.
    """
    try:
        yield
    except UsageError as error:
        if address is not None:
            raise
        text = str(error)
        hint = "; one that was submitted is found by --address"
        if text.endswith("."):
            hint = " One that was submitted is found by --address."
        raise type(error)(f"{text}{hint}") from error


def grouped(
    command: Callable[..., None], instead: Mapping[str, Any] = SEARCH_OPTIONS
) -> Callable[..., None]:
    """Make a command that typer takes of one whose parameters may be dataclasses.

    Each field of such a dataclass becomes an option of the command line. instead: options by their
    fields' names that the command has in place of a search's.
    """
    options: list[inspect.Parameter] = []
    groups: dict[str, Any] = {}  # dataclasses by the command's parameter
    for parameter in _parameters(command):
        if is_dataclass(parameter.annotation):
            groups[parameter.name] = parameter.annotation
            options += _fields(parameter.annotation, instead)
        else:
            options.append(parameter)

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            values = {}
            for field in _fields(group):
                if field.name in given:  # else the field's default
                    values[field.name] = given.pop(field.name)
            given[name] = group(**values)
        command(**given)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # inspect's
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _parameters(of: Any) -> list[inspect.Parameter]:
    """Return the parameters of a function or a dataclass, to be given by name."""
    hints = get_type_hints(of, include_extras=True)
    parameters = []
    for parameter in inspect.signature(of).parameters.values():
        annotation = hints[parameter.name]
        parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY, annotation=annotation))
    return parameters


def _fields(group: Any, instead: Mapping[str, Any] = SEARCH_OPTIONS) -> list[inspect.Parameter]:
    """Return the fields of a dataclass as options.

    Those of a search's get what SEARCH_OPTIONS says of them, in its order, or `instead`. Raises
    KeyError for one of which it says nothing: it would be an option that no command has.
    """
    fields = _parameters(group)
    if not (isinstance(group, type) and issubclass(group, Places)):
        return fields
    by_name = {field.name: field for field in fields}
    unknown = by_name.keys() - SEARCH_OPTIONS.keys()
    if unknown:
        raise KeyError(f"no entry in SEARCH_OPTIONS: {', '.join(sorted(unknown))}")
    options = []
    for name, option in SEARCH_OPTIONS.items():
        if name in by_name:
            field = by_name[name]
            of_command = instead.get(name, option)
            options.append(field.replace(annotation=Annotated[field.annotation, of_command]))
    return options


def results_path(text: str) -> Path:
    """Return the path of `--from`; '' would silently be the working directory."""
    if not text.strip():
        raise UsageError("--from is empty; name a results table, or a search's folder")
    return Path(text)


def out_folder(text: str) -> Path:
    """Return the folder of an `--out` option; '' would silently be the working directory."""
    if not text.strip():
        raise UsageError("--out is empty; name a folder")
    return Path(text)
