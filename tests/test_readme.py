"""What the README shows is run, so that it stays true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from edgespec.models.registry import load_registry

README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.mark.real
def test_the_library_in_ten_lines(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert "qwen2.5-coder-1.5b" in code
    exec(compile(code.replace("qwen2.5-coder-1.5b", "smollm2"), "README.md", "exec"), {})
    text, last = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert text.strip() and "acceptance rate" in last


def test_the_pairs_and_what_they_need() -> None:
    registry = load_registry()
    rows = re.findall(r"^\| `(\S+)` \| ([\d.]+) GB \| .* \| (.*) \|$", README.read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name, _, _ in rows] == list(registry.pairs)
    for name, size, licences in rows:
        pair = registry.pairs[name]
        used = [registry.model(model) for model in (pair.target, *pair.drafts[:1])]
        assert size == f"{sum(model.size or 0 for model in used) / 1e9:.1f}", name
        assert licences == ", ".join(dict.fromkeys(model.licence for model in used)), name


def test_every_command_shown_is_one() -> None:
    from edgespec.cli import main

    shown = set(re.findall(r"\./scripts/edgespec ([a-z]+)", README.read_text(encoding="utf-8")))
    assert shown <= set(main.list_commands(None)) and {"chat", "run", "models"} <= shown  # type: ignore[arg-type]
