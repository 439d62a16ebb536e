"""Caps: nothing is sent that may not fit, nobody waits for ever, and a try costs what it cost."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpo_practice.core.calls import Request, Usage
from grpo_practice.core.errors import EndpointError, PausedError, StoppedError
from grpo_practice.llm.admission import Admission, Try
from grpo_practice.llm.budget import ASSUMED_OUT, NOTHING, Account, Amount, Ask, Caps
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.prices import Price
from tests.fakes import Answer, FakeEndpoint, FakeSleep, reply
from tests.processes import HANG_S

DOLLAR_A_MILLION = Price(
    "test", lambda u: Decimal((u.tokens_in or 0) + (u.tokens_out or 0)) / 1_000_000
)


@dataclass(frozen=True)
class Planned:
    """A request of a test: what may be set aside for it, and what becomes of it."""

    size: int
    max_tokens: int
    fate: Literal["answered", "no usage", "refused", "broken", "cancelled", "too long"]
    used: int
    turns: int
    """How often others get their turn while it is under way."""


PLANNED = st.builds(
    Planned,
    size=st.integers(0, 300),
    max_tokens=st.integers(1, 100),
    fate=st.sampled_from(["answered", "no usage", "refused", "broken", "cancelled", "too long"]),
    used=st.integers(0, 100),
    turns=st.integers(0, 5),
)
CAPS = st.builds(
    Caps,
    requests=st.none() | st.integers(0, 20),
    tokens=st.none() | st.integers(0, 1_500),
    cost_micro=st.none() | st.integers(0, 1_500),
)


@dataclass
class World:
    """Sends planned requests through an admission, behind the limits of two clients."""

    admission: Admission
    limits: tuple[Limit, Limit]
    over: Amount = NOTHING
    """By how much replies were longer than what was set aside for them."""

    def within(self) -> bool:
        account = self.admission.account
        return account.caps.exceeded(account.spent + account.reserved - self.over) is None

    async def send(self, n: int, plan: Planned) -> None:
        ask = Ask("m", plan.size, plan.max_tokens, DOLLAR_A_MILLION)
        async with self.limits[n % 2].slot(), self.admission.enter(ask) as tried:
            assert self.within()
            tried.sent()
            for _ in range(plan.turns):
                await asyncio.sleep(0)
            self.end(plan, tried)
        assert self.within()

    def end(self, plan: Planned, tried: Try) -> None:
        most_in, most_out = -(-plan.size // 3), plan.max_tokens
        match plan.fate:
            case "answered":
                tried.answered(Usage(min(plan.used, most_in), None, min(plan.used, most_out)))
            case "too long":
                tried.answered(Usage(most_in, None, most_out + plan.used))
                self.over += Amount(0, plan.used, plan.used)
            case "no usage":
                tried.answered(Usage())
            case "refused":
                tried.refused()
            case "broken":
                raise EndpointError("cut")
            case "cancelled":
                pass

    async def all(self, planned: list[Planned]) -> list[BaseException | None]:
        tasks = [asyncio.create_task(self.send(n, plan)) for n, plan in enumerate(planned)]
        for task, plan in zip(tasks, planned, strict=True):
            if plan.fate == "cancelled":
                for _ in range(plan.turns):
                    await asyncio.sleep(0)
                task.cancel()
        async with asyncio.timeout(HANG_S):  # a deadlock, however busy the machine is
            return await asyncio.gather(*tasks, return_exceptions=True)


@given(planned=st.lists(PLANNED, max_size=25), caps=CAPS, slots=st.integers(1, 4))
def test_a_cap_holds_and_everybody_gets_an_answer(
    planned: list[Planned], caps: Caps, slots: int
) -> None:
    world = World(Admission(Account(caps)), (Limit(slots), Limit(1)))
    for ended in asyncio.run(world.all(planned)):
        expected = PausedError | EndpointError | asyncio.CancelledError
        assert ended is None or isinstance(ended, expected), repr(ended)
    assert world.within()
    assert world.admission.account.reserved == NOTHING
    assert world.admission.in_flight == 0


async def test_who_does_not_fit_waits_for_those_under_way_which_may_come_to_less() -> None:
    admission = Admission(Account(Caps(tokens=150)))
    ask, order = Ask("m", 0, 100), list[str]()
    go = asyncio.Event()

    async def first() -> None:
        async with admission.enter(ask) as tried:
            tried.sent()
            order.append("first in")
            await go.wait()
            tried.answered(Usage(10, None, 10))
            order.append("first out")

    async def second() -> None:
        async with admission.enter(ask) as tried:
            order.append("second in")
            tried.sent()

    tasks = [asyncio.create_task(first()), asyncio.create_task(second())]
    for _ in range(5):
        await asyncio.sleep(0)
    assert order == ["first in"]
    go.set()
    await asyncio.gather(*tasks)
    assert order == ["first in", "first out", "second in"]
    assert admission.account.spent == Amount(2, 120)


async def test_the_pause_names_cap_spent_need_and_the_command_with_a_higher_cap() -> None:
    command = "grpo-practice eval --max-tokens=200 --limit 3"
    account = Account(Caps(tokens=200), Amount(1, 150), command=command)
    with pytest.raises(PausedError) as caught:
        async with Admission(account).enter(Ask("m", 30, 90)):
            pytest.fail("was let in")
    assert str(caught.value) == (
        "paused by --max-tokens 200: 150 tokens spent so far, and one more request may need"
        " 100 tokens"
    )
    assert caught.value.hint
    assert caught.value.hint.endswith("grpo-practice eval --max-tokens 1150 --limit 3")
    assert caught.value.exit_code == 6


async def test_a_stop_lets_nobody_in_who_waits_for_a_cap() -> None:
    admission = Admission(Account(Caps(requests=1)))
    inside = admission.enter()
    tried = await inside.__aenter__()
    tried.sent()
    waits = asyncio.create_task(admission.enter().__aenter__())
    await asyncio.sleep(0)
    admission.stop(StoppedError(2))
    await inside.__aexit__(None, None, None)
    await asyncio.wait_for(admission.drained(), HANG_S)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waits.done()
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert admission.in_flight == 0


async def test_who_is_let_in_and_cancelled_at_once_holds_nothing() -> None:
    admission = Admission(Account(Caps(requests=1)))
    inside = admission.enter()
    await inside.__aenter__()  # never sent, so it costs nothing
    waits = asyncio.create_task(admission.enter().__aenter__())
    await asyncio.sleep(0)
    await inside.__aexit__(None, None, None)
    assert waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert (admission.in_flight, admission.account.reserved) == (0, NOTHING)
    async with admission.enter():
        assert admission.in_flight == 1


def test_an_estimate_is_the_longest_reply_known_or_allowed() -> None:
    account = Account()
    assert account.estimate(Ask("m", 31)) == Amount(1, 11 + ASSUMED_OUT)
    account.answered(Ask("m"), Usage(5, None, 70), Amount())
    account.answered(Ask("m"), Usage(5, None, 9), Amount())
    assert account.estimate(Ask("m", 30)) == Amount(1, 10 + 70)
    assert account.estimate(Ask("other", 30)) == Amount(1, 10 + ASSUMED_OUT)
    priced = Ask("m", 30, 15, DOLLAR_A_MILLION)
    assert account.estimate(priced) == Amount(1, 25, 25)


USED = {"prompt_tokens": 4, "completion_tokens": 6}
IN = 100
"""A little more than the bytes of the test's request divided by three."""


@pytest.mark.parametrize(
    ("answer", "requests", "tokens"),
    [
        (lambda: reply("yes", usage=USED), 1, (10, 10)),
        (lambda: reply("yes", usage={}), 1, (50, IN)),
        (lambda: OSError("refused"), 1, (50, IN)),  # after the connection stood: maybe billed
        (lambda: reply_error(400), 1, (0, 0)),
    ],
    ids=["usage", "no usage", "cut", "refused"],
)
async def test_what_a_try_came_to(
    answer: Callable[[], Answer], requests: int, tokens: tuple[int, int]
) -> None:
    admission = Admission()
    fake = FakeEndpoint(lambda _: answer())
    client = Client(
        Endpoint("http://fake/v1", max_tries=1),
        Limit(1),
        notice=lambda _: None,
        admission=admission,
        transport=fake.transport,
        sleep=FakeSleep(),
    )
    async with client:
        with contextlib.suppress(EndpointError):
            await client.send(Request("m", {"max_tokens": 50}, [{"role": "user", "content": "hi"}]))
    spent = admission.account.spent
    assert spent.requests == requests
    assert tokens[0] <= spent.tokens <= tokens[1]


def reply_error(status: int) -> Answer:
    answer = reply("no")
    answer.status_code = status
    return answer
