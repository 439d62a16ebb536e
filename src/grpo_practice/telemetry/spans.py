"""A stored group as spans: one trace for each group, and one for each merge.

Ids are made of what a span is of (run, branch, step, group, attempt, call), so that a run that is
sent twice has the same spans, live or later. A call began when it was stored, less the seconds
that its answer took: the store has no other beginning.
"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Literal

from grpo_practice.stages import STAGES, Role
from grpo_practice.store.queries.trace_rows import (
    MERGE,
    StoredAttempt,
    StoredCall,
    StoredFailure,
    StoredGroup,
)
from grpo_practice.telemetry.attributes import (
    Value,
    evaluation,
    io,
    kind_of,
    llm,
    tool,
)

Kind = Literal["CHAIN", "AGENT", "LLM", "TOOL", "EVALUATOR"]
"""Kinds of spans, as OpenInference has them."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span, in the words of no library."""

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    kind: Kind
    start_ns: int
    """Unix time in nanoseconds."""
    end_ns: int
    attributes: Mapping[str, Value]
    error: str | None = None
    """Error that ended it; None for one that ended well."""


def is_sampled(group: StoredGroup, share: float) -> bool:
    """Return whether a group belongs to the share that is sent: always the same groups."""
    return _number(_key(group), 8) < share * 2**64


def spans_of(group: StoredGroup, *, content: bool = True) -> list[Span]:
    """Return the spans of a group or a merge, its root first; none for one without a call.

    Without `content`, nothing that was said, asked or scored by is in them.
    """
    if not group.calls and not group.failures:
        return []
    trace = _Trace(group, content=content)
    root = trace.root()
    parts = list[Span]()
    for attempt in group.attempts:
        parts += trace.attempt(attempt, root.span_id)
    # Of an attempt that has not ended, which has no row, there is nothing yet.
    teacher = [call for call in group.calls if _role(call) == "teacher"]
    failed = [failure for failure in group.failures if _role(failure) == "teacher"]
    if teacher or failed:
        parts += trace.distillation(teacher, failed, root.span_id)
    return _within(root, parts)


class _Trace:
    """Maker of the spans of one trace."""

    def __init__(self, group: StoredGroup, *, content: bool) -> None:
        self._group, self._content = group, content
        self._id = _number(_key(group), 16)
        self._calls = {call.id: call for call in group.calls}
        self._shared: dict[str, Value] = {
            "session.id": group.run.name,
            "grpo_practice.run": group.run.name,
            "grpo_practice.step": group.step,
            "grpo_practice.simulated": group.run.simulated,
        }
        if group.slot != MERGE:
            self._shared["grpo_practice.group"] = group.slot
        if group.number is not None:
            self._shared["grpo_practice.question"] = group.number

    def root(self) -> Span:
        """Return the span of the whole; its times are those of its parts."""
        group = self._group
        if group.slot == MERGE:
            return self._span("root", "CHAIN", "merge", None, _UNKNOWN, {})
        rewards = [a.reward for a in group.attempts if a.reward is not None]
        mean = sum(rewards) / len(rewards) if rewards else None
        attributes: dict[str, Value] = {} if mean is None else {"grpo_practice.mean_reward": mean}
        if self._content:
            attributes |= io(group.question, "" if mean is None else f"mean reward {mean:.3f}")
        name = f"group {group.slot}" if group.number is None else f"question {group.number}"
        return self._span("root", "CHAIN", name, None, _UNKNOWN, attributes)

    def attempt(self, of: StoredAttempt, parent: int) -> list[Span]:
        """Return the spans of a rollout: the agent, its calls, and how it was scored."""
        mine = [c for c in self._group.calls if c.attempt == of.attempt]
        failed = [f for f in self._group.failures if f.attempt == of.attempt]
        played = [c for c in mine if _role(c) in ("student", "tool")]
        judged = [c for c in mine if _role(c) == "judge"]
        end = _ns(of.finished_at)
        began = min([_began(c) for c in played] + [_ns(f.created_at) for f in failed] + [end])
        own: dict[str, Value] = {"grpo_practice.attempt": of.attempt, **kind_of(of.outcome)}
        if of.reward is not None:
            own["grpo_practice.reward"] = of.reward
        if self._content:
            own |= io(self._group.question, of.response)
        key = f"attempt {of.attempt}"
        error = None
        if of.outcome == "error":
            error = of.error if self._content and of.error else of.reason or "error"
        agent = self._span(key, "AGENT", f"attempt {of.attempt + 1}", parent, (began, end), own)
        agent = replace(agent, error=error)
        parts = [self._call(call, agent.span_id) for call in played]
        parts += [
            self._failure(f, agent.span_id) for f in failed if _role(f) in ("student", "tool")
        ]
        scoring = [f for f in failed if _role(f) == "judge"]
        if of.reward is not None or judged or scoring:
            # Scoring begins where playing ends; the row is stored when both are over.
            start = min(max([p.end_ns for p in parts] + [began]), end)
            attributes = evaluation(self._group.verify, of, content=self._content)
            name = f"score with {self._group.verify}"
            scored = self._span(
                f"{key} score", "EVALUATOR", name, agent.span_id, (start, end), attributes
            )
            inner = [self._call(call, scored.span_id) for call in judged]
            inner += [self._failure(f, scored.span_id) for f in scoring]
            parts += _within(scored, inner)
        return _within(agent, parts)

    def distillation(
        self, calls: Sequence[StoredCall], failed: Sequence[StoredFailure], parent: int
    ) -> list[Span]:
        """Return the spans of what the teacher did with a group, or with all proposals."""
        inner = parent
        chain: list[Span] = []
        if self._group.slot != MERGE:
            chain = [self._span("distil", "CHAIN", "distil", parent, _UNKNOWN, {})]
            inner = chain[0].span_id
        parts = [self._call(call, inner) for call in calls]
        parts += [self._failure(f, inner) for f in failed]
        return _within(chain[0], parts) if chain else parts

    def _call(self, call: StoredCall, parent: int) -> Span:
        times = (_began(call), _ns(call.created_at))
        key = f"call {call.id}"
        if call.is_tool:
            return self._span(
                key, "TOOL", call.name, parent, times, tool(call, content=self._content)
            )
        messages = self._conversation(call) if self._content else []
        attributes = llm(call, messages, content=self._content)
        return self._span(key, "LLM", call.stage, parent, times, attributes)

    def _failure(self, of: StoredFailure, parent: int) -> Span:
        at = _ns(of.created_at)
        said = of.message if self._content else of.kind
        key = f"failure {of.id}"
        span = self._span(key, "LLM", of.stage, parent, (at, at), kind_of(of.kind))
        return replace(span, error=said)

    def _conversation(self, call: StoredCall) -> list[dict[str, Any]]:
        """Return all messages of a request: a call has those since the call it continues."""
        found, at = list[dict[str, Any]](), call.before
        while at is not None and at in self._calls:
            earlier = self._calls[at]
            said = [*earlier.request, *([earlier.reply] if earlier.reply else [])]
            found[:0], at = said, earlier.before
        return [*found, *call.request]

    def _span(
        self,
        key: str,
        kind: Kind,
        name: str,
        parent: int | None,
        times: tuple[int, int],
        attributes: Mapping[str, Value],
    ) -> Span:
        span_id = _number(f"{_key(self._group)}\0{key}", 8)
        given = {"openinference.span.kind": kind, **self._shared, **attributes}
        return Span(self._id, span_id, parent, name, kind, *times, given)


_UNKNOWN = (0, 0)
"""Times of a span that has those of its parts."""


def _role(of: StoredCall | StoredFailure) -> Role | None:
    """Return whose call it is; None for a stage of another version."""
    spec = next((spec for stage, spec in STAGES.items() if stage == of.stage), None)
    return spec.role if spec else None


def _within(parent: Span, parts: Iterable[Span]) -> list[Span]:
    """Return a span and its parts: it begins with the first and ends with the last of them."""
    inner = list(parts)
    starts = [span.start_ns for span in (parent, *inner) if span.start_ns]
    start = min(starts, default=0)
    end = max([span.end_ns for span in (parent, *inner)] + [start])
    return [replace(parent, start_ns=start, end_ns=end), *inner]


def _key(group: StoredGroup) -> str:
    # With the time: a run that was deleted and begun anew under its name is another one.
    run = group.run
    return f"{run.name}\0{run.created_at}\0{group.branch_id}\0{group.step}\0{group.slot}"


def _number(key: str, size: int) -> int:
    # Zero is no id.
    return int.from_bytes(hashlib.blake2b(key.encode(), digest_size=size).digest()) or 1


def _ns(stored: str) -> int:
    return round(datetime.fromisoformat(stored).timestamp() * 1e3) * 1_000_000


def _began(call: StoredCall) -> int:
    return _ns(call.created_at) - round(call.seconds * 1e9)
