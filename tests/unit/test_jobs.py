"""A search that is sent to a cluster: what goes along, what runs there, and what is refused.

The cluster is a stand-in for its dashboard (`tests/dashboard.py`).
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from datasets import Dataset, DatasetDict

from elsa_tune.errors import ModelError, RunError, UsageError
from elsa_tune.searching.board_lines import CandidateLine, counts_of
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.jobs import server as servers
from elsa_tune.searching.jobs.address import dashboard_url
from elsa_tune.searching.jobs.parcel import Parcel, pack
from elsa_tune.searching.jobs.server import JobServer
from elsa_tune.searching.jobs.submitting import pinned_packages
from elsa_tune.searching.request import read_requests
from elsa_tune.specs.adapt.freeze import FULL_MODEL
from elsa_tune.specs.task import FilesSource, TaskSpec
from elsa_tune.tasks.draft import Columns
from elsa_tune.tasks.task_file import resolve_task
from elsa_tune.tracking.journal import Journal
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.training.model.model_files import PACKAGE_DISTRIBUTION
from tests.conftest import Run
from tests.dashboard import Dashboard, dashboard
from tests.recorded_search import search_started, whole_search
from tests.searching import make_bench
from tests.table_store import TableStore

SMALL = ("--set", "linear_probe=false", "--seeds", "3")
SECRET = "s3cret"


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dashboard]:
    # Ray would prefer these to the address that is given.
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:9")
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://127.0.0.1:9")
    with dashboard() as cluster:
        yield cluster
    assert os.environ["RAY_ADDRESS"] == "127.0.0.1:9"


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a model, a task, and what nobody needs."""
    work = tmp_path / "work"
    make_bench(work)
    (work / "model" / "optimizer.pt").write_text("large")
    (work / "model" / "checkpoint-1").mkdir()
    (work / "model" / "checkpoint-1" / "model.safetensors").write_text("larger")
    (work / "notes.txt").write_text("private")
    monkeypatch.chdir(work)
    return work


def packed(work: Path, **options: object) -> Parcel:
    asked = {"model": "minilm", "task": ["stdlib"], "storage_path": str(work / "nowhere")}
    given = SearchOptions(**(asked | options))  # type: ignore[arg-type]
    return pack(given, read_requests(given), work)


@pytest.mark.parametrize("address", ["http://head:8265", "head:8265", "http://head:8265/"])
def test_an_address_of_a_dashboard(address: str) -> None:
    assert dashboard_url(address) == "http://head:8265"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (None, "none is named"),
        ("auto", "auto names no dashboard"),
        (
            "ray://head:10001",
            "that of Ray's client, and jobs go to the dashboard; give http://head",
        ),
        (
            "head:6379",
            "where Ray's nodes meet, and jobs go to the dashboard; give http://head:8265",
        ),
        ("ftp://head", "ftp://head is no dashboard's"),
        ("none", "none names no dashboard"),
        ("http://head:port", "cannot be read"),
        (f"http://me:{SECRET}@head:8265", "has a password in it"),
    ],
)
def test_another_address_is_told_from_it(address: str | None, said: str) -> None:
    with pytest.raises(UsageError) as refused:
        dashboard_url(address)
    assert said in str(refused.value) and ":8265" in str(refused.value).replace(" HOST", "")
    assert SECRET not in str(refused.value)


def test_what_a_search_of_names_needs_is_nothing(work: Path) -> None:
    parcel = packed(work)
    assert parcel.is_empty and parcel.options.model == "minilm"


def test_a_model_and_a_task_of_ones_own_go_along_and_nothing_else(work: Path) -> None:
    (work / "space.yaml").write_text("linear_probe: false\n")
    parcel = packed(work, model="./model", task=["task.yaml"], space="space.yaml")
    assert parcel.files.keys() >= {"task.yaml", "train.csv", "dev.csv", "space.yaml"}
    assert {name for name in parcel.files if "/" in name} >= {
        "model/config.json",
        "model/model.safetensors",
        "model/tokenizer.json",
    }
    names = " ".join(parcel.files)
    assert "optimizer" not in names and "checkpoint" not in names and "notes" not in names
    # As it was typed, which results call the model by.
    assert (parcel.options.model, parcel.options.task) == ("./model", ["task.yaml"])
    with parcel.laid_out() as folder:
        assert (folder / "train.csv").read_text() == (work / "train.csv").read_text()
        # What lies there is all that a search needs.
        os.chdir(folder)
        try:
            [request] = read_requests(parcel.options)
        finally:
            os.chdir(work)
    assert request.spec.model.name == "./model"


def test_a_model_takes_no_file_along_that_lies_outside_its_folder(work: Path) -> None:
    (work / "model" / "model.safetensors").unlink()
    index = {"weight_map": {"a": "../notes.txt"}}
    (work / "model" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match=r"names '\.\./notes\.txt', which is no file of the same"):
        packed(work, model="./model", task=["task.yaml"])


def test_what_lies_elsewhere_gets_a_place(work: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    make_bench(other)
    rows = tmp_path / "rows"
    rows.mkdir()
    (other / "dev.csv").rename(rows / "held out.csv")
    task = other / "task.yaml"
    task.write_text(task.read_text().replace("dev.csv", "../rows/held out.csv"))
    parcel = packed(work, model=str(other / "model"), task=["../other/task.yaml"])
    assert parcel.options.model == "from-elsewhere/1/other/model"
    assert parcel.options.task == ["from-elsewhere/2/other/task.yaml"]
    assert "from-elsewhere/2/other/train.csv" in parcel.files
    text = parcel.written["from-elsewhere/2/other/task.yaml"]
    assert yaml.safe_load(text)["files"] == {
        "train": "train.csv",
        "evaluation": "from-elsewhere/task.yaml-2/held out.csv",
    }
    with parcel.laid_out() as folder:
        os.chdir(folder)
        try:
            [request] = read_requests(parcel.options)
        finally:
            os.chdir(work)
    assert request.spec.task.classes == ("bad", "good")


def test_models_of_one_name_elsewhere_are_told_apart(work: Path, tmp_path: Path) -> None:
    names = []
    for project in ("first", "second"):
        shutil.copytree(work / "model", tmp_path / project / "bert")
        names.append(packed(work, model=f"../{project}/bert").options.model)
    assert names == ["from-elsewhere/1/first/bert", "from-elsewhere/1/second/bert"]


def test_task_files_that_differ_in_their_suffix_alone_keep_their_own_rows(
    work: Path, tmp_path: Path
) -> None:
    text = (work / "task.yaml").read_text()
    rows = (work / "train.csv").read_text()
    for suffix in ("yaml", "yml"):
        (tmp_path / suffix).mkdir()
        (tmp_path / suffix / "train.csv").write_text(f"{rows}of {suffix},good\n")
        task = text.replace("train.csv", f"../{suffix}/train.csv").replace("mood", suffix)
        (work / f"task.{suffix}").write_text(task)
    parcel = packed(work, task=["task.yaml", "task.yml"])
    with parcel.laid_out() as folder, contextlib.chdir(folder):
        for suffix in ("yaml", "yml"):
            there = resolve_task(f"task.{suffix}").source
            assert isinstance(there, FilesSource)
            assert f"of {suffix}," in Path(there.train[0]).read_text()


def test_two_files_of_one_name_in_the_jobs_folder_are_refused(work: Path, tmp_path: Path) -> None:
    """Task files are linked from two folders whose rows have the same name."""
    for name in ("one", "two"):
        make_bench(tmp_path / name)
        task = tmp_path / name / "task.yaml"
        task.write_text(task.read_text().replace("mood", name))
        (work / f"{name}.yaml").symlink_to(task)
    with pytest.raises(UsageError, match=r"two/train\.csv would both be train\.csv in the job's"):
        packed(work, task=["one.yaml", "two.yaml"])


def test_a_written_task_file_takes_no_place_of_another_file(work: Path, tmp_path: Path) -> None:
    """A folder of one's own is called as the one for what lies elsewhere."""
    own = work / "from-elsewhere" / "1" / "other"
    own.mkdir(parents=True)
    (own / "task.yaml").write_text("linear_probe: false\n")
    other = tmp_path / "other"
    make_bench(other)
    task = other / "task.yaml"
    task.write_text(task.read_text().replace("train.csv", str(other / "train.csv")))
    space = "from-elsewhere/1/other/task.yaml"
    with pytest.raises(UsageError, match=r"would both be from-elsewhere/1/other/task\.yaml"):
        packed(work, task=[str(task)], space=space)


def test_a_task_file_that_names_links_or_whole_paths(work: Path) -> None:
    (work / "v3").mkdir()
    (work / "dev.csv").rename(work / "v3" / "dev.csv")
    (work / "dev.csv").symlink_to("v3/dev.csv")
    task = work / "task.yaml"
    task.write_text(task.read_text().replace("train.csv", str(work / "train.csv")))
    parcel = packed(work, task=["task.yaml"])
    files = yaml.safe_load(parcel.written["task.yaml"])["files"]
    assert files == {"train": "train.csv", "evaluation": "v3/dev.csv"}
    assert set(parcel.files) == {"train.csv", "v3/dev.csv"}
    assert resolved_there(parcel).classes == ("bad", "good")


def test_a_task_file_that_names_a_linked_folder(work: Path) -> None:
    rows = Dataset.from_dict({"text": ["a", "b"] * 8, "label": ["good", "bad"] * 8})
    rows.save_to_disk("moods-v3")
    (work / "moods").symlink_to("moods-v3")
    (work / "moods.yaml").write_text("name: moods\nfiles: moods\n")
    parcel = packed(work, task=["moods.yaml"])
    assert resolved_there(parcel).classes == ("bad", "good")


def test_of_glue_only_the_tasks_asked_for_go_along(work: Path) -> None:
    for task in ("RTE", "CoLA", "SST-2"):
        (work / "glue" / task).mkdir(parents=True)
        for split in ("train", "dev", "test"):
            (work / "glue" / task / f"{split}.tsv").write_text("index\tlabel\n")
    parcel = packed(work, task=["rte", "stdlib"], data_dir="glue")
    assert sorted(parcel.files) == ["glue/RTE/dev.tsv", "glue/RTE/train.tsv"]
    assert parcel.options.data_dir == "glue"


def test_a_table_and_a_list_of_tasks(work: Path) -> None:
    (work / "list.txt").write_text("train.csv\nrte\n")
    parcel = packed(work, task=["list.txt"], label="label")
    # The evaluation rows are found there by the same name beside the table.
    assert list(parcel.files) == ["train.csv", "dev.csv"]
    assert parcel.options.task == ["train.csv", "rte"]
    with parcel.laid_out() as folder, contextlib.chdir(folder):
        there = resolve_task("train.csv", columns=Columns("label")).source
        assert isinstance(there, FilesSource)
        assert [Path(file).name for file in there.evaluation] == ["dev.csv"]


def test_evaluation_rows_that_are_a_link_beside_a_table(work: Path) -> None:
    (work / "v2").mkdir()
    (work / "dev.csv").rename(work / "v2" / "holdout.csv")
    (work / "dev.csv").symlink_to("v2/holdout.csv")
    parcel = packed(work, task=["train.csv"], label="label")
    assert list(parcel.files) == ["train.csv", "dev.csv"]
    assert parcel.files["dev.csv"].samefile("v2/holdout.csv")


def test_of_a_data_sets_folder_what_is_read_goes_along(
    work: Path, run: Run, cluster: Dashboard
) -> None:
    """Ray, which packs, heeds a `.gitignore` such as DVC writes beside the tables it keeps."""
    folder = work / "moods"
    (folder / ".git").mkdir(parents=True)
    rows = [f"text {number},{('bad', 'good')[number % 2]}\n" for number in range(40)]
    (folder / "train.csv").write_text("text,label\n" + "".join(rows[:20]))
    (folder / "validation.csv").write_text("text,label\n" + "".join(rows[20:]))
    (folder / ".huggingface.yaml").write_text("license: mit\n")
    (folder / ".gitignore").write_text("/validation.csv\n")
    (folder / ".rayignore").write_text("train.csv\n")
    (folder / ".env").write_text(f"TOKEN={SECRET}\n")
    (folder / ".git" / "config").write_text("private")
    for private in ("id_rsa", "notes.txt", "login.json"):
        (folder / private).write_text("{}")
    what = ("--model", "minilm", "--task", "./moods", "--name", "mine")
    done = run("submit", *what, "--address", cluster.url)
    assert done.status == 0, done.err
    [package] = cluster.packages.values()
    names = {name for name in zipfile.ZipFile(io.BytesIO(package)).namelist() if "." in name}
    assert names == {"moods/.huggingface.yaml", "moods/train.csv", "moods/validation.csv"}


@pytest.mark.parametrize("folder", ["venv", ".venv", ".git", "__pycache__"])
def test_files_below_a_folder_that_ray_leaves_out_go_along(
    folder: str,
    work: Path,
    run: Run,
    cluster: Dashboard,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES", "*.csv")
    tables = work / folder
    tables.mkdir()
    for name in ("moods.csv", "moods_dev.csv"):
        rows = [f"{name} {number},{('bad', 'good')[number % 2]}\n" for number in range(40)]
        (tables / name).write_text("text,label\n" + "".join(rows))
    what = ("--model", "minilm", "--task", f"{folder}/moods.csv", "--name", "mine")
    done = run("submit", *what, "--address", cluster.url)
    assert done.status == 0, done.err
    [package] = cluster.packages.values()
    names = {name for name in zipfile.ZipFile(io.BytesIO(package)).namelist() if "." in name}
    assert {f"{folder}/moods.csv", f"{folder}/moods_dev.csv"} <= names
    assert os.environ["RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES"] == "*.csv"


def resolved_there(parcel: Parcel) -> TaskSpec:
    """Return the task as it is read from what goes along."""
    with parcel.laid_out() as folder, contextlib.chdir(folder):
        [name] = parcel.options.task
        return resolve_task(name)


def test_of_a_saved_data_set_what_was_saved_goes_along(work: Path) -> None:
    rows = Dataset.from_dict({"text": ["a", "b"] * 8, "label": ["good", "bad"] * 8})
    DatasetDict(train=rows, test=rows).save_to_disk("moods")
    (work / "moods" / "id_rsa").write_text(SECRET)
    (work / "moods" / "train" / "cache-1.arrow").write_text("large")
    parcel = packed(work, task=["./moods"])
    names = ["dataset_info.json", "state.json", "data-00000-of-00001.arrow"]
    of_splits = {f"moods/{split}/{name}" for split in ("train", "test") for name in names}
    assert set(parcel.files) == {"moods/dataset_dict.json", *of_splits}
    assert resolved_there(parcel).classes == ("bad", "good")

    rows.save_to_disk("one")
    parcel = packed(work, task=["./one"])
    assert set(parcel.files) == {f"one/{name}" for name in names}
    assert resolved_there(parcel).classes == ("bad", "good")


def test_of_a_copy_of_the_hub_all_configurations_go_along(work: Path) -> None:
    """`datasets` looks for the files of the first one, whichever is read."""
    for config in ("first", "second"):
        (work / "moods" / config).mkdir(parents=True)
        rows = Dataset.from_dict({"text": ["a", "b"] * 8, "label": ["good", "bad"] * 8})
        rows.to_parquet(f"moods/{config}/all.parquet")
    configs = [{"config_name": name, "data_files": f"{name}/*"} for name in ("first", "second")]
    card = yaml.safe_dump({"configs": configs})
    (work / "moods" / "README.md").write_text(f"---\n{card}---\n")
    (work / "moods" / "first" / "id_rsa").write_text(SECRET)
    (work / "moods.yaml").write_text("name: moods\nfiles: moods\nconfig: second\n")
    parcel = packed(work, task=["moods.yaml"])
    tables = {"moods/first/all.parquet", "moods/second/all.parquet"}
    assert set(parcel.files) == {"moods.yaml", "moods/README.md", *tables}
    assert resolved_there(parcel).classes == ("bad", "good")


def test_a_data_set_takes_no_file_along_that_lies_outside_its_folder(work: Path) -> None:
    rows = Dataset.from_dict({"text": ["a", "b"] * 8, "label": ["good", "bad"] * 8})
    rows.save_to_disk("moods")
    (work / "moods" / "data-00000-of-00001.arrow").rename(work / "outside.arrow")
    state = work / "moods" / "state.json"
    state.write_text(state.read_text().replace("data-00000-of-00001", "../outside"))
    parcel = packed(work, task=["./moods"])
    assert set(parcel.files) == {"moods/dataset_info.json", "moods/state.json"}


def test_files_that_are_too_large_are_named(work: Path) -> None:
    parcel = packed(work, model="model")
    parcel.check_size(parcel.size + 1)
    with pytest.raises(UsageError, match=r"MiB \(model/model\.safetensors with .*no_upload") as no:
        parcel.check_size(parcel.size)
    assert len(str(no.value).splitlines()) == 1


def test_it_is_sent_and_the_command_returns(work: Path, run: Run, cluster: Dashboard) -> None:
    what = ("--model", "model", "--task", "task.yaml", "--name", "mine", *SMALL)
    done = run("submit", *what, "--address", cluster.url)
    assert done.status == 0, done.err
    assert done.out == "elsa-tune-1-mine\n"
    assert f"elsa-tune watch mine --address {cluster.url}" in done.err
    assert "record: $HOME/elsa-tune/mlruns/searches/mine on the driver's node" in done.err
    job = cluster.submitted()
    assert job["submission_id"] == "elsa-tune-1-mine"
    assert job["metadata"]["model"] == "model" and job["metadata"]["task"] == "mood"
    [package] = cluster.packages.values()
    names = zipfile.ZipFile(io.BytesIO(package)).namelist()
    assert {"task.yaml", "train.csv", "dev.csv", "model/config.json"} <= set(names)
    assert not [name for name in names if "notes" in name or "optimizer" in name]
    assert not (work / "mlruns").exists()


def shell_of(cluster: Dashboard, home: Path, **variables: str) -> str:
    """Return what the job's shell would run on a node, and in which store."""
    fake = home / "bin" / "python"
    fake.parent.mkdir(parents=True)
    fake.write_text(
        '#!/bin/sh\n[ "$1" = -c ] && exit $LACKS\necho "$MLFLOW_TRACKING_URI|$PWD|$*"\n'
    )
    fake.chmod(0o755)
    entrypoint = cluster.submitted()["entrypoint"]
    environment = {"PATH": f"{fake.parent}:/usr/bin:/bin", "HOME": str(home), "LACKS": "0"}
    done = subprocess.run(
        entrypoint,
        shell=True,
        env=environment | variables,
        capture_output=True,
        text=True,
        cwd=home,
        check=False,
    )
    return (done.stdout + done.stderr).strip()


def test_what_runs_there_is_search_as_it_was_typed(
    work: Path, run: Run, cluster: Dashboard, tmp_path: Path
) -> None:
    (work / "it's mine.csv").write_text((work / "train.csv").read_text())
    what = ("--model", "model", "--task", "it's mine.csv", "--name", "mine", "--label", "label")
    assert run("submit", *what, *SMALL, "--address", cluster.url).status == 0
    home = tmp_path / "home of it"
    ran = shell_of(cluster, home)
    store, folder, words = ran.split("|")
    assert store == f"sqlite:///{home}/elsa-tune/mlruns/mlflow.db"
    assert folder == str(home)
    assert words == (
        "-m elsa_tune search --model model --task it's mine.csv --label label --name mine "
        "--seeds 3 --set linear_probe=false --address auto "
        f"--storage-path {home}/elsa-tune/mlruns/searches"
    )


def test_a_node_has_its_own_store_or_lacks_the_package(
    work: Path, run: Run, cluster: Dashboard, tmp_path: Path
) -> None:
    what = ("--model", "minilm", "--task", "stdlib", "--name", "mine")
    assert run("submit", *what, "--address", cluster.url).status == 0
    assert not cluster.packages  # nothing of this machine is needed
    own = shell_of(cluster, tmp_path / "a", MLFLOW_TRACKING_URI=f"http://me:{SECRET}@store")
    assert own.startswith(f"http://me:{SECRET}@store|")
    lacks = shell_of(cluster, tmp_path / "b", LACKS="1")
    assert lacks.startswith("elsa-tune: this node's python has no elsa-tune") and "|" not in lacks


def test_a_record_below_the_home_there(
    work: Path, run: Run, cluster: Dashboard, tmp_path: Path
) -> None:
    what = ("--model", "minilm", "--task", "stdlib", "--storage-path=~/all/it's")
    assert run("submit", *what, "--address", cluster.url).status == 0
    home = tmp_path / "home of it"
    store, _, words = shell_of(cluster, home).split("|")
    assert store == f"sqlite:///{home}/all/mlflow.db"
    assert words.endswith(f"--storage-path {home}/all/it's")


SERVER_HERE = "http://127.0.0.1:5000"


@pytest.mark.parametrize("server", [SERVER_HERE, "http://localhost:5000", "http://[::1]:5000"])
@pytest.mark.parametrize("upload", ["--upload", "--no-upload"])
def test_a_server_of_this_machine_is_not_the_clusters(
    work: Path,
    run: Run,
    cluster: Dashboard,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    server: str,
    upload: str,
) -> None:
    # A tunnel leads to a head elsewhere, in a network that is kept for examples.
    cluster.nodes[0] |= {"node_ip": "192.0.2.1", "is_head_node": True}
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    what = ("--model", "minilm", "--task", "stdlib", upload, "--address", cluster.url)
    done = run("submit", *what)
    assert done.status == 0, done.err
    home = tmp_path / "home"
    store, _, _ = shell_of(cluster, home).split("|")
    records = work if upload == "--no-upload" else home / "elsa-tune"
    assert store == f"sqlite:///{records}/mlruns/mlflow.db"
    assert f"MLFLOW_TRACKING_URI is {server}, which is not reachable from the cluster" in done.err


def test_a_server_that_is_asked_for_is_the_driver_nodes_own(
    work: Path, run: Run, cluster: Dashboard, tmp_path: Path
) -> None:
    what = ("--model", "minilm", "--task", "stdlib", "--tracking-uri", SERVER_HERE)
    done = run("submit", *what, "--address", cluster.url)
    assert done.status == 0 and "not reachable" not in done.err
    ran = shell_of(cluster, tmp_path / "home")
    assert ran.startswith(f"{SERVER_HERE}|")
    # As an option it moves a search that was recorded elsewhere before.
    assert ran.endswith(f" --tracking-uri {SERVER_HERE}")


def test_a_cluster_whose_head_is_this_machine_has_its_server(
    work: Path,
    run: Run,
    cluster: Dashboard,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    cluster.nodes[0] |= {"node_ip": "127.0.0.1", "is_head_node": True}
    cluster.nodes.append(cluster.nodes[0] | {"node_ip": "192.0.2.1", "is_head_node": False})
    monkeypatch.setenv("MLFLOW_TRACKING_URI", SERVER_HERE)
    done = run("submit", "--model", "minilm", "--task", "stdlib", "--address", cluster.url)
    assert done.status == 0 and "not reachable" not in done.err
    assert shell_of(cluster, tmp_path / "home").startswith(f"{SERVER_HERE}|")


def test_without_upload_it_runs_here_and_records_here(
    work: Path, run: Run, cluster: Dashboard, tmp_path: Path
) -> None:
    what = ("--model", "model", "--task", "task.yaml", "--name", "mine", "--no-upload")
    assert run("submit", *what, "--address", cluster.url).status == 0
    assert not cluster.packages
    ran = shell_of(cluster, tmp_path / "home")
    store, folder, words = ran.split("|")
    assert (store, folder) == (f"sqlite:///{work}/mlruns/mlflow.db", str(work))
    assert words.endswith(f"--storage-path {work}/mlruns/searches")
    work.rename(work.with_name("gone"))
    missing = shell_of(cluster, tmp_path / "home 2")
    assert missing == (
        f"elsa-tune: the driver's node has no folder {work}; share it with the nodes, or have its "
        "files uploaded"
    )
    work.with_name("gone").rename(work)


def test_nothing_secret_is_in_the_jobs_description(
    work: Path, run: Run, cluster: Dashboard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    what = ("--model", "minilm", "--task", "stdlib", "--address", cluster.url)
    typed = run("submit", *what, "--tracking-uri", f"http://me:{SECRET}@store:5000")
    assert typed.status == 2 and "--tracking-uri http://***@store:5000 has a password" in typed.err
    assert "set MLFLOW_TRACKING_URI where Ray is started" in typed.err and SECRET not in typed.err
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http:/me:{SECRET}@store:5000")
    misspelled = run("submit", *what)
    assert misspelled.status == 2 and SECRET not in misspelled.err
    assert "elsa-tune" not in repr(cluster.jobs)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://me:{SECRET}@store:5000")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", SECRET)
    done = run("submit", *what)
    assert done.status == 0, done.err
    assert SECRET not in repr(cluster.jobs) + done.out + done.err
    assert shell_of(cluster, tmp_path / "home").startswith("http://store:5000|")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--storage-path", "here"), "--storage-path here is relative"),
        (("--storage-path", "s3://b/x"), "the storage path s3://b/x is a URL"),
        (("--tracking-uri", "sqlite:///here.db"), "--tracking-uri sqlite:///here.db is relative"),
        (("--gpus-per-trial", "0.5"), "--gpus-per-trial is 0.5, but no node of the cluster"),
        (("--gpu-hours", "2"), "--gpu-hours is 2, but no node of the cluster"),
        (
            ("--cpus-per-trial", "64"),
            "64 CPUs per trial were asked for, but the largest node has 8",
        ),
        (("--artifacts", "ftps3://b/x"), "--artifacts ftps3://b/x has the unknown scheme 'ftps3'"),
        (("--max-time", "soon"), "--max-time soon"),
        (("--task", "no.yaml"), "no.yaml"),
    ],
)
def test_what_cannot_work_there_is_refused_here(
    work: Path, run: Run, cluster: Dashboard, options: tuple[str, ...], said: str
) -> None:
    done = run(
        "submit", "--model", "minilm", "--task", "stdlib", *options, "--address", cluster.url
    )
    assert done.status == 2 and said in done.err.splitlines()[-1], done.err
    assert len(cluster.jobs) == 1 and not cluster.packages


def test_gpus_that_the_cluster_has_or_does_not_tell_of(
    work: Path, run: Run, cluster: Dashboard
) -> None:
    what = ("--model", "minilm", "--task", "stdlib", "--gpus-per-trial", "1")
    cluster.nodes = [{"state": "ALIVE", "resources_total": {"CPU": 8.0, "GPU": 2.0}}]
    assert run("submit", *what, "--address", cluster.url).status == 0
    cluster.nodes = "another version's answer"
    assert run("submit", *what, "--name", "b", "--address", cluster.url).status == 0


def test_cpus_that_only_nodes_without_gpus_have_are_refused(
    work: Path, run: Run, cluster: Dashboard
) -> None:
    what = ("--model", "minilm", "--task", "stdlib", "--address", cluster.url)
    cluster.nodes = [
        {"state": "ALIVE", "resources_total": {"CPU": 16.0}},
        {"state": "ALIVE", "resources_total": {"CPU": 4.0, "GPU": 1.0}},
    ]
    done = run("submit", *what, "--cpus-per-trial", "8")
    assert done.status == 2
    assert "of the nodes with GPUs the largest has 4; give --cpus-per-trial up to that" in done.err
    assert run("submit", *what).status == 0


@pytest.mark.parametrize("status", ["PENDING", "RUNNING"])
def test_a_name_of_a_running_job_is_taken(
    work: Path, run: Run, cluster: Dashboard, status: str
) -> None:
    cluster.job("elsa-tune-1-mine", "FAILED", 1)
    cluster.job("elsa-tune-2-mine", status)
    what = ("--model", "minilm", "--task", "stdlib", "--address", cluster.url, "--name")
    done = run("submit", *what, "mine")
    assert done.status == 2
    assert f"search 'mine' is {status.lower()} as job elsa-tune-2-mine" in done.err
    assert run("submit", *what, "2-mine").out == "elsa-tune-1-2-mine\n"


@pytest.mark.parametrize(
    ("status", "exit_status", "state"),
    [
        ("STOPPED", None, "interrupted"),
        ("FAILED", 130, "interrupted"),
        ("FAILED", 1, "failed"),
        ("FAILED", 3, "completed"),
        ("SUCCEEDED", 0, "completed"),
    ],
)
def test_a_search_that_has_ended_goes_on(
    work: Path, run: Run, cluster: Dashboard, status: str, exit_status: int | None, state: str
) -> None:
    cluster.job("elsa-tune-9-mine", status, exit_status)
    cluster.job("elsa-tune-10-mine", status, exit_status)
    what = ("--model", "minilm", "--task", "stdlib", "--name", "mine")
    done = run("submit", *what, "--address", cluster.url)
    assert done.out == "elsa-tune-11-mine\n"
    assert f"submitted before (job elsa-tune-10-mine, {state}): this one goes on" in done.err


def test_two_who_submit_at_once(work: Path, run: Run, cluster: Dashboard) -> None:
    cluster.refuses = (500, "Traceback ...\nValueError: Job with submission_id x already exists.")
    what = ("--model", "minilm", "--task", "stdlib", "--name", "mine")
    done = run("submit", *what, "--address", cluster.url)
    assert done.status == 2
    said = done.err.splitlines()[-1]
    assert said == (
        "elsa-tune: search 'mine' cannot be submitted: somebody else has just submitted it"
    )
    cluster.refuses = (500, "Traceback ...\n  File x\nRuntimeError: no agent\n")
    done = run("submit", *what, "--address", cluster.url)
    assert done.status == 1
    assert done.err.splitlines()[-1].endswith("cannot be submitted: RuntimeError: no agent")


def test_submitted_again_it_says_which_record_it_goes_on_from(
    work: Path, run: Run, cluster: Dashboard
) -> None:
    record = "$HOME/elsa-tune/mlruns/searches/mine"
    cluster.job("elsa-tune-1-mine", "STOPPED", metadata={"record": record})
    what = ("submit", "--model", "minilm", "--task", "stdlib", "--name", "mine")
    done = run(*what, "--storage-path", "/all", "--address", cluster.url)
    assert f"it recorded in {record}; this one goes on from /all/mine\n" in done.err
    cluster.job("elsa-tune-2-mine", "STOPPED", metadata={"record": record})
    done = run(*what, "--address", cluster.url)
    assert "(job elsa-tune-2-mine, interrupted): this one goes on from its record" in done.err


def test_an_address_where_nothing_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(UsageError, match=r"no dashboard answers at .* \(Connection refused\); it"):
        JobServer(f"127.0.0.1:{port}")
    with pytest.raises(UsageError, match=r"no dashboard answers at .* \(.+\); it"):
        JobServer("http://no-such-host.invalid:8265")


def test_a_dashboard_that_answers_late(cluster: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "ANSWER_SECONDS", 0.2)
    cluster.patience.clear()
    with pytest.raises(UsageError, match="was reached, but did not answer in time"):
        JobServer(cluster.url)


def test_another_version_of_ray(cluster: Dashboard) -> None:
    cluster.version = {"ray_version": "2.41.0"}
    with pytest.raises(UsageError, match=r"runs Ray 2\.41\.0, and this machine has 2\."):
        JobServer(cluster.url)


@pytest.mark.parametrize("version", ["<html>", {"version": "3"}, [1]])
def test_something_else_that_answers(cluster: Dashboard, version: object) -> None:
    cluster.version = version
    with pytest.raises(UsageError, match="is no dashboard of Ray's; give http://HOST:8265"):
        JobServer(cluster.url)


def test_what_speaks_no_http() -> None:
    """Ray's own port is such a one, wherever it was put."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            connection, _ = server.accept()
            connection.sendall(b"\x00\x00\x12\x04")
            connection.close()

        thread = threading.Thread(target=greet)
        thread.start()
        with pytest.raises(UsageError, match="is no dashboard of Ray's"):
            JobServer(f"127.0.0.1:{server.getsockname()[1]}")
        thread.join()


def test_a_dashboard_without_jobs_or_that_refuses(cluster: Dashboard) -> None:
    cluster.status = 404
    with pytest.raises(UsageError, match=r"takes no jobs: install `ray\[default\]` on"):
        JobServer(cluster.url)
    cluster.status = 401
    with pytest.raises(UsageError, match=r"asks for a token; copy ~/\.ray/auth_token"):
        JobServer(cluster.url)


def test_other_errors_with_a_404_are_told_as_they_are(cluster: Dashboard) -> None:
    server = JobServer(cluster.url)
    cluster.status, cluster.text = 500, "node 404 is gone"
    with pytest.raises(RunError, match="500: node 404 is gone"):
        server.jobs()


def test_a_dashboard_that_has_failed_says_no_more_than_that(cluster: Dashboard) -> None:
    """As aiohttp answers where the cluster's GCS server is gone."""
    cluster.job("elsa-tune-3-two", "RUNNING")
    server = JobServer(cluster.url)
    job = server.find("two")
    cluster.status = 500
    cluster.text = "500 Internal Server Error\n\nServer got itself in trouble"
    said = f"the dashboard at {cluster.url} answers with an error (500)"
    with pytest.raises(RunError) as failed:
        server.log(job)
    assert str(failed.value) == said
    with pytest.raises(RunError) as failed:
        server.again(job)
    assert str(failed.value) == f"elsa-tune-3-two: {said}"
    with pytest.raises(RunError) as failed:
        JobServer(cluster.url)
    assert str(failed.value) == said


def test_ray_without_its_jobs(cluster: Dashboard, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Ray itself finds it, where its HTTP libraries are not installed."""
    monkeypatch.setattr("ray.dashboard.modules.job.sdk.requests", None)
    with pytest.raises(UsageError, match=r"jobs need `ray\[default\]`.*'elsa-tune\[cluster\]'"):
        JobServer(cluster.url)


def test_a_search_that_was_never_submitted(run: Run, cluster: Dashboard) -> None:
    cluster.job("elsa-tune-1-mine", "RUNNING")
    for command in ("watch", "logs", "stop"):
        done = run(command, "other", "--address", cluster.url)
        assert done.status == 2
        assert f"no search 'other' was submitted to {cluster.url} (it has mine)" in done.err


def test_a_job_is_followed_line_by_line_to_its_end(
    run: Run, cluster: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from elsa_tune.searching.jobs import watched

    cluster.job("elsa-tune-1-mine", "RUNNING", start_time=1000)
    cluster.logs = ["Ray says\nRunning entrypoint for job x: sh\nsearch: rea"]
    cluster.logs.append(cluster.logs[0] + "ding\n[1/2] one: comple")
    cluster.logs.append(cluster.logs[1] + "ted\nthe answer")

    def end(seconds: float) -> None:
        if len(cluster.logs) == 1:
            cluster.job("elsa-tune-1-mine", "SUCCEEDED", 0)

    monkeypatch.setattr(watched.time, "sleep", end)
    done = run("watch", "--address", cluster.url)
    assert done.status == 0
    assert done.err.splitlines() == [
        f"search 'mine', job elsa-tune-1-mine on {cluster.url}: running",
        "search: reading",
        "[1/2] one: completed",
        "the answer",
        "job elsa-tune-1-mine: completed",
    ]
    assert run("logs", "mine", "--address", cluster.url).out == cluster.logs[0]


@pytest.mark.parametrize("command", [("watch",), ("logs", "--follow")])
def test_a_job_that_vanishes_is_not_asked_for_again(
    run: Run, cluster: Dashboard, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    from elsa_tune.searching.jobs import watched

    cluster.job("elsa-tune-1-mine", "RUNNING")
    cluster.logs = ["Running entrypoint for job x: sh\nsearch: reading\n"]
    slept: list[float] = []

    def vanish(seconds: float) -> None:
        slept.append(seconds)
        cluster.jobs.clear()

    monkeypatch.setattr(watched.time, "sleep", vanish)
    done = run(*command, "mine", "--address", cluster.url)
    assert done.status == 2 and len(slept) == 1
    said = f"{cluster.url} has no job elsa-tune-1-mine any more: it was deleted, or the cluster was"
    assert said in done.err.splitlines()[-1]


@pytest.mark.parametrize(
    "options",
    [
        ("watch", "--address", "http://head:8265", "--storage-path", "runs"),
        ("watch", "--address", "http://head:8265", "--tracking-uri", "sqlite:///a.db"),
        ("watch", "--storage-path", "runs", "--tracking-uri", "sqlite:///a.db"),
        ("stop", "--address", "http://head:8265", "--storage-path", "runs"),
    ],
)
def test_one_place_alone_is_looked_at(run: Run, options: tuple[str, ...]) -> None:
    done = run(*options)
    assert done.status == 2 and "each say where to look; give one of them" in done.err
    for option in options:
        assert not option.startswith("--") or option in done.err


def test_a_job_is_left_by_ctrl_c(
    run: Run, cluster: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    from elsa_tune.searching.jobs import watched

    cluster.job("elsa-tune-1-mine", "RUNNING")
    cluster.logs = [""]

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(watched.time, "sleep", interrupt)
    for command in (("watch",), ("logs", "--follow")):
        done = run(*command, "mine", "--address", cluster.url)
        assert done.status == 0 and done.err.endswith("left; the search goes on\n")
    assert not cluster.stopped


def test_ctrl_c_before_a_job_is_found_leaves_none(
    run: Run, cluster: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(JobServer, "named", interrupt)
    for command in (("watch",), ("logs", "--follow")):
        done = run(*command, "mine", "--address", cluster.url)
        assert done.status == 130 and done.err == "elsa-tune: interrupted\n"


def test_a_job_that_never_began_says_why(run: Run, cluster: Dashboard) -> None:
    trace = "runtime_env setup failed:\nTraceback ...\n  File x\nValueError: no such package\n."
    cluster.job("elsa-tune-1-mine", "FAILED", message=trace)
    cluster.logs = ["Ray says\n"]
    done = run("watch", "mine", "--address", cluster.url)
    assert done.err.splitlines()[-1] == (
        "job elsa-tune-1-mine: failed (ValueError: no such package)"
    )


@pytest.mark.parametrize(
    ("ended", "exit_status", "status"),
    [
        ("SUCCEEDED", 0, 0),
        ("FAILED", 1, 1),
        ("FAILED", 2, 2),
        ("FAILED", 3, 3),
        ("FAILED", 130, 130),
        ("FAILED", 137, 1),  # its driver was killed
        ("FAILED", None, 1),  # it never began
        ("STOPPED", None, 130),
    ],
)
def test_a_watched_job_gives_its_exit_status(
    run: Run, cluster: Dashboard, ended: str, exit_status: int | None, status: int
) -> None:
    cluster.job("elsa-tune-1-mine", ended, exit_status)
    cluster.logs = ["Ray says\n"]
    done = run("watch", "mine", "--address", cluster.url)
    assert done.status == status, done.err
    assert done.err.splitlines()[-1].startswith("job elsa-tune-1-mine: ")


def test_a_job_is_stopped_once(run: Run, cluster: Dashboard) -> None:
    cluster.job("elsa-tune-1-mine", "SUCCEEDED", 0)
    cluster.job("elsa-tune-2-mine", "RUNNING")
    done = run("stop", "mine", "--address", cluster.url)
    assert done.status == 0 and "the same `elsa-tune submit` with --name mine goes on" in done.err
    assert cluster.stopped == ["elsa-tune-2-mine"]
    again = run("stop", "mine", "--address", cluster.url)
    assert again.status == 2 and "job elsa-tune-2-mine is interrupted" in again.err


@pytest.mark.parametrize(
    ("status", "exit_status", "state"),
    [("SUCCEEDED", 0, "completed"), ("FAILED", 3, "completed"), ("FAILED", 1, "failed")],
)
def test_a_job_that_ends_before_it_is_stopped_says_how(
    run: Run, cluster: Dashboard, status: str, exit_status: int, state: str
) -> None:
    cluster.job("elsa-tune-1-mine", "RUNNING")
    cluster.stops_as = (status, exit_status)
    done = run("stop", "mine", "--address", cluster.url)
    assert done.status == 0
    assert done.err.splitlines()[-1] == (
        f"search 'mine': {state} before it was stopped; `elsa-tune logs mine --address "
        f"{cluster.url}` prints what it said"
    )


def test_a_job_that_ends_by_itself_as_interrupted_goes_on(run: Run, cluster: Dashboard) -> None:
    cluster.job("elsa-tune-1-mine", "RUNNING")
    cluster.stops_as = ("FAILED", 130)
    done = run("stop", "mine", "--address", cluster.url)
    assert done.status == 0 and "search 'mine': interrupted" in done.err


def test_without_a_name_only_the_one_under_way_is_stopped(run: Run, cluster: Dashboard) -> None:
    cluster.job("elsa-tune-1-mine", "SUCCEEDED", 0, start_time=3000)
    none = run("stop", "--address", cluster.url)
    assert none.status == 2 and f"no search is under way at {cluster.url}" in none.err
    cluster.job("elsa-tune-1-hers", "RUNNING", start_time=2000)
    cluster.job("elsa-tune-1-his", "PENDING", start_time=1000)
    two = run("stop", "--address", cluster.url)
    assert two.status == 2 and "2 searches are under way" in two.err
    assert "'hers' and 'his'; name the one to stop" in two.err and not cluster.stopped
    assert run("stop", "his", "--address", cluster.url).status == 0
    assert run("stop", "--address", cluster.url).status == 0
    assert cluster.stopped == ["elsa-tune-1-his", "elsa-tune-1-hers"]


def test_the_list_has_jobs_whose_record_is_elsewhere(
    work: Path, run: Run, cluster: Dashboard
) -> None:
    about = {"model": "minilm", "task": "rte"}
    cluster.job("elsa-tune-1-old", "SUCCEEDED", 0, start_time=1000)
    cluster.job("elsa-tune-1-mine", "STOPPED", start_time=2000)
    cluster.job("elsa-tune-2-mine", "RUNNING", start_time=3000, metadata=about)
    done = run("searches", "--address", cluster.url)
    rows = [line.split()[:4] for line in done.out.splitlines()[1:]]
    assert rows == [["mine", "minilm", "rte", "running"], ["old", "-", "-", "completed"]]
    assert f"Next: elsa-tune watch mine --address {cluster.url}" in done.err


def test_all_rows_of_the_list_have_the_same_keys(work: Path, run: Run, cluster: Dashboard) -> None:
    with Journal(SearchPaths(StorePaths(work).storage, "here").journal) as journal:
        journal.append(search_started("here"))
    cluster.job("elsa-tune-1-there", "SUCCEEDED", 0)
    done = run("searches", "--address", cluster.url, "--format", "json")
    here, there = sorted(json.loads(done.out), key=lambda row: str(row["name"]))
    assert here.keys() == there.keys()


def test_a_job_is_counted_by_its_log(work: Path, run: Run, cluster: Dashboard) -> None:
    cluster.job("elsa-tune-1-mine", "RUNNING")
    counts = Counter({"done": 2, "running": 1, "waiting": 30})
    line = CandidateLine(FULL_MODEL, counts, None, None)
    _, progress = counts_of([line], (13, 109), "epoch 1/3 for 56 s")
    cluster.logs = [f"waiting for room: others have it\n{progress}; 3 min elapsed\nexploring\n"]
    [row] = json.loads(run("searches", "--address", cluster.url, "--format", "json").out)
    assert (row["trials_done"], row["trials_planned"], row["trials_running"]) == (2, 109, 1)
    assert row["waits_for"] is None
    assert "running (1 trial)" in run("searches", "--address", cluster.url).out
    cluster.logs = ["0/12 trials: 12 waiting; 1 min elapsed\nwaiting for room: others have it\n"]
    done = run("searches", "--address", cluster.url)
    assert "running (no trial)" in done.out
    assert "search 'mine' waits for room: others have it" in done.err
    cluster.logs = [cluster.logs[0] + "exploring: 10 trials over 5 depths\n"]
    assert "waits for" not in run("searches", "--address", cluster.url).err
    cluster.logs = [cluster.logs[0] + "[3/14] measure-N2-s1: completed at 84.0\n"]
    [row] = json.loads(run("searches", "--address", cluster.url, "--format", "json").out)
    assert (row["trials_done"], row["trials_planned"], row["waits_for"]) == (3, 14, None)
    said = "waiting for a GPU: others have all 8 of the cluster; Ctrl-C ends the wait\n"
    cluster.logs = [said]
    done = run("searches", "--address", cluster.url)
    assert "search 'mine' waits for a GPU: others have all 8 of the cluster\n" in done.err
    cluster.logs = ["no node that could train a trial answers; waiting 5 min for another\n"]
    done = run("searches", "--address", cluster.url)
    assert "search 'mine' waits for a node that can train" in done.err
    cluster.logs = ["starting Ray\n"]
    [row] = json.loads(run("searches", "--address", cluster.url, "--format", "json").out)
    assert row["trials_done"] is None and row["trials_running"] is None


def test_a_running_job_is_not_hidden_by_an_older_search_of_its_name(
    work: Path, run: Run, cluster: Dashboard
) -> None:
    storage = StorePaths(work).storage
    for name in ("mine", "shared"):
        with Journal(SearchPaths(storage, name).journal) as journal:
            for record in whole_search(name, 4):
                journal.append(record)
    cluster.job("elsa-tune-1-mine", "RUNNING", metadata={"record": "/elsewhere/mine"})
    record = str(SearchPaths(storage, "shared").folder)
    cluster.job("elsa-tune-1-shared", "PENDING", metadata={"record": record})
    cluster.logs = [""]
    rows = json.loads(run("searches", "--address", cluster.url, "--format", "json").out)
    states = sorted((row["name"], row["status"]) for row in rows)
    assert states == [("mine", "completed"), ("mine", "running"), ("shared", "completed")]
    cluster.job("elsa-tune-1-mine", "SUCCEEDED", 0, metadata={"record": "/elsewhere/mine"})
    rows = json.loads(run("searches", "--address", cluster.url, "--format", "json").out)
    assert sorted(row["name"] for row in rows) == ["mine", "shared"]


@pytest.mark.parametrize("command", ["watch", "stop", "searches"])
def test_what_is_not_recorded_here_may_be_on_a_cluster(work: Path, run: Run, command: str) -> None:
    done = run(command, "mine")
    assert done.status == 2 and "one that was submitted is found by --address" in done.err
    storage = StorePaths(work).storage
    with Journal(SearchPaths(storage, "other").journal) as journal:
        journal.append(search_started("other"))
    done = run(command, "mine")
    assert done.status == 2 and "One that was submitted is found by --address." in done.err


def test_a_search_that_was_not_submitted_has_no_log(run: Run) -> None:
    done = run("logs", "mine")
    assert done.status == 2 and "give --address" in done.err


def test_pip_installs_this_machines_versions() -> None:
    pins = pinned_packages()
    names = {pin.split("==")[0] for pin in pins}
    assert {"torch", "transformers", "optuna", "mlflow"} <= names
    # A node has Ray, and is sent the package itself.
    assert not {"ray", "elsa-tune", "pytest"} & names
    assert not [pin for pin in pins if "+" in pin]


def test_pip_installs_what_the_places_need_there(
    work: Path, run: Run, cluster: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = ("--model", "minilm", "--task", "stdlib", "--name", "mine", "--environment", "pip")
    places = ("--artifacts", "s3://bucket", "--tracking-uri", "postgresql+psycopg://db/elsa")
    done = run("submit", *what, *places, "--address", cluster.url)
    assert done.status == 0, done.err
    more = set(cluster.submitted()["runtime_env"]["pip"]["packages"]) - set(pinned_packages())
    names = sorted(re.split("[=[]", package)[0] for package in more)
    assert names == ["fsspec", PACKAGE_DISTRIBUTION, "psycopg", "s3fs"]


def test_pip_installs_the_package_of_the_model_and_no_other(
    work: Path, run: Run, cluster: Dashboard
) -> None:
    what = ("--task", "stdlib", "--environment", "pip", "--address", cluster.url)
    assert run("submit", "--model", "model", *what).status == 0
    assert cluster.submitted()["runtime_env"]["pip"]["packages"] == pinned_packages()
    cluster.jobs.clear()
    assert run("submit", "--model", "minilm", *what).status == 0
    more = set(cluster.submitted()["runtime_env"]["pip"]["packages"]) - set(pinned_packages())
    assert [package.partition("==")[0] for package in more] == [PACKAGE_DISTRIBUTION]


def test_a_store_of_another_package_is_taken_there_with_its_packages(
    work: Path, run: Run, cluster: Dashboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    what = ("--model", "minilm", "--task", "stdlib", "--environment", "pip")
    monkeypatch.setattr(TableStore, "packages", lambda store: {"table-client"})
    done = run("submit", *what, "--tracking-uri", "records:///db", "--address", cluster.url)
    assert done.status == 0, done.err
    assert "table-client" in cluster.submitted()["runtime_env"]["pip"]["packages"]


@pytest.mark.parametrize("folder", ["/shared/kept/", "file:///shared/kept", "kept", "./kept"])
def test_a_folder_of_copies_is_absolute_there(
    work: Path, run: Run, cluster: Dashboard, folder: str
) -> None:
    what = ("--model", "minilm", "--task", "stdlib", "--address", cluster.url)
    done = run("submit", *what, "--artifacts", folder)
    if "/shared" in folder:
        assert done.status == 0, done.err
    else:
        assert done.status == 2 and f"--artifacts {folder} is relative" in done.err


def test_nodes_without_the_package_are_sent_it(
    work: Path, run: Run, cluster: Dashboard, tmp_path: Path
) -> None:
    what = ("--model", "model", "--task", "stdlib", "--name", "mine", "--environment", "pip")
    assert run("submit", *what, "--address", cluster.url).status == 0
    assert cluster.submitted()["runtime_env"]["pip"]["packages"] == pinned_packages()
    [package] = cluster.packages.values()
    there = tmp_path / "there"
    zipfile.ZipFile(io.BytesIO(package)).extractall(there)
    program = (
        "import elsa_tune, elsa_tune.specs.space as space\n"
        "print(elsa_tune.__file__, space.shipped_spaces()['joint'])\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment,
        cwd=there,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == [
        f"{there}/elsa_tune/__init__.py",
        f"{there}/elsa_tune/search_spaces/joint.yaml",
    ], done.stderr
