from __future__ import annotations

import _thread
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from edgespec.errors import BackendError, Closed, LoadCancelled, ModelUnreadable
from edgespec.llama import Context, Model
from edgespec.llama.proof import _environment
from edgespec.settings import ModelSettings
from tests.llama.gguf_files import write_head

pytestmark = pytest.mark.real

SMALL = ModelSettings(ctx=64, batch=32, max_draft=7, threads=1)


def test_what_a_model_says_of_itself(smollm2_path: Path) -> None:
    for vocab_only in (False, True):
        with Model.load(smollm2_path, vocab_only=vocab_only) as model:
            assert (model.architecture, model.n_vocab, model.n_ctx_train) == ("llama", 49152, 8192)
            assert 90e6 < model.size < os.path.getsize(smollm2_path)
            assert not model.is_recurrent and not model.is_hybrid
            assert model.metadata("no.such.key") == "" and model.metadata("no.such.key", "x") == "x"
            assert len(model.chat_template or "") > 256
            assert model.metadata("tokenizer.chat_template") == model.chat_template


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_short_is_a_sentence(smollm2_path: Path, tmp_path: Path, share: float) -> None:
    cut = tmp_path / "cut.gguf"
    shutil.copyfile(smollm2_path, cut)
    os.truncate(cut, int(cut.stat().st_size * share))
    for vocab_only in (False, True):
        with pytest.raises(ModelUnreadable, match=r"cut\.gguf cannot be loaded \(.*fetch it again") as caught:
            Model.load(cut, vocab_only=vocab_only)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("values", [{}, {"general.architecture": "nonsense"}, {"general.architecture": "llama"}])
def test_a_head_without_a_model_is_a_sentence(tmp_path: Path, values: dict[str, str | int]) -> None:
    with pytest.raises(ModelUnreadable, match="cannot be loaded"):
        Model.load(write_head(tmp_path / "odd.gguf", values))


def test_paths_with_spaces_and_other_scripts(smollm2_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my models é 模型"
    folder.mkdir()
    (folder / "a b.gguf").symlink_to(smollm2_path)
    with Model.load(folder / "a b.gguf", vocab_only=True) as model:
        assert model.n_vocab == 49152


def test_a_failed_second_load_leaves_the_first_usable(smollm2_path: Path, tmp_path: Path) -> None:
    with Model.load(smollm2_path) as model:
        context = Context(model, SMALL)
        before = context.decode([1, 2, 3], 0, 1).copy()
        with pytest.raises(ModelUnreadable):
            Model.load(write_head(tmp_path / "odd.gguf", {"general.architecture": "llama"}))
        context.trim(0)
        assert (context.decode([1, 2, 3], 0, 1) == before).all()


def _nth(number: int, then: Callable[[], bool]) -> tuple[Callable[[float], bool], list[float]]:
    seen: list[float] = []

    def progress(done: float) -> bool:
        seen.append(done)
        return then() if len(seen) == number else True

    return progress, seen


@pytest.mark.parametrize("number", [1, 2])
def test_progress_can_cancel(smollm2_path: Path, number: int) -> None:
    progress, seen = _nth(number, lambda: False)
    with pytest.raises(LoadCancelled):
        Model.load(smollm2_path, progress=progress)
    assert len(seen) == number


def test_progress_ends_at_one(smollm2_path: Path) -> None:
    progress, seen = _nth(0, lambda: True)
    Model.load(smollm2_path, progress=progress).close()
    assert seen[0] == 0.0 and seen[-1] == 1.0 and seen == sorted(seen)


def test_ctrl_c_while_loading_is_not_lost(smollm2_path: Path) -> None:
    def interrupt() -> bool:
        _thread.interrupt_main()
        return True

    progress, _ = _nth(2, interrupt)
    with pytest.raises(KeyboardInterrupt):
        Model.load(smollm2_path, progress=progress)
    Model.load(smollm2_path, vocab_only=True).close()


def test_close_frees_contexts_first_and_twice_is_fine(smollm2_path: Path) -> None:
    model = Model.load(smollm2_path)
    context = Context(model, SMALL)
    context.decode([1], 0, 1)
    model.close()
    model.close()
    context.close()
    for use in (lambda: context.decode([1], 0, 1), lambda: context.trim(0), lambda: model.n_ctx_train,
                lambda: Context(model, SMALL)):  # fmt: skip
        with pytest.raises(Closed):
            use()


def test_a_vocabulary_alone_cannot_decode(smollm2_path: Path) -> None:
    with Model.load(smollm2_path, vocab_only=True) as model, pytest.raises(BackendError, match="without its weights"):
        Context(model, SMALL)


SILENT = """
import sys
from edgespec.errors import EdgespecError
from edgespec.llama import Context, Model
from edgespec.settings import ModelSettings
for path in sys.argv[1:]:
    try:
        with Model.load(path) as model:
            Context(model, ModelSettings(ctx=64, threads=1)).decode([1, 2, 3], 0, 1)
    except EdgespecError:
        pass
"""


def test_nothing_is_printed_not_even_by_a_host_without_logging(smollm2_path: Path, tmp_path: Path) -> None:
    # In a process of its own: pytest's log handlers would hide what Python's last resort prints.
    odd = write_head(tmp_path / "odd.gguf", {"general.architecture": "llama"})
    done = subprocess.run(
        [sys.executable, "-c", SILENT, str(odd), str(smollm2_path)],
        capture_output=True, text=True, check=False, env=_environment(os.environ, True),
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_nothing_reaches_the_hosts_descriptors(smollm2_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Model.load(smollm2_path) as model:
        Context(model, SMALL).decode([1, 2, 3], 0, 1)
    assert capfd.readouterr() == ("", "")
