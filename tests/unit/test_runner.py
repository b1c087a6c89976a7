"""What runs fast computes the same.

Packed tokens, hidden states from a cache, the last layer for first tokens only and a compact word
table, against the complete model on padded batches.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from elsa_tune.errors import ModelError
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.specs.trial import EvaluationResult, Pooling, Precision, PrefixCache, TrialSpec
from elsa_tune.training import loop
from elsa_tune.training.data.batches import PaddedBatch
from elsa_tune.training.data.tokens import TaskData, TokenRows
from elsa_tune.training.forward import equality, prefix_store, runner
from elsa_tune.training.forward.attention import Heads, attend
from elsa_tune.training.forward.packed import Attention, Layout, pack
from elsa_tune.training.forward.packed_model import PackedModel
from elsa_tune.training.forward.padded_model import PaddedModel
from elsa_tune.training.loop import train
from elsa_tune.training.model.encoder import load_classifier, load_tokenizer
from tests.unit.tiny_models import ARCHITECTURES, make_tiny
from tests.unit.tiny_trials import calm, data_for, make_data, make_trial, tiny_bert

# Those whose layers and heads the packed model knows; the rest must say that they fall back.
PACKED = {"bert", "electra", "distilbert", "roberta", "camembert", "xlm-roberta", "mpnet"}
# Of the rest, those whose layers can go on from kept hidden states.
PADDED_BEHIND_A_CACHE = {"deberta-v2", "modernbert"}
LAYERS = 3


def thorough(*cases: tuple[Any, ...]) -> list[Any]:
    """Return cases of `parametrize` that are thorough tests."""
    return [pytest.param(*case, marks=pytest.mark.thorough) for case in cases]


def plainly(
    trial: TrialSpec, data: TaskData, monkeypatch: pytest.MonkeyPatch
) -> list[EvaluationResult]:
    """Return the whole model on whole padded batches."""
    with monkeypatch.context() as patch:
        patch.setattr(runner, "packed_doubt", lambda *_: "this test wants the plain way")
        patch.setattr(runner.Runner, "parts", lambda self, split, batch, largest: [batch])
        results = list(train(trial, data, device="cpu"))
    assert results[-1].batches == "padded" and "plain way" in " ".join(results[-1].notes)
    return results


def agree(fast: list[EvaluationResult], plain: list[EvaluationResult]) -> None:
    assert fast[-1].steps >= 20
    for a, b in zip(fast, plain, strict=True):
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-5)
        assert a.eval_loss == pytest.approx(b.eval_loss, rel=1e-5)
    assert fast[-1].predictions == plain[-1].predictions


@pytest.mark.parametrize(
    ("architecture", "frozen"),
    [
        *(("roberta", 0), ("mpnet", 2), ("bert", 2)),
        *thorough(("mpnet", 0), ("roberta", 2), ("camembert", 2), ("xlm-roberta", 2)),
    ],
)
def test_padding_that_a_text_names_is_run_alike(
    architecture: str, frozen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RoBERTa gives it no position of its own, wherever it stands."""
    model = calm(architecture, tmp_path / "model", LAYERS)
    data = data_for(architecture, train=160)
    for rows in data.splits().values():
        named = np.arange(len(rows.input_ids)) % 7 == 3
        named[rows.offsets[:-1]] = False  # the first token is the tokenizer's own
        rows.input_ids[named] = data.pad_token_id
    trial = make_trial(model, frozen, learning_rate=1e-4)
    fast = list(train(trial, data, device="cpu"))
    assert fast[-1].batches == "packed"
    agree(fast, plainly(trial, data, monkeypatch))


@pytest.mark.parametrize("architecture", ["roberta", "mpnet"])
def test_padding_in_a_text_is_attended_as_the_tokenizer_says(
    architecture: str, tmp_path: Path
) -> None:
    spec = calm(architecture, tmp_path / "model", LAYERS)
    texts = ["good <pad> film", "<pad> a great story <pad> <pad> best", "a dull film"]
    tokenizer = load_tokenizer(spec)
    tokenised = tokenizer(texts)
    lengths = [len(ids) for ids in tokenised["input_ids"]]
    rows = TokenRows(
        input_ids=np.concatenate(tokenised["input_ids"]).astype(np.int32),
        offsets=np.cumsum([0, *lengths]),
        token_type_ids=None,
        labels=np.zeros(len(texts), dtype=np.int64),
    )
    assert (rows.input_ids == tokenizer.pad_token_id).sum() == 4
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    assert inputs["attention_mask"].sum(1).tolist() == lengths
    with torch.no_grad():
        expected = load_classifier(spec, 2, seed=1).eval()(**inputs).logits
        packed = PackedModel(load_classifier(spec, 2, seed=1), 0).eval()
        batch = packed.batch(rows, np.arange(len(texts)))
        logits = packed(batch)
    assert torch.allclose(logits, expected[batch.rows], atol=1e-6)


# A quick test of each architecture; of bert, one at every depth. The others are thorough.
QUICK = {
    *(("bert", 0), ("bert", "embeddings"), ("bert", 2), ("bert", LAYERS), ("deberta-v2", 2)),
    *(("xlnet", 2), ("electra", 2), ("roberta", 2), ("modernbert", 2), ("distilbert", LAYERS)),
    *(("mpnet", 0), ("camembert", 2), ("xlm-roberta", 2)),
}
# Each architecture's embeddings, layers and head with nothing frozen and behind a prefix; of a way
# to run (packed, padded behind a cache, padded) one architecture at every depth.
DEPTHS: dict[str, tuple[int | str, ...]] = {
    **dict.fromkeys(("bert", "deberta-v2", "xlnet"), (0, "embeddings", 2, LAYERS)),
    **dict.fromkeys(("electra", "roberta", "modernbert"), (0, 2)),
    **dict.fromkeys(("distilbert", "mpnet"), (0, LAYERS)),
    # Their embeddings and heads are RoBERTa's.
    **dict.fromkeys(("camembert", "xlm-roberta"), (2,)),
}


@pytest.mark.parametrize(
    ("architecture", "frozen"),
    [
        *(("bert", 0), ("bert", LAYERS), ("roberta", 2), ("deberta-v2", 2)),
        *thorough(("bert", 2), ("mpnet", LAYERS), ("distilbert", 0), ("electra", 2)),
        *thorough(("deberta-v2", 0)),
    ],
)
def test_the_mean_is_pooled_alike_on_packed_and_on_padded_batches(
    architecture: str, frozen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = calm(architecture, tmp_path / "model", LAYERS)
    fields: dict[str, Any] = {"epochs": 2, "learning_rate": 1e-4}
    trial = make_trial(model, frozen, pooling=Pooling.MEAN, **fields)
    data = data_for(architecture, train=160)
    fast = list(train(trial, data, device="cpu"))
    plain = plainly(trial, data, monkeypatch)
    agree(fast, plain)
    assert fast[-1].batches == ("packed" if architecture in PACKED else "padded")
    assert fast[-1].prefix == ("cached" if frozen else "none")
    by_head = list(train(make_trial(model, frozen, **fields), data, device="cpu"))
    assert by_head[-1].eval_loss != pytest.approx(fast[-1].eval_loss, rel=1e-3)


def test_the_mean_is_that_of_the_tokens_without_padding(tmp_path: Path) -> None:
    from elsa_tune.training.model.encoder import load_classifier
    from elsa_tune.training.model.pooling import pool

    spec = calm("bert", tmp_path / "model")
    head, mean = (load_classifier(spec, 2, seed=1) for _ in range(2))
    pool(mean, Pooling.MEAN)
    ids = torch.tensor([[2, 20, 21, 22, 3], [2, 30, 3, 0, 0], [2, 0, 0, 0, 0]])
    mask = (ids > 0).long()
    with torch.no_grad():
        last = head.bert(ids, attention_mask=mask).last_hidden_state
        means = torch.stack([last[0].mean(0), last[1, :3].mean(0), last[2, 0]])
        expected = head.classifier(head.bert.pooler(means[:, None]))
        found = mean(ids, attention_mask=mask).logits
        first = head(ids, attention_mask=mask).logits
    assert torch.allclose(found, expected, atol=1e-6)
    # One token is its own mean.
    assert torch.allclose(found[2], first[2], atol=1e-6)
    assert not torch.allclose(found[1], first[1], atol=1e-2)


@pytest.mark.parametrize("architecture", ["xlnet", "modernbert"])
def test_a_head_that_cannot_be_given_the_mean_is_refused(architecture: str, tmp_path: Path) -> None:
    trial = make_trial(calm(architecture, tmp_path / "model"), pooling=Pooling.MEAN)
    with pytest.raises(ModelError, match=f"architecture '{architecture}'.*leave pooling out"):
        next(train(trial, data_for(architecture), device="cpu"))


def test_every_architecture_is_compared() -> None:
    assert set(DEPTHS) == set(ARCHITECTURES) == {architecture for architecture, _ in QUICK}


@pytest.mark.parametrize(
    ("architecture", "frozen"),
    [
        pair if pair in QUICK else thorough(pair)[0]
        for architecture, depths in DEPTHS.items()
        for pair in [(architecture, depth) for depth in depths]
    ],
)
def test_fast_equals_plain(
    architecture: str, frozen: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(
        calm(architecture, tmp_path / "model", LAYERS),
        frozen,
        epochs=2,
        learning_rate=1e-4,
        frozen_dropout=False,
    )
    data = data_for(architecture, train=160)
    fast = list(train(trial, data, device="cpu"))
    agree(fast, plainly(trial, data, monkeypatch))
    deep = frozen not in (0, "embeddings")
    if architecture in PACKED:
        assert fast[-1].batches == "packed" and fast[-1].notes == ()
        assert fast[-1].prefix == ("cached" if deep else "none")
    else:
        # It passes by falling back, and says so.
        assert fast[-1].batches == "padded" and "padded batches" in fast[-1].notes[0]
        prefix = "cached" if architecture in PADDED_BEHIND_A_CACHE else "recomputed"
        assert fast[-1].prefix == (prefix if deep else "none")
        assert any("prefix is computed" in note for note in fast[-1].notes) == (
            fast[-1].prefix == "recomputed"
        )


@pytest.mark.parametrize("frozen", [0, 2])
def test_short_and_long_rows_of_bigbird_attend_alike(
    frozen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(calm("big_bird", tmp_path / "model"), frozen, epochs=2, learning_rate=1e-4)
    data = data_for("big_bird", train=160)
    # The longest would be padded to whole blocks, and all together pass the positions.
    assert data.train.longest > 28 and len(data.train.input_ids) > 128
    fast = list(train(trial, data, device="cpu"))
    agree(fast, plainly(trial, data, monkeypatch))
    assert fast[-1].batches == "packed" and fast[-1].notes == ()


def test_layers_that_read_other_tokens_than_the_rows_have_keep_no_prefix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(calm("bert", tmp_path / "model"), 2, frozen_dropout=False)
    data = data_for("bert")
    plain = list(train(trial, data, device="cpu"))
    whole = PaddedModel._hidden

    def padded_further(self: PaddedModel, batch: PaddedBatch, wanted: Any) -> Any:
        """As BigBird's sparse attention has it, which the test of equality on short rows misses."""
        states = whole(self, batch, wanted)
        if batch.mask.shape[1] > 24:
            for n, hidden in states.items():
                states[n] = torch.cat([hidden, hidden[:, :1]], dim=1)
        return states

    monkeypatch.setattr(runner, "packed_doubt", lambda *_: "this test wants the plain way")
    monkeypatch.setattr(PaddedModel, "_hidden", padded_further)
    results = list(train(trial, data, device="cpu"))
    assert results[-1].prefix == "recomputed"
    said = "its layers read 16 x 37 tokens where the batch has 16 x 36"
    assert any(note.endswith(said) for note in results[-1].notes), results[-1].notes
    assert results[-1].eval_loss == pytest.approx(plain[-1].eval_loss, rel=1e-5)


@pytest.mark.parametrize("frozen", [2, LAYERS])
def test_a_second_trial_reads_what_the_first_one_kept(frozen: int, tmp_path: Path) -> None:
    trial = make_trial(tiny_bert(tmp_path / "model", LAYERS), frozen, frozen_dropout=False)
    data = data_for("bert")
    others = tuple(map(FreezeDepth.of, (1, 2, LAYERS)))
    first = list(train(trial, data, device="cpu", candidates=others))
    again = list(train(trial, data, device="cpu"))
    # To the bit, dropout included: building draws nothing that the trial would have drawn.
    assert [(r.train_loss, r.eval_loss) for r in first] == [
        (r.train_loss, r.eval_loss) for r in again
    ]
    kept = list((tmp_path / "cache" / "prefix").glob("*[!k]"))  # without the lock
    assert len(kept) == 3, "one pass keeps every depth that was asked for"


def test_no_prefix_layer_runs_in_a_cached_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(calm("bert", tmp_path / "model"), 2, frozen_dropout=False)
    data = data_for("bert")
    list(train(trial, data, device="cpu"))
    made: list[PackedModel] = []
    runs: Counter[int] = Counter()
    whole = PackedModel.__init__

    def spy(self: PackedModel, *args: Any, **given: Any) -> None:
        whole(self, *args, **given)
        made.append(self)
        runs.clear()
        for index, layer in enumerate(self.layers):
            layer.output.register_forward_hook(lambda *_, index=index: runs.update([index]))

    monkeypatch.setattr(PackedModel, "__init__", spy)
    results = list(train(trial, data, device="cpu"))
    passes = results[-1].steps + len(results)
    assert runs == {2: passes}
    assert made[-1].embeddings is None and len(made[-1].layers) == 1


def test_with_frozen_dropout_the_prefix_is_computed_and_that_is_said(tmp_path: Path) -> None:
    trial = make_trial(tiny_bert(tmp_path / "model"), 2, frozen_dropout=True)
    last = list(train(trial, make_data(), device="cpu"))[-1]
    assert (last.batches, last.prefix) == ("packed", "recomputed")
    assert "frozen_dropout is on" in " ".join(last.notes)


def test_the_cache_can_be_left_out_or_kept_in_half_precision(tmp_path: Path) -> None:
    model = calm("bert", tmp_path / "model")
    results = {}
    for how in PrefixCache:
        trial = make_trial(model, 2, frozen_dropout=False, prefix_cache=how)
        results[how] = list(train(trial, make_data(), device="cpu"))[-1]
    assert results[PrefixCache.NONE].prefix == "recomputed"
    assert results[PrefixCache.FP32].prefix == results[PrefixCache.BF16].prefix == "cached"
    exact = results[PrefixCache.NONE].eval_loss
    assert results[PrefixCache.FP32].eval_loss == pytest.approx(exact, rel=1e-5)
    assert results[PrefixCache.BF16].eval_loss == pytest.approx(exact, rel=1e-2)
    assert results[PrefixCache.BF16].eval_loss != exact


def test_without_room_it_computes_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ELSA_TUNE_PREFIX_CACHE_GB", "0")
    trial = make_trial(calm("bert", tmp_path / "model"), 2, frozen_dropout=False)
    last = list(train(trial, make_data(), device="cpu"))[-1]
    assert last.prefix == "recomputed"
    assert "ELSA_TUNE_PREFIX_CACHE_GB allows 0" in " ".join(last.notes)


@pytest.mark.parametrize("how", [PrefixCache.FP32, PrefixCache.BF16])
@pytest.mark.parametrize("architecture", ["bert", "deberta-v2"])
def test_with_room_on_the_gpu_the_prefix_is_computed_into_it_and_nothing_is_written(
    architecture: str, how: PrefixCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(
        calm(architecture, tmp_path / "model"), 2, frozen_dropout=False, prefix_cache=how
    )
    data = data_for(architecture)
    on_disk = list(train(trial, data, device="cpu"))
    shutil.rmtree(tmp_path / "cache")
    needed = sum(len(rows.input_ids) for rows in data.splits().values()) * 32
    needed *= 4 if how is PrefixCache.FP32 else 2
    monkeypatch.setattr(runner, "free_bytes", lambda device: needed / runner._MEMORY_SHARE + 1)
    in_memory = list(train(trial, data, device="cpu"))
    assert in_memory[-1].prefix == "cached"
    assert [(r.train_loss, r.eval_loss) for r in in_memory] == [
        (r.train_loss, r.eval_loss) for r in on_disk
    ]
    assert not (tmp_path / "cache").exists()
    monkeypatch.setattr(runner, "free_bytes", lambda device: needed / runner._MEMORY_SHARE - 10)
    list(train(trial, data, device="cpu"))
    assert list((tmp_path / "cache" / "prefix").glob("*[!k]"))


def test_a_full_disk_stops_no_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prefix_store.zlib, "crc32", full)  # of the first block
    trial = make_trial(calm("bert", tmp_path / "model"), 2, frozen_dropout=False)
    last = list(train(trial, make_data(), device="cpu"))[-1]
    assert last.prefix == "recomputed" and "No space left" in " ".join(last.notes)
    assert not list((tmp_path / "cache" / "prefix").glob("*[!k]"))


def test_a_head_that_reads_every_token_is_found_out(tmp_path: Path) -> None:
    """By what it computes, not by its name: a BERT whose pooler takes the mean."""
    from transformers.models.bert.modeling_bert import BertPooler

    class MeanPooler(BertPooler):  # type: ignore[misc]
        def forward(self, hidden_states: Any) -> Any:
            return self.activation(self.dense(hidden_states.mean(1)))

    model = calm("bert", tmp_path / "model")
    trial = make_trial(model, 0)
    from elsa_tune.training.model.encoder import load_classifier

    def with_mean(*args: Any, **kwargs: Any) -> Any:
        loaded = load_classifier(*args, **kwargs)
        loaded.bert.pooler.__class__ = MeanPooler
        return loaded

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equality, "_doubts", {})  # what was found of the same weights as they are
        patch.setattr(loop, "load_classifier", with_mean)
        last = list(train(trial, make_data(), device="cpu"))[-1]
    assert last.batches == "padded" and "logits differ" in " ".join(last.notes)


def test_dropout_on_what_a_cache_gives_is_found_out(tmp_path: Path) -> None:
    """A model that drops from its layers' input, outside any of them, as XLNet does."""
    from transformers.models.bert.modeling_bert import BertEncoder

    from elsa_tune.training.model.encoder import load_classifier

    class Noisy(BertEncoder):  # type: ignore[misc]
        def forward(self, hidden_states: Any, *args: Any, **kwargs: Any) -> Any:
            return super().forward(self.noise(hidden_states), *args, **kwargs)

    def with_noise(*args: Any, **kwargs: Any) -> Any:
        loaded = load_classifier(*args, **kwargs)
        loaded.bert.encoder.__class__ = Noisy
        loaded.bert.encoder.noise = torch.nn.Dropout(0.5)
        return loaded

    trial = make_trial(calm("bert", tmp_path / "model"), 2, frozen_dropout=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(equality, "_doubts", {})  # what was found of the same weights as they are
        patch.setattr(loop, "load_classifier", with_noise)
        last = list(train(trial, make_data(), device="cpu"))[-1]
    assert last.batches == "padded" and "in training mode" in " ".join(last.notes)


def varlen_kernel(
    query: Any, key: Any, value: Any, ends: Any, key_ends: Any, *rest: Any, **how: Any
) -> tuple[Any, ...]:
    """Return what flash attention's kernel computes of [tokens, heads, size], row by row."""
    _longest_query, longest, dropout = rest
    assert ends.dtype == key_ends.dtype == torch.int32 and dropout == 0
    assert longest == int(key_ends.diff().max()) and len(ends) == len(key_ends)
    rows = []
    lengths = key_ends.diff().tolist()
    parts = (query.split(ends.diff().tolist()), key.split(lengths), value.split(lengths))
    for q, k, v in zip(*parts, strict=True):
        scores = torch.einsum("qhd,khd->hqk", q, k) * how["scale"]
        rows.append(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v))
    return torch.cat(rows), None, None, None, None


@pytest.mark.parametrize("heads", [1, 4])
@pytest.mark.parametrize("with_bias", [False, True])
def test_packed_attention_gives_the_same_in_every_layout(
    heads: int, with_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In buckets, as a CPU has it, padded together, and by a varlen kernel; gradients too."""
    monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", varlen_kernel)
    few, how = np.array([3, 9, 1, 12, 4]), Heads(heads, 0.0, 0.5)
    outcomes = []
    for attention in Attention if not with_bias else (Attention.BUCKETED, Attention.PADDED):
        batch = pack(make_data().train, few, Layout(attention=attention))
        draw = torch.Generator().manual_seed(0)
        tokens = len(batch.ids)
        q, k, v = (torch.randn(tokens, 16, generator=draw).requires_grad_() for _ in range(3))
        weights = torch.randn(tokens, 16, generator=draw)
        bias, wide = None, torch.randn(heads, 40, 40, generator=draw).requires_grad_()
        if with_bias:
            bias = wide[:, : batch.longest, : batch.longest]
        if bias is not None and attention is Attention.PADDED:
            bias = bias + batch.buckets[0].bias  # as `PackedModel.position_bias` has it
        firsts = attend(batch.cls_tokens(q), k, v, batch, how, bias)
        out = attend(q, k, v, batch, how, bias)
        ((out * weights).sum() + firsts.square().sum()).backward()
        assert torch.allclose(out[batch.starts], firsts, atol=1e-6)
        gradients = [wide.grad] if with_bias else []
        outcomes.append([out.detach(), q.grad, k.grad, v.grad, *gradients])
    for others in outcomes[1:]:
        for ours, theirs in zip(outcomes[0], others, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("frozen", [0, 2])
def test_rows_under_varlen_attention_train_as_any_others(
    frozen: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows take the same steps under flash attention, as on a GPU, kernels apart.

    And without it where the kernel gives something else, or nothing.
    """
    trial = make_trial(calm("bert", tmp_path / "model"), frozen, precision=Precision.BF16, epochs=3)
    data = data_for("bert")
    plain = list(train(trial, data, device="cpu"))
    monkeypatch.setattr(equality, "_attends_varlen", lambda model, setting: True)
    found = {}
    for kernel in (varlen_kernel, shifted, absent):
        equality._doubts.clear()
        monkeypatch.setattr(torch.ops.aten, "_flash_attention_forward", kernel)
        found[kernel] = list(train(trial, data, device="cpu"))
    for a, b in zip(found[varlen_kernel], plain, strict=True):
        assert a.train_loss == pytest.approx(b.train_loss, rel=2e-2)
        assert a.train_loss != b.train_loss
        assert a.eval_loss == pytest.approx(b.eval_loss, rel=2e-2)
    assert found[varlen_kernel][-1].notes == ()
    for kernel, why in ((shifted, "differs by"), (absent, "RuntimeError: no such kernel")):
        [note] = found[kernel][-1].notes
        assert note.startswith("attention on padded rows: ") and why in note
        assert [r.train_loss for r in found[kernel]] == [r.train_loss for r in plain]


def shifted(query: Any, *rest: Any, **how: Any) -> tuple[Any, ...]:
    """Return a kernel of another version, which takes its arguments for something else."""
    context, *others = varlen_kernel(query, *rest, **how)
    return context.roll(1, 0), *others


def absent(*given: Any, **how: Any) -> Any:
    raise RuntimeError("no such kernel")


@pytest.mark.parametrize("attention", [Attention.BUCKETED, Attention.PADDED])
def test_attention_gradients_are_right(attention: Attention) -> None:
    """Against finite differences, with rows of different lengths."""
    layout = Layout(attention=attention, dtype=torch.float64)
    batch = pack(make_data().train, np.array([0, 1, 2]), layout)
    shapes = [(len(batch.ids), 4)] * 3 + [(2, batch.longest, batch.longest)]
    draw = torch.Generator().manual_seed(0)
    inputs = [
        torch.randn(shape, dtype=torch.float64, generator=draw).requires_grad_() for shape in shapes
    ]

    def function(q: Any, k: Any, v: Any, bias: Any) -> Any:
        if attention is Attention.PADDED:
            bias = bias + batch.buckets[0].bias
        every = attend(q, k, v, batch, Heads(2, 0.0, 0.7), bias)
        firsts = attend(batch.cls_tokens(q), k, v, batch, Heads(2, 0.0, 0.7), bias)
        return torch.cat([every, firsts])

    assert torch.autograd.gradcheck(function, inputs, eps=1e-3, atol=1e-2, rtol=1e-2)


def test_a_gpus_bucket_has_few_widths_and_its_mask_is_made_once() -> None:
    rows = make_data(train=200).train
    layout = Layout(attention=Attention.PADDED, dtype=torch.bfloat16)
    draw = np.random.default_rng(0)
    widths = set()
    for _ in range(20):
        batch = pack(rows, draw.choice(200, 5, replace=False), layout)
        [bucket] = batch.buckets
        widths.add(bucket.width)
        assert bucket.bias is not None and bucket.bias.dtype == torch.bfloat16
        assert bucket.real is not None and len(bucket.real) == len(batch.ids)
    assert widths == {16}
    # Rows that fill the bucket need neither mask nor gather.
    alike = make_data().train.take(np.array([0, 0, 0]))
    longer = TokenRows(np.arange(32, dtype=np.int32), np.array([0, 16, 32]), None, alike.labels[:2])
    [bucket] = pack(longer, [0, 1], layout).buckets
    assert (bucket.width, bucket.bias, bucket.index) == (16, None, None)


def test_masks_drop_as_often_as_asked_and_keep_the_mean() -> None:
    from elsa_tune.training.forward.attention import drop, keep_mask

    x = torch.ones(1000, 1000)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        mask = keep_mask(x, 0.1)
        again = keep_mask(x, 0.1)
    out = drop(x, mask, 0.1)
    assert torch.equal(out == 0, ~mask) and not torch.equal(mask, again)
    # A million draws: three standard deviations are 0.0009.
    assert float((~mask).float().mean()) == pytest.approx(0.1, abs=0.0009)
    assert float(out.mean()) == pytest.approx(1.0, abs=0.001)
    # Every lane of the random numbers drops alike.
    lanes = (~mask).float().view(-1, 4).mean(0)
    assert torch.allclose(lanes, torch.full((4,), 0.1), atol=0.002)
    odd = keep_mask(torch.ones(7, 3), 0.5)
    assert odd.shape == (7, 3)


def test_attention_with_dropout_is_right_in_its_mean_and_its_gradient() -> None:
    """A value that depends linearly on what is dropped keeps its mean, and so does its gradient."""
    batch = pack(make_data().train, np.array([0, 1, 2]), Layout())
    draw = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(len(batch.ids), 8, generator=draw) for _ in range(3))
    v.requires_grad_()
    calm = attend(q, k, v, batch, Heads(2, 0.0, 0.5))
    (expected,) = torch.autograd.grad(calm.sum(), v)
    total, gradient = torch.zeros_like(calm), torch.zeros_like(v)
    rounds = 3000
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        for _ in range(rounds):
            out = attend(q, k, v, batch, Heads(2, 0.3, 0.5))
            total += out.detach() / rounds
            gradient += torch.autograd.grad(out.sum(), v)[0] / rounds
    assert torch.allclose(total, calm, atol=0.06)
    assert torch.allclose(gradient, expected, atol=0.06)


def test_a_compact_word_table_changes_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = make_trial(tiny_bert(tmp_path / "model"), 0, epochs=3)
    compact = list(train(trial, make_data(), device="cpu"))
    monkeypatch.setattr(runner, "use_compact_vocabulary", lambda packed, data: None)
    whole = list(train(trial, make_data(), device="cpu"))
    assert compact[-1].trainable_parameters == whole[-1].trainable_parameters
    for a, b in zip(compact, whole, strict=True):
        assert a.train_loss == pytest.approx(b.train_loss, rel=1e-6)
        assert a.eval_loss == pytest.approx(b.eval_loss, rel=1e-6)
    assert compact[-1].predictions == whole[-1].predictions


def test_other_weights_change_the_key_and_a_checkpoint_that_changes_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    trial = make_trial(resolve_model(str(make_tiny("electra", folder, LAYERS))), 2)

    def kept() -> set[str]:
        last = list(train(trial, make_data(), device="cpu"))[-1]
        assert last.prefix == "cached" and not last.notes
        return {entry.key for entry in prefix_store.PrefixStore().entries()}

    before = kept()
    assert len(before) == 1 and kept() == before
    weights = load_file(folder / "model.safetensors")
    weights["encoder.layer.1.output.dense.bias"] += 1e-3
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    both = kept()
    assert len(both) == 2 and before < both
    loaded = loop.load_classifier

    def and_then_others(*args: Any, **kwargs: Any) -> Any:
        model = loaded(*args, **kwargs)
        save_file({**weights, "more": torch.zeros(1)}, folder / "model.safetensors")
        return model

    monkeypatch.setattr(loop, "load_classifier", and_then_others)
    last = list(train(trial, make_data(), device="cpu"))[-1]
    assert last.prefix == "recomputed" and "changed after they were loaded" in last.notes[-1]
