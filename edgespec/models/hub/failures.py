"""Why the Hugging Face hub did not give what it was asked for, in words."""

from __future__ import annotations

import socket
import ssl
from json import JSONDecodeError
from urllib.parse import urlsplit
from urllib.request import getproxies

import httpx2
from huggingface_hub import constants
from huggingface_hub.errors import (
    DisabledRepoError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    OfflineModeIsEnabled,
    OIDCError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from edgespec.errors import SourceError
from edgespec.models.hub.attended import Late

FAILURES = (httpx2.HTTPError, httpx2.InvalidURL, OIDCError, OSError, ValueError, ImportError)
"""What the session and the library raise for what is no fault of ours; most of the library's errors are OSErrors."""


class Broken(SourceError):
    """The connection broke, or the hub has trouble of its own: another try may help."""


class FileNotThere(SourceError):
    """The repository has no such file."""


def explain(error: Exception, repo: str) -> SourceError:
    """What happened and what to do about it, as a clause."""
    host = _host()
    page = f"{urlsplit(constants.ENDPOINT).scheme}://{host}/{repo}"
    match error:
        case OfflineModeIsEnabled():
            return SourceError("HF_HUB_OFFLINE forbids to ask the hub; unset it to fetch the model")
        case GatedRepoError():
            return SourceError(
                f"its makers ask you to accept their licence first; do so at {page}, log in with `hf auth login` or "
                "set HF_TOKEN, and try again"
            )
        case DisabledRepoError():
            return SourceError(f"the hub has shut {repo}; choose another repository")
        case RepositoryNotFoundError():
            return _no_repository(repo)
        case RevisionNotFoundError():
            return SourceError(f"{repo} has no such branch, tag or commit; check the revision at {page}")
        case RemoteEntryNotFoundError():
            return FileNotThere(f"{repo} has no such file")
        case HFValidationError():
            return SourceError(f"{repo} is no name that a repository can have; write user/repository")
        case HfHubHTTPError():
            return _refused(error, repo, host)
        case FileMetadataError() | JSONDecodeError():
            return SourceError(
                f"what answers at {host} is not the hub; log in to the network if it asks for that, and check "
                "HF_ENDPOINT and the proxy's settings"
            )
        case httpx2.ProxyError():
            return Broken(f"the proxy lets nothing through to {host} ({_said(error)}); check HTTPS_PROXY and try again")
        case httpx2.TimeoutException() | Late():
            return Broken(f"{host} does not answer{_by_proxy()}; check the network and try again")
        case httpx2.ConnectError() if (cause := _cause(error, ssl.SSLError)) is not None:
            return SourceError(
                f"the connection to {host} cannot be trusted ({_said(cause)}); check this machine's clock, and name "
                "your network's own certificates, if it has any, in SSL_CERT_FILE"
            )
        case httpx2.ConnectError() if _cause(error, socket.gaierror) is not None:
            return Broken(f"the name {host} cannot be looked up{_by_proxy()}; check the network and try again")
        case httpx2.ConnectError():
            return Broken(f"{host} cannot be reached{_by_proxy()}; check the network and try again")
        case httpx2.TransportError() if not isinstance(error, httpx2.UnsupportedProtocol):
            return Broken(f"the connection to {host} broke; check the network and try again")
        case _:
            # An address that is none in HF_ENDPOINT or a proxy's variable, for one, or an answer that cannot be read.
            return SourceError(f"the hub cannot be asked ({_said(error)}); check HF_ENDPOINT and the proxy's settings")


def _host() -> str:
    """Where the hub is, without a name and password that may stand in its address."""
    return urlsplit(constants.ENDPOINT).netloc.rpartition("@")[2] or "HF_ENDPOINT"


def _no_repository(repo: str) -> SourceError:
    return SourceError(
        f"there is no {repo}, or it is private; check the name, or log in with `hf auth login` or set HF_TOKEN"
    )


def _refused(error: HfHubHTTPError, repo: str, host: str) -> SourceError:
    code = error.response.status_code
    if code == 401 and "authorization" in error.response.request.headers:
        return SourceError("the hub does not know your token; log in with `hf auth login`, or correct HF_TOKEN")
    if code in (401, 404):
        return _no_repository(repo)
    if code == 403:
        return SourceError(f"the hub does not let you have it ({code}); see that your token may read {repo}")
    if code == 429:
        return SourceError("the hub has had too many questions from here; wait some minutes, or log in, and try again")
    if code >= 500:
        return Broken(f"{host} has trouble of its own ({code}); try again later")
    return SourceError(f"{host} refuses it ({code}); check HF_ENDPOINT and the proxy, and try again")


def _cause(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    """The first error of a kind that led to this one."""
    while error is not None and not isinstance(error, kind):
        error = error.__cause__ or error.__context__
    return error


def _said(error: BaseException) -> str:
    """An error's own words, in one line."""
    return (" ".join(str(error).split()) or type(error).__name__).rstrip(".")


def _by_proxy() -> str:
    return " through the proxy" if urlsplit(constants.ENDPOINT).scheme in getproxies() else ""
