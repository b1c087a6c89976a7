"""What other packages bring: each names a module, which registers what it brings when imported.

A package declares it in its `pyproject.toml`, as an entry point:

    [project.entry-points."elsa_tune.extensions"]
    topics = "my_package.topics"
"""

import functools
from typing import Final

from elsa_tune.errors import UsageError

GROUP: Final = "elsa_tune.extensions"


@functools.cache
def load_extensions() -> None:
    """Import the modules that the installed packages name, once in a process.

    It is called for a name that nobody knows yet, so that whoever asks for what ships does not wait
    for it. Raises UsageError for a module that cannot be imported.
    """
    from importlib import metadata  # the help answers without it

    for entry_point in metadata.entry_points(group=GROUP):
        try:
            entry_point.load()
        except Exception as error:  # whatever somebody else's module meets
            package = entry_point.value
            if entry_point.dist is not None:
                package = entry_point.dist.name
            why = " ".join(str(error).split())
            raise UsageError(
                f"the package '{package}' extends elsa-tune, but its module {entry_point.module} "
                f"cannot be imported ({type(error).__name__}: {why}); mend the package, or "
                "uninstall it"
            ) from error
