"""What can be written for a model, and what it means."""

from pathlib import Path

import pytest

from edgespec.models.entries import HubEntry
from edgespec.models.references import hub_entry, local_path

FILE = "q4/x-q4_k_m.gguf"


@pytest.mark.parametrize(
    ("reference", "entry"),
    [
        ("acme/X-GGUF", HubEntry("acme/X-GGUF")),
        ("acme/X-GGUF:q4_k_m", HubEntry("acme/X-GGUF", quant="q4_k_m")),
        ("acme/X-GGUF:IQ4_XS", HubEntry("acme/X-GGUF", quant="IQ4_XS")),
        ("acme/X.gguf:Q8_0", HubEntry("acme/X.gguf", quant="Q8_0")),
        (f"acme/X/{FILE}", HubEntry("acme/X", FILE)),
        (f"acme/X/resolve/main/{FILE}?download=true", HubEntry("acme/X", FILE)),
        (f"acme/X/blob/v2/{FILE}", HubEntry("acme/X", FILE, revision="v2")),
        ("acme/X/resolve/../x.gguf", HubEntry("acme/X", "resolve/../x.gguf")),
        ("acme", None),
        ("acme/", None),
        ("a/b/c", None),
        ("acme/X:", None),
        ("acme\\X", None),
        ("../X", None),
    ],
)
@pytest.mark.parametrize("prefix", ["", "hf:", "hf://", "hf.co/", "huggingface.co/", "https://huggingface.co/"])
def test_what_the_hub_is_asked_for(prefix: str, reference: str, entry: HubEntry | None) -> None:
    assert hub_entry(prefix + reference) == entry


def test_a_gguf_file_in_a_folder_is_a_path_unless_the_hub_is_named() -> None:
    assert hub_entry("models/x.gguf") is None and hub_entry("models/x.GGUF") is None
    assert hub_entry("hf:acme/x.gguf") == HubEntry("acme/x.gguf")


def test_what_is_here_is_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "acme" / "X").mkdir(parents=True)
    (tmp_path / "acme" / "X" / "m.gguf").touch()
    (tmp_path / "named").touch()
    assert local_path("acme/X/m.gguf", ()) == Path("acme/X/m.gguf")
    assert local_path("acme/X/n.gguf", ()) is None and local_path("./acme/X/n.gguf", ()) == Path("acme/X/n.gguf")
    assert local_path("acme/X", ()) == Path("acme/X"), "a folder: the error says so"
    assert local_path("hf:acme/X", ()) is None
    assert local_path("named", {"named"}) == Path("named")
    assert local_path("acme", {"acme"}) is None and local_path("acme", ()) == Path("acme")
