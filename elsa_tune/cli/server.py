"""A server as a child process: started, watched until it answers, ended with its parent.

It must not know what the server serves beyond its address.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

from elsa_tune.errors import UsageError

_STARTUP_S = 120.0


def check_port(host: str, port: int) -> None:
    """Raise UsageError where nothing can listen there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise UsageError(
                f"cannot listen on {host}:{port}: {error.strerror}; choose another with --port"
            ) from error


def serve(command: list[str], address: str) -> int:
    """Run the server until it or the user ends it; its exit status, 0 when the user did."""
    signals = 0
    # Jobs are for MLflow's evaluation of language models: thirty processes that nothing here needs.
    environment = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **os.environ}
    # A group of its own: the server's workers end with it, and Ctrl-C reaches them once, through
    # us. What it prints goes to stderr: nothing on stdout was asked for.
    server = subprocess.Popen(
        command, stdout=sys.stderr.fileno(), start_new_session=True, env=environment
    )

    def pass_on(_number: int, _frame: object) -> None:
        nonlocal signals
        signals += 1
        if server.poll() is None:
            # To the second Ctrl-C nobody wants a graceful end.
            os.killpg(server.pid, signal.SIGTERM if signals == 1 else signal.SIGKILL)

    before = {
        number: signal.signal(number, pass_on)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    try:
        print(f"MLflow is starting on {address}", file=sys.stderr)
        if _answers(address, server):
            print(f"MLflow is ready on {address}; Ctrl-C ends it", file=sys.stderr)
        status = server.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0 if signals else status


def _answers(address: str, server: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + _STARTUP_S
    # No proxy stands between this machine and itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with opener.open(f"{address}/health", timeout=2):
                return True
        except OSError:
            time.sleep(0.2)
    return False
