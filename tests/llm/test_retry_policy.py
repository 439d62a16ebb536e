"""What each fault of an endpoint leads to, through the real client."""

from typing import Any

import httpx
import pytest

from grpo_practice.core.calls import Request
from grpo_practice.core.errors import (
    ContentFilterError,
    ContextOverflowError,
    EndpointError,
    EndpointRefusedError,
)
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from tests.contract.endpoint.actions import completion
from tests.fakes import Answer, FakeEndpoint, FakeSleep, answers, reply
from tests.llm.virtual import virtual

URL = "https://api.example.com/v1"
ASK = Request("m-1", {"temperature": 0.7, "max_tokens": 64, "seed": 5}, [{"role": "user"}])
USER = [{"role": "user"}]
HTML = httpx.Response(200, html="<!doctype html><title>Log in\x1b[2J</title>")


def error(status: int, headers: dict[str, str] | None = None, **said: Any) -> httpx.Response:
    return httpx.Response(status, json={"error": said}, headers=headers)


def raw(body: bytes) -> httpx.Response:
    return httpx.Response(200, content=body)


def choice(**also: Any) -> httpx.Response:
    """A reply that broke off behind a router."""
    message = {"role": "assistant", "content": "2"}
    return httpx.Response(200, json={"choices": [{"message": message, **also}]})


GOOD = b'{"choices":[{"message":{"role":"assistant","content":"24"}}]}'


async def run(
    *script: Answer, max_tries: int = 3, url: str = URL, ask: Request = ASK, **endpoint: Any
) -> tuple[str | Exception, FakeEndpoint, list[float]]:
    """What a request comes to, what the endpoint saw, and the waits between tries."""
    server, sleep = FakeEndpoint(answers(*script)), FakeSleep()
    given = {"api_key": "a-key"} | endpoint
    to = Endpoint(url, max_tries=max_tries, key_name="MY_KEY", **given)
    client = Client(to, Limit(1), notice=lambda _: None, transport=server.transport, sleep=sleep)
    async with client:
        try:
            return (await client.send(ask)).content, server, sleep.slept
        except (EndpointError, EndpointRefusedError) as e:
            return e, server, sleep.slept


RETRIED = [
    pytest.param(error(429, {"retry-after": "2"}), id="1"),
    pytest.param(error(429, {"retry-after-ms": "300"}), id="2"),
    pytest.param(error(429, {"retry-after": "inf"}), id="4"),
    pytest.param(error(402, {"retry-after": "1"}, message="Insufficient credits"), id="8"),
    pytest.param(error(500), id="10-500"),
    pytest.param(error(502), id="10-502"),
    pytest.param(httpx.Response(503, html="<h1>Bad gateway</h1>"), id="10-503-html"),
    pytest.param(error(504), id="10-504"),
    pytest.param(error(529, type="overloaded_error"), id="10-529"),
    pytest.param(error(409), id="16-409"),
    pytest.param(error(408), id="16-408"),
    pytest.param(error(425), id="16-425"),
    pytest.param(error(400, {"x-should-retry": "true"}, message="busy"), id="17-true"),
    pytest.param(httpx.ConnectError("no route"), id="18"),
    pytest.param(httpx.ConnectTimeout("blackhole"), id="19"),
    pytest.param(httpx.ReadError("reset"), id="21"),
    pytest.param(httpx.DecodingError("bad gzip"), id="21-gzip"),
    pytest.param(HTML, id="30"),
    pytest.param(httpx.Response(302, headers={"location": "/login"}), id="30-redirect"),
    pytest.param(raw(GOOD[:-9]), id="31-truncated"),
    pytest.param(raw(b"\xef\xbb\xbf" + GOOD), id="31-bom"),
    pytest.param(raw(GOOD.replace(b"24", b"\xff")), id="31-utf8"),
    pytest.param(raw(b""), id="31-empty"),
    pytest.param(raw(b"[" * 100_000), id="31-deep"),
    pytest.param(raw(GOOD.replace(b'"24"', b"NaN")), id="31-nan"),
    pytest.param(raw(GOOD.replace(b'"24"', b"1e999")), id="31-inf"),
    pytest.param(error(200, code=502, message="upstream"), id="32-number"),
    pytest.param(error(200, code="rate_limit_exceeded"), id="32-code"),
    pytest.param(httpx.Response(200, json={"error": "overloaded"}), id="32-text"),
    pytest.param(choice(error={"code": 502}), id="32-in-the-choice"),
    pytest.param(choice(finish_reason="error"), id="32-as-the-finish"),
    pytest.param(httpx.Response(200, json={"choices": []}), id="33-empty"),
    pytest.param(httpx.Response(200, json={}), id="33-none"),
    pytest.param(httpx.Response(200, json={"choices": [{"message": None}]}), id="33-null"),
    pytest.param(httpx.Response(200, json=[1]), id="33-list"),
]


@pytest.mark.parametrize("fault", RETRIED)
async def test_a_passing_fault_is_retried_until_there_is_an_answer(fault: Answer) -> None:
    came, server, slept = await run(fault, "24")
    assert (came, len(server.seen), len(slept)) == ("24", 2, 1)


LASTING = [
    pytest.param(error(503, message="down"), "HTTP 503, down", id="11"),
    pytest.param(raw(b'{"choices": ['), "not JSON", id="31"),
    pytest.param(raw(b""), "no body", id="31-empty"),
    pytest.param(error(200, code=502, message="upstream"), "upstream", id="32"),
    pytest.param(httpx.Response(200, json={"choices": []}), "no choices", id="33"),
    pytest.param(httpx.ReadError("reset by peer"), "reset by peer", id="21"),
]


@pytest.mark.parametrize(("fault", "says"), LASTING)
async def test_a_lasting_fault_fails_the_request_after_all_tries(fault: Answer, says: str) -> None:
    came, server, _ = await run(fault)
    assert type(came) is EndpointError
    assert says in str(came)
    assert came.tries == len(server.seen) == 3


REFUSED = [
    pytest.param(error(429, code="insufficient_quota"), "credit or quota", id="7-openai"),
    pytest.param(error(429, type="credit_balance_exhausted"), "credit or quota", id="7-balance"),
    pytest.param(error(429, code="org_spend_limit_exceeded"), "credit or quota", id="7-spend"),
    pytest.param(error(400, type="budget_exceeded", code="400"), "credit or quota", id="7-litellm"),
    pytest.param(error(402, message="Insufficient Balance"), "credit or quota", id="8"),
    pytest.param(error(401, message="bad key"), "refused the API key: HTTP 401, bad key", id="12"),
    pytest.param(error(403, message="no access"), "refused access", id="14-plain"),
    pytest.param(error(404, code="model_not_found"), "does not know the model 'm-1'", id="15"),
    pytest.param(
        httpx.Response(
            404,
            json={"object": "error", "message": "The model `m-1` does not exist.", "code": 404},
        ),
        "does not know the model 'm-1'",
        id="15-vllm",
    ),
    pytest.param(error(400, message="Model Not Exist"), "does not know the model", id="15-400"),
    pytest.param(httpx.Response(404, text="nope"), "is not a chat endpoint", id="15-path"),
    pytest.param(httpx.Response(407, text="login"), "the proxy requires a login", id="25"),
]


@pytest.mark.parametrize(("fault", "says"), REFUSED)
async def test_a_refusal_for_good_stops_the_run_after_one_request(fault: Answer, says: str) -> None:
    came, server, _ = await run(fault, "24")
    assert type(came) is EndpointRefusedError
    assert says in str(came)
    assert came.hint
    assert len(server.seen) == 1


async def test_1_15_an_unknown_model_comes_with_the_way_to_list_the_known_ones() -> None:
    came, _, _ = await run(error(404, code="model_not_found"))
    assert isinstance(came, EndpointRefusedError)
    assert "GET /models" in str(came.hint)


async def test_1_12_a_refused_key_is_named_by_where_it_comes_from() -> None:
    came, _, _ = await run(error(401, message="bad key"))
    assert isinstance(came, EndpointRefusedError)
    assert "check the key in MY_KEY" in str(came.hint)


@pytest.mark.parametrize(
    ("status", "says"), [(401, "requires an API key"), (403, "refused access, and no API key")]
)
async def test_1_12_a_key_that_was_not_sent_is_not_called_refused(status: int, says: str) -> None:
    came, _, _ = await run(error(status, message="no"), api_key=None)
    assert isinstance(came, EndpointRefusedError)
    assert says in str(came)
    assert "was sent: HTTP" in str(came)
    assert came.hint == "set one in MY_KEY"


@pytest.mark.parametrize(
    "sent",
    [
        {"headers": {"x-api-key": "one"}},
        {"query": {"key": "one"}},
        {"url": "https://me:one@api.example.com/v1"},
    ],
)
async def test_1_12_a_key_of_another_form_is_one_too(sent: dict[str, Any]) -> None:
    came, _, _ = await run(error(401, message="no"), **({"api_key": None} | sent))
    assert "refused the API key" in str(came)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        pytest.param(
            error(403, code=403, message="flagged", metadata={"reasons": ["violence"]}),
            ContentFilterError,
            id="14",
        ),
        pytest.param(error(400, code="content_filter"), ContentFilterError, id="14-azure"),
        pytest.param(error(400, code="context_length_exceeded"), ContextOverflowError, id="40"),
        pytest.param(
            error(400, message="This model's maximum context length is 4096 tokens."),
            ContextOverflowError,
            id="40-vllm",
        ),
        pytest.param(
            error(400, message="max_tokens must be at least 1, got -186."),
            ContextOverflowError,
            id="40-negative",
        ),
        pytest.param(
            httpx.Response(413, html="<h1>too large</h1>"), ContextOverflowError, id="413"
        ),
        pytest.param(
            error(413, code="rate_limit_exceeded", message="tokens per minute"),
            EndpointError,
            id="413-about-the-account",
        ),
        pytest.param(error(400, message="bad image"), EndpointError, id="400"),
        pytest.param(
            error(400, message="role 'x' is not supported", param="messages.[0].role"),
            EndpointError,
            id="400-about-one-message",
        ),
        pytest.param(error(500, {"x-should-retry": "false"}), EndpointError, id="17-false"),
        pytest.param(error(429, {"retry-after": "86400"}), EndpointError, id="5"),
    ],
)
async def test_a_fault_of_the_one_request_fails_it_at_once(
    fault: Answer, kind: type[EndpointError]
) -> None:
    came, server, slept = await run(fault, "24")
    assert type(came) is kind
    assert (len(server.seen), slept) == (1, [])


async def test_1_5_a_wait_of_a_day_is_said_and_not_slept() -> None:
    came, _, slept = await run(error(429, {"retry-after": "86400"}, message="later"))
    assert "the server asks us to wait 24 h: HTTP 429, later" in str(came)
    assert slept == []


@pytest.mark.parametrize(
    ("headers", "least"),
    [
        pytest.param({"retry-after": "2"}, 2.0, id="1"),
        pytest.param({"retry-after-ms": "300"}, 0.3, id="2"),
        pytest.param({"x-ratelimit-reset-tokens": "1m30s"}, 90.0, id="6"),
    ],
)
def test_the_wait_asked_for_is_slept_and_little_more(headers: dict[str, str], least: float) -> None:
    _, _, slept = virtual(run(error(429, headers), "24"))
    assert least <= slept[0] <= least * 1.1


async def test_1_18_an_endpoint_that_never_answered_stops_the_run_as_unreachable() -> None:
    came, server, _ = await run(httpx.ConnectError("refused"))
    assert type(came) is EndpointRefusedError
    assert f"cannot reach {URL}/chat/completions" in str(came)
    assert len(server.seen) == 3


async def test_1_18_one_that_did_answer_fails_the_request_only() -> None:
    came, _, _ = await run(error(503), httpx.ConnectError("refused"))
    assert type(came) is EndpointError


async def test_1_30_a_page_is_retried_once_and_then_shown_escaped() -> None:
    came, server, _ = await run(HTML, max_tries=5)
    assert type(came) is EndpointRefusedError
    assert "not an OpenAI-compatible response" in str(came)
    assert "Log in\\x1b[2J" in str(came)
    assert "\x1b" not in str(came)
    assert len(server.seen) == 2


async def test_1_30_a_page_after_other_faults_is_still_retried_once() -> None:
    came, server, _ = await run(error(503), HTML, "24")
    assert (came, len(server.seen)) == ("24", 3)


PAGES = [
    HTML,
    httpx.Response(302, headers={"location": "/login"}, html="<p>Found</p>"),
    *(httpx.Response(status, html="<h1>gateway</h1>") for status in (403, 404, 405)),
]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.status_code))
async def test_pages_from_an_endpoint_that_has_replied_are_retried_as_other_faults_are(
    page: httpx.Response,
) -> None:
    server = FakeEndpoint(answers("1", page, page, page, "2", page))
    client = Client(
        Endpoint(URL), Limit(1), notice=print, transport=server.transport, sleep=FakeSleep()
    )
    async with client:
        assert (await client.send(ASK)).content == "1"
        assert (await client.send(ASK)).content == "2"
        with pytest.raises(EndpointError, match="not an OpenAI-compatible response") as caught:
            await client.send(ASK)
    assert caught.value.tries == 5


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_an_error_in_json_stops_the_run_whatever_the_endpoint_replied_before(
    status: int,
) -> None:
    server = FakeEndpoint(answers("1", error(status, message="no")))
    client = Client(Endpoint(URL), Limit(1), notice=print, transport=server.transport)
    async with client:
        await client.send(ASK)
        with pytest.raises(EndpointRefusedError):
            await client.send(ASK)
    assert len(server.seen) == 2


async def test_a_long_message_is_cut() -> None:
    came, _, _ = await run(error(400, message="x" * 1000))
    assert "x" * 199 + "…" in str(came)
    assert "x" * 201 not in str(came)


async def test_words_of_the_provider_behind_a_router_are_heard() -> None:
    hidden = {"raw": '{"error":{"message":"maximum context length is 8192"}}'}
    came, _, _ = await run(error(400, message="Provider returned error", metadata=hidden))
    assert type(came) is ContextOverflowError


SPELLINGS = [
    pytest.param(
        error(
            400,
            code="unsupported_parameter",
            param="max_tokens",
            message="Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
        ),
        {"max_completion_tokens": 64, "seed": 5, "temperature": 0.7},
        id="41-max_tokens",
    ),
    pytest.param(
        error(
            400,
            message="Unsupported value: 'temperature' does not support 0.7 with this model.",
            param="None",
        ),
        {"max_tokens": 64, "seed": 5},
        id="41-temperature",
    ),
    pytest.param(
        httpx.Response(
            422,
            json={
                "object": "error",
                "message": {
                    "detail": [
                        {
                            "type": "extra_forbidden",
                            "loc": ["body", "seed"],
                            "msg": "Extra inputs are not permitted",
                        }
                    ]
                },
            },
        ),
        {"max_tokens": 64, "temperature": 0.7},
        id="41-seed-pydantic",
    ),
    pytest.param(
        httpx.Response(400, json={"detail": "Unknown field: seed"}),
        {"max_tokens": 64, "temperature": 0.7},
        id="41-seed-detail",
    ),
]


@pytest.mark.parametrize(("fault", "then"), SPELLINGS)
async def test_an_unsupported_setting_is_adapted(fault: Answer, then: dict[str, Any]) -> None:
    came, server, slept = await run(fault, "24")
    assert came == "24"
    assert {k: v for k, v in server.seen[1].items() if k not in ("model", "messages")} == then
    assert slept == []


async def test_1_41_a_setting_that_cannot_be_adapted_stops_the_run_with_the_bodys_words() -> None:
    refusal = error(400, message="Unsupported parameter: 'max_completion_tokens'")
    renamed = error(400, message="Unsupported parameter: 'max_tokens'")
    came, server, _ = await run(renamed, refusal)
    assert type(came) is EndpointRefusedError
    assert "Unsupported parameter: 'max_completion_tokens'" in str(came)
    assert len(server.seen) == 2


async def test_the_good_body_used_here_is_good() -> None:
    assert (await run(raw(GOOD)))[0] == "24"
    assert (await run(reply("24")))[0] == completion("24")["choices"][0]["message"]["content"]
