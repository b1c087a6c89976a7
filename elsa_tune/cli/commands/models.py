"""`elsa-tune models`: the models that are known, or one model's parameters by part and by depth.

It must not import anything heavy outside its functions.
"""

from __future__ import annotations

import enum
import importlib.util
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from elsa_tune.errors import UsageError
from elsa_tune.specs.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.specs.model import (
    KNOWN_MODELS,
    ModelFacts,
    ModelSource,
    ModelSpec,
    default_epochs,
    resolve_model,
    shipped_configuration,
)

if TYPE_CHECKING:
    from rich.table import Table

# A pipe has no edge; rich's 80 columns would fold the tables.
PIPE_WIDTH = 160

COUNTED = (
    "Counted as in the paper's Table 1: the pretrained model without the task's own last linear, "
    "which always trains."
)


class Format(enum.StrEnum):
    """How the answer is printed on stdout."""

    TABLE = "table"
    JSON = "json"


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
    format: Annotated[Format, typer.Option(help="How to print it.")] = Format.TABLE,
) -> None:
    """List the models, or count one model's parameters."""
    if model is None:
        if revision is not None:
            raise UsageError("--revision is about one model; name it: elsa-tune models owner/name")
        known = [listed(spec) for spec in KNOWN_MODELS.values()]
        if format is Format.JSON:
            _print_json(known)
        else:
            _print_list(known)
        return
    spec = resolve_model(model, revision)
    counts = counted(spec)
    if format is Format.JSON:
        _print_json(counts)
    else:
        _print_model(counts)


def listed(spec: ModelSpec) -> dict[str, Any]:
    """One line of the list, from what ships with the tool alone; JSON-ready."""
    fields = shipped_configuration(spec.name)
    return {
        "name": spec.name,
        "source": spec.source.value,
        "location": spec.location,
        "installed": _is_installed(spec),
        "model_type": fields["model_type"],
        "layers": fields["num_hidden_layers"],
        "default_epochs": default_epochs(fields["model_type"]),
    }


def _is_installed(spec: ModelSpec) -> bool | None:
    """Whether a package with weights is here; None for the hub, asked when it is needed."""
    if spec.source is not ModelSource.PACKAGE:
        return None
    return importlib.util.find_spec(spec.location) is not None


def counted(spec: ModelSpec) -> dict[str, Any]:
    """Parameters of one model, by part and by depth; JSON-ready. Raises ModelError."""
    from elsa_tune.training.model.encoder import facts, max_positions
    from elsa_tune.training.model.pooling import folder_pooling

    known = facts(spec)
    depths = [FULL_MODEL, *(FreezeDepth(n, True) for n in range(known.layers + 1))]
    return {
        "name": spec.name,
        "source": spec.source.value,
        "location": spec.location,
        "revision": spec.revision,
        "model_type": known.model_type,
        "layers": known.layers,
        "hidden_size": known.hidden_size,
        "max_positions": max_positions(spec),
        "default_epochs": known.default_epochs,
        "pooling": folder_pooling(spec),
        "parameters": {
            "embedding": known.embedding,
            "layer": known.layer,
            "layer_sizes": list(known.layer_sizes),
            "output": known.output,
            "total": known.total,
        },
        "depths": [_at_depth(known, depth) for depth in depths],
    }


def _at_depth(known: ModelFacts, depth: FreezeDepth) -> dict[str, Any]:
    frozen = known.frozen_parameters(depth)
    trainable = known.trainable_parameters(depth)
    return {
        "frozen_layers": depth.frozen_layers,
        "embeddings_frozen": depth.embeddings_frozen,
        "fine_tuned_layers": depth.fine_tuned_layers(known.layers),
        "frozen_parameters": frozen,
        "frozen_share": frozen / known.total,
        "trainable_parameters": trainable,
        "trainable_share": trainable / known.total,
    }


# --- Printing ------------------------------------------------------------------------------------


def _print_json(values: object) -> None:
    print(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))


def _print_list(known: list[dict[str, Any]]) -> None:
    table = _table("model", "from", "layers", "epochs", right=("layers", "epochs"))
    for model in known:
        table.add_row(
            model["name"], _origin(model), str(model["layers"]), str(model["default_epochs"])
        )
    _print_tables(table)
    print("Epochs are what is trained unless set. A local folder or a hub id (owner/name) of any")
    print("encoder works too: elsa-tune models NAME counts its parameters by part and by depth.")


def _origin(model: dict[str, Any]) -> str:
    if model["source"] == ModelSource.HUB:
        return f"hub {model['location']}"
    if model.get("installed") is False:
        return f"package {model['location']}, not installed: pip install 'elsa-tune[demo]'"
    return f"{model['source']} {model['location']}"


def _print_model(counts: dict[str, Any]) -> None:
    positions = counts["max_positions"]
    at = f" at {counts['revision']}" if counts["revision"] else ""
    print(f"{counts['name']}: {_origin(counts)}{at}")
    print(
        f"architecture {counts['model_type']}, {counts['layers']} layers, hidden size "
        f"{counts['hidden_size']}, "
        f"{f'texts up to {positions} tokens' if positions else 'no limit on tokens'}, "
        f"{counts['default_epochs']} epochs unless set"
    )
    if counts["pooling"] is not None:
        print(f"its folder pools by {counts['pooling']}; --set pooling={counts['pooling']}")
    parts = _table("part", "parameters", "millions", right=("parameters", "millions"))
    sizes = counts["parameters"]
    for label, key in (
        ("embedding", "embedding"),
        ("one layer", "layer"),
        ("output", "output"),
        ("total", "total"),
    ):
        parts.add_row(label, f"{sizes[key]:,}", _millions(sizes[key]))
    numbers = ("frozen layers", "fine-tuned", "frozen", "frozen %", "trainable", "trainable %")
    depths = _table(*numbers, right=numbers)
    for depth in counts["depths"]:
        label = FreezeDepth(depth["frozen_layers"], depth["embeddings_frozen"]).label
        depths.add_row(
            label,
            str(depth["fine_tuned_layers"]),
            f"{_millions(depth['frozen_parameters'])} M",
            f"{100 * depth['frozen_share']:.1f}",
            f"{_millions(depth['trainable_parameters'])} M",
            f"{100 * depth['trainable_share']:.1f}",
        )
    _print_tables(parts, depths)
    unequal = set(sizes["layer_sizes"]) - {sizes["layer"]}
    if unequal:
        print("Not every layer has the same size; `one layer` is the usual one.")
    print(COUNTED)


def _millions(count: int) -> str:
    return f"{count / 1e6:,.1f}"


def _table(*names: str, right: tuple[str, ...] = ()) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD)
    for name in names:
        table.add_column(name, justify="right" if name in right else "left", no_wrap=True)
    return table


def _print_tables(*tables: Table) -> None:
    from rich.console import Console

    console = Console(highlight=False, markup=False)
    if not console.is_terminal:
        console.width = PIPE_WIDTH
    for table in tables:
        console.print(table)
