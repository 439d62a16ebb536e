"""How a reply that cannot be read is asked for again, and found again after a restart."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from grpo_practice.core.calls import Chat, Message, Reply, Request, Scope
from grpo_practice.core.errors import ReplyError
from grpo_practice.core.prompts.files import load_prompts
from grpo_practice.core.types import Experience, Lesson, Library, Sample
from grpo_practice.llm.ledgered import Model, ledgered
from grpo_practice.practice.propose import propose
from grpo_practice.practice.replies import read_lessons, read_summary
from grpo_practice.practice.teacher import GroupKey, Teacher
from grpo_practice.store import Store
from tests.fakes import FakeChat
from tests.store.helpers import spec, upload

LIBRARY = Library((Experience(3, "Units: check them."),), 4)
ASKED: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
AB = "When a, do b."
GOOD = f"<lessons><lesson>{AB}</lesson></lessons>"


def teacher(chat: Chat) -> Teacher:
    return Teacher(lambda _: chat, load_prompts(), None, None, True, 2, 0)


async def ask(chat: Chat) -> tuple[Lesson, ...]:
    return await teacher(chat).ask(chat, ASKED, lambda r: read_lessons(r, LIBRARY, limit=2))


def says(*replies: str | None, finish: str = "stop") -> FakeChat:
    left = iter(replies)
    return FakeChat(lambda _: Reply({"role": "assistant", "content": next(left)}, finish))


async def test_asked_again_it_sees_what_was_wrong_at_which_place_and_the_form() -> None:
    wrong = "<lessons><lesson></lesson></lessons>"
    chat = says(wrong, GOOD)
    assert [x.text for x in await ask(chat)] == [AB]
    before, said, again = chat.seen[1][:2], chat.seen[1][2], chat.seen[1][3]
    assert (before, said["content"]) == (ASKED, wrong)
    assert "lessons.0.lesson: it has no text, in: <lesson></lesson>" in again["content"]
    assert '<lesson experience="E3" finding="misled">' in again["content"]


async def test_a_cut_reply_is_asked_for_again_without_sending_it() -> None:
    with pytest.raises(ReplyError) as raised:
        await ask(chat := says("I think", "I think", "I  think so", finish="length"))
    assert str(raised.value) == "it was cut off by the token limit; the teacher said: I think so"
    assert [[m["role"] for m in messages] for messages in chat.seen] == [["system", "user"]] * 3
    assert "token limit\n\nBe shorter. The form asked for" in chat.seen[1][-1]["content"]
    assert len({messages[-1]["content"] for messages in chat.seen}) == 3


async def test_a_failure_shows_the_teachers_last_words() -> None:
    with pytest.raises(ReplyError, match="; the teacher said: I would check units") as raised:
        await ask(says("?", "Hm", "I would check\nunits " + 1_000 * "x"))
    assert len(str(raised.value)) < 400
    assert not raised.value.hint
    with pytest.raises(ReplyError, match=r"^it is empty$"):
        await ask(says("", " ", None))


@pytest.mark.parametrize(
    ("message", "finish", "kind", "said"),
    [
        ({"content": "I would."}, "stop", "unreadable", "no <lessons> block"),
        ({"content": "<think>on and on"}, "stop", "unreadable", "its thinking never ends"),
        ({"content": "<think>on and on"}, "length", "cut", "token limit"),
        ({"content": "<lessons><lesson>Wh"}, "length", "cut", "token limit"),
        ({"content": ""}, "length", "cut", "token limit"),
        ({"content": " "}, "stop", "empty", "it is empty"),
        ({"content": None, "refusal": "I will\nnot."}, "stop", "refused", "refused: I will not."),
        ({"content": ""}, "content_filter", "content_filter", "the provider's filter cut"),
    ],
)
async def test_a_reply_that_is_of_no_use_says_of_which_kind_it_is(
    message: Message, finish: str, kind: str, said: str
) -> None:
    with pytest.raises(ReplyError, match=said) as raised:
        await ask(FakeChat(lambda _: Reply({"role": "assistant", **message}, finish)))
    assert raised.value.kind == kind


async def test_what_can_be_read_is_read_whatever_stands_beside_it() -> None:
    message = {"role": "assistant", "content": GOOD, "refusal": "I will not."}
    assert [x.text for x in await ask(FakeChat(lambda _: Reply(message, "stop")))] == [AB]


@pytest.mark.parametrize(("finish", "kind"), [("stop", "empty"), ("length", "cut")])
def test_a_summary_without_a_text_says_of_which_kind_it_is(finish: str, kind: str) -> None:
    with pytest.raises(ReplyError) as raised:
        read_summary(Reply({"role": "assistant", "content": "<think>so"}, finish))
    assert raised.value.kind == kind


@pytest.mark.parametrize("nothing", ["", " \n", None])
async def test_an_empty_reply_is_asked_for_again_without_sending_it(nothing: str | None) -> None:
    chat = says(nothing, nothing, GOOD)
    assert [x.text for x in await ask(chat)] == [AB]
    assert [[m["role"] for m in messages] for messages in chat.seen] == [["system", "user"]] * 3
    first, second, third = (str(messages[-1]["content"]) for messages in chat.seen)
    assert second.startswith("q\n\nYour reply could not be used: it is empty")
    assert len({first, second, third}) == 3
    assert ASKED[-1]["content"] == "q"  # what was asked is not changed under its owner


async def test_each_ask_has_a_seed_of_its_own() -> None:
    chat = says("?", "?", GOOD)
    await ask(chat)
    assert [options["r"] for options in chat.options] == [0, 1, 2]


class Restarted:
    """Chats of one scope over a store, each as after a restart; counts what is sent."""

    def __init__(self, store: Store) -> None:
        data, _ = upload(store)
        self.branch = store.begin(spec(data))
        with store.invocation(self.branch, "t") as invocation_id:
            self.ledger = store.ledger(self.branch, invocation_id)
        self.replies = iter(["?", "", GOOD])
        self.seeds = list[int]()

    async def send(self, request: Request, *, limit_s: float | None = None) -> Reply:
        self.seeds.append(request.params["seed"])
        return Reply({"role": "assistant", "content": next(self.replies)}, "stop")

    def chat(self) -> Chat:
        made = replace(teacher(says()), chat=self._opened)
        return made.open(GroupKey(self.branch.id, 0, 0, 0), "compare", Sample("q", "4"))

    def _opened(self, scope: Scope) -> Chat:
        model = Model("m", {"temperature": 0.0}, self.send)
        return ledgered(model, self.ledger, lambda _: None)(scope)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.db") as store:
        yield store


async def test_after_a_restart_each_ask_is_found_and_none_is_sent(store: Store) -> None:
    run = Restarted(store)
    first = await ask(run.chat())
    assert len(set(run.seeds)) == 3
    assert await ask(run.chat()) == first
    assert len(run.seeds) == 3


async def test_a_lesson_is_shown_with_the_experience_it_is_about() -> None:
    chat = FakeChat(lambda _: json.dumps({"operations": []}))
    lessons = [Lesson(AB, 1, "E3", "misled"), Lesson("When c, do d.")]
    await propose(teacher(chat), Sample("q"), lessons, LIBRARY, GroupKey(1, 0, 0, 0))
    shown = chat.seen[0][-1]["content"]
    assert "\nWhen a, do b. (about E3: misled)\n" in shown
    assert "\nWhen c, do d.\n" in shown
