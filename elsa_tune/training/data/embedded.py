"""The embedded task: does this sentence document this name? Its rows ship with the package.

`tools/standard_library.py` made them from the docstrings of Python 3.11's standard library; the
licence beside them is Python's. They are read with nothing but numpy, on every machine alike.
"""

from pathlib import Path

import numpy as np

from elsa_tune.training.data.tokens import Split, Splits

FOLDER = Path(__file__).parent / "stdlib"
COLUMNS = ("name", "sentence", "label")


def read_embedded(*, shuffled_labels: bool = False) -> Splits:
    """Return 3,000 training and 600 evaluation pairs, half of each with the name's own sentence.

    No file of the library gives rows to both. shuffled_labels: a control, the same texts with
    labels that mean nothing, so that nothing can be learnt.
    """
    splits = {}
    for split in ("train", "evaluation"):
        names, sentences, labels = _columns(split)
        ids = np.array(labels, dtype=np.int64)
        if shuffled_labels:
            # The order of the rows is random: whether a place is odd has nothing to do with a row.
            ids = np.arange(len(names)) % 2
        splits[split] = Split(
            where=f"Python's standard library ({split})",
            texts=(names, sentences),
            labels=ids,
        )
    return splits


def file_of(split: str) -> Path:
    """Return the file with the rows of `train` or `evaluation`."""
    return FOLDER / f"{split}.tsv"


def _columns(split: str) -> tuple[list[str], list[str], list[int]]:
    names = []
    sentences = []
    labels = []
    text = file_of(split).read_text(encoding="utf-8")
    _, *lines = text.rstrip("\n").split("\n")  # the first one names the columns
    for line in lines:
        name, sentence, label = line.split("\t")
        names.append(name)
        sentences.append(sentence)
        labels.append(int(label))
    return names, sentences, labels
