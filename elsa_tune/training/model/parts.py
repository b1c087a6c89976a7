"""The parts of a model: embedding side, layers, head side; each parameter is in exactly one.

The layers are found by their shape, not by a list of architectures: the one `nn.ModuleList` under
the base model that holds `num_hidden_layers` modules of one class. What runs before them, and every
table that all of them read, is the embedding side; what runs after them is the head side. Read in
transformers 5.23: MPNet's `relative_attention_bias`, and DeBERTa's `rel_embeddings` with the norm
of that table, stand behind the layers, but all of them read them. DeBERTa's `conv` adds to what
layer 0 gives, so it belongs to layer 0.

Some parameters take no part in a classification and so get no gradient: XLNet's `mask_emb`, and in
each of its layers `r_s_bias` and `seg_embed` where no token types are given. They are counted in
their part, and stay as they are.
"""

import re
from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
)

from elsa_tune.errors import ModelError

ENCODERS = "BERT, RoBERTa, DistilBERT, ELECTRA, MPNet, DeBERTa or XLNet"

# What is registered behind the layers, or beside them, is told apart by name.
_SHARED_TABLE = re.compile(r"embed|relative|position|mask_emb", re.IGNORECASE)
_POOLER = re.compile(r"(^|[._])pool", re.IGNORECASE)
_AFTER_LAYERS = re.compile(r"norm|(^|[._])ln([._]|$)|final", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ModelParts:
    """Parameter names by part, in the model's own order; every parameter is in exactly one part."""

    embedding: tuple[str, ...]  # all before the first layer
    # One tuple of names for each of the L layers.
    layers: tuple[tuple[str, ...], ...]
    head: tuple[str, ...]  # all behind the last layer
    # Those of the embedding side that are constant by design (sinusoidal positions): they never
    # train.
    fixed: frozenset[str] = frozenset()


def divide(model: PreTrainedModel) -> ModelParts:
    """Divide a classification model's parameters; works on the meta device too.

    Raises ModelError where layers cannot be frozen one by one: shared layers (ALBERT), decoders,
    encoder-decoders, and models without one recognisable stack of layers.
    """
    path, stack = _find_layers(model)
    layers: list[list[str]] = [[] for _ in stack]
    embedding = []
    fixed = []
    head = []
    for name, _ in model.named_parameters():
        place = _place(model, path, name)
        if place is None:
            raise _refusal(
                model,
                f"has a parameter '{name}' that is neither known to run before the layers nor "
                "after them, so it cannot be divided safely",
            )
        if isinstance(place, int):
            layers[place].append(name)
        elif place == "head":
            head.append(name)
        else:
            embedding.append(name)
            if _is_constant(model, name):
                fixed.append(name)
    layer_names = [tuple(names) for names in layers]
    return ModelParts(
        embedding=tuple(embedding),
        layers=tuple(layer_names),
        head=tuple(head),
        fixed=frozenset(fixed),
    )


def layer_list(model: PreTrainedModel) -> nn.ModuleList:
    """Return the L layers, as the model holds them. Raises ModelError as `divide` does."""
    _, layers = _find_layers(model)
    return layers


def drop_layers(model: PreTrainedModel, count: int) -> None:
    """Take the first `count` layers out of the model, which cannot be divided afterwards.

    With them goes what belongs to them without standing among them: DeBERTa's convolution acts
    behind the first layer that there is, which must be layer 0.
    """
    path, stack = _find_layers(model)
    outside = path.rpartition(".")[0]
    holder = model.get_submodule(outside)
    for name, child in list(holder.named_children()):
        if child is stack:
            continue
        place = _place(model, path, f"{outside}.{name}.")
        if isinstance(place, int) and place < count:
            setattr(holder, name, None)
    del stack[:count]


def prefix_modules(model: PreTrainedModel, layers: int) -> list[nn.Module]:
    """Return the modules of the embedding side and the first `layers` layers, with those in them.

    XLNet has one dropout module for its embeddings and for its output; it counts as the output's
    and is not in the list.
    """
    path, _ = _find_layers(model)
    modules = []
    for name, module in model.base_model.named_modules(prefix=model.base_model_prefix):
        if f"{path}.".startswith(f"{name}."):
            continue  # it holds the layers
        place = _place(model, path, f"{name}.")
        is_in_layers = isinstance(place, int) and place < layers
        if place == "embedding" or is_in_layers:
            modules.append(module)
    return modules


def final_linear(model: PreTrainedModel) -> str:
    """Return the name of the last linear module, whose width is `num_labels`. Raises ModelError."""
    base = f"{model.base_model_prefix}."
    outputs = model.config.num_labels
    last: str | None = None
    for name, module in model.named_modules():
        if name.startswith(base) or not isinstance(module, nn.Linear):
            continue
        if module.out_features == outputs:
            last = name
    if last is None:
        raise _refusal(model, "has no linear classification layer at its end")
    return last


def _find_layers(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """Return the layers' full name and module; every refusal is made here."""
    _refuse_other_kinds(model)
    base = model.base_model
    if base is model:
        raise _refusal(model, "has no base model apart from its head")
    count = getattr(model.config, "num_hidden_layers", None)
    stacks: dict[str, nn.ModuleList] = {}
    for name, module in base.named_modules():
        # What stands within a layer is no stack of its own.
        is_within = any(name.startswith(f"{outer}.") for outer in stacks)
        if isinstance(module, nn.ModuleList) and len(module) == count and not is_within:
            classes = {type(layer) for layer in module}
            if len(classes) == 1:
                stacks[name] = module
    if len(stacks) != 1:
        raise _refusal(
            model,
            f"has no encoder stack that can be recognised: {len(stacks)} lists of {count} equal "
            "layers were found, and there must be exactly one",
        )
    [(name, layers)] = stacks.items()
    if _shares_weights(layers):
        raise _refusal(
            model, "shares weights among its layers, so they cannot be frozen one by one"
        )
    return f"{model.base_model_prefix}.{name}", layers


def _shares_weights(layers: nn.ModuleList) -> bool:
    """Return whether two layers have a parameter in common, or one has none of its own."""
    seen: set[int] = set()
    for layer in layers:
        own = {id(parameter) for parameter in layer.parameters()}
        if not own or own & seen:
            return True
        seen |= own
    return False


def _refusal(model: PreTrainedModel, why: str) -> ModelError:
    return ModelError(
        f"the architecture '{model.config.model_type}' {why}; give an encoder such as {ENCODERS}"
    )


def _refuse_other_kinds(model: PreTrainedModel) -> None:
    config = model.config
    if getattr(config, "is_encoder_decoder", False):
        raise _refusal(model, "is an encoder-decoder")
    if hasattr(config, "num_hidden_groups"):
        raise _refusal(
            model,
            "shares one set of weights among all its layers, so they cannot be frozen one by one",
        )
    if _is_decoder(model):
        raise _refusal(model, "is a decoder (each token sees only those before it)")


def _is_decoder(model: PreTrainedModel) -> bool:
    config = model.config
    if getattr(config, "is_decoder", False):
        return True
    # XLNet is pretrained as a causal model too, but reads both ways unless told otherwise.
    reads_both_ways = getattr(config, "attn_type", None) == "bi"
    is_causal = config.model_type in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    is_masked = config.model_type in MODEL_FOR_MASKED_LM_MAPPING_NAMES
    if is_causal and not is_masked and not reads_both_ways:
        return True
    return any(getattr(module, "is_causal", None) is True for module in model.modules())


def _place(model: PreTrainedModel, path: str, name: str) -> int | str | None:
    """Return where a parameter belongs, or a module by its name with a dot behind it.

    The layer's index, "embedding", "head", or None where nothing tells. path: names the layers.
    """
    layers = f"{path}."
    if name.startswith(layers):
        within_layers = name.removeprefix(layers)
        index, _, _ = within_layers.partition(".")
        return int(index)
    base = f"{model.base_model_prefix}."
    if not name.startswith(base):
        return "head"
    if model.config.model_type in ("deberta", "deberta-v2"):
        encoder, _, _ = path.rpartition(".")
        if name.startswith(f"{encoder}.conv."):
            return 0
        if name.startswith(f"{encoder}.LayerNorm."):
            return "embedding"
    own_name = name.removeprefix(base)
    if _POOLER.search(own_name):  # GTE and Nomic register theirs before the layers
        return "head"
    if _stands_before(model, path, name) or _SHARED_TABLE.search(own_name):
        return "embedding"
    if _AFTER_LAYERS.search(own_name):
        return "head"
    return None


def _stands_before(model: PreTrainedModel, path: str, name: str) -> bool:
    """Return whether `name` was registered before the layers, where the two names part."""
    ours = name.split(".")
    theirs = path.split(".")
    level = 0
    while ours[level] == theirs[level]:
        level += 1
    parent_name = ".".join(theirs[:level])
    parent = model.get_submodule(parent_name)
    order = list(parent._modules)
    if ours[level] not in order:
        return False
    our_place = order.index(ours[level])
    their_place = order.index(theirs[level])
    return our_place < their_place


def _is_constant(model: PreTrainedModel, name: str) -> bool:
    """Return whether it is a sinusoidal position table: made without a gradient, they stay so."""
    holder, _, _ = name.rpartition(".")
    kind = type(model.get_submodule(holder))
    if "Sinusoidal" in kind.__name__:
        return True
    if not getattr(model.config, "sinusoidal_pos_embds", False):
        return False
    return holder.endswith("position_embeddings")
