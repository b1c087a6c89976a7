"""Data sets of the hub: its client and `datasets` against a loopback stand-in, then their cache."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from datasets import ClassLabel, Dataset, Features, List, Value

from tests.data_hub import DataHub, outside
from tests.searching import ONE_AT_A_TIME, make_bench

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(400)]

MOODS = Features({"text": Value("string"), "label": ClassLabel(names=["bad", "good"])})
CARD = b"""---
configs:
- config_name: plain
  data_files:
  - {split: train, path: plain/train-*}
  - {split: test, path: plain/test-*}
- config_name: other
  data_files:
  - {split: train, path: other/train-*}
---
"""


def parquet(features: Features, **columns: list[Any]) -> bytes:
    content = io.BytesIO()
    Dataset.from_dict(columns, features=features).to_parquet(content)
    return content.getvalue()


def moods(count: int, word: str = "film") -> bytes:
    """Rows that a bag of words tells apart."""
    texts = [f"the {word} was {('dull', 'great')[n % 2]} {n}" for n in range(count)]
    return parquet(MOODS, text=texts, label=[n % 2 for n in range(count)])


def repository(train: bytes, test: bytes) -> dict[str, bytes]:
    return {
        "README.md": b"no card",
        "data/train-00000-of-00001.parquet": train,
        "data/test-00000-of-00001.parquet": test,
    }


@pytest.fixture(scope="module")
def hub() -> Iterator[DataHub]:
    with DataHub() as stand_in:
        stand_in.add("own/Moods", repository(moods(64), moods(32)))
        plain = {f"plain/{split}-0.parquet": moods(16) for split in ("train", "test")}
        stand_in.add("own/two", {"README.md": CARD, **plain, "other/train-0.parquet": moods(8)})
        stand_in.add(
            "own/table",
            {
                "train.csv": b"tweet,intent\n" + b"a,x\nb,y\n" * 8,
                "dev.csv": b"tweet,intent\na,x\nb,y\n",
            },
        )
        lines = [json.dumps({"text": f"t {n}", "score": n / 8}) for n in range(24)]
        stand_in.add("own/scores", {"train.jsonl": "\n".join(lines).encode()})
        many = Features({"text": Value("string"), "labels": List(MOODS["label"])})
        several = parquet(many, text=["a", "b"], labels=[[0], [0, 1]])
        stand_in.add("own/several", {"train.parquet": several})
        stand_in.add("own/script", {"script.py": b"raise SystemExit('this must not run')"})
        stand_in.add("own/words", {"README.md": b"only words"})
        stand_in.add("own/gated", repository(moods(8), moods(8)), gated=True)
        stand_in.add("own/private", repository(moods(8), moods(8)), private=True)
        yield stand_in


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the cache of the hub's client and of `datasets`."""
    return tmp_path_factory.mktemp("home") / "hf"


READ = """
import json, sys
from elsa_tune.errors import ElsaTuneError
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.training.data.texts import read_texts
def read(name):
    try:
        task = resolve_task(name)
        splits = read_texts(task)
    except ElsaTuneError as error:
        return f"{type(error).__name__}: {error}"
    return {
        "name": task.name, "kind": task.kind, "classes": task.classes, "source": str(task.source),
        "rows": {name: len(split) for name, split in splits.items()},
        "revision": task.source.revision, "notes": splits["train"].notes,
    }
print(json.dumps({name: read(name) for name in sys.argv[1:]}))
"""


def read(home: Path, url: str, *names: str, **environment: str) -> dict[str, Any]:
    done = outside(home, url, "-c", READ, *names, **environment)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture(scope="module")
def online(home: Path, hub: DataHub) -> dict[str, Any]:
    """Return what each is read as, all by one process: starting it takes longer."""
    names = ("Moods", "two", "two/plain", "two/no", "table", "scores", *REFUSED)
    return read(home, hub.url, *(f"hub:own/{name}" for name in names))


REFUSED = {
    "several": "column 'labels' of data set 'own/several at ",
    "script": "is made by a Python script of its own (script.py), which is never run here",
    "words": "holds no file of rows that `datasets` reads",
    "gated": "only to those who accepted its terms: accept them on http://127.0.0.1",
    "private": "no data set on the hub is called 'own/private': check the spelling, or run",
    "gone": "no data set on the hub is called 'own/gone'",
}


def test_a_data_set_is_read_at_the_commit_that_it_has_now(
    online: dict[str, Any], hub: DataHub
) -> None:
    found = online["hub:own/Moods"]
    assert (found["name"], found["classes"]) == ("own-Moods", ["bad", "good"])
    assert found["rows"] == {"train": 64, "evaluation": 32}
    assert [found["revision"]] == list(hub.repositories["own/Moods"].commits)
    assert online["hub:own/two/plain"]["name"] == "own-two-plain"
    table, scores = online["hub:own/table"], online["hub:own/scores"]
    assert (table["classes"], table["rows"]) == (["x", "y"], {"train": 16, "evaluation": 2})
    assert (scores["kind"], scores["classes"]) == ("regression", [])


def test_what_cannot_be_read_is_one_sentence_that_says_why(online: dict[str, Any]) -> None:
    for name, said in REFUSED.items():
        answer = online[f"hub:own/{name}"]
        assert answer.startswith("DataError: ") and said in answer
        assert "\n" not in answer
    for name, said in (("two", "has several configurations"), ("two/no", "no configuration 'no'")):
        assert (
            f"{said}; it has other, plain: write `task` hub:own/two/CONFIG"
            in online[f"hub:own/{name}"]
        )


@pytest.mark.usefixtures("online")
def test_without_a_network_the_cache_answers_and_is_named(home: Path, hub: DataHub) -> None:
    nobody = "http://127.0.0.1:9"
    for environment in ({}, {"HF_HUB_OFFLINE": "1"}):
        found = read(home, nobody, "hub:own/Moods", "hub:own/gone", "imdb", **environment)
        cached = found["hub:own/Moods"]
        assert cached["rows"] == {"train": 64, "evaluation": 32}
        [commit] = hub.repositories["own/Moods"].commits
        said = f"own/Moods at {commit[:12]}: the hub cannot be asked ("
        assert cached["notes"][0].startswith(said) and "from its cache" in cached["notes"][0]
        for name, id in (("hub:own/gone", "own/gone"), ("imdb", "stanfordnlp/imdb")):
            assert f"data set '{id}' is not in the cache of `datasets`" in found[name]
            assert f"`hf download {id} --repo-type dataset --local-dir" in found[name]
            assert "`task` stdlib" in found[name] and "\n" not in found[name]


def test_a_copy_of_a_repository_is_a_task_without_a_hub(home: Path, tmp_path: Path) -> None:
    """As `hf download --local-dir` makes it."""
    for name, content in repository(moods(16), moods(8)).items():
        file = tmp_path / "copy" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    folder = str(tmp_path / "copy")
    [found] = read(home, "http://127.0.0.1:9", folder, HF_HUB_OFFLINE="1").values()
    assert (found["name"], found["rows"]) == ("copy", {"train": 16, "evaluation": 8})


def test_a_search_keeps_the_commit_that_it_began_with_whatever_the_hub_has_later(
    hub: DataHub, tmp_path: Path
) -> None:
    bench, home = make_bench(tmp_path / "bench"), tmp_path / "hf"
    first = hub.add("own/moving", repository(moods(128), moods(32)))

    def run(*command: str, url: str = hub.url) -> subprocess.CompletedProcess[str]:
        done = outside(
            home, url, "-m", "elsa_tune", *command, cwd=bench.folder, CUDA_VISIBLE_DEVICES=""
        )
        # Whether so few rows give an answer is not asked here.
        assert done.returncode in (0, 3), done.stderr
        return done

    tiny = ("epochs=3", "depths=[0, 1]", "learning_rate=[2e-3]", "extend=false")
    settings = [word for one in (*tiny, "linear_probe=false") for word in ("--set", one)]
    task = ("--task", "hub:own/moving", "--name", "moved")
    run("search", "--model", "model", *task, "--seeds", "1", *settings, *ONE_AT_A_TIME)
    kept = bench.folder / "mlruns" / "searches" / "moved" / "search.json"
    assert json.loads(kept.read_text())["task"]["source"]["revision"] == first

    second = hub.add("own/moving", repository(moods(80, "play"), moods(32, "play")))
    shutil.rmtree(home / "datasets")  # the rows must be asked for again
    before = len(hub.asked)
    run("resume", "moved", "--seeds", "2")
    asked = hub.asked[before:]
    assert any(first in one for one in asked)
    assert not any(second in one for one in asked)

    # And a model of it, without a hub.
    run("export", "--search", "moved", "--layers", "1", "--out", "out", url="http://127.0.0.1:9")
    _, front, text = (bench.folder / "out" / "README.md").read_text().split("---\n", 2)
    card = yaml.safe_load(front)
    assert card["datasets"] == ["own/moving"]
    [result] = card["model-index"][0]["results"]
    assert result["dataset"]["type"] == "own/moving"
    assert result["dataset"]["revision"] == first
    assert f"of the data set `own/moving` at commit {first}" in text
