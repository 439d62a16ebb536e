"""The Responses API at a rollout's address, as OpenAI's own clients use it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from grpo_practice.core.calls import Message, Reply, Usage
from grpo_practice.core.errors import EndpointError
from grpo_practice.rollout.chat_server.proxy import Guest, Invitation, Proxy
from grpo_practice.rollout.chat_server.server import ChatRequest, RequestError
from tests.late import Late

if TYPE_CHECKING:
    import agents
    import openai
else:
    agents, openai = Late("agents"), Late("openai")

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a":1,"b":1}'}}
TOOL: Any = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
}


@dataclass
class Model:
    """A model that calls its tool once, and then answers with what the tool said."""

    seen: list[ChatRequest] = field(default_factory=list)

    async def ask(self, request: ChatRequest) -> Reply:
        self.seen.append(request)
        last, usage = request.messages[-1], Usage(12, 4, 7, 5)
        if last["content"] == "fail":
            raise EndpointError("the endpoint is down")
        if last["content"] == "refuse":
            raise RequestError("no", code="nope")
        message: Message = {"role": "assistant", "content": f"It is {last['content']}."}
        if request.tools and last["role"] == "user":
            message = {"role": "assistant", "content": None, "tool_calls": [CALL]}
            message["reasoning_content"] = "I add."
        n = len(self.seen)
        return Reply(message, finish=None, usage=usage, answered_by="m-1@host", call_id=n)


@asynccontextmanager
async def invited(model: Model) -> AsyncIterator[tuple[Invitation, "openai.AsyncOpenAI"]]:
    proxy = Proxy()
    async with proxy.served():
        with proxy.address(Guest("m", model.ask)) as invitation:
            client = openai.AsyncOpenAI(
                base_url=invitation.base_url, api_key=invitation.token, max_retries=0
            )
            async with client:
                yield invitation, client


async def test_a_text_is_answered() -> None:
    model = Model()
    async with invited(model) as (_, client):
        made = await client.responses.create(
            model="m", input="2", instructions="Be brief.", temperature=0.5, max_output_tokens=9
        )
    assert (made.output_text, made.status, made.model) == ("It is 2.", "completed", "m-1")
    assert made.usage is not None
    assert (made.usage.input_tokens, made.usage.output_tokens_details.reasoning_tokens) == (12, 5)
    asked = model.seen[0]
    assert asked.messages == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2"},
    ]
    assert asked.settings == {"temperature": 0.5, "max_tokens": 9}


@pytest.mark.parametrize(
    "again", ["previous_response_id", "the whole conversation", "references to its items"]
)
async def test_a_tool_is_called_and_its_result_read(again: str) -> None:
    model = Model()
    async with invited(model) as (_, client):
        first = await client.responses.create(
            model="m", input="1+1?", tools=[TOOL], instructions="Add."
        )
        thought, call = first.output
        assert thought.type == "reasoning"
        assert call.type == "function_call"
        assert (call.call_id, call.arguments) == ("c1", '{"a":1,"b":1}')
        result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "2"}
        if again == "previous_response_id":
            more: dict[str, Any] = {"previous_response_id": first.id, "input": [result]}
        elif again == "references to its items":  # as the AI SDK of Vercel sends them
            named: list[Any] = [{"type": "item_reference", "id": item.id} for item in first.output]
            more = {"input": [{"role": "user", "content": "1+1?"}, *named, result]}
        else:
            more = {"input": [{"role": "user", "content": "1+1?"}, *first.output, result]}
        last = await client.responses.create(model="m", tools=[TOOL], **more)
    assert last.output_text == "It is 2."
    user, called, told = model.seen[1].messages
    assert user == {"role": "user", "content": "1+1?"}
    assert (called["tool_calls"], called["reasoning_content"]) == ([CALL], "I add.")
    assert told == {"role": "tool", "tool_call_id": "c1", "content": "2"}


async def test_a_stream_tells_the_text_piece_by_piece() -> None:
    async with invited(Model()) as (_, client):
        text = "x" * 600
        stream = await client.responses.create(model="m", input=text, stream=True)
        events = [event async for event in stream]
    pieces = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert "".join(pieces) == f"It is {text}."
    assert len(pieces) == 3
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"


async def test_a_stream_tells_the_arguments_of_a_call() -> None:
    async with (
        invited(Model()) as (_, client),
        client.responses.stream(model="m", input="1+1?", tools=[TOOL]) as stream,
    ):
        made = await stream.get_final_response()
    call = made.output[-1]
    assert call.type == "function_call"
    assert json.loads(call.arguments) == {"a": 1, "b": 1}


async def test_a_repeated_conversation_is_kept_once() -> None:
    proxy, guest = Proxy(), Guest("m", Model().ask)
    async with proxy.served():
        with proxy.address(guest) as to:
            async with openai.AsyncOpenAI(base_url=to.base_url, api_key="-") as client:
                items: list[Any] = []
                for n in range(4):
                    items.append({"role": "user", "content": f"{n}"})
                    made = await client.responses.create(model="m", input=items)
                    items += made.output
    kept = {id(message) for said in guest.responses.values() for message in said}
    assert [len(said) for said in guest.responses.values()] == [2, 4, 6, 8]
    assert len(kept) == 8


async def test_errors_reach_the_client_in_the_form_of_the_api() -> None:
    async with invited(Model()) as (_, client):
        with pytest.raises(openai.BadRequestError, match="'web_search'"):
            await client.responses.create(model="m", input="x", tools=[{"type": "web_search"}])
        unknown: Any = {"type": "item_reference", "id": "msg_9"}
        with pytest.raises(openai.BadRequestError, match="send the item itself"):
            await client.responses.create(model="m", input=[unknown])
        with pytest.raises(openai.NotFoundError) as e:
            await client.responses.create(model="m", input="x", previous_response_id="resp_9")
        assert e.value.code == "previous_response_not_found"
        with pytest.raises(openai.BadRequestError, match="no"):
            await client.responses.create(model="m", input="refuse")


async def test_a_response_of_another_rollout_is_unknown() -> None:
    model, proxy = Model(), Proxy()
    async with proxy.served():
        with proxy.address(Guest("m", model.ask)) as a, proxy.address(Guest("m", model.ask)) as b:
            one, other = (
                openai.AsyncOpenAI(base_url=to.base_url, api_key="-", max_retries=0)
                for to in (a, b)
            )
            async with one, other:
                first = await one.responses.create(model="m", input="x")
                with pytest.raises(openai.NotFoundError):
                    await other.responses.create(
                        model="m", input="y", previous_response_id=first.id
                    )


@pytest.mark.long
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_agents_sdk_works_with_its_defaults(streamed: bool) -> None:
    @agents.function_tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    model = Model()
    async with invited(model) as (_, client):
        agent = agents.Agent(name="adder", instructions="Add.", tools=[add], model="m")
        config = agents.RunConfig(
            model_provider=agents.OpenAIProvider(openai_client=client), tracing_disabled=True
        )
        if streamed:
            running = agents.Runner.run_streamed(agent, "1+1?", run_config=config)
            async for _ in running.stream_events():
                pass
            answer = running.final_output
        else:
            answer = (await agents.Runner.run(agent, "1+1?", run_config=config)).final_output
    assert answer == "It is 2."
    roles = [[message["role"] for message in asked.messages] for asked in model.seen]
    assert roles == [["system", "user"], ["system", "user", "assistant", "tool"]]
