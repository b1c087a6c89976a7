"""Processes that are forked from one whose imports are behind it.

Starting Python and importing takes longer than most of what tests do in a process of their own. As
`python -m tests.forked`, the process that forks.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent.parent
# The longest message between the two: a program, its arguments and its environment.
LONGEST = 1 << 20


class Forked:
    """A process as `subprocess.Popen` gives it, in a session of its own."""

    def __init__(self, nursery: Nursery, pid: int, out: int, err: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = os.fdopen(out)
        self.stderr = os.fdopen(err)
        self._nursery = nursery
        self._ended = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return the status of a process that has ended, None for one that runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float = 200) -> int:
        """Return its status once it has ended; a signal's number below 0 where one killed it."""
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            os.close(self._ended)
            self.returncode = self._nursery.status(self.pid)
        return self.returncode

    def communicate(self, timeout: float = 200) -> tuple[str, str]:
        """Return what it prints to its end, and wait for that."""
        texts = {self.stdout: b"", self.stderr: b""}
        deadline = time.monotonic() + timeout
        waiting = list(texts)
        while waiting:
            ready = select.select(waiting, [], [], max(deadline - time.monotonic(), 0))[0]
            if not ready:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            for file in ready:
                part = os.read(file.fileno(), 1 << 16)
                texts[file] += part
                if not part:
                    waiting.remove(file)
        self.wait(max(deadline - time.monotonic(), 0))
        self.close()
        return texts[self.stdout].decode(), texts[self.stderr].decode()

    def close(self) -> None:
        """Close what it printed to."""
        self.stdout.close()
        self.stderr.close()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Nursery:
    """A process that has imported some modules and does nothing but fork."""

    def __init__(self, modules: Sequence[str]) -> None:
        self._here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self._here, there):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LONGEST)
        command = [sys.executable, "-m", "tests.forked", str(there.fileno()), *modules]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        self._process = subprocess.Popen(
            command, env=environment, pass_fds=[there.fileno()], stdin=subprocess.DEVNULL
        )
        there.close()

    def start(
        self, program: str, *arguments: str, environment: Mapping[str, str] | None = None
    ) -> Forked:
        """Run a program's text in a new process, in this process's working directory."""
        out, its_out = os.pipe()
        err, its_err = os.pipe()
        told = {
            "program": program,
            "arguments": arguments,
            "folder": os.getcwd(),
            "environment": dict(os.environ if environment is None else environment),
        }
        socket.send_fds(self._here, [json.dumps(told).encode()], [its_out, its_err])
        os.close(its_out)
        os.close(its_err)
        return Forked(self, int(self._here.recv(LONGEST)), out, err)

    def run(self, program: str, *arguments: str, timeout: float = 200) -> Any:
        """Return how a program ended, as `subprocess.run` gives it."""
        process = self.start(program, *arguments)
        try:
            out, err = process.communicate(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        return subprocess.CompletedProcess(arguments, process.wait(), out, err)

    def status(self, pid: int) -> int:
        """Return the status of a process of its own that has ended."""
        self._here.send(json.dumps({"ended": pid}).encode())
        return int(self._here.recv(LONGEST))

    def close(self) -> None:
        self._here.close()
        self._process.wait(60)


@contextlib.contextmanager
def nursery(*modules: str) -> Iterator[Nursery]:
    """Start a process that imports these modules, and end it with the block."""
    parent = Nursery(modules)
    try:
        yield parent
    finally:
        parent.close()


def become_child() -> str:
    """Fork whenever it is asked for; return the program's text, in the process that runs it."""
    asked = socket.socket(fileno=int(sys.argv[1]))
    for module in sys.argv[2:]:
        importlib.import_module(module)
    gc.freeze()
    while True:
        message, files, _, _ = socket.recv_fds(asked, LONGEST, 2)
        if not message:
            os._exit(0)
        told = json.loads(message)
        if "ended" in told:
            _, status = os.waitpid(told["ended"], 0)
            asked.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            break
        for file in files:
            os.close(file)
        asked.send(str(pid).encode())
    asked.close()
    os.setsid()
    for number, file in enumerate(files, 1):
        os.dup2(file, number)
        os.close(file)
    # Those there are may take a pipe for the file that the parent printed to.
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 (it is open to the end)
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
    os.chdir(told["folder"])
    os.environ.clear()
    os.environ.update(told["environment"])
    sys.argv[:] = ["-c", *told["arguments"]]
    return str(told["program"])


def run(program: str) -> NoReturn:
    """Run a program's text and end as Python does, but take nothing apart: that takes a second."""
    status = 0
    try:
        exec(compile(program, "<forked>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        status = end.code or 0
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    run(become_child())
