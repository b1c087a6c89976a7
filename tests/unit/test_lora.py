"""LoRA as it ships: equal to peft on transformers' own model, merged, exported, bundled."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import peft
import pytest
import torch
from peft.tuners.lora import Linear as PeftLinear
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import AutoModelForSequenceClassification

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.candidates import read_candidate, recorded_candidate
from elsa_tune.specs.adapt.lora import Lora
from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.trial import PrefixCache, TrialSpec
from elsa_tune.training import loop, saved
from elsa_tune.training.adapt import methods
from elsa_tune.training.adapt.lora import _adapter_card, linear_layers
from elsa_tune.training.bundle.members import read_members
from elsa_tune.training.bundle.together import load_bundle
from elsa_tune.training.data.batches import pad_batch
from elsa_tune.training.forward import equality
from elsa_tune.training.forward.packed import Attention, Layout
from elsa_tune.training.forward.packed_model import Block, PackedModel
from elsa_tune.training.model.encoder import load_classifier, skeleton
from elsa_tune.training.model.parts import divide
from tests.unit.adapted import by_a_plain_loop, exported, logits_of, trained
from tests.unit.tiny_trials import calm, data_for, make_trial

LAYERS = 4
CPU = torch.device("cpu")
ARCHITECTURES = ("bert", "roberta", "distilbert", "mpnet")
# Modules of the head side, of any of these architectures.
HEADS = ["pooler", "pre_classifier", "classifier"]


def spec_of(folder: Path, architecture: str = "bert") -> ModelSpec:
    return calm(architecture, folder / architecture, LAYERS)


def trial_of(model: ModelSpec, label: str, **changes: Any) -> TrialSpec:
    return dataclasses.replace(make_trial(model, **changes), candidate=read_candidate(label))


def by_peft(trial: TrialSpec, values: dict[str, Tensor]) -> Any:
    """Return what a user of peft would have: transformers' own model, adapted by `get_peft_model`.

    values: of the adapter's matrices, by their names in the model.
    """
    candidate = trial.candidate
    assert isinstance(candidate, Lora)
    model = load_classifier(trial.model, 2, trial.seed)
    first = LAYERS - (candidate.last or LAYERS)
    names = []
    for name, module in model.named_modules():
        layer = re.fullmatch(r".*\.layer\.(\d+)\..*", name)
        if isinstance(module, nn.Linear) and layer and int(layer[1]) >= first:
            names.append(name)
    assert len(names) == 6 * (LAYERS - first)
    config = peft.LoraConfig(
        r=candidate.r,
        lora_alpha=candidate.lora_alpha,
        target_modules=names,
        modules_to_save=HEADS,
    )
    # Peft 0.21 asks transformers for a name that goes in its version 6.
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        adapted = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        for name, parameter in adapted.base_model.model.named_parameters():
            if ".lora_" in name:
                parameter.copy_(values[name])
    return adapted


def as_peft_calls(adapted: Any) -> dict[str, nn.Parameter]:
    """Return what trains in peft's model, by the names without peft's additions."""
    named = {}
    for name, parameter in adapted.base_model.model.named_parameters():
        if parameter.requires_grad:
            named[name.replace(".modules_to_save.default", "")] = parameter
    return named


def drawn(trial: TrialSpec) -> dict[str, Tensor]:
    """Return the values with which a trial's adapter begins."""
    model = load_classifier(trial.model, 2, trial.seed)
    methods.apply(model, trial.candidate, trial.seed)
    return {name: p.detach() for name, p in model.named_parameters() if ".lora_" in name}


@pytest.mark.parametrize("label", ["lora", "lora-last2-r4-a32"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_logits_and_gradients_are_those_of_peft_on_the_padded_model(
    architecture: str, label: str, tmp_path: Path
) -> None:
    # In double precision, and without what is fp32 in fast attention: else it would be rounding
    # that is compared.
    trial = trial_of(spec_of(tmp_path, architecture), label, prefix_cache=PrefixCache.NONE)
    data = data_for(architecture)
    rows = np.arange(12)
    with (
        sdpa_kernel(SDPBackend.MATH),
        contextlib.closing(loop._Run(trial, data, CPU, keep=lambda _: None)) as run,
    ):
        runs = run.runner.model
        assert isinstance(runs, PackedModel)
        runs.double()
        runs.layout = Layout(CPU, Attention.PADDED, torch.float64)
        # The second matrices begin at zero, where the first ones have no gradient.
        generator = torch.Generator().manual_seed(3)
        values = {}
        with torch.no_grad():
            for name, tensor in run.named.items():
                if ".lora_" in name:
                    tensor.copy_(0.2 * torch.randn(tensor.shape, generator=generator))
                    values[name] = tensor.detach().clone()
        adapted = by_peft(trial, values).double()
        run.runner.train(True)
        packed = runs.batch(data.train, rows)
        logits = runs(packed)
        labels = torch.from_numpy(data.train.labels)
        loss = functional.cross_entropy(logits, labels[packed.rows])
        loss.backward()
        gradients = {name: tensor.grad for name, tensor in run.named.items()}
        padded = pad_batch(data.train, rows, data)
        output = adapted(**padded.inputs, labels=labels[rows])
        output.loss.backward()
    assert loss.item() == pytest.approx(output.loss.item(), rel=1e-9)
    difference = logits - output.logits[packed.rows]
    assert difference.abs().max().item() <= 1e-9 * logits.abs().max().item()
    theirs = as_peft_calls(adapted)
    assert set(theirs) == set(gradients)
    for name, parameter in theirs.items():
        gradient = gradients[name]
        assert gradient is not None and parameter.grad is not None
        largest = float(parameter.grad.abs().max())
        assert largest > 0
        assert float((gradient - parameter.grad).abs().max()) <= 1e-9 * largest, name


@pytest.mark.parametrize(
    ("architecture", "label", "prefix"),
    [
        ("bert", "lora", "none"),
        ("bert", "lora-last2", "cached"),
        ("mpnet", "lora-last1", "cached"),
        ("distilbert", "lora-r2", "none"),
    ],
)
def test_it_trains_as_plain_pytorch_with_peft_does(
    architecture: str, label: str, prefix: str, tmp_path: Path
) -> None:
    trial = trial_of(spec_of(tmp_path, architecture), label, epochs=3)
    results = list(loop.train(trial, data_for(architecture), device="cpu"))
    assert (results[-1].batches, results[-1].prefix) == ("packed", prefix)
    assert not results[-1].notes
    adapted = by_peft(trial, drawn(trial))
    count = sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    assert results[-1].trainable_parameters == count
    losses = by_a_plain_loop(trial, adapted, architecture)
    assert [result.train_loss for result in results] == pytest.approx(losses, rel=1e-4)
    assert losses[0] - losses[-1] > 0.01


def test_it_trains_padded_where_packed_tokens_are_not_known(tmp_path: Path) -> None:
    trial = trial_of(spec_of(tmp_path, "modernbert"), "lora-last1")
    *_, last = loop.train(trial, data_for("modernbert"), device="cpu")
    assert (last.batches, last.prefix) == ("padded", "cached")


def test_a_fast_path_without_the_adapter_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Block.run

    def base_alone(module: Any, inputs: Tensor) -> Tensor:
        result: Tensor = module.base_layer(inputs)
        return result

    def run_without(*arguments: Any) -> Any:
        with patch.object(PeftLinear, "forward", base_alone):
            return run(*arguments)

    monkeypatch.setattr(equality, "_doubts", {})
    monkeypatch.setattr(Block, "run", run_without)
    *_, last = loop.train(trial_of(spec_of(tmp_path), "lora"), data_for("bert"), device="cpu")
    assert last.batches == "padded"
    assert any("on packed tokens its logits differ" in note for note in last.notes)


def test_what_it_draws_follows_the_seed_alone(tmp_path: Path) -> None:
    trial = trial_of(spec_of(tmp_path), "lora")
    torch.manual_seed(5)
    once = drawn(trial)
    torch.manual_seed(6)
    state = torch.get_rng_state()
    again = drawn(trial)
    assert torch.equal(torch.get_rng_state(), state)
    other = drawn(dataclasses.replace(trial, seed=2))
    firsts = [name for name in once if ".lora_A." in name]
    assert len(firsts) == 6 * LAYERS
    for name in firsts:
        assert torch.equal(once[name], again[name])
        assert not torch.equal(once[name], other[name])
    assert not any(once[name].any() for name in once if ".lora_B." in name)


@pytest.mark.parametrize("architecture", ["bert", "deberta-v2", "modernbert", "xlnet"])
def test_all_linear_is_every_linear_layer_of_the_layers_and_no_other(
    architecture: str, tmp_path: Path
) -> None:
    model = skeleton(spec_of(tmp_path, architecture))
    *_, last = divide(model).layers
    linear = {name for name, module in model.named_modules() if isinstance(module, nn.Linear)}
    assert {f"{name}.weight" for name in linear_layers(model, Lora(last=1))} == {
        name for name in last if name.removesuffix(".weight") in linear
    }
    own = methods.apply(model, Lora(last=1)).parameters - set(divide(model).head)
    assert all("lora_" in name for name in own)


def test_names_choose_linear_layers_by_their_ends(tmp_path: Path) -> None:
    model = skeleton(spec_of(tmp_path))
    layer = "bert.encoder.layer.3"
    named = Lora(last=1, target_modules=("attention.output.dense", "Query"))
    assert linear_layers(model, named) == [
        f"{layer}.attention.self.query",
        f"{layer}.attention.output.dense",
    ]
    assert len(linear_layers(model, Lora(last=1, target_modules=("dense",)))) == 3


def test_a_trial_leaves_the_checkpoint_in_memory_as_it_was(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    before = {n: p.clone() for n, p in load_classifier(spec, 2, 1).state_dict().items()}
    exported(trial_of(spec, "lora"), tmp_path / "out")
    after = load_classifier(spec, 2, 1).state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_export_is_a_plain_model_with_the_trials_logits(
    architecture: str, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, architecture)
    before = load_classifier(spec, 2, 1).state_dict()
    trial = trial_of(spec, "lora-last3", epochs=3)
    logits = exported(trial, tmp_path / "out", architecture)
    model, report = AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not any(report[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert not list((tmp_path / "out").glob("adapter*"))
    assert np.abs(logits_of(model, architecture) - logits).max() < 1e-5
    after = model.state_dict()
    changed = {name for name in before if not torch.equal(after[name], before[name])}
    head = set(divide(model).head)
    layers = {name for name in changed - head}
    # 6 matrices in each of the last 3 layers, and nothing else of the encoder.
    assert len(layers) == 18 and all(name.endswith(".weight") for name in layers)
    assert not any(".layer.0." in name for name in layers)
    facts = json.loads((tmp_path / "out/config.json").read_text())["elsa_tune"]
    assert recorded_candidate(facts) == trial.candidate


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "modernbert"])
def test_the_adapter_is_what_peft_loads_with_the_trials_logits(
    architecture: str, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, architecture)
    trial = trial_of(spec, "lora-last3-a8", epochs=3)
    logits, kept = trained(trial, architecture)
    saved.save_adapter(tmp_path, trial, data_for(architecture), kept)
    folder = tmp_path / "adapter"
    config = json.loads((folder / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["lora_dropout"]) == (8, 8, 0)
    assert config["base_model_name_or_path"] == str(tmp_path / architecture)
    assert config["modules_to_save"] == sorted(set(config["modules_to_save"]))
    with warnings.catch_warnings(action="ignore"):
        # Its head is drawn anew, and peft's file has the trained one.
        torch.manual_seed(99)
        base = AutoModelForSequenceClassification.from_pretrained(
            config["base_model_name_or_path"], num_labels=2
        )
        model = peft.PeftModel.from_pretrained(base, folder)
        again = peft.AutoPeftModelForSequenceClassification.from_pretrained(folder)
    assert np.abs(logits_of(model, architecture) - logits).max() < 1e-5
    assert np.abs(logits_of(again, architecture) - logits).max() < 1e-5
    values = load_file(folder / "adapter_model.safetensors")
    assert sum(tensor.numel() for tensor in values.values()) == sum(
        tensor.numel() for tensor in kept.values()
    )
    card = (folder / "README.md").read_text()
    assert "LoRA of rank 8 and alpha 8 on the last 3 layers" in card and "revision" not in card
    pinned = _adapter_card(Lora(last=3), "owner/base", "abc123", model.config)
    assert '"owner/base", num_labels=2, ignore_mismatched_sizes=True, revision="abc123"\n' in pinned


def by_its_card(folder: Path) -> Any:
    """Return the model that an adapter's card makes, with the folder's path as it says."""
    card = (folder / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0]
    assert '"."' in code
    names: dict[str, Any] = {}
    with warnings.catch_warnings(action="ignore"):
        exec(code.replace('"."', repr(str(folder))), names)
    return names["model"]


def test_the_card_loads_an_adapter_for_a_base_with_a_head_of_another_size(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    load_classifier(spec, 3, seed=1).save_pretrained(spec.location)
    trial = trial_of(spec, "lora")
    logits, kept = trained(trial)
    saved.save_adapter(tmp_path, trial, data_for("bert"), kept)
    model = by_its_card(tmp_path / "adapter")
    assert np.abs(logits_of(model, "bert") - logits).max() < 1e-5


def test_the_card_loads_bigbird_with_the_attention_it_was_trained_with(tmp_path: Path) -> None:
    trial = trial_of(spec_of(tmp_path, "big_bird"), "lora")
    saved.save_adapter(tmp_path, trial, data_for("big_bird"), {})
    model = by_its_card(tmp_path / "adapter")
    assert model.config.attention_type == "original_full"


def test_a_way_without_an_adapter_is_named(tmp_path: Path) -> None:
    trial = trial_of(spec_of(tmp_path), "bitfit")
    with pytest.raises(SpaceError, match="'bitfit' has no adapter, as lora has"):
        saved.save_adapter(tmp_path, trial, data_for("bert"), {})


def test_an_adapter_that_found_no_room_leaves_no_half_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(model: Any, folder: Path, **options: Any) -> None:
        (folder / "adapter_model.safetensors").write_bytes(b"half")
        raise OSError("No space left on device")

    monkeypatch.setattr(peft.PeftModel, "save_pretrained", full)
    trial = trial_of(spec_of(tmp_path), "lora")
    with pytest.raises(OSError, match="No space"):
        saved.save_adapter(tmp_path, trial, data_for("bert"), {})
    assert not (tmp_path / "adapter").exists()


def test_models_with_lora_on_the_last_layers_share_their_trunk_in_a_bundle(tmp_path: Path) -> None:
    from elsa_tune.exporting.bundle import bundle

    spec = spec_of(tmp_path)
    exported(trial_of(spec, "lora-last2"), tmp_path / "two")
    exported(trial_of(spec, "lora-last1-r4", seed=2), tmp_path / "one")
    exported(make_trial(spec, 3), tmp_path / "frozen")
    [member] = read_members(tmp_path / "two").values()
    assert member.trainable.first_trained_layer == 2 and member.has_prefix
    folder = bundle([tmp_path / name for name in ("two", "one", "frozen")], tmp_path / "all")
    about = json.loads((folder / "bundle.json").read_text())
    assert about["runs"] == "packed"
    assert max(about["largest_difference"].values()) < 1e-5
    runs = load_bundle(folder)
    assert runs._begins == {"two": 2, "one": 3, "frozen": 3}
    cost = about["measured"]["cost"]
    assert cost["bundled"]["megabytes"] < 0.7 * cost["alone"]["megabytes"]


@pytest.mark.parametrize(
    ("architecture", "label", "sentence"),
    [
        ("bert", "lora-foo", "linear layers 'foo', of which the architecture 'bert' has none"),
        ("mpnet", "lora-query", "it has: dense, k, o, q, v"),
        (
            "bert",
            "lora-last5",
            "the last 5 layers, but the model has 4; write a number from 1 to 3",
        ),
        ("bert", "lora-last4-r2", "on all 4 layers of the model, which is called 'lora-r2'"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_without_weights(
    architecture: str, label: str, sentence: str, tmp_path: Path
) -> None:
    spec = spec_of(tmp_path, architecture)
    with pytest.raises(SpaceError, match=re.escape(sentence)):
        methods.check([read_candidate(label)], lambda: skeleton(spec))


def test_without_peft_one_sentence_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = spec_of(tmp_path)
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(SpaceError) as refused:
        methods.check([read_candidate("lora")], lambda: skeleton(spec))
    assert str(refused.value) == (
        "'lora' needs the library peft, which is not installed: pip install 'elsa-tune[lora]'"
    )
    methods.check([read_candidate("bitfit"), read_candidate("2")], lambda: skeleton(spec))


LABELS = """
lora lora-r16 lora-a32 lora-last3 lora-last3-r16-a32 lora-query+value lora-last1-r4-output.dense
"""


@pytest.mark.parametrize("label", LABELS.split())
def test_label_key_and_record_give_it_back(label: str) -> None:
    candidate = read_candidate(label.upper())
    assert candidate.label == label and isinstance(candidate, Lora)
    assert re.fullmatch(r"[A-Za-z0-9_-]+", candidate.key)
    # MLflow has texts, and tables may write whole numbers so.
    texts = {name: str(value) for name, value in candidate.record().items()}
    tabled = {name: f"{v}.0" if isinstance(v, int) else v for name, v in candidate.record().items()}
    for values in (candidate.record(), texts, tabled):
        assert recorded_candidate(values) == candidate


@pytest.mark.parametrize(
    ("label", "sentence"),
    [
        ("lora-", "'lora-' is no label of LoRA"),
        ("lora-r4-r5", "'lora-r4-r5' is no label of LoRA"),
        ("lora-r0", "r, LoRA's rank, is 0; it must be a whole number, 1..65536"),
        ("lora-last0", "it must be a whole number"),
        ("lora-query+", "is no label of LoRA"),
        ("lorax", "frozen_layers is 'lorax'; it must be a whole number or 'embeddings', "),
    ],
)
def test_a_wrong_label_is_refused(label: str, sentence: str) -> None:
    with pytest.raises(SpaceError, match=re.escape(sentence)):
        read_candidate(label)


def test_fields_of_python_are_checked_and_written_one_way() -> None:
    assert Lora(target_modules=["Value", "query", "value"]) == read_candidate("lora-query+value")  # type: ignore[arg-type]
    assert Lora(target_modules="query").label == "lora-query"
    for wrong in ({"r": 0}, {"r": 2.5}, {"lora_alpha": True}, {"last": -1}):
        with pytest.raises(SpaceError, match="must be a whole number"):
            Lora(**wrong)  # type: ignore[arg-type]
    for names in ((), ("a b",), ("r8",)):
        with pytest.raises(SpaceError, match="target_modules"):
            Lora(target_modules=names)


def test_sentences_name_what_is_not_as_usual() -> None:
    described = {
        "lora": "LoRA of rank 8 on all layers",
        "lora-last3": "LoRA of rank 8 on the last 3 layers",
        "lora-last1-r4-a8": "LoRA of rank 4 and alpha 8 on the last layer",
        "lora-query+value": "LoRA of rank 8 on query and value of all layers",
    }
    for label, text in described.items():
        candidate = read_candidate(label)
        assert candidate.describe(12) == text
        assert candidate.doing(12) == f"training {text}"
        assert not candidate.is_plural(12)


def test_it_has_no_place_among_depths() -> None:
    candidates = [read_candidate(label) for label in ("lora", "lora-last3", "lora-last1", "12")]
    lora, three, one, depth = candidates
    assert not lora.is_ranked and depth.is_ranked
    assert sorted(candidates) == [depth, lora, three, one]
    assert all(each.fine_tuned_layers(12) is None for each in (lora, three, one))
    costs = [each.relative_cost(12, keeps_prefix=True) for each in (lora, three, one)]
    assert costs == sorted(costs, reverse=True) and costs[0] <= 1
