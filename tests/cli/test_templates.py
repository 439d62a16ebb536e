"""A template that would run Python is refused by each command, before anything is asked."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice.core.hashing import text_sha
from grpo_practice.store.db import put_text
from tests.cli.conftest import Gp, Ran

DB = "grpo-practice.db"
EVIL = "{{ error }}\n{{ lipsum.__globals__.os.system('touch marker') }}\n"
JUDGE = EVIL.replace("error", "response")
FAULT = "line 2: a call is not allowed in a prompt"


@pytest.fixture
def cold(demo: Gp) -> Iterator[Gp]:
    """`gp` in a folder with a template of a stranger, which is not run, and no model is asked."""
    Path("prompts").mkdir()
    Path("prompts/reask.md").write_text(EVIL)
    Path("t.md").write_text(JUDGE)
    yield demo
    assert not Path("marker").exists()


def calls() -> int:
    with closing(sqlite3.connect(DB)) as db:
        return int(db.execute("SELECT count(*) FROM calls").fetchone()[0])


def said(ran: Ran) -> str:
    return " ".join((ran.out + ran.err).split())


OWN = ("--config", "practice.yaml", "--set", "practice.prompts_dir=prompts")
PROVIDER = '{model: m, base_url: "http://127.0.0.1:9/v1", api_key: EMPTY}'
TEACHER = ("--set", f"practice.teacher_model={{model_provider: {PROVIDER}}}")
JUDGED = ("--config", "practice.yaml", "--set", "evaluation.verify={name: judge, template: t.md}")


@pytest.mark.parametrize(
    "words",
    [
        ("practice", "--exp-id", "new"),
        ("practice", "--exp-id", "new", "--dry-run"),
        ("config", "validate"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_a_prompt_of_ones_own_that_runs_python_is_refused(cold: Gp, words: tuple[str, ...]) -> None:
    before = calls()
    ran = cold(*words, *OWN, *TEACHER)
    assert ran.code == 2
    assert f"prompts/reask.md: not a valid prompt template: {FAULT}" in said(ran)
    assert "a prompt may have {{ slot }}" in said(ran)
    assert calls() == before


@pytest.mark.parametrize("words", [("practice", "--exp-id", "new"), ("config", "validate")])
def test_a_simulated_teacher_takes_no_other_prompts(cold: Gp, words: tuple[str, ...]) -> None:
    before = calls()
    ran = cold(*words, *OWN)
    assert ran.code == 2
    assert "prompts_dir: the simulated teacher reads only the shipped prompts" in said(ran)
    assert "name a real model in practice.teacher_model" in said(ran)
    assert calls() == before


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "--again"),
        ("eval", "--again", "--dry-run"),
        ("practice", "--exp-id", "new"),
        ("practice", "--exp-id", "new", "--dry-run"),
        ("config", "validate"),
        ("doctor",),
    ],
    ids=" ".join,
)
def test_a_judges_template_that_runs_python_is_refused(cold: Gp, words: tuple[str, ...]) -> None:
    before = calls()
    ran = cold(*words, *JUDGED)
    assert ran.code == 2
    assert f"t.md: not a valid prompt template: {FAULT}" in said(ran)
    assert calls() == before


def plant(run: str) -> None:
    """Give a run a prompt of a stranger, so that the database is whole."""
    with closing(sqlite3.connect(DB)) as db, db:
        db.row_factory = sqlite3.Row
        row = db.execute("SELECT head_branch FROM runs WHERE run_id = ?", (run,)).fetchone()
        at = "FROM branches WHERE branch_id = ?"
        prompts = json.loads(db.execute(f"SELECT prompts {at}", (row[0],)).fetchone()[0])
        prompts["reask"] = put_text(db, EVIL, text_sha(EVIL)).hex()
        db.execute(
            "UPDATE branches SET prompts = ? WHERE branch_id = ?", (json.dumps(prompts), row[0])
        )


_PAUSED: list[bytes] = []
"""Database with a run that is not complete; it is played once."""


@pytest.fixture
def paused(cold: Gp) -> Gp:
    """`gp` beside a run that is not complete, and that a stranger has given a prompt."""
    if not _PAUSED:
        ran = cold("practice", "--config", "practice.yaml", "--exp-id", "p", "--max-requests", "60")
        assert ran.code == 6, ran.err
        plant("p")
        assert cold("db", "backup", "copy.db").code == 0
        _PAUSED.append(Path("copy.db").read_bytes())
    Path(DB).write_bytes(_PAUSED[0])
    return cold


@pytest.mark.long_after(2)
@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("practice", "--config", "practice.yaml", "--exp-id", "p"), 2),
        (("practice", "--config", "practice.yaml", "--exp-id", "p", "--dry-run"), 2),
        (("practice",), 2),
        (("doctor", "--config", "practice.yaml", "--set", "exp_id=p"), 2),
        (("doctor",), 2),
        (("db", "check"), 7),
    ],
    ids=str,
)
def test_a_stored_prompt_that_runs_python_is_refused(
    paused: Gp, words: tuple[str, ...], code: int
) -> None:
    before = calls()
    ran = paused(*words)
    assert "the prompt 'reask' stored with run p: " in said(ran)
    assert FAULT in said(ran)
    assert ran.code == code
    if code == 2:
        assert "--restart-step 0" in said(ran)
    assert calls() == before


@pytest.mark.long
def test_the_way_out_is_one(paused: Gp) -> None:
    words = ("practice", "--config", "practice.yaml", "--exp-id", "p", "--restart-step", "0")
    ran = paused(*words)
    assert ran.code == 0, ran.err


def test_a_run_that_is_complete_is_read_whatever_its_prompts_are(cold: Gp) -> None:
    plant("demo")
    for words in (("practice",), ("runs", "show", "demo"), ("experiences", "show", "E1")):
        ran = cold(*words)
        assert ran.code == 0, ran.err
    assert cold("db", "check").code == 7
