"""When the Slurm job of deploy/ goes back into the queue, with stand-ins for the programs it calls.

A real Slurm runs it in tests/integration/test_slurm.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.searching import wait_for

SCRIPT = ROOT / "deploy/slurm/search.sbatch"
PROGRAMS = {
    "scontrol": """
case "$1 $2" in
"show hostnames") echo one ;;
"show node") echo "NodeName=one NodeAddr=127.0.0.1" ;;
requeue*) echo "requeued $2" >> calls ;;
esac
""",
    "squeue": "echo RUNNING",
    # A step asks for an address, or is Ray until it is told to end.
    "srun": """
for word in "$@"; do
    [ "$word" = getent ] && echo "127.0.0.1 STREAM one" && exit
done
echo "$@" >> ray_steps
exec sleep 60
""",
    "ray": "echo ' 1 node_0123'",
    # Between two looks at Ray the script waits two seconds.
    "sleep": """
[ "$1" = 2 ] && set -- 0.2
PATH=${PATH#*:}
exec sleep "$1"
""",
    "elsa-tune": """
trap 'echo told >> calls; exit 130' TERM
echo "$@" >> calls
[ -e wait ] && while :; do sleep 0.05; done
exit "$(cat status)"
""",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, code in PROGRAMS.items():
        file = programs / name
        file.write_text(f"#!/bin/bash\n{code}")
        file.chmod(0o755)
    return tmp_path


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "one",
    }
    return subprocess.Popen(
        ["bash", str(SCRIPT), *options],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def calls(folder: Path) -> list[str]:
    file = folder / "calls"
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize("status", [0, 1, 2, 3])
def test_a_search_that_ends_by_itself_ends_the_job_with_its_status(
    folder: Path, status: int
) -> None:
    (folder / "status").write_text(str(status))
    job = start(folder, "--model", "minilm", "--task", "rte")
    _, said = job.communicate(timeout=200)
    assert job.returncode == status, said
    [call] = calls(folder)
    assert call == "search --model minilm --task rte --name slurm-7 --address 127.0.0.1:20007"
    assert ("the same words with --name slurm-7 continue its search" in said) == (status == 1)


@pytest.mark.parametrize("has_grpc", [True, False])
def test_two_jobs_on_a_node_share_no_port_of_rays_client(folder: Path, has_grpc: bool) -> None:
    """Ray opens it where grpcio is installed, and refuses to be told its port where not."""
    python = folder / "bin" / "python"
    python.write_text(f"#!/bin/bash\nexit {0 if has_grpc else 1}\n")
    python.chmod(0o755)
    (folder / "status").write_text("0")
    job = start(folder, "--name", "mine")
    _, said = job.communicate(timeout=200)
    assert job.returncode == 0, said
    step = (folder / "ray_steps").read_text()
    assert "--head --node-ip-address 127.0.0.1 --port 20007" in step
    assert ("--ray-client-server-port 10007" in step) == has_grpc
    assert "--min-worker-port 0 --max-worker-port 0" in step


def test_who_gave_a_name_is_not_told_of_another(folder: Path) -> None:
    (folder / "status").write_text("1")
    job = start(folder, "--name", "mine")
    _, said = job.communicate(timeout=200)
    assert job.returncode == 1 and "slurm-7" not in said


def test_a_job_that_is_told_to_end_tells_its_search_and_goes_back_into_the_queue(
    folder: Path,
) -> None:
    (folder / "wait").touch()
    job = start(folder, "--name", "mine")
    wait_for(lambda: len(calls(folder)) == 1)
    job.send_signal(signal.SIGTERM)
    _, said = job.communicate(timeout=200)
    assert job.returncode == 130, said
    assert calls(folder) == [
        "search --name mine --address 127.0.0.1:20007",
        "told",
        "requeued 7",
    ]


def test_a_job_that_is_cancelled_does_not_go_back_into_the_queue(folder: Path) -> None:
    (folder / "wait").touch()
    (folder / "bin" / "squeue").write_text("#!/bin/bash\necho COMPLETING\n")
    job = start(folder, "--name", "mine")
    wait_for(lambda: len(calls(folder)) == 1)
    job.send_signal(signal.SIGTERM)
    _, said = job.communicate(timeout=200)
    assert job.returncode == 130, said
    assert calls(folder) == ["search --name mine --address 127.0.0.1:20007", "told"]
    assert "back into the queue" not in said


def test_a_job_that_is_told_to_end_before_its_search_begins_starts_none(folder: Path) -> None:
    (folder / "bin" / "ray").write_text("#!/bin/bash\nexit 1\n")
    job = start(folder, "--name=mine")
    wait_for((folder / "ray_steps").exists)
    job.send_signal(signal.SIGTERM)
    _, said = job.communicate(timeout=200)
    assert job.returncode == 130, said
    assert calls(folder) == ["requeued 7"]


def test_ray_that_does_not_start_ends_the_job(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SECONDS", "1")
    (folder / "bin" / "ray").write_text("#!/bin/bash\nexit 1\n")
    job = start(folder, "--name=mine")
    _, said = job.communicate(timeout=200)
    assert job.returncode == 1
    assert "Ray did not start within 1 s; its words are in elsa-tune-7-ray.log" in said
    assert not calls(folder)
