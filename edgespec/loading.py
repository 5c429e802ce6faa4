"""The one place that puts the parts together: names and settings in, a ready engine out."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from edgespec import hardware
from edgespec.control.auto import AutoPolicy
from edgespec.control.fixed import FixedPolicy
from edgespec.control.profile import TARGET_WIDTHS, Profile, measure
from edgespec.control.rules import HeuristicPolicy, ThresholdPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.engine import Engine
from edgespec.errors import ModelError, NoChatTemplate, UsageError
from edgespec.events import Loading, Notice
from edgespec.folders import Shelf, cache_folder
from edgespec.llama import Context, JinjaTemplate, Model, Proof, prove
from edgespec.llama.header import fingerprint
from edgespec.llama.library import library
from edgespec.llama.proof import CHILD
from edgespec.models.registry import Registry, load_registry, pair_to_use
from edgespec.models.sources import open_source
from edgespec.models.store import Store
from edgespec.models.vocabulary import compare
from edgespec.protocols import ChatTemplate, Drafter, Policy
from edgespec.settings import (
    DEFAULT_K,
    MODEL_DEFAULTS,
    About,
    DrafterChoice,
    ModelSettings,
    PolicyChoice,
    Request,
    Sampling,
)
from edgespec.text import StopText

Tell = Callable[[Loading | Notice], None]

STEADY_WIDTH = 63
"""llama.cpp's CPU attention has another kernel from 64 tokens in a pass on; the proof compares narrower ones."""

GPU_WIDTHS = (1, 2, 4, 8, 16)
"""A pass of a new width has its graph captured anew on a GPU, so there are to be few."""

PROFILE_FORMAT = 1

# Our names for what a GGUF file can recommend.
RECOMMENDED = {
    "temperature": "temp",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "repeat_penalty": "penalty_repeat",
    "repeat_last_n": "penalty_last_n",
}


def load(
    pair: str | None = None,
    *,
    target: str | os.PathLike[str] | None = None,
    draft: str | os.PathLike[str] | None = None,
    drafter: DrafterChoice = "auto",
    k: int | Literal["auto"] = "auto",
    policy: PolicyChoice = "auto",
    profile: bool = True,
    ctx: int = MODEL_DEFAULTS.ctx,
    gpu_layers: int = MODEL_DEFAULTS.gpu_layers,
    draft_gpu_layers: int = MODEL_DEFAULTS.gpu_layers,
    threads: int = MODEL_DEFAULTS.threads,
    offline: bool = False,
    python: Sequence[str] | None = None,
    on_event: Tell = lambda event: None,
    **options: Any,
) -> Engine:
    """A ready engine for a pair from models.toml, or for a target (and a draft) by reference.

    A reference is a path, a model's name, or a file on the Hugging Face hub (user/repo:QUANT, user/repo/file.gguf).
    Without pair and target: $EDGESPEC_PAIR, else the pair that the person's own models.toml names, else the default
    one. Missing files are fetched, unless `offline`. `drafter` auto loads the draft model, where there is one, and
    n-grams. `policy` auto picks among them and k in every round, by what passes cost here: measured at the first load
    of these models on this machine, unless `profile` is False, and in every round. A number as `k`, and the other
    policies, keep to one drafter, the draft model before n-grams. `on_event` hears Loading and Notice; what it raises
    ends the loading. `python` is what to start child processes with (followed by `-m MODULE`)
    instead of this interpreter, for frozen programs. `options` are the engine's defaults for every answer (see
    Engine.generate), over those that the model file recommends. Raises EdgespecError.
    """
    if drafter not in get_args(DrafterChoice):
        raise UsageError(f"drafter must be one of {', '.join(get_args(DrafterChoice))}, not {drafter!r}.")
    if k != "auto" and k < 0:
        raise UsageError(f"k must be auto, or at least 0, not {k}.")
    Request().having(**options)  # what is wrong with them should be said before anything is fetched
    if threads > (os.cpu_count() or threads):
        raise UsageError(f"threads must be at most {os.cpu_count()}, the number of cores here, not {threads}.")
    if policy not in get_args(PolicyChoice):
        raise UsageError(f"policy must be one of {', '.join(get_args(PolicyChoice))}, not {policy!r}.")
    if policy in ("threshold", "heuristic") and k != "auto":
        raise UsageError(f"The policy {policy} finds k by itself: leave k at auto, or use the policy fixed.")
    settings = ModelSettings(ctx, gpu_layers, threads)
    draft_settings = ModelSettings(ctx, draft_gpu_layers, threads, max_draft=0)
    registry = load_registry()
    names = _names(registry, pair, target, draft)
    kind = _kind(drafter, names) if k != 0 else None

    pip = None if python is None else [*python, "-m", "pip"]
    store = Store(registry, offline=offline, open_source=partial(open_source, pip=pip))
    prepare = _Preparation(store, python, on_event)
    target_path = prepare.file(names.target)
    draft_path = prepare.file(names.draft) if kind == "model" and names.draft is not None else None
    masked = prepare.masked(target_path, draft_path) if draft_path is not None else frozenset()
    if gpu_layers > 0 and not library().offloads:
        on_event(Notice("This build of llama.cpp runs on the CPU alone: --gpu-layers has no effect."))

    with ExitStack() as owned:
        model, context, proof = prepare.context(target_path, settings, owned)
        drafters: dict[str, Drafter] = {}
        draft_context: Context | None = None
        if not (proof.can_trim and context.can_trim):
            on_event(Notice(f"{target_path.name} cannot take tokens back, so it is decoded without drafting."))
        elif draft_path is not None:
            draft_settings = replace(draft_settings, ctx=context.n_ctx)
            _, draft_context, draft_proof = prepare.context(draft_path, draft_settings, owned)
            if not (draft_proof.can_trim and draft_context.can_trim):
                raise ModelError(f"{draft_path.name} cannot take tokens back, so it cannot draft: use --drafter ngram.")
            drafters["model"] = ModelDrafter(draft_context, model.vocabulary.end_tokens)
        if kind is not None and drafter in ("auto", "ngram") and proof.can_trim and context.can_trim:
            drafters["ngram"] = NgramDrafter()
        offloads = library().offloads and gpu_layers != 0
        if "model" in drafters and offloads and draft_gpu_layers == 0:
            on_event(Notice("The draft runs on the CPU and the target on the GPU: try --draft-gpu-layers -1."))
        widest = STEADY_WIDTH if proof.invariant_below else None
        at_work = policy if k == "auto" and drafters else "fixed"
        if at_work == "auto":
            files, layers = (target_path, draft_path), (gpu_layers, draft_gpu_layers)
            costs = prepare.costs(context, draft_context, files, layers, offloads) if profile else None
            most = min(context.n_outputs, widest or context.n_outputs) - 1
            chooser: Policy = AutoPolicy(costs, most=most, widths=GPU_WIDTHS if offloads else None)
        else:
            chooser = _rule(at_work, kind if drafters else None, DEFAULT_K if k == "auto" else k)
        return Engine(
            context,
            model.vocabulary,
            chooser,
            lambda stops: StopText(model.vocabulary.piece, stops),
            drafters=drafters,
            template=_template(model, on_event),
            about=About(
                names.target,
                names.draft if "model" in drafters else None,
                names.pair,
                at_work,
                target_file=str(target_path),
                draft_file=str(draft_path) if "model" in drafters else None,
                invariant_below=proof.invariant_below,
                width_noise=proof.width_noise,
            ),
            defaults=Request(_recommended(model)).having(**options),
            masked=masked,
            widest=widest,
            owned=owned.pop_all(),
        )


@dataclass(frozen=True, slots=True)
class _Names:
    target: str
    draft: str | None
    pair: str | None


def _names(
    registry: Registry,
    pair: str | None,
    target: str | os.PathLike[str] | None,
    draft: str | os.PathLike[str] | None,
) -> _Names:
    if target is not None:
        if pair is not None:
            raise UsageError("A pair has its own target: give --pair or --target, not both.")
        return _Names(os.fspath(target), None if draft is None else os.fspath(draft), None)
    if pair is not None and pair.endswith(".gguf") and pair not in registry.pairs:
        raise UsageError(f"{pair} is a file and not the name of a pair: give it as the target.")
    name = pair or pair_to_use(registry, hardware.free_memory())
    entry = registry.pair(name)
    if draft is not None:
        return _Names(entry.target, os.fspath(draft), name)
    return _Names(entry.target, entry.drafts[0] if entry.drafts else None, name)


def _kind(drafter: DrafterChoice, names: _Names) -> Literal["model", "ngram"] | None:
    if drafter == "none":
        return None
    if drafter == "model" and names.draft is None:
        raise UsageError("There is no draft model to draft with: give --draft, or use --drafter ngram.")
    if drafter == "auto":
        return "model" if names.draft is not None else "ngram"
    return drafter


def _rule(policy: PolicyChoice, drafter: str | None, k: int) -> Policy:
    """A policy that keeps to one drafter; None is plain decoding."""
    if policy == "threshold":
        return ThresholdPolicy(drafter)
    return HeuristicPolicy(drafter) if policy == "heuristic" else FixedPolicy(drafter, k)


@dataclass(frozen=True, slots=True)
class _Preparation:
    """The steps before an engine, each telling what it does."""

    store: Store
    python: Sequence[str] | None
    tell: Tell

    def file(self, reference: str) -> Path:
        """The file of a path or a model's name, fetched if it is not here."""

        def progress(done: int, total: int) -> None:
            self.tell(Loading(f"fetching {reference}", done / total if total else 0.0, total or None))

        return self.store.fetch(reference, progress, self._say)

    def masked(self, target: Path, draft: Path) -> frozenset[int]:
        """Compare the vocabularies before any weights are loaded; the ids that must not be proposed."""
        with Model.load(target, vocab_only=True) as ours, Model.load(draft, vocab_only=True) as theirs:
            result = compare(ours.vocabulary, theirs.vocabulary)
        result.require()
        for warning in result.warnings:
            self.tell(Notice(warning))
        return result.masked

    def context(self, path: Path, settings: ModelSettings, owned: ExitStack) -> tuple[Model, Context, Proof]:
        """Prove and load a model, with its context."""
        command = None if self.python is None else [*self.python, "-m", CHILD]
        proof = prove(path, settings, say=self._say, command=command)
        if proof.warning:
            self.tell(Notice(proof.warning))

        def progress(done: float) -> bool:
            self.tell(Loading(f"loading {path.name}", done))
            return True

        model = Model.load(path, settings, extra_buffers=proof.extra_buffers, progress=progress)
        owned.callback(model.close)
        context = Context(model, settings)
        if context.n_ctx < settings.ctx != MODEL_DEFAULTS.ctx:
            self.tell(Notice(f"{path.name} was made for a context of {context.n_ctx} tokens: it gets no more."))
        return model, context, proof

    def costs(
        self, target: Context, draft: Context | None, files: tuple[Path, Path | None],
        gpu_layers: tuple[int, int], offloads: bool,
    ) -> Profile:  # fmt: skip
        """What passes cost here: remembered, else measured now."""
        shelf = Shelf(cache_folder() / "profiles")
        contexts = [context for context in (target, draft) if context is not None]
        facts = [
            PROFILE_FORMAT,
            library().build_id(),
            [fingerprint(file) for file in files if file is not None],
            [[context.threads, context.n_batch, layers] for context, layers in zip(contexts, gpu_layers, strict=False)],
            hardware.processor(),
            hardware.vector_units(),
            hardware.gpu_names(),
            hardware.power_mode(),
        ]
        remembered = Profile.read(shelf.recall(facts))
        if remembered is not None:
            return remembered
        widths = [width for width in GPU_WIDTHS if 1 < width < 16] if offloads else TARGET_WIDTHS
        found = measure(
            target, draft, widths=widths, progress=lambda done: self.tell(Loading("measuring this machine", done))
        )
        shelf.remember(facts, found.stored())
        return found

    def _say(self, sentence: str) -> None:
        self.tell(Loading(sentence))


def _template(model: Model, tell: Tell) -> ChatTemplate | None:
    """The model's chat template; without a sound one the engine still completes plain text."""
    try:
        return JinjaTemplate.of(model)
    except NoChatTemplate:
        return None
    except ModelError as error:
        tell(Notice(str(error)))
        return None


def _recommended(model: Model) -> Sampling:
    """llama.cpp's defaults, but for what the file's makers recommend in its metadata (general.sampling.*)."""
    found = {name: model.metadata(f"general.sampling.{key}") for name, key in RECOMMENDED.items()}
    whole = {"top_k", "repeat_last_n"}
    with suppress(ValueError, UsageError):  # a file that recommends nonsense recommends nothing
        values = {name: int(text) if name in whole else float(text) for name, text in found.items() if text}
        return Sampling(**values)  # type: ignore[arg-type]
    return Sampling()
