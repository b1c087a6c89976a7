"""URIs as they may be shown or stored: without passwords, tokens and other secrets."""

import json
import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, unquote_plus

from elsa_tune.errors import first_line

HIDDEN: Final = "***"
SQLITE: Final = "sqlite:///"
SERVER_SCHEMES: Final = frozenset({"http", "https", "databricks"})
DATABASE_SCHEMES: Final = frozenset({"postgresql", "mysql", "mssql"})
_WEB = frozenset({"http", "https"})
# In the environment: URIs that libraries may repeat in what they complain of, and secrets.
_URI_VARIABLES = ("MLFLOW_TRACKING_URI", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "HF_ENDPOINT")
_SECRET_VARIABLES = (
    *("MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "DATABRICKS_TOKEN"),
    *("PGPASSWORD", "MYSQL_PWD", "HF_TOKEN"),
)
# A shorter one is found in every second word; in a URI it is hidden all the same.
_SHORTEST_SECRET = 4
# What drivers of databases and MLflow's pages take in a query, beside secrets.
_HARMLESS = re.compile(
    r"""user | host(addr)? | port | dbname | database | service | passfile | driver | charset
    | collation | client_encoding | unix_socket | read_default_file | use_unicode | autocommit
    | local_infile | isolation_level | (fallback_)?application_name | applicationintent
    | target_session_attrs | load_balance_hosts | channel_binding | require_auth | requirepeer
    | gssencmode | krbsrvname | gsslib | keepalives(_(idle|interval|count))? | multisubnetfailover
    | ((connect|login|read|write|tcp_user)_)?timeout | trusted_connection | encrypt
    | trustservercertificate | ssl_(min|max)_protocol_version | ssl_(ca|cert|key|capath|cipher)
    | ssl_(check_hostname|verify_cert|verify_identity|disabled)
    | ssl(mode|negotiation|compression|cert|key|rootcert|crl|crldir|sni)
    | mode | cache | uri | vfs | nolock | immutable
    | workflowtype | searchfilter | max_results | path | run_uuid | run_id | experiment_id""",
    re.IGNORECASE | re.VERBOSE,
)
_PARAMETER = re.compile(r"([?&;#])([^=?&;#]*)(?:=([^&]*))?")
_BEGUN_PARAMETER = re.compile(r"[?&;#][^=?&;#]*=")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,30}$", re.IGNORECASE)
# In a text a blank ends a URI, except in a password behind a user's name: a number is a port.
_IN_TEXT = re.compile(
    r"[a-z][a-z0-9+.-]{0,30}://(?:[^\s/?#@:\[]*:(?!\d+(?:[\s/?#]|$))[^\n/?#]*@)?\S*", re.IGNORECASE
)


class _Parts(NamedTuple):
    """The parts of a URI: before + "://" + user + ":" + secret + "@" + place, as far as given."""

    before: str
    user: str  # of a database; a server takes a token in the place of the user
    secret: str | None
    place: str
    spilt: str  # where that begins in the middle of a parameter: the rest of its value


def scheme_of(uri: str) -> str:
    """Return a URI's scheme in lower case, without what follows its `+`; "" without any."""
    head, separator, _ = uri.partition(":")
    return head.lower().split("+")[0] if separator else ""


def shown_uri(uri: str) -> str:
    """Return a URI as it may be shown or stored.

    What is none stays as it is, and so does what was shown before.

    Everything before the last `@` is hidden but a database's user, and so is the value of every
    parameter that is not known to be harmless: where a password has characters that it may not
    have, more is hidden, not less.
    """
    parts = _parts(uri)
    if parts is None:
        return uri
    if parts.secret is None:
        user = f"{parts.user}@" if parts.user else ""
    else:
        is_database = scheme_of(uri) in DATABASE_SCHEMES
        user = f"{parts.user}:{HIDDEN}@" if is_database else f"{HIDDEN}@"
    spilt = HIDDEN if parts.spilt else ""
    return f"{parts.before}://{user}{spilt}{_shown_place(parts.place)}"


def hidden(text: str, *uris: str) -> str:
    """Return a text, such as another library's error, as it may be shown or stored.

    uris: those that it may repeat, also in part or decoded. Those of the environment are known.
    """
    variables = [*_URI_VARIABLES, *map(str.lower, _URI_VARIABLES)]
    known = [*filter(None, (*uris, *map(os.environ.get, variables)))]
    secrets = {secret for uri in known for secret in _secrets(uri)}
    for name in _SECRET_VARIABLES:
        secrets |= set(_spellings(os.environ.get(name, "")))
    for uri in known:
        text = text.replace(uri, shown_uri(uri))
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _IN_TEXT.sub(lambda found: shown_uri(found[0]), text)


def reason(error: BaseException, uri: str = "") -> str:
    """Return an error in one line of at most 200 characters, without secrets. uri: its store's."""
    return hidden(first_line(error), uri)[:200]


def without_credentials(uri: str) -> str:
    """Return the URI without what `shown_uri` hides; a database keeps its user's name."""
    parts = _parts(uri)
    if parts is None:
        return uri
    user = f"{parts.user}@" if parts.user else ""
    bare = f"{parts.before}://{user}{_shown_place(parts.place)}"
    return re.sub(rf"(?<=[?&;#])([^?&;#]+=)?{re.escape(HIDDEN)}(&|(?=#|$))", "", bare).rstrip("?&")


def is_misread(uri: str) -> bool:
    """Whether MLflow would end the user or password elsewhere than at the last `@`.

    It does where one of them has a character that must be written as %40, %2F, %3F or %23.
    """
    parts = _parts(uri)
    if parts is None:
        return False
    rest = uri.partition("://")[2]
    if scheme_of(uri) in DATABASE_SCHEMES:
        # As SQLAlchemy takes it apart.
        found = re.match(r"[^:/]*(?::[^@]*)?@", rest)
        theirs = found[0] if found else ""
    else:
        authority = re.match(r"[^/?#\\]*", rest)
        assert authority is not None
        theirs = "".join(authority[0].rpartition("@")[:2])
    return theirs != rest.removesuffix(parts.place) or bool(parts.spilt)


def _parts(uri: str) -> _Parts | None:
    before, mark, rest = uri.partition("://")
    named = _SCHEME.search(before)
    if not mark or named is None:
        return None
    scheme = named[0].lower().split("+")[0]
    has_no_host = rest.startswith("/") and scheme not in _WEB
    information, at, place = rest.rpartition("@")
    if not at or has_no_host:
        return _Parts(before, "", None, rest, "")
    spilt = ""
    if _BEGUN_PARAMETER.search(information):
        spilt, ampersand, others = place.partition("&")
        place = ampersand + others
    if scheme not in DATABASE_SCHEMES:
        return _Parts(before, "", information, place, spilt)
    user, colon, password = information.partition(":")
    if colon and "/" not in user:
        return _Parts(before, user.partition("?")[0], password, place, spilt)
    if colon:
        return _Parts(before, "", information, place, spilt)
    if "/" in user or "?" in user:
        return _Parts(before, "", None, rest, "")  # the @ is a parameter's
    return _Parts(before, user, None, place, "")


def _shown_place(place: str) -> str:
    """Host, path and query; another URI within them is shown by the same rules."""
    path, mark, inner = place.partition("://")
    if mark and (named := _SCHEME.search(path)) and not _BEGUN_PARAMETER.search(path):
        outer = path[: named.start()]
        return _PARAMETER.sub(_shown_parameter, outer) + shown_uri(f"{named[0]}://{inner}")
    return _PARAMETER.sub(_shown_parameter, place)


def _shown_parameter(found: re.Match[str]) -> str:
    mark, name, value = found.groups()
    if value is None:
        is_bare_secret = mark in "?&" and name and not _HARMLESS.fullmatch(name)
        return f"{mark}{HIDDEN if is_bare_secret else name}"
    if _HARMLESS.fullmatch(name):
        end = re.search(r"[;#?]|$", value)
        assert end is not None
        rest = _PARAMETER.sub(_shown_parameter, value[end.start() :])
        return f"{mark}{name}={value[: end.start()]}{rest}"
    # A value in base64 may end so, without any name.
    return f"{mark}{HIDDEN}" if not value.strip("=") else f"{mark}{name}={HIDDEN}"


def _secrets(uri: str) -> Iterator[str]:
    """Return what `shown_uri` hides of a URI, in every spelling that a library may repeat."""
    parts = _parts(uri)
    if parts is None:
        return
    found = [parts.spilt]
    if parts.secret is not None:
        # Of a password with a character that it may not have, a library repeats a part.
        found += [parts.secret, *parts.secret.split(":", 1), *re.split(r"[:/?#@]", parts.secret)]
    for _, name, value in _PARAMETER.findall(parts.place):
        if not _HARMLESS.fullmatch(name):
            found += [value or name, *re.split(r"[?;#]", value)]
    public = shown_uri(uri)
    for one in found:
        yield from (each for each in _spellings(one) if each not in public)


def _spellings(secret: str) -> Iterator[str]:
    for one in {secret, unquote(secret), unquote_plus(secret)}:
        for each in (one, quote(one), quote(one, safe=""), repr(one)[1:-1], json.dumps(one)[1:-1]):
            if len(each) >= _SHORTEST_SECRET and each != HIDDEN:
                yield each
