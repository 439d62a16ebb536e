"""Checks of configurations that send requests in batches, and their number of rollouts at once."""

import asyncio
from collections.abc import Sequence

from grpo_practice.config import PracticeConfig
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.runs import PracticeSettings, RunConfig
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.types import Trajectory
from grpo_practice.llm.admission import Admission
from grpo_practice.rollout.agents import Agent, RolloutContext
from grpo_practice.store.records import StepRow
from grpo_practice.verify.resolve import VerifyFunction


def check_batches(config: RunConfig, verify: VerifyFunction) -> None:
    """Raise ConfigError if a model cannot be asked in batches although its section says so."""
    models, agent = config.models, config.evaluation.agent
    for model in models.values():
        if model.model_provider.batch and model.model_provider.simulated:
            raise no_batches(model, "the simulated endpoint inside the program answers at once")
    student, judge = models.get("student"), models.get("judge")
    if student is not None and student.model_provider.batch:
        if agent.type != "simple":
            raise no_batches(student, "a program of your own sends its requests itself")
        if agent.toolkits:
            raise no_batches(student, "an agent with tools needs each reply before it goes on")
    if judge is not None and judge.model_provider.batch and verify.asks_judge:
        error = no_batches(judge, f"verify {verify.name} waits for the judge in your own code")
        error.hint = f"{error.hint}, or name this model in judge_model without batch"
        raise error


def no_batches(model: ModelConfig, why: str) -> ConfigError:
    """Return the error for a model that cannot be asked in batches."""
    key = f"{model.model_provider.section or 'agent.model.model_provider'}.batch"
    return ConfigError(f"{key}: {why}, so nothing can wait for a batch", hint=f"set {key}: false")


def in_places(agent: Agent, places: int, admission: Admission) -> Agent:
    """Return an agent that plays this number of rollouts at a time, during which no batch is sent.

    If their verdicts share a batch, all rollouts of a step begin together.
    """
    room = asyncio.Semaphore(places)

    async def play(question: str, system: str, context: RolloutContext) -> Trajectory:
        async with room:
            with admission.working():
                return await agent(question, system, context)

    return play


def together(config: PracticeConfig, rows: Sequence[StepRow]) -> PracticeSettings:
    """Return the settings of a run, with the number of rollouts to play at a time."""
    settings = config.practice
    at_once = workers(config, settings.rollout_concurrency, rows)
    return settings.model_copy(update={"rollout_concurrency": at_once})


def workers(config: RunConfig, usual: int, rows: Sequence[StepRow]) -> int:
    """Return the number of rollouts to play at a time: all, if their requests go into batches."""
    models = (config.student, config.evaluation.judge)
    if not any(model.model_provider.batch for model in models):
        return usual
    return max(usual, sum(row.rollouts for row in rows))
