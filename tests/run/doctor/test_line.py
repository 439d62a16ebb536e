"""Whether a server handles one request at a time: two requests at once tell, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from grpo_practice.config import load_eval, load_practice
from grpo_practice.core.calls import Request
from grpo_practice.core.findings import Finding
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.run.doctor.line import diagnose_line, settings_to_lower
from tests.fakes import FakeEndpoint, reply
from tests.llm.virtual import virtual

KEYS = ["practice.rollout_concurrency", "evaluation.concurrency"]
REQUEST = Request("m-1", {"temperature": 0.0}, [{"role": "user", "content": "hello"}])
Server = Callable[[dict[str, Any]], Awaitable[httpx.Response]]


def server(slots: int, seconds: list[float], tokens: list[int | None]) -> Server:
    """Answer as many requests at once as it has slots; seconds and tokens of each, in turn."""
    free, left = asyncio.Semaphore(slots), list(zip(seconds, tokens, strict=True))

    async def answer(body: dict[str, Any]) -> httpx.Response:
        async with free:
            took, n = left.pop(0)
            await asyncio.sleep(took)
            return reply("1, 2, 3", usage={} if n is None else usage(n))

    return answer


def usage(tokens: int) -> dict[str, int]:
    return {"prompt_tokens": 9, "completion_tokens": tokens}


def findings(script: Server, keys: list[str] = KEYS) -> tuple[list[Finding], FakeEndpoint]:
    endpoint = FakeEndpoint(script)

    async def story() -> list[Finding]:
        at = Endpoint("http://127.0.0.1:1/v1", max_tries=2)
        async with Client(
            at, Limit(2), notice=lambda _: None, transport=endpoint.transport
        ) as client:
            return await diagnose_line("student", client.send, REQUEST, keys, 30.0)

    return virtual(story()), endpoint


@pytest.mark.parametrize(
    ("slots", "seconds", "tokens", "serial"),
    [
        pytest.param(1, [4, 4], [32, 32], True, id="one-after-the-other"),
        pytest.param(1, [6, 3], [32, 32], True, id="the-first-warms-it-up"),
        pytest.param(1, [4, 3], [32, 24], True, id="the-second-is-shorter"),
        pytest.param(2, [4, 4], [32, 32], False, id="together"),
        pytest.param(2, [7, 8], [32, 32], False, id="together-at-half-the-speed"),
        pytest.param(2, [1, 4], [8, 32], False, id="together-and-one-is-longer"),
        pytest.param(2, [4, 4.5], [3, 2], False, id="together-and-as-good-as-nothing-written"),
        pytest.param(1, [4, 4], [None, None], False, id="tokens-are-not-counted"),
        pytest.param(1, [20, 20], [32, 32], False, id="too-slow"),
    ],
)
def test_two_requests_at_once_tell_whether_a_server_is_serial(
    slots: int, seconds: list[float], tokens: list[int | None], serial: bool
) -> None:
    found, endpoint = findings(server(slots, seconds, tokens))
    assert len(endpoint.seen) == 2
    assert all(body["max_tokens"] == 32 for body in endpoint.seen)
    assert len(found) == serial
    if serial:
        assert found[0].severity == "warning"
        assert f"{seconds[0]:.1f} s and the other {sum(seconds):.1f} s" in found[0].sentence
        sets = "--set practice.rollout_concurrency=1 --set evaluation.concurrency=1"
        assert (found[0].hint or "").endswith(sets)


def test_a_failed_or_repeated_request_tells_nothing() -> None:
    answer = server(1, [4, 4], [32, 32])
    failed = iter([True, False, False])

    async def script(body: dict[str, Any]) -> httpx.Response:
        return httpx.Response(500) if next(failed) else await answer(body)

    found, endpoint = findings(script)
    assert (found, len(endpoint.seen)) == ([], 3)


def test_a_server_that_gets_one_request_at_a_time_is_not_tried() -> None:
    found, endpoint = findings(server(1, [4, 4], [32, 32]), [])
    assert (found, endpoint.seen) == ([], [])


def sets(**urls: str) -> list[str]:
    at = {
        "student": "evaluation.agent.model",
        "teacher": "practice.teacher_model",
        "judge": "evaluation.judge_model",
    }
    found = ["exp_id=e", "data.practice_dataset_name=a.jsonl", "evaluation.verify=judge"]
    for role, url in urls.items():
        found += [
            f"{at[role]}.model_provider.{k}={v}" for k, v in (("model", role), ("base_url", url))
        ]
    return found


def test_only_a_local_server_is_tried_and_each_setting_that_reaches_it_is_named() -> None:
    urls = {
        "student": "http://localhost:8080/v1",
        "teacher": "https://api.example.com/v1",
        "judge": "http://192.168.1.5:9/v1",
    }
    config = load_practice(None, sets(**urls), env={}).config
    keys = ["evaluation.concurrency", "practice.rollout_concurrency"]
    assert settings_to_lower(config) == {
        "localhost:8080": keys,
        "192.168.1.5:9": ["evaluation.judge_concurrency"],
    }
    one = [*sets(**urls), *(f"{key}=1" for key in keys)]
    assert list(settings_to_lower(load_practice(None, one, env={}).config)) == ["192.168.1.5:9"]


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://[::1]:8000/v1", True),
        ("http://ollama:11434/v1", True),
        ("http://gpu.local/v1", True),
        ("https://api.openai.com/v1", False),
        ("http://8.8.8.8/v1", False),
    ],
)
def test_a_server_is_local_by_its_address(url: str, local: bool) -> None:
    at = "agent.model.model_provider"
    given = [f"{at}.base_url={url}", f"{at}.model=m", "verify=math", "data.dataset=a"]
    found = settings_to_lower(load_eval(None, given, env={}).config)
    assert list(found.values()) == ([["concurrency"]] if local else [])
