"""The formats of the simulated teacher's replies: JSON, or the variety that models produce.

Models write the same content in many ways: in tags, as an object or a bare list, in a code fence,
or after some thinking. All variants drawn here can be parsed by a lenient reader.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape

from grpo_practice.sim.request import SimRequest
from grpo_practice.sim.world import World, unit

Entry = Mapping[str, str | Sequence[str]]
"""Fields of one lesson or operation; the values are texts or lists of names."""

TAGS, JSON, RAW = 0.6, 0.2, 0.1
"""Probability of tags, of JSON, and of JSON with unescaped LaTeX; the rest are bare lists."""
FENCED, TALKATIVE, THINKING = 0.35, 0.3, 0.1
"""Probability of a surrounding code fence, of a list of thoughts before it, and of a draft before
that. Tags are fenced half as often.
"""

_TEXTS = {"lessons": "lesson", "operations": "text"}
"""Kind of reply → the field that is written between the tags of an entry."""


def written(
    kind: str, entries: Sequence[Entry], thought: str, asked: SimRequest, world: World
) -> str:
    """Write a reply that contains the entries, preceded by a thought.

    The kind is `lessons` or `operations`.
    """
    if world.teacher.forms == "json":
        return f"{thought}\n\n{_json({kind: entries})}"
    draws = [unit(world.seed, what, asked.sha) for what in ("form", "fence", "talk", "think")]
    form, fence, talk, think = draws
    if form < TAGS:
        body, name, fence = tagged(kind, entries), "xml", 2 * fence
    elif form < TAGS + JSON:
        body, name = _json({kind: entries}, indent=2 if talk < TALKATIVE else None), "json"
    elif form < TAGS + JSON + RAW or not entries:  # a bare [] does not show which list is empty
        # As models write LaTeX: with single backslashes, which JSON does not allow.
        body, name = _json({kind: entries}).replace("\\\\", "\\"), "json"
    else:
        body, name = _json(entries), "json"
    if fence < FENCED:
        body = f"```{name}\n{body}\n```"
    return f"{_before(thought, kind, entries, talk, think)}\n\n{body}"


def tagged(kind: str, entries: Sequence[Entry]) -> str:
    """Write the entries in tags, with unescaped texts."""
    lines = [_element(kind.removesuffix("s"), _TEXTS[kind], entry) for entry in entries]
    return "\n".join([f"<{kind}>", *lines, f"</{kind}>"])


def _element(tag: str, text: str, entry: Entry) -> str:
    names = {"problem": "finding"}
    given = [(names.get(k, k), _joined(v)) for k, v in entry.items() if k != text]
    head = " ".join([tag, *(f'{name}="{escape(value)}"' for name, value in given)])
    return f"<{head}>{_joined(entry[text])}</{tag}>" if text in entry else f"<{head}/>"


def _joined(value: str | Sequence[str]) -> str:
    return value if isinstance(value, str) else " ".join(value)


def _json(value: object, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _before(thought: str, kind: str, entries: Sequence[Entry], talk: float, think: float) -> str:
    """Return the text before the entries: the thought, sometimes with details or after a draft."""
    said = thought
    if talk < TALKATIVE:
        points = [f"{i}. {_joined(next(iter(e.values())))}" for i, e in enumerate(entries, 1)]
        # Braces in prose, which a parser must not mistake for JSON.
        said = "\n".join([thought, "", "What I take from it, in the set {better, worse}:", *points])
    if think < THINKING:
        # The draft is empty, so a parser that takes it for the reply loses all entries.
        said = f"<think>Draft:\n{tagged(kind, ())}\nNo, look again.</think>\n{said}"
    return said
