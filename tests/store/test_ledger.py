"""The ledger: found again by where and what was asked; committed before it is used."""

import asyncio
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from grpo_practice.core.calls import Address, Chat, Message, Reply, Request, Scope, Usage
from grpo_practice.core.errors import ConnectionFault, ContextOverflowError, EndpointError
from grpo_practice.core.events import CallFinished, Event
from grpo_practice.core.hashing import canon
from grpo_practice.core.stages import Stage
from grpo_practice.llm.http_response import ConnectionFailure
from grpo_practice.llm.ledgered import Model, ledgered
from grpo_practice.llm.retry_policy import decide_broken
from grpo_practice.store import Store, rollouts
from grpo_practice.store import ledger as ledger_module
from grpo_practice.store.queries import run_health
from grpo_practice.store.records import Branch
from tests.store.helpers import spec, upload


class Endpoint:
    """A `Send` that numbers its answers and keeps what it was asked."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.broken = False
        self.cancels = False
        """Everything is cancelled in the moment the answer is there."""

    async def __call__(self, request: Request, *, limit_s: float | None = None) -> Reply:
        self.seen.append(request)
        if self.broken:
            raise EndpointError("down", maybe_paid=True, tries=3, status=503)
        if self.cancels:
            for task in asyncio.all_tasks():
                task.cancel()
        text = f"answer {len(self.seen)} " + "long " * 200
        return Reply(
            {"role": "assistant", "content": text, "reasoning_content": "hm"},
            "stop",
            Usage(3, None, 4, None),
            "m@h",
            seconds=0.5,
        )


class Run:
    """A branch and chats on it; `play()` is a fresh play of a scope, as after a restart."""

    def __init__(self, store: Store, branch: Branch) -> None:
        self.store, self.branch, self.endpoint = store, branch, Endpoint()
        self.events: list[Event] = []

    def play(self, attempt: int = 0, stage: Stage = "play") -> Chat:
        with self.store.invocation(self.branch, "t") as invocation_id:
            ledger = self.store.ledger(self.branch, invocation_id)
        model = Model("m", {"temperature": 0.7}, self.endpoint)
        address = Address(self.branch.id, 0, 0, attempt, stage)
        return ledgered(model, ledger, self.events.append)(Scope(address, 0, "sha", 0))


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    with Store(tmp_path / "s.db") as store:
        data, _ = upload(store)
        yield Run(store, store.begin(spec(data)))


Q: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]


async def test_what_was_answered_is_not_asked_again(run: Run) -> None:
    first = await run.play()(Q)
    again = await run.play()(Q)
    assert len(run.endpoint.seen) == 1
    assert (again.message, again.finish, again.usage, again.answered_by, again.seconds) == (
        first.message,
        first.finish,
        first.usage,
        first.answered_by,
        first.seconds,
    )
    assert [e.replayed for e in run.events if isinstance(e, CallFinished)] == [False, True]


async def test_attempts_carry_different_seeds_and_do_not_share_answers(run: Run) -> None:
    await run.play(0)(Q)
    await run.play(1)(Q)
    seeds = [r.params["seed"] for r in run.endpoint.seen]
    assert len(set(seeds)) == 2


async def test_an_equal_request_within_one_play_is_another_call(run: Run) -> None:
    chat = run.play()
    texts = [(await chat(Q)).content, (await chat(Q)).content]
    assert len(set(texts)) == 2
    replay = run.play()
    assert [(await replay(Q)).content, (await replay(Q)).content] == texts
    assert len(run.endpoint.seen) == 2


async def test_a_resample_carries_another_seed(run: Run) -> None:
    chat = run.play()
    await chat(Q)
    await chat(Q, r=1)
    assert run.endpoint.seen[0].params["seed"] != run.endpoint.seen[1].params["seed"]


async def test_each_message_is_stored_once_and_the_transcript_is_whole(run: Run) -> None:
    chat = run.play()
    first = await chat(Q)
    longer = [*Q, first.message, {"role": "user", "content": "again"}]
    second = await chat(longer)

    def bodies(db: sqlite3.Connection) -> list[tuple[int | None, list[Message]]]:
        sql = "SELECT prev_call_id, request, codec FROM calls JOIN call_bodies USING (call_id)"
        return [(p, rollouts.unpack(r, c)) for p, r, c in db.execute(sql)]

    assert run.store.read(bodies) == [
        (None, Q),
        (first.call_id, [{"role": "user", "content": "again"}]),
    ]
    place = (run.branch.id, 0, 0, 0)
    assert run.store.read(rollouts.transcript, place, ()) == [*longer, second.message]


async def test_the_settings_of_a_stage_are_stored_once(run: Run) -> None:
    for attempt in range(3):
        await run.play(attempt)(Q)
    sql = "SELECT DISTINCT body FROM call_bodies JOIN texts ON sha256 = params"
    heads = run.store.read(lambda db: [row[0] for row in db.execute(sql)])
    assert heads == [canon({"model": "m", "params": {"temperature": 0.7}}).decode()]


def test_what_was_answered_is_stored_though_everything_is_cancelled_then(run: Run) -> None:
    run.endpoint.cancels = True
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(ask(run))
    assert replayed(run) == [False], "it is told, too"
    run.endpoint.cancels = False
    asyncio.run(ask(run))
    assert len(run.endpoint.seen) == 1
    assert replayed(run) == [False, True]


def replayed(run: Run) -> list[bool]:
    """Of each call that was told."""
    return [e.replayed for e in run.events if isinstance(e, CallFinished)]


async def ask(run: Run) -> None:
    await run.play()(Q)


async def test_an_unanswered_request_is_on_record_and_asked_again(run: Run) -> None:
    run.endpoint.broken = True
    with pytest.raises(EndpointError):
        await run.play()(Q)
    run.store.flush()
    row = run.store.read(
        lambda db: tuple(
            db.execute("SELECT kind, http_status, tries, maybe_paid FROM failures").fetchone()
        )
    )
    assert row == ("provider", 503, 3, 1)
    run.endpoint.broken = False
    await run.play()(Q)
    assert len(run.endpoint.seen) == 2


def broken(kind: ConnectionFault) -> EndpointError:
    """Return what is filed for a connection that broke, in other words than any version's."""
    error = decide_broken(ConnectionFailure(kind, "why", "http://h/v1"), answered=True).error
    if isinstance(error, EndpointError):
        return EndpointError("reworded", broken=error.broken)
    return ended("endpoint", "reworded", broken=error.broken)


def ended(
    kind: str,
    message: str = "",
    status: int | None = None,
    broken: ConnectionFault | None = None,
) -> EndpointError:
    """The record of a request that another exception ended."""
    error = EndpointError(message, status=status, broken=broken)
    error.kind = kind
    return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (EndpointError("http://h/v1: HTTP 503, busy", status=503), "HTTP 503"),
        (EndpointError("http://h/v1: HTTP 400, odd", status=400), "HTTP 400"),
        (EndpointError("http://h/v1: HTTP 200 with no choices"), "no usable answer"),
        (broken("cut"), "cut"),
        (broken("deadline"), "deadline"),
        (broken("connect"), "refused"),
        (broken("proxy"), "refused"),
        (broken("tls"), "refused"),
        (ended("endpoint", "http://h/v1 refused the API key", 401), "HTTP 401"),
        (EndpointError("the connection broke: so says the answer's body"), "no usable answer"),
        (ContextOverflowError("too long", status=400), "context overflow"),
        (ended("deadline", "no answer within 5 s"), "deadline"),
        (ended("cancelled", "it was cancelled", 503), "cancelled"),
        (ended("interrupted", "stopped by SIGINT"), "cancelled"),
        (ended("paused", "--max-cost"), "paused"),
        (ended("internal", "oops"), "internal"),
    ],
)
async def test_a_failure_is_told_by_what_the_endpoint_did(
    run: Run, error: EndpointError, said: str
) -> None:
    with run.store.invocation(run.branch, "t") as invocation_id:
        ledger = run.store.ledger(run.branch, invocation_id)
        ledger.fail(Address(run.branch.id, 0, 0, 0, "play"), error)
        ledger.fail(Address(run.branch.id, 0, 1, 0, "play"), error)
    run.store.flush()
    assert run.store.read(run_health.health_of, run.branch).unanswered == {said: 2}


async def test_lone_surrogates_are_replaced_before_they_are_sent_or_hashed(run: Run) -> None:
    await run.play()([{"role": "user", "content": "a\ud800"}])
    assert run.endpoint.seen[0].messages == [{"role": "user", "content": "a\ufffd"}]
    assert (await run.play()([{"role": "user", "content": "a\ufffd"}])).replayed


async def test_a_branch_that_took_anothers_place_uses_its_calls(run: Run) -> None:
    await run.play()(Q)
    data = run.branch.dataset_id
    changed = Run(run.store, run.store.begin(spec(data, identity={"a": 2})))
    assert (await changed.play()(Q)).replayed
    assert changed.endpoint.seen == []


async def test_a_stored_call_that_no_longer_fits_is_counted_with_the_reason(run: Run) -> None:
    await run.play()(Q)
    with run.store.invocation(run.branch, "t") as invocation_id:
        ledger = run.store.ledger(run.branch, invocation_id)
    scope = Scope(Address(run.branch.id, 0, 0, 0, "play"), 0, "sha", 0)
    warmer = Model("m", {"temperature": 0.8}, run.endpoint)
    await ledgered(warmer, ledger, run.events.append)(scope)(Q)
    assert dict(ledger.unused) == {"the settings of their requests have changed": 1}
    other = ledgered(Model("m", {"temperature": 0.7}, run.endpoint), ledger, run.events.append)
    chat = other(scope)
    first = await chat(Q)
    assert first.replayed
    await chat([*Q, first.message, {"role": "user", "content": "a second turn is new"}])
    assert ledger.unused.total() == 1


async def test_a_call_that_another_run_made_here_was_not_meant_to_serve(run: Run) -> None:
    other = run.store.begin(spec(run.branch.dataset_id, "other"))
    scope = Scope(Address(run.branch.id, 0, 0, 0, "judge"), 0, "sha", 0)
    model = Model("m", {"temperature": 0.7}, run.endpoint)
    unused = []
    for branch, question in [(other, "theirs"), (run.branch, "mine"), (run.branch, "changed")]:
        with run.store.invocation(branch, "t") as invocation_id:
            ledger = run.store.ledger(branch, invocation_id)
        chat = ledgered(model, ledger, run.events.append)(scope)
        await chat([{"role": "user", "content": question}])
        unused.append(ledger.unused.total())
    assert unused == [0, 0, 1]


async def test_a_new_step_costs_one_question_to_the_database_and_an_old_one_is_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with run.store.invocation(run.branch, "t") as invocation_id:
        ledger = run.store.ledger(run.branch, invocation_id)
    asked: list[str] = []
    run.store.read(lambda db: db.set_trace_callback(asked.append))

    def chat(step: int, attempt: int, stage: Stage = "play") -> Chat:
        address = Address(run.branch.id, step, 0, attempt, stage)
        scope = Scope(address, 0, "sha", 0)
        return ledgered(Model("m", {}, run.endpoint), ledger, run.events.append)(scope)

    for attempt in range(5):
        assert not (await chat(0, attempt)(Q)).replayed
    assert len(asked) == 1
    assert (await chat(0, 3)(Q)).replayed  # played once more by the same command
    monkeypatch.setattr(ledger_module, "REMEMBERED", 1)
    await chat(1, 0)(Q)
    assert (await chat(0, 4)(Q)).replayed  # forgotten, so asked
    other = run.store.ledger(run.branch, invocation_id)  # another run's, at the same rollout
    model = Model("m", {}, run.endpoint)
    scope = Scope(Address(run.branch.id, 9, 0, 0, "judge"), 0, "sha", 0)
    assert not (await chat(9, 0)(Q)).replayed
    await ledgered(model, other, run.events.append)(scope)(Q)
    assert (await chat(9, 0, "judge")(Q)).replayed
