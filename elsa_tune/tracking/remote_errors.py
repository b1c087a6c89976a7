"""What the errors of clients of object stores and file servers mean.

They are of many libraries and share no base, but their names and words are alike.
"""

import re

from elsa_tune.tracking.uris import reason

# Parts of the names of errors: of a client without credentials, and of a server without an answer.
_WITHOUT_CREDENTIALS = ("Credential", "Authentication")
_WITHOUT_ANSWER = ("Timeout", "Connect", "ServiceRequest", "ServiceUnavailable", "TransportError")
# S3's codes of a server that is busy or restarts, as boto3 repeats them.
_BUSY = re.compile(r"\((SlowDown|ServiceUnavailable|InternalError|RequestTimeout|50[0234])\)")
# A status as a text has it; in a path the number is somebody's folder.
_REFUSED = re.compile(
    r"(?<![/\w])(401|403)(?![/\w])|Access ?Denied|Forbidden|InvalidAccessKeyId"
    r"|SignatureDoesNotMatch|ExpiredToken",
    re.IGNORECASE,
)
_NO_BUCKET = re.compile(r"NoSuchBucket|bucket does not exist", re.IGNORECASE)
_NO_FILE = re.compile(
    r"(?<![/\w])404(?![/\w])|no such (file|key|object)|not found|does not exist", re.IGNORECASE
)


def lacks_credentials(error: BaseException) -> bool:
    """Whether a client has no credentials to show."""
    # MLflow wraps what a download meets, and keeps its words.
    return _is_named(error, _WITHOUT_CREDENTIALS) or "credentials" in str(error)


def is_unanswered(error: BaseException) -> bool:
    """Whether a server is down, out of reach, slow or busy."""
    if lacks_credentials(error):
        return False
    if isinstance(error, TimeoutError | ConnectionError) or _is_named(error, _WITHOUT_ANSWER):
        return True
    return _BUSY.search(str(error)) is not None


def is_refused(error: BaseException) -> bool:
    """Whether a server does not let these credentials do that."""
    return isinstance(error, PermissionError) or _REFUSED.search(str(error)) is not None


def lacks_bucket(error: BaseException) -> bool:
    """Whether a store has no such bucket, as where another store was asked."""
    return _NO_BUCKET.search(str(error)) is not None


def lacks_file(error: BaseException) -> bool:
    """Whether a store has no such file, as far as it could look."""
    if isinstance(error, ImportError) or lacks_credentials(error):
        return False
    if is_unanswered(error) or lacks_bucket(error):
        return False
    return isinstance(error, FileNotFoundError) or _NO_FILE.search(str(error)) is not None


def trouble(url: str, error: BaseException) -> str:
    """Return why a store did not take or give a file, and what to do, to follow its URL.

    url: a folder's path, or with its scheme.
    """
    why = reason(error, url)
    is_folder = "://" not in url
    if isinstance(error, OSError) and is_folder and error.strerror:
        return f"cannot be written or read ({error.strerror}); choose another place"
    if isinstance(error, FileNotFoundError) or lacks_bucket(error):
        bucket = url.partition("://")[2].partition("/")[0]
        return f"has no bucket or folder '{bucket}' ({why}); make it, or name another one"
    if is_refused(error):
        return (
            f"refuses what the environment's credentials ask for ({why}); see whether they may "
            "write, list and delete there"
        )
    if lacks_credentials(error):
        return (
            f"finds no credentials ({why}); set them in the environment, for s3:// "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile"
        )
    if is_unanswered(error):
        return f"does not answer ({why}); see whether its address and the network are right"
    return f"does not do what it is asked for ({why})"


def _is_named(error: BaseException, parts: tuple[str, ...]) -> bool:
    name = type(error).__name__
    return any(part in name for part in parts)
