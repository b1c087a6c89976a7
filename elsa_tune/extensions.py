"""What other packages bring: each names a module, which registers what it brings when imported.

A package declares it in its `pyproject.toml`, as an entry point:

    [project.entry-points."elsa_tune.extensions"]
    topics = "my_package.topics"
"""

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from elsa_tune.errors import ExtensionError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "elsa_tune.extensions"


@functools.cache
def load_extensions() -> None:
    """Import the modules that the installed packages name, once in a process.

    It is called for a name that nobody knows yet, so that whoever asks for what ships does not wait
    for it. All are imported before it raises ExtensionError for the first that cannot be.
    """
    from importlib import metadata  # the help answers without it

    first: ExtensionError | None = None
    for entry_point in metadata.entry_points(group=GROUP):
        try:
            entry_point.load()
        except Exception as error:  # whatever somebody else's module meets
            if first is None:
                first = _refusal(entry_point, error)
                first.__cause__ = error
    if first is not None:
        raise first


def packages_that_bring(modules: Iterable[str]) -> list[str]:
    """Return the packages that extend elsa-tune and have any of these modules, as pip calls them.

    A package is known by the first part of its modules' names; it need not be loaded.
    """
    from importlib import metadata

    beginnings = {_beginning(module) for module in modules} - {__package__}
    if not beginnings:
        return []  # without a look at all that is installed
    names = set()
    for entry_point in metadata.entry_points(group=GROUP):
        if entry_point.dist is not None and _beginning(entry_point.module) in beginnings:
            names.add(entry_point.dist.name)
    return sorted(names)


def _beginning(module: str) -> str:
    return module.partition(".")[0]


def check_home(what: str, home: str) -> None:
    """Raise ExtensionError for what only this process can have. home: the module that defines it.

    A worker imports that module, and `__main__` is another one there.
    """
    if home == "__main__":
        raise ExtensionError(
            f"{what} is defined in the program itself, which workers cannot import; put it in a "
            "module, and import that"
        )


def _refusal(entry_point: "EntryPoint", error: Exception) -> ExtensionError:
    package = entry_point.value
    if entry_point.dist is not None:
        package = entry_point.dist.name
    why = " ".join(str(error).split())
    return ExtensionError(
        f"the package '{package}' extends elsa-tune, but its module {entry_point.module} cannot "
        f"be imported ({type(error).__name__}: {why}); mend the package, or uninstall it"
    )
