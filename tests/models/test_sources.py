"""From what is typed to a file: paths, names, sources in order, the cache, two at once."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.cache import cache_folder
from edgespec.errors import EdgespecError, LoadCancelled, ModelNotFound, ModelUnreadable, SourceError, UsageError
from edgespec.models.registry import ModelEntry, PackagesEntry, Registry, SourceEntry
from edgespec.models.sources import Progress, Say, Source, cached, resolve

CONTENT = b"GGUF and more"
FIRST, SECOND = PackagesEntry("first", "1", "f"), PackagesEntry("second", "1", "f")
MODEL = ModelEntry("tiny", "tiny-q4.gguf", len(CONTENT), "0" * 64, "MIT", 128, (FIRST, SECOND))
REGISTRY = Registry({"tiny": MODEL}, {})


class FakeSource:
    def __init__(self, name: str, act: Callable[[], None]) -> None:
        self.name, self._act = name, act

    def fetch(self, model: ModelEntry, destination: Path, progress: Progress, say: Say) -> Path:
        self._act()
        destination.write_bytes(CONTENT)
        return destination


class Sources:
    """Opens fake sources; `fail` names those that fail, `asked` lists those that were asked."""

    def __init__(self, *fail: str, act: Callable[[], None] = lambda: None) -> None:
        self.asked: list[str] = []
        self.fail, self.act = fail, act

    def __call__(self, entry: SourceEntry) -> Source:
        def act() -> None:
            self.asked.append(entry.package)
            self.act()
            if entry.package in self.fail:
                raise SourceError(f"{entry.package} is shut")

        return FakeSource(f"the {entry.package} one", act)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one, and home."""
    folder = tmp_path / "here"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    return folder


@pytest.mark.parametrize("reference", ["m.gguf", "./m.gguf", "~/m.gguf", "sub/../m.gguf", "plain"])
def test_a_file_is_returned_as_it_is(here: Path, reference: str) -> None:
    (here / "sub").mkdir()
    for name in ("m.gguf", "plain"):
        (here / name).touch()
    found = resolve(reference, REGISTRY)
    assert found.samefile(here / ("plain" if reference == "plain" else "m.gguf"))


@pytest.mark.parametrize(
    "reference", ["gone.gguf", "./gone", "~/gone", "~nobody-here/gone", "a/gone", "a/" + "x" * 5000]
)
def test_a_missing_file(here: Path, reference: str) -> None:
    with pytest.raises(ModelNotFound, match=r"There is no file .*: check the path"):
        resolve(reference, REGISTRY)


@pytest.mark.parametrize("reference", ["folder", ".", "~", "folder.gguf"])
def test_a_folder(here: Path, reference: str) -> None:
    (here / "folder").mkdir()
    (here / "folder.gguf").mkdir()
    with pytest.raises(ModelUnreadable, match=r"is a folder: name the \.gguf file in it"):
        resolve(reference, REGISTRY)


@pytest.mark.parametrize("reference", ["tinny", "", "x" * 5000])
def test_an_unknown_name(here: Path, reference: str) -> None:
    with pytest.raises(UsageError, match="known are: tiny"):
        resolve(reference, REGISTRY)


def test_a_name_is_fetched_once(here: Path) -> None:
    sources = Sources()
    said: list[str] = []
    (here / "tiny").mkdir()  # a folder of that name is not what is meant
    found = resolve("tiny", REGISTRY, cache=here, open_source=sources, say=said.append)
    assert found == here / "models" / "tiny-q4.gguf" and found.read_bytes() == CONTENT
    assert said == ["Fetching tiny (0 MB) from the first one."]
    assert resolve("tiny", REGISTRY, cache=here, open_source=sources) == found
    assert sources.asked == ["first"]


def test_a_file_of_the_wrong_size_is_fetched_again(here: Path) -> None:
    (here / "models").mkdir()
    (here / "models" / "tiny-q4.gguf").write_bytes(CONTENT[:-1])
    assert cached(MODEL, here) is None
    assert resolve("tiny", REGISTRY, cache=here, open_source=Sources()).read_bytes() == CONTENT
    assert cached(MODEL, here) == here / "models" / "tiny-q4.gguf"


def test_the_next_source_is_tried(here: Path) -> None:
    sources = Sources("first")
    assert resolve("tiny", REGISTRY, cache=here, open_source=sources).read_bytes() == CONTENT
    assert sources.asked == ["first", "second"]


def test_when_every_source_fails_each_says_why_and_it_can_be_tried_again(here: Path) -> None:
    with pytest.raises(SourceError) as caught:
        resolve("tiny", REGISTRY, cache=here, open_source=Sources("first", "second"))
    assert str(caught.value) == (
        "tiny could not be fetched from the first one: first is shut; from the second one: second is shut."
    )
    assert resolve("tiny", REGISTRY, cache=here, open_source=Sources()).exists()


def test_the_cache_folder_comes_from_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_CACHE", "~/kept")
    assert resolve("tiny", REGISTRY, open_source=Sources()) == here / "kept" / "models" / "tiny-q4.gguf"
    monkeypatch.setenv("EDGESPEC_CACHE", "")
    assert cache_folder().name == "edgespec"


def test_a_cache_that_cannot_be_written(here: Path) -> None:
    (here / "file").touch()
    with pytest.raises(SourceError, match=r"could not be written to .*set EDGESPEC_CACHE"):
        resolve("tiny", REGISTRY, cache=here / "file", open_source=Sources())


def test_the_second_of_two_waits_and_finds_it_there(here: Path) -> None:
    fetching, waiting = threading.Event(), threading.Event()

    def hold() -> None:
        fetching.set()
        assert waiting.wait(30)

    first, second = Sources(act=hold), Sources()
    thread = threading.Thread(target=resolve, args=("tiny", REGISTRY), kwargs={"cache": here, "open_source": first})
    thread.start()
    assert fetching.wait(30)
    said: list[str] = []

    def say(sentence: str) -> None:
        said.append(sentence)
        waiting.set()

    found = resolve("tiny", REGISTRY, cache=here, open_source=second, say=say)
    thread.join()
    assert found.read_bytes() == CONTENT
    assert said == ["tiny is being fetched already: waiting for it."]
    assert (first.asked, second.asked) == (["first"], [])


def test_waiting_can_be_ended(here: Path) -> None:
    def cancel(done: int, total: int) -> None:
        raise LoadCancelled("Loading was stopped.")

    ended: list[type[EdgespecError]] = []

    def second() -> None:
        try:
            resolve("tiny", REGISTRY, cache=here, open_source=Sources(), progress=cancel)
        except EdgespecError as error:
            ended.append(type(error))

    def act() -> None:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(30)

    resolve("tiny", REGISTRY, cache=here, open_source=Sources(act=act))
    assert ended == [LoadCancelled]
