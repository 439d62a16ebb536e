"""Whatever a teacher replies, the library stays one: labels are never given twice."""

import asyncio
import itertools
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from grpo_practice.core.calls import Reply
from grpo_practice.core.errors import ReplyError
from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.types import Experience, Library, Operation
from grpo_practice.practice.merge import apply, edits
from grpo_practice.practice.replies import read_lessons, read_operations, read_summary
from grpo_practice.store import Store
from grpo_practice.store.libraries import edited, load
from grpo_practice.store.records import StepResult
from tests.properties.texts import BROKEN, JSON, TEXTS
from tests.store.helpers import planned, plans, spec, upload

LABELS = st.lists(st.integers(1, 6), unique=True, max_size=4)
LINES = TEXTS.map(lambda text: " ".join(text.split()) or "Name: do it.")


@st.composite
def libraries(draw: st.DrawFn) -> Library:
    labels = draw(LABELS)
    items = tuple(Experience(label, draw(LINES)) for label in labels)
    return Library(items, 1 + max(labels, default=0) + draw(st.integers(0, 3)))


IDS = st.integers(0, 8).map("E{}".format)
SENTENCES = st.builds("{}: Do {} first.".format, st.sampled_from("ABCDEFGH"), st.integers(0, 99))
SOUND = (
    st.fixed_dictionaries({"op": st.just("ADD"), "text": SENTENCES})
    | st.fixed_dictionaries({"op": st.just("UPDATE"), "id": IDS, "text": SENTENCES})
    | st.fixed_dictionaries({"op": st.just("DELETE"), "id": IDS})
)
WILD = st.fixed_dictionaries(
    {"op": st.sampled_from(["ADD", "UPDATE", "DELETE", "NONE"])},
    optional={
        "id": st.none() | IDS | st.sampled_from(["E01", "e1", "E-1", "E1 ", "1"]),
        "text": st.none()
        | TEXTS
        | BROKEN.map("A: {}".format)
        | st.just("x" * 501)
        | st.just("Name: one of few."),
        "from": st.lists(
            st.sampled_from(["P1", "P2", "P0", "P999999", "E1", "P²", ""]), max_size=3
        ),
    },
)
OPERATIONS = st.fixed_dictionaries({"operations": st.lists(SOUND | WILD, max_size=12)})
LIMITS = st.just(9) | st.integers(0, 5)
AROUND = st.sampled_from(
    ["", "Sure!\n```json\n", "{", "<think>{", "<think>x</think>", "\n```", ",}"]
)


@st.composite
def replies(draw: st.DrawFn) -> Reply:
    """A reply of any shape: prose, fences, cut or broken JSON, parts, nothing at all."""
    body = draw(OPERATIONS | st.fixed_dictionaries({"lessons": JSON}) | JSON)
    text = json.dumps(body, ensure_ascii=draw(st.booleans()))
    if draw(st.integers(0, 4)) == 0:
        text = text[: draw(st.integers(0, len(text)))]
    content: Any = draw(AROUND) + text + draw(AROUND)
    shape = draw(st.sampled_from(["text", "text", "text", "parts", "broken", "any"]))
    if shape == "parts":
        content = [{"type": "text", "text": content}, draw(JSON)]
    elif shape == "broken":
        content = draw(BROKEN) + content
    elif shape == "any":
        content = draw(JSON)
    return Reply({"role": "assistant", "content": content})


def model(library: Library, operations: Sequence[Operation]) -> list[tuple[int, str]]:
    """The next library, worked out the plain way."""
    items = [(e.label, e.text) for e in library.experiences]
    label = library.next_label
    for op in operations:
        if op.refused is not None:
            continue
        if op.op == "ADD":
            items.append((label, str(op.text)))
            label += 1
        elif op.op == "UPDATE":
            items = [(n, str(op.text) if f"E{n}" == op.target else text) for n, text in items]
        elif op.op == "DELETE":
            items = [(n, text) for n, text in items if f"E{n}" != op.target]
    return items


@given(replies(), libraries(), LIMITS, st.integers(0, 3))
def test_a_reply_of_any_shape_is_read_or_refused(
    reply: Reply, library: Library, limit: int, proposals: int
) -> None:
    for read in (
        lambda: read_operations(reply, library, limit=limit, proposals=proposals),
        lambda: read_lessons(reply, library, limit=limit),
        lambda: read_summary(reply),
    ):
        refused = False
        try:
            read()
        except ReplyError:
            refused = True
        event("refused" if refused else "read")


@given(OPERATIONS, libraries(), LIMITS, st.integers(0, 3))
def test_what_is_applied_is_what_was_taken_and_nothing_else(
    body: dict[str, Any], library: Library, limit: int, proposals: int
) -> None:
    reply = Reply({"role": "assistant", "content": json.dumps(body)})
    operations = read_operations(reply, library, limit=limit, proposals=proposals)
    after = apply(library, operations)
    taken = [op for op in operations if op.refused is None]
    added = [op for op in taken if op.op == "ADD"]
    assert len(operations) == len(body["operations"])
    assert len(taken) <= limit
    assert all(0 <= n < proposals for op in operations for n in op.from_ops)
    assert [(e.label, e.text) for e in after.experiences] == model(library, operations)
    assert after.next_label == library.next_label + len(added)
    labels = [e.label for e in after.experiences]
    assert len(set(labels)) == len(labels)
    assert all(label < after.next_label for label in labels)
    assert set(labels) <= {e.label for e in library.experiences} | set(
        range(library.next_label, after.next_label)
    )
    assert all(e.text == " ".join(e.text.split()) for e in after.experiences)
    library_sha(after)  # no half of a pair, which nothing could store
    assert apply(library, [op for op in operations if op.refused is not None]) == library
    event(f"taken {min(len(taken), 2)}, refused {min(len(operations) - len(taken), 2)}")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("store") / "s.db") as store:
        yield store


RUNS = itertools.count()


@given(start=libraries(), bodies=st.lists(OPERATIONS, min_size=1, max_size=3))
def test_a_closed_step_gives_the_library_that_was_applied(
    store: Store, start: Library, bodies: list[dict[str, Any]]
) -> None:
    asyncio.run(_closed(store, start, bodies))


async def _closed(store: Store, start: Library, bodies: list[dict[str, Any]]) -> None:
    data, ids = upload(store)
    run = spec(data, f"r{next(RUNS)}", library=start)
    branch = store.begin(run, plan=planned(plans(ids, len(bodies))))
    library = branch.library
    assert library.experiences == start.experiences
    given_away = {e.label for e in library.experiences}
    for step, body in enumerate(bodies):
        reply = Reply({"role": "assistant", "content": json.dumps(body)})
        merged = read_operations(reply, library, limit=9)
        made = edits(library, merged)
        after = edited(library, made)
        await store.open_step(branch, step, library.id)
        result = StepResult((), (), made, after, {})
        stored = store.read(load, await store.close_practice(branch, step, result))
        assert (stored.experiences, stored.next_label) == (after.experiences, after.next_label)
        new = {e.label for e in after.experiences} - {e.label for e in library.experiences}
        assert not new & given_away
        given_away |= new
        library = stored
