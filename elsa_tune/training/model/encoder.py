"""The encoder with its task head: counted from its configuration, loaded with its weights."""

import contextlib
import copy
import itertools
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from torch import nn
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging as transformers_logging

from elsa_tune.errors import ModelError, first_line, quoted
from elsa_tune.specs.model import (
    KNOWN_MODELS,
    ModelFacts,
    ModelSource,
    ModelSpec,
    shipped_configuration,
)
from elsa_tune.training.model import model_files
from elsa_tune.training.model.model_files import model_folder
from elsa_tune.training.model.parts import ModelParts, divide, final_linear
from elsa_tune.training.model.refusals import check_classifies_texts, check_fields
from elsa_tune.training.model.weight_shapes import stand_ins

# Every file is fetched before, and a checkpoint's own code is never run.
LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def facts(spec: ModelSpec) -> ModelFacts:
    """Return what the configuration alone tells; no weights are read or fetched.

    The paper's four models need no network, their configurations ship with the package. Raises
    ModelError for a model that cannot be had, or whose layers cannot be frozen one by one.
    """
    model = skeleton(spec)
    parts = divide(model)
    sizes = {name: parameter.numel() for name, parameter in model.named_parameters()}
    task_linear = f"{final_linear(model)}."

    def count(names: tuple[str, ...]) -> int:
        return sum(sizes[name] for name in names if not name.startswith(task_linear))

    layers = tuple(count(names) for names in parts.layers)
    embedding = count(parts.embedding)
    output = count(parts.head)
    return ModelFacts(
        model_type=model.config.model_type,
        layers=len(layers),
        hidden_size=model.config.hidden_size,
        embedding=embedding,
        layer=Counter(layers).most_common(1)[0][0],
        output=output,
        total=embedding + sum(layers) + output,
        layer_sizes=layers,
        max_positions=_max_positions(model),
    )


def _max_positions(model: PreTrainedModel) -> int | None:
    """Return the most tokens that a row may have, None without a limit (XLNet, DeBERTa-v3).

    A table with a padding row (RoBERTa, MPNet) begins counting behind that row: of its 514 rows 512
    can be used.
    """
    modules = dict(model.base_model.named_modules())
    for name, module in modules.items():
        is_table = name.endswith("position_embeddings")
        if is_table and isinstance(module, nn.Embedding):
            unused = 0
            if module.padding_idx is not None:
                unused = module.padding_idx + 1
            usable = module.num_embeddings - unused
            # Nyströmformer and YOSO have a longer table than positions to look up in it.
            owner, _, _ = name.rpartition(".")
            numbered = getattr(modules[owner], "position_ids", None)
            if numbered is not None:
                usable = min(usable, numbered.shape[-1])
            return usable
    config = model.config
    is_relative = getattr(config, "relative_attention", False)
    if is_relative or config.model_type == "xlnet":
        return None
    positions = getattr(config, "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return None
    return positions


def skeleton(spec: ModelSpec) -> PreTrainedModel:
    """Return the classification model without memory for its weights; errors as in `facts`."""
    return _skeleton(_configuration(spec), spec.name)


def check_complete(spec: ModelSpec) -> None:
    """Raise ModelError for a model whose weights or tokenizer cannot be loaded, where it is local.

    Nothing is fetched for it: a search must not plan trials that cannot begin.
    """
    if spec.source is not ModelSource.HUB:
        check_weights(spec)
        load_tokenizer(spec)


def check_weights(spec: ModelSpec) -> None:
    """Raise ModelError for weights that cannot be read or do not fit, by names and shapes alone.

    Those of pickles are not looked into: they would have to be read as a whole.
    """
    folder = model_folder(spec)
    name = spec.name
    config = _read_configuration(folder, name)
    with _unreadable_weights(folder, name):
        state = stand_ins(model_files.weight_files(folder, name))
    if state is None:
        return
    config.num_labels = 2
    kind: Any = type(_skeleton(config, name))
    report = None
    # What fails with made-up values need not fail with the weights.
    with contextlib.suppress(Exception), quiet(), torch.random.fork_rng(devices=[]):
        model, report = kind.from_pretrained(
            None,
            config=config,
            state_dict=state,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
        )
    if report is not None:
        missing, resized = _not_loaded(report)
        _check_fit(divide(model), missing | resized, config.model_type, name)


def load_classifier(
    spec: ModelSpec, outputs: int, seed: int, *, shared: bool = False
) -> PreTrainedModel:
    """Return the architecture's own classification model in fp32 on the CPU, in evaluation mode.

    outputs: width of the head. What the checkpoint lacks, and in any case
    the task head, is initialised as the architecture does it, from `seed` alone: torch's global
    random state is neither read nor changed. A checkpoint that was fine-tuned before loses its
    head. shared: the process keeps the last checkpoint in memory, and the model's parameters are
    that memory until `own_what_trains`: nothing may be changed in place before. Raises ModelError
    for whatever makes the model unusable.
    """
    pretrained = _pretrained(spec, outputs)
    config = copy.deepcopy(pretrained.config)
    config.num_labels = outputs
    # Transformers puts the given tensors into the model as they are. Buffers are always its own.
    state = {}
    for name, tensor in pretrained.state.items():
        is_parameter = name in pretrained.parameters
        if shared and is_parameter:
            state[name] = tensor
        else:
            state[name] = tensor.clone()
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # a GPU's is not touched
        model: PreTrainedModel = pretrained.kind.from_pretrained(
            None, config=config, state_dict=state, dtype=torch.float32
        )
    model.config.name_or_path = spec.name
    model.eval()
    return model


def own_what_trains(model: PreTrainedModel) -> None:
    """Give every parameter that trains memory of its own, so that a shared checkpoint stays."""
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data = parameter.data.clone()


def load_tokenizer(spec: ModelSpec) -> PreTrainedTokenizerBase:
    """Load the model's own tokenizer. Raises ModelError where none fits the model."""
    folder = model_folder(spec, weights=False)
    model_files.check_tokenizer(folder, spec.name)
    with explained(f"the tokenizer of model '{spec.name}' in {folder} cannot be read"):
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, **LOCAL)
    config = _configuration(spec)
    _check_tokenizer(tokenizer, config, spec.name)
    _without_unknown_types(tokenizer, config)
    return cast(PreTrainedTokenizerBase, tokenizer)


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a tokenizer into a folder that is there. Raises OSError where it cannot be written."""
    try:
        tokenizer.save_pretrained(folder)
    except Exception as error:  # tokenizers has no class of its own for what a disk refuses
        if type(error) is not Exception:
            raise
        raise OSError(str(error)) from error


def _configuration(spec: ModelSpec) -> PretrainedConfig:
    if spec.source is ModelSource.HUB:
        for model in KNOWN_MODELS.values():
            # The paper's four models are known without the hub.
            if model.source is ModelSource.HUB and model.location == spec.location:
                fields = shipped_configuration(model.name)
                return transformers.AutoConfig.for_model(**fields)
    folder = model_folder(spec, weights=False)
    return _read_configuration(folder, spec.name)


def _read_configuration(folder: Path, name: str) -> PretrainedConfig:
    check_fields(folder, name)
    with explained(
        f"the configuration {folder / model_files.CONFIG} of model '{name}' names no architecture "
        f"that transformers {transformers.__version__} knows"
    ):
        config = transformers.AutoConfig.from_pretrained(folder, **LOCAL)
    if config.model_type == "big_bird":
        # Its sparse attention pads rows to whole blocks, and is left for good at the first short
        # batch: what a row gives would depend on the batches before it.
        config.attention_type = "original_full"
    return plain_configuration(config, name)


def plain_configuration(config: Any, name: str) -> PretrainedConfig:
    """Return a foreign file's configuration, with which a model runs and answers as any other.

    Its `attn_implementation` may name a repository that holds a kernel, which transformers would
    download and run. Its switches may have a model return a tuple, or attentions, with which it
    cannot be saved. Raises ModelError for a quantised checkpoint: its loaders run kernels too, and
    it cannot be fine-tuned. Raises it too where the file names other weights than those read here,
    which no fingerprint would know.
    """
    if getattr(config, "quantization_config", None):
        raise ModelError(
            f"the weights of model '{name}' are quantised, and cannot be fine-tuned; give a "
            "checkpoint with full weights"
        )
    named = getattr(config, "transformers_weights", None)
    if named not in (None, *model_files.WEIGHTS):
        raise ModelError(
            f"the configuration of model '{name}' names weights of its own (transformers_weights: "
            f"{quoted(named)}); call that file {model_files.WEIGHTS[0]}, and remove the field from "
            f"{model_files.CONFIG}"
        )
    if named is not None:
        config.transformers_weights = None  # `weight_files` chooses
    # Of the parts of the configuration, too.
    if config._attn_implementation not in ("eager", "sdpa"):
        config._attn_implementation = None
    config._experts_implementation = None
    config.return_dict = True
    config.output_attentions = False
    config.output_hidden_states = False
    return cast(PretrainedConfig, config)


def _skeleton(config: PretrainedConfig, name: str) -> PreTrainedModel:
    """Build the classification model with two outputs and without memory for its weights.

    In fp32, whatever the checkpoint has, as `load_classifier` does.
    """
    check_classifies_texts(config, name)
    config = copy.deepcopy(config)
    config.num_labels = 2
    with (
        torch.device("meta"),
        explained(
            f"transformers {transformers.__version__} cannot build a text classifier from the "
            f"configuration of model '{name}' (architecture '{config.model_type}')"
        ),
    ):
        model = transformers.AutoModelForSequenceClassification.from_config(
            config, dtype=torch.float32
        )
        return cast(PreTrainedModel, model)


@dataclass(frozen=True, slots=True)
class _Pretrained:
    """A checkpoint as it lies in memory: everything but the parts that a seed decides."""

    spec: ModelSpec  # by which it was asked for
    fingerprint: str  # its `weights_fingerprint` when it was loaded
    kind: Any  # the model's class
    config: PretrainedConfig  # its configuration
    state: dict[str, torch.Tensor]  # parameters and buffers, by name
    parameters: frozenset[str]  # which of the state are parameters; the rest are buffers


_last: _Pretrained | None = None


def loaded_checkpoint() -> str:
    """Return the `weights_fingerprint` of the last checkpoint loaded, as it was then."""
    return "" if _last is None else _last.fingerprint


def checkpoint_parameters() -> frozenset[str]:
    """Return the names of its architecture's parameters, which a method may have added to."""
    return frozenset() if _last is None else _last.parameters


def unchanged_checkpoint() -> str:
    """Return the same. Raises OSError where its files are no longer those loaded."""
    with contextlib.suppress(ModelError):  # some are gone
        if _last is not None and model_files.weights_fingerprint(_last.spec) == _last.fingerprint:
            return _last.fingerprint
    raise OSError("the checkpoint's files changed after they were loaded")


def _pretrained(spec: ModelSpec, outputs: int) -> _Pretrained:
    """Return the checkpoint, from memory if this process used it last and it is unchanged."""
    global _last
    fingerprint = model_files.weights_fingerprint(spec)
    if _last is None or _last.fingerprint != fingerprint:
        _last = None  # never two checkpoints in memory
        _last = _read_checkpoint(spec, fingerprint, outputs)
    return _last


def _read_checkpoint(spec: ModelSpec, fingerprint: str, outputs: int) -> _Pretrained:
    folder = model_folder(spec)
    name = spec.name
    config = _read_configuration(folder, name)
    divide(_skeleton(config, name))  # refuse before gigabytes are read
    loaded_config = copy.deepcopy(config)
    loaded_config.num_labels = outputs
    with torch.random.fork_rng(devices=[]), _unreadable_weights(folder, name):
        model, report = transformers.AutoModelForSequenceClassification.from_pretrained(
            folder,
            config=loaded_config,
            dtype=torch.float32,
            weights_only=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **LOCAL,
        )
    missing, resized = _not_loaded(report)
    parts = divide(model)
    _check_fit(parts, missing | resized, model.config.model_type, name)
    drawn = resized | _drawn_from_seed(model, missing)
    state = {key: tensor for key, tensor in model.state_dict().items() if key not in drawn}
    parameters = frozenset(key for key, _ in model.named_parameters())
    return _Pretrained(spec, fingerprint, type(model), config, state, parameters)


def _unreadable_weights(folder: Path, name: str) -> contextlib.AbstractContextManager[None]:
    """Make what damaged weights raise a ModelError, as `explained` does."""
    return explained(
        f"the weights of model '{name}' in {folder} cannot be read, they are damaged or in a "
        "foreign format; fetch or save them again"
    )


def _not_loaded(report: Any) -> tuple[set[str], set[str]]:
    """Return the tensors that a checkpoint lacks, and those that have another shape in it."""
    resized = set()
    for mismatch in report["mismatched_keys"]:
        key = mismatch if isinstance(mismatch, str) else mismatch[0]
        resized.add(key)
    return set(report["missing_keys"]), resized


def _check_fit(parts: ModelParts, absent: set[str], model_type: str, name: str) -> None:
    """Refuse a checkpoint that leaves embeddings or layers random."""
    needed = []
    for key in itertools.chain(parts.embedding, *parts.layers):
        # XLNet's mask_emb is for pretraining alone, and some checkpoints leave it out.
        may_lack = key in parts.fixed or key.endswith("mask_emb")
        if not may_lack:
            needed.append(key)
    lacking = [key for key in needed if key in absent]
    if lacking:
        raise ModelError(
            f"model '{name}': its weights do not fit the architecture '{model_type}': "
            f"{len(lacking)} of {len(needed)} tensors of the encoder are missing or have another "
            f"shape, e.g. {lacking[0]}; give a checkpoint of that architecture"
        )


def _drawn_from_seed(model: PreTrainedModel, missing: set[str]) -> set[str]:
    """Return the names whose values a seed decides: what the checkpoint lacks, and the task head.

    A pretraining head that continues into the classifier (ModernBERT's) is kept, unless there is a
    classifier already: then it was fine-tuned, and everything behind the base model starts anew.
    """
    base = f"{model.base_model_prefix}."
    task_linear = f"{final_linear(model)}."
    behind_base = [key for key in model.state_dict() if not key.startswith(base)]
    for key in behind_base:
        is_in_classifier = key.startswith(task_linear)
        if is_in_classifier and key not in missing:  # it was fine-tuned
            return missing.union(behind_base)
    return missing


def _without_unknown_types(tokenizer: Any, config: PretrainedConfig) -> None:
    """Keep the tokenizer from telling two texts apart where the model has one type of token.

    Some checkpoints of RoBERTa come with BERT's tokenizer, which gives the second text type 1.
    """
    if getattr(config, "type_vocab_size", None) != 1:
        return
    names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
    tokenizer.model_input_names = names


def _check_tokenizer(tokenizer: Any, config: PretrainedConfig, name: str) -> None:
    special_tokens = set(tokenizer.all_special_tokens)
    words = len(tokenizer) - len(special_tokens)
    if words < 1:
        raise ModelError(
            f"the tokenizer of model '{name}' knows no words: its vocabulary is missing or empty"
        )
    if tokenizer.pad_token_id is None:
        raise ModelError(
            f"the tokenizer of model '{name}' has no padding token, so no batch can be made"
        )
    rows = getattr(config, "vocab_size", None)
    if rows is not None and len(tokenizer) > rows:
        raise ModelError(
            f"the tokenizer of model '{name}' has {len(tokenizer)} entries, but the model only "
            f"{rows} embeddings; they do not belong together"
        )


@contextlib.contextmanager
def explained(what: str) -> Iterator[None]:
    """Make what a damaged or foreign file raises a ModelError: what fails, and why. Quietly."""
    try:
        with quiet():
            yield
    except MemoryError:
        raise
    except Exception as error:  # of safetensors, torch or transformers, and of any kind
        words = str(error).lower()
        why = first_line(error)
        if "trust_remote_code" in words:
            why = (
                "it brings Python code of its own, which elsa-tune never runs; choose a model "
                "whose architecture is part of transformers"
            )
        elif "weights_only" in why:  # torch's own words tell how to run the code
            why = "they hold more than tensors, and a checkpoint's code is never run"
        elif any(word in words for word in ("sentencepiece", "protobuf", "tiktoken")):
            why = f"{why}; it needs: pip install sentencepiece protobuf"
        raise ModelError(f"{what}: {why}") from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from reporting at length that heads are new: here they have to be."""
    with contextlib.ExitStack() as stack:
        stack.callback(transformers_logging.set_verbosity, transformers_logging.get_verbosity())
        if transformers_logging.is_progress_bar_enabled():
            stack.callback(transformers_logging.enable_progress_bar)
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        transformers_logging.set_verbosity_error()
        transformers_logging.disable_progress_bar()
        yield
