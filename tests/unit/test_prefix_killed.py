"""The frozen layers' output, kept by passes over the model that are killed, or two at once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.trial import Precision, PrefixCache, Recipe
from elsa_tune.training.forward.prefix_store import PrefixStore
from elsa_tune.training.loop import train
from elsa_tune.training.probe import linear_probe
from tests.forked import Nursery, nursery
from tests.pairs import thorough
from tests.unit.tiny_trials import TASK, make_data, make_trial, tiny_bert

LAYERS = 12
DEPTHS = [FreezeDepth.of(n) for n in range(LAYERS + 1)]
RECIPE = Recipe(precision=Precision.FP32)

KILLED = """
import contextlib, os, sys
from elsa_tune.specs.model import resolve_model
from elsa_tune.training.forward import runner
from elsa_tune.training.forward.prefix_store import PrefixStore
from elsa_tune.training.probe import linear_probe
from tests.unit.test_prefix_killed import DEPTHS, RECIPE
from tests.unit.tiny_trials import TASK, make_data

runner._CHUNK_TOKENS = 64  # so that the pass has several chunks
blocks_left = int(sys.argv[2])
writing = PrefixStore.writing

@contextlib.contextmanager
def counted(*arguments):
    with writing(*arguments) as append:
        def count(hidden):
            global blocks_left
            if blocks_left == 0:
                os.kill(os.getpid(), 9)
            blocks_left -= 1
            append(hidden)
        yield count

PrefixStore.writing = counted
linear_probe(resolve_model(sys.argv[1]), TASK, RECIPE, make_data(), candidates=DEPTHS)
"""


@pytest.fixture(scope="module")
def fork() -> Iterator[Nursery]:
    with nursery("elsa_tune.training.probe", "tests.unit.tiny_trials") as parent:
        yield parent


@pytest.mark.parametrize("blocks", [17, *thorough(0, 100)])
def test_a_pass_that_is_killed_leaves_nothing_that_is_read(
    blocks: int, fork: Nursery, tmp_path: Path
) -> None:
    """The next pass keeps all twelve, and a trial on them has the losses of an undisturbed one."""
    model = tiny_bert(tmp_path / "bert", layers=LAYERS)
    data = make_data()
    trial = make_trial(model, LAYERS - 1)
    kept_nothing = make_trial(model, LAYERS - 1, prefix_cache=PrefixCache.NONE)
    undisturbed = list(train(kept_nothing, data, device="cpu"))
    killed = fork.run(KILLED, model.location, str(blocks))
    assert killed.returncode == -9, killed.stderr
    store = PrefixStore()
    left = store.entries()
    assert [(entry.what, entry.in_use) for entry in left] == [("damaged", False)] * LAYERS
    linear_probe(model, TASK, RECIPE, data, candidates=DEPTHS)
    kept = store.entries()
    assert len(kept) == LAYERS and not any(entry.what == "damaged" for entry in kept)
    again = list(train(trial, data, device="cpu", candidates=DEPTHS))
    assert again[-1].prefix == "cached"
    assert [result.eval_loss for result in again] == [result.eval_loss for result in undisturbed]


HASTY = """
import dataclasses, sys, time
from elsa_tune.specs.model import resolve_model
from elsa_tune.training.forward.prefix_store import PrefixStore
from elsa_tune.training.loop import train
from tests.unit.tiny_trials import make_data, make_trial

make_room = PrefixStore.make_room

def slowly(store, wanted):
    make_room(store, wanted)
    time.sleep(1)  # so that the other one looks meanwhile

PrefixStore.make_room = slowly
data = dataclasses.replace(make_data(), fingerprint=sys.argv[2])
list(train(make_trial(resolve_model(sys.argv[1]), 1), data, device="cpu"))
"""


def test_two_passes_at_once_keep_to_the_budget(
    fork: Nursery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny_bert(tmp_path / "bert", layers=2)
    list(train(make_trial(model, 1), make_data(), device="cpu"))
    store = PrefixStore()
    [entry] = store.entries()
    assert store.evict(entry.key)
    budget = 1.5 * entry.bytes
    monkeypatch.setenv("ELSA_TUNE_PREFIX_CACHE_GB", str(budget / 1e9))
    both = [fork.start(HASTY, model.location, task) for task in ("one task", "another")]
    for process in both:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    assert [entry.bytes for entry in store.entries()] == [entry.bytes]
