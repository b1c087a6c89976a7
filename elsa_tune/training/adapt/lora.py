"""LoRA by the library peft: its modules stand in the place of the linear layers, around them.

Parameters of a linear layer are called otherwise while it is adapted (`query.base_layer.weight` for
`query.weight`); `merged` gives them their names back. Peft is imported here alone, and only where
LoRA is asked for.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.lora import ALL_LINEAR, Lora
from elsa_tune.training.adapt.method import Method
from elsa_tune.training.adapt.trainable import Trainable, train_only
from elsa_tune.training.model.parts import divide, layer_list

INSTALL = "pip install 'elsa-tune[lora]'"
# Where peft puts what replaces a module, in the names of parameters.
_SAVED = "modules_to_save.default"


class AddLora(Method[Lora]):
    """Trains two matrices beside each linear layer that the candidate names, and the head.

    Of the encoder's layers alone: peft's own `all-linear` would also take the pooler, which trains
    here in full, as part of the head.
    """

    def apply(self, model: PreTrainedModel, candidate: Lora) -> Trainable:
        peft = peft_for(candidate)
        head = divide(model).head
        config = adapter_config(model, candidate)
        peft.inject_adapter_in_model(config, model)
        del model.peft_config  # of which transformers would take notice
        trained = set(head)
        for name, module in adapted_modules(model):
            for own_name, _ in module.named_parameters():
                if not own_name.startswith("base_layer."):
                    trained.add(f"{name}.{own_name}")
        return train_only(model, trained)

    @torch.no_grad()
    def merged(self, model: PreTrainedModel, candidate: Lora) -> None:
        for name, module in adapted_modules(model):
            module.merge()
            linear = module.get_base_layer()
            model.set_submodule(name, linear)

    def trained_of(self, model: PreTrainedModel, candidate: Lora) -> Trainable:
        weights = {f"{name}.weight" for name in linear_layers(model, candidate)}
        return train_only(model, weights.union(divide(model).head))

    @torch.no_grad()
    def save_adapter(
        self,
        folder: Path,
        adapted: PreTrainedModel,
        base: PreTrainedModel,
        candidate: Lora,
        location: str,
        revision: str | None,
    ) -> None:
        """Write the matrices and the head as peft does, and loads them.

        The head is among peft's `modules_to_save`: otherwise it would be drawn anew wherever the
        adapter is loaded.
        """
        peft = peft_for(candidate)
        config = adapter_config(
            base,
            candidate,
            task_type="SEQ_CLS",
            modules_to_save=_head_modules(base),
        )
        saved = peft.get_peft_model(base, config)
        # Here, for peft takes the model's own name first, and has both lists in any order.
        config.base_model_name_or_path = location
        config.revision = revision
        config.target_modules = sorted(config.target_modules)
        config.modules_to_save = sorted(set(config.modules_to_save))
        values = dict(adapted.named_parameters())
        for name, parameter in saved.base_model.model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(values[name.replace(f".{_SAVED}", "")])
        # Embeddings are the base's: peft would ask the hub whether they are.
        saved.save_pretrained(folder, save_embedding_layers=False)
        (folder / "README.md").write_text(_adapter_card(candidate, location, revision, base.config))

    def first_trained_layer(self, candidate: Lora, layers: int) -> int:
        if candidate.last is None:
            return 0
        return layers - candidate.last


METHOD = AddLora()


def peft_for(candidate: Lora) -> Any:
    """Return the library. Raises SpaceError where it cannot be imported."""
    try:
        import peft
    except ImportError as error:
        why = "is not installed"
        if getattr(error, "name", None) != "peft":
            why = f"cannot be imported ({error})"
        raise SpaceError(
            f"'{candidate.label}' needs the library peft, which {why}: {INSTALL}"
        ) from error
    return peft


def adapter_config(model: PreTrainedModel, candidate: Lora, **more: Any) -> Any:
    """Return peft's configuration of a candidate. more: further fields of it."""
    return peft_for(candidate).LoraConfig(
        r=candidate.r,
        lora_alpha=candidate.lora_alpha,
        lora_dropout=0.0,
        # Each by its full name: a short one may be that of another module, too.
        target_modules=linear_layers(model, candidate),
        **more,
    )


def linear_layers(model: PreTrainedModel, candidate: Lora) -> list[str]:
    """Return the names of the linear layers that have LoRA. Raises SpaceError where none has."""
    layers = list(layer_list(model))
    candidate.check(len(layers))
    first = METHOD.first_trained_layer(candidate, len(layers))
    chosen: set[int] = set()
    found: set[str] = set()
    known: set[str] = set()
    for layer in layers[first:]:
        for name, linear in _linears(layer):
            known.add(name.rpartition(".")[2])
            target = _target_of(name, candidate)
            if target is not None:
                found.add(target)
                chosen.add(id(linear))
    _check_found(model, candidate, found, known)
    return [name for name, module in model.named_modules() if id(module) in chosen]


def adapted_modules(model: nn.Module) -> list[tuple[str, Any]]:
    """Return the modules that peft has put around linear layers, by name."""
    from peft.tuners.lora import LoraLayer

    return [(name, part) for name, part in model.named_modules() if isinstance(part, LoraLayer)]


def _head_modules(model: PreTrainedModel) -> list[str]:
    """Return the names of the modules that hold the head side, each complete."""
    head = set(divide(model).head)
    chosen: list[str] = []
    for name, module in model.named_modules():
        names = {f"{name}.{own}" for own, _ in module.named_parameters()}
        is_inside = any(name.startswith(f"{outer}.") for outer in chosen)
        if names and names <= head and not is_inside:
            chosen.append(name)
    return chosen


def _adapter_card(candidate: Lora, location: str, revision: str | None, config: Any) -> str:
    what = candidate.describe(config.num_hidden_layers)
    # The base may have a head of another size, in whose place peft puts the adapter's.
    options = [f"num_labels={config.num_labels}", "ignore_mismatched_sizes=True"]
    if revision is not None:
        options.append(f"revision={json.dumps(revision)}")
    if config.model_type == "big_bird":
        options.append(f"attention_type={json.dumps(config.attention_type)}")
    return f"""---
library_name: peft
base_model: {json.dumps(location)}
tags:
- elsa-tune
- lora
---

# {what}

The adapter, and the head, which peft loads in place of the base model's:

```python
from peft import PeftModel
from transformers import AutoModelForSequenceClassification

base = AutoModelForSequenceClassification.from_pretrained(
    {json.dumps(location)}, {", ".join(options)}
)
model = PeftModel.from_pretrained(base, ".").eval()  # or this folder's path
```

The folder above has the same model with the adapter merged, and the tokenizer.
"""


def _linears(layer: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    for name, module in layer.named_modules():
        if isinstance(module, nn.Linear):
            yield name, module


def _target_of(name: str, candidate: Lora) -> str | None:
    """Return by which of the candidate's names a linear layer is meant, None where by none."""
    if isinstance(candidate.target_modules, str):
        return candidate.target_modules
    for target in candidate.target_modules:
        if f".{name.lower()}".endswith(f".{target}"):
            return target
    return None


def _check_found(model: PreTrainedModel, candidate: Lora, found: set[str], known: set[str]) -> None:
    """Raise SpaceError where one of the candidate's names is that of no linear layer."""
    targets = {ALL_LINEAR}
    if not isinstance(candidate.target_modules, str):
        targets = set(candidate.target_modules)
    lacking = sorted(targets - found)
    if not lacking:
        return
    architecture = f"the architecture '{model.config.model_type}'"
    if not known:
        raise SpaceError(
            f"'{candidate.label}' needs linear layers, of which {architecture} has none in its "
            "layers; compare other ways"
        )
    names = ", ".join(sorted(known))
    raise SpaceError(
        f"'{candidate.label}' names linear layers '{lacking[0]}', of which {architecture} has none "
        f"in its layers; it has: {names}"
    )
