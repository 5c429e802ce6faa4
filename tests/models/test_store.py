"""From what is typed to a file: paths, names, sources in order, the cache, two at once."""

import threading
from pathlib import Path

import pytest

from edgespec.errors import EdgespecError, LoadCancelled, ModelNotFound, ModelUnreadable, SourceError, UsageError
from edgespec.folders import cache_folder
from edgespec.models.entries import HubEntry, ModelEntry, PackagesEntry, PathEntry, SourceEntry
from edgespec.models.registry import Registry
from edgespec.models.sources import Source, open_source
from edgespec.models.store import Store
from tests.support.sources import CONTENT, Sources

FIRST, SECOND = PackagesEntry("first", "1", "f"), PackagesEntry("second", "1", "f")
MODEL = ModelEntry("tiny", (FIRST, SECOND), "tiny-q4.gguf", len(CONTENT), "0" * 64)
REGISTRY = Registry({"tiny": MODEL}, {})


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
    found = Store(REGISTRY).fetch(reference)
    assert found.samefile(here / ("plain" if reference == "plain" else "m.gguf"))


@pytest.mark.parametrize(
    "reference", ["gone.gguf", "./gone", "~/gone", "~nobody-here/gone", "a/b/gone", "a/" + "x" * 5000]
)
def test_a_missing_file(here: Path, reference: str) -> None:
    with pytest.raises(ModelNotFound, match=r"There is no file .*: check the path"):
        Store(REGISTRY).fetch(reference)


@pytest.mark.parametrize("reference", ["folder", ".", "~", "folder.gguf"])
def test_a_folder(here: Path, reference: str) -> None:
    (here / "folder").mkdir()
    (here / "folder.gguf").mkdir()
    with pytest.raises(ModelUnreadable, match=r"is a folder: name the \.gguf file in it"):
        Store(REGISTRY).fetch(reference)


@pytest.mark.parametrize("reference", ["tinny", "", "x" * 5000])
def test_an_unknown_name(here: Path, reference: str) -> None:
    with pytest.raises(UsageError, match="known are: tiny"):
        Store(REGISTRY).fetch(reference)


def test_a_name_is_fetched_once(here: Path) -> None:
    sources = Sources()
    said: list[str] = []
    (here / "tiny").mkdir()  # a folder of that name is not what is meant
    found = Store(REGISTRY, here, open_source=sources).fetch("tiny", say=said.append)
    assert found == here / "models" / "tiny-q4.gguf" and found.read_bytes() == CONTENT
    assert said == ["Fetching tiny (0 MB) from the first one."]
    assert Store(REGISTRY, here, open_source=sources).fetch("tiny") == found
    assert sources.asked == ["first"]


def test_the_next_source_is_tried(here: Path) -> None:
    sources, said = Sources("first"), list[str]()
    assert Store(REGISTRY, here, open_source=sources).fetch("tiny", say=said.append).read_bytes() == CONTENT
    assert sources.asked == ["first", "second"]
    assert said[1] == "Not from the first one: first is shut." and len(said) == 3


def test_when_every_source_fails_each_says_why_and_it_can_be_tried_again(here: Path) -> None:
    with pytest.raises(SourceError) as caught:
        Store(REGISTRY, here, open_source=Sources("first", "second")).fetch("tiny")
    assert str(caught.value) == (
        "tiny could not be fetched from the first one: first is shut; from the second one: second is shut."
    )
    assert Store(REGISTRY, here, open_source=Sources()).fetch("tiny").exists()


def test_the_cache_folder_comes_from_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_CACHE", "~/kept")
    assert Store(REGISTRY, open_source=Sources()).fetch("tiny") == here / "kept" / "models" / "tiny-q4.gguf"
    monkeypatch.setenv("EDGESPEC_CACHE", "")
    assert cache_folder().name == "edgespec"


def test_a_cache_that_cannot_be_written(here: Path) -> None:
    (here / "file").touch()
    with pytest.raises(SourceError, match=r"could not be written to .*set EDGESPEC_CACHE"):
        Store(REGISTRY, here / "file", open_source=Sources()).fetch("tiny")


def test_the_second_of_two_waits_and_finds_it_there(here: Path) -> None:
    fetching, waiting = threading.Event(), threading.Event()

    def hold() -> None:
        fetching.set()
        assert waiting.wait(30)

    first, second = Sources(act=hold), Sources()
    thread = threading.Thread(target=Store(REGISTRY, here, open_source=first).fetch, args=("tiny",))
    thread.start()
    assert fetching.wait(30)
    said: list[str] = []

    def say(sentence: str) -> None:
        said.append(sentence)
        waiting.set()

    found = Store(REGISTRY, here, open_source=second).fetch("tiny", say=say)
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
            Store(REGISTRY, here, open_source=Sources()).fetch("tiny", progress=cancel)
        except EdgespecError as error:
            ended.append(type(error))

    def act() -> None:
        thread = threading.Thread(target=second)
        thread.start()
        thread.join(30)

    Store(REGISTRY, here, open_source=Sources(act=act)).fetch("tiny")
    assert ended == [LoadCancelled]


def test_what_is_here_is_found_without_asking(here: Path) -> None:
    asked = Sources()
    store = Store(REGISTRY, here, offline=True, open_source=asked)
    assert store.find("tiny") == ()
    with pytest.raises(SourceError, match="tiny is not on this machine: leave out --offline"):
        store.fetch("tiny")
    file = Store(REGISTRY, here, open_source=Sources()).fetch("tiny")
    assert store.find("tiny") == (file,) and store.fetch("tiny") == file
    assert store.remove("tiny") == len(CONTENT) and store.find("tiny") == () and not asked.asked


def test_a_reference_to_the_hub_is_fetched_from_there(here: Path) -> None:
    opened: list[SourceEntry] = []

    def failing(entry: SourceEntry) -> Source:
        opened.append(entry)
        return Sources("first")(FIRST)

    for reference, more in [
        ("acme/X", "; and there is no file acme/X here"),
        ("acme/X:q8_0", ""),
        ("hf:acme/X:q8_0", ""),
    ]:
        with pytest.raises(SourceError) as caught:
            Store(REGISTRY, here, open_source=failing).fetch(reference)
        assert str(caught.value) == f"{reference} could not be fetched from the first one: first is shut{more}."
        assert opened[-1] == HubEntry("acme/X", quant="q8_0" if "q8" in reference else None)
    with pytest.raises(UsageError, match="names no file on the hub"):
        Store(REGISTRY, here).fetch("hf:acme")


def test_a_models_own_path_comes_from_the_person(here: Path) -> None:
    model = ModelEntry("mine", (PathEntry("~/mine.gguf"),))
    store = Store(Registry({"mine": model}, {}), here, open_source=open_source)
    assert store.remove("mine") == 0
    with pytest.raises(SourceError, match=r"mine could not be fetched from .*mine\.gguf: there is no such file\."):
        store.fetch("mine")
    (here / "mine.gguf").touch()
    assert store.fetch("mine") == here / "mine.gguf"
    for reference in ("mine", "mine.gguf"):
        with pytest.raises(SourceError, match=r"is a file of yours: .*\.$"):
            store.remove(reference)
    assert (here / "mine.gguf").exists()


def test_a_path_that_leads_nowhere_does_not_keep_the_rest(here: Path) -> None:
    def opened(entry: SourceEntry) -> Source:
        return open_source(entry) if isinstance(entry, PathEntry) else Sources()(entry)

    model = ModelEntry("mine", (PathEntry("~/mine.gguf"), FIRST), "mine.gguf")
    store = Store(Registry({"mine": model}, {}), here, open_source=opened)
    store.fetch("mine")
    assert store.remove("mine") == len(CONTENT) and store.find("mine") == ()
