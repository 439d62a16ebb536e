"""Score the sampled answers and the saved weights of a training run."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from grpo_practice.core.calls import Scope
from grpo_practice.core.errors import PrunedError
from grpo_practice.core.fences import Fences
from grpo_practice.core.types import Trajectory
from grpo_practice.llm.ledgered import AgentChat
from grpo_practice.rollout.play import Player
from grpo_practice.run.clients import Connections, Models
from grpo_practice.run.session import OpenRun, StepStop, to_the_end
from grpo_practice.train.evaluation import WeightsEvaluation, score_weights
from grpo_practice.train.generate import answers_of
from grpo_practice.train.job import TrainJob
from grpo_practice.train.recipe import settings_of
from grpo_practice.train.steps import TrainingRun
from grpo_practice.train.work import Answer
from grpo_practice.verify.verifier import Verifier

T = TypeVar("T")


@asynccontextmanager
async def scoring(job: TrainJob, run: OpenRun) -> AsyncIterator[Player]:
    """Open a player that only scores answers, because the weights in training sample them."""
    session, config = job.session, job.config
    fences = Fences(run.branch.fence_key)
    connections = Connections(
        run.emit,
        # The first number is for the agent's model, which is not called here.
        concurrency=(1, config.evaluation.judge_concurrency),
        admission=session.admission,
    )
    async with connections, Verifier(job.verify, fences) as verifier:
        await verifier.start()
        judge: Any = _no_model
        if job.verify.is_judge:
            models = Models(connections, run.ledger, run.emit, config.evaluation.prices)
            judge = await models.chats(config.judge, "judge")
        yield Player(
            agent=_no_agent,
            student=_no_model,
            judge=judge,
            verify=to_the_end(session, verifier),
            run_seed=settings_of(config).seed,
            task_timeout_s=config.practice.task_timeout,
            emit=run.emit,
        )


def _no_model(scope: Scope) -> AgentChat:
    """Return a stand-in for the agent's model, which a player without rollouts never calls."""
    return _Nobody()  # type: ignore[return-value]


class _Nobody:
    async def __call__(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("no model is asked here")


async def _no_agent(question: str, system: str, context: object) -> Trajectory:
    raise AssertionError("answers are sampled from the weights")


@dataclass(frozen=True, slots=True)
class OnLoop:
    """Callbacks for the training thread, each of which waits for the event loop."""

    loop: asyncio.AbstractEventLoop
    run: TrainingRun
    stop: StepStop
    job: TrainJob

    def began(self, step: int) -> None:
        """Record that a step starts."""
        self._wait(self.run.began(step))

    def score(self, step: int, answers: Sequence[Answer]) -> list[float | None]:
        """Score the answers of a step. Shape: [B] to [B]."""
        return self._wait(self.run.score(step, answers))

    def updated(self, step: int, inner: int, logs: Mapping[str, float]) -> None:
        """Record the results of an update."""
        self._wait(self.run.updated(step, inner, logs))

    def saved(self, step: int, folder: Path) -> None:
        """Record a checkpoint."""
        self._wait(self.run.saved(step, folder))

    def evaluated(self, step: int, answers: Sequence[Answer]) -> None:
        """Score an evaluation; raise PrunedError if the run is not worth continuing."""
        self._wait(selected(self.job, self.run.player, self.run.shas[step], step, answers))

    def stopping(self) -> bool:
        """Return whether a signal was received."""
        # Go through the loop: a signal that arrives while it sleeps is handled when it wakes up.
        return self._wait(self._stopping())

    async def _stopping(self) -> bool:
        return self.stop.signal is not None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        # Blocks the training thread, which has nothing to do meanwhile; the loop goes on.
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()


async def selected(
    job: TrainJob, player: Player, sha: bytes, step: int, answers: Sequence[Answer]
) -> None:
    """Score the weights of a step on the selection questions.

    Raises:
        PrunedError: The score is too low to continue.
    """
    assert job.selects is not None, "nothing is evaluated without it"
    score = await score_weights(job.selects, player, answers, sha=sha, step=step)
    if score is not None and job.on_score is not None and job.on_score(step, score):
        raise PrunedError(
            f"{job.name} is not trained further: its score of {score:.3f} after step {step}"
            " is lower than the others'"
        )


async def answers_to(
    job: TrainJob, evaluation: WeightsEvaluation, folder: Path, seed: int
) -> list[Answer]:
    """Return a checkpoint's answers to the questions of an evaluation."""
    asked = evaluation.selection(1)
    device = settings_of(job.config).device
    return await asyncio.to_thread(answers_of, job.model, folder, asked, seed=seed, device=device)
