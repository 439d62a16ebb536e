"""Runs as they are on record, without playing them: steps closed, evaluations scored."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpo_practice.config.identity import identity_of
from grpo_practice.core.prompts.system import library_sha, system_prompt
from grpo_practice.core.types import (
    Library,
    Operation,
    PlannedStep,
    Rollout,
    Sample,
    Trajectory,
    Verdict,
)
from grpo_practice.practice.merge import edits
from grpo_practice.store import Store, datasets, libraries, steps
from grpo_practice.store.libraries import edited
from grpo_practice.store.records import (
    Branch,
    GroupRow,
    Purpose,
    RolloutPrompt,
    RunSpec,
    StepResult,
    VerifierRecord,
)
from grpo_practice.store.run_names import eval_name, library_variant
from tests.config.files import stored_eval, stored_practice
from tests.store.helpers import planned

INSTRUCTIONS = "Solve it.\nPut the answer in \\boxed{{…}} ${oc.env:NOT_A_VARIABLE}."
CONFIG = f"""
exp_id: m
data: {{practice_dataset_name: d}}
evaluation:
  verify: exact
  data: {{dataset: test}}
  agent:
    model:
      model_provider:
        {{model: "${{oc.env:UTU_LLM_MODEL}}", base_url: "http://h/v1", api_key: very-secret}}
      model_settings:
        temperature: 0.3
        extra_args: {{timeout: 3000}}
        extra_headers: {{X-Team: red-team-alpha}}
        extra_body: {{top_k: 40}}
    agent:
      name: solver
      instructions: {json.dumps(INSTRUCTIONS)}
"""
HIDDEN = {"evaluation.agent.model.model_settings.extra_body.nested.token": "***"}
"""A secret in a record, hidden; a configuration with such a body is refused."""
ENV = {"UTU_LLM_MODEL": "model-a"}
VERIFIER = VerifierRecord(b"j" * 32, "exact", {"name": "exact"})


@dataclass
class Recorded:
    """A database, and the config its runs are made with."""

    store: Store
    config: str = CONFIG
    env: dict[str, str] = field(default_factory=lambda: dict(ENV))

    def dataset(self, name: str, n: int = 4) -> tuple[int, list[int]]:
        """A dataset of n questions: its id and the ids of its samples."""
        samples = [Sample(f"{name} {i}?", str(i)) for i in range(n)]
        row, _ = self.store.add_dataset(name, samples, origin="test", replace=False)
        return row.id, [s.id for s in self.store.read(datasets.samples, row.id)]

    def begin(
        self,
        exp_id: str = "m",
        *,
        steps: int = 4,
        restart_step: int | None = None,
        start: Library | None = None,
        simulated: bool = False,
    ) -> Branch:
        """A practice run, planned and not played."""
        text = self.config.replace("exp_id: m", f"exp_id: {exp_id}")
        loaded = stored_practice(text, Path("/"), self.env)
        data, ids = self.dataset("d")
        spec = RunSpec(
            name=exp_id,
            exp_id=exp_id,
            kind="practice",
            identity=self._identity(loaded.config, start or Library()),
            config_text=loaded.text,
            base_dir=Path("/"),
            dataset_id=data,
            verifier=VERIFIER,
            purpose="practice",
            k=1,
            library=start or Library(),
            simulated=simulated,
        )
        plan = [PlannedStep(n, 0, n, ((ids[0], 1),)) for n in range(steps)]
        return self.store.begin(spec, planned(plan), restart_step=restart_step)

    def _identity(self, config: Any, library: Library) -> dict[str, Any]:
        named = {"verify.sha256": VERIFIER.sha.hex(), "library.sha256": library_sha(library).hex()}
        return identity_of(config) | named | HIDDEN

    async def close(
        self, branch: Branch, step: int, *merged: Operation, instructions: str = INSTRUCTIONS
    ) -> Library:
        """The step is played once and closed with these operations; the library it made."""
        store, rows = self.store, self.store.read(steps.on_line, branch)
        before = store.read(
            libraries.load, rows[step - 1].library_out if step else branch.library.id
        )
        await store.open_step(branch, step, before.id)
        sample = store.read(datasets.samples_of, rows[step].plan)[0]
        told = RolloutPrompt(1, system_prompt(instructions, before), before.id)
        played = Rollout(0, 0, sample, Trajectory("ok", "0"), Verdict(1.0))
        await store.save_rollout(branch, step, played, told)
        made = edits(before, merged)
        group = GroupRow(0, sample.id, 1, 1, 1, 1, 1.0, True, "distilled")
        result = StepResult([group], [], made, edited(before, made), {"mean_reward": 1.0})
        return store.read(libraries.load, await store.close_practice(branch, step, result))

    async def practised(self, *texts: str, exp_id: str = "m") -> list[Library]:
        """A run whose steps each learn one thing; '' learns nothing. The libraries they made."""
        branch = self.begin(exp_id, steps=len(texts))
        merges = [[Operation("ADD", text=text)] if text else [] for text in texts]
        return [await self.close(branch, n, *merged) for n, merged in enumerate(merges)]

    async def evaluated(
        self,
        name: str,
        rewards: Sequence[float | None],
        *,
        library: Library | None = None,
        purpose: Purpose = "test",
        dataset: str = "test",
        unplayed: int = 0,
    ) -> None:
        """An evaluation on record: a reward per question (None: it failed), some not played."""
        loaded = stored_eval(self.config, Path("/"), self.env)
        data, ids = self.dataset(dataset, len(rewards) + unplayed)
        spec = RunSpec(
            name=name,
            exp_id=name.split("/")[0],
            kind="eval",
            identity=self._identity(loaded.config, Library()),
            config_text=loaded.text,
            base_dir=Path("/"),
            dataset_id=data,
            verifier=VERIFIER,
            purpose=purpose,
            k=1,
            library=library or Library(),
            parent_run="m" if purpose == "select" else None,
        )
        plan = [PlannedStep(n, 0, n, ((i, 1),)) for n, i in enumerate(ids)]
        store, branch = self.store, self.store.begin(spec, planned(plan))
        for row, reward in zip(store.read(steps.on_line, branch), rewards, strict=False):
            step, sample = row.plan.step, store.read(datasets.samples_of, row.plan)[0]
            await store.open_step(branch, step, None)
            outcome = Trajectory("error", reason="provider", error="down")
            rollout = Rollout(0, 0, sample, outcome)
            if reward is not None:
                rollout = Rollout(0, 0, sample, Trajectory("ok", "0"), Verdict(reward))
            await store.save_rollout(branch, step, rollout, RolloutPrompt(1, "s", None))
            await store.close_eval(branch, step, {})

    async def selected(
        self, library: Library, rewards: Sequence[float | None], *, unplayed: int = 0
    ) -> None:
        """The evaluation by which run `m` chooses among its libraries."""
        name = eval_name("m", library_variant(library), "data=sel")
        await self.evaluated(
            name, rewards, library=library, purpose="select", dataset="sel", unplayed=unplayed
        )
