"""`elsa-tune export` and `bundle`: answers as models, and models that answer together."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from elsa_tune.cli.options import (
    SearchName,
    SearchOption,
    StoragePath,
    named_search,
    out_folder,
    wanted_search,
)
from elsa_tune.errors import NoAnswerError, RunError, UsageError
from elsa_tune.files import slug
from elsa_tune.searching.output import say
from elsa_tune.tracking.paths import SearchPaths, find_search, search_names
from elsa_tune.tracking.places import StorePaths
from elsa_tune.words import listed

if TYPE_CHECKING:
    from elsa_tune.exporting.model import ExportRequest


def export(
    out: Annotated[
        Path, typer.Option(metavar="DIR", parser=out_folder, help="The folder to create.")
    ],
    name: SearchName = None,
    search: SearchOption = None,
    layers: Annotated[
        int | None,
        typer.Option(
            min=0,
            metavar="K",
            help="Fine-tuned layers. Default: the recommended number.",
        ),
    ] = None,
    way: Annotated[
        str | None,
        typer.Option(
            "--way",
            "--candidate",
            metavar="WAY",
            help="What to export, as the search or its table calls it: full, head, bitfit, lora, "
            "lora_last, lora-last3, or a number of frozen layers, 8.",
        ),
    ] = None,
    check: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Score the model on your own labelled rows.")
    ] = None,
    train_size: Annotated[
        Literal["full"] | None,
        typer.Option(metavar="full", help="Train on all rows where the search used a subset."),
    ] = None,
    onnx: Annotated[
        bool, typer.Option("--onnx", help="Also write an ONNX file, if onnxscript is installed.")
    ] = False,
    adapter: Annotated[
        bool,
        typer.Option("--adapter", help="Also write the adapter alone, as peft loads that of LoRA."),
    ] = False,
    push: Annotated[
        str | None, typer.Option(metavar="OWNER/NAME", help="Upload the folder to the hub.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the folder of an earlier export.")
    ] = False,
    every: Annotated[
        bool,
        typer.Option(
            "--all",
            help="Of a search on several tasks: each task that has an answer, in a folder below.",
        ),
    ] = False,
    storage_path: StoragePath = None,
) -> None:
    """Train a search's answer once more, and save the model.

    The folder is what transformers' from_pretrained and pipeline load. Prints its path.
    """
    storage = StorePaths(Path.cwd()).storage_at(storage_path)
    if every and (check or push):
        raise UsageError("--all exports several models, and --check and --push are for one")
    if every and named_search(name, search) is None:
        raise UsageError("--all is for a search on several tasks; give the name it was started by")
    chosen = wanted_search(name, search, storage)
    by_folder = _each(storage, chosen, out) if every else {out: find_search(storage, chosen)}
    say(f"export: reading search '{chosen}'")
    from elsa_tune.exporting import model

    requests = []
    for folder, paths in by_folder.items():
        request = model.ExportRequest(
            paths=paths,
            out=folder,
            layers=layers,
            way=way,
            check=check,
            full=train_size is not None,
            onnx=onnx,
            adapter=adapter,
            push=push,
            overwrite=overwrite,
        )
        model.check(request)
        requests.append(request)
    if not every:
        model.export(requests[0], say)
        typer.echo(out)
        return
    failed = []
    answered = _with_answer(requests)
    if not answered:
        raise NoAnswerError(f"none of the tasks of '{chosen}' has an answer to export")
    for request in answered:
        try:
            model.export(request, say)
        except (RunError, UsageError) as error:  # of this task; the others go on
            say(f"{request.out}: {error}")
            failed.append(str(request.out))
            continue
        typer.echo(request.out)
    if failed:
        raise RunError(
            f"{listed(failed)} could not be exported as asked for; each reason is printed above"
        )


def _with_answer(requests: Sequence["ExportRequest"]) -> list["ExportRequest"]:
    """Return the requests that something can be exported for, and say which have no answer.

    Raises UsageError for what was not measured of a task, before any is trained.
    """
    from elsa_tune.exporting import model

    found = []
    for request in requests:
        try:
            model.check_choice(request)
        except NoAnswerError as error:  # the other tasks may have one
            say(f"{request.out} is not written: {error}")
            continue
        except UsageError as error:
            raise UsageError(f"{request.out} cannot be exported: {error}") from error
        found.append(request)
    return found


def _each(storage: Path, name: str, out: Path) -> dict[Path, SearchPaths]:
    """Return each task's search of one on several tasks, by the folder that its model goes to."""
    from elsa_tune.searching.specification import load_specification

    by_folder = {}
    for search in search_names(storage):
        if not search.startswith(f"{name}-"):
            continue
        task = slug(load_specification(SearchPaths(storage, search)).task.name)
        if search == f"{name}-{task}":
            by_folder[out / task] = SearchPaths(storage, search)
    if not by_folder:
        raise UsageError(
            f"{name} --all: no search on several tasks has this name in {storage}; "
            "without --all it is looked for as one search"
        )
    return by_folder


def bundle(
    models: Annotated[
        list[str],
        typer.Argument(
            metavar="DIR...",
            help="Exported models, each a task that is called as its folder; or a bundle.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            parser=out_folder,
            help="The folder to create. Default: the bundle given first, changed in place.",
        ),
    ] = None,
    add: Annotated[
        list[str] | None, typer.Option(metavar="DIR", help="A model to add to a bundle.")
    ] = None,
    remove: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A task to take out of a bundle.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the folder of an earlier bundle.")
    ] = False,
) -> None:
    """Put exported models of one base together, on shared layers.

    The folder is what elsa_tune.load_bundle and MLflow load. Prints its path.
    """
    say(f"bundle: reading {len(models) + len(add or [])} folders")
    from elsa_tune.exporting.bundle import bundle as write

    typer.echo(write([*models, *(add or [])], out, remove=remove or [], overwrite=overwrite))
