"""The simulated reader of a web page: it tells the line that has most to do with the question."""

import re

from grpo_practice.sim.request import SimRequest

_WORD = re.compile(r"\w{3,}")
CHARS = 300
"""Characters of the line that are told."""


def read_page(asked: SimRequest) -> str:
    """Quote the page's line that shares most words with the question, the first such."""
    wanted = _words("\n".join(asked.fenced("question")))
    lines = [line.strip() for line in "\n".join(asked.fenced("web")).splitlines() if line.strip()]
    best = max(lines, key=lambda line: len(_words(line) & wanted), default="")
    if not _words(best) & wanted:
        return "The page does not answer the question."
    return f"The page says: {best[:CHARS]}"


def _words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold()))
