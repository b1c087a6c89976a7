"""What of a URI may be shown: never a password, a token or another secret, however it is typed."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path
from urllib.parse import quote, quote_plus, urlsplit

import pytest
from sqlalchemy.engine import make_url

from elsa_tune.errors import TrackingError
from elsa_tune.tracking.database_drivers import dialect_of, driver_package
from elsa_tune.tracking.mlflow.database import check_driver
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.uris import hidden, is_misread, reason, shown_uri, without_credentials

HERE = StorePaths(Path("/home/me/work"))


@pytest.mark.parametrize(
    ("uri", "shown", "bare"),
    [
        ("https://me:s3cret@server:5000/x", "https://***@server:5000/x", "https://server:5000/x"),
        ("http://me:s3@cret@server", "http://***@server", "http://server"),
        ("http://me:s3/cret@server/x", "http://***@server/x", "http://server/x"),
        ("http://me:80/s3cret@server/x", "http://***@server/x", "http://server/x"),
        ("http://me:s3 cret@server", "http://***@server", "http://server"),
        ("http://s3cret@server", "http://***@server", "http://server"),
        ("http://s3cret:@server", "http://***@server", "http://server"),
        ("https://s3cret:x-oauth@server", "https://***@server", "https://server"),
        ("HTTPS://s3cret@server", "HTTPS://***@server", "HTTPS://server"),
        ("https:///me:s3cret@server", "https://***@server", "https://server"),
        ("postgresql://me:s3cret@db/x", "postgresql://me:***@db/x", "postgresql://me@db/x"),
        ("postgresql://me@db/x", "postgresql://me@db/x", "postgresql://me@db/x"),
        ("postgresql://me@db:5432/x", "postgresql://me@db:5432/x", "postgresql://me@db:5432/x"),
        ("postgresql://:s3cret@db/x", "postgresql://:***@db/x", "postgresql://db/x"),
        (
            "postgresql://me@azure:s3cret@db/x",
            "postgresql://me@azure:***@db/x",
            "postgresql://me@azure@db/x",
        ),
        ("postgresql://me:5432/s3cret@db/x", "postgresql://me:***@db/x", "postgresql://me@db/x"),
        ("mysql+pymysql://me:s3?cr#et@db", "mysql+pymysql://me:***@db", "mysql+pymysql://me@db"),
        (
            "postgresql://db/x?user=me&password=s3cr@et&sslmode=require",
            "postgresql://db/x?user=me&password=***&sslmode=require",
            "postgresql://db/x?user=me&sslmode=require",
        ),
        ("http://h/x?access_token=s3cret", "http://h/x?access_token=***", "http://h/x"),
        ("http://h/x?access=s3cret", "http://h/x?access=***", "http://h/x"),
        ("http://h/x?mode=a;jwt=s3cret", "http://h/x?mode=a;jwt=***", "http://h/x?mode=a;"),
        ("http://h?Api-Key=s3#cret", "http://h?Api-Key=***", "http://h"),
        ("http://h?s3cret", "http://h?***", "http://h"),
        ("http://h?czNjcmV0PQ==", "http://h?***", "http://h"),
        ("http://h/#token=s3cret", "http://h/#token=***", None),
        ("mssql+pyodbc:///?odbc_connect=PWD%3Ds3cret", "mssql+pyodbc:///?odbc_connect=***", None),
        ("http://server:5000/me:a%40b", "http://server:5000/me:a%40b", None),
        ("http://server/#/experiments/1", "http://server/#/experiments/1", None),
        ("http://[::1]:5000/a", "http://[::1]:5000/a", "http://[::1]:5000/a"),
        ("sqlite:////a@b:c/m.db", "sqlite:////a@b:c/m.db", "sqlite:////a@b:c/m.db"),
        ("s3://me:s3cret@bucket/x", "s3://***@bucket/x", None),
        ("--tracking-uri=http://s3cret@h", "--tracking-uri=http://***@h", None),
    ],
)
def test_a_secret_is_not_shown(uri: str, shown: str, bare: str | None) -> None:
    assert shown_uri(uri) == shown == shown_uri(shown)
    for text in (f"API request to {uri} failed", f"({uri})", f'{{"uri": "{uri}"}}'):
        assert "s3" not in hidden(text).replace("s3://", "") and "cret" not in hidden(text)
    if bare is not None:
        assert without_credentials(uri) == without_credentials(shown) == bare


@pytest.mark.parametrize(
    ("typed", "shown"),
    [
        ("http:/bob:s3cret@h:1", "***@h:1"),
        ("https:bob:s3@cret@h", "***@h"),
        ("postgresql:s3cret@h/db", "***@h/db"),
        ("bob:s3cret@h:5000", "***@h:5000"),
        ("//bob:s3cret@h:5000", "***@h:5000"),
        ("//s3cret@h:5000", "***@h:5000"),
        ("me@corp:s3cret@h", "***@h"),
        ("--tracking-uri=http:/bob:s3cret@h", "--tracking-uri=***@h"),
    ],
)
def test_a_secret_without_the_mark_of_a_uri_is_not_shown(typed: str, shown: str) -> None:
    assert shown_uri(typed) == shown == shown_uri(shown)
    with pytest.raises(TrackingError) as refused:
        HERE.tracking_uri(typed)
    assert "s3" not in str(refused.value) and "cret" not in str(refused.value)


@pytest.mark.parametrize(
    "path", ["/a:b/me@corp", "./a:b@c", "../a:b@c", "~/a:b@c", "file:/home/me@corp", "--x=/a:b@c"]
)
def test_a_path_is_shown_whole(path: str) -> None:
    assert shown_uri(path) == path


@pytest.mark.parametrize("scheme", ["http", "https", "databricks", "postgresql", "mysql", "mssql"])
@pytest.mark.parametrize("rest", [":h:5000", ":/h:5000", ":"])
def test_a_server_or_database_needs_both_slashes(scheme: str, rest: str) -> None:
    with pytest.raises(TrackingError, match=f"'{scheme}:...' has no '//'; write {scheme}://"):
        HERE.named_uri(scheme + rest)
    assert HERE.named_uri("databricks") == "databricks"


@pytest.mark.parametrize("uri", ["postgresql://me:s3cret@h:abc/x", "mysql+pymysql://h:1:2/x"])
def test_a_database_that_sqlalchemy_cannot_read_is_refused_in_a_sentence(uri: str) -> None:
    for read in (HERE.named_uri, check_driver, dialect_of):
        with pytest.raises(TrackingError, match="cannot be read; write") as refused:
            read(uri)
        assert "s3cret" not in str(refused.value) and refused.value.exit_status == 2


def test_a_driver_that_sqlalchemy_does_not_know_is_refused_before_a_job_is_sent() -> None:
    uri = "postgresql+nosuch://me:s3cret@h/x"
    for read in (check_driver, driver_package):
        with pytest.raises(TrackingError, match="does not know; write postgresql://") as refused:
            read(uri)
        assert "s3cret" not in str(refused.value)
    assert driver_package("postgresql+psycopg://h/x") == "psycopg[binary]"


@pytest.mark.parametrize("folder", ["R&D", "run#lr=3", "a=b", "x;y=1", "a@b", "R&D=***"])
def test_a_path_of_an_sqlite_file_stays_whatever_its_folders_are_called(folder: str) -> None:
    """Cut short, it would be another file, which `resume` would make."""
    uri = f"sqlite:////home/me/{folder}/mlruns/mlflow.db"
    assert StorePaths(Path(f"/home/me/{folder}")).tracking_uri() == uri
    assert shown_uri(uri) == without_credentials(uri) == uri and not is_misread(uri)
    assert hidden(f"cannot open {uri}", uri) == f"cannot open {uri}"


@pytest.mark.parametrize("behind", ["?password=s3cret", "?s3cret", "&x=http://s3cret@h"])
def test_a_secret_behind_an_sqlite_file_is_not_shown(behind: str) -> None:
    assert "s3cret" not in shown_uri(f"sqlite:////home/me/m.db{behind}")


def test_a_text_without_a_secret_stays() -> None:
    text = "http://server:5000 and http://server:80/x do not answer; write to me@example.org"
    assert hidden(text) == text
    for uri in ("not a uri", "", "a@b:c/d?e=f", "databricks"):
        assert shown_uri(uri) == without_credentials(uri) == uri and not is_misread(uri)


@pytest.mark.parametrize(
    "given", ["file://me:s3cret@server/mlruns", "sqlite://me:s3cret@server", "s3://me:s3cret@b"]
)
def test_a_uri_that_is_no_store_hides_its_password_too(given: str) -> None:
    with pytest.raises(TrackingError) as refused:
        HERE.tracking_uri(given)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        "http://me:s3/cret@server",
        "http://me:s3?cret@server",
        "http://me:s3#cret@server",
        "postgresql://me:s3@cret@db/x",
        "postgresql://m/e:s3cret@db/x",
        "postgresql://db:5432/x?password=s3@cret",
    ],
)
def test_a_password_that_would_be_cut_in_two_is_refused(given: str) -> None:
    """MLflow would take one part for a host, and say it."""
    with pytest.raises(TrackingError, match="write @ as %40") as refused:
        HERE.tracking_uri(given)
    assert "s3" not in str(refused.value) and "cret" not in str(refused.value)


def test_what_a_library_repeats_in_part_or_decoded_is_hidden(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    uri = "postgresql://me:pa%2Fss%20word@db/x?password=second+one"
    for said in ("no pa/ss word", "no 'pa%2Fss%20word'", "second one is wrong", "second+one"):
        assert "***" in reason(ValueError(said), uri)
        assert not {"pa/ss", "pa%2Fss", "second"} & set(reason(ValueError(said), uri).split())
    monkeypatch.setenv("https_proxy", "http://me:pro/xy-word@proxy:3128")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "tok-en-1")
    assert hidden("cannot connect to me:pro/xy-word, port pro") == "cannot connect to ***, port pro"
    assert hidden("no xy-word@proxy, tok-en-1") == "no ***@proxy, ***"
    # Who has the database's name for a password hides nothing else.
    assert reason(ValueError("no mlflow"), "postgresql://mlflow:mlflow@db/mlflow") == "no mlflow"


SPECIAL = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~ é"
SCHEMES = (
    *("http", "https", "HTTP", "Https", "postgresql", "postgresql+psycopg", "postgresql+psycopg2"),
    *("mysql", "mysql+pymysql", "mssql+pyodbc", "PostgreSQL"),
)
USERS = ("me", "me@server", "m.e-1", "", "me%40corp")
PARAMETERS = ("password", "access", "jwt", "token", "sslpassword", "sig", "X-Key", "p", "code")
HARMLESS = ("sslmode=require", "connect_timeout=5", "user=me", "application_name=x")
FORMS = ("{}", "API request to {} failed", "cannot open '{}'", 'url = "{}", tried 3 times', "{}\n")


def drawn_secret(draw: random.Random) -> str:
    """Of 6 to 12 characters, special ones among them; W and Z stand in nothing else."""
    letters = [draw.choice("WZ") for _ in range(6)]
    for _ in range(draw.randint(0, 6)):
        letters.insert(draw.randint(0, len(letters)), draw.choice(SPECIAL))
    return "".join(letters)


def spelled(draw: random.Random, secret: str) -> str:
    return draw.choice([secret, secret, quote(secret), quote(secret, safe=""), quote_plus(secret)])


def drawn_uri(draw: random.Random) -> str:
    """Return a URI with a secret somewhere."""
    scheme, secret = draw.choice(SCHEMES), spelled(draw, drawn_secret(draw))
    forms = [f"{draw.choice(USERS)}:{secret}@", ""]
    if scheme.lower().startswith("http"):
        # Of a server even the user's name may be a token, with or without a password behind it.
        forms += [f"{secret}@", f"{secret}:@", f"{secret}:x-oauth@"]
    information, host = draw.choice(forms), draw.choice(["db.example.org", "10.0.0.1", "[::1]"])
    query = [draw.choice(HARMLESS) for _ in range(draw.randint(0, 2))]
    if not information:
        value = secret.replace("&", "")
        query.insert(draw.randint(0, len(query)), f"{draw.choice(PARAMETERS)}={value}")
    place = f"{host}{draw.choice(['', ':5432'])}/x"
    return f"{scheme}://{information}{place}?{'&'.join(query)}".rstrip(" ?")


@pytest.mark.parametrize("seed", range(8))
def test_no_drawn_secret_is_ever_shown(seed: int) -> None:
    draw = random.Random(seed)
    for _ in range(1000):
        uri = drawn_uri(draw)
        shown = shown_uri(uri)
        assert not set("WZ") & set(shown + without_credentials(uri)), uri
        assert shown_uri(shown) == shown, uri
        for form in draw.sample(FORMS, 1):
            assert not set("WZ") & set(reason(ValueError(form.format(uri)), uri)), (uri, form)
            if " " not in uri:  # which ends a URI that is met in a text
                assert not set("WZ") & set(hidden(form.format(uri))), (uri, form)


@pytest.mark.parametrize("seed", range(4))
def test_what_is_taken_is_read_as_its_library_reads_it(seed: int) -> None:
    """Whatever `is_misread` lets through ends user and password where SQLAlchemy or urllib do."""
    draw, taken = random.Random(100 + seed), 0
    for _ in range(1000):
        uri = drawn_uri(draw)
        if is_misread(uri):
            continue
        if uri.lower().startswith("http"):
            with contextlib.suppress(ValueError):  # half an IPv6 address, which requests refuses
                found = urlsplit(uri)
                read, taken = found.netloc.rpartition("@")[2] + found.path, taken + 1
        else:
            url = make_url(uri)
            read, taken = f"{url.host} {url.database}", taken + 1
        assert not set("WZ") & set(read), uri
    assert taken > 300


@pytest.mark.parametrize(
    "uri",
    ["http:/me:geheim@store:5000/?next=http://x", "postgresql:me:geheim@h/db?u=a://b"],
)
def test_a_uri_without_its_slashes_is_none_though_another_follows(uri: str, tmp_path: Path) -> None:
    assert "geheim" not in shown_uri(uri)
    with pytest.raises(TrackingError, match="has no '//'") as refused:
        StorePaths(tmp_path).named_uri(uri)
    assert "geheim" not in str(refused.value)
