"""What every test may use.

That is the shared data where it lies beside the checkout, a quiet environment, one thread, and the
command line from the outside.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import typer.main

from elsa_tune.cli import app

if TYPE_CHECKING:
    from elsa_tune.searching.cluster.capacity import Capacity

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

# Of every process that tests start, too. On models of this size several threads only wait for each
# other where other tests run beside them: that took thirty times as long.
os.environ["OMP_NUM_THREADS"] = "1"

# Which test files share a process: a Ray, an MLflow whose stores are copies of one, and the ports
# and the memory of a machine on which clusters are started.
ROOMS = {
    "faults/test_driver.py": "ray",
    "integration/test_another_method.py": "ray",
    "integration/test_another_store.py": "ray",
    "integration/test_hunt.py": "ray",
    "integration/test_pretended.py": "ray",
    "integration/test_python.py": "ray",
    "integration/test_recorded_before.py": "ray",
    "integration/test_reproduce.py": "ray",
    "integration/test_search.py": "ray",
    "integration/test_toy_strategy.py": "ray",
    "integration/test_watching.py": "ray",
    "integration/test_damaged_store.py": "mlflow",
    "integration/test_finished.py": "mlflow",
    "integration/test_forwarder.py": "mlflow",
    "integration/test_mlflow_export.py": "mlflow",
    "integration/test_mlflow_store.py": "mlflow",
    "integration/test_stores.py": "mlflow",
    "integration/test_cluster.py": "clusters",
    "integration/test_growing_cluster.py": "clusters",
    "integration/test_jobs.py": "clusters",
    "integration/test_lost_nodes.py": "clusters",
    "integration/test_many_searches.py": "clusters",
    "integration/test_serving.py": "clusters",
    "integration/test_slurm.py": "clusters",
}

# Whoever begins one of these last works alone in the end.
LONGEST = ("standin/test_before_a_search.py", *ROOMS, "integration/test_doctor.py")

# Ray starts its workers at nice 15: beside anything else that runs here they would hardly come on.
os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112 (Ray spells it so)

# A shell lets what it starts in the background ignore Ctrl-C, and so every command of a test would.
signal.signal(signal.SIGINT, signal.default_int_handler)

_numbers = itertools.count()  # of the tests that have no folder

# Ray leaves the pipes of its processes to the garbage collector.
RAY_WARNINGS = ("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage.

    Collecting imports nearly everything, and nothing of that is garbage: looking for some takes a
    fifth of the time.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out the modules of which `-m` would leave nothing: importing them takes seconds."""
    wanted = config.option.markexpr
    if wanted not in ("thorough", "not thorough") or not collection_path.name.startswith("test_"):
        return None
    code = collection_path.read_text(encoding="utf-8")
    if wanted == "thorough":
        return None if re.search(r"pytest\.mark\.thorough|(one_of_each|thorough)\(", code) else True
    return True if re.search(r"^pytestmark = .*pytest\.mark\.thorough", code, re.M) else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Under `--dist loadfile`, run files that share a room in one process, one after the other."""
    from xdist.scheduler import LoadFileScheduling  # a machine with a GPU may lack it

    class Rooms(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = super()._split_scope(nodeid)
            return ROOMS.get(file.removeprefix("tests/"), file)

    return Rooms(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {f"tests/{file}": number for number, file in enumerate(LONGEST)}
    items.sort(key=lambda item: rank.get(item.nodeid.split("::")[0], len(rank)))
    for item in items:
        if "ray" in getattr(item, "fixturenames", ()):
            for warning in RAY_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the top of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Return the folder of real data beside the checkout.

    The test is skipped, with this reason, where it is absent.
    """
    if not SHARED.is_dir():
        pytest.skip("needs ../shared (real GLUE data and published numbers), which is not here")
    return SHARED


@pytest.fixture(scope="session")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the caches of those tests that have no folder."""
    return tmp_path_factory.mktemp("caches")


@pytest.fixture(autouse=True)
def quiet_environment(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, caches: Path
) -> Iterator[None]:
    """Set no network, no user's cache and no colours.

    Tests see neither the machine's state nor leave any.
    """
    # pytest looks through all folders that it has made before it makes another one: with one for
    # each of thousands of tests, that takes longer than many of them.
    if "tmp_path" in request.fixturenames:
        cache = request.getfixturevalue("tmp_path") / "cache"
    else:
        cache = caches / str(next(_numbers))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("ELSA_TUNE_CACHE", str(cache))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    yield


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Take back what a test's trial has set for its process."""
    yield
    torch = sys.modules.get("torch")  # most tests need none, and importing it takes seconds
    if torch is not None:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def settled() -> None:
    """Keep the libraries' objects out of the collector's sight.

    Every trial ends with a look through all objects for memory to give back. Through torch's and
    the other libraries' own it takes longer than a trial of this size.
    """
    _settle(len(sys.modules))


@functools.cache
def _settle(modules: int) -> None:
    """As a search's worker does it, whenever more was imported."""
    gc.collect()
    gc.freeze()


class Outcome(NamedTuple):
    """What a command left behind."""

    status: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture(scope="session", autouse=True)
def commands_made_once() -> Iterator[None]:
    """Keep the commands that typer makes of functions, which it would make anew for each call."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(typer.main, "get_command", functools.cache(typer.main.get_command))
        yield


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process, through `main` and its exit statuses."""

    def command(*arguments: str | Path) -> Outcome:
        monkeypatch.setattr(sys, "argv", ["elsa-tune", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            app.main()
        captured = capsys.readouterr()
        return Outcome(int(ended.value.code or 0), captured.out, captured.err)

    return command


@pytest.fixture(scope="session")
def kept_ray() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as stack:
        yield stack


@pytest.fixture
def ray(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
    kept_ray: contextlib.ExitStack,
) -> Iterator[Capacity]:
    """One Ray for all searches within this process: starting it takes longer than they do."""
    import ray

    from elsa_tune.searching.cluster.ray_session import ray_session

    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    if not ray.is_initialized():
        # Its workers see this environment to the end.
        with pytest.MonkeyPatch.context() as environment:
            environment.setenv("ELSA_TUNE_CACHE", str(tmp_path_factory.mktemp("cache")))
            kept_ray.enter_context(ray_session(None)).ready()
    with ray_session(None) as session:
        yield session.ready()
