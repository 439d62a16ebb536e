"""Spans of groups and merges, built from stored data.

Ids depend only on the position in the run, so that a group that is sent live and later by `runs
trace` gets the same trace both times. Times are derived: a call is stored when it is answered, and
it began `seconds` before that.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from grpo_practice.core.calls import Message, content_texts
from grpo_practice.core.redact import redactor
from grpo_practice.core.stages import Stage
from grpo_practice.core.text import cut
from grpo_practice.store.queries.traced import (
    MERGE,
    TracedCall,
    TracedFailure,
    TracedGroup,
    TracedRollout,
    TracedStep,
)

Kind = Literal["CHAIN", "AGENT", "LLM", "TOOL", "EVALUATOR"]
"""Kind of a span, as named by the OpenInference conventions."""
Value = str | int | float | bool | tuple[str, ...]

Part = Literal["player", "judge", "teacher"]
"""Part of a trace that makes calls."""
_PARTS: Mapping[Stage, Part] = {"play": "player", "tool": "player", "judge": "judge"}
"""Part of each stage of a rollout; all other stages belong to the teacher."""
NOBODY = -1
"""Attempt number of calls that belong to no attempt."""

TEXT_CHARS = 8_000
"""Maximum length of a text in a span."""
MOST_MESSAGES = 32
"""Maximum number of a request's messages in a span; the last ones are kept."""
PROVIDER = "openai-compatible"
"""Provider name in `gen_ai.*` attributes: any server that speaks this protocol."""


@dataclass(frozen=True, slots=True)
class Span:
    """A span before encoding."""

    trace_id: bytes
    id: bytes
    parent: bytes | None
    name: str
    kind: Kind
    start_ns: int
    end_ns: int
    attributes: Mapping[str, Value]
    error: str | None = None
    """Reason for the failure; None if the operation succeeded."""
    link: bytes | None = None
    """Id of the span of the call that this call continues."""
    children: Sequence["Span"] = ()

    def each(self) -> Iterator["Span"]:
        """Yield the span and all its descendants."""
        yield self
        for child in self.children:
            yield from child.each()


@dataclass(frozen=True, slots=True)
class _Ids:
    """Ids of the spans of one trace."""

    step: TracedStep
    slot: int
    trace: bytes = field(init=False)
    seed: bytes = field(init=False)

    def __post_init__(self) -> None:
        step = self.step
        place = [step.begun, step.run, step.branch_id, step.step, self.slot]
        made = hashlib.sha256(json.dumps(["grpo-practice", *place]).encode()).digest()
        object.__setattr__(self, "trace", made[:16])
        object.__setattr__(self, "seed", made)

    def span(self, kind: str, number: int = 0) -> bytes:
        """Return the id of a span from its kind and its number within the trace."""
        return hashlib.blake2b(f"{kind} {number}".encode(), key=self.seed, digest_size=8).digest()


def trace_id(step: TracedStep, slot: int) -> bytes:
    """Return the trace id of a group or of the merge."""
    return _Ids(step, slot).trace


def sampled(step: TracedStep, slot: int, share: float) -> bool:
    """Return whether a group is in the sample; the choice is the same each time."""
    # The id is a hash, so its first bytes are uniformly distributed.
    return int.from_bytes(trace_id(step, slot)[:8], "big") < share * (1 << 64)


def spans_of(group: TracedGroup, *, content: bool) -> Span | None:
    """Return the root span of a group or of a merge; None if it has no calls or rollouts.

    Without content, the spans contain no text of questions, prompts, answers, tools or errors.
    """
    made = _Trace(group, content=content)
    return made.merge() if group.slot == MERGE else made.group()


class _Trace:
    """Builder of one trace."""

    def __init__(self, group: TracedGroup, *, content: bool) -> None:
        self._group, self._content = group, content
        self._ids = _Ids(group.step, group.slot)
        step = group.step
        self._common: dict[str, Value] = {"session.id": step.run}
        self._place: dict[str, Value] = {
            "gen_ai.conversation.id": step.run,
            "grpo_practice.run": step.run,
            "grpo_practice.exp_id": step.exp_id,
            "grpo_practice.branch": step.branch_id,
            "grpo_practice.step": step.step,
            "grpo_practice.simulated": step.simulated,
        }
        if group.slot != MERGE:
            self._place["grpo_practice.slot"] = group.slot
        self._asked = self._by_part()

    def _by_part(self) -> Mapping[tuple[Part, int], Sequence[TracedCall | TracedFailure]]:
        """Return calls and failed requests by the part of the trace that they belong to."""
        parts = defaultdict[tuple[Part, int], list[TracedCall | TracedFailure]](list)
        played = {rollout.attempt for rollout in self._group.rollouts}
        asked: list[TracedCall | TracedFailure] = [*self._group.calls, *self._group.failures]
        for one in asked:
            part: Part = _PARTS.get(one.stage, "teacher")
            if part == "teacher" or one.attempt not in played:
                parts["teacher", NOBODY].append(one)
            else:
                parts[part, one.attempt].append(one)
        return parts

    def merge(self) -> Span | None:
        """Return the root span of a merge; None if the merge made no requests."""
        root = self._ids.span("root")
        asked = self._below(root, "teacher")
        if not asked:
            return None
        name = f"merge of step {self._group.step.step}"
        return self._chain(root, None, name, self._place, asked)

    def group(self) -> Span | None:
        """Return the root span of a group; None if nothing of the group is stored."""
        group, root = self._group, self._ids.span("root")
        rollouts = [self._agent(rollout, root) for rollout in group.rollouts]
        teaching = self._ids.span("distillation")
        asked = self._below(teaching, "teacher")
        children = list(rollouts)
        if asked:
            children.append(self._chain(teaching, root, "distillation", {}, asked))
        if not children:
            return None
        rewards = [r.reward for r in group.rollouts if r.reward is not None]
        told: dict[str, Value] = {**self._place, "grpo_practice.rollouts": len(group.rollouts)}
        if rewards:
            told["grpo_practice.mean_reward"] = sum(rewards) / len(rewards)
            told["output.value"] = f"mean reward {told['grpo_practice.mean_reward']:.3f}"
        told |= self._text("input.value", group.question)
        name = f"step {group.step.step}, group {group.slot}"
        return self._chain(root, None, name, told, children)

    def _chain(
        self,
        span_id: bytes,
        parent: bytes | None,
        name: str,
        told: Mapping[str, Value],
        children: Sequence[Span],
    ) -> Span:
        """Return a span that covers the time of its children."""
        start, end = _around(children[0].end_ns, children)
        attributes, trace = {**self._common, **told}, self._ids.trace
        return Span(
            trace, span_id, parent, name, "CHAIN", start, end, attributes, children=children
        )

    def _agent(self, rollout: TracedRollout, root: bytes) -> Span:
        span_id, n = self._ids.span("agent", rollout.attempt), rollout.attempt
        played = self._below(span_id, "player", n)
        end = max([_ns(rollout.ended), *(child.end_ns for child in played)])
        children = list(played)
        if rollout.has_verdict or ("judge", n) in self._asked:
            children.append(self._evaluator(rollout, span_id, end))
        told: dict[str, Value] = {
            **self._place,
            "gen_ai.operation.name": "invoke_agent",
            "grpo_practice.attempt": n,
            "grpo_practice.outcome": rollout.outcome,
        }
        if rollout.reward is not None:
            told["grpo_practice.reward"] = rollout.reward
        told |= self._text("input.value", self._group.question)
        told |= self._text("output.value", rollout.response)
        error = None
        if rollout.outcome == "error":
            error = self._error(rollout.reason or "error", rollout.error)
        attributes, trace = {**self._common, **told}, self._ids.trace
        name, (start, end) = f"rollout {n}", _around(end, children)
        return Span(
            trace, span_id, root, name, "AGENT", start, end, attributes, error, None, children
        )

    def _evaluator(self, rollout: TracedRollout, agent: bytes, end: int) -> Span:
        n = rollout.attempt
        span_id = self._ids.span("evaluator", n)
        judges = self._below(span_id, "judge", n)
        told: dict[str, Value] = {"gen_ai.evaluation.name": self._group.step.verify}
        error = None
        if rollout.reward is not None:
            told["gen_ai.evaluation.score.value"] = rollout.reward
            told["output.value"] = f"{rollout.reward:g}"
            told |= self._text("gen_ai.evaluation.explanation", rollout.critique)
        else:
            error = self._error(rollout.reason or "verify", rollout.error)
        attributes, trace = {**self._common, **told}, self._ids.trace
        name, (start, end) = f"verify {n}", _around(end, judges)
        return Span(
            trace, span_id, agent, name, "EVALUATOR", start, end, attributes, error, None, judges
        )

    def _below(self, parent: bytes, part: Part, attempt: int = NOBODY) -> list[Span]:
        """Return the spans of the calls and failed requests of a part."""
        return [
            self._call(one, parent) if isinstance(one, TracedCall) else self._failure(one, parent)
            for one in self._asked.get((part, attempt), ())
        ]

    def _call(self, call: TracedCall, parent: bytes) -> Span:
        end = _ns(call.ended)
        told = self._tool(call) if call.is_tool else self._model(call)
        failed = call.is_tool and call.finish is not None
        said = str(call.reply.get("content", "")) if failed else None
        previous = call.prev_call_id
        return Span(
            self._ids.trace,
            self._ids.span("call", call.call_id),
            parent,
            f"tool {call.name}" if call.is_tool else f"{call.stage} {call.name}",
            "TOOL" if call.is_tool else "LLM",
            end - round(call.seconds * 1e9),
            end,
            {**self._common, **told},
            self._error("the tool failed", said) if failed else None,
            None if previous is None else self._ids.span("call", previous),
        )

    def _tool(self, call: TracedCall) -> dict[str, Value]:
        told: dict[str, Value] = {
            "tool.name": call.name,
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": call.name,
        }
        if call.request:
            told |= self._text("input.value", json.dumps(call.request[0], ensure_ascii=False))
        if call.usage.cost_micro:
            told["llm.cost.total"] = call.usage.cost_micro / 1e6
        return told | self._text("output.value", call.reply.get("content"))

    def _model(self, call: TracedCall) -> dict[str, Value]:
        usage = call.usage
        told: dict[str, Value] = {
            "llm.model_name": call.name,
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": PROVIDER,
            "gen_ai.request.model": call.name,
            "grpo_practice.stage": call.stage,
        }
        known: dict[str, Value | None] = {
            "llm.token_count.prompt": usage.tokens_in,
            "llm.token_count.completion": usage.tokens_out,
            "llm.token_count.prompt_details.cache_read": usage.tokens_cached,
            "llm.token_count.completion_details.reasoning": usage.tokens_reasoning,
            "gen_ai.usage.input_tokens": usage.tokens_in,
            "gen_ai.usage.output_tokens": usage.tokens_out,
            "gen_ai.response.finish_reasons": (call.finish,) if call.finish else None,
        }
        told |= {name: value for name, value in known.items() if value is not None}
        model, _, host = call.answered_by.rpartition("@")
        if model:
            told["gen_ai.response.model"] = model
            told["server.address"] = host
        if usage.tokens_in is not None and usage.tokens_out is not None:
            told["llm.token_count.total"] = usage.tokens_in + usage.tokens_out
        if usage.cost_micro is not None:  # an unknown price is not 0
            told["llm.cost.total"] = usage.cost_micro / 1e6
        if self._content:
            told |= self._text("llm.invocation_parameters", call.params)
            messages = list(enumerate(call.request))[-MOST_MESSAGES:]
            for i, message in messages:
                told |= self._message(f"llm.input_messages.{i}.message", message)
            told |= self._message("llm.output_messages.0.message", call.reply)
        return told

    def _message(self, name: str, message: Message) -> dict[str, Value]:
        told: dict[str, Value] = {f"{name}.role": str(message.get("role", ""))}
        texts = content_texts(message.get("content"))
        told |= self._text(f"{name}.content", "".join(texts) or None)
        for i, call in enumerate(message.get("tool_calls") or ()):
            function = call.get("function") or {} if isinstance(call, dict) else {}
            at = f"{name}.tool_calls.{i}.tool_call.function"
            told |= self._text(f"{at}.name", function.get("name"))
            told |= self._text(f"{at}.arguments", function.get("arguments"))
        return told

    def _failure(self, failure: TracedFailure, parent: bytes) -> Span:
        end = _ns(failure.ended)
        return Span(
            self._ids.trace,
            self._ids.span("failure", failure.failure_id),
            parent,
            f"{failure.stage}, no answer",
            "LLM",
            end,
            end,
            {**self._common, "error.type": failure.kind, "grpo_practice.stage": failure.stage},
            self._error(failure.kind, failure.message),
        )

    def _text(self, name: str, text: object) -> dict[str, Value]:
        """Return a text attribute, redacted and shortened; empty without content."""
        if not self._content or text is None:
            return {}
        return {name: cut(redactor.text(str(text)), TEXT_CHARS)}

    def _error(self, kind: str, message: str | None) -> str:
        if not self._content or not message:
            return kind
        return cut(redactor.text(f"{kind}: {message}"), TEXT_CHARS)


def _around(at: int, children: Sequence[Span]) -> tuple[int, int]:
    """Return start and end of a span at this time with its children; no child may end after it."""
    if not children:
        return at, at
    return (
        min(at, min(child.start_ns for child in children)),
        max(at, max(child.end_ns for child in children)),
    )


def _ns(at: datetime) -> int:
    return round(at.timestamp() * 1000) * 1_000_000
