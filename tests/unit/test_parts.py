"""Which parameter belongs where, on every architecture: by name, by gradient, by a real step."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import (
    CONFIG_MAPPING,
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
)
from transformers.modeling_outputs import SequenceClassifierOutput

from elsa_tune.errors import ModelError, SpaceError
from elsa_tune.specs.adapt.freeze import FULL_MODEL, FreezeDepth
from elsa_tune.training.adapt.methods import apply
from elsa_tune.training.adapt.trainable import frozen_modules
from elsa_tune.training.model.parts import divide, final_linear, layer_list
from tests.unit.tiny_models import ARCHITECTURES, make_tiny

LAYERS = 4
DEPTHS = ("0", "embeddings", "1", "2", "4")
FIRST = ["the film was great fun", "no", "return the name of a file", "bad plot"]
SECOND = ["a dull story", "it is the very best of them all", "number", "never"]

# Parameters that take part in no classification: XLNet's mask embedding serves pretraining only.
UNUSED = {"xlnet": {"transformer.mask_emb"}}

EUROBERT_TOKENS = ("pad_token_id", "bos_token_id", "eos_token_id", "mask_token_id")

# More of transformers' encoders, none of them named in `parts`: found by their shape alone.
OTHERS: dict[str, dict[str, Any]] = {
    "ernie": {},
    "rembert": {"input_embedding_size": 16, "output_embedding_size": 16},
    "megatron-bert": {},
    "roformer": {"embedding_size": 16},
    "xlm-roberta-xl": {"pad_token_id": 1},
    "eurobert": {"num_key_value_heads": 4, "head_dim": 8, **dict.fromkeys(EUROBERT_TOKENS, 0)},
    "nomic_bert": {"num_key_value_heads": 4, "head_dim": 8},
    "convbert": {"head_ratio": 2, "embedding_size": 16},
    "deberta": {"relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny(request.param, tmp_path_factory.mktemp("tiny") / request.param, LAYERS)


@functools.lru_cache(maxsize=1)
def loaded(folder: Path) -> PreTrainedModel:
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_pretrained(folder)


def load(folder: Path) -> PreTrainedModel:
    return copy.deepcopy(loaded(folder))


tokenizer_of = functools.lru_cache(maxsize=1)(AutoTokenizer.from_pretrained)


def batch_of(folder: Path, first: list[str], second: list[str] | None = None) -> dict[str, Any]:
    return dict(tokenizer_of(folder)(first, second, padding=True, return_tensors="pt"))


def build(architecture: str, **fields: Any) -> PreTrainedModel:
    shape = {
        "vocab_size": 50,
        "hidden_size": 32,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "max_position_embeddings": 40,
        "initializer_range": 0.2,
    }
    config = AutoConfig.for_model(architecture, **{**shape, **fields})
    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_config(config)


def random_batch() -> dict[str, torch.Tensor]:
    ids = torch.randint(5, 50, (3, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    mask[1, 7:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def tensors(values: Any) -> Iterator[torch.Tensor]:
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, dict):
        for value in values.values():
            yield from tensors(value)
    elif isinstance(values, tuple | list):
        for value in values:
            yield from tensors(value)


def detached(output: Any) -> Any:
    if isinstance(output, torch.Tensor):
        return output.detach()
    if isinstance(output, tuple):
        return tuple(detached(value) for value in output)
    return output


def check_flow(model: PreTrainedModel, batch: dict[str, torch.Tensor]) -> None:
    """Check that the division agrees with what the model computes, seen from its gradients."""
    parts = divide(model)
    everything = [name for name, _ in model.named_parameters()]
    divided = [*parts.embedding, *(name for layer in parts.layers for name in layer), *parts.head]
    assert sorted(divided) == sorted(everything)
    assert all(parts.layers)
    stack = layer_list(model)
    assert len(parts.layers) == len(stack) == LAYERS

    # Cut behind the last layer: only the head side still learns.
    apply(model, FULL_MODEL)
    cut = stack[-1].register_forward_hook(lambda _m, _i, output: detached(output))
    model.zero_grad()
    model(**batch).logits.square().sum().backward()
    cut.remove()
    learnt = {name for name, p in model.named_parameters() if p.grad is not None}
    assert learnt == set(parts.head)

    # Frozen to N: nothing that enters layer N, hidden states or shared tables, carries a gradient.
    for label in ("embeddings", "1", "3"):
        depth = FreezeDepth.of(label)
        apply(model, depth)
        seen: list[torch.Tensor] = []
        look = stack[depth.frozen_layers].register_forward_pre_hook(
            lambda _m, args, kwargs, seen=seen: seen.extend(tensors((args, kwargs))),
            with_kwargs=True,
        )
        model(**batch)
        look.remove()
        assert seen
        assert not any(tensor.requires_grad for tensor in seen)


def test_parts_agree_with_the_flow_of_gradients(folder: Path) -> None:
    model = load(folder)
    batch = batch_of(folder, FIRST, SECOND)
    check_flow(model, batch)


@pytest.mark.parametrize("architecture", OTHERS)
def test_other_encoders_are_found_by_their_shape(architecture: str) -> None:
    if architecture not in CONFIG_MAPPING:
        pytest.skip(f"this version of transformers has no {architecture}")
    check_flow(build(architecture, **OTHERS[architecture]), random_batch())


@pytest.mark.parametrize(("label", "before"), [*((depth, "3") for depth in DEPTHS), ("4", "0")])
def test_one_step_changes_exactly_the_trained_names(folder: Path, label: str, before: str) -> None:
    depth = FreezeDepth.of(label)
    model = load(folder)
    batch = batch_of(folder, FIRST, SECOND)
    assert (batch["attention_mask"] == 0).any()
    labels = torch.tensor([0, 1, 1, 0])
    # Another depth first, with its gradients: nothing of it may be left.
    apply(model, FreezeDepth.of(before))
    model(**batch, labels=labels).loss.backward()

    apply(model, depth)
    trained = tuple(name for name, p in model.named_parameters() if p.requires_grad)
    model.zero_grad()
    start = {name: p.detach().clone() for name, p in model.named_parameters()}
    model.train()
    # What the loop does: every parameter that asks for a gradient goes to the optimiser.
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    model(**batch, labels=labels).loss.backward()
    optimizer.step()

    parts = divide(model)
    unused = UNUSED.get(folder.name, set())
    expected = set(parts.head)
    for layer in parts.layers[depth.frozen_layers :]:
        expected.update(layer)
    if depth.is_reference:
        expected.update(parts.embedding)
    assert set(trained) == expected
    assert {n for n, p in model.named_parameters() if p.requires_grad} == expected
    assert {n for n, p in model.named_parameters() if p.grad is not None} == expected - unused
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, start[n])}
    assert changed == expected - unused


def test_padding_changes_no_logits(folder: Path) -> None:
    model = load(folder).eval()
    with torch.no_grad():
        for first, second in ((FIRST, None), (FIRST, SECOND)):
            padded = model(**batch_of(folder, first, second)).logits
            for row, text in enumerate(first):
                alone = [second[row]] if second else None
                single = model(**batch_of(folder, [text], alone)).logits
                assert torch.allclose(padded[row], single[0], atol=1e-5)
        # Strong enough to see a difference: the rows are not all alike.
        assert (padded[0] - padded[1]).abs().max() > 1e-2


@pytest.mark.parametrize("label", ["embeddings", "2", "4"])
def test_prefix_without_dropout_gives_the_same_states_every_time(folder: Path, label: str) -> None:
    depth = FreezeDepth.of(label)
    model = load(folder).train()
    batch = batch_of(folder, FIRST, SECOND)
    prefix = frozen_modules(model, apply(model, depth))
    for module in prefix:
        module.eval()
    stack = layer_list(model)
    states: list[torch.Tensor] = []

    def keep(_module: nn.Module, args: Any, kwargs: Any) -> None:
        states.append(next(tensors((args, kwargs))).detach().clone())

    def keep_output(_module: nn.Module, _args: Any, output: Any) -> None:
        states.append(next(tensors(output)).detach().clone())

    if depth.frozen_layers == LAYERS:
        stack[-1].register_forward_hook(keep_output)
    else:
        stack[depth.frozen_layers].register_forward_pre_hook(keep, with_kwargs=True)
    for seed in (1, 2):
        torch.manual_seed(seed)
        model(**batch)
    # XLNet has one dropout for its embeddings and its output: it stays on, as the docstring says.
    assert torch.equal(states[0], states[1]) is (folder.name != "xlnet")

    inside = {id(module) for outer in prefix for module in outer.modules()}
    dropouts = [m for m in model.modules() if isinstance(m, nn.Dropout)]
    assert all(m.training is (id(m) not in inside) for m in dropouts)
    assert all(layer.training for layer in stack[depth.frozen_layers :])
    assert any(m.training for m in dropouts) or depth.frozen_layers == LAYERS


def test_the_full_model_has_no_prefix(folder: Path) -> None:
    model = load(folder)
    assert frozen_modules(model, apply(model, FULL_MODEL)) == []


def test_sides_of_each_architecture(folder: Path) -> None:
    parts = divide(load(folder))
    holders = {name.rsplit(".", 1)[0].split(".", 1)[-1] for name in parts.embedding}
    heads = {name.rsplit(".", 1)[0] for name in parts.head}
    expected = {
        "electra": ("embeddings_project", "classifier.dense"),
        "mpnet": ("encoder.relative_attention_bias", "classifier.dense"),
        "deberta-v2": ("encoder.rel_embeddings", "pooler.dense"),
        "xlnet": ("word_embedding", "sequence_summary.summary"),
        "modernbert": ("embeddings.norm", "model.final_norm"),
        "bert": ("embeddings.LayerNorm", "bert.pooler.dense"),
        "distilbert": ("embeddings.LayerNorm", "pre_classifier"),
    }
    embedding, head = expected.get(folder.name, ("embeddings.LayerNorm", "classifier.dense"))
    assert embedding in holders
    assert head in heads
    if folder.name == "deberta-v2":
        assert "encoder.LayerNorm" in holders


def test_deberta_convolution_belongs_to_layer_0(tmp_path: Path) -> None:
    model = load(make_tiny("deberta-v2", tmp_path / "conv", LAYERS, conv_kernel_size=3))
    check_flow(model, batch_of(tmp_path / "conv", FIRST, SECOND))
    conv = model.deberta.encoder.conv
    trainable = apply(model, FreezeDepth.of("embeddings"))
    assert all(p.requires_grad for p in conv.parameters())
    assert not any(conv is m for m in frozen_modules(model, trainable))
    trainable = apply(model, FreezeDepth.of(1))
    assert not any(p.requires_grad for p in conv.parameters())
    assert any(conv is m for m in frozen_modules(model, trainable))


def test_constant_positions_never_train() -> None:
    model = build("roformer", embedding_size=16)
    constant = "roformer.encoder.embed_positions.weight"
    assert divide(model).fixed == {constant}
    apply(model, FULL_MODEL)
    assert not model.get_parameter(constant).requires_grad
    assert not model.get_parameter(constant).requires_grad


def test_division_works_without_memory() -> None:
    with torch.device("meta"):
        model = build("bert")
    assert [len(layer) for layer in divide(model).layers] == [16] * LAYERS


def test_depth_above_the_last_layer_is_refused() -> None:
    model = build("bert")
    before = [p.requires_grad for p in model.parameters()]
    with pytest.raises(SpaceError, match=r"frozen_layers is 5, but the model has 4 layers"):
        apply(model, FreezeDepth.of(5))
    assert [p.requires_grad for p in model.parameters()] == before


@pytest.mark.parametrize(
    ("architecture", "fields", "message"),
    [
        (
            "albert",
            {"embedding_size": 16},
            "'albert' shares one set of weights among all its layers",
        ),
        ("gpt2", {"n_embd": 32, "n_layer": 2, "n_head": 4}, "'gpt2' is a decoder"),
        ("llama", {"num_key_value_heads": 4}, "'llama' is a decoder"),
        ("bloom", {"n_head": 4}, "'bloom' is a decoder"),
        ("bert", {"is_decoder": True}, "'bert' is a decoder"),
        ("bart", {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2}, "an encoder-decoder"),
        ("flaubert", {"emb_dim": 32, "n_layers": 2, "n_heads": 4}, "no encoder stack that can be"),
    ],
)
def test_models_that_cannot_be_frozen_are_refused(
    architecture: str, fields: dict[str, Any], message: str
) -> None:
    with torch.device("meta"):
        model = build(architecture, **fields)
    with pytest.raises(ModelError, match=message) as refusal:
        divide(model)
    assert "give an encoder such as BERT" in str(refusal.value)


def test_xlnet_that_reads_one_way_is_a_decoder() -> None:
    config = AutoConfig.for_model(
        "xlnet", vocab_size=50, d_model=32, n_layer=2, n_head=4, d_inner=64, attn_type="uni"
    )
    with torch.device("meta"):
        model = AutoModelForSequenceClassification.from_config(config)
    with pytest.raises(ModelError, match="'xlnet' is a decoder"):
        divide(model)


class HomemadeConfig(PretrainedConfig):
    model_type = "homemade"
    num_hidden_layers = 3
    shared = False
    mystery = False


class HomemadeEncoder(PreTrainedModel):
    config_class = HomemadeConfig

    def __init__(self, config: HomemadeConfig) -> None:
        super().__init__(config)
        self.pieces = nn.Embedding(20, 8)
        layer = nn.Linear(8, 8)
        self.blocks = nn.ModuleList(
            layer if config.shared else nn.Linear(8, 8) for _ in range(config.num_hidden_layers)
        )
        self.closing_norm = nn.LayerNorm(8)
        if config.mystery:
            self.gate = nn.Linear(8, 8)


class Homemade(PreTrainedModel):
    config_class = HomemadeConfig
    base_model_prefix = "body"

    def __init__(self, config: HomemadeConfig) -> None:
        super().__init__(config)
        self.body = HomemadeEncoder(config)
        self.scorer = nn.Linear(8, config.num_labels)

    def forward(self, input_ids: torch.Tensor, **_: Any) -> SequenceClassifierOutput:
        states = self.body.pieces(input_ids)
        for block in self.body.blocks:
            states = block(states)
        return SequenceClassifierOutput(logits=self.scorer(self.body.closing_norm(states[:, 0])))


def test_an_unknown_architecture_is_divided_by_its_shape() -> None:
    parts = divide(Homemade(HomemadeConfig()))
    assert parts.embedding == ("body.pieces.weight",)
    assert parts.layers[2] == ("body.blocks.2.weight", "body.blocks.2.bias")
    assert {name.split(".")[-2] for name in parts.head} == {"closing_norm", "scorer"}


def test_what_cannot_be_placed_is_refused_not_guessed() -> None:
    with pytest.raises(ModelError, match=r"a parameter 'body\.gate\.weight' that is neither"):
        divide(Homemade(HomemadeConfig(mystery=True)))


def test_layers_that_share_weights_are_refused() -> None:
    with pytest.raises(ModelError, match="shares weights among its layers"):
        divide(Homemade(HomemadeConfig(shared=True)))


def test_final_linear_is_the_task_heads_own(folder: Path) -> None:
    model = load(folder)
    assert model.get_submodule(final_linear(model)).out_features == model.config.num_labels
