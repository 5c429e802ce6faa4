"""The loop on real models: whatever is drafted, the text is that of plain decoding on this build."""

from __future__ import annotations

import ctypes
import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chisquare

import edgespec
from edgespec.chat import Conversation
from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.engine import Engine
from edgespec.errors import ModelError, ModelNotFound, NoChatTemplate, UsageError, VocabularyMismatch
from edgespec.events import Done, Event, RoundDone, Text
from edgespec.llama import Context, JinjaTemplate, Model, Proof, prove
from edgespec.llama.library import library
from edgespec.loading import STEADY_WIDTH
from edgespec.protocols import Drafter
from edgespec.sampling import distribution
from edgespec.settings import ModelSettings, Request, Sampling
from edgespec.text import StopText
from tests.support.fakes import Scripted
from tests.support.forks import assert_same_text, near_tie, row_after

pytestmark = pytest.mark.real

GREEDY = Request(sampling=Sampling(temperature=0.0), max_tokens=48)
SEEDED = Request(sampling=Sampling(temperature=0.8), seed=1, max_tokens=48)
STORY = "Tell me a short story about a lighthouse keeper and a whale."
SETTINGS = ModelSettings(ctx=1024)


class Bench:
    """A loaded target, on which engines with any drafter can be made."""

    def __init__(self, path: Path, owned: ExitStack) -> None:
        self.proof: Proof = prove(path, SETTINGS)
        self.model = owned.enter_context(Model.load(path, SETTINGS, extra_buffers=self.proof.extra_buffers))
        self.context = Context(self.model, SETTINGS)

    def second(self, path: Path | None = None) -> Context:
        """A context of its own: of the same weights, or of another file."""
        if path is None:
            return Context(self.model, SETTINGS)
        proof = prove(path, SETTINGS)
        return Context(Model.load(path, SETTINGS, extra_buffers=proof.extra_buffers), SETTINGS)

    def engine(self, drafter: Drafter | None = None, k: int = 0) -> Engine:
        words = self.model.vocabulary
        return Engine(
            self.context,
            words,
            FixedPolicy(drafter.name if drafter else None, k),
            lambda stops: StopText(words.piece, stops),
            drafters={drafter.name: drafter} if drafter else {},
            template=JinjaTemplate.of(self.model) if self.model.chat_template else None,
            widest=STEADY_WIDTH if self.proof.invariant_below else None,
        )

    def prompt(self, text: str) -> list[int]:
        if not self.model.chat_template:
            return self.model.vocabulary.tokenize(text, add_special=True)
        rendered = JinjaTemplate.of(self.model).render([{"role": "user", "content": text}])
        return self.model.vocabulary.tokenize(rendered, add_special=False)


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Iterator[Bench]:
    with ExitStack() as owned:
        yield Bench(smollm2_path, owned)


@pytest.fixture(scope="module")
def qwen(qwen_target_path: Path) -> Iterator[Bench]:
    with ExitStack() as owned:
        yield Bench(qwen_target_path, owned)


@pytest.fixture(scope="module")
def gemma(gemma_path: Path) -> Iterator[Bench]:
    with ExitStack() as owned:
        yield Bench(gemma_path, owned)


def finish(events: Iterator[Event]) -> Done:
    *_, last = events
    assert isinstance(last, Done)
    return last


def oracle(
    answer: Sequence[int], prompt: Sequence[int], flip: int | None = None
) -> Callable[[Sequence[int], int], list[int]]:
    """Proposes a recorded answer, with one token of each draft replaced."""

    def script(history: Sequence[int], k: int) -> list[int]:
        at = len(history) - len(prompt)
        tokens = list(answer[at : at + k])
        if flip is not None and flip < len(tokens):
            tokens[flip] = 11 if tokens[flip] != 11 else 12
        return tokens

    return script


@pytest.mark.parametrize("request_", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("kind", ["ngram", "oracle", "flip0", "flip2", "garbage", "itself"])
def test_every_drafter_gives_the_text_of_plain_decoding(smollm2: Bench, kind: str, request_: Request) -> None:
    prompt = smollm2.prompt(STORY)
    plain = finish(smollm2.engine().generate(prompt, request=request_))
    drafters: dict[str, Callable[[], Drafter]] = {
        "ngram": lambda: NgramDrafter(),
        "oracle": lambda: Scripted(oracle(plain.tokens, prompt)),
        "flip0": lambda: Scripted(oracle(plain.tokens, prompt, 0)),
        "flip2": lambda: Scripted(oracle(plain.tokens, prompt, 2)),
        "garbage": lambda: Scripted(lambda history, k: [11] * k),
        "itself": lambda: ModelDrafter(smollm2.second(), smollm2.model.vocabulary.end_tokens),
    }
    for k in (4, 15):
        done = finish(smollm2.engine(drafters[kind](), k).generate(prompt, request=request_))
        assert_same_text(smollm2.context, prompt, plain, done, smollm2.proof)


@pytest.mark.parametrize("words", [25, 60])
def test_prompts_about_as_long_as_the_attention_kernel_s_tile(smollm2: Bench, words: int) -> None:
    """From 64 tokens in a pass on the arithmetic differs, and the first round rides on the prompt."""
    prompt = smollm2.prompt("blue green " * words)
    plain = finish(smollm2.engine().generate(prompt, request=GREEDY))
    done = finish(smollm2.engine(NgramDrafter(1), 15).generate(prompt, request=GREEDY))
    assert done.stats.drafted
    assert_same_text(smollm2.context, prompt, plain, done, smollm2.proof)


def test_a_model_that_drafts_for_itself_is_accepted_but_for_near_ties(smollm2: Bench) -> None:
    prompt = smollm2.prompt(STORY)
    drafter = ModelDrafter(smollm2.second(), smollm2.model.vocabulary.end_tokens)
    request = Request(sampling=Sampling(temperature=0.0), max_tokens=400)
    rejections: list[tuple[list[int], int, int]] = []
    history, proposed, settled = list(prompt), (), 0
    stats = None
    for event in smollm2.engine(drafter, 4).generate(prompt, request=request):
        if isinstance(event, RoundDone):
            proposed, settled = event.proposed, event.round.accepted
        elif isinstance(event, Text) and event.tokens:
            if "c" in event.provenance:
                rejections.append(([*history, *event.tokens[:settled]], proposed[settled], event.tokens[settled]))
            history.extend(event.tokens)
        elif isinstance(event, Done):
            stats = event.stats
    assert stats is not None and stats.drafted > 150
    for before, ours, theirs in rejections:
        assert len(before) >= smollm2.proof.invariant_below
        row = row_after(smollm2.context, before)
        assert near_tie(row, ours, theirs, smollm2.proof.width_noise, request.sampling)
    assert stats.acceptance_rate is not None and stats.acceptance_rate > 0.9


@pytest.mark.parametrize("request_", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_the_pair_gives_the_text_of_plain_decoding(qwen: Bench, qwen_draft_path: Path, request_: Request) -> None:
    draft = qwen.second(qwen_draft_path)
    drafter = ModelDrafter(draft, qwen.model.vocabulary.end_tokens)
    for text in ("Write a Python class for a stack with push, pop and peek.", "用简单的话解释量子纠缠。"):
        prompt = qwen.prompt(text)
        plain = finish(qwen.engine().generate(prompt, request=request_))
        drafting = finish(qwen.engine(drafter, 3).generate(prompt, request=request_))
        assert_same_text(qwen.context, prompt, plain, drafting, qwen.proof)
        assert drafting.stats.drafted and drafting.stats.draft_calls >= drafting.stats.drafting_rounds
    draft.model.close()


def test_the_draft_s_cache_does_not_drift(qwen: Bench, qwen_draft_path: Path) -> None:
    """What it proposes first in each round is what it says of the committed text read afresh, token by token."""
    draft = qwen.second(qwen_draft_path)
    prompt = qwen.prompt("Explain quantum entanglement in simple words.")
    history, asked = list(prompt), dict[int, int]()
    for event in qwen.engine(ModelDrafter(draft, frozenset()), 3).generate(prompt, request=GREEDY):
        if isinstance(event, RoundDone) and event.proposed:
            asked[len(history)] = event.proposed[0]
        elif isinstance(event, Text):
            history.extend(event.tokens)
    noise = prove(qwen_draft_path, SETTINGS).width_noise
    draft.trim(0)
    draft.decode(prompt[:-1], 0, 0)
    for length in range(len(prompt), max(asked) + 1):
        row = draft.decode([history[length - 1]], length - 1, 1)[0]
        if length in asked:
            assert (
                near_tie(row, asked[length], int(row.argmax()), noise, GREEDY.sampling) or asked[length] == row.argmax()
            )
    assert len(asked) > 10
    draft.model.close()


def test_a_sliding_window_is_rolled_back(gemma: Bench) -> None:
    """Longer than the window of 512, so that trimming reaches across its edge."""
    prompt = gemma.model.vocabulary.tokenize("The sea is wide. " * 130, add_special=True)
    assert len(prompt) > 520
    plain = finish(gemma.engine().generate(prompt, request=GREEDY))
    done = finish(gemma.engine(Scripted(lambda history, k: [11] * k), 8).generate(prompt, request=GREEDY))
    assert_same_text(gemma.context, prompt, plain, done, gemma.proof)


def test_a_conversation_decodes_only_what_is_new(smollm2: Bench) -> None:
    """Of the second and third turn only what follows the answer before: its end, the question, the next beginning."""
    conversation = Conversation(smollm2.engine(NgramDrafter(), 4))
    words = smollm2.model.vocabulary
    cached = 0
    for question in (STORY, "Go on, with 3 whales.", "Et maintenant, en français: où sont-ils ?"):
        done = finish(conversation.ask(question, request=SEEDED))
        if cached:
            new = f"<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
            assert done.cached_prompt_tokens == cached
            decoded = len(words.tokenize(new, add_special=False))
            assert done.prompt_tokens - cached in (decoded, decoded + 1), "and a last token that was not decoded yet"
        cached = done.prompt_tokens + done.completion_tokens - (done.finish_reason == "length")


@pytest.mark.parametrize("k", [1, 7])
def test_emoji_come_out_whole(smollm2: Bench, k: int) -> None:
    """A prompt that repeats itself brings characters of many tokens into the answer."""
    text = "👩‍👩‍👧‍👦🇯🇵歪龘ñé"
    prompt = smollm2.model.vocabulary.tokenize((text + "\n") * 12, add_special=False)
    events = list(smollm2.engine(NgramDrafter(2), k).generate(prompt, request=GREEDY))
    done = events[-1]
    assert isinstance(done, Done)
    shown = "".join(event.text for event in events if isinstance(event, Text))
    whole = b"".join(smollm2.model.vocabulary.piece(token) for token in done.tokens).decode("utf-8", "replace")
    assert shown == done.text == whole
    assert "👩" in shown and "\ufffd" not in shown[:-1]


def test_load_answers_from_a_path_and_keeps_its_promises(smollm2_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with edgespec.load(target=smollm2_path, k=6, ctx=512, temperature=0.0) as engine:
        done = finish(engine.chat([{"role": "user", "content": "Say hello."}], max_tokens=8))
        raw = finish(engine.complete("Once upon a time", max_tokens=8))
        assert done.completion_tokens <= 8 and raw.completion_tokens == 8
        assert (engine.about.target, engine.about.draft, engine.about.pair) == (str(smollm2_path), None, None)
        json.dumps(done.tokens)
    assert capfd.readouterr() == ("", ""), "the host's stdout and stderr are left alone"


def test_a_draft_of_another_vocabulary_is_refused_before_weights_are_loaded(
    smollm2_path: Path, gemma_path: Path
) -> None:
    with pytest.raises(VocabularyMismatch, match="ngram"):
        edgespec.load(target=smollm2_path, draft=gemma_path)


def test_what_cannot_be_loaded_is_a_sentence(smollm2_path: Path, gemma_path: Path, tmp_path: Path) -> None:
    short = tmp_path / "short one.gguf"
    short.write_bytes(smollm2_path.read_bytes()[:50_000_000])
    text = tmp_path / "text.gguf"
    text.write_text("not a model")
    for bad, kind in [
        ({"target": tmp_path / "no.gguf"}, ModelNotFound),
        ({"target": smollm2_path, "draft": tmp_path / "no.gguf"}, ModelNotFound),
        ({"target": tmp_path}, ModelError),
        ({"target": short}, ModelError),
        ({"target": text}, ModelError),
        ({"pair": "no such pair"}, UsageError),
        ({"pair": "smollm2", "target": smollm2_path}, UsageError),
        ({"target": smollm2_path, "drafter": "model"}, UsageError),
        ({"target": smollm2_path, "drafter": "magic"}, UsageError),
        ({"target": smollm2_path, "hotness": 3}, UsageError),
    ]:
        with pytest.raises(kind) as caught:
            edgespec.load(**bad)  # type: ignore[arg-type]
        message = str(caught.value)
        assert message.endswith(".") and "\n" not in message


def test_a_model_without_a_template_says_so(gemma_path: Path) -> None:
    with edgespec.load(target=gemma_path, ctx=256) as engine:
        if engine._prompts is not None:
            pytest.skip("this file has a template")
        with pytest.raises(NoChatTemplate):
            engine.chat([{"role": "user", "content": "hi"}])


@pytest.fixture(scope="module")
def requantized(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 in a coarser quant, by llama.cpp's own quantizer: a draft that mostly agrees."""
    api, path = library().api, tmp_path_factory.mktemp("drafts") / "coarse.gguf"
    params = api.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.pure = api.LLAMA_FTYPE_MOSTLY_Q4_0, True, True
    assert api.llama_model_quantize(str(smollm2_path).encode(), str(path).encode(), ctypes.byref(params)) == 0
    return path


@pytest.mark.parametrize("rule", ["block", "match"])
def test_a_real_pair_draws_from_the_target_s_law(smollm2: Bench, requantized: Path, rule: str) -> None:
    """The second token after a fixed first, whose draft was drawn behind a drafted first: chi-square over 8 tokens."""
    sampling = Sampling(temperature=1.0, top_k=8, top_p=1.0, min_p=0.0)
    prompt = smollm2.model.vocabulary.tokenize("I like apples, pears", add_special=True)
    first = int(row_after(smollm2.context, prompt).argmax())
    engine = smollm2.engine(ModelDrafter(smollm2.second(requantized), smollm2.model.vocabulary.end_tokens), k=3)
    seen: Counter[int] = Counter()
    drafted = accepted = 0
    for seed in range(300):
        *_, done = engine.generate(prompt, sampling=sampling, max_tokens=4, seed=seed, verify=rule)
        assert isinstance(done, Done)
        drafted, accepted = drafted + done.stats.drafted, accepted + done.stats.accepted
        if done.tokens[:1] == (first,) and len(done.tokens) > 1:
            seen[done.tokens[1]] += 1
    p = distribution(row_after(smollm2.context, [*prompt, first]), sampling)
    assert sum(seen.values()) > 100 and 0.2 < accepted / drafted < 0.99
    assert set(seen) <= {int(token) for token in p.tokens}
    expected = p.p * sum(seen.values())
    common = expected >= 5
    counts = np.array([seen[int(token)] for token in p.tokens])
    observed, right = [*counts[common], counts[~common].sum()], [*expected[common], expected[~common].sum()]
    if right[-1] == 0.0:
        observed, right = observed[:-1], right[:-1]
    assert chisquare(observed, right).pvalue > 1e-3
