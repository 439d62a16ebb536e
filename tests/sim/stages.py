"""The steps of practice by hand, with the shipped prompts, asking the simulated endpoint."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from grpo_practice.core.calls import Message
from grpo_practice.core.prompts.files import load_prompts
from grpo_practice.core.prompts.system import experience_lines, system_prompt
from grpo_practice.core.types import Experience, Library, Rollout, Sample, Trajectory
from grpo_practice.practice.transcript import transcript_of
from grpo_practice.sim import DEFAULT, World, answer
from grpo_practice.sim.experience_texts import keys_in, text
from grpo_practice.sim.questions import solve
from tests.fakes import FENCES

PROMPTS = load_prompts()
INSTRUCTIONS = "Solve the task. Put the final answer into \\boxed{}."
EMPTY = Library()
GOALS = {"agent_objective": "", "learning_objective": ""}


@dataclass(frozen=True)
class Attempt:
    number: int
    reward: int
    rank: int
    shown: str
    text: str
    kind: str = "summary"
    judgement: str | None = None


def transcript_text(messages: Sequence[Message]) -> str:
    return transcript_of(Rollout(0, 0, Sample("?"), Trajectory("ok", "", messages))).text


def ask(messages: Sequence[Message], seed: int | None = 0, world: World = DEFAULT) -> str:
    """The content of the reply; where it holds a list, as JSON."""
    body = {"model": "sim", "messages": list(messages), "seed": seed}
    plain = replace(world, teacher=replace(world.teacher, forms="json"))
    content = answer(body, plain)["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


def library_of(*keys: str, world: World = DEFAULT) -> Library:
    return Library(tuple(Experience(i, text(world, key)) for i, key in enumerate(keys, 1)))


def play(question: str, library: Library, seed: int, world: World = DEFAULT) -> str:
    system = system_prompt(INSTRUCTIONS, library)
    messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
    return ask(messages, seed, world)


def reward(question: str, reply: str) -> int:
    return int(reply.endswith(f"\\boxed{{{solve(question)}}}"))


def summarise(question: str, reply: str, library: Library, seed: int = 0) -> str:
    slots = {
        **GOALS,
        "question": question,
        "answer": solve(question),
        "critique": "expected 25,\nas said",
        "experiences": experience_lines(library),
        "transcript": f"assistant: {reply}",
        "reward": None,
        "words": 300,
    }
    return ask(PROMPTS["summarise"].render(FENCES, **slots), seed)


def group(question: str, library: Library, seed: int, size: int = 5) -> list[Attempt]:
    """Played, scored, summarised; best first."""
    replies = [play(question, library, 1_000 * seed + i) for i in range(size)]
    replies.sort(key=lambda reply: -reward(question, reply))
    rewards = [reward(question, reply) for reply in replies]
    return [
        Attempt(
            number,
            rewards[number - 1],
            1 + sum(other > rewards[number - 1] for other in rewards),
            ", ".join(e.id for e in library.experiences) or "none",
            summarise(question, reply, library),
        )
        for number, reply in enumerate(replies, 1)
    ]


def compare(
    question: str,
    attempts: Sequence[Attempt],
    library: Library = EMPTY,
    *,
    seed: int = 0,
    truth: bool = True,
    limit: int = 2,
    world: World = DEFAULT,
) -> list[dict[str, str]]:
    slots: dict[str, Any] = {
        **GOALS,
        "question": question,
        "answer": solve(question) if truth else None,
        "experiences": experience_lines(library),
        "attempts": [asdict(attempt) | {"summary": attempt.text} for attempt in attempts],
        "truth": truth,
        "limit": limit,
        "instructions": "",
    }
    lessons = ending(ask(PROMPTS["compare"].render(FENCES, **slots), seed, world))["lessons"]
    assert isinstance(lessons, list)
    return lessons


def propose(
    lessons: Sequence[str], library: Library = EMPTY, seed: int = 0, world: World = DEFAULT
) -> list[dict[str, Any]]:
    slots = {**GOALS, "experiences": experience_lines(library), "lessons": lessons}
    operations = ending(ask(PROMPTS["propose"].render(FENCES, **slots), seed, world))["operations"]
    assert isinstance(operations, list)
    return operations


def merge(
    operations: Sequence[dict[str, Any]],
    library: Library = EMPTY,
    seed: int = 0,
    world: World = DEFAULT,
    disproved: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """The merged list; proposals are called P1, P2, … in the order given."""
    by_target: dict[str, list[dict[str, Any]]] = {}
    for number, operation in enumerate(operations, 1):
        told = {"id": f"P{number}", "op": operation["op"], "text": operation.get("text")}
        told["finding"] = operation.get("finding")
        by_target.setdefault(operation.get("id") or "New", []).append(told)
    slots: dict[str, Any] = {
        **GOALS,
        "experiences": experience_lines(library),
        "proposals": list(by_target.items()),
        "votes": {},
        "size": None,
        "disproved": disproved,
    }
    merged = ending(ask(PROMPTS["merge"].render(FENCES, **slots), seed, world))["operations"]
    assert isinstance(merged, list)
    return merged


def ending(reply: str) -> dict[str, Any]:
    """The JSON object a reply ends with."""
    found = json.loads(reply[reply.index("{") :])
    assert isinstance(found, dict)
    return found


def keys_of(library: Library) -> list[str]:
    return keys_in(experience_lines(library))
