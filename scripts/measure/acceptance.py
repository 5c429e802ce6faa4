"""How often a target would accept what a draft proposes, for each acceptance rule and way of drafting.

    .venv/bin/python scripts/measure/acceptance.py TARGET.gguf DRAFT.gguf PROMPTS.jsonl [tokens for each prompt]

For each prompt (a JSON line with "id" and "messages") the target writes an answer at the temperature. Then both models
read it, so that p and q are known at every token ("teacher-forced"), and what each rule would accept there follows by
formula, without chance:

    argmax, match      p(argmax q)
    drawn, match       sum of p q             with independent noise
    coupled, match     sum of 1 / (sum of max(p(y)/p(x), q(y)/q(x)))      with the same noise (Gumbel coupling)
    drawn, token       sum of min(p, q)       block verification accepts at least this many

All figures are means over tokens, so they are the acceptance of a first drafted token.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgespec import sampling
from edgespec.bench.overlap import rows
from edgespec.llama import Context, JinjaTemplate, Model
from edgespec.protocols import Distribution
from edgespec.settings import ModelSettings, Sampling

MODES = ("argmax, match", "drawn, match", "coupled, match", "drawn, token")
NO_FILTER = Sampling(top_k=0, top_p=1.0, min_p=0.0)


def answer(target: Context, prompt: list[int], ends: frozenset[int], settings: Sampling, length: int) -> list[int]:
    """The target's own answer, drawn with a fixed seed."""
    target.trim(0)
    stream, tokens, pending = sampling.RandomStream(1, len(prompt)), [], prompt
    while len(tokens) < length:
        at = len(prompt) + len(tokens) - len(pending)
        row = target.decode(pending, at, 1)[0]
        token = stream.draw(sampling.distribution(row, settings, (prompt + tokens)[-64:]))
        if token in ends:
            break
        tokens.append(token)
        pending = [token]
    return tokens


def acceptances(p: Distribution, q: Distribution) -> tuple[float, ...]:
    """One figure for each of MODES. The coupled one leaves out tokens that matter less than one in a thousand."""
    tokens = np.union1d(p.tokens, q.tokens)
    ps, qs = np.zeros(len(tokens)), np.zeros(len(tokens))
    ps[tokens.searchsorted(p.tokens)], qs[tokens.searchsorted(q.tokens)] = p.p, q.p
    both = np.minimum(ps, qs)
    likely = (both > 1e-3).nonzero()[0]
    coupled = sum(1.0 / np.maximum(ps / ps[i], qs / qs[i]).sum() for i in likely)
    return p[q.mode], float((ps * qs).sum()), float(coupled), float(both.sum())


def main() -> None:
    target_path, draft_path, prompts = (Path(name) for name in sys.argv[1:4])
    length = int(sys.argv[4]) if len(sys.argv) > 4 else 100
    models = [Model.load(path) for path in (target_path, draft_path)]
    target, draft = (Context(model, ModelSettings(ctx=4096)) for model in models)
    template, words = JinjaTemplate.of(models[0]), models[0].vocabulary
    for temperature in (0.7, 1.0):
        for name, filters in [("no filter", NO_FILTER), ("the usual filters", Sampling())]:
            settings = replace(filters, temperature=temperature)
            totals: dict[str, list[tuple[float, ...]]] = {}
            for line in prompts.read_text("utf-8").splitlines():
                prompt = json.loads(line)
                text = template.render(prompt["messages"])
                ids = words.tokenize(text, add_special=not template.begins_itself(text))
                said = answer(target, ids, words.end_tokens, settings, length)
                if not said:
                    continue
                ps, qs = (
                    [sampling.distribution(row, settings) for row in rows(model, ids, said)]
                    for model in (target, draft)
                )
                totals[prompt["id"]] = [acceptances(p, q) for p, q in zip(ps, qs, strict=True)]
            print(f"\ntemperature {temperature}, {name}")
            print(f"{'':28} tokens  " + "  ".join(MODES))
            for what, found in [*totals.items(), ("all", [one for part in totals.values() for one in part])]:
                means = zip(MODES, np.mean(np.array(found), axis=0), strict=True)
                print(f"{what:28} {len(found):6}  " + "  ".join(f"{mean:{len(mode)}.3f}" for mode, mean in means))


if __name__ == "__main__":
    main()
