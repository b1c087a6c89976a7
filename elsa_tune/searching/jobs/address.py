"""The address of a cluster's dashboard, which takes jobs: read, and told from Ray's other ones."""

import urllib.parse

from elsa_tune.errors import UsageError
from elsa_tune.tracking.uris import shown_uri

DASHBOARD_PORT = 8265
_GCS_PORT = 6379
_CLIENT_SCHEME = "ray"


def dashboard_url(address: str | None) -> str:
    """Return the URL of a dashboard: `http://HOST:8265`, or HOST:PORT for short.

    Raises UsageError for none, for what is another address of Ray's, and for one with a password.
    """
    wanted = f"give `address` http://HOST:{DASHBOARD_PORT}, the cluster's dashboard"
    if not address:
        raise UsageError(f"jobs are sent to a cluster, and none is named; {wanted}")
    if address in ("auto", "none"):
        raise UsageError(f"`address` {address} names no dashboard, which takes jobs; {wanted}")
    text = address if "://" in address else f"http://{address}"
    shown = shown_uri(address)
    try:
        parts = urllib.parse.urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise UsageError(f"`address` {shown} cannot be read: {error}; {wanted}") from error
    instead = f"http://{host or 'HOST'}:{DASHBOARD_PORT}"
    if parts.scheme == _CLIENT_SCHEME:
        raise UsageError(
            f"`address` {shown} is that of Ray's client, and jobs go to the dashboard; give "
            f"{instead}"
        )
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"`address` {shown} is no dashboard's; {wanted}")
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"`address` {shown} has a password in it, which `ps` shows to everybody on this "
            "machine; leave it out: Ray's token lies in ~/.ray/auth_token, or in RAY_AUTH_TOKEN"
        )
    if port == _GCS_PORT:
        raise UsageError(
            f"`address` {shown} is where Ray's nodes meet, and jobs go to the dashboard; give "
            f"{instead}"
        )
    return text.rstrip("/")
