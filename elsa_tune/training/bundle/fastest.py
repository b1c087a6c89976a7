"""How exported models run: on packed tokens or padded batches, as each computes alone.

Shapes: E texts, C outputs of a task.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from elsa_tune.errors import first_line
from elsa_tune.tasks.types.base import Logits
from elsa_tune.training.bundle.members import Member, Members, alone, twins
from elsa_tune.training.bundle.texts import Texts, few_of
from elsa_tune.training.bundle.together import Bundle

# Of a logit beside the model alone; where logits are larger than 1, a share of the largest.
LIMIT = 1e-5


class UnlikeError(Exception):
    """Says why models together do not compute what each computes alone."""


def fastest(
    members: Members,
    read: Callable[[], Members],
    parts: Sequence[Texts],
) -> tuple[Bundle, dict[str, float]]:
    """Return models together as they run fastest, and by task how far they are from each alone.

    members: each computes alone what is expected, and stays as it is. read: gives the models that
    are put together. parts: texts to compare, each part of single texts or of pairs. Raises
    UnlikeError where neither packed tokens nor padded batches keep every logit within LIMIT.
    """
    expected: dict[str, Logits] = {}
    for name, member in members.items():
        logits = [alone(member, part) for part in parts]
        expected[name] = np.concatenate(logits)
    doubts: list[str] = []
    for packed in (True, False):
        try:
            runs = Bundle(read(), packed)
            differences = _differences(runs, parts, expected)
        except Exception as error:  # an architecture may break in any way when taken apart
            doubts.append(first_line(error))
            continue
        largest = np.max(list(differences.values()))
        if largest <= LIMIT:  # which NaN is not
            return runs, differences
        doubts.append(f"logits differ by {largest:.2g}")
    on_packed, on_padded = doubts
    raise UnlikeError(f"on packed tokens, {on_packed}; on padded batches, {on_padded}")


def fastest_alone(name: str, member: Member, texts: Texts) -> Bundle:
    """Return a model without others as it runs fastest.

    That is on packed tokens, if these give what transformers' own code does, else by that code, on
    padded batches. texts: of which a few are compared.
    """
    members = {name: member}
    some = few_of(texts)
    try:
        runs, _ = fastest(members, partial(twins, members), [some])
    except UnlikeError:
        return Bundle(members, packed=False)
    return runs


def _differences(
    runs: Bundle,
    parts: Sequence[Texts],
    expected: Mapping[str, Logits],
) -> dict[str, float]:
    """Return, by task, how far a bundle's logits are from those of each model alone."""
    predictions = [runs.predict_either(part) for part in parts]
    differences = {}
    for name, of_task in expected.items():
        logits = [prediction[name].logits for prediction in predictions]
        together = np.concatenate(logits)
        differences[name] = _relative_difference(of_task, together)
    return differences


def _relative_difference(expected: Logits, computed: Logits) -> float:
    """Return the largest difference of logits [E, C], where they exceed 1 as a share of that."""
    differences = np.abs(expected - computed)
    largest = float(np.abs(expected).max())
    scale = max(1.0, largest)
    return float(differences.max()) / scale
