"""What the engine is told, as frozen values that refuse nonsense when they are made."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from edgespec.errors import UsageError

DrafterChoice = Literal["auto", "none", "model", "ngram"]
PolicyChoice = Literal["auto", "fixed", "threshold", "heuristic"]
VerifyChoice = Literal["auto", "match", "token", "block"]
VerifyRule = Literal["argmax", "match", "token", "block"]
ThinkChoice = Literal["auto", "on", "off"]

DEFAULT_K = 4
MAX_SEED = 2**64 - 1


def _demand(fine: bool, sentence: str) -> None:
    if not fine:
        raise UsageError(sentence)


def _one_of(name: str, value: object, known: tuple[str, ...]) -> None:
    _demand(value in known, f"{name} must be one of {', '.join(known)}, not {value!r}.")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn from logits: llama.cpp's filters, in its order, with its defaults (CONTRACT 4).

    temperature ≤ 0 is argmax; top_k ≤ 0, top_p 1, min_p 0, repeat_penalty 1 and penalties of 0 are off.
    The penalties look at the last `repeat_last_n` tokens of prompt and answer (-1: all of them). `logit_bias` holds
    pairs of a token and what is added to its logit; -inf forbids it. A mapping is taken, too.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int = 64
    logit_bias: tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        bias = self.logit_bias
        pairs = tuple(sorted((int(token), float(by)) for token, by in dict(bias).items()))
        object.__setattr__(self, "logit_bias", pairs)  # one order, whatever it came as
        _demand(all(token >= 0 for token, _ in pairs), "logit-bias must name tokens by ids of at least 0.")
        _demand(all(by < float("inf") for _, by in pairs), "logit-bias must be below infinity, and a number.")
        _demand(self.temperature < float("inf"), f"temperature must be a finite number, not {self.temperature}.")
        _demand(0.0 < self.top_p <= 1.0, f"top-p must be above 0 and at most 1, not {self.top_p}.")
        _demand(0.0 <= self.min_p < 1.0, f"min-p must be at least 0 and below 1, not {self.min_p}.")
        _demand(0.0 < self.repeat_penalty < float("inf"), f"repeat-penalty must be above 0, not {self.repeat_penalty}.")
        _demand(abs(self.presence_penalty) < float("inf"), "presence-penalty must be a finite number.")
        _demand(abs(self.frequency_penalty) < float("inf"), "frequency-penalty must be a finite number.")
        _demand(self.repeat_last_n >= -1, f"repeat-last-n must be at least -1, not {self.repeat_last_n}.")

    @property
    def greedy(self) -> bool:
        return self.temperature <= 0.0

    @property
    def penalises(self) -> bool:
        return self.repeat_last_n != 0 and (
            self.repeat_penalty != 1.0 or self.presence_penalty != 0.0 or self.frequency_penalty != 0.0
        )


@dataclass(frozen=True, slots=True)
class Request:
    """One answer: how to draw, when to end, which acceptance rule.

    `seed` None means drawn at random (and reported); a seed that is given makes `auto` choose `match`, because only
    keyed draws make the text independent of what was drafted. `think` reaches the chat template of a thinking model;
    auto leaves it to the template.
    """

    sampling: Sampling = Sampling()
    seed: int | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    verify: VerifyChoice = "auto"
    think: ThinkChoice = "auto"

    def __post_init__(self) -> None:
        _demand(self.seed is None or 0 <= self.seed <= MAX_SEED, f"seed must be from 0 to {MAX_SEED}, not {self.seed}.")
        _demand(
            self.max_tokens is None or self.max_tokens >= 1, f"max-tokens must be at least 1, not {self.max_tokens}."
        )
        _demand(all(self.stop), "a stop string must not be empty.")
        _one_of("verify", self.verify, get_args(VerifyChoice))
        _one_of("think", self.think, get_args(ThinkChoice))

    def having(self, **options: Any) -> Request:
        """This request with some options changed: its own fields, or those of `sampling`, by name."""
        inner = {field.name for field in fields(Sampling)}
        own = {field.name for field in fields(Request)}
        if unknown := options.keys() - inner - own:
            raise UsageError(f"{min(unknown)} is no option of an answer: known are {', '.join(sorted(inner | own))}.")
        sampling = replace(options.get("sampling", self.sampling), **{k: v for k, v in options.items() if k in inner})
        stop = options.get("stop", self.stop)
        stop = (stop,) if isinstance(stop, str) else tuple(stop)
        return replace(self, **{k: v for k, v in options.items() if k in own} | {"sampling": sampling, "stop": stop})

    @property
    def rule(self) -> VerifyRule:
        """The acceptance rule that `verify` comes to."""
        if self.sampling.greedy:
            return "argmax"
        if self.verify == "auto":
            return "block" if self.seed is None else "match"
        return self.verify


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """How one model is loaded. `gpu_layers` -1 means all, where the build can offload; `threads` 0 means measured."""

    ctx: int = 8192
    gpu_layers: int = -1
    threads: int = 0
    batch: int = 512
    max_draft: int = 63

    def __post_init__(self) -> None:
        _demand(self.ctx >= 16, f"ctx must be at least 16 tokens, not {self.ctx}.")
        _demand(self.gpu_layers >= -1, f"gpu-layers must be -1 (all) or more, not {self.gpu_layers}.")
        _demand(self.threads >= 0, f"threads must be 0 (choose) or more, not {self.threads}.")
        _demand(self.batch >= 1, f"batch must be at least 1 token, not {self.batch}.")
        _demand(self.max_draft >= 0, f"max-draft must be at least 0, not {self.max_draft}.")


MODEL_DEFAULTS = ModelSettings()


@dataclass(frozen=True, slots=True)
class About:
    """What an engine was made of, for reports: the pair's name if it came by one, and the models' names or paths.

    `target_file` and `draft_file` are where these lie. With fewer than `invariant_below` tokens cached the target's
    logits do not depend on a pass's width; elsewhere they differ by about `width_noise`, in
    logits (a standard deviation).
    """

    target: str
    draft: str | None = None
    pair: str | None = None
    policy: str = "fixed"
    target_file: str | None = None
    draft_file: str | None = None
    invariant_below: int = 0
    width_noise: float = 0.0
