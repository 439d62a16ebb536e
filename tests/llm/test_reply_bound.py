"""How long a teacher's reply may be, if its settings do not say."""

from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.calls import Address, Chat, Message, Reply, Request, Scope, Usage
from grpo_practice.core.errors import ContextOverflowError
from grpo_practice.core.stages import STAGES, Stage
from grpo_practice.llm.ledgered import Model, ledgered
from grpo_practice.llm.reply_bound import ROOM
from grpo_practice.store import Store
from tests.store.helpers import spec, upload

Q: list[Message] = [{"role": "user", "content": "q"}]


class Asked:
    """A model behind the ledger of a run; keeps the limits it was sent."""

    def __init__(self, folder: Path, params: dict[str, Any] | None = None) -> None:
        self.store = Store(folder / "s.db")
        self.branch = self.store.begin(spec(upload(self.store)[0]))
        self.model = Model("m", params or {}, self._send)
        self.limits = list[int | None]()
        self.reply = Reply({"role": "assistant", "content": "a"}, "stop")
        self.context: int | None = None
        self.fits = True

    async def _send(self, request: Request, *, limit_s: float | None = None) -> Reply:
        self.limits.append(most := request.params.get("max_tokens"))
        large = self.context is not None and most is not None and most > self.context
        if large or not self.fits:
            raise ContextOverflowError("max_tokens is too large", status=400)
        return self.reply

    def chat(self, stage: Stage, attempt: int = -1) -> Chat:
        """A new play of a scope, as after a restart."""
        with self.store.invocation(self.branch, "t") as invocation_id:
            ledger = self.store.ledger(self.branch, invocation_id)
        address = Address(self.branch.id, 0, 0, attempt, stage)
        return ledgered(self.model, ledger, lambda _: None)(Scope(address, 0, "sha", 0))


@pytest.mark.parametrize("stage", ["summarise", "compare", "propose", "merge", "direct"])
async def test_a_teachers_reply_has_a_limit_that_grows_when_it_is_asked_again(
    tmp_path: Path, stage: Stage
) -> None:
    asked = Asked(tmp_path)
    chat = asked.chat(stage)
    for r in range(3):
        await chat(Q, r=r)
    usual = STAGES[stage].tokens_out[1]
    assert asked.limits == [ROOM * usual * (r + 1) for r in range(3)]


@pytest.mark.parametrize("stage", ["play", "judge"])
async def test_no_other_reply_has_a_limit_that_was_not_set(tmp_path: Path, stage: Stage) -> None:
    asked = Asked(tmp_path)
    await asked.chat(stage)(Q)
    assert asked.limits == [None]


async def test_a_limit_or_an_effort_in_the_settings_stays_alone(tmp_path: Path) -> None:
    settings: list[dict[str, Any]] = [{"max_tokens": 9}, {"reasoning_effort": "high"}]
    for i, params in enumerate(settings):
        (folder := tmp_path / str(i)).mkdir()
        asked = Asked(folder, params)
        await asked.chat("compare")(Q)
        assert asked.limits == [params.get("max_tokens")]


THOUGHT = [
    Reply({"content": "a", "reasoning_content": "hm"}, "stop"),
    Reply({"content": [{"type": "thinking", "text": "hm"}]}, "length"),
    Reply({"content": "<think>hm"}, "length"),
    Reply({"content": "a"}, "stop", Usage(1, None, 9, 9)),
    Reply({"content": ""}, "length"),
]


@pytest.mark.parametrize("reply", THOUGHT)
async def test_a_model_that_thinks_has_no_limit_from_its_first_reply_on(
    tmp_path: Path, reply: Reply
) -> None:
    asked = Asked(tmp_path)
    asked.reply = reply
    chat = asked.chat("compare")
    await chat(Q)
    await chat(Q, r=1)
    assert asked.limits[1:] == [None]


async def test_a_limit_that_the_context_has_no_room_for_is_left_out(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.context = 1_000
    chat = asked.chat("compare")
    assert (await chat(Q)).content == "a"
    await chat(Q, r=1)
    assert asked.limits == [2_400, None, None]
    with asked.store as store:
        assert store.read(lambda db: db.execute("SELECT count(*) FROM failures").fetchone()[0]) == 0


async def test_a_prompt_that_is_too_long_itself_leaves_the_limit_on(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.fits = False
    with pytest.raises(ContextOverflowError):
        await asked.chat("compare")(Q)
    asked.fits = True
    await asked.chat("compare", 1)(Q)
    assert asked.limits == [2_400, None, 2_400]


async def test_a_reply_that_was_stored_without_a_limit_is_found(tmp_path: Path) -> None:
    asked = Asked(tmp_path)
    asked.model.bound.is_on = False
    await asked.chat("compare")(Q)
    asked.model.bound.is_on = True
    assert (await asked.chat("compare")(Q)).replayed
    assert asked.limits == [None]
