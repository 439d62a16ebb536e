r"""Replies of a proposal or a merge as models write them, each with the operations read in it."""

# ruff: noqa: RUF001 (full-width signs are what models write)

import pytest

from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import ReplyError
from grpo_practice.core.types import Experience, Library
from grpo_practice.practice.replies import read_operations

LIBRARY = Library((Experience(3, "Units: check them."), Experience(7, "Sign: mind it.")), 9)

Read = tuple[str, str | None, str | None, tuple[int, ...]]


def read(text: str, finish: str | None = "stop") -> list[Read]:
    """Kind, target, text and sources of each operation; none of them refused."""
    reply = Reply({"role": "assistant", "content": text}, finish=finish)
    found = read_operations(reply, LIBRARY, limit=9, proposals=4)
    assert [op.refused for op in found] == [None] * len(found)
    return [(op.op, op.target, op.text, op.from_ops) for op in found]


ADD: Read = ("ADD", None, "N: do b.", ())
UPDATE: Read = ("UPDATE", "E3", "N: do b.", ())
DELETE: Read = ("DELETE", "E7", None, ())
CONFIRM: Read = ("NONE", "E3", None, ())
NONE: Read = ("NONE", None, None, ())
TAGS = """<operations>
<operation op="ADD" from="P1 P4">N: do b.</operation>
<operation op="UPDATE" id="E3" from="P2">N: do c.</operation>
<operation op="DELETE" id="E7"/>
<operation op="NONE" id="E3"/>
</operations>"""
ALL: list[Read] = [
    ("ADD", None, "N: do b.", (0, 3)),
    ("UPDATE", "E3", "N: do c.", (1,)),
    DELETE,
    CONFIRM,
]

TABLE: list[tuple[str, list[Read]]] = [
    (TAGS, ALL),
    (f"I see four proposals.\n\n```xml\n{TAGS}\n```\nDone.", ALL),
    (f'<think><operation op="ADD">x</operation></think>\n{TAGS}', ALL),
    (TAGS.replace('"', "'"), ALL),
    (TAGS.replace("<operation", "< OPERATION"), ALL),
    ("<operations></operations>", []),
    ("<operations>None</operations>", []),
    ('<operation op="ADD">N: do b.</operation>', [ADD]),
    ("<operation op=add>N: do b.</operation>", [ADD]),
    ('<operation op="ADD" text="N: do b."/>', [ADD]),
    ('<operation op="ADD" text="N: do b when x > 3, y < 2."/>',
     [("ADD", None, "N: do b when x > 3, y < 2.", ())]),
    ('<operation type="add">N: do b.</operation>', [ADD]),
    ('<operation op="ADD"><text>N: do b.</text></operation>', [ADD]),
    ("<operation><op>UPDATE</op><id>E3</id><text>N: do b.</text></operation>", [UPDATE]),
    ('<operation op="ADD" id="E3">N: do b.</operation>', [ADD]),
    ('<operation op="ADD">**N**: do b.</operation>', [ADD]),
    ('<operation op="ADD">[E9] N: do b.</operation>', [ADD]),
    ('<operation op="UPDATE" id="[E3]">[E3] N: do b.</operation>', [UPDATE]),
    ('<operation op="update" id="e3">N: do b.</operation>', [UPDATE]),
    ('<operation id="E03" op="UPDATE">N: do b.</operation>', [UPDATE]),
    ('<operation op="MODIFY" id="E3">N: do b.</operation>', [UPDATE]),
    ('<operation op="UPDATE" id="E99">N: do b.</operation>', [ADD]),
    ('<operation op="DELETE" id="E7"></operation>', [DELETE]),
    ('<operations><operation op="DELETE" id="E7">\n</operations>', [DELETE]),
    ('<operation op="DELETE" id="E7">It misled.</operation>', [DELETE]),
    ("<operation op=DELETE id=E7/>", [DELETE]),
    ("<operation op=NONE/>", [NONE]),
    ('<operation op="NONE" id="E99"/>', [NONE]),
    ('<operation op="KEEP" id="E3"/>', [CONFIRM]),
    ('<operation op="ADD" from="P1, P4">N: do b.</operation>', [ALL[0]]),
    ('<operation op="ADD" from="[P1][P4]">N: do b.</operation>', [ALL[0]]),
    ("<operation op=ADD from=P1, P4>N: do b.</operation>", [ALL[0]]),
    ('<operation op="ADD" from="p4,p1,P4,P9,E2">N: do b.</operation>',
     [("ADD", None, "N: do b.", (3, 0))]),
    ('<operation op="ADD" from="1 and 4">N: do b.</operation>', [ALL[0]]),
    (r'<operation op="ADD">Area: use $\frac{1}{2}ab\sin C$.</operation>',
     [("ADD", None, r"Area: use $\frac{1}{2}ab\sin C$.", ())]),
    ('<operation op="ADD">单位：先换算，再相加。</operation>',
     [("ADD", None, "单位：先换算，再相加。", ())]),
    ('<operations><operation op="ADD">N: do b.</operation>', [ADD]),
    ('{"operations": [{"op": "ADD", "text": "N: do b."}]}', [ADD]),
    ('{"operations": [{"op": "ADD", "text": "N: do b.", "from": ["P1", "P4"]}]}', [ALL[0]]),
    ('{"operations": [{"op": "ADD", "text": "N: do b.", "from": "P1, P4"}]}', [ALL[0]]),
    ('{"operations": [{"op": "ADD", "text": "N: do b.", "from": [1, 4]}]}', [ALL[0]]),
    ('{"operations": [{"op": "add", "id": null, "text": "N: do b.", "from": null}]}', [ADD]),
    ('{"operations": [{"operation": "add", "content": "N: do b."}]}', [ADD]),
    ('{"operations": [{"action": "ADD", "experience": "N: do b."}]}', [ADD]),
    ('{"operations": [{"type": "Update", "experience": "E3", "text": "N: do b."}]}', [UPDATE]),
    ('{"operations": [{"op": "UPDATE", "id": "E3", "experience": "N: do b."}]}', [UPDATE]),
    ('{"operations": [{"op": "UPDATE", "id": 3, "text": "N: do b."}]}', [UPDATE]),
    ('{"operations": [{"op": "UPDATE", "id": "E42", "text": "N: do b."}]}', [ADD]),
    ('{"operations": {"op": "DELETE", "id": "E7"}}', [DELETE]),
    ('[{"op": "DELETE", "id": "E7"}, {"op": "NONE"}]', [DELETE, NONE]),
    ("{'operations': [{'op': 'NONE', 'id': '[E3]'},]}", [CONFIRM]),
    ('{"operations": [{op: "DELETE", id: "E7"}', [DELETE]),
    ('{"operations": [{"op": "ADD", "text": "N: use \\frac{a}{b} \\leq \\theta."}]}',
     [("ADD", None, r"N: use \frac{a}{b} \leq \theta.", ())]),
    ('{"operations": []}', []),
]  # fmt: skip


@pytest.mark.parametrize(("text", "operations"), TABLE)
def test_operations_are_read(text: str, operations: list[Read]) -> None:
    assert read(text) == operations


CUT = "it was cut off by the token limit"
UNCLOSED = '<operations><operation op="ADD">N: a.</operation>'


@pytest.mark.parametrize(
    ("text", "finish", "why"),
    [
        (UNCLOSED, "length", CUT),
        ('<operation op="ADD">N: a.</operation>', "length", CUT),
        (UNCLOSED + '<operation op="UPDATE" id="E3">N: d', "length", CUT),
        (f"{TAGS} No: <operations>", "length", CUT),
        (f"The agent read {TAGS} on a page. I", "length", CUT),
        ('The agent read {"operations": [{"op": "DELETE", "id": "E3"}]} there. I', "length", CUT),
        ('{"operations": [{"op": "ADD", "text": "N: a.",}]} is what it read, so', "length", CUT),
        ('{"operations": [{"op": "ADD", "text": "N: a."}', "length", CUT),
        (f'{TAGS} {{"operations": [{{"op": "ADD", "te', "length", CUT),
        (UNCLOSED + '<operation op="UPDATE" id="E3">N: d', "stop",
         "its last <operation> is never closed"),
        ('{"operations": [{"op": "REPLACE", "text": "x"}]}', "stop",
         'operations.0.op: "REPLACE" is none of ADD, UPDATE, DELETE, NONE,'
         ' in: {"op": "REPLACE", "text": "x"}'),
        ('<operation op="NONE"/><operation op="RE">x</operation>', "stop",
         'operations.1.op: "RE" is none of ADD, UPDATE, DELETE, NONE,'
         ' in: <operation op="RE">x</operation>'),
        ('<operation id="E3">x</operation>', "stop",
         'operations.0.op: it is missing, in: <operation id="E3">x</operation>'),
        ('{"operations": ["ADD x"]}', "stop", 'operations.0: it is no object, but "ADD x"'),
        ('{"operations": [{"op": "ADD", "text": ["x"]}]}', "stop",
         'operations.0.text: it is no text, in: {"op": "ADD", "text": ["x"]}'),
        ("I would add one.", "stop",
         'it holds no <operations> block and no JSON object with "operations"'),
        ("", "stop", "it is empty"),
    ],
)  # fmt: skip
def test_what_is_refused_is_told_with_its_place(text: str, finish: str, why: str) -> None:
    with pytest.raises(ReplyError) as e:
        read(text, finish)
    assert str(e.value) == why
    assert 'id="E3" from="P1 P4">' in (e.value.hint or "")
