"""A job of Slurm's that is preempted twice gives the answer of a search that nobody disturbed.

munge, slurmctld and two slurmd are real, and of this test alone: their ports and folders are.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.integration.conftest import free_port
from tests.searching import ONE_AT_A_TIME, Bench, make_bench, of_kind, wait_for

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(1800)]

SCRIPT = ROOT / "deploy/slurm/search.sbatch"
NAME = "preempted"
# Of two depths, a second or so each: long enough to be stopped in the middle.
TRIALS = 30
SETTINGS = (
    *("--set", "epochs=10", "--set", "depths=[0, 2]", "--set", "asha=null"),
    *("--set", "learning_rate=[0.002, 0.003, 0.005]", "--set", "tries=3"),
    *("--seeds", str((TRIALS - 6) // 2), "--set", "seed=0"),
)
ENDS = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
# What two searches of the same trials may have otherwise.
OF_THE_MACHINE = ("train_seconds", "examples_per_second", "peak_memory_mb")

# Nothing is kept apart or counted, so that it runs without cgroups and without a database.
CONFIGURATION = """
ClusterName=test
SlurmctldHost={host}
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=15
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
NodeName=one NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2
NodeName=two NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


class Slurm:
    """A Slurm cluster of two nodes on this machine."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._daemons: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "SLURM_CONF": str(folder / "slurm.conf"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "CUDA_VISIBLE_DEVICES": "",
        }

    def start(self) -> None:
        self._write_files()
        socket_file = self._folder / "munge.socket"
        munged = ["munged", "--foreground", "--force", f"--socket={socket_file}"]
        for option in ("key-file", "pid-file", "log-file", "seed-file"):
            munged.append(f"--{option}={self._folder / 'munge'}.{option}")
        self._start("munge", munged)
        wait_for(socket_file.exists)
        self._start("slurmctld", ["slurmctld", "-D"])
        for node in ("one", "two"):
            self._start(f"slurmd-{node}", ["slurmd", "-D", "-N", node])
        wait_for(lambda: self.ask("sinfo", "-h", "-N", "-o", "%t").split() == ["idle", "idle"])

    def _write_files(self) -> None:
        key = self._folder / "munge.key-file"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        (self._folder / "state").mkdir()
        configuration = CONFIGURATION.format(
            folder=self._folder,
            host=socket.gethostname().split(".")[0],
            user=subprocess.check_output(["id", "-un"], text=True).strip(),
            ports=[free_port() for _ in range(3)],
        )
        (self._folder / "slurm.conf").write_text(configuration)

    def _start(self, name: str, command: list[str]) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            daemon = subprocess.Popen(
                command, stdout=log, stderr=log, env=self.environment, start_new_session=True
            )
        self._daemons.append(daemon)

    def ask(self, *command: str, folder: Path | None = None) -> str:
        """Return what one of Slurm's commands prints; nothing where its server does not answer."""
        done = subprocess.run(
            command,
            cwd=folder or self._folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        return done.stdout

    def let_one_node_fail_to_start_ray_once(self) -> None:
        """Put a `ray` before the real one that fails when the second node first joins the head."""
        folder = self._folder / "programs"
        folder.mkdir()
        real = shutil.which("ray", path=self.environment["PATH"])
        program = folder / "ray"
        program.write_text(
            "#!/bin/bash\n"
            f'if [[ "$*" == *"start"*"--address"* ]] && mkdir "{folder}/failed" 2>/dev/null; then\n'
            '    echo "ray: cannot start; another start may" >&2\n'
            "    exit 1\n"
            "fi\n"
            f'exec "{real}" "$@"\n'
        )
        program.chmod(0o755)
        self.environment["PATH"] = f"{folder}:{self.environment['PATH']}"

    def job(self, number: str) -> dict[str, str]:
        """Return what Slurm says of a job, by its own names: JobState, Restarts, ExitCode."""
        said = self.ask("scontrol", "show", "job", number)
        return dict(word.split("=", 1) for word in said.split() if "=" in word)

    def close(self) -> None:
        self.ask("scancel", "--user", str(os.getuid()))
        with contextlib.suppress(AssertionError):
            wait_for(lambda: not self.ask("squeue", "-h"))
        for daemon in reversed(self._daemons):
            daemon.terminate()
            try:
                daemon.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(daemon.pid, signal.SIGKILL)
                daemon.wait(30)


@pytest.fixture
def slurm() -> Iterator[Slurm]:
    for program in ("munged", "slurmctld", "slurmd", "sbatch"):
        if not shutil.which(program):
            pytest.skip(f"needs Slurm and munge, and {program} is not on the PATH")
    # Not in pytest's own folder: munge wants one that everybody may enter.
    with tempfile.TemporaryDirectory(prefix="slurm", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        cluster = Slurm(Path(folder))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.close()


def test_a_job_that_is_preempted_twice_gives_the_undisturbed_answer(
    slurm: Slurm, tmp_path: Path
) -> None:
    bench = make_bench(tmp_path / "on slurm", train=320)
    search = bench.search(NAME, *SETTINGS, "--cpus-per-trial", "1")[1:]
    slurm.let_one_node_fail_to_start_ray_once()
    said = slurm.ask(
        *("sbatch", "--parsable", "--nodes=2", str(SCRIPT), *search), folder=bench.folder
    )
    job = said.strip()
    assert job.isdigit(), said

    # As Slurm does before a time limit: the script alone is told.
    trains_behind(bench, sessions=1, trials=3)
    assert "another start" in (bench.folder / f"elsa-tune-{job}-ray.log").read_text()
    slurm.ask("scancel", "--batch", "--signal=TERM", job)
    nothing_is_left_open(bench, sessions=1)
    wait_for(lambda: slurm.job(job).get("Restarts") == "1", 300)

    # As Slurm does when somebody more important comes: every process is told, and killed later.
    trains_behind(bench, sessions=2, trials=10)
    slurm.ask("scontrol", "requeue", job)

    wait_for(lambda: slurm.job(job).get("JobState") in ENDS, 600)
    log = (bench.folder / f"elsa-tune-{job}.log").read_text()
    ended = slurm.job(job)
    assert ended["JobState"] == "COMPLETED" and ended["Restarts"] == "2", log
    assert log.count("is recorded with the same options: continuing it") == 2, log
    nothing_is_left_open(bench, sessions=3, cut_off=1)
    assert not list(Path("/tmp").glob(f"ray-{job}/session_*"))

    undisturbed = make_bench(tmp_path / "undisturbed", train=320)
    done = undisturbed.run(*undisturbed.search(NAME, *SETTINGS, *ONE_AT_A_TIME))
    assert done.returncode == 0, done.stderr
    assert len(completed(bench)) == len(set(completed(bench))) == TRIALS
    assert set(completed(bench)) == set(completed(undisturbed))
    assert losses(bench) == losses(undisturbed)
    assert answer(bench) == answer(undisturbed)
    assert runs_by_trial(bench) == runs_by_trial(undisturbed)


def trains_behind(bench: Bench, sessions: int, trials: int) -> None:
    """Wait until this session trains a trial, with so many completed by all."""

    def is_there() -> bool:
        records = bench.records(NAME)
        begun = [n for n, record in enumerate(records) if record["kind"] == "search_started"]
        if len(begun) < sessions:
            return False
        return len(completed(bench)) >= trials and records[-1]["kind"] == "report"

    try:
        wait_for(is_there, 600)
    except AssertionError:
        logs = [log.read_text() for log in bench.folder.glob("elsa-tune-*.log")]
        pytest.fail("it did not happen in time:\n" + "\n".join(logs))


def nothing_is_left_open(bench: Bench, sessions: int, cut_off: int = 0) -> None:
    """Every session soon has its end, and every trial a status, in the journal and in MLflow.

    cut_off: how many sessions, of two trials at a time, may have no end in the journal, because
        Ray ends the search's process as soon as its raylet is killed.
    """

    def is_over() -> bool:
        records = bench.records(NAME)
        if len(of_kind(records, "search_ended")) < sessions - cut_off:
            return False
        return bench.query("select count(*) from runs where status = 'RUNNING'") == [(0,)]

    wait_for(is_over)
    records = bench.records(NAME)
    assert len(of_kind(records, "search_started")) == sessions
    started = [(one["trial"], one["attempt"]) for one in of_kind(records, "trial_started")]
    ended = [(one["trial"], one["attempt"]) for one in of_kind(records, "trial_ended")]
    assert len(started) == len(set(started)) and len(ended) == len(set(ended))
    assert set(started) >= set(ended)
    assert len(set(started) - set(ended)) <= 2 * cut_off


def completed(bench: Bench) -> list[str]:
    """Return the trials that completed, once for each time they did."""
    ends = of_kind(bench.records(NAME), "trial_ended")
    return [end["trial"] for end in ends if end["status"] == "completed"]


def losses(bench: Bench) -> dict[str, list[dict[str, Any]]]:
    """Return what the completed attempt of each trial reported, but for what is the machine's."""
    reported: dict[str, list[dict[str, Any]]] = {}
    for record in bench.records(NAME):
        if record["kind"] == "trial_started":
            reported[record["trial"]] = []
        if record["kind"] == "report":
            metrics = record["metrics"]
            kept = {key: metrics[key] for key in metrics if key not in OF_THE_MACHINE}
            reported[record["trial"]].append(kept)
    return reported


def answer(bench: Bench) -> Any:
    said = bench.run("answer", NAME, "--format", "json")
    assert said.returncode == 0, said.stderr
    return json.loads(said.stdout)


def runs_by_trial(bench: Bench) -> list[tuple[Any, ...]]:
    """Return how many runs and points of each metric MLflow has of each trial."""
    return bench.query(
        "select t.value, r.status, count(distinct r.run_uuid) from runs r "
        "join tags t on t.run_uuid = r.run_uuid and t.key = 'elsa_tune.trial' "
        "group by 1, 2 order by 1, 2"
    )
