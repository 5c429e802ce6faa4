"""The one place that puts the parts together: names and settings in, a ready engine out."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from edgespec import hardware
from edgespec.control.fixed import FixedPolicy
from edgespec.drafters.model import ModelDrafter
from edgespec.drafters.ngram import NgramDrafter
from edgespec.engine import Engine
from edgespec.errors import ModelError, NoChatTemplate, UsageError
from edgespec.events import Loading, Notice
from edgespec.llama import Context, JinjaTemplate, Model, prove
from edgespec.llama.library import library
from edgespec.models.registry import Registry, default_pair_name, load_registry
from edgespec.models.sources import resolve
from edgespec.models.vocabulary import compare
from edgespec.protocols import ChatTemplate, Drafter
from edgespec.settings import DEFAULT_K, MODEL_DEFAULTS, About, DrafterChoice, ModelSettings, Request
from edgespec.text import StopText

Tell = Callable[[Loading | Notice], None]


def load(
    pair: str | None = None,
    *,
    target: str | os.PathLike[str] | None = None,
    draft: str | os.PathLike[str] | None = None,
    drafter: DrafterChoice = "auto",
    k: int | Literal["auto"] = "auto",
    ctx: int = MODEL_DEFAULTS.ctx,
    gpu_layers: int = MODEL_DEFAULTS.gpu_layers,
    draft_gpu_layers: int = MODEL_DEFAULTS.gpu_layers,
    threads: int = MODEL_DEFAULTS.threads,
    on_event: Tell = lambda event: None,
    **options: Any,
) -> Engine:
    """A ready engine for a pair from models.toml, or for a target (and a draft) by path or by a model's name.

    Without either: $EDGESPEC_PAIR, else the default pair. Missing files are fetched. `drafter` auto is the draft model
    where there is one, else n-grams; `k` auto is a fixed length. `on_event` hears Loading and Notice; what it raises
    ends the loading. `options` are the engine's defaults for every answer (see Engine.generate). Raises EdgespecError.
    """
    if drafter not in get_args(DrafterChoice):
        raise UsageError(f"drafter must be one of {', '.join(get_args(DrafterChoice))}, not {drafter!r}.")
    if k != "auto" and k < 0:
        raise UsageError(f"k must be auto, or at least 0, not {k}.")
    defaults = Request().having(**options)
    registry = load_registry()
    names = _names(registry, pair, target, draft)
    kind = _kind(drafter, names)
    length = DEFAULT_K if k == "auto" else k

    settings = ModelSettings(ctx, gpu_layers, threads, max_draft=max(MODEL_DEFAULTS.max_draft, length))
    target_path = _file(names.target, registry, on_event)
    draft_path = _file(names.draft, registry, on_event) if kind == "model" and names.draft is not None else None
    masked = _masked(target_path, draft_path, on_event) if draft_path is not None else frozenset()
    if gpu_layers > 0 and not library().offloads:
        on_event(Notice("This build of llama.cpp runs on the CPU alone: --gpu-layers has no effect."))

    with ExitStack() as owned:
        model, context = _context(target_path, settings, owned, on_event)
        drafters: dict[str, Drafter] = {}
        if draft_path is not None:
            small = ModelSettings(context.n_ctx, draft_gpu_layers, threads, max_draft=0)
            _, draft_context = _context(draft_path, small, owned, on_event)
            if not draft_context.can_trim:
                raise ModelError(f"{draft_path.name} cannot take tokens back, so it cannot draft: use --drafter ngram.")
            drafters["model"] = ModelDrafter(draft_context, model.vocabulary.end_tokens)
        elif kind == "ngram":
            drafters["ngram"] = NgramDrafter()
        return Engine(
            context,
            model.vocabulary,
            FixedPolicy(kind, length),
            lambda stops: StopText(model.vocabulary.piece, stops),
            drafters=drafters,
            template=_template(model),
            about=About(names.target, names.draft if draft_path is not None else None, names.pair),
            defaults=defaults,
            masked=masked,
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
    name = pair or os.environ.get("EDGESPEC_PAIR") or default_pair_name(hardware.free_memory())
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


def _file(reference: str, registry: Registry, tell: Tell) -> Path:
    def progress(done: int, total: int) -> None:
        tell(Loading(f"fetching {reference}", done / total if total else None))

    return resolve(reference, registry, progress=progress, say=lambda sentence: tell(Loading(sentence)))


def _masked(target: Path, draft: Path, tell: Tell) -> frozenset[int]:
    """Compare the vocabularies before any weights are loaded; the ids that must not be proposed."""
    with Model.load(target, vocab_only=True) as ours, Model.load(draft, vocab_only=True) as theirs:
        result = compare(ours.vocabulary, theirs.vocabulary)
    result.require()
    for warning in result.warnings:
        tell(Notice(warning))
    return result.masked


def _context(path: Path, settings: ModelSettings, owned: ExitStack, tell: Tell) -> tuple[Model, Context]:
    proof = prove(path, settings, say=lambda sentence: tell(Loading(sentence)))
    if proof.warning:
        tell(Notice(proof.warning))

    def progress(done: float) -> bool:
        tell(Loading(f"loading {path.name}", done))
        return True

    model = Model.load(path, settings, extra_buffers=proof.extra_buffers, progress=progress)
    owned.callback(model.close)
    return model, Context(model, settings)


def _template(model: Model) -> ChatTemplate | None:
    try:
        return JinjaTemplate.of(model)
    except NoChatTemplate:
        return None
