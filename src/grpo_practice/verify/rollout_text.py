"""A rollout as text for a judge."""

from collections.abc import Iterator, Sequence

from grpo_practice.core.played import PlayedTurn, arguments_text
from grpo_practice.core.text import strip_think

PIECE = 4_000
"""Maximum number of characters of a turn's text, of a call's arguments, and of a result."""
WHOLE = 60_000
"""Maximum number of characters of a rollout, about 15,000 tokens."""


def rollout_text(turns: Sequence[PlayedTurn]) -> str:
    """Return the turns without the agent's thinking; long pieces keep their start and their end.

    All texts from outside are indented, so that none of them can look like a call.
    """
    return _cut("\n".join(line for turn in turns for line in _lines(turn)), WHOLE)


def _lines(turn: PlayedTurn) -> Iterator[str]:
    yield f"[{' '.join(turn.role.split())}]"
    text = (strip_think(turn.text) or "").strip() if turn.role == "assistant" else turn.text
    if text:
        yield _indented(text)
    for use in turn.tool_calls:
        yield f"calls {_indented(f'{use.name}({arguments_text(use)})').lstrip()}"
        if use.result is None:
            yield "returns nothing that is known"
        else:
            yield f"returns{' an error' if use.failed else ''}:"
            yield _indented(use.result)


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in _cut(text, PIECE).splitlines())


def _cut(text: str, chars: int) -> str:
    """Return the text, or its start and its end with the number of characters between them."""
    left = len(text) - chars
    if left <= 0:
        return text
    half = chars // 2
    return f"{text[:half]} … [{left:,} characters left out] … {text[len(text) - half :]}"
