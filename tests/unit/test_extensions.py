"""What an installed package brings is there in every process, without anybody importing it."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from elsa_tune.errors import ExtensionError
from elsa_tune.sources.journals import Journals
from elsa_tune.sources.record import list_searches, recorded
from elsa_tune.sources.source import Question, Say, Searches
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from tests.forked import Nursery, nursery

# Runs a program's text, or the command line with arguments.
Run = Callable[..., "subprocess.CompletedProcess[str]"]
COMMAND = "-m elsa_tune"

TASK = """
name: topics
kind: several
files: topics.csv
text: text
label: topics
"""
ROWS = "text,topics\n" + "".join(f"row {n},{('war', 'war;love', '')[n % 3]}\n" for n in range(60))


@pytest.fixture
def site(root: Path, tmp_path: Path) -> Path:
    """Return a folder of packages in which one is installed that brings a method and a task."""
    folder = tmp_path / "site"
    metadata = folder / "elsa_extras-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: elsa-extras\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(
        "[elsa_tune.extensions]\nmethod = extras_method\ntask = extras_task\n"
    )
    shutil.copy(root / "tests" / "low_rank.py", folder / "extras_method.py")
    shutil.copy(root / "tests" / "several_labels.py", folder / "extras_task.py")
    return folder


@pytest.fixture(scope="module")
def imported() -> Iterator[Nursery]:
    """Return a process that has imported what takes long, and nothing that finds extensions."""
    with nursery("numpy", "transformers.modeling_utils", "typer.main") as parent:
        yield parent


@pytest.fixture
def run(imported: Nursery, site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs a program, or `-m elsa_tune` with arguments, where a package is installed.

    It runs in the test's own folder.
    """
    monkeypatch.chdir(tmp_path)

    def run_there(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        if program == COMMAND:
            program = "import runpy; runpy.run_module('elsa_tune', run_name='__main__')"
        ended: subprocess.CompletedProcess[str] = imported.run(
            f"import sys; sys.path.insert(0, {str(site)!r})\n{program}", *arguments
        )
        return ended

    return run_there


def test_a_task_file_has_a_kind_that_an_installed_package_brings(
    site: Path, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "topics.yaml").write_text(TASK)
    (tmp_path / "topics.csv").write_text(ROWS)
    done = run(COMMAND, "tasks", "topics.yaml", "--format", "json")
    assert done.returncode == 0, done.stderr
    assert '"kind": "several"' in done.stdout and '"labels_f1_micro"' in done.stdout


NAMES = """
import sys
from elsa_tune.specs.adapt.candidates import read_candidate, recorded_candidate
from elsa_tune.specs.task import Metric
from elsa_tune.tasks.types.registry import type_of_export
assert read_candidate("lora-last3").key and read_candidate(3).key and Metric("f1")
print("extras_method" in sys.modules)
low = read_candidate("low8")
print(low.label, recorded_candidate(low.record()) == low, Metric("labels_f1_macro").words)
print(type(type_of_export("several", "multi_label_classification")).__name__)
"""


def test_they_are_loaded_for_the_first_name_that_nothing_here_has(
    site: Path, run: Run, tmp_path: Path
) -> None:
    done = run(NAMES)
    assert done.returncode == 0, done.stderr
    before, candidates, export = done.stdout.splitlines()
    assert before == "False"
    assert candidates == "low8 True macro F1 of labels"
    assert export == "SeveralLabels"


METRIC_OF_A_COLUMN = """
from pathlib import Path
from elsa_tune.results.columns import lay_out
header = ["model", "task", "layers", "frozen_layers", "metrics.subset_accuracy", "seed"]
print(lay_out(Path("t.csv"), header, {}).constants["metric"])
"""
KERNEL_OF_A_METRIC = """
from elsa_tune.tasks.types.registry import kernel_of
print(type(kernel_of("subset_accuracy")).__name__)
"""


@pytest.mark.parametrize(
    ("asked", "found"),
    [(METRIC_OF_A_COLUMN, "subset_accuracy"), (KERNEL_OF_A_METRIC, "SubsetAccuracy")],
)
def test_a_record_is_read_with_the_metric_that_an_installed_package_brings(
    asked: str, found: str, run: Run
) -> None:
    done = run(asked)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{found}\n"


COLUMNS = """
import sys
from pathlib import Path
from elsa_tune.results.columns import is_better_when_lower, lay_out
ours = ["model", "task", "layers", "frozen_layers", "seed"]

def read(*columns, **mapping):
    layout = lay_out(Path("t.csv"), [*ours, *columns], mapping)
    print(layout.constants.get("metric"), "extras_method" in sys.modules, *layout.troubles)

read("quality", "metric", "notes")
read("eval_acc", "lr")
read("metrics.accuracy", "params.num_train_epochs", "config/more/seed")
read("accuracy", "notes", quality="accuracy")
assert is_better_when_lower("error_detection_f1") is False
read("accuracy", "notes")
read("labels_f1_macro", "notes", quality="labels_f1_macro")
"""


def test_a_table_whose_columns_are_explained_waits_for_no_package(
    site: Path, run: Run, tmp_path: Path
) -> None:
    done = run(COLUMNS)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "None False",
        "accuracy False",
        "accuracy False",
        "accuracy False",
        "accuracy True",
        "labels_f1_macro True",
    ]


def test_a_table_is_read_without_a_package_that_cannot_be_imported(
    site: Path, run: Run, tmp_path: Path
) -> None:
    (site / "extras_task.py").write_text("import nothing_of_this_name")
    lines = ["model,task,layers,frozen_layers,seed,accuracy,notes"]
    lines += [f"m,t,12,{depth},{seed},0.{9 - depth}{seed},-" for depth in (0, 4) for seed in (1, 2)]
    table = tmp_path / "t.csv"
    arguments = ("answer", "--from", "t.csv")
    table.write_text("\n".join(lines) + "\n")
    answered = run(COMMAND, *arguments)
    assert answered.returncode == 0, answered.stderr
    [told] = [line for line in answered.stderr.splitlines() if "! " in line]
    assert told.strip().startswith(
        "! metrics may be unknown: the package 'elsa-extras' extends elsa-tune, but its module"
    )
    lines[0] = lines[0].replace("accuracy", "labels_f1")
    table.write_text("\n".join(lines) + "\n")
    refused = run(COMMAND, *arguments)
    assert refused.returncode == 2
    assert refused.stderr.startswith("elsa-tune: the package 'elsa-extras' extends elsa-tune")


METRIC_OF_A_TASK = """
from elsa_tune.tasks.task_file import resolve_task
task = resolve_task("rte", None, "balanced_accuracy")
print(task.kind, task.metric, task.companions[0])
"""


def test_a_task_that_ships_takes_the_metric_that_an_installed_package_brings(
    site: Path, root: Path, run: Run
) -> None:
    shutil.copy(root / "tests" / "balanced.py", site / "extras_task.py")
    done = run(METRIC_OF_A_TASK)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "classification balanced_accuracy accuracy\n"


SEARCHING = """
from elsa_tune.searching.planning import strategies
from elsa_tune.searching.planning.even import Even
from elsa_tune.tracking import stores

class Mine(Even):
    name = "mine"

strategies.register(Mine)
stores.register("vault", lambda uri: f"the store at {uri}")
"""
ASKED = """
from elsa_tune.searching.planning.strategies import strategy_named
from elsa_tune.tracking.stores import store_at
assert strategy_named("even").name == "even" and store_at("sqlite:////nowhere/x.db").name
print(strategy_named("mine").__name__, "by", store_at("vault://team"))
"""


def test_strategies_and_stores_are_found_so_too(site: Path, run: Run, tmp_path: Path) -> None:
    (site / "extras_task.py").write_text(SEARCHING)
    done = run(ASKED)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "Mine by the store at vault://team\n"


def test_a_package_that_cannot_be_imported_is_named_once_it_is_asked_for(
    site: Path, run: Run, tmp_path: Path
) -> None:
    (site / "extras_task.py").write_text("import nothing_of_this_name")
    (tmp_path / "topics.yaml").write_text(TASK)
    (tmp_path / "topics.csv").write_text(ROWS)
    refused = run(COMMAND, "tasks", "topics.yaml")
    assert refused.returncode == 2
    assert refused.stderr == (
        "elsa-tune: the package 'elsa-extras' extends elsa-tune, but its module extras_task cannot "
        "be imported (ModuleNotFoundError: No module named 'nothing_of_this_name'); mend the "
        "package, or uninstall it\n"
    )
    assert run(COMMAND, "tasks").returncode == 0


BROKEN_FIRST = """
from elsa_tune.errors import ExtensionError
from elsa_tune.specs.adapt.candidates import read_candidate
print(read_candidate("low8").label)
try:
    read_candidate("nobody")
except ExtensionError as error:
    print(error.exit_status, str(error).partition(" (")[0])
"""


def test_what_can_be_imported_is_there_beside_what_cannot(
    site: Path, run: Run, tmp_path: Path
) -> None:
    (site / "elsa_extras-1.0.dist-info" / "entry_points.txt").write_text(
        "[elsa_tune.extensions]\na = extras_task\nb = extras_method\n"
    )
    (site / "extras_task.py").write_text("import nothing_of_this_name")
    done = run(BROKEN_FIRST)
    assert done.returncode == 0, done.stderr
    label, error = done.stdout.splitlines()
    assert error == (
        "2 the package 'elsa-extras' extends elsa-tune, but its module extras_task cannot be "
        "imported"
    )
    assert label == "low8"


def test_a_record_is_not_read_past_a_package_that_cannot_be_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def searches(self: Journals, question: Question, say: Say) -> Searches:
        raise ExtensionError("the package is broken")

    monkeypatch.setattr(Journals, "searches", searches)
    places = StorePaths(tmp_path)
    journal = SearchPaths(places.storage, "one").journal
    journal.parent.mkdir(parents=True)
    journal.touch()
    with pytest.raises(ExtensionError):
        recorded(Question(), places, None, print)
    with pytest.raises(ExtensionError):
        list_searches(places.storage, None, print)
