"""The planted experiences that docs/security.md counts."""

import re

from bench.harness import ROOT
from bench.lint import SPELLINGS, passes_lint, passes_sites

EVERY = [text for texts in SPELLINGS.values() for text in texts]


def test_the_documentation_says_how_many_planted_texts_pass_the_lint() -> None:
    said = re.sub(r"\s+", " ", (ROOT / "docs/security.md").read_text("utf-8"))
    assert len(SPELLINGS) == 8
    assert f"{sum(map(passes_lint, EVERY))} of {len(EVERY)} planted experiences pass it" in said
    for name, texts in SPELLINGS.items():
        assert f"| {name} | {sum(map(passes_lint, texts))} of {len(texts)} |" in said


def test_what_is_planted_word_for_word_needs_a_second_site_and_other_words_do_not() -> None:
    assert [text for text in EVERY if passes_sites(text, f"Hello. {text} Bye.")] == []
    assert all(passes_sites(text, "Something else, in other words.") for text in EVERY)
