"""URIs as they may be shown or stored: without passwords, tokens and other secrets."""

import ipaddress
import json
import os
import re
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import quote, unquote, unquote_plus, urlsplit

from elsa_tune.errors import first_line

# By which a user names a store for MLflow, and for us.
TRACKING_VARIABLE: Final = "MLFLOW_TRACKING_URI"
HIDDEN: Final = "***"
SQLITE: Final = "sqlite:///"
SERVER_SCHEMES: Final = frozenset({"http", "https", "databricks"})
DATABASE_SCHEMES: Final = frozenset({"postgresql", "mysql", "mssql"})
_WEB = frozenset({"http", "https"})
# In the environment: URIs that libraries may repeat in what they complain of, and secrets.
_URI_VARIABLES = (
    TRACKING_VARIABLE,
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "HF_ENDPOINT",
    "AWS_ENDPOINT_URL",
)
_SECRET_VARIABLES = (
    "MLFLOW_TRACKING_PASSWORD",
    "MLFLOW_TRACKING_TOKEN",
    "DATABRICKS_TOKEN",
    "PGPASSWORD",
    "MYSQL_PWD",
    "HF_TOKEN",
    # Of artifact stores.
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "FSSPEC_S3_SECRET",
    "FSSPEC_S3_TOKEN",
    "FSSPEC_GS_TOKEN",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_CONNECTION_STRING",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_CLIENT_SECRET",
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
_HIDDEN_PARAMETER = re.compile(rf"(?<=[?&;#])([^?&;#]+=)?{re.escape(HIDDEN)}(&|(?=#|$))")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,30}$", re.IGNORECASE)
# Behind a file's path: a query, or another URI.
_BEHIND_A_FILE = re.compile(r"\?|://")
# A user and password of what may be a URI without its `://`; a file's path may look like that.
_WITHOUT_MARK = re.compile(r"\A(--[a-z-]+=)?+(?!(?:file:)?/(?!/)|[.~])(?://|.*:).*@", re.DOTALL)
# In a text a blank ends a URI, except in a password behind a user's name: a number is a port.
_IN_TEXT = re.compile(
    r"[a-z][a-z0-9+.-]{0,30}://(?:[^\s/?#@:\[]*:(?!\d+(?:[\s/?#]|$))[^\n/?#]*@)?\S*", re.IGNORECASE
)


class _Parts(NamedTuple):
    """The parts of a URI: before + "://" + user + ":" + secret + "@" + place, as far as given."""

    before: str  # the scheme, and what stands ahead of it
    user: str  # of a database; a server takes a token in the place of the user
    secret: str | None  # a password; of a server all that stands before the last `@`
    place: str  # host, path and query
    spilt: str  # where that begins in the middle of a parameter: the rest of its value


def scheme_of(uri: str) -> str:
    """Return a URI's scheme in lower case, without what follows its `+`; "" without any."""
    head, colon, _ = uri.partition(":")
    if not colon:
        return ""
    return _without_driver(head)


def _without_driver(scheme: str) -> str:
    """Return a scheme in lower case, without the driver that may follow a plus."""
    name, _, _ = scheme.partition("+")
    return name.lower()


def shown_uri(uri: str) -> str:
    """Return a URI as it may be shown or stored.

    What is none stays as it is, and so does what was shown before. What looks like `USER:PASSWORD@`
    counts as one without its `://`, but for a file's path.

    Everything before the last `@` is hidden but a database's user, and so is the value of every
    parameter that is not known to be harmless: where a password has characters that it may not
    have, more is hidden, not less.
    """
    parts = _parts(uri)
    if parts is None:
        if "://" in uri:
            return uri
        return _WITHOUT_MARK.sub(rf"\1{HIDDEN}@", uri)
    user = _named_user(parts)
    if parts.secret is not None:
        user = f"{HIDDEN}@"
        if scheme_of(uri) in DATABASE_SCHEMES:
            user = f"{parts.user}:{HIDDEN}@"
    spilt = HIDDEN if parts.spilt else ""
    place = _shown_place(parts.place)
    before = _WITHOUT_MARK.sub(rf"\1{HIDDEN}@", parts.before)
    return f"{before}://{user}{spilt}{place}"


def _named_user(parts: _Parts) -> str:
    """Return a database's user as it stands before the place, without the password."""
    if not parts.user:
        return ""
    return f"{parts.user}@"


def hidden(text: str, *uris: str) -> str:
    """Return a text, such as another library's error, as it may be shown or stored.

    uris: those that it may repeat, also in part or decoded. Those of the environment are known.
    """
    repeated = [uri for uri in uris if uri]
    in_lower_case = [name.lower() for name in _URI_VARIABLES]
    for name in (*_URI_VARIABLES, *in_lower_case):
        uri = os.environ.get(name)
        if uri:
            repeated.append(uri)
    secrets: set[str] = set()
    for uri in repeated:
        secrets.update(_secrets(uri))
    for name in _SECRET_VARIABLES:
        secret = os.environ.get(name, "")
        secrets.update(_spellings(secret))
    for uri in repeated:
        shown = shown_uri(uri)
        text = text.replace(uri, shown)
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _IN_TEXT.sub(lambda match: shown_uri(match[0]), text)


def reason(error: BaseException, uri: str = "") -> str:
    """Return an error in one line of at most 200 characters, without secrets. uri: its store's."""
    return hidden(first_line(error), uri)[:200]


def without_credentials(uri: str) -> str:
    """Return the URI without what `shown_uri` hides; a database keeps its user's name."""
    parts = _parts(uri)
    if parts is None:
        return uri
    user = _named_user(parts)
    place = _shown_place(parts.place)
    shown = f"{parts.before}://{user}{place}"
    bare = _HIDDEN_PARAMETER.sub("", shown)
    return bare.rstrip("?&")


def server_of(uri: str) -> str:
    """Return the scheme, host and port of a server that is asked over the web; "" for others."""
    parts = _parts(uri)
    if parts is None or scheme_of(uri) not in _WEB:
        return ""
    address = re.split(r"[/?#\\]", parts.place, maxsplit=1)[0]
    return f"{scheme_of(uri)}://{address.lower()}"


def is_on_loopback(uri: str) -> bool:
    """Whether a URI's host is whichever machine reads it: localhost, 127.0.0.1 and such."""
    try:
        host = urlsplit(uri).hostname or ""
        if host == "localhost":
            return True
        address = ipaddress.ip_address(host)
    except ValueError:  # another name, or none
        return False
    return address.is_loopback or address.is_unspecified


def is_misread(uri: str) -> bool:
    """Whether MLflow would end the user or password elsewhere than at the last `@`.

    It does where one of them has a character that must be written as %40, %2F, %3F or %23.
    """
    parts = _parts(uri)
    if parts is None:
        return False
    if parts.spilt:
        return True
    _, _, rest = uri.partition("://")
    ours = rest.removesuffix(parts.place)
    if scheme_of(uri) in DATABASE_SCHEMES:
        # As SQLAlchemy takes it apart.
        match = re.match(r"[^:/]*(?::[^@]*)?@", rest)
        theirs = "" if match is None else match[0]
    else:
        authority = re.split(r"[/?#\\]", rest, maxsplit=1)[0]
        information, at, _ = authority.rpartition("@")
        theirs = information + at
    return theirs != ours


def _parts(uri: str) -> _Parts | None:
    """Return the parts of a URI; None for what is none, and for a file, which hides nothing."""
    before, mark, rest = uri.partition("://")
    named = _SCHEME.search(before)
    if not mark or named is None:
        return None
    scheme = _without_driver(named[0])
    if scheme == "sqlite" and rest.startswith("/") and not _BEHIND_A_FILE.search(rest):
        return None  # a file has no secrets, and its folders may be called R&D or lr=3
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
        name, _, _ = user.partition("?")
        return _Parts(before, name, password, place, spilt)
    if colon:
        return _Parts(before, "", information, place, spilt)
    if "/" in user or "?" in user:
        return _Parts(before, "", None, rest, "")  # the @ is a parameter's
    return _Parts(before, user, None, place, "")


def _shown_place(place: str) -> str:
    """Host, path and query; another URI within them is shown by the same rules."""
    path, mark, inner = place.partition("://")
    scheme = _SCHEME.search(path)
    is_value = _BEGUN_PARAMETER.search(path) is not None
    if not mark or scheme is None or is_value:
        return _shown_parameters(place)
    outer = path[: scheme.start()]
    inner_uri = f"{scheme[0]}://{inner}"
    return _shown_parameters(outer) + shown_uri(inner_uri)


def _shown_parameters(text: str) -> str:
    return _PARAMETER.sub(_shown_parameter, text)


def _shown_parameter(match: re.Match[str]) -> str:
    mark, name, value = match.groups()
    is_harmless = _HARMLESS.fullmatch(name) is not None
    if value is None:
        is_bare_secret = mark in "?&" and name and not is_harmless
        if is_bare_secret:
            return f"{mark}{HIDDEN}"
        return f"{mark}{name}"
    if is_harmless:
        own = re.split("[;#?]", value, maxsplit=1)[0]
        behind = value.removeprefix(own)
        return f"{mark}{name}={own}{_shown_parameters(behind)}"
    if not value.strip("="):  # a value in base64 may end so, without any name
        return f"{mark}{HIDDEN}"
    return f"{mark}{name}={HIDDEN}"


def _secrets(uri: str) -> Iterator[str]:
    """Return what `shown_uri` hides of a URI, in every spelling that a library may repeat."""
    parts = _parts(uri)
    if parts is None:
        return
    secrets = [parts.spilt]
    if parts.secret is not None:
        secrets.append(parts.secret)
        # Of a password with a character that it may not have, a library repeats a part.
        secrets += parts.secret.split(":", 1)
        secrets += re.split(r"[:/?#@]", parts.secret)
    for _, name, value in _PARAMETER.findall(parts.place):
        if not _HARMLESS.fullmatch(name):
            secrets.append(value or name)
            secrets += re.split(r"[?;#]", value)
    public = shown_uri(uri)
    for secret in secrets:
        for spelling in _spellings(secret):
            if spelling not in public:
                yield spelling


def _spellings(secret: str) -> Iterator[str]:
    """Return a secret as it stands, decoded, and as URIs, Python and JSON write it."""
    for plain in {secret, unquote(secret), unquote_plus(secret)}:
        spellings = (
            plain,
            quote(plain),
            quote(plain, safe=""),
            repr(plain)[1:-1],
            json.dumps(plain)[1:-1],
        )
        for spelling in spellings:
            if len(spelling) >= _SHORTEST_SECRET and spelling != HIDDEN:
                yield spelling
