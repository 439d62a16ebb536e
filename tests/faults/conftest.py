"""`eval` as a person runs it, against an endpoint that misbehaves."""

import json
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.core.calls import Request
from grpo_practice.llm import client
from grpo_practice.llm.client import Client
from tests.cli.conftest import Gp, Ran, gp
from tests.contract.endpoint.actions import Action, Asked, Script, in_turn, ok
from tests.contract.endpoint.server import FaultServer
from tests.fakes import FakeSleep

__all__ = ["gp"]

GOOD = ok("24")
ASK = Request("m-1", {"seed": 5}, [{"role": "user", "content": "hi"}])
DEADLINE = ("--set", "agent.model.model_settings.extra_args.timeout=1.0")
"""Long enough for a good answer on a busy machine; one that is late is asked for again."""
KEY = "sk-a-key-that-nobody-has-1234"
QUESTIONS = 5


@dataclass(frozen=True)
class Seen:
    """What an `eval` left behind: what a person saw, what was asked, what is stored."""

    ran: Ran
    asked: list[Asked]
    db: Path

    @property
    def code(self) -> int:
        return self.ran.code

    @property
    def told(self) -> dict[str, Any]:
        """The document on stdout; for a command that ended in an error, that error."""
        document = self.ran.document
        found: dict[str, Any] = document.get("error", document)
        return found

    @property
    def outcomes(self) -> dict[str, int]:
        found: dict[str, int] = self.told["outcomes"]
        return found

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        db = sqlite3.connect(self.db)
        try:
            return db.execute(sql).fetchall()
        finally:
            db.close()

    @property
    def first(self) -> dict[str, Any]:
        """The rollout of the first question, with its response and reward."""
        db = sqlite3.connect(self.db)
        db.row_factory = sqlite3.Row
        try:
            row = db.execute(
                """SELECT r.*, b.response, v.reward, v.critique FROM rollouts r
                     JOIN rollout_bodies b USING (rollout_id)
                     LEFT JOIN verdicts v USING (rollout_id)
                    ORDER BY step, slot, attempt LIMIT 1"""
            ).fetchone()
            return dict(row)
        finally:
            db.close()

    @property
    def tries(self) -> list[int]:
        """Of every answered call, in the order they were answered."""
        return [n for (n,) in self.query("SELECT tries FROM calls ORDER BY call_id")]

    @property
    def failures(self) -> list[tuple[Any, ...]]:
        """(kind, HTTP status, tries, maybe_paid) of every request without an answer."""
        return self.query("SELECT kind, http_status, tries, maybe_paid FROM failures ORDER BY 1, 2")


@pytest.fixture(autouse=True)
def _no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> FakeSleep:
    """The seconds that clients wait between tries; none of them passes."""
    sleep = FakeSleep()
    monkeypatch.setattr(client, "Client", partial(Client, sleep=sleep))
    return sleep


Evaluate = Callable[..., Seen]


@pytest.fixture
def evaluate(gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: FakeSleep) -> Evaluate:
    """Runs `eval` on five questions, each answered by 24, one at a time unless told otherwise."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    rows = [{"question": f"Which number is {i}?", "answer": "24"} for i in range(QUESTIONS)]
    (tmp_path / "five.jsonl").write_text("\n".join(json.dumps(row) for row in rows))

    def run(server: FaultServer, *words: str, json: bool = True) -> Seen:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        told = ["--model", "m-1", "--dataset", "five.jsonl", "--verify", "exact"]
        if "--concurrency" not in words:
            told += ["--concurrency", "1"]
        before = len(server.asked)
        ran = gp("eval", *told, *words, *(["--json"] if json else []))
        return Seen(ran, server.asked[before:], tmp_path / "grpo-practice.db")

    return run


def question(asked: Asked) -> int:
    """Which of the five questions a request is about."""
    text: str = asked.body["messages"][-1]["content"]
    return int("".join(filter(str.isdigit, text)))


def of_first_question(*actions: Action) -> Script:
    """These in turn for the first question, the last for ever; the others are answered."""
    left = list(actions)

    def script(asked: Asked) -> Action:
        if question(asked) != 0:
            return GOOD
        return left.pop(0) if len(left) > 1 else left[0]

    return script


def each_then_good(*faults: Action, good: Action = GOOD) -> Script:
    """Each of them once, a good answer after each, and good answers from there on."""
    return in_turn(*(action for fault in faults for action in (fault, good)))
