"""Places: which are good, and what is said of those that are not."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from elsa_tune.errors import StorageError, TrackingError, UnknownNameError
from elsa_tune.tracking import stores
from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import (
    SearchPaths,
    artifact_root_for,
    find_search,
    search_names,
    sqlite_file,
)
from elsa_tune.tracking.places import StorePaths
from tests.recorded_search import journal_of, search_started

HERE = StorePaths(Path("/home/me/work"))


def test_the_default_store_is_absolute() -> None:
    assert HERE.tracking_uri() == "sqlite:////home/me/work/mlruns/mlflow.db"
    assert HERE.artifact_root == Path("/home/me/work/mlruns/artifacts")
    assert HERE.storage == Path("/home/me/work/mlruns/searches")
    assert StorePaths(Path("work")).tracking_uri().startswith("sqlite:////")


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("sqlite:///runs/a.db", "sqlite:////home/me/work/runs/a.db"),
        ("sqlite:////data/a b.db", "sqlite:////data/a b.db"),
        ("http://server:5000/", "http://server:5000"),
        ("https://me:secret@server/mlflow", "https://me:secret@server/mlflow"),
        ("postgresql+psycopg://me@db/mlflow", "postgresql+psycopg://me@db/mlflow"),
        ("databricks", "databricks"),
        ("HTTPS://me:secret@server", "https://me:secret@server"),
        ("postgresql://me@azure:s3/c?r#t@db/mlflow", "postgresql://me@azure:s3/c?r#t@db/mlflow"),
    ],
)
def test_a_given_uri(given: str, used: str) -> None:
    assert HERE.tracking_uri(given) == used


def test_the_variable_counts_when_nothing_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://server:5000")
    assert HERE.tracking_uri() == "http://server:5000"
    assert HERE.tracking_uri("sqlite:///a.db") == "sqlite:////home/me/work/a.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
    assert HERE.tracking_uri() == "sqlite:////home/me/work/mlruns/mlflow.db"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("./mlruns", r"file store.*sqlite:///FILE\.db"),
        ("/data/mlruns", r"file store.*sqlite:///FILE\.db"),
        ("file:///data/mlruns", r"file store.*sqlite:///FILE\.db"),
        ("mlflow.db", r"file store.*sqlite:///FILE\.db"),
        ("sqlite://", r"sqlite:///FILE\.db"),
        ("sqlite:///:memory:", r"sqlite:///FILE\.db"),
        ("sqlite:///a.db?mode=ro", r"a\.db\?mode=ro cannot hold .*another folder"),
        ("sqlite:////data/100%/a.db", r"100%/a\.db cannot hold"),
        ("ftp://me:secret@server", r"'ftp://\*\*\*@server' is of no known kind"),
    ],
)
def test_a_uri_that_is_no_store(given: str, message: str) -> None:
    with pytest.raises(TrackingError, match=message):
        HERE.tracking_uri(given)


def test_schemes_of_other_packages_are_among_those_to_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Another test may have registered a store for good.
    monkeypatch.setattr(stores, "_STORES", {"vault": MlflowStore})
    with pytest.raises(TrackingError, match=r"HOST:PORT, postgresql://\.\.\. or vault://\.\.\.$"):
        HERE.tracking_uri("ftp://server")


@pytest.mark.parametrize(
    ("named", "folder"),
    [
        (None, "/home/me/work/mlruns/searches"),
        ("here", "/home/me/work/here"),
        ("/data/a:b", "/data/a:b"),
        ("file:///data/a%20b", "/data/a b"),
        ("FILE:///data", "/data"),
        (str(Path("file:///data/c")), "/data/c"),
        ("./s3:/bucket", "/home/me/work/s3:/bucket"),
    ],
)
def test_a_given_storage_path(named: str | None, folder: str) -> None:
    assert HERE.storage_at(named) == Path(folder)


@pytest.mark.parametrize(
    "url",
    ["s3://bucket/x", "GS://bucket", "hf+x://a/b", "file://host/x", str(Path("s3://bucket/x"))],
)
def test_a_storage_path_that_is_no_folder(url: str) -> None:
    with pytest.raises(StorageError, match=r" is a URL, .* as `artifacts`") as refused:
        HERE.storage_at(url)
    assert url in str(refused.value)


def test_a_storage_path_shows_no_secret() -> None:
    with pytest.raises(StorageError, match=r"path s3://\*\*\*@bucket is a URL"):
        HERE.storage_at("s3://key:geheim@bucket")


def test_where_files_go() -> None:
    here = HERE.working_directory
    assert artifact_root_for("sqlite:////data/a.db", here) == Path("/data/artifacts")
    assert artifact_root_for("http://server:5000", here) is None
    assert artifact_root_for("postgresql://db/mlflow", here) == HERE.artifact_root
    assert sqlite_file("http://server:5000") is None


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a b", ".hidden", "ü", "x" * 101])
def test_a_name_that_cannot_be_a_folder(name: str) -> None:
    with pytest.raises(StorageError, match="cannot be used; write letters"):
        SearchPaths(Path("/s"), name)


def test_all_files_lie_in_the_folder() -> None:
    paths = SearchPaths(Path("/s"), "Rte-minilm_1.0")
    files = (paths.journal, paths.specification, paths.lock, paths.forwarded, paths.ray)
    assert {file.parent for file in (*files, paths.predictions)} == {Path("/s/Rte-minilm_1.0")}
    assert len(set(files)) == len(files)


@pytest.mark.parametrize(
    ("store", "kept", "moved"),
    [
        ("sqlite:////home/me/mlruns/mlflow.db", "sqlite:///mlflow.db", "sqlite:////new/mlflow.db"),
        ("sqlite:////home/me/mlruns/a/b.db", "sqlite:///a/b.db", "sqlite:////new/a/b.db"),
        (
            "sqlite:////home/me/other.db",
            "sqlite:////home/me/other.db",
            "sqlite:////home/me/other.db",
        ),
        ("http://user:pass@host:5000", "http://user:pass@host:5000", "http://user:pass@host:5000"),
    ],
)
def test_a_store_beside_the_searches_moves_with_them(store: str, kept: str, moved: str) -> None:
    here = SearchPaths(Path("/home/me/mlruns/searches"), "first")
    assert here.uri_to_keep(store) == kept
    assert here.uri_kept(kept) == here.uri_kept(store) == store
    assert SearchPaths(Path("/new/searches"), "first").uri_kept(kept) == moved


@pytest.mark.parametrize("cut", ["sqlite:////home/me/R&***", "sqlite:////home/me/run#lr=***"])
def test_a_store_that_an_earlier_version_cut_short_is_the_default_one(cut: str) -> None:
    here = SearchPaths(Path("/home/me/R&D/mlruns/searches"), "first")
    assert here.uri_kept(cut) == "sqlite:////home/me/R&D/mlruns/mlflow.db"


def test_around_a_storage_at_the_root_lies_everything_and_nothing() -> None:
    store = "sqlite:////home/me/mlruns/mlflow.db"
    assert SearchPaths(Path("/searches"), "first").uri_to_keep(store) == store


def test_check_writable(tmp_path: Path) -> None:
    paths = SearchPaths(tmp_path / "new", "a")
    paths.check_writable()
    assert list(paths.folder.iterdir()) == [] and not paths.exists
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"cannot write in .*`storage_path`"):
        SearchPaths(tmp_path / "file", "a").check_writable()


def test_finding_a_search(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="no search is recorded in"):
        find_search(tmp_path / "nothing", "rte")
    journal_of(tmp_path, "rte-minilm", [search_started()])
    (tmp_path / "other").mkdir()
    (tmp_path / ".deleted-x").mkdir()
    assert search_names(tmp_path) == ["rte-minilm"]
    assert find_search(tmp_path, "rte-minilm").name == "rte-minilm"
    with pytest.raises(UnknownNameError, match="did you mean 'rte-minilm'"):
        find_search(tmp_path, "rte-minilmm")


@pytest.mark.parametrize("place", ["/runs/my runs", "/runs/$(touch x)", "/runs/a'b", "/runs/a;b"])
def test_a_printed_command_can_be_pasted(place: str) -> None:
    paths = SearchPaths(Path(place), "mine")
    assert shlex.split(paths.resume) == ["elsa-tune", "resume", "mine", "--storage-path", place]
