"""Check of the teacher: one tiny comparison, parsed in the same way as during practice."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from grpo_practice.config import PracticeConfig
from grpo_practice.core.calls import Message, Reply, Request
from grpo_practice.core.errors import EndpointRefusedError, ReplyError, StepError
from grpo_practice.core.findings import Finding, ok, problem, warning
from grpo_practice.core.prompts.files import Prompt
from grpo_practice.core.text import count
from grpo_practice.core.types import Group, Library, Rollout, Sample, Trajectory, Verdict
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.prices import Prices
from grpo_practice.llm.reply_bound import ReplyBound
from grpo_practice.practice.distil import Task, compare, read_attempts
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.reports.learning_findings import advice
from grpo_practice.run.clients import endpoint_of
from grpo_practice.run.doctor.endpoints import TRIES

COMPARISON_S = 120.0
"""Timeout for a reply, much longer than for the other tiny requests."""
_ANSWERS = ("2 + 3 * 4 = 2 + 12 = 14. The answer is 14.", "2 + 3 = 5, 5 * 4 = 20. It is 20.")


async def look_at_teacher(
    config: PracticeConfig,
    prompts: Mapping[str, Prompt],
    prices: Prices,
    notice: Callable[[str], None],
) -> tuple[list[Finding], int]:
    """Check that the teacher's comparison of two tiny attempts can be parsed.

    Returns:
        The findings, and the number of requests sent; a simulated teacher gets no request.
    """
    if config.teacher.model_provider.simulated:
        return [], 0
    notice("asking the teacher for a tiny comparison")
    params, endpoint = endpoint_of(config.teacher, prices)
    endpoint = replace(endpoint, max_tries=TRIES)
    bound = ReplyBound()
    model, replies, made = config.teacher.model_provider.model, list[Reply](), 0

    async def chat(
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        r: int = 0,
        limit_s: float | None = None,
    ) -> Reply:
        nonlocal made
        made += 1
        request = Request(model, {**params, "seed": r}, messages, tools)
        # Limit the reply as in a run, so that the check fails for the same replies.
        bounded = bound.bounded(request, "compare", r)
        replies.append(await client.send(bounded, limit_s=COMPARISON_S))
        bound.record(replies[-1])
        return replies[-1]

    settings = config.practice
    teacher = Teacher(
        chat=lambda scope: chat,
        prompts=prompts,
        agent_objective=settings.agent_objective,
        learning_objective=settings.learning_objective,
        truth=settings.given_ground_truth,
        limit=settings.num_experiences_per_query,
        run_seed=0,
        summaries="never",
    )
    library = Library()
    task = Task(teacher, _group(), library, library, GroupKey(0, 0, 0, 0))
    async with Client(endpoint, Limit(1), notice=lambda _: None) as client:
        try:
            async with asyncio.timeout(COMPARISON_S):
                lessons, _ = await compare(task, (await read_attempts(task))[0])
        except ReplyError as e:
            text = f"its tiny comparison cannot be read: {e}"
            error = EndpointRefusedError(text, hint=advice(e.kind))
            return [problem("teacher", error)], made
        except TimeoutError:
            text = f"gave no tiny comparison in {COMPARISON_S:.0f} s"
            return [
                warning("teacher", text, "practice waits for such replies, and will be slow")
            ], made
        except (StepError, EndpointRefusedError) as e:
            return [problem("teacher", EndpointRefusedError(str(e), hint=e.hint))], made
    seconds = sum(reply.seconds for reply in replies)
    text = f"its tiny comparison can be read ({count(len(lessons), 'lesson')}, {seconds:.1f} s)"
    return [ok("teacher", text)], made


def _group() -> Group:
    """Return a question with a right and a wrong attempt."""
    sample = Sample("What is 2 + 3 * 4?", "14")
    return Group(
        0,
        sample,
        [
            Rollout(0, n, sample, _played(sample, said), Verdict(1.0 - n, None, said))
            for n, said in enumerate(_ANSWERS)
        ],
    )


def _played(sample: Sample, said: str) -> Trajectory:
    asked = {"role": "user", "content": sample.question}
    return Trajectory("ok", said, [asked, {"role": "assistant", "content": said}])
