"""How the simulated teacher writes what code is to read: as JSON, or as models do.

Models write the same thing in many ways: in tags, as an object or a bare list, in a code fence,
after a thought. The ways drawn here are all such that a reader of good will can tell what is meant.
"""

import json
from collections.abc import Mapping, Sequence
from html import escape

from grpo_practice.sim.request import SimRequest
from grpo_practice.sim.world import World, unit

Entry = Mapping[str, str | Sequence[str]]
"""Fields of one lesson or operation; the values are texts or lists of names."""

TAGS, JSON, RAW = 0.6, 0.2, 0.1
"""Chances of tags, of JSON, and of JSON whose LaTeX is not escaped; the rest is a bare list."""
FENCED, TALKATIVE, THINKING = 0.35, 0.3, 0.1
"""Chances of a code fence around it, of a list of thoughts before it, and of a draft before that.
Tags stand in a fence half as often."""

_TEXTS = {"lessons": "lesson", "operations": "text"}
"""By kind of reply, which value of an entry stands between its tags."""


def written(
    kind: str, entries: Sequence[Entry], thought: str, asked: SimRequest, world: World
) -> str:
    """Write the reply that holds the entries, after a thought.

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
    elif form < TAGS + JSON + RAW or not entries:  # a bare [] could be anything
        body, name = _json({kind: entries}).replace("\\\\", "\\"), "json"
    else:
        body, name = _json(entries), "json"
    if fence < FENCED:
        body = f"```{name}\n{body}\n```"
    return f"{_before(thought, kind, entries, talk, think)}\n\n{body}"


def tagged(kind: str, entries: Sequence[Entry]) -> str:
    """Write the entries in tags, their texts as they are."""
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
    """Return the words in front: the thought, sometimes at length, sometimes after a draft."""
    said = thought
    if talk < TALKATIVE:
        points = [f"{i}. {_joined(next(iter(e.values())))}" for i, e in enumerate(entries, 1)]
        said = "\n".join([thought, "", "What I take from it, in the set {better, worse}:", *points])
    if think < THINKING:
        said = f"<think>Draft:\n{tagged(kind, ())}\nNo, look again.</think>\n{said}"
    return said
