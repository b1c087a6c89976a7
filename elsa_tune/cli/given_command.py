"""The command as it was given, for pages that others may read.

It must not show a password.
"""

from __future__ import annotations

import shlex
import sys

from elsa_tune.tracking.paths import shown_uri


def given_command() -> str:
    """The command line of this process, quoted for a shell, without the passwords in URIs."""
    return shlex.join(["elsa-tune", *map(_shown, sys.argv[1:])])


def _shown(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if equals and name.startswith("--"):
        return f"{name}={shown_uri(value)}"
    return shown_uri(argument)
