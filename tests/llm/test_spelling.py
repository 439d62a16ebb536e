"""What is hashed and stored of a request, spelt in parts, is spelt as it is written down."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.calls import Address, Entry, Reply, Request, Scope
from grpo_practice.core.hashing import Chain, canon, clean_json
from grpo_practice.llm.ledgered import Head, Model, ledgered
from tests.fakes import head_of
from tests.properties.texts import BROKEN, JSON, OBJECTS, TEXTS

KEYS = st.sampled_from(["temperature", "max_tokens", "seam", "seeds", "top_p", "z", "a"]) | TEXTS
PARAMS = st.dictionaries(KEYS.filter(lambda key: key != "seed"), JSON, max_size=4)
TOOLS = st.lists(OBJECTS, max_size=2)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": TEXTS, "content": BROKEN | st.none() | st.lists(st.just({"text": "x"}))},
        optional={"tool_calls": st.none() | st.just([{"id": "\ud800"}]), "name": BROKEN},
    ),
    min_size=1,
    max_size=4,
)


@given(TEXTS, PARAMS, st.integers(0, 2**31 - 1), TOOLS)
def test_a_head_in_parts_is_the_canonical_json_of_the_head(
    model: str, params: dict[str, Any], seed: int, tools: list[dict[str, Any]]
) -> None:
    head = Head(model, params)
    whole = head_of(model, params | {"seed": seed}, tools)
    assert head.hashed(seed, tools) == canon(whole)
    del whole["params"]["seed"]
    assert head.stored(tools) == canon(whole)


class _Memory:
    """A ledger that knows nothing and keeps what it is given."""

    def __init__(self) -> None:
        self.asked = list[bytes]()
        self.entries = list[Entry]()

    async def get(self, address: Address, request_hash: bytes, nth: int) -> Reply | None:
        self.asked.append(request_hash)
        return None

    async def put(self, entry: Entry) -> int:
        self.entries.append(entry)
        return len(self.entries)

    def fail(self, address: Address, error: Exception) -> None:
        raise AssertionError


@given(PARAMS, MESSAGES, TOOLS, MESSAGES)
async def test_a_conversation_is_hashed_and_stored_as_written_down(
    params: dict[str, Any],
    messages: list[dict[str, Any]],
    tools: list[dict[str, Any]],
    more: list[dict[str, Any]],
) -> None:
    said = {"role": "assistant", "content": "4", "refusal": None}

    async def send(request: Request, *, limit_s: float | None = None) -> Reply:
        json.dumps(request.messages, ensure_ascii=False).encode()  # no lone surrogate is left
        return Reply(said)

    memory = _Memory()
    scope = Scope(Address(1, 0, 0, 0, "play"), 7, "ab", 0)
    chat = ledgered(Model("m", params, send), memory, lambda _: None)(scope)
    await chat(messages, tools=tools)
    await chat([*messages, said, *more], tools=tools)

    head = head_of("m", params | {"seed": scope.seed()}, tools)
    chain = Chain(head)
    for i, added in enumerate((clean_json(messages), clean_json(more))):
        chain.extend(added)
        assert memory.asked[i] == chain.state[:16]
        assert memory.entries[i].messages == canon(added)
        chain.add(said)
    assert memory.entries[1].prev_call_id == 1
