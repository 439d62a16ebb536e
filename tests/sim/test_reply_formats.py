"""What the teacher means is the same in whichever way it writes it."""

import json
import re
from collections import Counter
from html import unescape
from typing import Any

from grpo_practice.core.text import strip_think
from grpo_practice.sim import World
from grpo_practice.sim.questions import TOPICS
from grpo_practice.sim.reply_formats import Entry, tagged, written
from grpo_practice.sim.request import read
from grpo_practice.sim.world import Teaching
from tests.sim.stages import library_of

MIXED = World(teacher=Teaching(forms="mixed"))
LIBRARY = library_of(*(MIXED.key(topic, "help") for topic in TOPICS))
LESSONS: list[Entry] = [
    {"lesson": e.text, "experience": e.id, "problem": "misled"} for e in LIBRARY.experiences
]
OPERATIONS: list[Entry] = [
    {"op": "ADD", "text": LIBRARY.experiences[0].text, "from": ["P1", "P4"]},
    {"op": "UPDATE", "id": "E3", "text": LIBRARY.experiences[1].text, "from": ["P2"]},
    {"op": "DELETE", "id": "E4", "from": ["P3"]},
    {"op": "NONE", "id": "E2"},
]


def replies(kind: str, entries: list[Entry], world: World = MIXED) -> list[str]:
    asked = [read({"messages": [{"role": "user", "content": "x"}], "seed": i}) for i in range(300)]
    return [written(kind, entries, "A thought.", a, world) for a in asked]


def meant(kind: str, reply: str) -> tuple[str, list[dict[str, Any]]]:
    """How it is written, and what a reader of good will takes from it."""
    text = strip_think(reply)
    assert text is not None
    if f"</{kind}>" in text:
        return "tags", [_entry(*found) for found in _ELEMENT.findall(text)]
    body = text[re.search(r'\{\s*"|\[\s*\{', text).start() :].removesuffix("\n```")  # type: ignore[union-attr]
    form = "list" if body.startswith("[") else "object"
    try:
        value = json.loads(body)
    except ValueError:
        value, form = json.loads(_repaired(body)), "raw"
    if any(ord(c) < 32 for c in str(value)):
        value, form = json.loads(_repaired(body)), "raw"
    return form, value if isinstance(value, list) else value[kind]


_ELEMENT = re.compile(r"<(lesson|operation)( [^<>]*?)?(?:/>|>(.*?)</\1>)", re.DOTALL)


def _entry(tag: str, head: str, body: str) -> dict[str, Any]:
    found: dict[str, Any] = {k: unescape(v) for k, v in re.findall(r'(\w+)="([^"]*)"', head)}
    if "finding" in found:
        found["problem"] = found.pop("finding")
    if "from" in found:
        found["from"] = found["from"].split()
    return found | ({"lesson" if tag == "lesson" else "text": body} if body else {})


def _repaired(body: str) -> str:
    """Each backslash that begins a command of LaTeX doubled."""
    return re.sub(r"(?<!\\)\\(?=[a-zA-Z])", r"\\\\", body)


def test_every_way_means_the_same() -> None:
    for kind, entries in (("lessons", LESSONS), ("operations", OPERATIONS)):
        forms = Counter[str]()
        for reply in replies(kind, entries):
            form, found = meant(kind, reply)
            assert found == entries, reply
            forms[form] += 1
        assert set(forms) == {"tags", "object", "raw", "list"}
        assert forms["tags"] > 0.5 * forms.total()


def test_what_stands_around_it_varies() -> None:
    told = replies("lessons", LESSONS)
    assert 0.1 < sum("```" in reply for reply in told) / len(told) < 0.4
    assert any(reply.startswith("<think>") for reply in told)
    assert any("1. When" in reply or "1. " in reply for reply in told)
    assert len({reply.partition("\n")[0] for reply in told}) > 1


def test_nothing_may_be_meant_too() -> None:
    assert {str(meant("lessons", reply)[1]) for reply in replies("lessons", [])} == {"[]"}


def test_where_it_is_not_to_vary_it_is_json() -> None:
    for reply in replies("operations", OPERATIONS, World(teacher=Teaching(forms="json"))):
        assert reply == f"A thought.\n\n{json.dumps({'operations': OPERATIONS})}"


def test_no_formula_is_beyond_repair_as_a_json_escape() -> None:
    r"""In JSON, `\n` is a line break and `\u` needs four digits: neither can be told from LaTeX."""
    texts = "".join(e.text for e in LIBRARY.experiences)
    assert "\\frac" in texts
    assert "\\times" in texts
    assert not re.search(r"\\[nu]", texts)


def test_tags_need_no_escaping() -> None:
    assert tagged("lessons", [{"lesson": 'if a < b, say "\\leq"'}]) == (
        '<lessons>\n<lesson>if a < b, say "\\leq"</lesson>\n</lessons>'
    )
