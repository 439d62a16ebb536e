"""The turns of a rollout for verify functions, assembled from its stored calls."""

import json
import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from grpo_practice.core.calls import TOOL_FAILED, Message, content_texts, in_order
from grpo_practice.core.hashing import canon, clean_json
from grpo_practice.core.played import PlayedTurn, ToolUse
from grpo_practice.store import branches
from grpo_practice.store.rollouts import own_agent, turns_of, unpack

Place = tuple[int, int, int, int]
"""Branch, step, slot and attempt of a rollout."""


def played_turns(db: sqlite3.Connection, place: Place) -> list[PlayedTurn]:
    """Return the turns of a rollout whose calls are stored, even if it is not finished.

    The calls that the agent's model made are matched with the stored calls of tools by name and
    arguments. Tool calls that the user's own agent logged, and that its model did not make, are in
    a turn of their own before the last.
    """
    lenders, own = branches.reuses(db, place[0]), own_agent(db, place[0])
    costs, tools = _calls(db, place, lenders)
    found = _Conversation()
    for turn in in_order(turns_of(db, place, lenders)):
        for message in turn.said[:-1]:
            # A built-in agent reformulates a reply that lacks IDs of calls. A user's own agent may
            # show its model calls that nobody made.
            found.add(message, calls=not own)
        found.add(turn.said[-1], costs.get(turn.call_id))
    for at, use in enumerate(found.uses):
        ran = tools[_key(use)]
        if ran:
            stored = ran.pop(0)
            result = stored.result if use.result is None else use.result
            found.uses[at] = replace(stored, arguments=use.arguments, result=result)
        else:
            # Calls of built-in tools are stored if they ran; those of the user's own agent are
            # known only from its requests.
            failed = not own or not isinstance(use.arguments, dict)
            found.uses[at] = replace(use, failed=failed)
    turns = found.turns
    if own and (logged := [use for uses in tools.values() for use in uses]):
        turns.insert(max(len(turns) - 1, 0), PlayedTurn("assistant", "", tuple(logged)))
    return turns


class _Conversation:
    """The messages of a rollout so far, with each tool's result in its call."""

    def __init__(self) -> None:
        self.uses = list[ToolUse]()
        self._turns = list[tuple[PlayedTurn, range]]()
        """Turns without their calls, and the positions of their calls in `uses`."""
        self._open = dict[str, list[int]]()
        """ID of a call → positions of the calls without a result, in the last turn with that ID."""

    @property
    def turns(self) -> list[PlayedTurn]:
        """All turns, with their calls."""
        return [
            replace(turn, tool_calls=tuple(self.uses[at.start : at.stop])) if at else turn
            for turn, at in self._turns
        ]

    def add(self, message: Message, cost: sqlite3.Row | None = None, *, calls: bool = True) -> None:
        """Add a message, with its tool calls if `calls`; `cost` is the call whose reply it is."""
        role, text = str(message.get("role")), "\n".join(content_texts(message.get("content")))
        if role == "tool":
            self._add_result(str(message.get("tool_call_id") or ""), text)
            return
        start, opened = len(self.uses), defaultdict[str, list[int]](list)
        listed = message.get("tool_calls")
        for call in listed if calls and isinstance(listed, list) else []:
            given = call.get("function") if isinstance(call, dict) else None
            if isinstance(given, dict):
                opened[str(call.get("id") or "")].append(len(self.uses))
                name = str(given.get("name") or "")
                self.uses.append(ToolUse(name, read_arguments(given.get("arguments"))))
        self._open |= opened
        turn = PlayedTurn("system" if role == "developer" else role, text)
        if cost is not None:
            turn = replace(
                turn,
                tokens_in=cost["tokens_in"],
                tokens_out=cost["tokens_out"],
                seconds=cost["seconds"],
            )
        self._turns.append((turn, range(start, len(self.uses))))

    def _add_result(self, call_id: str, text: str) -> None:
        waiting = self._open.get(call_id)
        if waiting:
            at = waiting.pop(0)
            self.uses[at] = replace(self.uses[at], result=text)
        elif waiting is None:
            self._turns.append((PlayedTurn("tool", text), range(0)))
        # Otherwise another conversation of the rollout has already shown this result.


def read_arguments(given: Any) -> Any:
    """Return the arguments of a call as JSON, {} if there are none; invalid JSON stays text."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}
    try:
        parsed = json.loads(given, parse_constant=_refuse) if isinstance(given, str) else given
        return clean_json(parsed)
    except (ValueError, RecursionError):
        return given


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not a JSON number")


_Key = tuple[str, bytes]
"""Name and arguments of a tool call."""


def _key(use: ToolUse) -> _Key:
    return use.name, canon(use.arguments)


def _calls(
    db: sqlite3.Connection, place: Place, lenders: Sequence[int]
) -> tuple[dict[int, sqlite3.Row], defaultdict[_Key, list[ToolUse]]]:
    """Return call_id → call of the agent's model, and the calls of tools in order."""
    branch_id, *rest = place
    costs, tools = dict[int, sqlite3.Row](), defaultdict[_Key, list[ToolUse]](list)
    seen = set[tuple[bytes, int]]()
    for branch in (branch_id, *lenders):
        # Read only the bodies of tool calls; `turns_of` reads the others. A tool that makes no
        # request of its own has no tries; the others are calls of a model inside a tool.
        rows = db.execute(
            """SELECT call_id, stage, name, finish, tokens_in, tokens_out, seconds, request_hash,
                      nth, codec, iif(stage = 'tool', request, NULL) AS request,
                      iif(stage = 'tool', reply, NULL) AS reply
                 FROM calls JOIN call_bodies USING (call_id)
                WHERE branch_id = ? AND step = ? AND slot = ? AND attempt = ?
                  AND (stage = 'play' OR stage = 'tool' AND tries = 0) ORDER BY turn, call_id""",
            (branch, *rest),
        )
        for row in rows:
            if row["stage"] == "play":
                costs[row["call_id"]] = row
            elif (same := (row["request_hash"], row["nth"])) not in seen:
                seen.add(same)
                use = _tool(row)
                tools[_key(use)].append(use)
    return costs, tools


def _tool(row: sqlite3.Row) -> ToolUse:
    given = unpack(row["request"], row["codec"])
    result = "\n".join(content_texts(unpack(row["reply"], row["codec"]).get("content")))
    return ToolUse(row["name"], given[0], result, row["finish"] == TOOL_FAILED, row["seconds"])
