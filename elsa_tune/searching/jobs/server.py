"""Ray's job server, which a cluster's dashboard is, with every failure in one sentence."""

import contextlib
import logging
import os
import re
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from elsa_tune.errors import RunError, UnknownNameError, UsageError, shortened
from elsa_tune.searching.cluster.environment import ASKS_FOR_TOKEN, prepare_ray
from elsa_tune.searching.jobs.address import DASHBOARD_PORT, dashboard_url
from elsa_tune.words import listed

# A dashboard on a busy head takes its time; one that hangs must not keep whoever asks.
CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0
# Once it has answered: a package of 100 MiB goes to the cluster, and a job is set up.
WORK_SECONDS = 300.0

# Bytes of a package, where Ray does not say: what its dashboard takes.
_MOST_BYTES = 100 * 1024**2
# Ray would take these for the address that it is given.
_OTHER_ADDRESSES = ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS")
# Which files of a folder Ray leaves out without a word, wherever they lie: by default those below
# `.git`, `.venv`, `venv` and `__pycache__`. A job's folder has nothing that it does not need.
_LEFT_OUT = "RAY_OVERRIDE_RUNTIME_ENV_DEFAULT_EXCLUDES"
# What Ray's client raises begins so where something else than a job server answers.
_NOT_FOUND = ("Version check returned 404", "Request failed with status code 404")
# Likewise, where it answers and the job is unknown to it.
_NO_JOB = re.compile(r"404: Job (\S+) does not exist")
# Likewise, where the dashboard itself has failed.
_FAILED = re.compile(r"Request failed with status code (5\d\d): ")
_JOB_ID = re.compile(r"elsa-tune-(\d+)-(.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A session of a search on a cluster, as the cluster tells of it."""

    name: str  # the search's
    session: int  # 1 at first, then one more each time the search is submitted again
    status: str  # Ray's word: PENDING, RUNNING, STOPPED, SUCCEEDED or FAILED
    message: str = ""  # Ray's
    exit_status: int | None = None  # of the driver, where it has ended by itself
    started: float = 0.0  # seconds since the epoch
    metadata: dict[str, str] | None = None  # as it was submitted

    @property
    def id(self) -> str:
        """The id by which Ray knows it."""
        return job_id(self.name, self.session)

    @property
    def is_over(self) -> bool:
        """Whether it will do nothing more."""
        return self.status in ("STOPPED", "SUCCEEDED", "FAILED")

    @property
    def why(self) -> str:
        """Why it ended without having begun, as far as Ray says it; "" for a search that began."""
        if self.exit_status is not None or self.state != "failed":
            return ""
        return shortened(_last_line(self.message), 300)

    @property
    def state(self) -> str:
        """How the search stands, in the words of `SearchStatus`, as far as a job tells it."""
        if self.status == "PENDING":
            return "pending"
        if self.status == "RUNNING":
            return "running"
        if self.status == "STOPPED" or self.exit_status == 130:
            return "interrupted"
        # 3: it was carried out, and there is no answer.
        if self.status == "SUCCEEDED" or self.exit_status == 3:
            return "completed"
        return "failed"


def job_id(name: str, session: int) -> str:
    """Return the id of a search's session: no two jobs of a cluster may share one."""
    return f"elsa-tune-{session}-{name}"


class JobServer:
    """The job server at an address. Raises UsageErrors where it is not one that can be used."""

    def __init__(self, address: str | None) -> None:
        self.url = dashboard_url(address)
        prepare_ray(self.url)
        with self._failures_told():
            self._client = _client(self.url)
            answer = self._client._do_request("GET", "/api/version")
            version = str(answer.json()["ray_version"])
        import ray

        if version != ray.__version__:
            raise UsageError(
                f"the cluster at {self.url} runs Ray {version}, and this machine has "
                f"{ray.__version__}; install the same version here or there"
            )
        self._client.seconds = WORK_SECONDS

    def jobs(self) -> list[Job]:
        """Return the jobs that are searches, the latest first."""
        with self._failures_told():
            all_jobs = self._client.list_jobs()
        jobs = []
        for details in all_jobs:
            job = _job(details)
            if job is not None:
                jobs.append(job)
        return sorted(jobs, key=lambda job: (job.started, job.session), reverse=True)

    def latest(self, name: str) -> Job | None:
        """Return the latest session of a search; None where it was never submitted here."""
        sessions = [job for job in self.jobs() if job.name == name]
        return max(sessions, key=lambda job: job.session, default=None)

    def find(self, name: str) -> Job:
        """Return the latest session of a search. Raises UsageError where there is none."""
        job = self.latest(name)
        if job is not None:
            return job
        names = sorted({job.name for job in self.jobs()})
        others = f"it has {', '.join(names[:10])}" if names else "it has no search"
        raise UsageError(
            f"no search '{name}' was submitted to {self.url} ({others}); `elsa-tune submit` sends "
            "one there"
        )

    def named(self, name: str | None) -> Job:
        """Return the latest session of a search, by default of the one submitted last.

        Raises UsageError where there is none.
        """
        if name is not None:
            return self.find(name)
        jobs = self.jobs()
        if not jobs:
            raise UsageError(
                f"no search was submitted to {self.url}; `elsa-tune submit` sends one there"
            )
        return jobs[0]

    def under_way(self) -> Job:
        """Return the one job that has not ended. Raises UsageError where there is none, or more."""
        jobs = [job for job in self.jobs() if not job.is_over]
        if not jobs:
            raise UsageError(f"no search is under way at {self.url}")
        if len(jobs) > 1:
            names = listed([f"'{job.name}'" for job in jobs])
            raise UsageError(
                f"{len(jobs)} searches are under way at {self.url}: {names}; name the one to stop"
            )
        return jobs[0]

    def again(self, job: Job) -> Job:
        """Return how a job stands by now."""
        with self._failures_told(job.id):
            details = self._client.get_job_info(job.id)
        return _job(details) or job

    def submit(
        self, job: Job, entrypoint: str, folder: Path | None, runtime_env: dict[str, Any]
    ) -> None:
        """Start a job. Raises UsageError where another one has this id.

        folder: is sent along, and is the job's working directory; None sends nothing.
        """
        environment = dict(runtime_env)
        if folder is not None:
            environment["working_dir"] = str(folder)
        with self._failures_told(f"search '{job.name}' cannot be submitted"), _all_packed():
            self._client.submit_job(
                entrypoint=entrypoint,
                submission_id=job.id,
                runtime_env=environment,
                metadata=job.metadata,
            )

    def log(self, job: Job) -> str:
        """Return what a job has said so far."""
        with self._failures_told():
            return str(self._client.get_job_logs(job.id))

    def stop(self, job: Job) -> None:
        """Ask a job to end, as SIGTERM does."""
        with self._failures_told():
            self._client.stop_job(job.id)

    def nodes(self) -> list[dict[str, float]] | None:
        """Return what each node of the cluster has, by resource; None where it does not tell."""
        try:
            return [dict(node["resources_total"]) for node in self._nodes()]
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def is_of_this_machine(self) -> bool:
        """Whether the cluster's head is this machine, as far as the dashboard tells.

        Its own address does not: at 127.0.0.1 there may be a tunnel to it.
        """
        try:
            [address] = [node["node_ip"] for node in self._nodes() if node["is_head_node"]]
            # Only on the machine that has an address can a socket be bound to it.
            with socket.create_server((address, 0)):
                return True
        except (OSError, ValueError, LookupError, TypeError):
            return False

    def _nodes(self) -> list[dict[str, Any]]:
        """Return the nodes that are alive, as the dashboard describes them."""
        # Ray's own command line asks the dashboard the same; an answer is not promised.
        answer = self._client._do_request("GET", "/api/v0/nodes?detail=true")
        nodes = answer.json()["data"]["result"]["result"]
        return [node for node in nodes if node["state"] == "ALIVE"]

    @property
    def most_bytes(self) -> int:
        """How many bytes of files it takes along with a job."""
        from ray._private import ray_constants

        return int(getattr(ray_constants, "DASHBOARD_CLIENT_MAX_SIZE", _MOST_BYTES))

    @contextlib.contextmanager
    def _failures_told(self, what: str = "") -> Iterator[None]:
        """Turn what Ray and its HTTP library raise into one sentence."""
        try:
            with _without_other_addresses():
                yield
        except (ValueError, LookupError, TypeError) as error:
            if what:
                raise self._told(error, what) from error
            raise self._no_dashboard() from error
        except OSError as error:  # the HTTP library's own are of this kind
            raise self._unanswered(error) from error
        except RuntimeError as error:
            raise self._told(error, what) from error
        except Exception as error:
            # Ray's own for a token; it has no name that is promised.
            if "Authentication" in type(error).__name__:
                raise UsageError(f"the dashboard at {self.url} {ASKS_FOR_TOKEN}") from error
            raise

    def _no_dashboard(self) -> UsageError:
        return UsageError(
            f"what answers at `address` {self.url} is no dashboard of Ray's; give http://HOST:"
            f"{DASHBOARD_PORT}"
        )

    def _with_error(self, status: object) -> str:
        return f"the dashboard at {self.url} answers with an error ({status})"

    def _unanswered(self, error: OSError) -> UsageError | RunError:
        """Return the error for a request without an answer, or with one that Ray did not expect."""
        status = getattr(getattr(error, "response", None), "status_code", 0)
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR:
            return RunError(self._with_error(status))
        causes = list(_causes(error))
        names = {type(cause).__name__ for cause in causes}
        if "ConnectionResetError" in names:
            return self._no_dashboard()  # whatever it is, it speaks no HTTP
        reasons = [cause.strerror for cause in causes if isinstance(cause, OSError)]
        reason = next((text for text in reasons if text), None)
        if "ReadTimeout" in names:
            return UsageError(
                f"the dashboard at {self.url} was reached, but did not answer in time; look "
                "whether the cluster's head is overloaded, and try again"
            )
        if reason is None and "ConnectTimeout" in names:
            reason = f"nothing came within {CONNECT_SECONDS:g} s"
        if reason is None:
            return self._no_dashboard()
        return UsageError(
            f"no dashboard answers at `address` {self.url} ({reason}); it runs where `ray start "
            "--head` did, if `ray[default]` is installed there, and other machines reach it if it "
            "was started with --dashboard-host 0.0.0.0"
        )

    def _told(self, error: Exception, what: str) -> UsageError | RunError:
        """Return the error to raise for one that Ray raised."""
        text = str(error)
        if "ray[default]" in text:
            return UsageError(
                "jobs need `ray[default]` on this machine: pip install 'elsa-tune[cluster]'"
            )
        if "already exists" in text:
            return UsageError(f"{what}: somebody else has just submitted it")
        no_job = _NO_JOB.search(text)
        if no_job is not None:
            return UnknownNameError(
                f"{self.url} has no job {no_job[1]} any more: it was deleted, or the cluster was "
                f"started anew; `elsa-tune searches --address {self.url}` lists those that it has"
            )
        is_missing = text.startswith(_NOT_FOUND) and "does not exist" not in text
        if is_missing and not what:
            return UsageError(
                f"what answers at `address` {self.url} takes no jobs: install `ray[default]` on "
                "the cluster's head and start it again"
            )
        reason = shortened(_last_line(text), 300)
        failed = _FAILED.match(text)
        # What the HTTP library says of any failure is no reason.
        if failed and reason.rstrip(".") == HTTPStatus.INTERNAL_SERVER_ERROR.description:
            said = self._with_error(failed[1])
            return RunError(f"{what}: {said}" if what else said)
        return RunError(f"{what or self.url}: {reason}")


def _client(url: str) -> Any:
    """Return Ray's client, whose requests end: Ray itself waits without end."""
    from ray.job_submission import JobSubmissionClient

    logging.getLogger("ray").setLevel(logging.ERROR)
    for module in ("job.sdk", "dashboard_sdk"):
        logging.getLogger(f"ray.dashboard.modules.{module}").setLevel(logging.ERROR)

    class Client(JobSubmissionClient):
        seconds = ANSWER_SECONDS

        def _do_request(self, method: str, endpoint: str, **how: Any) -> Any:
            limits = (CONNECT_SECONDS, self.seconds)
            return super()._do_request(method, endpoint, timeout=limits, **how)

    return Client(url)


@contextlib.contextmanager
def _without_other_addresses() -> Iterator[None]:
    """Hide the variables that Ray prefers to the address that it is given."""
    hidden = {}
    for name in _OTHER_ADDRESSES:
        if name in os.environ:
            hidden[name] = os.environ.pop(name)
    try:
        yield
    finally:
        os.environ.update(hidden)


@contextlib.contextmanager
def _all_packed() -> Iterator[None]:
    """Have Ray pack all files of a folder while inside."""
    before = os.environ.get(_LEFT_OUT)
    os.environ[_LEFT_OUT] = ""
    try:
        yield
    finally:
        del os.environ[_LEFT_OUT]
        if before is not None:
            os.environ[_LEFT_OUT] = before


def _job(details: Any) -> Job | None:
    """Return a job of Ray's as ours; None for what is no search."""
    match = _JOB_ID.fullmatch(details.submission_id or "")
    if match is None:
        return None
    session, name = match.groups()
    return Job(
        name=name,
        session=int(session),
        status=str(details.status.value),
        message=details.message or "",
        exit_status=details.driver_exit_code,
        started=(details.start_time or 0) / 1000,
        metadata=details.metadata,
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and those that it came of."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def _last_line(text: str) -> str:
    """Return the last line that says something: of a stack trace, what went wrong."""
    lines = [line.strip() for line in text.splitlines()]
    said = [line for line in lines if line.strip(".")]  # Ray ends what it repeats with a point
    return said[-1] if said else text
