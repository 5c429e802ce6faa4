"""Records the texts that the laboratory replays: a target's answers, and at each token what its draft thinks of it.

    python scripts/measure/record.py --out scripts/measure/results/recorded.jsonl

One line for each prompt of the quick suite and temperature: the tokens of prompt and answer and, for each token of the
answer, the draft's confidence (its highest probability) and the probability that the target keeps what the draft
proposes there. The draft reads the target's own answer, so that nothing depends on a length of drafts.
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path

import numpy as np

import edgespec
from edgespec import sampling, verify
from edgespec.bench.experiment import draft_model
from edgespec.bench.overlap import rows
from edgespec.bench.suites import open_suite
from edgespec.control.fixed import FixedPolicy
from edgespec.protocols import LanguageModel, Logits
from edgespec.settings import Sampling


def judged(row: Logits, other: Logits, settings: Sampling) -> tuple[float, float]:
    """The draft's confidence, and the probability that the target keeps what is drafted from `other`."""
    if settings.greedy:
        best = int(other.argmax())
        return float(1.0 / np.exp(other - other[best]).sum()), float(best == int(row.argmax()))
    p, q = sampling.distribution(row, settings), sampling.distribution(other, settings)
    return float(q.p.max()), verify.overlap(p, q)


def answered(engine: edgespec.Engine, prompt: list[int], settings: Sampling, length: int) -> list[int]:
    done = None
    for event in engine.generate(prompt, sampling=settings, seed=1, max_tokens=length):
        if isinstance(event, edgespec.events.Done):
            done = event
    assert done is not None
    return list(done.tokens)


def compared(
    target: LanguageModel, draft: LanguageModel, prompt: list[int], answer: list[int], settings: Sampling
) -> list[tuple[float, float]]:
    with closing(rows(target, prompt, answer)) as ours, closing(rows(draft, prompt, answer)) as theirs:
        return [judged(row, other[: target.n_vocab], settings) for row, other in zip(ours, theirs, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.8])
    parser.add_argument("--max-tokens", type=int, default=400)
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    with edgespec.load(asked.pair) as engine, asked.out.open("w", encoding="utf-8") as out:
        draft = draft_model(engine)
        assert draft is not None, "the pair has no draft model"
        engine.policy = FixedPolicy(None, 0)
        for temperature in asked.temperatures:
            settings = Sampling(temperature=temperature)
            for prompt in open_suite("quick"):
                tokens = engine.prompt(prompt.messages)
                answer = answered(engine, tokens, settings, asked.max_tokens)
                with engine.bare():
                    found = compared(engine.target, draft, tokens, answer, settings)
                line = {
                    "id": prompt.id,
                    "kind": prompt.kind,
                    "temperature": temperature,
                    "prompt": tokens,
                    "answer": answer,
                    "confidence": [round(confidence, 3) for confidence, _ in found],
                    "acceptance": [round(acceptance, 3) for _, acceptance in found],
                }
                out.write(json.dumps(line, separators=(",", ":")) + "\n")
                out.flush()
                print(prompt.id, temperature, len(tokens), len(answer))


if __name__ == "__main__":
    main()
