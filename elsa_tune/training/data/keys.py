"""Keys of rows: hashes that compare texts, labels and groups, and what follows from equal ones.

E is the number of rows of a split. Two texts share a key by chance with a probability of 2^-64.
"""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elsa_tune.specs.task import folded
from elsa_tune.training.data.tokens import IndexArray, Split

# Odd, so that a key and a label give another key.
_MIXER = np.uint64(0x9E3779B97F4A7C15)
# str.split takes it for a blank, so that no folded text has one.
_BETWEEN_TEXTS = "\x1f"
_KEY_BYTES = 8

Keys = NDArray[np.uint64]


def utf8(text: str) -> bytes:
    """Return the text as bytes, also where it has half of a surrogate pair."""
    return text.encode("utf-8", "surrogatepass")


def key_bytes(text: str) -> bytes:
    """Return the key of a text as 8 bytes, the lowest first."""
    return hashlib.blake2b(utf8(text), digest_size=_KEY_BYTES).digest()


def text_keys(split: Split) -> Keys:
    """Return a key of each row's texts [E]: the same where they differ in case and blanks alone."""
    digests = bytearray()
    for texts in zip(*split.texts, strict=True):
        folded_texts = map(folded, texts)
        digests += key_bytes(_BETWEEN_TEXTS.join(folded_texts))
    keys = np.frombuffer(digests, dtype="<u8")
    return keys.astype(np.uint64)


def row_keys(keys: Keys, labels: NDArray[Any]) -> Keys:
    """Return keys of text and label [E]. keys: of the texts. labels: [E, ...]."""
    kind: type[np.number[Any]] = np.float64
    if labels.dtype.kind == "i":
        kind = np.int64
    rows = labels.astype(kind).reshape(len(keys), -1)
    mixed = keys
    for column in rows.T:
        bits = np.ascontiguousarray(column).view(np.uint64)
        shifted = bits + np.uint64(1)
        mixed = (mixed ^ shifted) * _MIXER
    return mixed


def is_first(keys: Keys) -> NDArray[np.bool_]:
    """Return whether no earlier row has the same key [E]."""
    _, first_rows = np.unique(keys, return_index=True)
    first = np.zeros(len(keys), dtype=np.bool_)
    first[first_rows] = True
    return first


def numbered(keys: Keys) -> IndexArray:
    """Return a number for each row's key [E]: 0.. in the order of the keys' first rows."""
    _, first_rows, place_of_row = np.unique(
        keys,
        return_index=True,
        return_inverse=True,
    )
    by_first_row = np.argsort(first_rows)
    number = np.empty_like(by_first_row)  # of each key, the smallest key first
    number[by_first_row] = np.arange(len(first_rows))
    return number[place_of_row]


def contradicting_keys(keys: Keys, labels: NDArray[Any]) -> Keys:
    """Return the keys of the texts that have two labels or more, each once."""
    different = is_first(row_keys(keys, labels))
    texts, labels_of_each = np.unique(keys[different], return_counts=True)
    return texts[labels_of_each > 1]
