"""The turns that a verify function sees, from calls as the ledger stores them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.calls import Address, Entry, Reply, Usage
from grpo_practice.core.hashing import canon
from grpo_practice.core.played import PlayedTurn, ToolUse
from grpo_practice.store import Store
from grpo_practice.store.played_turns import played_turns, read_arguments
from tests.store.helpers import planned, plans, spec, upload


def told(folder: Path, *calls: tuple[list[Any], Any], own: bool = False) -> list[PlayedTurn]:
    """Return the turns of a rollout in which each call continues the one before."""
    identity = {"agent.type": "python" if own else "simple"}

    async def stored() -> list[PlayedTurn]:
        with Store(folder / "p.db") as store:
            dataset, ids = upload(store)
            branch = store.begin(spec(dataset, identity=identity), planned(plans(ids, 1)))
            with store.invocation(branch, "test") as invocation:
                ledger, before = store.ledger(branch, invocation), None
                at = Address(branch.id, 0, 0, 0, "play")
                for n, (sent, message) in enumerate(calls):
                    reply = Reply(message, usage=Usage(n, None, n + 1), seconds=0.5)
                    entry = Entry(at, n.to_bytes(16), 0, n, before, b"{}", canon(sent), "m", reply)
                    before = await ledger.put(entry)
            return store.read(played_turns, (branch.id, 0, 0, 0))

    return asyncio.run(stored())


def said(*calls: tuple[str, str, Any], text: str | None = None) -> dict[str, Any]:
    listed = [{"id": i, "function": {"name": n, "arguments": a}} for i, n, a in calls]
    return {"role": "assistant", "content": text, "tool_calls": listed}


def result(call_id: str | None, text: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


USER = {"role": "user", "content": [{"type": "text", "text": "q"}]}


def test_bad_calls_and_results_are_told_as_they_are(tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "first"}, {"type": "image_url"}]
    turns = told(
        tmp_path,
        ([USER], said(("a", "f", "{"), ("a", "g", '{"n": NaN}'), ("b", "h", {"n": 1}))),
        ([result("a", parts), result("a", "second"), result("c", "whose?")], said(("a", "f", ""))),
        (
            [result("a", "third"), result("a", "and again")],
            {"content": None, "tool_calls": ["?", {}]},
        ),
        own=True,
    )
    assert [u for turn in turns for u in turn.tool_calls] == [
        ToolUse("f", "{", "first", failed=True),
        ToolUse("g", '{"n": NaN}', "second", failed=True),
        ToolUse("h", {"n": 1}, None),
        ToolUse("f", {}, "third"),
    ]
    assert [turn.role for turn in turns] == ["user", "assistant", "tool", "assistant", "None"]
    assert turns[0] == PlayedTurn("user", "q")
    assert turns[2] == PlayedTurn("tool", "whose?")
    assert (turns[3].tokens_in, turns[3].tokens_out, turns[3].seconds) == (1, 2, 0.5)


def test_a_call_of_a_built_in_agent_that_did_not_run_failed(tmp_path: Path) -> None:
    calls = ([USER], said(("a", "f", "{}"))), ([result("a", "Tool 'f' not found.")], said())
    (use,) = (u for turn in told(tmp_path, *calls) for u in turn.tool_calls)
    assert use == ToolUse("f", {}, "Tool 'f' not found.", failed=True)


@pytest.mark.long
def test_ten_thousand_turns_are_told(tmp_path: Path) -> None:
    turns = told(
        tmp_path,
        *(
            ([USER] if n == 0 else [result("a", str(n))], said(("a", "f", "{}")))
            for n in range(10_000)
        ),
    )
    uses = [u for turn in turns for u in turn.tool_calls]
    assert [u.result for u in uses] == [*map(str, range(1, 10_000)), None]


def test_arguments_that_are_no_json_stay_text() -> None:
    deep = "[" * 100_000
    for given in ("{", deep, "NaN", "nope"):
        assert read_arguments(given) == given
    assert read_arguments(None) == read_arguments(" ") == {}
    assert read_arguments('{"a": "\\ud800"}') == {"a": "\ufffd"}
