"""The data and the weights of a search, and whether they are those that it began with."""

from pathlib import Path
from typing import TYPE_CHECKING

from elsa_tune.errors import DataError, ModelError
from elsa_tune.searching.output import Say
from elsa_tune.searching.specification import load_specification, where_asked
from elsa_tune.specs.model import ModelSource
from elsa_tune.specs.search import SearchSpec
from elsa_tune.specs.task import DataSetSource, FilesSource, GlueSource, TaskSource
from elsa_tune.tracking.paths import SearchPaths

if TYPE_CHECKING:
    # Speaks torch, which takes seconds to import: only once everything is checked.
    from elsa_tune.training.data.tokens import TaskData

# So begins the name of the folder where Ray unpacks the files of a submitted job.
_JOB_FOLDER = "_ray_pkg_"


def inputs_of(spec: SearchSpec) -> "tuple[TaskData, dict[str, str]]":
    """Return the tokenised data, and fingerprints of it and of the weights. Raises without any."""
    from elsa_tune.training.data.preparation import prepare
    from elsa_tune.training.forward.prefix_store import budget_bytes
    from elsa_tune.training.model.model_files import weights_fingerprint

    budget_bytes()  # a mistyped setting is said here, not by every trial
    try:
        data = prepare(spec.model, spec.task, spec.recipe)
        weights = weights_fingerprint(spec.model)
    except (DataError, ModelError) as error:
        if not _is_lost_with_job(spec):
            raise
        raise type(error)(
            f"{error}; it lay in the folder of a submitted job, which is gone: to go on, submit "
            "the same command again; or copy its files here and type it as `elsa-tune search`, "
            "after which `elsa-tune resume` and `elsa-tune export` find them"
        ) from error
    return data, {"weights": weights, "data": data.fingerprint}


def check_unchanged(spec: SearchSpec, fingerprints: dict[str, str]) -> None:
    """Raise DataError or ModelError where data or weights are not what the search had."""
    from elsa_tune.training.model.model_files import same_weights

    before = spec.fingerprints
    is_same_data = fingerprints["data"] == before["data"]
    is_same_model = same_weights(spec.model.source, fingerprints["weights"], before["weights"])
    for what, is_same, of, error in (
        ("data", is_same_data, f"task '{spec.task.name}'", DataError),
        ("weights", is_same_model, f"'{spec.model.name}'", ModelError),
    ):
        if not is_same:
            raise error(
                f"the {what} of {of} are not those that search '{spec.name}' began with; put them "
                "back, or start a search of another `name`: results on others are not comparable"
            )


def check_same_files(asked: SearchSpec, paths: SearchPaths, say: Say) -> None:
    """Raise DataError or ModelError where files of this machine are not what the search had.

    A complete search would else answer for rows or weights that it never saw. What the hub or the
    package has cannot have changed, for a search goes on with the revision that it began with.
    """
    from elsa_tune.training.data.preparation import fingerprint_of
    from elsa_tune.training.model.model_files import weights_fingerprint

    recorded = load_specification(paths)
    found: dict[str, str] = {}
    model = where_asked(asked)(recorded).model
    if model.source is ModelSource.DIRECTORY:
        found["weights"] = weights_fingerprint(model)
    if _has_own_rows(asked.task.source):
        try:
            found["data"] = fingerprint_of(model, asked.task, recorded.recipe)
        except ModelError as error:  # a complete search is answered without its model
            say(f"note: whether the rows are those of search '{paths.name}' is not known: {error}")
    if found:
        check_unchanged(recorded, {**recorded.fingerprints, **found})


def _has_own_rows(source: TaskSource) -> bool:
    """Whether rows are read from files of the user's, which may change."""
    if isinstance(source, GlueSource):
        return source.data_dir is not None
    if isinstance(source, DataSetSource):
        return source.revision is None
    return isinstance(source, FilesSource)


def _is_lost_with_job(spec: SearchSpec) -> bool:
    """Whether the search's own files were in the folder of a job, which Ray has deleted."""
    source = spec.task.source
    places: list[str | None] = []
    if isinstance(source, FilesSource):
        places += [*source.train, *source.evaluation]
    elif isinstance(source, GlueSource):
        places.append(source.data_dir)
    elif isinstance(source, DataSetSource):
        places.append(source.location)
    if spec.model.source is ModelSource.DIRECTORY:
        places.append(spec.model.location)
    return any(place and _JOB_FOLDER in place and not Path(place).exists() for place in places)
