"""The players of a run: agent, student, judge and verify function, open and ready."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.agents.simple import play_simple
from grpo_practice.app.agents import open_agent
from grpo_practice.app.clients import Models
from grpo_practice.app.python_objects import AgentFunction
from grpo_practice.app.session import OpenRun, Session, to_the_end
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.fences import Fences
from grpo_practice.rollout import Player
from grpo_practice.verify.resolve import VerifyFunction
from grpo_practice.verify.verifier import Verifier


@dataclass(frozen=True, slots=True)
class PlayerSpec:
    """The parts that rollouts of a run are played and scored with."""

    agent: AgentConfig
    base_dir: Path
    """Folder that paths in the agent's config are relative to."""
    student: ModelConfig
    judge: ModelConfig
    verify: VerifyFunction
    run_seed: int
    task_timeout_s: float
    function: AgentFunction | None = None
    """The agent itself, where it is a function of this process."""
    only_scores: bool = False
    """True where stored rollouts are scored again: no tool and no agent is opened."""


@asynccontextmanager
async def open_player(
    spec: PlayerSpec, session: Session, run: OpenRun, models: Models
) -> AsyncIterator[tuple[Player, Player]]:
    """Open the player of a run, and one like it whose requests wait for all others.

    Raises:
        ConfigError: A model, a tool or the agent cannot be had as the config asks, or the verify
            function's workers cannot start.
    """
    async with AsyncExitStack() as stack:
        verifier = await stack.enter_async_context(
            Verifier(spec.verify, Fences(run.branch.fence_key))
        )
        await verifier.start()  # not with the first answer: by then rollouts are paid for
        agent = play_simple
        if not spec.only_scores:
            opened = open_agent(spec.agent, models, run, spec.base_dir, spec.function)
            agent = await stack.enter_async_context(opened)

        async def player(*, later: bool) -> Player:
            return Player(
                agent=agent,
                student=await models.chats(spec.student, "student", later=later),
                judge=await models.chats(spec.judge, "judge", later=later),
                verify=to_the_end(session, verifier),
                run_seed=spec.run_seed,
                task_timeout_s=spec.task_timeout_s,
                emit=run.emit,
            )

        yield await player(later=False), await player(later=True)
