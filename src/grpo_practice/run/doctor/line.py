"""Checks whether a local server handles one request at a time, with two requests sent at once."""

import asyncio
import ipaddress
from collections.abc import Mapping
from dataclasses import replace

from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.runs import PracticeConfig, RunConfig
from grpo_practice.core.calls import Reply, Request, Send
from grpo_practice.core.findings import Finding, warning
from grpo_practice.llm.endpoint import host, place

PAIR = 2
"""Number of requests sent at once."""
SERIAL = 1.4
"""Minimum ratio between the times of two equal requests that were handled one after the other.

The ratio is 2, or 1.5 if the first one also warms the server up, and at most 1.1 if both are
computed together.
"""
_TOKENS = 32
"""Tokens of a reply: few, and more than take as long as reading the prompt."""
_ASKED = [{"role": "user", "content": "Write a long story about a ship."}]
_LOCAL = (".local", ".lan", ".internal", ".home.arpa")


def settings_to_lower(config: RunConfig) -> dict[str, list[str]]:
    """Return local server → `concurrency` settings that allow it more than one request at once."""
    evaluation = config.evaluation
    limits = [(config.student, config.key("concurrency"), evaluation.concurrency)]
    if isinstance(config, PracticeConfig):
        at_once = config.practice.rollout_concurrency
        models = () if config.only_trains else (config.student, config.teacher)
        limits += [(model, "practice.rollout_concurrency", at_once) for model in models]
    if evaluation.verify.may_ask:
        at_once = evaluation.judge_concurrency
        limits.append((config.judge, config.key("judge_concurrency"), at_once))
    found = dict[str, dict[str, None]]()
    for model, key, at_once in limits:
        if at_once > 1 and _is_local(model):
            found.setdefault(place(model.model_provider.base_url), {})[key] = None
    return {server: list(keys) for server, keys in found.items()}


def _is_local(model: ModelConfig) -> bool:
    """Return whether a server of the user's own network answers, which costs nothing."""
    provider = model.model_provider
    name = host(provider.base_url)
    if provider.simulated or not (provider.model and name):
        return False
    try:
        return ipaddress.ip_address(name).is_private
    except ValueError:  # a name, such as `localhost` or that of a container
        return "." not in name or name.endswith(_LOCAL)


async def diagnose_line(
    role: str, send: Send, request: Request, keys: list[str], limit_s: float
) -> list[Finding]:
    """Return a warning if the server handles one request at a time, and nothing if that is unclear.

    Args:
        role: Role of the model.
        send: Sends requests to the server, two at once.
        request: A request that the server answers; its prompt is replaced.
        keys: Configuration keys to lower; without any, nothing is sent.
        limit_s: Timeout for both requests together.
    """
    if not keys:
        return []
    params: Mapping[str, object] = {**request.params, "max_tokens": _TOKENS}
    both = [send(replace(request, params=params, messages=_ASKED)) for _ in range(PAIR)]
    try:
        async with asyncio.timeout(limit_s):
            replies = await asyncio.gather(*both, return_exceptions=True)
    except TimeoutError:
        return []
    answered = [reply for reply in replies if isinstance(reply, Reply)]
    if len(answered) < PAIR:
        return []
    first, second = sorted(answered, key=lambda reply: reply.seconds)
    if not _one_by_one(first, second):
        return []
    text = (
        f"the server handles one request at a time: of two equal ones sent at once, one took"
        f" {first.seconds:.1f} s and the other {second.seconds:.1f} s"
    )
    hint = "further requests would only queue, so lower the limit: "
    return [warning(role, text, hint + " ".join(f"--set {key}=1" for key in keys))]


def _one_by_one(first: Reply, second: Reply) -> bool:
    """Return whether the second reply was begun after the first one; False if that is unclear."""
    # A repeated request was not sent together with the other one.
    if first.tries > 1 or second.tries > 1 or not (first.usage.tokens_out and first.seconds):
        return False
    if not second.usage.tokens_out:
        return False
    slower = second.seconds / first.seconds
    # Replies that are computed together take as long as they have tokens; a longer reply that is
    # finished later says nothing.
    per_token = slower * first.usage.tokens_out / second.usage.tokens_out
    return min(slower, per_token) >= SERIAL
