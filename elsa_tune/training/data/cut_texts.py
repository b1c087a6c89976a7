"""Texts with more tokens than are read of them: which these are, and how many tokens they have.

E is the number of rows of a split.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from elsa_tune.specs.model import ModelSpec
from elsa_tune.specs.row_findings import FindingCode, RowFinding
from elsa_tune.training.data.tokens import HOLDOUT, TokenRows

# A smaller share of a split's rows is no finding: an accuracy that judges them wrong for what is
# cut off is less than a point too low.
MUCH_CUT = 0.01


def cut_texts(
    rows: Mapping[str, TokenRows],
    max_length: int,
    model: ModelSpec,
    *,
    is_sampled: bool = False,
) -> list[RowFinding]:
    """Find the splits of which a hundredth of the rows or more were cut to `max_length` tokens.

    rows: by the names of `read_splits`; a holdout counts as training, companions are not looked at.
    is_sampled: they are some of a split's rows.
    """
    training = rows["train"].full_lengths
    if HOLDOUT in rows:
        training = np.concatenate([training, rows[HOLDOUT].full_lengths])
    in_use = {"training": training, "evaluation": rows["evaluation"].full_lengths}
    longest = max(int(lengths.max()) for lengths in in_use.values())
    findings = []
    for name, lengths in in_use.items():
        cut = lengths[lengths > max_length]
        if len(cut) and len(cut) >= MUCH_CUT * len(lengths):
            finding = RowFinding(
                code=FindingCode.CUT_TEXTS,
                count=len(cut),
                of=len(lengths),
                where=f"sampled {name}" if is_sampled else name,
                max_length=max_length,
                read=round(max_length * len(cut) / int(cut.sum()), 4),
                longest=longest,
                most=_most_tokens(model),
            )
            findings.append(finding)
    return findings


def _most_tokens(model: ModelSpec) -> int | None:
    """Return how many tokens of a row the model takes; None for no limit."""
    from elsa_tune.training.model.encoder import facts

    return facts(model).max_positions


def full_lengths(
    tokenizer: Any,
    columns: Sequence[list[str]],
    encoded: Any,
    max_length: int,
) -> list[int]:
    """Return how many tokens each row of these texts would have without a limit.

    encoded: what the tokenizer made of the columns, cut to `max_length` tokens.
    """
    lengths = list(map(len, encoded["input_ids"]))
    at_limit = [row for row, length in enumerate(lengths) if length == max_length]
    if not at_limit:
        return lengths
    encodings = getattr(encoded, "encodings", None)
    if len(columns) == 1 and encodings is not None:
        # What was cut off is there, in pieces with special tokens of their own.
        special = tokenizer.num_special_tokens_to_add()
        for row in at_limit:
            for piece in encodings[row].overflowing:
                lengths[row] += len(piece) - special
        return lengths
    # Pieces of pairs come in all combinations, and a tokenizer in Python keeps none.
    texts = [[column[row] for row in at_limit] for column in columns]
    whole = tokenizer(
        *texts,
        truncation=False,
        padding=False,
        return_attention_mask=False,
        verbose=False,
    )
    for row, ids in zip(at_limit, whole["input_ids"], strict=True):
        lengths[row] = len(ids)
    return lengths
