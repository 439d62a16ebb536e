"""Either API in front of a served agent, and either behind it, with OpenAI's own client."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from tests.contract.endpoint.actions import completion
from tests.contract.serving import KEY, PROMPT, Recorded, agent_file, served, upstream
from tests.late import Late

if TYPE_CHECKING:
    import openai
else:
    openai = Late("openai")

FUNCTION: Any = {"name": "add", "parameters": {"type": "object", "properties": {}}}
CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
CALLED = {"id": "fc_1", "type": "function_call", "call_id": "c1", "name": "add"}
CALLED |= {"arguments": '{"a": 1}', "status": "completed"}
TEXT: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant"}
TEXT |= {"content": [{"type": "output_text", "text": "It is 2.", "annotations": []}]}
THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "gAAA"}


def body_of(api: str, *, calls: bool) -> dict[str, Any]:
    """A reply of the model: a call of its tool, or a text."""
    if api == "chat.completions":
        message: Any = {"role": "assistant", "content": None, "tool_calls": [CALL]}
        return completion(message if calls else "It is 2.", model="m-1")
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    output = [THOUGHT, CALLED] if calls else [TEXT]
    head = {"id": "resp_u", "object": "response", "status": "completed", "model": "m-1"}
    return {**head, "output": output, "usage": usage}


async def asked(client: Any, api: str, *, stream: bool) -> tuple[str, str]:
    """Ask once, call the tool, and ask again; return the arguments and the text."""
    if api == "chat.completions":
        tools: Any = [{"type": "function", "function": FUNCTION}]
        messages: list[Any] = [{"role": "user", "content": "1+1?"}]
        found = list[Any]()
        for _ in range(2):
            if stream:
                options = {"messages": messages, "tools": tools, "model": "any"}
                async with client.chat.completions.stream(**options) as chunks:
                    reply = (await chunks.get_final_completion()).choices[0].message
            else:
                made = await client.chat.completions.create(
                    model="any", messages=messages, tools=tools
                )
                reply = made.choices[0].message
            found.append(reply)
            result = {"role": "tool", "tool_call_id": "c1", "content": "2"}
            messages += [reply.model_dump(exclude_none=True, exclude={"parsed"}), result]
        return found[0].tool_calls[0].function.arguments, found[1].content
    items: list[Any] = [{"role": "user", "content": "1+1?"}]
    tools = [{"type": "function", **FUNCTION}]
    made = list[Any]()
    for _ in range(2):
        if stream:
            async with client.responses.stream(model="any", input=items, tools=tools) as events:
                response = await events.get_final_response()
        else:
            response = await client.responses.create(model="any", input=items, tools=tools)
        made.append(response)
        items += [
            *response.output,
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ]
    return made[0].output[-1].arguments, made[1].output_text


@pytest.mark.long_after(2)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("front", "behind"),
    [  # chat completions in front of chat completions are passed on: see test_serve
        ("responses", "responses"),
        ("responses", "chat.completions"),
        ("chat.completions", "responses"),
    ],
)
async def test_a_tool_is_called_whichever_api_is_spoken(
    tmp_path: Path, front: str, behind: str, stream: bool
) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        return web.json_response(body_of(behind, calls=len(up.bodies) == 1))

    kept = Recorded(tmp_path)
    async with upstream(handler) as up:
        file = agent_file(tmp_path, up.url, provider={"type": behind})
        async with served(file, run="rec") as place:
            client = openai.AsyncOpenAI(base_url=place.url, api_key="-", max_retries=0)
            async with client:
                arguments, text = await asked(client, front, stream=stream)
            assert (arguments, text) == ('{"a": 1}', "It is 2.")
            assert place.counted == (2, 0, 0)
            await kept.holds(2)
    first, second = up.bodies
    if behind == "responses":
        assert first["instructions"] == PROMPT
        assert second["input"][-1]["type"] == "function_call_output"
        assert THOUGHT in second["input"]  # also through chat completions, as a key of its own
    else:
        assert first["messages"][0] == {"role": "system", "content": PROMPT}
        assert second["messages"][-1] == {"role": "tool", "tool_call_id": "c1", "content": "2"}
    assert "stream" not in first
    with closing(sqlite3.connect(tmp_path / "rec.db")) as db:
        assert db.execute("SELECT count(*), max(turn) FROM calls").fetchone() == (2, 1)


async def test_a_model_that_fails_is_an_error_in_the_client_s_api(tmp_path: Path) -> None:
    async def handler(_: web.Request) -> web.StreamResponse:
        if len(up.bodies) == 1:
            return web.json_response({"error": {"message": f"bad {KEY}"}}, status=400)
        return web.json_response({"object": "response", "status": "failed", "error": None})

    async with upstream(handler) as up:
        file = agent_file(tmp_path, up.url, provider={"type": "responses"})
        async with (
            served(file) as place,
            openai.AsyncOpenAI(base_url=place.url, api_key="-", max_retries=0) as client,
        ):
            with pytest.raises(openai.BadRequestError) as e:
                await client.responses.create(model="any", input="x")
            assert KEY not in str(e.value)
            with pytest.raises(openai.InternalServerError, match="has no output"):
                await client.responses.create(model="any", input="x")
            with pytest.raises(openai.NotFoundError, match="no response 'resp_1'"):
                await client.responses.create(model="any", input="x", previous_response_id="resp_1")
            assert place.counted == (3, 3, 0)
