"""The versions on a cluster's nodes, compared before the first trial.

What is installed otherwise on one node trains otherwise there, or breaks in the middle of a search.
"""

from collections.abc import Callable, Iterable, Mapping

from elsa_tune.errors import UsageError, first_few
from elsa_tune.specs.adapt.candidates import method_packages
from elsa_tune.words import aligned

# By package, each node's version; what decides results, and what Ray must be able to send there.
Versions = dict[str, str]

# Beside what methods of adaptation take.
PACKAGES = ("torch", "transformers", "ray")
MISSING = "missing"


def question(more: Iterable[str] = ()) -> Callable[[], Versions]:
    """Return what a node is asked: an inner function, whose code Ray takes along.

    more: packages that a search uses beside what every search takes.

    It imports nothing of ours at its top: elsa-tune may be missing on the node.
    """
    packages = (*PACKAGES, *method_packages(), *more)
    missing = MISSING

    def versions_here() -> Versions:
        import platform
        from importlib import metadata

        versions = {"python": platform.python_version()}
        for package in packages:
            try:
                versions[package] = metadata.version(package)
            except metadata.PackageNotFoundError:
                versions[package] = missing
        versions["elsa-tune"] = missing
        try:
            import elsa_tune

            versions["elsa-tune"] = elsa_tune.__version__
        except ImportError:
            pass
        return versions

    return versions_here


def check_versions(here: Versions, by_node: Mapping[str, Versions]) -> None:
    """Raise UsageError, with a table, where nodes have other versions than this machine.

    by_node: by the node's id. Python's third number and torch's build (+cpu, +cu130) may differ: a
    driver without a GPU drives nodes that have some. A package that this machine does without may
    be there or not.
    """
    differing = []
    for node, versions in by_node.items():
        if differing_versions(versions, here):
            differing.append(node)
    if not differing:
        return
    rows = [["node", *here], ["this one", *here.values()]]
    for node in differing:
        versions = by_node[node]
        rows.append([node[:8], *(versions.get(name, MISSING) for name in here)])
    table = aligned(rows).splitlines()
    nodes = f"{len(differing)} nodes of the cluster have"
    if len(differing) == 1:
        nodes = "a node of the cluster has"
    raise UsageError(
        f"{nodes} other versions than this machine; install the same ones there, in the Python "
        "that runs Ray",
        *first_few(table),
    )


def differing_versions(there: Versions, here: Versions) -> list[str]:
    """Write how a node's versions differ, as `torch 2.11.0 (here 2.13.0)`, but for what may."""
    found = _compared(there, here)
    wanted = _compared(here, here)
    texts = []
    for name, version in wanted.items():
        if found.get(name, MISSING) != version:
            texts.append(f"{name} {there.get(name, MISSING)} (here {here[name]})")
    return texts


def _compared(versions: Versions, here: Versions) -> Versions:
    """Return what of the versions must be equal on all nodes. here: the driver's."""
    compared = {}
    for name, version in versions.items():
        if here.get(name) == MISSING:
            continue
        public, _, _ = version.partition("+")
        if name == "python":
            public = ".".join(public.split(".")[:2])
        compared[name] = public
    return compared
