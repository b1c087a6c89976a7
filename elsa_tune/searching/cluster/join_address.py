"""The address by which a search joins a running Ray cluster: read, told from others, knocked at."""

import socket
import urllib.parse

from elsa_tune.errors import UsageError
from elsa_tune.tracking.uris import shown_uri

DEFAULT_PORT = 6379
# By default other parts of a cluster listen here, and a search that joined them would wait.
_OTHER_PORTS = {8265: "its dashboard", 10001: "Ray's client"}
AUTO = "auto"
# What is given in place of an address: this machine, wherever a search ran before.
NO_CLUSTER = "none"
_CONNECT_SECONDS = 5.0
_WANTED = "give HOST:PORT, as `ray start --head` prints it, auto, or none for this machine"


def join_place(address: str) -> tuple[str, int]:
    """Return host and port of an address. Raises UsageError for what is none."""
    shown = shown_uri(address)
    scheme, has_scheme, _ = address.partition("://")
    if has_scheme and scheme in ("http", "https"):
        raise UsageError(
            f"`address` {shown} is a dashboard's, which takes what `submit` sends, and a search "
            f"joins a cluster where its nodes do; {_WANTED}"
        )
    if has_scheme and scheme == "ray":
        raise UsageError(
            f"`address` {shown} is that of Ray's client, and a search joins a cluster where its "
            f"nodes do; {_WANTED}"
        )
    try:
        parts = urllib.parse.urlsplit(f"//{address}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"`address` {shown} cannot be read: {error}; {_WANTED}") from error
    if not host or has_scheme or parts.path:
        raise UsageError(f"`address` {shown or '(empty)'} is none of a cluster; {_WANTED}")
    if port in _OTHER_PORTS:
        raise UsageError(
            f"`address` {shown} is a port of {_OTHER_PORTS[port]}, and a search joins a cluster "
            f"where its nodes do, by default {host}:{DEFAULT_PORT}; {_WANTED}"
        )
    return host, port or DEFAULT_PORT


def rays_address(address: str) -> str:
    """Return an address as Ray takes it, `auto` or HOST:PORT: it knows no default port."""
    if address == AUTO:
        return AUTO
    host, port = join_place(address)
    if ":" in host:
        host = f"[{host}]"
    return f"{host}:{port}"


def asked_address(text: str | None) -> str | None:
    """Return the address of the cluster that is asked for; None for this machine.

    Raises UsageError for what is no address.
    """
    if text is None or text == NO_CLUSTER:
        return None
    check_join_address(text)
    return text


def check_join_address(address: str | None) -> None:
    """Raise UsageError for what is no address of a cluster. None: this machine."""
    if address not in (None, AUTO):
        join_place(address)


def knock(address: str) -> None:
    """Raise OSError unless something listens there: Ray itself would wait for minutes."""
    socket.create_connection(join_place(address), timeout=_CONNECT_SECONDS).close()
