"""A rollout as a verify function sees it; imports only the modules that a worker process needs."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from grpo_practice.core.text import nearest


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A tool call of an agent, with its result."""

    name: str
    arguments: Any
    """Arguments, usually a dict; the agent's text itself if that is not valid JSON."""
    result: str | None = None
    """Text that the agent read; None if no result is known."""
    failed: bool = False
    """True if the tool raised an error, or did not run."""
    seconds: float | None = None
    """Seconds that the tool took; None if unknown."""


@dataclass(frozen=True, slots=True)
class PlayedTurn:
    """A message of a rollout's conversation; results of tools are in the calls."""

    role: str
    """`system`, `user` or `assistant`; `tool` for a result whose call is unknown."""
    text: str
    tool_calls: tuple[ToolUse, ...] = ()
    tokens_in: int | None = None
    """Tokens of the request that this turn answered; None if unknown, and for other roles."""
    tokens_out: int | None = None
    seconds: float | None = None
    """Seconds that the model took; None if unknown, and for other roles."""


@dataclass(frozen=True, slots=True)
class PlayedRollout:
    """A rollout that is to be scored; its turns are read only if the verify function needs them."""

    outcome: str
    seconds: float
    turns: Callable[[], Sequence[PlayedTurn]]


@dataclass
class EvaluationSample:
    """The sample that a verify function receives.

    Fields that only the reference implementation fills are None; any other name raises.
    """

    raw_question: str = ""
    correct_answer: str | list[str] | None = None
    response: str = ""
    source: str = ""
    level: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    trajectory: Sequence[PlayedTurn] = ()
    """Turns of the rollout, in order."""
    outcome: str = "ok"
    """How the rollout ended: `ok`, `truncated` or `limit`."""
    time_cost: float = 0.0
    """Seconds spent in the rollout's model and tool calls."""

    # Other fields of the reference implementation, for functions that were written for it.
    id = exp_id = stage = created_at = updated_at = dataset = dataset_index = file_name = None
    augmented_question = extracted_final_answer = judged_response = reasoning = reward = None
    correct = confidence = trace_id = trace_url = None

    @property
    def question(self) -> str:
        """Question, under its other name."""
        return self.raw_question

    @property
    def tool_calls(self) -> list[ToolUse]:
        """All tool calls of the rollout, in order."""
        return [use for turn in self.trajectory for use in turn.tool_calls]

    @property
    def trajectories(self) -> str:
        """The conversation in the reference implementation's form: JSON with chat messages."""
        messages = list(_messages(self.trajectory))
        return json.dumps([{"agent": "agent", "trajectory": messages}], ensure_ascii=False)

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError with the nearest field: a typo must not read as an empty answer."""
        fields = [field for field in dir(self) if not field.startswith("_")]
        hint = nearest(name, fields, most=1) or "other columns of a row are in sample.meta"
        raise AttributeError(f"a sample has no field {name!r}; {hint}", name=name, obj=self)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the field, or the default if it is None or missing, as the reference does."""
        value = getattr(self, name, None)
        return default if value is None else value


def _messages(turns: Sequence[PlayedTurn]) -> Iterator[dict[str, Any]]:
    """Yield the turns as chat messages, with new IDs for the tool calls."""
    known = 0
    for turn in turns:
        message: dict[str, Any] = {"role": turn.role, "content": turn.text}
        ids = [f"call_{n}" for n in range(known + 1, known + 1 + len(turn.tool_calls))]
        known += len(ids)
        calls = list(zip(ids, turn.tool_calls, strict=True))
        if calls:
            message["tool_calls"] = [
                {
                    "id": call_id,
                    "type": "function",
                    "function": {"name": use.name, "arguments": arguments_text(use)},
                }
                for call_id, use in calls
            ]
        yield message
        for call_id, use in calls:
            if use.result is not None:
                yield {"role": "tool", "tool_call_id": call_id, "content": use.result}


def arguments_text(use: ToolUse) -> str:
    """Return the arguments as JSON, or as the agent wrote them if they are not valid JSON."""
    given = use.arguments
    return given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
