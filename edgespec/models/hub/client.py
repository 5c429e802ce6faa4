"""What is asked of the Hugging Face hub over the network.

All of it goes through huggingface-hub's own session, so that its settings hold (endpoint, tokens, proxies, time-outs),
but in a thread: see `attended`. The library's own downloads are not used, because what has come of a file that is
broken off is thrown away there, and because they wait for minutes where there is no network.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import TypeVar

from huggingface_hub import HfApi, constants, get_hf_file_metadata, hf_hub_url
from huggingface_hub.errors import FileMetadataError
from huggingface_hub.utils import (  # type: ignore[attr-defined]  # documented there, but not marked for export
    build_hf_headers,
    get_session,
    hf_raise_for_status,
)

from edgespec import __version__
from edgespec.models.hub.attended import Late, attended
from edgespec.models.hub.cache import COMMIT, HubFile
from edgespec.models.hub.failures import FAILURES, explain

Result = TypeVar("Result")
Tick = Callable[[], None]

_THREAD = "edgespec-hub"
_ETAG = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")


class HubClient:
    """One repository on the hub. `tick` is called several times a second while the hub is waited for.

    What fails raises SourceError with a clause that says what to do.
    """

    def __init__(self, repo: str, tick: Tick) -> None:
        self._repo, self._tick = repo, tick

    def names(self, revision: str) -> tuple[str, list[str]]:
        """The commit that a revision is at, and the paths of all files there."""
        return self._ask(lambda: self._names(revision))

    def describe(self, path: str, revision: str) -> HubFile:
        """A file at a revision."""
        return self._ask(lambda: self._describe(path, revision))

    def blocks(self, file: HubFile, start: int) -> Iterator[tuple[int, bytes]]:
        """The file's content from `start` on, in blocks with their positions.

        They begin at 0 where the hub, or what stands between, cannot begin elsewhere.
        """
        return self._attended(lambda: self._blocks(file, start))

    def _ask(self, question: Callable[[], Result]) -> Result:
        (answer,) = self._attended(lambda: iter([question()]))
        return answer

    def _attended(self, work: Callable[[], Iterator[Result]]) -> Iterator[Result]:
        def explained() -> Iterator[Result]:
            # Here, in the thread: what `tick` raises must go up as it is.
            try:
                yield from work()
            except FAILURES as error:
                raise explain(error, self._repo) from error

        with _quiet():
            try:
                yield from attended(explained, self._tick, _patience(), _THREAD)
            except Late as error:
                raise explain(error, self._repo) from error

    def _names(self, revision: str) -> tuple[str, list[str]]:
        info = HfApi(endpoint=constants.ENDPOINT, library_name="edgespec", library_version=__version__).model_info(
            self._repo, revision=revision, timeout=constants.HF_HUB_ETAG_TIMEOUT
        )
        if info.sha is None or not COMMIT.fullmatch(info.sha) or info.siblings is None:
            raise FileMetadataError
        return info.sha, [sibling.rfilename for sibling in info.siblings]

    def _describe(self, path: str, revision: str) -> HubFile:
        url = hf_hub_url(self._repo, path, revision=revision, endpoint=constants.ENDPOINT)
        found = get_hf_file_metadata(
            url,
            timeout=constants.HF_HUB_ETAG_TIMEOUT,
            library_name="edgespec",
            library_version=__version__,
            endpoint=constants.ENDPOINT,
        )
        # They become names of files and folders, so that nothing may be said there that leads elsewhere.
        if not COMMIT.fullmatch(found.commit_hash or "") or not _ETAG.fullmatch(found.etag or "") or found.size is None:
            raise FileMetadataError
        return HubFile(path, str(found.commit_hash), str(found.etag), found.size)

    def _blocks(self, file: HubFile, start: int) -> Iterator[tuple[int, bytes]]:
        # Asked anew each time: the address that the hub leads to is good for some minutes only. On the way to another
        # host the session leaves the token behind.
        url = hf_hub_url(self._repo, file.path, revision=file.commit, endpoint=constants.ENDPOINT)
        headers = build_hf_headers(library_name="edgespec", library_version=__version__)
        headers["accept-encoding"] = "identity"
        if start:
            headers["range"] = f"bytes={start}-"
        with get_session().stream("GET", url, headers=headers, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT) as response:
            if start and response.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                yield 0, b""  # begin anew
                return
            hf_raise_for_status(response)
            partial = response.status_code == HTTPStatus.PARTIAL_CONTENT
            at = _first(response.headers.get("content-range", "")) if partial else 0
            for block in response.iter_bytes():
                yield at, block
                at += len(block)


def _first(content_range: str) -> int:
    """Where a part begins; -1 where that is not said."""
    match = re.match(r"bytes (\d+)-", content_range)
    return int(match[1]) if match else -1


def _patience() -> float:
    """Seconds after which the hub is not waited for. The session's own time-outs, which come first, miss some cases."""
    return 2.0 * max(constants.HF_HUB_ETAG_TIMEOUT, constants.HF_HUB_DOWNLOAD_TIMEOUT)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what the library logs in our threads from the handler that it has set up, which writes to stderr.

    That would tear our progress apart. Handlers of the host program get it all the same.
    """

    def elsewhere(record: logging.LogRecord) -> bool:
        return threading.current_thread().name != _THREAD

    handlers = list(logging.getLogger("huggingface_hub").handlers)
    for handler in handlers:
        handler.addFilter(elsewhere)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(elsewhere)
