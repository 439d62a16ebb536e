"""Tools go through the ledger: what was answered once is never done, or paid, again."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from grpo_practice.core.calls import Scope, ToolResult
from grpo_practice.core.errors import AgentError, EndpointRefusedError
from grpo_practice.core.events import Event, ToolFinished
from grpo_practice.core.redact import redactor
from grpo_practice.rollout.tools import Output, Tool, ToolError, toolbox
from grpo_practice.rollout.tools.toolbox import OUTPUT_BYTES, Toolbox, capped
from tests.fakes import cancelling
from tests.llm.virtual import virtual
from tests.rollout.tools.fakes import ANY, SCOPE, Counter, FakeLedger, box


class Echo:
    """A tool that says how often it ran, and may fail."""

    def __init__(self, answer: Output | Exception | None = None, *, waits_s: float = 0) -> None:
        self.ran, self.answer, self.waits_s = 0, answer, waits_s

    async def __call__(self, arguments: Mapping[str, Any], at: Scope) -> Output:
        assert at.address.stage == "tool"
        await asyncio.sleep(self.waits_s)
        self.ran += 1
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer or Output(f"{arguments} {self.ran}")

    def tool(self, **more: Any) -> Tool:
        return Tool("echo", "Says it.", ANY, self, **more)


async def called(tools: Toolbox, *calls: tuple[str, str]) -> list[ToolResult]:
    async with tools.open(SCOPE) as open_:
        return [await open_(*call) for call in calls]


async def test_a_stored_result_is_not_asked_for_again() -> None:
    echo, ledger, events = Echo(), FakeLedger(), list[Event]()
    first = await called(box(echo.tool(), ledger=ledger), ("echo", '{"a": 1}'), ("echo", "{}"))
    tools = box(echo.tool(), ledger=ledger, events=events)
    again = await called(tools, ("echo", '{ "a" : 1 }'), ("echo", ""), ("echo", '{"a": 2}'))
    assert [r.text for r in again[:2]] == [r.text for r in first]
    assert [r.replayed for r in again] == [True, True, False]
    assert echo.ran == 3
    assert [e.replayed for e in events if isinstance(e, ToolFinished)] == [True, True, False]


def test_what_is_stored_is_told_though_everything_is_cancelled_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    echo, ledger, events = Echo(), FakeLedger(), list[Event]()
    with monkeypatch.context() as patch:
        patch.setattr(ledger, "put", cancelling(ledger.put))
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(called(box(echo.tool(), ledger=ledger, events=events), ("echo", "{}")))
    assert len(ledger.entries) == 1
    assert [e.replayed for e in events if isinstance(e, ToolFinished)] == [False]


async def test_the_same_call_twice_is_two_calls() -> None:
    echo, ledger = Echo(), FakeLedger()
    tools = box(echo.tool(), ledger=ledger)
    results = await called(tools, ("echo", "{}"), ("echo", "{}"))
    assert [r.text for r in results] == ["{} 1", "{} 2"]
    assert [r.text for r in await called(tools, ("echo", "{}"), ("echo", "{}"))] == ["{} 1", "{} 2"]
    assert echo.ran == 2


async def test_a_stored_result_keeps_what_it_cost() -> None:
    tools = box(Echo(Output("x", cost_micro=1_000)).tool(), ledger=FakeLedger())
    costs = [(await called(tools, ("echo", "{}")))[0].cost_micro for _ in range(2)]
    assert costs == [1_000, 1_000]


async def test_another_version_of_a_tool_is_another_tool() -> None:
    echo, ledger = Echo(), FakeLedger()
    await called(box(echo.tool(), ledger=ledger), ("echo", "{}"))
    await called(box(echo.tool(version="2"), ledger=ledger), ("echo", "{}"))
    assert echo.ran == 2


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ToolError("no such page"), "Error: no such page"),
        (KeyError("x"), "Error: KeyError: 'x'"),
        (TimeoutError("its own"), "Error: TimeoutError: its own"),
    ],
)
async def test_an_error_of_a_tool_is_its_result(error: Exception, said: str) -> None:
    echo, ledger = Echo(error), FakeLedger()
    tools = box(echo.tool(), ledger=ledger)
    for _ in range(2):
        (result,) = await called(tools, ("echo", "{}"))
        assert (result.text, result.failed) == (said, True)
    assert echo.ran == 1


async def test_a_service_that_serves_nobody_any_more_stops_the_run() -> None:
    ledger = FakeLedger()
    with pytest.raises(EndpointRefusedError):
        await called(
            box(Echo(EndpointRefusedError("no credits")).tool(), ledger=ledger), ("echo", "{}")
        )
    assert not ledger.entries


async def test_the_rollouts_own_deadline_ends_a_tool_and_nothing_is_stored() -> None:
    ledger = FakeLedger()
    async with box(Echo(waits_s=9).tool(), ledger=ledger).open(SCOPE) as tools:
        with pytest.raises(TimeoutError):
            await tools("echo", "{}", limit_s=0.01)
        with pytest.raises(TimeoutError):
            await tools("echo", '{"a": 1}', limit_s=0)
    assert not ledger.entries


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of the tools is that of the event loop, which may be a virtual one."""
    monkeypatch.setattr(toolbox, "monotonic", lambda: asyncio.get_running_loop().time())


@pytest.mark.usefixtures("clock")
def test_waiting_for_a_slot_is_no_time_of_the_rollout() -> None:
    async def story() -> list[float]:
        tool = Echo(waits_s=5).tool(limit=asyncio.Semaphore(1))
        async with box(tool, ledger=FakeLedger()).open(SCOPE) as tools:
            calls = (tools("echo", f'{{"a": {n}}}', limit_s=6) for n in range(4))
            return [result.seconds for result in await asyncio.gather(*calls)]

    assert virtual(story()) == [5] * 4


@pytest.mark.usefixtures("clock")
def test_what_a_tool_waited_for_an_endpoint_is_no_time_of_the_rollout() -> None:
    tool = Echo(Output("x", waited_s=5), waits_s=6).tool()
    (result,) = virtual(called(box(tool, ledger=FakeLedger()), ("echo", "{}")))
    assert result.seconds == 1


@pytest.mark.parametrize("text", ["x" * 5_000_000, "é" * 50_000, "🦆" * 9_000])
def test_1_52_a_result_is_cut_to_what_a_model_may_read(text: str) -> None:
    cut = capped(text)
    assert len(cut.encode()) <= OUTPUT_BYTES
    assert cut.endswith(f"[cut here: this is the beginning of {len(text.encode()):,} bytes]")
    assert capped("x" * OUTPUT_BYTES) == "x" * OUTPUT_BYTES


def test_a_result_holds_no_secret_and_no_lone_surrogate() -> None:
    redactor.know(["sesame-open-4711"])
    assert capped("key sesame-open-4711 \ud800") == "key *** \ufffd"


async def test_a_tool_with_a_state_goes_through_its_stored_calls_before_it_goes_on() -> None:
    counter, ledger = Counter(), FakeLedger()
    tools = box(counter.tool(), counter.tool("more"), ledger=ledger)
    one, two, three = ("add", '{"n": 1}'), ("more", '{"n": 2}'), ("add", '{"n": 4}')
    assert [r.text for r in await called(tools, one, two)] == ["1", "3"]
    assert [r.text for r in await called(tools, one, two)] == ["1", "3"]
    assert counter.opened == 1  # all was stored: nothing was done again
    assert [r.text for r in await called(tools, one, two, three)] == ["1", "3", "7"]
    assert counter.done == ["add", "more", "add", "more", "add"]


async def test_a_state_that_cannot_be_had_again_ends_the_rollout() -> None:
    counter, ledger = Counter(), FakeLedger()
    tools = box(counter.tool(), ledger=ledger)
    await called(tools, ("add", '{"n": 1}'))
    counter.off = 1
    with pytest.raises(AgentError, match="answers a stored call differently"):
        await called(tools, ("add", '{"n": 1}'), ("add", '{"n": 2}'))
    assert len(ledger.entries) == 1


async def test_calls_of_one_turn_change_a_state_in_order() -> None:
    counter = Counter()
    async with box(counter.tool(), ledger=FakeLedger()).open(SCOPE) as tools:
        results = await asyncio.gather(*(tools("add", f'{{"n": {n}}}') for n in (1, 2, 4)))
    assert [r.text for r in results] == ["1", "3", "7"]
