"""Options that several commands share, so that they read and behave alike."""

import functools
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from elsa_tune.errors import UsageError
from elsa_tune.searching.inputs import Places

# Of a search; those of them that other commands share follow.
SEARCH_OPTIONS = {
    "model": typer.Option(help="bert_base, ..., minilm; a local folder; or a hub id owner/name."),
    "task": typer.Option(
        help="A GLUE task, `stdlib`, a YAML file of your own, a table (.csv, ...), "
        "`hub:owner/name` for a data set of the hub (imdb and others have names), or a folder of "
        "save_to_disk. Several of them, or a .txt that lists them, are searched one after another, "
        "with a joint answer."
    ),
    "label": typer.Option(
        metavar="COLUMN", help="Of a table or a data set: the column with the labels."
    ),
    "text": typer.Option(
        metavar="COLUMN",
        help="Of a table or a data set: the column with the texts; twice for pairs of texts.",
    ),
    "space": typer.Option(help="A search space: a YAML file, or the name of a shipped one."),
    "name": typer.Option(help="The search's name. Default: model, task and time."),
    "trials": typer.Option(help="Most exploring trials in all; each depth first has equally many."),
    "seeds": typer.Option(help="Measuring trials per depth."),
    "train_size": typer.Option(help="Train on a stratified, nested subset of N examples."),
    "max_time": typer.Option(help="End after this time (90s, 30m, 2h) with what is done."),
    "gpu_hours": typer.Option(help="The same, once its GPUs, busy or not, add up to these hours."),
    "until": typer.Option(
        help="In a hunt: take second looks that certify in 2 % of cases or more."
    ),
    "metric": typer.Option(help="Use this metric instead of the task's."),
    "settings": typer.Option(
        "--set", metavar="KEY=VALUE", help="Override a field of the space or recipe, e.g. epochs=6."
    ),
    "data_dir": typer.Option(
        metavar="DIR", help="A local GLUE folder in the official layout (RTE/train.tsv)."
    ),
    "tracking_uri": typer.Option(
        metavar="URI",
        help="MLflow store: sqlite:///FILE.db or a server's address. "
        "Default: MLFLOW_TRACKING_URI, else ./mlruns/mlflow.db. A password belongs in "
        "that variable: what is typed here, `ps` shows to everybody on this machine.",
    ),
    "storage_path": typer.Option(
        metavar="PATH", help="Where searches keep their journals. Default: ./mlruns/searches."
    ),
    "address": typer.Option(metavar="ADDRESS", help="A running Ray cluster: `auto` or HOST:PORT."),
    "gpus_per_trial": typer.Option(
        metavar="N",
        help="GPUs per trial, at most 1; a fraction shares one. Default: by `doctor --tune`, or "
        "what leaves room for the full model.",
    ),
    "cpus_per_trial": typer.Option(
        metavar="N",
        help="CPUs (threads) per trial. Default: by `doctor --tune`, or half; with GPUs up to 4.",
    ),
}
Metric = Annotated[str | None, SEARCH_OPTIONS["metric"]]
DataDir = Annotated[str | None, SEARCH_OPTIONS["data_dir"]]
Label = Annotated[str | None, SEARCH_OPTIONS["label"]]
Text = Annotated[list[str] | None, SEARCH_OPTIONS["text"]]
TrackingUri = Annotated[str | None, SEARCH_OPTIONS["tracking_uri"]]
StoragePath = Annotated[str | None, SEARCH_OPTIONS["storage_path"]]
# Of commands that ask what is recorded.
AskedUri = Annotated[
    str | None,
    typer.Option(
        metavar="URI",
        help="An MLflow store to ask instead of the journals (`searches` lists both): "
        "sqlite:///FILE.db or a server's address. Default: MLFLOW_TRACKING_URI, where a "
        "password belongs: what is typed here, `ps` shows to everybody on this machine.",
    ),
]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan and its estimated time; start no search.")
]


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """The command as typer takes it: a parameter that is a dataclass stands for its fields."""
    own = _options(command)
    groups: dict[str, Any] = {
        one.name: one.annotation for one in own if is_dataclass(one.annotation)
    }
    options = [
        option
        for one in own
        for option in (_options(one.annotation) if one.name in groups else [one])
    ]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        for name, group in groups.items():
            there = [one.name for one in _options(group) if one.name in given]
            given[name] = group(**{each: given.pop(each) for each in there})
        command(**given)

    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]  # inspect's
    run.__annotations__ = {option.name: option.annotation for option in options}
    return run


def _options(of: Any) -> list[inspect.Parameter]:
    """Its parameters, to be given by name; those of a search as SEARCH_OPTIONS has them."""
    hints = get_type_hints(of, include_extras=True)
    found = [
        one.replace(kind=one.KEYWORD_ONLY, annotation=hints[one.name])
        for one in inspect.signature(of).parameters.values()
    ]
    if not (isinstance(of, type) and issubclass(of, Places)):
        return found
    there = {one.name: one for one in found}
    return [
        there[name].replace(annotation=Annotated[there[name].annotation, option])
        for name, option in SEARCH_OPTIONS.items()
        if name in there
    ]


def out_folder(text: str) -> Path:
    """The folder of an `--out` option; '' would silently be the working directory."""
    if not text.strip():
        raise UsageError("--out is empty; name a folder, '.' for the one you are in")
    return Path(text)
