"""Whatever is said to be typed next is typed here once, as it stands."""

import shlex
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import typer

from grpo_practice import Workspace
from grpo_practice.cli.options import forget_database, on_database
from grpo_practice.core.errors import PausedError
from grpo_practice.main import app, run
from tests.cli.conftest import Gp
from tests.contract.advice import next_words
from tests.run.project import Project


@pytest.fixture
def other(demo: Gp) -> Gp:
    """`gp` in the demo's folder, where its database has another name."""
    Path("grpo-practice.db").rename("other name.db")
    return demo


DB = ("--db", "other name.db")


@pytest.mark.long_after(3)
@pytest.mark.parametrize(
    "words",
    [
        ("runs", "list"),
        ("runs", "show", "demo"),
        ("runs", "show", "demo/eval"),
        ("experiences", "list"),
        ("data", "list"),
        ("export-agent", "-o", "e.yaml", "--step", "0"),
        ("config", "validate"),
    ],
    ids=" ".join,
)
def test_what_to_type_next_is_of_the_database_that_was_named(
    other: Gp, words: tuple[str, ...]
) -> None:
    ran = other(*words, *DB)
    assert ran.code == 0
    after = next_words(ran.out + ran.err)
    assert after[-2:] == list(DB) or list(DB) == after[2:4] or list(DB) == after[1:3], after
    done = other(*[("exact" if word == "V" else word) for word in after])
    assert done.code == 0, done.err
    assert not Path("grpo-practice.db").exists()


def test_hints_and_documents_name_the_database_too(other: Gp) -> None:
    assert (
        "hint: grpo-practice runs list --db 'other name.db'"
        in other("experiences", "list", "--run", "", *DB).err
    )
    document = other("practice", "--json", *DB).document
    assert document["next"].startswith("grpo-practice export-agent --db 'other name.db'")
    with closing(sqlite3.connect("other name.db")) as db, db:
        db.execute("UPDATE groups SET mean_reward = 1, status = 'uniform' WHERE slot < 5")
    typed = [x for x in other("runs", "diagnose", "demo", *DB).out.splitlines() if "type: " in x]
    assert typed
    assert all("--db 'other name.db'" in line for line in typed)
    findings = other("runs", "diagnose", "demo", "--json", *DB).document["findings"]
    assert all("--db 'other name.db'" in one["command"] for one in findings if one["command"])


def test_a_database_that_the_environment_names_is_not_repeated(
    other: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert " --db " in other("runs", "list", *DB).out
    monkeypatch.setenv("GRPO_PRACTICE_DB", "other name.db")
    assert "--db" not in other("runs", "list").out


def test_every_command_with_a_database_is_known_to_take_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takes, program = dict[str, bool](), typer.main.get_command(app)
    for name, command in program.commands.items():  # type: ignore[attr-defined]
        of = getattr(command, "commands", None)
        for leaf, one in of.items() if of else [("", command)]:
            takes[f"{name} {leaf}".strip()] = any(p.name == "db" for p in one.params)
    monkeypatch.chdir(tmp_path)
    run(["runs", "list", "--db", "x.db"])  # the installed script forgets the name when it ends
    named = {name: on_database(f"grpo-practice {name} a") for name in takes}
    forget_database()
    said = {
        name: f"grpo-practice {name}{' --db x.db' if db else ''} a" for name, db in takes.items()
    }
    assert named == said


def test_what_init_says_next_is_typed_to_its_end(gp: Gp, monkeypatch: pytest.MonkeyPatch) -> None:
    said = gp("init", "my task").out
    *lines, upload, split, evaluate, practise = [
        line.removeprefix("next: ") for line in said.splitlines() if line.startswith("next: ")
    ]
    done = subprocess.run(["sh", "-ec", "\n".join(lines)], check=True, capture_output=True)
    assert done.stderr == b""
    assert Path("my task/.env").stat().st_mode & 0o777 == 0o600
    monkeypatch.chdir("my task")
    Path(".env").write_text("UTU_LLM_MODEL=sim\n", "utf-8")
    stored = gp(*shlex.split(upload)[1:])
    assert next_words(stored.out) == shlex.split(split)[1:]
    assert next_words(gp(*shlex.split(split)[1:]).out) == shlex.split(evaluate)[1:]
    for command in (evaluate, practise):
        assert gp(*shlex.split(command)[1:]).code == 0


def test_without_a_config_the_model_of_the_environment_is_not_named(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("d.csv").write_text("question,answer\n1+1?,2\n", "utf-8")
    upload = ("data", "upload", "d.csv", "--name", "d")
    assert "--model sim" in gp(*upload).out
    monkeypatch.setenv("UTU_LLM_MODEL", "sim")
    for words in (upload, ("data", "show", "d")):
        after = next_words(gp(*words).out)
        assert "--model" not in after
        assert gp(*after).code == 0


@pytest.mark.parametrize("text", ["evaluation: x", "evaluation: {data: [1]}", "a: [", "- 1"])
def test_a_config_that_cannot_be_read_does_not_spoil_what_was_uploaded(gp: Gp, text: str) -> None:
    Path("practice.yaml").write_text(text, "utf-8")
    Path("d.csv").write_text("question,answer\n1+1?,2\n", "utf-8")
    ran = gp("data", "upload", "d.csv", "--name", "d")
    assert (ran.code, "--dataset d" in ran.out) == (0, True)


def test_the_demo_s_next_command_begins_a_project(gp: Gp) -> None:
    assert gp(*next_words(gp("demo").out)).code == 0
    assert Path("my-task/practice.yaml").is_file()


@pytest.mark.long_after(1)
@pytest.mark.parametrize("more", [(), ("--max-tokens", "100000")])
def test_a_paused_run_says_a_command_that_goes_on(
    gp: Gp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    Project(tmp_path)
    words = ["practice", "-c", "c.yaml", "--max-requests", "20", *more, "--db", "p.db"]
    pauses = 0
    while True:
        monkeypatch.setattr("sys.argv", ["grpo-practice", *words])
        ran = gp(*words)
        if ran.code == 0:
            break
        assert ran.code == 6, ran.err
        pauses += 1
        hinted = next_words(ran.err, "to continue: ")
        words = next_words(gp("runs", "show", "toy", "--db", "p.db").out)
        assert words == hinted
        assert [flag for flag in words if flag == "--max-tokens"] == [*more[:1]]
    assert pauses == 3


ATTEMPT = count()


def play(question: str, system: str, context: object) -> str:
    """An agent of this program, half of whose answers are even."""
    return str(next(ATTEMPT))


def score(sample: Any, **_: object) -> dict[str, float]:
    return {"reward": float(int(sample.response) % 2)}


def test_the_hint_of_a_paused_call_is_called_as_it_stands(gp: Gp, tmp_path: Path) -> None:
    project = Project(tmp_path)
    config = project.config
    scope = {"Workspace": Workspace, "play": play, "score": score}
    scope["config"] = config.read_text("utf-8")
    ws, options = Workspace(project.db), {"agent": play, "verify": score, "max_requests": 3}
    pauses, paused = list[str](), None
    with pytest.raises(PausedError) as first:
        ws.practise(scope["config"], **options)  # type: ignore[arg-type]
    paused = first.value
    while paused is not None:
        assert paused.hint is not None
        call = paused.hint.partition("to continue: ")[2]
        pauses.append(call)
        try:
            eval(call, scope)
            paused = None
        except PausedError as e:
            paused = e
    assert pauses[0] == f"{ws!r}.practise(config, agent=play, verify=score, max_requests=13)"


def test_an_agent_that_only_its_program_has_is_evaluated_there(gp: Gp, tmp_path: Path) -> None:
    project = Project(tmp_path)

    def own(question: str, system: str, context: object) -> str:
        return "1"

    Workspace(project.db).practise(project.config, agent=own, overrides={"practice.epochs": 1})
    ran = gp("export-agent", "-o", "e.yaml", "--db", "p.db")
    assert ran.code == 0
    call = ran.err.splitlines()[-1].removeprefix("next, in the program that started the run: ")
    scored = eval(call, {"Workspace": Workspace, "own": own})
    assert scored.score.coverage == 1


def test_an_evaluation_that_cannot_begin_leaves_no_database(gp: Gp) -> None:
    Path("e.yaml").write_text("type: python\nfunction: __main__:play\n", "utf-8")
    ran = gp("eval", "--agent", "e.yaml")
    assert ran.code == 2
    assert "exp_id" not in ran.err
    assert "--dataset NAME" in ran.err
    assert [path.name for path in Path().iterdir()] == ["e.yaml"]


def test_what_flags_alone_leave_out_is_asked_for_by_a_flag(gp: Gp) -> None:
    Path("d.csv").write_text("question,answer\n1+1?,2\n", "utf-8")
    ran = gp("eval", "--model", "sim", "--dataset", "d.csv")
    assert (ran.code, "hint: --verify NAME" in ran.err) == (2, True)


def test_the_parameters_of_a_tried_function_go_with_it(gp: Gp) -> None:
    Path("d.csv").write_text("question,answer\n1+1?,2\n", "utf-8")
    assert gp("data", "upload", "d.csv", "--name", "d").code == 0
    words = ("verify", "regex", "--answer", "2", "--response", "so: 'it' is 2")
    ran = gp(*words, "--param", r"pattern=is \[?(\d+)")
    assert ran.out.startswith("reward 1.000")
    assert gp(*next_words(ran.out)).code == 0
    assert r"pattern: is \[?(\d+)" in gp("config", "show").out


@pytest.mark.parametrize("model", ["", "sim"])
@pytest.mark.parametrize("named", [True, False])
def test_what_verify_says_next_is_typed_as_it_stands(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, named: bool, model: str
) -> None:
    monkeypatch.setenv("UTU_LLM_MODEL", model)
    Path("d.csv").write_text("question,answer\n1+1?,2\n", "utf-8")
    if named:
        assert gp("data", "upload", "d.csv", "--name", "d").code == 0
    after = next_words(gp("verify", "exact", "--answer", "2", "--response", "2").out)
    assert (after[0] == "eval", "--model" in after) == (named, named and not model)
    assert gp(*after).code == 0


def test_a_file_s_agent_takes_the_place_of_one_of_another_type(gp: Gp, tmp_path: Path) -> None:
    Project(tmp_path)
    Path("own.py").write_text("def play(question, system, context): return '1'\n", "utf-8")
    Path("a.py").write_text('print(\'{"answer": "1"}\')', "utf-8")
    at = "evaluation.agent"
    sets = ("--set", f"{at}.type=command", "--set", f"{at}.command=[{sys.executable}, a.py]")
    assert gp("eval", "-c", "c.yaml", "--db", "p.db", "--limit", "2", *sets).code == 0
    Path("e.yaml").write_text("type: python\nfunction: own.py:play\n", "utf-8")
    ran = gp("eval", "--agent", "e.yaml", "--db", "p.db", "--limit", "2", "--trust", "e.yaml")
    assert ran.code == 0, ran.err
    Path("s.yaml").write_text("type: simple\nagent: {name: s}\n", "utf-8")
    ran = gp("eval", "--agent", "s.yaml", "--db", "p.db", "--limit", "2")
    assert ran.code == 0, ran.err


def test_a_score_before_that_is_missing_is_measured_by_what_is_said(gp: Gp, tmp_path: Path) -> None:
    Project(tmp_path)
    words = ("practice", "-c", "c.yaml", "--db", "p.db", "--epochs", "1")
    ran = gp(*words)
    assert ran.code == 0, ran.err
    assert "  before  not measured" in ran.out
    assert gp(*next_words(ran.out, "  gain    ")).code == 0
    (line,) = [text for text in gp(*words).out.splitlines() if text.startswith("  before")]
    assert "95 % interval" in line


@pytest.mark.parametrize("key", ["agent", "evaluation.agent"])
def test_an_agent_s_file_given_as_a_key_is_pointed_to_its_flag(
    gp: Gp, tmp_path: Path, key: str
) -> None:
    Project(tmp_path)
    Path("a.yaml").write_text("type: simple\nagent: {name: a}\n", "utf-8")
    words = ("eval", "-c", "c.yaml", "--db", "p.db", "--limit", "1")
    ran = gp(*words, "--set", f"{key}=a.yaml")
    assert (ran.code, "--agent FILE" in ran.err, "AgentConfig" in ran.err) == (2, True, False)
    assert gp(*words, "--agent", "a.yaml").code == 0


@pytest.mark.parametrize("question", ["1+1?", "How much is it? " * 20])
def test_a_question_that_is_shortened_is_whole_where_it_is_said_to_be(
    gp: Gp, question: str
) -> None:
    Path("d.csv").write_text(f"question,answer\n{question},2\n", "utf-8")
    words = ("data", "upload", "d.csv", "--name", "d", "--db", "my db.db")
    assert gp(*words).code == 0
    shown = gp("data", "show", "d", "--db", "my db.db").out
    assert ("in full: " in shown) == (question.strip() not in shown)
    if "in full: " in shown:
        assert question.strip() in gp(*next_words(shown, "in full: ")).out


def test_what_is_measured_is_not_to_be_measured_next(demo: Gp) -> None:
    first = demo("export-agent", "--run", "demo", "-o", "next.yaml")
    if "has not been measured" in first.err:
        assert demo(*next_words(first.err)).code == 0
    again = demo("export-agent", "--run", "demo", "-o", "next.yaml", "--force")
    assert "has not been measured" not in again.err
    assert "next: " not in again.err  # `runs show` would lead back to where the user came from


def test_fewer_attempts_than_stored_are_refused_with_the_option_to_add(demo: Gp) -> None:
    words = ("eval", "--run", "demo")
    refused = demo(*words, "-k", "1")
    assert refused.code == 2
    assert "hint: add -k 2, or set pass_k: 2 in the configuration" in refused.err
    assert demo(*words, "-k", "2").code == 0


@pytest.mark.long
def test_a_mended_verify_function_scores_again_with_the_command_that_is_named(
    demo: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect("grpo-practice.db")) as db:
        sql = "SELECT question FROM samples ORDER BY sample_id DESC LIMIT 1"
        (question,) = db.execute(sql).fetchone()
    odd = f"    if sample.question == {question!r}: raise ValueError('odd')\n"
    whole = "    return str(sample.correct_answer) in sample.response\n"
    file = Path("v.py").resolve()
    words = ["eval", "--run", "demo", "--verify", f"{file}:f"]
    file.write_text(f"def f(sample):\n{odd}{whole}")
    monkeypatch.setattr("sys.argv", ["grpo-practice", *words])
    first = demo(*words)
    assert first.code == 0, first.err
    command = first.out.partition("score the answers again with: grpo-practice ")[2]
    file.write_text(f"def f(sample):\n{whole}")
    again = demo(*shlex.split(command), "--json")
    assert again.code == 0, again.err
    assert again.document["score"]["coverage"] == 1
    assert "0 new" in demo(*shlex.split(command)).out
