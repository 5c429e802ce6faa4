"""What the README shows is run, so that it stays true."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[1] / "README.md"


@pytest.mark.real
def test_the_library_in_ten_lines(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert "qwen2.5-coder-1.5b" in code
    exec(compile(code.replace("qwen2.5-coder-1.5b", "smollm2"), "README.md", "exec"), {})
    text, last = capsys.readouterr().out.rsplit("\n", 2)[:2]
    assert text.strip() and "acceptance rate" in last
