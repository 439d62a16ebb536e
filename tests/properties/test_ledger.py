"""A call is found again by what was asked and where, and by nothing else."""

import asyncio
import itertools
import json
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from grpo_practice.core.calls import Address, Entry, Reply, Scope, Usage
from grpo_practice.core.hashing import Chain, canon, clean_json, derive_seed, digest
from grpo_practice.core.stages import Stage
from grpo_practice.store import Store
from tests.properties.texts import BROKEN, JSON, OBJECTS, TEXTS, nested
from tests.store.helpers import spec, upload

STAGES = get_args(Stage)
MESSAGES = st.lists(
    st.fixed_dictionaries({}, optional={"role": TEXTS, "content": st.none() | TEXTS})
    | st.dictionaries(
        st.sampled_from(["role", "content", "name", "tool_calls"]) | TEXTS, JSON, max_size=3
    ),
    max_size=3,
)


def spelt(message: dict[str, Any]) -> dict[str, Any]:
    """The message as it counts: a key that is null is as good as none, but for `content`."""
    return {k: v for k, v in message.items() if v is not None or k == "content"}


def shuffled(value: Any, draw: st.DrawFn) -> Any:
    """The same value with every mapping's keys in another order."""
    if isinstance(value, dict):
        keys = draw(st.permutations(list(value)))
        return {key: shuffled(value[key], draw) for key in keys}
    return [shuffled(v, draw) for v in value] if isinstance(value, list) else value


def same(a: Any, b: Any) -> bool:
    """Equal as JSON: 1, 1.0 and true are three values, and keys have no order."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and repr(a) == repr(b)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Any, Any]:
    """Two values that are equal, nearly equal, or not."""
    one = draw(JSON)
    match draw(st.sampled_from(["shuffled", "read back", "number", "other"])):
        case "shuffled":
            return one, shuffled(one, draw)
        case "read back":
            return one, json.loads(json.dumps(one))
        case "number":
            n = draw(st.integers(-3, 3))
            return [n, one], [draw(st.sampled_from([float(n), str(n), bool(n), n])), one]
        case _:
            return one, draw(JSON)


@given(pairs())
def test_equal_values_and_only_they_have_equal_hashes(pair: tuple[Any, Any]) -> None:
    a, b = pair
    assert (digest(a) == digest(b)) == same(a, b)
    assert same(json.loads(canon(a)), a)
    event("equal" if same(a, b) else "different")


@given(nested(BROKEN, BROKEN))
def test_what_is_cleaned_can_be_hashed_and_changes_no_more(value: Any) -> None:
    clean = clean_json(value)
    canon(clean)
    assert clean_json(clean) == clean
    try:
        canon(value)
    except UnicodeEncodeError:
        event("broken")
    else:
        event("whole")
        assert clean == value


@given(OBJECTS, MESSAGES, st.integers(0, 9))
def test_a_chain_goes_on_where_it_was(
    head: dict[str, Any], messages: list[dict[str, Any]], cut: int
) -> None:
    whole = Chain(head)
    states = whole.extend(messages)
    part = Chain(head)
    assert part.extend(messages[:cut]) == states[:cut]
    assert part.extend(messages[cut:]) == states[cut:]
    assert part.state == whole.state
    dropped = Chain(dict(reversed(head.items())))
    dropped.extend({**m, "refusal": m.get("refusal")} for m in messages)
    assert dropped.state == whole.state


@given(OBJECTS, MESSAGES, OBJECTS, MESSAGES)
def test_other_requests_have_other_hashes(
    head: dict[str, Any],
    messages: list[dict[str, Any]],
    other: dict[str, Any],
    said: list[dict[str, Any]],
) -> None:
    def state(head: dict[str, Any], messages: list[dict[str, Any]]) -> bytes:
        chain = Chain(head)
        chain.extend(messages)
        return chain.state

    silent = [{k: v for k, v in m.items() if v is not None} for m in messages]
    for h, ms in ((other, messages), (head, said), (head, messages[:-1]), (head, silent)):
        equal = same([head, list(map(spelt, messages))], [h, list(map(spelt, ms))])
        assert (state(h, ms) == state(head, messages)) == equal


SEEDS = st.tuples(
    st.integers(), st.sampled_from(STAGES), st.text("0123456789abcdef", max_size=4),
    st.integers(0, 9), st.integers(-1, 9), st.integers(0, 3),
)  # fmt: skip


@given(SEEDS, st.integers(0, 5), SEEDS)
def test_a_seed_depends_on_each_part_and_on_nothing_else(
    parts: tuple[Any, ...], at: int, others: tuple[Any, ...]
) -> None:
    seed = derive_seed(*parts)
    assert 0 <= seed < 2**31
    assert derive_seed(*parts) == seed
    changed = (*parts[:at], others[at], *parts[at + 1 :])
    assert (derive_seed(*changed) == seed) == (changed == parts)
    run_seed, stage, sample, epoch, attempt, r = parts
    for place in (Address(1, 0, 0, attempt, stage), Address(2, 7, 3, attempt, stage)):
        assert Scope(place, run_seed, sample, epoch).seed(r) == seed


COUNTS = st.none() | st.integers(0, 2**62)
USAGES = st.builds(Usage, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
REPLIES = st.builds(
    Reply,
    message=st.dictionaries(BROKEN, nested(JSON | BROKEN, BROKEN), max_size=3).map(clean_json)
    | st.just({"content": "long " * 300}),
    finish=st.none() | TEXTS,
    usage=USAGES,
    answered_by=TEXTS,
    price=st.none() | TEXTS,
    seeded=st.booleans(),
    tries=st.integers(1, 9),
    seconds=st.floats(0, 1e6),
)
PLACES = st.tuples(
    st.integers(0, 2), st.integers(-1, 2), st.integers(-1, 2), st.sampled_from(STAGES),
    st.binary(min_size=16, max_size=16) | st.just(b"h" * 16), st.integers(0, 2),
)  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("store") / "s.db") as store:
        yield store


RUNS = itertools.count()


@given(calls=st.dictionaries(PLACES, REPLIES, min_size=1, max_size=4), others=st.lists(PLACES))
def test_a_reply_is_found_at_its_own_place_as_it_was(
    store: Store, calls: dict[tuple[Any, ...], Reply], others: list[tuple[Any, ...]]
) -> None:
    asyncio.run(_found(store, calls, others))


async def _found(
    store: Store, calls: dict[tuple[Any, ...], Reply], others: list[tuple[Any, ...]]
) -> None:
    data, _ = upload(store)
    branch = store.begin(spec(data, f"r{next(RUNS)}"))
    with store.invocation(branch, "t") as invocation_id:
        ledger = store.ledger(branch, invocation_id)
        ids = {}
        for (step, slot, attempt, stage, request_hash, nth), reply in calls.items():
            address = Address(branch.id, step, slot, attempt, stage)
            entry = Entry(address, request_hash, nth, 0, None, b"{}", b"[]", "m", reply)
            ids[address, request_hash, nth] = await ledger.put(entry)
        for step, slot, attempt, stage, request_hash, nth in {*calls, *others}:
            told = calls.get((step, slot, attempt, stage, request_hash, nth))
            address = Address(branch.id, step, slot, attempt, stage)
            found = await ledger.get(address, request_hash, nth)
            if told is None:
                assert found is None
                continue
            assert found is not None
            assert same(found.message, told.message)
            assert found.replayed
            assert found.call_id == ids[address, request_hash, nth]
            for name in ("finish", "usage", "answered_by", "price", "seeded", "tries", "seconds"):
                assert getattr(found, name) == getattr(told, name), name
    event("compressed" if any(len(canon(r.message)) > 600 for r in calls.values()) else "plain")
