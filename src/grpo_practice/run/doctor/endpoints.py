"""Checks of the endpoints with tiny requests that are not stored: two to each, one to a teacher.

A local server gets two more, at once. If tools are needed and none is called, the request with a
tool is sent once more, through the other API.
"""

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable, Coroutine, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from grpo_practice.config import PracticeConfig
from grpo_practice.config.schema.provider import ModelConfig
from grpo_practice.config.schema.runs import RunConfig
from grpo_practice.core.calls import ApiName, Message, Reply, Request
from grpo_practice.core.errors import (
    EndpointError,
    EndpointRefusedError,
    GrpoPracticeError,
    ReplyError,
    StepError,
)
from grpo_practice.core.findings import Finding, ok, problem, problems, warning
from grpo_practice.core.prompts.files import Prompt
from grpo_practice.core.text import count, is_loopback
from grpo_practice.core.types import Group, Library, Rollout, Sample, Trajectory, Verdict
from grpo_practice.llm.api import APIS
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import (
    Endpoint,
    environment_proxy,
    host,
    place,
    refuse_socks,
    shown_url,
)
from grpo_practice.llm.prices import Price, Prices
from grpo_practice.llm.reply_bound import ReplyBound
from grpo_practice.practice.distil import Task, compare, read_attempts
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.reports.learning_findings import advice
from grpo_practice.run.clients import endpoint_of
from grpo_practice.run.doctor.line import PAIR, diagnose_line

DEADLINE_S = 30.0
"""Timeout for one reply; after a timeout, the request is not retried."""
WHOLE_S = 35.0
"""Timeout for all requests to a model at an address, including waits that the endpoint requests."""
CONNECT_S = 3.0
"""Timeout for connecting to an address that sent no response."""
TRIES = 2
REQUESTS = 2
"""Number of requests to each model at each address."""
_ASKED = [{"role": "user", "content": "Reply with the number 4."}]
_CALL = [{"role": "user", "content": "Call the tool `add` with a=2 and b=2."}]
_CALLED_NO_TOOL = "did not call a tool that it was told to call"
_LATE = "did not answer a request with a tool in time"
_NUMBER = {"type": "number"}
_TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds two numbers.",
        "parameters": {"type": "object", "properties": {"a": _NUMBER, "b": _NUMBER}},
    },
}


def models_of(config: RunConfig) -> list[tuple[str, ModelConfig]]:
    """Return this configuration's models with their roles; each pair of model and endpoint once."""
    roles = [*config.models.items(), *(("reader", m) for m in config.evaluation.readers)]
    found: dict[tuple[object, ...], tuple[str, ModelConfig]] = {}
    for role, model in roles:
        if not model.model_provider.model:  # a config that only trains names no model
            continue
        at = model.model_provider
        key = (at.model, at.type, at.base_url, at.key)
        name, known = found.get(key, (role, model))
        found[key] = (name if role in name else f"{name}, {role}", known)
    return list(found.values())


def asked_for(models: Sequence[tuple[str, ModelConfig]], to_lower: Sized) -> int:
    """Return the number of requests that `diagnose_models` sends if all succeed."""
    called = sum(not model.model_provider.simulated for _, model in models)
    return REQUESTS * called + PAIR * len(to_lower)


async def diagnose_models(
    models: Sequence[tuple[str, ModelConfig]],
    prices: Prices,
    key: str,
    to_lower: Mapping[str, list[str]],
    *,
    tools: bool = False,
) -> list[Finding]:
    """Check the replies of each endpoint: addresses in parallel, models at one address in turn.

    Args:
        models: Roles and models, from `models_of`.
        prices: Known prices of models.
        key: Configuration key that sets prices, for hints.
        to_lower: Servers to send two requests at once, from `settings_to_lower`.
        tools: Whether the student calls tools, so that its endpoint has to support them.
    """
    turns, lines = defaultdict[str, asyncio.Lock](asyncio.Lock), dict(to_lower)

    async def asked(role: str, model: ModelConfig) -> list[Finding]:
        # Parallel requests to a server that handles one at a time would make it look slow, or
        # run into the timeout.
        async with turns[place(model.model_provider.base_url)]:
            return await _model(role, model, prices, key, lines, tools=tools and "student" in role)

    parts = await asyncio.gather(*(asked(role, model) for role, model in models))
    return [finding for part in parts for finding in part]


async def _model(
    role: str,
    model: ModelConfig,
    prices: Prices,
    key: str,
    lines: dict[str, list[str]],
    *,
    tools: bool,
) -> list[Finding]:
    provider = model.model_provider
    if provider.simulated:
        return [ok(role, f"{provider.model} is simulated in this program; no request was sent")]
    try:
        params, endpoint = endpoint_of(model, prices)
        refuse_socks(endpoint.base_url, environment_proxy(endpoint.base_url))
    except GrpoPracticeError as e:
        return [problem(role, e)]
    waits = endpoint.timeout_s
    endpoint = replace(endpoint, max_tries=TRIES, timeout_s=min(DEADLINE_S, endpoint.timeout_s))
    url = endpoint.base_url
    found = [*_in_clear(role, endpoint), *await _resolved(role, url)]
    if problems(found):
        return found
    where = f"{provider.model} at {shown_url(url)} (from {provider.origin})"
    notices: list[str] = []
    # Send a seed to check whether the endpoint accepts it.
    request = Request(provider.model, {**params, "seed": 1}, _ASKED)
    clock = asyncio.get_running_loop().time
    until = clock() + WHOLE_S
    with_tool = replace(request, messages=_CALL, tools=[_TOOL])
    async with Client(endpoint, Limit(PAIR), notice=notices.append) as client:

        async def ask(request: Request) -> Reply:
            async with asyncio.timeout_at(until):  # one deadline for both requests
                return await client.send(request, limit_s=endpoint.timeout_s)

        try:
            reply = await ask(request)
            failed = await _failed(ask(with_tool))
        except TimeoutError:
            text = f"{where} did not answer within {clock() - until + WHOLE_S:.0f} s"
            if await _listens(url):
                text += ", but accepts connections: it is busy, slow or stuck"
                hint = f"run doctor again when it is idle; a run waits {waits:.0f} s for a reply"
                return [*found, warning(role, text, hint)]
            return [
                *found,
                problem(role, EndpointRefusedError(text, hint="is the server running?")),
            ]
        except (EndpointError, EndpointRefusedError) as e:
            # Any error counts as a refusal, because an endpoint that fails here would also end a
            # run.
            return [*found, problem(role, EndpointRefusedError(str(e), hint=e.hint))]
        # Once for all models of a server, unless it may still be busy with the last request.
        keys = [] if failed == _LATE else lines.pop(place(url), [])
        line = await diagnose_line(role, client.send, request, keys, DEADLINE_S)
    other = await _other_api(endpoint, with_tool) if tools and failed else None
    called = _called(role, failed, endpoint.api, other, needed=tools)
    found.append(ok(role, f"model {where} answered; latency {reply.seconds:.1f} s"))
    found.append(_limit(role, params.get("max_tokens"), endpoint.limit_key))
    found += [warning(role, text) for text in notices]
    found += [*_reply(role, provider.model, reply), called, *line]
    return [*found, _price(role, provider.model, prices.find(provider.model, url), key)]


async def _listens(url: str) -> bool:
    """Return whether a server accepts connections at the address."""
    at = urlsplit(url)
    port = at.port or (443 if at.scheme == "https" else 80)
    try:
        async with asyncio.timeout(CONNECT_S):
            _, writer = await asyncio.open_connection(at.hostname, port)
    except (OSError, TimeoutError):
        return False
    writer.close()  # not waited for, because the other side may never close
    return True


async def _failed(answer: Coroutine[Any, Any, Reply]) -> str | None:
    """Return the failure of a request that has a tool; None if the tool was called."""
    try:
        reply = await answer
    except TimeoutError:
        return _LATE
    except (EndpointError, EndpointRefusedError) as e:
        return f"refuses a request with a tool: {e}"
    return None if reply.message.get("tool_calls") else _CALLED_NO_TOOL


async def _other_api(endpoint: Endpoint, request: Request) -> str | None:
    """Return the setting of another API if the tool is called there; otherwise None."""
    for api in (name for name in APIS if name != endpoint.api):
        other = replace(endpoint, api=api, max_tries=1)
        async with Client(other, Limit(1), notice=lambda _: None) as client:
            if await _failed(client.send(request)) is None:
                return f"--set {endpoint.section}.type={api}"
    return None


def _called(
    role: str, failed: str | None, api: ApiName, other: str | None, *, needed: bool
) -> Finding:
    """Report whether tools can be called, which an agent with toolkits needs.

    `failed` is the reason why not; `other`, the setting of the other API if they can be called
    there.
    """
    if failed is None:
        return ok(role, f"tool calls work ({api})")
    if not needed:
        return ok(role, f"{failed}; no toolkit here needs it")
    if other is not None:
        failed = f"with the API `{api}`, it {failed}; with the other API, tool calls work"
        return problem(role, EndpointRefusedError(failed, hint=other))
    if failed == _CALLED_NO_TOOL:
        return warning(role, failed, "function calling may have to be enabled on the server")
    hint = "the agent has toolkits: use a model, or a server, with function calling"
    return problem(role, EndpointRefusedError(failed, hint=hint))


def _limit(role: str, most: object, key: str) -> Finding:
    """Report the length of replies, and the key that sets it."""
    if most is not None:
        return ok(role, f"a reply may have {most} tokens ({key})")
    if role == "teacher":
        text = f"the length of replies is limited by their form, because {key} is not set"
        return ok(role, text)  # see `ReplyBound`
    text = "max_tokens is not set, so a reply may run to the end of the context"
    return warning(role, text, f"set {key}")


def _reply(role: str, model: str, reply: Reply) -> list[Finding]:
    usage, answered = reply.usage, reply.answered_by.rpartition("@")[0]
    found = []
    if usage.tokens_in is None or usage.tokens_out is None:
        found.append(warning(role, "reports no token counts, so the cost of calls will be unknown"))
    else:
        found.append(ok(role, f"tokens counted ({usage.tokens_in} in, {usage.tokens_out} out)"))
    if usage.tokens_reasoning:
        thought = f"{usage.tokens_reasoning} of {usage.tokens_out} tokens"
        found.append(ok(role, f"thinks before it answers ({thought}): allow for it in max_tokens"))
    if answered != model:
        found.append(warning(role, f"was asked for {model!r} but answers as {answered!r}"))
    if reply.seeded:
        found.append(ok(role, "seed accepted"))
    else:
        found.append(warning(role, "accepts no seed, so runs cannot be repeated exactly"))
    return found


def _price(role: str, model: str, price: Price | None, key: str) -> Finding:
    if price is not None:
        return ok(role, f"price known ({price.source})")
    hint = f"add {key}: {{{model!r}: {{input: …, output: …}}}} (USD per million tokens)"
    return warning(role, "its price is unknown, so --max-cost will not work", hint)


def _in_clear(role: str, endpoint: Endpoint) -> list[Finding]:
    url = endpoint.base_url
    secret = endpoint.api_key or "@" in urlsplit(url).netloc or endpoint.headers
    if urlsplit(url).scheme == "https" or not secret or is_loopback(host(url)):
        return []
    return [warning(role, f"the key is sent to {shown_url(url)} unencrypted", "use https://")]


async def _resolved(role: str, url: str) -> list[Finding]:
    if environment_proxy(url):
        return []  # the proxy resolves the name; this machine may be unable to
    try:
        await asyncio.to_thread(socket.getaddrinfo, host(url), None)
    except (OSError, UnicodeError) as e:
        error = EndpointRefusedError(f"cannot resolve {host(url)}: {e}", hint="check base_url")
        return [problem(role, error)]
    return []


COMPARISON_S = 120.0
"""Timeout for a reply, much longer than for the other tiny requests."""
_ANSWERS = ("2 + 3 * 4 = 2 + 12 = 14. The answer is 14.", "2 + 3 = 5, 5 * 4 = 20. It is 20.")


async def diagnose_teacher(
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
    task = Task(teacher, _group(), library, lambda _: library, GroupKey(0, 0, 0, 0))
    async with Client(endpoint, Limit(1), notice=lambda _: None) as client:
        try:
            async with asyncio.timeout(COMPARISON_S):
                lessons, _ = await compare(task, (await read_attempts(task))[0])
        except ReplyError as e:
            text = f"its tiny comparison cannot be read: {e}"
            error = EndpointRefusedError(text, hint=advice(e.kind))
            return [problem("teacher", error)], made
        except TimeoutError:
            text = f"did not return a tiny comparison within {COMPARISON_S:.0f} s"
            return [
                warning("teacher", text, "practice waits for such replies, so it will be slow")
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
