"""A practice of the demo's size with the real stages, on the simulated endpoint."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from grpo_practice.core.calls import Message, Reply, Scope
from grpo_practice.core.prompts.files import load_prompts
from grpo_practice.core.prompts.system import system_prompt
from grpo_practice.core.types import Distilled, Group, Library, Rollout, Sample, Trajectory, Verdict
from grpo_practice.practice.distil import distil
from grpo_practice.practice.evidence import evidence_on
from grpo_practice.practice.merge import (
    apply,
    changes,
    merge,
    pruned,
    votes,
    without_outvoted,
)
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.rollout.groups.informative import status_of
from grpo_practice.sim import DEFAULT, World, answer, stage_of
from grpo_practice.sim.experience_texts import keys_in
from grpo_practice.sim.questions import questions, solve
from grpo_practice.store.records import Past

QUESTIONS, TESTS, BATCH, SIZE = 24, 200, 12, 5
INSTRUCTIONS = "Solve the problem. Put the answer, and nothing else, into \\boxed{}."


@dataclass
class Rehearsal:
    """A practice under way, and what the endpoint took each of its requests for."""

    world: World = DEFAULT
    truth: bool = True
    seed: int = 16
    library: Library = field(default_factory=Library)
    distilled: list[Distilled] = field(default_factory=list)
    taken_for: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Stage asked and stage answered."""

    def practise(self, epochs: int = 2) -> "Rehearsal":
        """Four steps of twelve questions."""
        import asyncio

        made = questions(QUESTIONS, 7, self.world.task)
        samples = [replace(sample, id=n) for n, sample in enumerate(made)]
        for epoch in range(epochs):
            for step in range(QUESTIONS // BATCH):
                batch = samples[step * BATCH : (step + 1) * BATCH]
                asyncio.run(self._step(batch, 2 * epoch + step))
        return self

    @property
    def keys(self) -> list[str]:
        """The experiences learnt."""
        return [key for e in self.library.experiences for key in keys_in(e.text)]

    @property
    def kinds(self) -> Counter[str]:
        return Counter(self.world.item(key).kind for key in self.keys)

    def gain(self) -> float:
        """Mean score of other questions with the library, less that without."""
        made = questions(QUESTIONS + TESTS, 7, self.world.task)
        tests = [s.question for s in made[QUESTIONS:]]
        return float((self.world.truth(tests, self.keys) - self.world.truth(tests, [])).mean())

    async def _step(self, batch: Sequence[Sample], step: int) -> None:
        teacher = Teacher(
            self._chat, load_prompts(), "Solve sums.", "Get better.", self.truth, 2, self.seed
        )
        done = list[Distilled]()
        for slot, sample in enumerate(batch):
            group = self._group(sample, slot, step)
            if status_of(group, truth=self.truth) == "scored":
                at = GroupKey(1, step, step // 2, slot)
                done.append(await distil(teacher, group, self.library, at))
        cast = votes(done, [sample.id for sample in batch])
        named = [(p.sample_id, p.operation) for p in cast]
        evidence = evidence_on(self.library, Past(), named)
        proposed = changes(cast)
        at = GroupKey(1, step, step // 2)
        merged = await merge(teacher, self.library, proposed, evidence, at)
        merged = without_outvoted(merged, proposed, evidence)
        self.distilled += done
        self.library = apply(self.library, [*merged, *pruned(self.library, merged, evidence)])

    def _group(self, sample: Sample, slot: int, step: int) -> Group:
        rollouts = []
        for attempt in range(SIZE):
            messages: list[Message] = [
                {"role": "system", "content": system_prompt(INSTRUCTIONS, self.library)},
                {"role": "user", "content": sample.question},
            ]
            seed = 10_000 * self.seed + 1_000 * step + 10 * slot + attempt
            message = answer({"messages": messages, "seed": seed}, self.world)["choices"][0]
            said = str(message["message"]["content"])
            right = said.endswith(f"\\boxed{{{solve(sample.question)}}}")
            critique = None if right else f"expected {sample.answer}, the answer was another"
            played = Trajectory("ok", said, transcript=(*messages, message["message"]))
            verdict = Verdict(float(right), critique, said.rpartition("{")[2])
            rollouts.append(Rollout(slot, attempt, sample, played, verdict=verdict))
        return Group(slot, sample, rollouts)

    def _chat(self, scope: Scope) -> Any:
        async def chat(messages: Sequence[Message], **_: Any) -> Reply:
            body = {"messages": list(messages), "seed": scope.seed()}
            self.taken_for[scope.address.stage, stage_of(body)] += 1
            return Reply(answer(body, self.world)["choices"][0]["message"])

        return chat
