"""How long an exported model takes for one text on this machine's CPU: alone, or in a bundle.

Weights do not matter for that, so that nothing is trained: of each way a model is built as `export`
leaves it. In a bundle tasks share what their way leaves as the base model has it.
"""

import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import REFERENCE
from elsa_tune.specs.model import ModelSpec
from elsa_tune.training.adapt import methods
from elsa_tune.training.bundle.fastest import UnlikeError, fastest, fastest_alone
from elsa_tune.training.bundle.members import Member, Members, twins
from elsa_tune.training.bundle.texts import Text, few_of
from elsa_tune.training.bundle.together import Bundle
from elsa_tune.training.machine import plain_torch
from elsa_tune.training.model.encoder import load_classifier, load_tokenizer, own_what_trains

# How many texts are answered, one by one, in each pass.
MOST_TEXTS = 32
# The first pass warms up; of the others the median counts.
PASSES = 6
# A head's width hardly matters.
OUTPUTS = 2

# Takes where the work is, in words.
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """What ways take for one text: seconds."""

    alone: float  # of any way: as models they are all alike
    of_task: Mapping[Candidate, float]  # per task of a bundle of one way


@plain_torch()
def latencies(
    model: ModelSpec,
    candidates: Collection[Candidate],
    texts: Sequence[Text],
    *,
    max_length: int,
    tasks: int,
    tell: Tell = lambda where: None,
) -> Latency:
    """Return the seconds that each way takes for one text: alone, and for one task of a bundle.

    texts: of which at most MOST_TEXTS are read. max_length: in tokens. tasks: of one way, on one
    bundle; 1 for the model alone. Models that share nothing, or whose tasks cannot, take as long
    together as apart. All take turns, so that a slow spell of the machine hits them alike. tell: is
    called before each step. Raises ModelError where the model cannot be loaded.
    """
    tell("loading the model")
    timed = texts[:MOST_TEXTS]
    [(name, member)] = _members(model, REFERENCE, max_length, tasks=1).items()
    bundles: dict[int | None, Bundle] = {None: fastest_alone(name, member, timed)}
    shared: dict[Candidate, int | None] = {}
    for number, candidate in enumerate(candidates, 1):
        tell(f"loading way {number} of {len(candidates)}")
        layers = _shared_layers(model, candidate) if tasks > 1 else None
        shared[candidate] = layers
        if layers not in bundles:
            try:
                members = _members(model, candidate, max_length, tasks=tasks)
                together, _ = fastest(members, partial(twins, members), [few_of(timed)])
                bundles[layers] = together
            except UnlikeError:  # such models are never bundled
                shared[candidate] = None
    seconds = _in_turns(bundles, timed, tell)
    of_task: dict[Candidate, float] = {}
    for candidate, layers in shared.items():
        answered = len(bundles[layers].tasks)
        of_task[candidate] = seconds[layers] / answered
    return Latency(alone=seconds[None], of_task=of_task)


def _shared_layers(model: ModelSpec, candidate: Candidate) -> int | None:
    """Return how many layers tasks of a way share; 0 for the embeddings, None for nothing."""
    trainable = methods.trained_of(load_classifier(model, OUTPUTS, 0, shared=True), candidate)
    if trainable.embeddings_train:
        return None
    return trainable.first_trained_layer


def _members(model: ModelSpec, candidate: Candidate, max_length: int, *, tasks: int) -> Members:
    """Return so many classifiers of one base, adapted alike, by the names of their tasks."""
    facts: dict[str, Any] = {**candidate.record(), "max_length": max_length}
    tokenizer = load_tokenizer(model)
    members: Members = {}
    for number in range(tasks):
        classifier = load_classifier(model, OUTPUTS, number, shared=True)
        methods.trained_of(classifier, candidate)
        own_what_trains(classifier)
        classifier.config.elsa_tune = facts
        members[f"task{number}"] = Member(classifier, tokenizer)
    return members


def _in_turns(
    bundles: Mapping[int | None, Bundle], texts: Sequence[Text], tell: Tell
) -> dict[int | None, float]:
    """Return the seconds of each bundle for one text and all of its tasks."""
    spent: dict[int | None, list[float]] = {layers: [] for layers in bundles}
    for number in range(PASSES):
        tell(f"timing, pass {number + 1} of {PASSES}")
        sums = dict.fromkeys(bundles, 0.0)
        for text in texts:
            for layers, bundle in bundles.items():
                begun = time.perf_counter()
                bundle.predict([text])
                sums[layers] += time.perf_counter() - begun
        if number:
            for layers, seconds in sums.items():
                spent[layers].append(seconds / len(texts))
    return {layers: statistics.median(seconds) for layers, seconds in spent.items()}
