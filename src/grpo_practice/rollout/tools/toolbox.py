"""The tools of a run, called through the ledger: looked up first, committed before they are read.

The error from a tool is a result like any other: it may have cost money, and the model has read it.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from grpo_practice.core.calls import (
    TOOL_FAILED,
    Entry,
    Ledger,
    Reply,
    Scope,
    ToolResult,
    Usage,
)
from grpo_practice.core.errors import AgentError, ConfigError, GrpoPracticeError
from grpo_practice.core.events import Emit, ToolFinished
from grpo_practice.core.hashing import Chain, canon, clean_json
from grpo_practice.core.played import ToolUse
from grpo_practice.core.redact import redactor
from grpo_practice.llm.ledgered import Play
from grpo_practice.rollout.tools import Output, Tool, ToolError, ToolSession

OUTPUT_BYTES = 16 * 1024
"""Maximum size (UTF-8 bytes) of a result that a model reads; the rest is cut, with a note."""


class Toolbox:
    """The tools of a run.

    Raises:
        ConfigError: Two tools have the same name.
    """

    def __init__(self, tools: Sequence[Tool], ledger: Ledger, emit: Emit) -> None:
        check_names(tools)
        self.tools = {tool.name: tool for tool in tools}
        self.schemas = [tool.schema for tool in tools]
        self.ledger, self.emit = ledger, emit

    @asynccontextmanager
    async def open(self, scope: Scope) -> "AsyncIterator[RolloutTools]":
        """Yield the tools for one play of a rollout; end their sessions after the block."""
        at = replace(scope, address=replace(scope.address, stage="tool"))
        async with AsyncExitStack() as stack:
            yield RolloutTools(self, at, stack)


def check_names(tools: Sequence[Tool]) -> None:
    """Raise ConfigError if two tools have the same name, which a model could not tell apart."""
    names = [tool.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two toolkits have a tool {name!r}", hint="leave one out with activated_tools"
            )


@dataclass(slots=True)
class _State:
    """The session of one rollout, and its stored calls that have not been repeated yet."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    unseen: list[tuple[str, Mapping[str, Any], str]] = field(default_factory=list)
    """Name, arguments and result of each call."""
    call: Callable[[str, Mapping[str, Any]], Any] | None = None


class RolloutTools:
    """The tools in one play of one rollout (a `calls.Tools`)."""

    def __init__(self, box: Toolbox, scope: Scope, stack: AsyncExitStack) -> None:
        self._box, self._scope, self._stack = box, scope, stack
        self._play = Play()
        self._states = dict[ToolSession, _State]()

    @property
    def schemas(self) -> Sequence[Mapping[str, Any]]:
        """Schemas for `tools` in a chat completion request."""
        return self._box.schemas

    async def __call__(
        self, name: str, arguments: str, *, limit_s: float | None = None
    ) -> ToolResult:
        """Return the stored result, or run the tool and commit its result. See `calls.Tools`."""
        tool = self._box.tools.get(name)
        if tool is None:
            known = ", ".join(self._box.tools)
            return ToolResult(f"Tool {name!r} not found. There are: {known}.", failed=True)
        try:
            given = _parsed(arguments)
        except ValueError as e:
            again = "Please try again with valid JSON."
            return ToolResult(f"The arguments are {e}. {again}", failed=True)
        head = canon({"tool": tool.name, "version": tool.version, "arguments": given})
        request_hash = Chain(head).state[:16]
        nth, turn = self._play.place(request_hash)
        address = self._scope.address
        stored = await self._box.ledger.get(address, request_hash, nth)
        if stored is not None:
            result = ToolResult(
                stored.content,
                stored.seconds,
                stored.usage.cost_micro,
                replayed=True,
                failed=stored.finish == TOOL_FAILED,
            )
            if tool.session is not None:
                state = self._states.setdefault(tool.session, _State())
                state.unseen.append((tool.name, given, result.text))
        else:
            # Wait only before a real call: a stored result must not wait for others.
            async with tool.limit or nullcontext():
                result = await self._run(tool, given, limit_s)
        # No await between the event and the entry's queue: a cancellation there would make the
        # counts of events and entries differ.
        self._box.emit(ToolFinished(address, tool.name, result.seconds, result.replayed))
        if stored is None:
            entry = Entry(
                address=address,
                request_hash=request_hash,
                nth=nth,
                turn=turn,
                prev_call_id=None,
                head=canon({"tool": tool.name, "version": tool.version}),
                messages=canon([given]),
                name=tool.name,
                reply=_reply(tool, result),
            )
            await self._box.ledger.put(entry)
        return result

    async def _run(self, tool: Tool, given: Mapping[str, Any], limit_s: float | None) -> ToolResult:
        if limit_s is not None and limit_s <= 0:
            raise TimeoutError("no time left for a tool")
        async with self._ready(tool) as call:
            # Start the time only now: repeated calls of the session must not count.
            start = monotonic()
            deadline, failed = asyncio.timeout(limit_s), False
            try:
                async with deadline:
                    output: Output = await call(given)
            except Exception as e:
                about_this_call = isinstance(e, ToolError) or not isinstance(e, GrpoPracticeError)
                # A TimeoutError from the tool is its result; our own ends the rollout.
                if deadline.expired() or not about_this_call:
                    raise
                output, failed = Output(_error_text(e)), True
            took_s = max(0.0, monotonic() - start - output.waited_s)
            return ToolResult(capped(output.text), took_s, output.cost_micro, failed=failed)

    @asynccontextmanager
    async def _ready(self, tool: Tool) -> AsyncIterator[Callable[[Mapping[str, Any]], Any]]:
        """Yield a function that calls the tool; a session first repeats its stored calls."""
        if tool.session is None:
            yield lambda given: tool.run(given, self._scope)
            return
        state = self._states.setdefault(tool.session, _State())
        # One call at a time: a replay needs a definite order to repeat.
        async with state.lock:
            if state.call is None:
                state.call = await self._stack.enter_async_context(tool.session())
            call = state.call
            while state.unseen:
                name, given, was = state.unseen.pop(0)
                try:
                    now = capped((await call(name, given)).text)
                except ToolError as e:
                    now = capped(_error_text(e))
                if now != was:
                    raise AgentError(
                        f"the tool {name} answers a stored call differently than before, so the"
                        f" rollout cannot be resumed: {tool.unlike}"
                    )
            yield lambda given: call(tool.name, given)


async def store_logged(ledger: Ledger, emit: Emit, scope: Scope, uses: Sequence[ToolUse]) -> None:
    """Commit the tool calls of a program that has answered; a stored one is not stored again."""
    address, play, waiting = replace(scope.address, stage="tool"), Play(), list[Awaitable[int]]()
    for use in uses:
        head = canon({"tool": use.name, "logged": True})
        request_hash = Chain(head + canon(use.arguments)).state[:16]
        nth, turn = play.place(request_hash)
        stored = await ledger.get(address, request_hash, nth)
        emit(ToolFinished(address, use.name, use.seconds or 0.0, stored is not None))
        if stored is None:
            reply = Reply(
                message={"role": "tool", "content": capped(use.result or "")},
                finish=TOOL_FAILED if use.failed else None,
                usage=Usage(0, 0, 0, 0, 0),
                tries=0,
                answered_by="own agent",
                price="tool",
                seconds=use.seconds or 0.0,
            )
            given = canon([use.arguments])
            entry = Entry(address, request_hash, nth, turn, None, head, given, use.name, reply)
            waiting.append(ledger.put(entry))
    await asyncio.gather(*waiting)


def _parsed(arguments: str) -> dict[str, Any]:
    """Return the arguments that the model wrote; an empty string means no arguments.

    Raises:
        ValueError: The text is not a JSON object; the message continues "The arguments are".
    """
    try:
        value = (
            clean_json(json.loads(arguments, parse_constant=_refuse)) if arguments.strip() else {}
        )
    except json.JSONDecodeError as e:
        raise ValueError(f"not valid JSON: {e.msg} at character {e.pos + 1}") from e
    except RecursionError as e:
        raise ValueError("nested too deeply") from e
    if not isinstance(value, dict):
        raise ValueError(f"a JSON {type(value).__name__}, not an object")
    return value


def _refuse(name: str) -> float:
    raise ValueError(f"not valid JSON: {name} is not a number")


def _error_text(error: Exception) -> str:
    kind = "" if isinstance(error, ToolError) else f"{type(error).__name__}: "
    return f"Error: {kind}{error}"


def capped(text: str) -> str:
    """Return the text for a model: without secrets, and at most `OUTPUT_BYTES` long."""
    # Redact before cutting: half a secret would not be recognised.
    text = redactor.text(clean_json(text))
    raw = text.encode()
    if len(raw) <= OUTPUT_BYTES:
        return text
    mark = f"\n[cut here: this is the beginning of {len(raw):,} bytes]"
    # The cut may fall inside a character.
    return raw[: OUTPUT_BYTES - len(mark)].decode(errors="ignore") + mark


def _reply(tool: Tool, result: ToolResult) -> Reply:
    return Reply(
        message={"role": "tool", "content": result.text},
        finish=TOOL_FAILED if result.failed else None,
        usage=Usage(0, 0, 0, 0, result.cost_micro),  # no model was called
        tries=0,
        answered_by=tool.runs_in,
        price=None if result.cost_micro is None else "tool",
        seconds=result.seconds,
    )
