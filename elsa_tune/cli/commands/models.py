"""`elsa-tune models`: the models that are known, or one model's parameters by part and by depth."""

from __future__ import annotations

import dataclasses
import importlib.util
from typing import Annotated, Any

import typer

from elsa_tune.cli.printing import Format, FormatOption, show
from elsa_tune.errors import UsageError
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.model import (
    KNOWN_MODELS,
    ModelSource,
    ModelSpec,
    default_epochs,
    resolve_model,
    shipped_configuration,
)
from elsa_tune.words import aligned

PARTS = {"embedding": "embedding", "layer": "one layer", "output": "output", "total": "total"}
DEPTHS = ("frozen layers", "fine-tuned", "frozen", "frozen %", "trainable", "trainable %")
COUNTED = (
    "Counted as in the paper's Table 1: the pretrained model without the task's own last linear, "
    "which always trains."
)


def models(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model to look at: a known name, a local folder, or a hub id owner/name. "
            "Needs its configuration alone, no weights."
        ),
    ] = None,
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit of a model on the hub.")
    ] = None,
    format: FormatOption = Format.TABLE,
) -> None:
    """List the models, or count one model's parameters."""
    if model is not None:
        show(counted(resolve_model(model, revision)), format, _counts_text)
        return
    if revision is not None:
        raise UsageError("--revision is about one model; name it: elsa-tune models owner/name")
    show([listed(spec) for spec in KNOWN_MODELS.values()], format, _list_text)


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
    """Parameters of one model, by part and by depth; JSON-ready. Raises ModelError."""
    from elsa_tune.training.model.encoder import facts, max_positions
    from elsa_tune.training.model.pooling import folder_pooling

    known = facts(spec)
    counts = ("embedding", "layer", "layer_sizes", "output", "total")
    depths = []
    for depth in (FULL_MODEL, *(FreezeDepth(n, True) for n in range(known.layers + 1))):
        frozen, trainable = known.frozen_parameters(depth), known.trainable_parameters(depth)
        depths.append(
            {
                **dataclasses.asdict(depth),
                "fine_tuned_layers": depth.fine_tuned_layers(known.layers),
                "frozen_parameters": frozen,
                "frozen_share": frozen / known.total,
                "trainable_parameters": trainable,
                "trainable_share": trainable / known.total,
            }
        )
    return {
        **dataclasses.asdict(spec),
        "model_type": known.model_type,
        "layers": known.layers,
        "hidden_size": known.hidden_size,
        "max_positions": max_positions(spec),
        "default_epochs": default_epochs(known.model_type),
        "pooling": folder_pooling(spec),
        "parameters": {name: getattr(known, name) for name in counts},
        "depths": depths,
    }


def _list_text(known: list[dict[str, Any]]) -> str:
    rows = [
        (one["name"], _origin(one), str(one["layers"]), str(one["default_epochs"])) for one in known
    ]
    return (
        f"{aligned([('model', 'from', 'layers', 'epochs'), *rows], right=(2, 3))}\n"
        "Epochs are what is trained unless set. A local folder or a hub id (owner/name) of any\n"
        "encoder works too: elsa-tune models NAME counts its parameters by part and by depth."
    )


def _origin(model: dict[str, Any]) -> str:
    is_missing = model.get("installed") is False
    how = ", not installed: pip install 'elsa-tune[demo]'" if is_missing else ""
    return f"{model['source']} {model['location']}{how}"


def _counts_text(counts: dict[str, Any]) -> str:
    positions, pooling = counts["max_positions"], counts["pooling"]
    sizes = counts["parameters"]
    parts = [(label, f"{sizes[key]:,}", f"{sizes[key] / 1e6:,.1f}") for key, label in PARTS.items()]
    depths = [
        (
            FreezeDepth(one["frozen_layers"], one["embeddings_frozen"]).label,
            str(one["fine_tuned_layers"]),
            *(f"{one['frozen_parameters'] / 1e6:,.1f} M", f"{100 * one['frozen_share']:.1f}"),
            *(f"{one['trainable_parameters'] / 1e6:,.1f} M", f"{100 * one['trainable_share']:.1f}"),
        )
        for one in counts["depths"]
    ]
    at = f" at {counts['revision']}" if counts["revision"] else ""
    texts = f"texts up to {positions} tokens" if positions else "no limit on tokens"
    lines = [
        f"{counts['name']}: {_origin(counts)}{at}",
        f"architecture {counts['model_type']}, {counts['layers']} layers, hidden size "
        f"{counts['hidden_size']}, {texts}, {counts['default_epochs']} epochs unless set",
    ]
    if pooling is not None:
        lines.append(f"its folder pools by {pooling}; --set pooling={pooling}")
    lines += ["", aligned([("part", "parameters", "millions"), *parts], right=(1, 2))]
    lines += ["", aligned([DEPTHS, *depths], right=range(len(DEPTHS))), ""]
    if set(sizes["layer_sizes"]) != {sizes["layer"]}:
        lines.append("Not every layer has the same size; `one layer` is the usual one.")
    return "\n".join([*lines, COUNTED])
