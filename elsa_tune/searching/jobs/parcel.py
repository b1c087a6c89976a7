"""What a job takes along to the cluster: the files that its search reads, and nothing else.

What lies below the working directory keeps its relative path, so that the job's command line reads
as it was typed, and so does the model's name in its results.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

import elsa_tune
from elsa_tune.errors import UsageError
from elsa_tune.files import expanded
from elsa_tune.searching.inputs import SearchOptions
from elsa_tune.searching.request import Request, listed_tasks
from elsa_tune.specs.checked import read_yaml_file
from elsa_tune.specs.model import ModelSource
from elsa_tune.specs.space import shipped_spaces
from elsa_tune.specs.task import DataSetSource, FilesSource, GlueSource, TaskSpec
from elsa_tune.tasks.data_set_task import is_data_set
from elsa_tune.tasks.data_sets.reading import files_read
from elsa_tune.tasks.task_file import YAML_SUFFIXES
from elsa_tune.words import listed

# In the job's folder: what does not lie below the working directory.
ELSEWHERE = "from-elsewhere"
_MIB = 1024**2


@dataclass(frozen=True, slots=True)
class Parcel:
    """The files of a job, and the options that name them there."""

    options: SearchOptions  # as the job is given them
    # By its path in the job's folder, with `/`: the file on this machine.
    files: dict[str, Path]
    # Likewise, the text of a task file that had to be written for the job.
    written: dict[str, str] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return the bytes of all files."""
        written = sum(len(text.encode()) for text in self.written.values())
        return written + sum(file.stat().st_size for file in self.files.values())

    @property
    def is_empty(self) -> bool:
        """Whether the job needs no file of this machine."""
        return not self.files and not self.written

    def with_package(self) -> "Parcel":
        """Return the parcel with this package's own code, for nodes that lack it."""
        files = dict(self.files)
        package = Path(elsa_tune.__file__).parent
        for file in sorted(package.rglob("*")):
            relative = file.relative_to(package)
            if file.is_file() and file.suffix != ".pyc" and not _is_hidden(relative):
                files[_joined(package.name, relative)] = file
        for file in shipped_spaces().values():
            files[f"{package.name}/search_spaces/{file.name}"] = file
        return replace(self, files=files)

    def check_size(self, most: int) -> None:
        """Raise UsageError where the files have more bytes than a job can take along."""
        if self.size < most:
            return
        largest = sorted(self.files.items(), key=lambda item: -item[1].stat().st_size)[:3]
        names = []
        for name, file in largest:
            names.append(f"{name} with {file.stat().st_size / _MIB:,.0f} MiB")
        raise UsageError(
            f"the search's files have {self.size / _MIB:,.0f} MiB ({listed(names)}), and Ray takes "
            f"{most / _MIB:,.0f} MiB along with a job; name a model or data set of the hub, or "
            "work in a folder that all nodes share and add `no_upload`"
        )

    @contextlib.contextmanager
    def laid_out(self) -> Iterator[Path]:
        """Yield a folder that has the files as links, as Ray packs it."""
        with tempfile.TemporaryDirectory(prefix="elsa-tune-job-") as place:
            folder = Path(place)
            for name, file in self.files.items():
                link = folder / name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(file.resolve())
            for name, text in self.written.items():
                written = folder / name
                written.parent.mkdir(parents=True, exist_ok=True)
                written.write_text(text, encoding="utf-8")
            yield folder


def pack(options: SearchOptions, requests: Sequence[Request], here: Path) -> Parcel:
    """Return what the searches that are asked for need of this machine.

    requests: as `read_requests` returns them for these options. here: the working directory.
    """
    packer = _Packer(here)
    model = requests[0].spec.model
    if model.source is ModelSource.DIRECTORY:
        options = replace(options, model=packer.model(options.model, Path(model.location)))
    tasks = []
    for given in options.task:
        tasks += listed_tasks(given)
    names = []
    for text, request in zip(tasks, requests, strict=True):
        names.append(packer.task(text, request.spec.task))
    options = replace(options, task=names)
    if options.data_dir is not None:
        glue_tasks = [request.spec.task for request in requests]
        options = replace(options, data_dir=packer.glue(options.data_dir, glue_tasks))
    space = expanded(options.space)
    if space.is_file():
        options = replace(options, space=packer.file(options.space, space))
    return Parcel(options, packer.files, packer.written)


class _Packer:
    """Finds a place in the job's folder for what a user named, and collects the files."""

    def __init__(self, here: Path) -> None:
        self._here = here
        self._elsewhere = 0
        # By its name in the job's folder: the file of this machine that it stands for.
        self._claimed: dict[str, Path] = {}
        self.files: dict[str, Path] = {}
        self.written: dict[str, str] = {}

    def file(self, typed: str, file: Path) -> str:
        """Take a file along, and return its name there."""
        name = self._place(typed)
        self._take(name, expanded(file))
        return name

    def model(self, typed: str, folder: Path) -> str:
        """Take what is read of a model's folder along, and return the folder's name there."""
        from elsa_tune.training.model.model_files import folder_files

        name = self._place(typed)
        for file in folder_files(folder, typed):
            self._add(name, file.relative_to(folder), file)
        return self._as_typed(typed, name)

    def task(self, typed: str, task: TaskSpec) -> str:
        """Take a task's own files along, and return what names the task there."""
        if typed.lower().endswith(YAML_SUFFIXES) and not is_data_set(typed):
            return self._task_file(typed, task)
        if isinstance(task.source, FilesSource):
            return self._table(typed, task.source)
        if isinstance(task.source, DataSetSource) and task.source.revision is None:
            name = self._place(typed)
            self._add_folder(name, Path(task.source.location))
            return self._as_typed(typed, name)
        return typed

    def glue(self, typed: str, tasks: Sequence[TaskSpec]) -> str:
        """Take the files of these GLUE tasks along, and return the name of their folder."""
        from elsa_tune.training.data.glue import local_files

        name = self._place(typed)
        for task in tasks:
            if not isinstance(task.source, GlueSource) or task.source.data_dir is None:
                continue
            folder = Path(task.source.data_dir)
            for file in local_files(task, task.source):
                self._add(name, file.relative_to(folder), file)
        return self._as_typed(typed, name)

    def _table(self, typed: str, source: FilesSource) -> str:
        """Take a table along, and its evaluation rows, which are found by their name beside it.

        Where links give them several names there, they go along under each.
        """
        name = self.file(typed, Path(typed))
        folder, _, _ = name.rpartition("/")
        for evaluation in map(Path, source.evaluation):
            for beside in sorted(expanded(typed).parent.glob(f"*{Path(typed).suffix}")):
                if beside.resolve() == evaluation:
                    self._add(folder, Path(beside.name), evaluation)
        return name

    def _task_file(self, typed: str, task: TaskSpec) -> str:
        """Take a task file along and the rows that it names.

        What lies below the task file's folder keeps its relative path. Where the task file names
        it otherwise, by a link or absolutely, or names what lies elsewhere, it is written anew.
        """
        path = expanded(typed)
        name = self._place(typed)
        around = path.resolve().parent
        folder, _, _ = name.rpartition("/")
        places: dict[Path, str] = {}
        for number, data in enumerate(_own_data(task), start=1):
            if data.is_relative_to(around):
                relative = data.relative_to(around)
            else:
                # Beside it there may be a task file that differs in its suffix alone.
                relative = Path(ELSEWHERE, f"{path.name}-{number}", data.name)
            places[data] = relative.as_posix()
            if data.is_dir():
                self._add_folder(_joined(folder, relative), data)
            else:
                self._add(folder, relative, data)
        fields = read_yaml_file(path, yaml.BaseLoader)
        files = fields.get("files", {})  # none of a data set of the hub
        files_there = _with_paths(files, around, places)
        if files_there == files:
            self._take(name, path)
            return name
        self._claim(name, path)
        fields["files"] = files_there
        self.written[name] = yaml.safe_dump(fields, allow_unicode=True, sort_keys=False)
        return name

    def _place(self, typed: str) -> str:
        """Return the path in the job's folder of what is typed so.

        Of what lies elsewhere it ends in two parts of its own path, by which results tell models
        apart that are called alike: A/bert and B/bert.
        """
        path = Path(os.path.abspath(self._here / expanded(typed)))
        if path.is_relative_to(self._here):
            return path.relative_to(self._here).as_posix()
        self._elsewhere += 1
        inner = path.relative_to(path.anchor)
        last_two = "/".join(inner.parts[-2:])
        return f"{ELSEWHERE}/{self._elsewhere}/{last_two}"

    def _as_typed(self, typed: str, name: str) -> str:
        """Return a folder's name as it was typed, where that leads to the same place."""
        is_relative = not expanded(typed).is_absolute()
        is_below = not name.startswith(f"{ELSEWHERE}/")
        return typed if is_relative and is_below else name

    def _add_folder(self, name: str, folder: Path) -> None:
        """Take the files along that are read of a data set's folder."""
        for relative in files_read(folder):
            self._add(name, relative, folder / relative)

    def _add(self, folder: str, relative: Path, file: Path) -> None:
        self._take(_joined(folder, relative), file)

    def _take(self, name: str, file: Path) -> None:
        """Take a file along under a name. Raises UsageError where another one has it."""
        self._claim(name, file)
        self.files[name] = file

    def _claim(self, name: str, file: Path) -> None:
        """Keep a name for a file of this machine. Raises UsageError where another one has it.

        A search would else be given the other's rows.
        """
        other = self._claimed.setdefault(name, file)
        if other.resolve() != file.resolve():
            raise UsageError(
                f"{other} and {file} would both be {name} in the job's folder; rename one of them, "
                "or submit the tasks one by one"
            )


def _is_hidden(relative: Path) -> bool:
    """Whether a file, or a folder that it lies in, is hidden."""
    return any(part.startswith(".") for part in relative.parts)


def _joined(folder: str, relative: Path) -> str:
    return Path(folder, relative).as_posix()


def _own_data(task: TaskSpec) -> list[Path]:
    """Return the files, or the folder, of this machine that a task file names."""
    source = task.source
    if isinstance(source, FilesSource):
        return [Path(file) for file in (*source.train, *source.evaluation)]
    if isinstance(source, DataSetSource) and source.revision is None:
        return [Path(source.location)]
    return []


def _with_paths(value: Any, folder: Path, places: dict[Path, str]) -> Any:
    """Return a task file's `files` as they must be in the job's folder.

    places: relative to the task file, where each file lies there.
    """
    if isinstance(value, list):
        return [_with_paths(item, folder, places) for item in value]
    if isinstance(value, dict):
        return {name: _with_paths(inner, folder, places) for name, inner in value.items()}
    place = places.get((folder / expanded(value)).resolve(), value)
    return value if os.path.normpath(value) == place else place
