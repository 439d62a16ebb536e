"""From a model's config to the endpoint it is asked at."""

import asyncio
from collections.abc import Callable

import httpx
import pytest

from grpo_practice.config import load_eval
from grpo_practice.config.schema.provider import ModelProvider
from grpo_practice.core.calls import Address, Entry, Reply, Request, Scope
from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from grpo_practice.core.events import silent
from grpo_practice.llm.admission import Admission
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.rate_limit import now
from grpo_practice.run.clients import Connections, Models, endpoint_of
from tests.config.files import ENV
from tests.fakes import FakeEndpoint, FakeSleep, answers
from tests.llm.virtual import virtual


async def test_a_refused_key_is_named_by_where_it_was_set_not_by_its_urls_place() -> None:
    config = load_eval(None, ["data.dataset=D", "verify=math"], ENV).config
    _, endpoint = endpoint_of(config.agent.model)
    server = FakeEndpoint(answers(httpx.Response(401, json={"error": {"message": "no"}})))
    client = Client(endpoint, Limit(1), notice=print, transport=server.transport, sleep=FakeSleep())
    async with client:
        with pytest.raises(EndpointRefusedError) as caught:
            await client.send(Request("m", {}, [{"role": "user", "content": "hi"}]))
    assert "check the key in UTU_LLM_API_KEY in the environment," in (caught.value.hint or "")


def test_the_deadline_of_a_request_is_the_configured_one() -> None:
    needed = ["data.dataset=D", "verify=math", "agent.model.model_provider.model=sim"]
    for given, timeout_s in (
        (["agent.model.model_settings.extra_args={timeout: 30}"], 30),
        ([], 600),
    ):
        config = load_eval(None, [*needed, *given], {}).config
        params, endpoint = endpoint_of(config.agent.model)
        assert endpoint.timeout_s == timeout_s
        assert params == {}


async def test_the_name_that_is_given_to_the_most_tokens_is_sent() -> None:
    needed = ["data.dataset=D", "verify=math"]
    given = "agent.model.model_settings.extra_body={max_completion_tokens: 64}"
    config = load_eval(None, [*needed, given], ENV).config
    params, endpoint = endpoint_of(config.agent.model)
    assert params["max_tokens"] == 64, "its place in identities and hashes"
    server = FakeEndpoint(answers("24"))
    client = Client(endpoint, Limit(1), notice=print, transport=server.transport, sleep=FakeSleep())
    async with client:
        await client.send(Request("m", params, [{"role": "user", "content": "hi"}]))
    assert server.seen[0]["max_completion_tokens"] == 64
    assert "max_tokens" not in server.seen[0]


async def test_agents_that_name_the_most_tokens_differently_are_asked_each_in_its_way() -> None:
    needed = ["data.dataset=D", "verify=math", "agent.model.model_provider.model=sim"]
    settings = "agent.model.model_settings"
    names = (f"{settings}.extra_body={{max_completion_tokens: 64}}", f"{settings}.max_tokens=64")
    configs = [load_eval(None, [*needed, name], {}).config.agent.model for name in names]
    connections = Connections(silent, concurrency=(1, 1), admission=Admission())
    models = Models(connections, Forgetful(), silent, {})
    async with connections:
        for config in configs:
            await models.chats(config, "student")
        assert len(connections._clients) == 2


SETTINGS: dict[str, str] = {
    "base_url": "http://127.0.0.1:1/v2",
    "api_key": "another",
    "requests_per_minute": "60",
    "tokens_per_minute": "6000",
    "stream": "true",
    "send_seed": "false",
    "max_reply_mib": "1",
    "key_origin": "",  # follows from `api_key`
}
"""Another value of each setting of a provider that the client of an endpoint applies."""
APART = {"type", "model", "origin", "section", "batch"}
"""Settings that go with each request, or are for people."""


def test_every_setting_of_a_provider_is_applied_for_each_role() -> None:
    assert SETTINGS.keys() | APART == ModelProvider.model_fields.keys()


@pytest.mark.parametrize(("name", "value"), [item for item in SETTINGS.items() if item[1]])
async def test_roles_that_differ_in_a_setting_share_no_client(name: str, value: str) -> None:
    here = "agent.model.model_provider"
    needed = ["data.dataset=D", "verify=math", f"{here}.model=m", f"{here}.api_key=one"]
    needed.append(f"{here}.base_url=http://127.0.0.1:1/v1")
    configs = [
        load_eval(None, [*needed, *given], {}).config.agent.model
        for given in ([], [], [f"{here}.{name}={value}"])
    ]
    async with Connections(silent, concurrency=(1, 1), admission=Admission()) as connections:
        clients = [
            await connections.client(endpoint_of(config)[1], config, "teacher")
            for config in configs
        ]
    assert clients[0] is clients[1]
    assert clients[2] is not clients[0]


def test_a_teachers_limit_holds_at_the_endpoint_of_an_unlimited_student(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def at_once(load: Callable[[], None]) -> None:
        load()

    monkeypatch.setattr(asyncio, "to_thread", at_once)  # the virtual clock waits for no thread
    here = "agent.model.model_provider"
    needed = ["data.dataset=D", "verify=math", f"{here}.model=sim"]
    student, teacher = (
        load_eval(None, [*needed, *given], {}).config.agent.model
        for given in ([], [f"{here}.requests_per_minute=60"])
    )

    async def story() -> float:
        connections = Connections(silent, concurrency=(64, 1), admission=Admission())
        models = Models(connections, Forgetful(), silent, {})
        async with connections:
            await models.chats(student, "student")
            chats, began = await models.chats(teacher, "teacher"), now()
            scopes = [Scope(Address(1, 0, n, 0, "compare"), 0, "", 0) for n in range(17)]
            question = [{"role": "user", "content": "How much is 1 + 1?"}]
            await asyncio.gather(*(chats(scope)(question) for scope in scopes))
            return now() - began

    assert 14 < virtual(story()) < 20


class Forgetful:
    """A ledger that has nothing and keeps nothing."""

    async def get(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        return None

    async def put(self, entry: Entry) -> int:
        return 1

    def fail(self, address: Address, error: EndpointError) -> None:
        raise error


async def test_the_teacher_goes_before_students_and_these_before_what_may_wait() -> None:
    needed = ["data.dataset=D", "verify=math", "agent.model.model_provider.model=sim"]
    model, ended = load_eval(None, needed, {}).config.agent.model, list[str]()
    connections = Connections(silent, concurrency=(1, 1), admission=Admission())
    models = Models(connections, Forgetful(), silent, {})
    async with connections:
        chats = {
            "student": await models.chats(model, "student"),
            "later": await models.chats(model, "student", later=True),
            "teacher": await models.chats(model, "teacher"),
        }

        async def ask(n: int, who: str) -> None:
            scope = Scope(Address(1, 0, n, 0, "play"), 0, "", 0)
            await chats[who](scope)([{"role": "user", "content": "How much is 1 + 1?"}])
            ended.append(who)

        asked = ["student", "later", "later", "student", "teacher", "student"]
        await asyncio.gather(*(ask(n, who) for n, who in enumerate(asked)))
    assert ended == ["student", "teacher", "student", "student", "later", "later"]
