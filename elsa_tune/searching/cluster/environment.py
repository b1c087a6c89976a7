"""What Ray finds in the environment: its settings, and a token where a cluster asks for one."""

import contextlib
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from elsa_tune.searching.cluster.join_address import AUTO, knock, rays_address

# Until a cluster has said whether it wants a token: Ray may lie on a slow disk.
_ANSWER_SECONDS = 60.0

# Ray reads these when it is imported or started; the reasons stand beside them.
_ENVIRONMENT = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",  # the journal and MLflow are the record
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # `Interruption` ends a search, for SIGTERM too
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",  # a failed trial is recorded with its reason
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_prestart_worker_first_driver": "0",  # one for each core, of which trials use none
    "RAY_DEFAULT_PYTHON_VERSION_MATCH_LEVEL": "minor",  # 3.11.7 and 3.11.9 run the same trials
    "TUNE_WARN_EXCESSIVE_EXPERIMENT_CHECKPOINT_SYNC_THRESHOLD_S": "0",
}


# Where Ray is to join a cluster: it would ask what listens there for 40 s, and 20 times.
_JOINING = {"RAY_NUM_REDIS_GET_RETRIES": "1"}


@contextlib.contextmanager
def ray_environment(address: str | None) -> Iterator[None]:
    """Set what Ray reads while inside; afterwards the environment is as it was.

    Of a Ray that was told to offer a token, RAY_AUTH_MODE stays: it holds for as long as Ray is
    imported.
    """
    before = set(os.environ)
    prepare_ray(address)
    try:
        yield
    finally:
        for name in (*_ENVIRONMENT, *_JOINING):
            if name not in before:
                os.environ.pop(name, None)


def prepare_ray(address: str | None) -> None:
    """Set what Ray reads, some of it when it is imported; what the user has set stays."""
    settings = dict(_ENVIRONMENT)
    if address is not None:
        settings |= _JOINING
    for name, value in settings.items():
        os.environ.setdefault(name, value)
    # A cluster that `ray start` began asks whoever joins it for the token that lies in its user's
    # home; Ray offers that only if it was set so before its import.
    is_open = "ray" not in sys.modules and "RAY_AUTH_MODE" not in os.environ
    if address is not None and is_open and _has_token() and asks_for_token(address):
        os.environ["RAY_AUTH_MODE"] = "token"


def _has_token() -> bool:
    """Return whether this user has a token where Ray looks for it."""
    if "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ:
        return True
    return (Path.home() / ".ray" / "auth_token").is_file()


# What is said of a cluster, or its dashboard, that refuses whoever has no token or a wrong one.
ASKS_FOR_TOKEN = (
    "asks for a token; copy ~/.ray/auth_token from the cluster's head to this machine, or set "
    "RAY_AUTH_TOKEN"
)

# What a cluster answers that is asked without a token.
_OPEN = "open"
_TOKEN = "token"
# Asks it, in a process of its own: Ray reads the mode when it is imported.
_QUESTION_WITHOUT_TOKEN = f"""
import sys
from ray._private.services import canonicalize_bootstrap_address_or_die
from ray._raylet import GcsClient
from ray.exceptions import AuthenticationError
try:
    GcsClient(address=canonicalize_bootstrap_address_or_die(sys.argv[1])).check_alive([], timeout=5)
    print("{_OPEN}")
except AuthenticationError:
    print("{_TOKEN}")
"""


def asks_for_token(address: str) -> bool:
    """Return whether a cluster lets nobody in without its token.

    One that asks for none gets none: whoever has set the mode to `token` refuses the answers of
    workers that have not, so that no trial would begin.
    """
    if address.startswith(("http://", "https://")):
        return True  # a dashboard, which is only asked; it takes one that it does not need
    return _answer(address) == _TOKEN


def answers(address: str) -> bool:
    """Return whether a cluster is there, whether it lets us in or not."""
    return _answer(address) in (_OPEN, _TOKEN)


@functools.cache
def _answer(address: str) -> str:
    """Return what a cluster answers; "" where there is none."""
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):  # who joins it says what is wrong
        if address != AUTO:
            knock(address)
        answer = subprocess.run(
            [sys.executable, "-c", _QUESTION_WITHOUT_TOKEN, rays_address(address)],
            env={**os.environ, "RAY_AUTH_MODE": "disabled"},
            capture_output=True,
            text=True,
            timeout=_ANSWER_SECONDS,
            check=False,
        )
        return answer.stdout.strip()
    return ""
