from __future__ import annotations

import logging
import threading

import pytest

from edgespec.llama.log import LogForwarder

DEBUG, INFO, WARN, ERROR, CONTINUE = 1, 2, 3, 4, 5


@pytest.fixture
def records() -> list[tuple[int, str]]:
    return []


@pytest.fixture
def forward(records: list[tuple[int, str]]) -> LogForwarder:
    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append((record.levelno, record.getMessage()))

    logger = logging.Logger("apart", logging.DEBUG)
    logger.addHandler(Keep())
    return LogForwarder(logger)


def test_levels_are_llama_cpps_with_info_as_detail(forward: LogForwarder, records: list[tuple[int, str]]) -> None:
    for level in (DEBUG, INFO, WARN, ERROR):
        forward(level, b"line\n")
    assert [level for level, _ in records] == [logging.DEBUG, logging.DEBUG, logging.WARNING, logging.ERROR]


def test_fragments_join_the_line_before(forward: LogForwarder, records: list[tuple[int, str]]) -> None:
    forward(WARN, b"one ")
    forward(CONTINUE, b"two %s")
    forward(CONTINUE, b"\n")
    for _ in range(3):
        forward(CONTINUE, b".")
    forward(INFO, b"next\n")
    assert records == [(logging.WARNING, "one two %s"), (logging.WARNING, "..."), (logging.DEBUG, "next")]


def test_a_line_without_end_is_passed_on_before_it_fills_memory(
    forward: LogForwarder, records: list[tuple[int, str]]
) -> None:
    for _ in range(20):
        forward(CONTINUE, b"." * 1000)
    assert len(records) == 2


def test_nothing_is_raised_into_c(forward: LogForwarder, records: list[tuple[int, str]]) -> None:
    forward(99, b"\xff\xfe\n")
    forward(ERROR, None)
    forward("no level", 7)  # type: ignore[arg-type]

    def explode(record: logging.LogRecord) -> bool:
        raise RuntimeError

    forward._logger.addFilter(explode)
    forward(ERROR, b"lost\n")
    assert records == [(logging.DEBUG, "\ufffd\ufffd")]


def test_errors_are_collected_per_thread(forward: LogForwarder) -> None:
    with forward.errors() as mine:
        other = threading.Thread(target=forward, args=(ERROR, b"theirs\n"))
        other.start()
        other.join()
        forward(WARN, b"only a warning\n")
        forward(ERROR, b"mine, without a newline")
    forward(ERROR, b"too late\n")
    assert mine == ["mine, without a newline"]
