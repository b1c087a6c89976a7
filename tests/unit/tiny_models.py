"""Tiny random checkpoints with working tokenizers, as `save_pretrained` writes them.

It must not know elsa_tune: these folders are what a user could bring.
"""

from __future__ import annotations

import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE, Unigram, WordPiece
from transformers import AutoConfig, AutoModel, PreTrainedTokenizerFast

HIDDEN = 32
HEADS = 4
INNER = 64
POSITIONS = 128
SEED = 7

# Characters cover every ASCII text; the words keep ordinary sentences short.
CHARACTERS = string.ascii_lowercase + string.ascii_uppercase + string.digits + string.punctuation
ORDINARY_ENGLISH = (
    "the of and to in is was that it for on with as his he be at by had not are but from or "
    "have an they which one you were her all she there would their we him been has when who "
    "will more no if out so said what up its about into than them can only other new some "
    "could time these two may then do first any my now such like our over man me even most "
    "made after also did many before must through back good bad film movie great fun dull "
    "plot acting story best worst very never return returns name value list string file "
    "object function class true false given number "
)
WORDS = ORDINARY_ENGLISH.split()

Tokens = dict[str, str]
BERT_TOKENS: Tokens = {
    "pad_token": "[PAD]",
    "unk_token": "[UNK]",
    "cls_token": "[CLS]",
    "sep_token": "[SEP]",
    "mask_token": "[MASK]",
}
ROBERTA_TOKENS: Tokens = {
    "bos_token": "<s>",
    "pad_token": "<pad>",
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "cls_token": "<s>",
    "sep_token": "</s>",
    "mask_token": "<mask>",
}
XLNET_TOKENS: Tokens = {
    "unk_token": "<unk>",
    "bos_token": "<s>",
    "eos_token": "</s>",
    "cls_token": "<cls>",
    "sep_token": "<sep>",
    "pad_token": "<pad>",
    "mask_token": "<mask>",
}


def _ids(tokens: Tokens) -> dict[str, int]:
    """Return each token's id; special tokens take the first ids, in the order given."""
    return {token: number for number, token in enumerate(dict.fromkeys(tokens.values()))}


def _wordpiece(tokens: Tokens) -> Tokenizer:
    pieces = [*_ids(tokens), *CHARACTERS, *(f"##{c}" for c in CHARACTERS), *WORDS]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(WordPiece(vocab, unk_token=tokens["unk_token"]))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _byte_level(tokens: Tokens) -> Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("i", "n"), ("e", "r"), ("Ġ", "a"), ("o", "n")]
    pieces = [*_ids(tokens), *alphabet, *(left + right for left, right in merges)]
    vocab = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(BPE(vocab, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _unigram(tokens: Tokens) -> Tokenizer:
    special = _ids(tokens)
    pieces = dict.fromkeys([*("▁" + word for word in WORDS), "▁", *CHARACTERS])
    scored = [(token, 0.0) for token in special]
    scored += [(piece, -3.0 if len(piece) > 1 else -9.0) for piece in pieces]
    tokenizer = Tokenizer(Unigram(scored, unk_id=special[tokens["unk_token"]]))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


# Templates of one and of two texts; `:1` gives the token type.
BERT_TEMPLATE = ("[CLS] $A [SEP]", "[CLS] $A [SEP] $B:1 [SEP]:1")
ROBERTA_TEMPLATE = ("<s> $A </s>", "<s> $A </s> </s> $B </s>")
XLNET_TEMPLATE = ("$A <sep> <cls>:2", "$A <sep> $B:1 <sep>:1 <cls>:2")

_Recipe = tuple[Tokens, Callable[[Tokens], Tokenizer], tuple[str, str], bool, dict[str, Any]]

_BERT_SHAPE: dict[str, Any] = {
    "hidden_size": HIDDEN,
    "num_attention_heads": HEADS,
    "intermediate_size": INNER,
    "max_position_embeddings": POSITIONS,
}
_ROBERTA_SHAPE: dict[str, Any] = {
    **_BERT_SHAPE,
    "max_position_embeddings": POSITIONS + 2,  # positions start at pad id + 1
    "type_vocab_size": 1,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}

# architecture: tokens, tokenizer, template, whether it takes token types, configuration
_RECIPES: dict[str, _Recipe] = {
    "bert": (BERT_TOKENS, _wordpiece, BERT_TEMPLATE, True, _BERT_SHAPE),
    "electra": (
        BERT_TOKENS,
        _wordpiece,
        BERT_TEMPLATE,
        True,
        # Smaller embeddings, as electra-small has them: `embeddings_project` exists.
        {**_BERT_SHAPE, "embedding_size": HIDDEN // 2},
    ),
    "distilbert": (
        BERT_TOKENS,
        _wordpiece,
        BERT_TEMPLATE,
        False,
        {
            "dim": HIDDEN,
            "n_heads": HEADS,
            "hidden_dim": INNER,
            "max_position_embeddings": POSITIONS,
        },
    ),
    "roberta": (ROBERTA_TOKENS, _byte_level, ROBERTA_TEMPLATE, False, _ROBERTA_SHAPE),
    "camembert": (ROBERTA_TOKENS, _unigram, ROBERTA_TEMPLATE, False, _ROBERTA_SHAPE),
    "xlm-roberta": (ROBERTA_TOKENS, _unigram, ROBERTA_TEMPLATE, False, _ROBERTA_SHAPE),
    "mpnet": (
        ROBERTA_TOKENS,
        _wordpiece,
        ROBERTA_TEMPLATE,
        False,
        {k: v for k, v in _ROBERTA_SHAPE.items() if k != "type_vocab_size"},
    ),
    "deberta-v2": (
        BERT_TOKENS,
        _unigram,
        BERT_TEMPLATE,
        True,
        {
            # As deberta-v3 has them: relative positions only, keys shared with the content's.
            **_BERT_SHAPE,
            "type_vocab_size": 0,
            "relative_attention": True,
            "position_buckets": 16,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_biased_input": False,
            "pad_token_id": 0,
        },
    ),
    "modernbert": (
        BERT_TOKENS,
        _byte_level,
        BERT_TEMPLATE,
        False,
        {
            **_BERT_SHAPE,
            "local_attention": 16,
            "global_attn_every_n_layers": 3,
            "pad_token_id": 0,
            "cls_token_id": 2,
            "sep_token_id": 3,
            "bos_token_id": 2,
            "eos_token_id": 3,
        },
    ),
    "xlnet": (
        XLNET_TOKENS,
        _unigram,
        XLNET_TEMPLATE,
        True,
        {"d_model": HIDDEN, "n_head": HEADS, "d_inner": INNER, "pad_token_id": 5},
    ),
    # Its sparse attention would begin at 29 tokens.
    "big_bird": (
        BERT_TOKENS,
        _wordpiece,
        BERT_TEMPLATE,
        False,
        {**_BERT_SHAPE, "block_size": 4, "num_random_blocks": 1},
    ),
    "albert": (
        BERT_TOKENS,
        _unigram,
        BERT_TEMPLATE,
        True,
        {**_BERT_SHAPE, "embedding_size": HIDDEN // 2, "pad_token_id": 0},
    ),
}

_LAYERS_FIELD = {"distilbert": "n_layers", "xlnet": "n_layer"}

# The ten the tool supports by name; ALBERT shares one layer and must be refused, and BigBird has
# tests of its own.
ARCHITECTURES = tuple(name for name in _RECIPES if name not in ("albert", "big_bird"))

# Beside them: layers whose parts have BERT's names, and which run on padded batches alone.
_RECIPES |= {
    "longformer": (
        ROBERTA_TOKENS,
        _byte_level,
        ROBERTA_TEMPLATE,
        False,
        {**_ROBERTA_SHAPE, "attention_window": 16},
    ),
    "mobilebert": (
        BERT_TOKENS,
        _wordpiece,
        BERT_TEMPLATE,
        True,
        {
            **_BERT_SHAPE,
            "embedding_size": HIDDEN // 2,
            "intra_bottleneck_size": HIDDEN,
            "true_hidden_size": HIDDEN,
        },
    ),
}


def make_tokenizer(architecture: str) -> PreTrainedTokenizerFast:
    """Return a tokenizer of the architecture's kind that reads any ASCII text."""
    tokens, build, (single, pair), has_types, _ = _RECIPES[architecture]
    tokenizer = build(tokens)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=list(_ids(tokens).items())
    )
    inputs = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=POSITIONS,
        padding_side="left" if architecture == "xlnet" else "right",
        model_input_names=inputs if has_types else [n for n in inputs if n != "token_type_ids"],
        **tokens,
    )


def make_tiny(architecture: str, folder: Path, layers: int = 4, **changes: Any) -> Path:
    """Write a random checkpoint (hidden 32) and its tokenizer into `folder`, and return it.

    Equal arguments give equal weights, and the process's random state is left alone. `changes` are
    configuration fields, e.g. `conv_kernel_size=3` for DeBERTa. Only the encoder is saved, as for
    most pretrained models: the task head is missing on purpose.
    """
    # Larger than the usual 0.02, so that padding, order and layers visibly change the logits.
    fields = {"initializer_range": 0.2, **_RECIPES[architecture][4], **changes}
    fields[_LAYERS_FIELD.get(architecture, "num_hidden_layers")] = layers
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = make_tokenizer(architecture)
    tokenizer.save_pretrained(folder)
    config = AutoConfig.for_model(architecture, vocab_size=len(tokenizer), **fields)
    bars = transformers.utils.logging.is_progress_bar_enabled()
    transformers.utils.logging.disable_progress_bar()
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            AutoModel.from_config(config).save_pretrained(folder)
    finally:
        if bars:
            transformers.utils.logging.enable_progress_bar()
    return folder
