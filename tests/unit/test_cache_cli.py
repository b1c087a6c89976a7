"""`elsa-tune cache`: what is kept is listed, and goes unless somebody reads it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from elsa_tune.cli.app import app
from elsa_tune.training.forward.prefix_store import PrefixStore, Shape

SHAPE = Shape(tokens={"train": 100}, hidden_size=8, dtype=torch.float32)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PrefixStore:
    monkeypatch.setenv("ELSA_TUNE_CACHE", str(tmp_path))
    store = PrefixStore()
    for key in ("a", "b"):
        with store.writing(key, f"minilm on {key}, 3 frozen layers, fp32", SHAPE) as append:
            append(torch.zeros(100, 8))
    return store


def test_it_lists_what_is_kept(store: PrefixStore) -> None:
    listed = CliRunner().invoke(app, ["cache", "ls"])
    assert listed.exit_code == 0
    assert "minilm on a, 3 frozen layers, fp32" in listed.stdout
    assert "of 20 GB" in listed.stderr
    reading = store.open("a", SHAPE)
    assert reading is not None
    with contextlib.closing(reading):
        rows = json.loads(CliRunner().invoke(app, ["cache", "ls", "--format", "json"]).stdout)
    assert {row["key"]: row["in_use"] for row in rows} == {"a": True, "b": False}
    assert all(row["bytes"] > 3200 for row in rows)


def test_it_removes_what_nobody_reads(store: PrefixStore) -> None:
    reading = store.open("a", SHAPE)
    assert reading is not None
    with contextlib.closing(reading):
        pruned = CliRunner().invoke(app, ["cache", "prune"])
    assert pruned.exit_code == 0 and "removed" in pruned.stderr
    assert [entry.key for entry in store.entries()] == ["a"]
    assert CliRunner().invoke(app, ["cache", "prune", "--keep-gb", "1"]).exit_code == 0
    assert [entry.key for entry in store.entries()] == ["a"]


def test_another_format_is_refused(store: PrefixStore) -> None:
    refused = CliRunner().invoke(app, ["cache", "ls", "--format", "csv"])
    assert refused.exit_code == 2 and "csv" in refused.stderr
