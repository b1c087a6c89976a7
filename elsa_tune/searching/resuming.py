"""`resume` as it is asked for, from the command line or from Python."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from elsa_tune.searching.fetched import found_or_fetched
from elsa_tune.searching.inputs import (
    check_max_failures,
    read_checkpoint,
    read_duration,
    read_hung_after,
    read_until,
)
from elsa_tune.searching.output import Say
from elsa_tune.tracking.artifacts.places import artifacts_url
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths

if TYPE_CHECKING:
    from elsa_tune.searching.answering import Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOptions:
    """The options of `resume` as they are typed; None leaves a search as it was."""

    seeds: int | None = None  # measuring seeds
    until: Literal["certified"] | None = None  # whether a hunt takes every look it planned
    max_time: str | None = None  # of this session, as `read_duration` takes it
    tracking_uri: str | None = None  # of the store that has the search from now on
    address: str | None = None  # of a running Ray cluster; `none` for this machine
    checkpoint: str | None = None  # as `read_checkpoint` takes it
    hung_after: str | None = None  # as `read_hung_after` takes it
    gpu_hours: float | None = None  # most hours of a GPU, in all
    max_workers: int | None = None  # most trials at once
    max_failures: int | None = None  # trials that may fail in a session
    artifacts: str | None = None  # where the record is copied to, as `artifacts_url` takes it
    cpus_per_trial: float | None = None
    gpus_per_trial: float | None = None


def resume_as_asked(
    search: str | SearchPaths, storage: Path, options: ResumeOptions, say: Say
) -> "Finished":
    """Go on with a recorded search, once its options are checked; errors as in `launch.resume`.

    search: its name in this storage, where it is fetched to if it is only in the store of its copy;
    or its paths.
    """
    uri = options.tracking_uri
    if uri is not None:
        uri = StorePaths(Path.cwd()).tracking_uri(uri)
    seconds = None if options.max_time is None else read_duration(options.max_time)
    settings = session_settings(options)

    from elsa_tune.searching.launch import resume
    from elsa_tune.searching.specification import more_of

    more = more_of(options.seeds, read_until(options.until), settings)
    if isinstance(search, SearchPaths):
        paths = search
    else:
        paths = found_or_fetched(storage, search, settings["artifacts"], say)
    return resume(
        paths,
        say,
        more=more,
        max_time=seconds,
        tracking_uri=uri,
        address=options.address,
    )


def session_settings(options: ResumeOptions) -> dict[str, Any]:
    """Return what a session of a search sets, by field of a SearchSpec; None for nothing.

    Raises UsageError.
    """
    url = options.artifacts
    if url is not None:
        url = artifacts_url(url, Path.cwd())
    checkpoint = options.checkpoint
    hung_after = options.hung_after
    check_max_failures(options.max_failures)
    return {
        "checkpoint": None if checkpoint is None else read_checkpoint(checkpoint),
        "hung_after": None if hung_after is None else read_hung_after(hung_after),
        "gpu_hours": options.gpu_hours,
        "max_workers": options.max_workers,
        "max_failures": options.max_failures,
        "artifacts": url,
        "cpus_per_trial": options.cpus_per_trial,
        "gpus_per_trial": options.gpus_per_trial,
    }
