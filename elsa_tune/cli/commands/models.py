"""`elsa-tune models`: the models that are known, or one model's parameters by part."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Annotated, Any

import typer

from elsa_tune.cli.printing import Format, FormatOption, show
from elsa_tune.errors import UsageError
from elsa_tune.specs.model import (
    KNOWN_MODELS,
    ModelSource,
    ModelSpec,
    default_epochs,
    resolve_model,
    shipped_configuration,
)


def models(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model to look at: a known name, a local folder, or a hub id owner/name. "
            "Needs only its configuration, no weights."
        ),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a model on the hub.")
    ] = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """List the models, or count one model's parameters."""
    if model is not None:
        show(counted(resolve_model(model, revision)), format)
        return
    if revision is not None:
        raise UsageError("--revision is about one model; name it: elsa-tune models owner/name")
    show([listed(spec) for spec in KNOWN_MODELS.values()], format)


def listed(spec: ModelSpec) -> dict[str, Any]:
    """One line of the list, from what ships with the tool alone; JSON-ready."""
    fields = shipped_configuration(spec.name)
    is_package = spec.source is ModelSource.PACKAGE
    return {
        "name": spec.name,
        "source": spec.source.value,
        "location": spec.location,
        # Of the hub it is asked when it is needed.
        "installed": importlib.util.find_spec(spec.location) is not None if is_package else None,
        "model_type": fields["model_type"],
        "layers": fields["num_hidden_layers"],
        "default_epochs": default_epochs(fields["model_type"]),
    }


def counted(spec: ModelSpec) -> dict[str, Any]:
    """Parameters of one model, by part; JSON-ready. Raises ModelError.

    Counted as in the paper's Table 1: the pretrained model without the task's own last linear,
    which always trains.
    """
    from elsa_tune.training.model.encoder import facts, max_positions
    from elsa_tune.training.model.pooling import folder_pooling

    known = facts(spec)
    counts = ("embedding", "layer", "layer_sizes", "output", "total")
    return {
        **dataclasses.asdict(spec),
        "model_type": known.model_type,
        "layers": known.layers,
        "hidden_size": known.hidden_size,
        "max_positions": max_positions(spec),
        "default_epochs": default_epochs(known.model_type),
        "pooling": folder_pooling(spec),
        "parameters": {name: getattr(known, name) for name in counts},
    }
