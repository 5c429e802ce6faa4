from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from edgespec.errors import VocabularyMismatch
from edgespec.models.vocabulary import Compatibility, compare

UNUSED, NORMAL, CONTROL, USER_DEFINED = 2, 4, 8, 16


@dataclass
class Words:
    size: int = 200
    kind: str = "bpe"
    begin: int | None = 1
    end: int | None = 2
    adds_begin: bool = True
    adds_end: bool = False
    odd: dict[int, bytes] = field(default_factory=dict)
    attributes: dict[int, int] = field(default_factory=dict)

    @property
    def n_tokens(self) -> int:
        return self.size

    @property
    def texts(self) -> list[bytes]:
        return [self.odd.get(token, b"t%d" % token) for token in range(self.size)]

    def attribute(self, token: int) -> int:
        return self.attributes.get(token, NORMAL)


def verdicts(found: Compatibility) -> dict[str, str]:
    return {finding.rule: finding.verdict for finding in found.findings if finding.verdict != "pass"}


def test_equal_vocabularies_pass_every_rule() -> None:
    found = compare(Words(), Words())
    assert [finding.rule for finding in found.findings] == ["type", "begin token", "end token", "size", "texts"]
    assert verdicts(found) == {} and found.fits and found.masked == frozenset() and found.warnings == ()
    found.require()


@pytest.mark.parametrize(
    ("target", "draft", "rule"),
    [
        (Words(kind="bpe"), Words(kind="spm"), "type"),
        (Words(), Words(adds_begin=False), "begin token"),
        (Words(), Words(begin=7), "begin token"),
        (Words(), Words(adds_end=True), "end token"),
        (Words(size=151936 % 1000), Words(size=151936 % 1000 + 129), "size"),
        (Words(), Words(odd={5: b"other"}), "texts"),
        (Words(), Words(odd={199: b"other"}), "texts"),
    ],
)
def test_one_rule_broken_is_a_refusal_that_names_it(target: Words, draft: Words, rule: str) -> None:
    found = compare(target, draft)
    assert verdicts(found) == {rule: "fail"} and not found.fits
    with pytest.raises(VocabularyMismatch, match="--drafter ngram") as caught:
        found.require()
    assert "\n" not in str(caught.value)


def test_the_first_differing_id_and_both_texts_are_named() -> None:
    with pytest.raises(VocabularyMismatch, match="token 40 is 't40' for the target and 'é' for the draft"):
        compare(Words(), Words(odd={40: "é".encode(), 50: b"x"})).require()


@pytest.mark.parametrize(
    ("target", "draft"),
    [
        (Words(adds_begin=False, begin=1), Words(adds_begin=False, begin=None)),
        (Words(end=2), Words(end=3)),
        (Words(size=151936 - 151808), Words(size=152064 - 151808)),
    ],
)
def test_differences_that_do_not_matter(target: Words, draft: Words) -> None:
    assert verdicts(compare(target, draft)) == {}


def test_the_first_five_ids_may_differ_but_are_not_proposed() -> None:
    found = compare(Words(), Words(odd={4: b"other"}))
    assert verdicts(found) == {} and found.masked == {4}


def test_ids_that_the_target_lacks_are_not_proposed() -> None:
    assert compare(Words(size=200), Words(size=203)).masked == {200, 201, 202}
    assert compare(Words(size=203), Words(size=200)).masked == frozenset()


def test_a_few_added_tokens_that_differ_are_a_warning_and_masked() -> None:
    target = Words(attributes={60: CONTROL, 61: USER_DEFINED})
    draft = Words(odd={60: b"<x>", 61: b"<y>"}, attributes={60: UNUSED, 61: UNUSED})
    found = compare(target, draft)
    assert verdicts(found) == {"texts": "warning"} and found.masked == {60, 61} and len(found.warnings) == 1
    found.require()


@pytest.mark.parametrize("side", ["target", "draft"])
def test_an_ordinary_token_on_either_side_is_a_refusal(side: str) -> None:
    special, plain = {60: CONTROL}, {60: NORMAL}
    target = Words(attributes=plain if side == "target" else special)
    draft = Words(odd={60: b"<x>"}, attributes=plain if side == "draft" else special)
    assert verdicts(compare(target, draft)) == {"texts": "fail"}


def test_many_special_tokens_that_differ_are_a_refusal() -> None:
    attributes = {token: CONTROL for token in range(200)}
    many = {token: b"<%d>" % token for token in range(100, 133)}
    target = Words(attributes=attributes)
    assert verdicts(compare(target, Words(odd=many, attributes=attributes))) == {"texts": "fail"}
    del many[132]
    assert verdicts(compare(target, Words(odd=many, attributes=attributes))) == {"texts": "warning"}


@pytest.mark.real
def test_a_real_pair_fits_and_strangers_do_not(
    qwen_target_path: Path, qwen_draft_path: Path, gemma_path: Path, smollm2_path: Path
) -> None:
    from edgespec.llama import Model

    def load(path: Path) -> Model:
        return Model.load(path, vocab_only=True)

    with load(qwen_target_path) as target, load(qwen_draft_path) as draft:
        found = compare(target.vocabulary, draft.vocabulary)
        assert verdicts(found) == {} and found.masked == frozenset()
        for stranger in (gemma_path, smollm2_path):
            with load(stranger) as other, pytest.raises(VocabularyMismatch):
                compare(target.vocabulary, other.vocabulary).require()
