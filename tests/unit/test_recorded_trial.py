"""One recorded trial: what a journal, MLflow and rows say of it is the same to the last digit."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import pytest

from elsa_tune.errors import ElsaTuneError, StorageError
from elsa_tune.searching.planning.known import known_trial
from elsa_tune.searching.record import facts_of
from elsa_tune.specs.adapt.candidates import read_candidate
from elsa_tune.specs.comparison import Comparison
from elsa_tune.specs.policy import SeedCounts
from elsa_tune.specs.result_row import ResultRow
from elsa_tune.specs.search import Looks
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.specs.trial_facts import TrialFacts
from elsa_tune.tracking.journal import read_journal
from elsa_tune.tracking.journal_records import (
    Record,
    Report,
    SearchStarted,
    TrialEnded,
    TrialStarted,
    decode,
    encode,
)
from elsa_tune.tracking.params import param_texts, read_params
from elsa_tune.tracking.rows import rows_of
from elsa_tune.tracking.state import SearchState
from tests.unit.search_examples import make_spec

ROOT = Path(__file__).parents[2]
BEGUN = SearchStarted(name="s", search_id="1", attempt=1, model="m", task="t", time=1.0)
# As versions before the first of typed journals wrote it.
TEXTS = {
    "model": "minilm",
    "task": "rte",
    "phase": "measure",
    "learning_rate": 3e-05,
    "frozen_layers": 3,
    "embeddings_frozen": True,
    "fine_tuned_layers": 3,
    "layers": 6,
    "seed": 2,
    "metric": "accuracy",
    "chance": 0.5,
    "evaluation_examples": 277,
    "given_rates": "1e-05..5e-05",
    "looks": "after N=2, from seed 2, at 0.045: 4/2 8/3",
    "search": "s",
    "epochs": 3,
    "train_size": 2490,
    "selection": "last",
    "holdout": None,
    "comparison": "weights=de70, data=d193, epochs=3, frozen_dropout=False, warmup_ratio=0.1",
}


def recorded(dice: random.Random) -> TrialFacts:
    """Return a trial with values that no rounding would survive."""
    layers = dice.randint(1, 24)
    labels = ["0", "embeddings", str(dice.randint(1, layers))]
    looks = Looks(
        after=dice.choice(["N0", "N3", "Nembeddings", "biases"]),
        first_seed=dice.randint(1, 9),
        counts=(SeedCounts(2, 1), SeedCounts(dice.randint(2, 9), dice.randint(1, 9)))[
            : dice.randint(1, 2)
        ],
        error=dice.choice([0.05, 0.045, dice.uniform(1e-3, 0.5)]),
    )
    recipe = {"epochs": dice.randint(1, 9), "warmup_ratio": dice.random(), "bf16": True, "x": "y"}
    return TrialFacts(
        phase=dice.choice([Phase.EXPLORE, Phase.MEASURE]),
        candidate=read_candidate(dice.choice(labels)),
        model="minilm",
        task="rte",
        layers=layers,
        learning_rate=dice.choice([3e-5, 10 ** dice.uniform(-7, 0)]),
        seed=dice.randint(0, 2**31 - 1),
        metric=dice.choice(["accuracy", None]),
        chance=dice.choice([0.5, dice.random(), None]),
        evaluation_examples=dice.randint(1, 10**6),
        given_rates=(10 ** dice.uniform(-7, -4), dice.choice([5e-5, 10 ** dice.uniform(-4, 0)])),
        looks=dice.choice([looks, None]),
        search="s",
        selection="last",
        epochs=dice.randint(1, 9),
        train_size=dice.randint(1, 10**6),
        others={"batch_size": 8, "holdout": None, "frozen_dropout": False, "decay": dice.random()},
        comparison=Comparison.of({"weights": "012e7", "data": "d19", **recipe}),
    )


def row_of(start: TrialStarted, qualities: list[float]) -> ResultRow:
    """Return the row of a trial that ended with the last of these qualities."""
    records: list[Record] = [BEGUN, start]
    for evaluation, quality in enumerate(qualities, 1):
        metrics = {"quality": quality, "train_loss": quality / 3}
        records.append(Report(trial="t", evaluation=evaluation, step=evaluation, metrics=metrics))
    ended = {"quality": qualities[-1], "train_seconds": qualities[0], "trainable_parameters": 7.0}
    records.append(TrialEnded(trial="t", status=TrialStatus.COMPLETED, metrics=ended))
    [row] = rows_of(SearchState.replay(decode(encode(record)) for record in records))
    return row


@pytest.mark.parametrize("number", range(100))
def test_rates_and_scores_are_the_same_wherever_they_are_read(number: int) -> None:
    dice = random.Random(number)
    facts, qualities = recorded(dice), [dice.uniform(-1, 1) for _ in range(3)]
    start = TrialStarted(trial="t", params=facts)
    again = decode(encode(start))
    assert isinstance(again, TrialStarted) and again.params == facts
    row = row_of(start, qualities)
    assert (row.learning_rate, row.given_rates) == (facts.learning_rate, facts.given_rates)
    assert (row.looks, row.candidate, row.quality) == (facts.looks, facts.candidate, qualities[-1])
    # MLflow keeps texts.
    texts = param_texts(facts)
    assert all(isinstance(text, str) for text in texts.values())
    there = row_of(TrialStarted(trial="t", params=read_params(texts)), qualities)
    assert there == row
    assert str(there.comparison) == str(row.comparison)


@pytest.mark.parametrize("number", range(20))
def test_the_plan_knows_a_trial_by_the_numbers_it_was_planned_with(number: int) -> None:
    dice, spec = random.Random(number), make_spec()
    depth = dice.choice(spec.candidates)
    trial = spec.trial(Phase.MEASURE, depth, 10 ** dice.uniform(-6, -3), dice.randint(0, 99))
    start = decode(encode(TrialStarted(trial=trial.key, params=facts_of(spec, trial))))
    quality = dice.random()
    report = Report(trial=trial.key, evaluation=1, step=1, metrics={"quality": quality})
    state = SearchState.replay([BEGUN, start, report])
    known = known_trial(spec, state.trials[trial.key])
    assert (known.trial, known.qualities) == (trial, (quality,))


def test_a_journal_of_texts_says_what_one_of_objects_says() -> None:
    line = {"kind": "trial_started", "trial": "t", "params": TEXTS}
    before = decode(json.dumps(line))
    assert isinstance(before, TrialStarted) and isinstance(before.params, TrialFacts)
    facts = before.params
    assert facts.candidate == read_candidate("3") and facts.given_rates == (1e-05, 5e-05)
    looks = Looks(
        after="N2", first_seed=2, counts=(SeedCounts(4, 2), SeedCounts(8, 3)), error=0.045
    )
    assert facts.looks == looks
    written = json.loads(encode(before))["params"]
    assert written["given_rates"] == [1e-05, 5e-05]
    assert written["looks"] == {**dataclasses.asdict(looks), "counts": [[4, 2], [8, 3]]}
    assert written["candidate"] == {"frozen_layers": 3, "embeddings_frozen": True}
    assert written["comparison"]["data"] == "d193"
    assert row_of(decode(encode(before)), [0.5]) == row_of(before, [0.5])  # type: ignore[arg-type]
    # MLflow is told the same by either.
    texts = {name: "none" if value is None else str(value) for name, value in TEXTS.items()}
    of_later_versions = {"embeddings_frozen": "true", "evaluation_units": "none"}
    assert param_texts(facts) == {**texts, **of_later_versions}


def test_a_number_of_layers_that_was_not_recorded_follows() -> None:
    early = {name: value for name, value in TEXTS.items() if name != "layers"}
    facts = read_params(early)
    assert isinstance(facts, TrialFacts) and facts.layers == 6


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"frozen_layers": 2.5}, "whole number"),
        ({"frozen_layers": 9}, "9, but the model has 6"),
        ({"candidate": {"method": "unheard of"}}, "names no candidate"),
        ({"candidate": 5}, "candidate"),
        ({"phase": "x"}, "phase"),
        ({"looks": "4/2"}, "does not say when"),
        ({"given_rates": "1e-05"}, "given_rates"),
        ({"seed": -1}, "seed"),
        ({"fine_tuned_layers": "three", "layers": None}, "three"),
    ],
)
def test_what_does_not_say_what_a_trial_is_says_why(change: dict[str, Any], why: str) -> None:
    values = {**TEXTS, **change}
    record = decode(json.dumps({"kind": "trial_started", "trial": "t", "params": values}))
    assert json.loads(encode(record))["params"] == values  # nothing of it is lost
    state = SearchState.replay([BEGUN, record])
    with pytest.raises(StorageError, match=why):
        known_trial(make_spec(), state.trials["t"])
    with pytest.raises(ElsaTuneError, match=why):
        rows_of(state)


def test_a_trial_without_a_rate_is_none_of_the_plan() -> None:
    state = SearchState.replay(
        [BEGUN, TrialStarted(trial="t", params=read_params({**TEXTS, "learning_rate": None}))]
    )
    with pytest.raises(StorageError, match="no learning rate"):
        known_trial(make_spec(), state.trials["t"])


@pytest.mark.parametrize(
    "text",
    ["", "epochs=3", "a, b", "weights 53aa51, batch 16", "=x, y=", "a=1; b=2", "x, ", "a=1, a=2"],
)
def test_any_text_is_a_comparison_and_stays_as_it_is(text: str) -> None:
    comparison = Comparison.read(text)
    assert str(comparison) == text and bool(comparison) == bool(text)
    assert comparison == Comparison.read(text) and len({comparison, Comparison.read(text)}) == 1
    assert str(read_back(comparison)) == text


def read_back(comparison: Comparison) -> Comparison:
    """Return what a journal's line says of a comparison."""
    facts = read_params({**TEXTS, "comparison": comparison})
    again = decode(encode(TrialStarted(trial="t", params=facts)))
    assert isinstance(again, TrialStarted) and isinstance(again.params, TrialFacts)
    return again.params.comparison


def test_a_comparison_of_numbers_is_the_one_of_their_text() -> None:
    values = {"weights": "012e7", "epochs": 3, "ratio": 1e-05, "dropout": False, "holdout": None}
    typed = Comparison.of(values)
    assert str(typed) == "weights=012e7, epochs=3, ratio=1e-05, dropout=False"
    assert typed == Comparison.read(str(typed)) and typed.record()["epochs"] == 3  # type: ignore[index]
    assert typed != Comparison.of({**values, "epochs": 4}) and typed != str(typed)


def test_a_journal_of_before_written_anew_says_the_same() -> None:
    """The demo's was written with texts: by this version each of its lines has objects."""
    records = read_journal(ROOT / "bench" / "results" / "demo" / "journal.jsonl")
    begun = [record for record in records if isinstance(record, TrialStarted)]
    anew = [decode(encode(record)) for record in records]
    assert anew == records
    rows = rows_of(SearchState.replay(records))
    assert rows == rows_of(SearchState.replay(anew)) and len(rows) == len(begun)
    assert {row.given_rates for row in rows} == {(3e-05, 5e-05)}
