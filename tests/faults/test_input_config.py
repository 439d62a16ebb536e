"""Bad configs, names, paths and environments, as a person meets them."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice.core import user_code
from tests.cli.conftest import Gp, Ran, demo, finished_demo
from tests.config.files import EVAL

__all__ = ["demo", "finished_demo"]

YOUTU = """
exp_id: e
data: {dataset: D}
verify: math
agent:
  model:
    model_provider:
      type: ${oc.env:UTU_LLM_TYPE}
      model: ${oc.env:UTU_LLM_MODEL}
      base_url: ${oc.env:UTU_LLM_BASE_URL}
      api_key: ${oc.env:UTU_LLM_API_KEY}
"""
LAUGHS = "\n".join(
    [f"a0: &a0 [{', '.join(['ha'] * 9)}]"]
    + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 9)]
)
ROW = '{"question": "2+2?", "answer": "4"}\n'


def validate(gp: Gp, text: str, *more: str) -> Ran:
    Path("c.yaml").write_text(text)
    return gp("config", "validate", "--config", "c.yaml", *more)


def refused(ran: Ran, *said: str, code: int = 2) -> None:
    assert ran.code == code, ran
    for text in said:
        assert text in ran.err
    assert "internal error" not in ran.err
    if Path("grpo-practice.db").exists():
        assert counted("runs") == counted("datasets") == 0


def counted(table: str) -> int:
    """How many rows the database has of these; what is refused before it began makes none."""
    if not Path("grpo-practice.db").exists():
        return 0
    with closing(sqlite3.connect("grpo-practice.db")) as db:
        return int(db.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_2_01_a_python_tag_is_refused_and_not_run(gp: Gp) -> None:
    text = '!!python/object/apply:os.mkdir ["made"]'
    for config in (f"{EVAL}x: {text}\n", f"x: {text}\n", text):
        refused(validate(gp, config), "error: c.yaml:", "is not allowed in a config")
        Path("agent.yaml").write_text(config)
        Path("ok.yaml").write_text(EVAL)
        refused(gp("eval", "--config", "ok.yaml", "--agent", "agent.yaml"), "error: agent.yaml:")
        ran = validate(gp, EVAL, "--set", f"agent.model.model_settings.extra_body={{x: {text}}}")
        refused(ran, "--set agent.model.model_settings.extra_body", "not allowed")
    assert not Path("made").exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x: &a [*a]", "this alias contains itself"),
        ("x: &a {b: *a}", "this alias contains itself"),
        (LAUGHS, "aliases repeat more than 1,000 nodes"),
        pytest.param("x: " + "[" * 5_000, "nested more than 64 deep", marks=pytest.mark.long),
        ("x: " + "{a: " * 5_000, "nested more than 64 deep"),
        ("".join(f"{'  ' * n}k:\n" for n in range(90)), "nested more than 64 deep"),
    ],
)
def test_2_02_cycles_laughs_and_depth_are_refused_wherever_they_stand(
    gp: Gp, text: str, said: str
) -> None:
    ran = validate(gp, text)
    refused(ran, "error: c.yaml")
    assert said in ran.err
    Path("ok.yaml").write_text(EVAL)
    refused(gp("eval", "--config", "ok.yaml", "--agent", "c.yaml"), "error: c.yaml")
    if "\n" not in text:
        value = text.removeprefix("x: ")
        value = value if value[0] in "[{" else f"[{value}]"
        ran = validate(gp, EVAL, "--set", f"agent.model.model_settings.extra_body={value}")
        refused(ran, "error: --set agent.model.model_settings.extra_body", said)


def test_2_02_a_file_without_end_is_not_read_to_its_end(gp: Gp) -> None:
    Path("ok.yaml").write_text(EVAL)
    os.mkfifo("pipe.yaml")
    ran = gp("eval", "--config", "ok.yaml", "--agent", "pipe.yaml")
    refused(ran, "pipe.yaml is not a regular file")
    for name in ("pipe.yaml", "/dev/zero", ".", "x" * 5_000, "a\0b", ""):
        refused(gp("config", "validate", "--config", name), "there is no config")
    refused(validate(gp, "x: " + "y" * (1 << 20)), "c.yaml is larger than 1 MiB")
    Path("loop.yaml").symlink_to("loop.yaml")
    refused(gp("config", "validate", "--config", "loop.yaml"), "there is no config loop.yaml")
    refused(
        validate(gp, f"defaults: [/{'x' * 5_000}@a]\n{EVAL}"), "c.yaml:1: there is no file /xxx"
    )


def test_2_03_a_key_that_stands_twice_is_an_error_with_its_line(gp: Gp) -> None:
    ran = validate(gp, f"{EVAL}pass_k: 1\nseed: 1\npass_k: 2\n")
    refused(ran, "error: c.yaml:8: the key 'pass_k' appears twice (first on line 6)")
    ran = validate(gp, f"{EVAL}prices: {{a: 1, 'a': 2}}\n")
    refused(ran, "error: c.yaml:6: the key 'a' appears twice")


@pytest.mark.parametrize(
    ("line", "said", "hint"),
    [
        (
            "shuffle_data: no",
            "practice.shuffle_data = 'no': should be a valid boolean",
            "write false",
        ),
        ("shuffle_data: 1", "practice.shuffle_data = 1: should be a valid boolean", ""),
        ("batch_size: 012", "practice.batch_size = '012': should be a valid integer", "write 12"),
        ("batch_size: 12:30:00", "practice.batch_size = '12:30:00'", "a plain decimal number"),
        ("batch_size: true", "practice.batch_size = True", "write a number"),
        ("batch_size: 8.0", "practice.batch_size = 8.0", "write 8"),
        ("task_timeout: 1e3", "practice.task_timeout = '1e3'", "write 1000"),
        ("task_timeout: 1_000", "practice.task_timeout = '1_000'", "write 1000"),
        ("task_timeout: .inf", "practice.task_timeout = '.inf'", "a plain decimal number"),
        ("task_timeout: 9.0e999", "practice.task_timeout = '9.0e999'", "a plain decimal number"),
        (f"batch_size: {'9' * 5_000}", "practice.batch_size = '999", "a plain decimal number"),
        ("epochs: 99999999999999999", "practice.epochs = 99999999999999999", ""),
    ],
)
def test_2_04_nothing_is_turned_into_another_type_silently(
    gp: Gp, line: str, said: str, hint: str
) -> None:
    head = "exp_id: e\ndata: {practice_dataset_name: D}\nevaluation: {verify: math}\n"
    ran = validate(gp, f"{head}practice:\n  {line}\n")
    refused(ran, f"error: c.yaml:5: {said}", hint)
    key, _, value = line.partition(": ")
    ran = validate(gp, head, "--set", f"practice.{key}={value}")
    refused(ran, f"error: --set practice.{key}: {said}", hint)


@pytest.mark.parametrize("name", ["no", "012", "1e3", "12", "1.5", "2024-01-01", "null", "true"])
def test_2_04_the_name_of_an_experiment_is_always_a_text(gp: Gp, name: str) -> None:
    quoted = name if name not in ("1.5", "null", "true") else f"'{name}'"
    ran = validate(gp, EVAL.replace("exp_id: e", f"exp_id: {quoted}"))
    assert f"experiment  {name}\n" in ran.out


def test_2_05_a_misspelt_key_is_an_error_with_what_was_meant(gp: Gp) -> None:
    head = "exp_id: e\ndata: {practice_dataset_name: D}\nevaluation: {verify: math}\n"
    ran = validate(gp, f"{head}practice: {{grop_n: 5}}\n")
    refused(ran, "c.yaml:4: practice.grop_n = 5: unknown key", "hint: did you mean grpo_n?")
    ran = validate(gp, head, "--set", "practice.grop_n=5")
    refused(ran, "--set practice.grop_n: ", "hint: did you mean grpo_n?")
    ran = validate(gp, EVAL + "".join(f"k{n}: 1\n" for n in range(1_000)))
    refused(ran, "1,000 problems in c.yaml", "c.yaml:6: k0 = 1: unknown key", "and 980 more")
    assert len(ran.err) < 10_000
    ran = validate(gp, f"{EVAL}? {'k' * 500_000}\n: 1\n")
    refused(ran, "c.yaml:6: kkk", "unknown key")
    assert len(ran.err) < 2_000


def test_2_06_variables_of_the_environment_and_nothing_else(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UTU_LLM_MODEL", "m")
    monkeypatch.setenv("UTU_LLM_BASE_URL", "https://llm.example/v1")
    ran = validate(gp, YOUTU)
    refused(ran, "c.yaml:11: agent.model.model_provider.api_key", "UTU_LLM_API_KEY is not set")
    assert "set UTU_LLM_API_KEY, or add it to .env" in ran.err
    monkeypatch.setenv("UTU_LLM_API_KEY", "sk-never-shown-1234")
    ran = validate(gp, YOUTU)
    assert (ran.code, "sk-never" in ran.out + ran.err) == (0, False)
    for body in ("oc.create:{}", "oc.decode:1", "HOME", "oc.env:", "hydra:runtime.cwd", "$HOME"):
        ran = validate(gp, EVAL.replace("dataset: D", f"dataset: '${{{body}}}'"))
        refused(ran, "c.yaml:4: data.dataset", "write \\${ for a literal ${")


NAMES = [
    "../../etc/x", "a/b", ".", "..", "x" * 101, "x" * 300, "-x", "", " ", "a b", "\U0001f600",
    "\u202ex", "x\u202e", "é", "x\n", ".x", "a\\b", "a'; DROP TABLE runs;--", "%s", "${x}",
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_2_07_a_name_that_could_be_more_than_a_name_is_refused(gp: Gp, name: str) -> None:
    quoted = "'" + name.replace("'", "''") + "'"
    ran = validate(gp, EVAL, "--set", f"exp_id={quoted}")
    refused(ran, "cannot be the name of an experiment")
    assert "\u202e" not in ran.err
    Path("a.jsonl").write_text(ROW)
    refused(gp("data", "upload", "a.jsonl", f"--name={name}"), "cannot be the name of a dataset")
    refused(validate(gp, EVAL, "--set", f"data.dataset={quoted}"), "data.dataset")


def test_2_07_a_display_name_may_be_any_text(gp: Gp) -> None:
    text = '"\\u202e \\U0001f600 a/b"'
    ran = validate(gp, EVAL.replace("agent: {", f"agent: {{agent: {{name: {text}}}, "))
    assert ran.code == 0
    assert "\\u202e \U0001f600 a/b" in ran.out
    assert "\u202e" not in ran.out


def test_2_08_no_text_is_ever_sql(gp: Gp) -> None:
    drop = "a'); DROP TABLE runs;--"
    Path("a.jsonl").write_text(
        f'{{"{drop}": "2+2?", "answer": "4", "source": "{drop}", "cluster": "{drop}", '
        f'"k{drop}": 1}}\n'
    )
    ran = gp("data", "upload", "a.jsonl", "--name", "d", "--map", f"question={drop}")
    assert ran.code == 0
    (row,) = gp("data", "show", "d", "--json").document["rows"]
    assert (row["source"], row["cluster"], row["meta"]) == (drop, drop, {f"k{drop}": 1})
    config = EVAL.replace("dataset: D", "dataset: d, type: mixed")
    config = config.replace("agent: {", f'agent: {{agent: {{name: "{drop}"}}, ')
    Path("c.yaml").write_text(config)
    assert gp("eval", "--config", "c.yaml").code == 0
    for words in (
        ("runs", "show", drop),
        ("data", "show", drop),
        ("data", "delete", drop, "--yes"),
        ("runs", "delete", drop, "--yes"),
        ("export-agent", "--run", drop),
        ("experiences", "list", "--run", drop),
    ):
        assert gp(*words).code in (2, 4)
    assert [run["name"] for run in gp("runs", "list", "--json").document["runs"]] == ["e/eval"]
    assert counted("runs") == 1


@pytest.mark.long
def test_2_09_nothing_is_overwritten_without_being_told_to_and_a_link_stays(demo: Gp) -> None:
    target, link = Path("theirs"), Path("link.yaml")
    target.write_text("theirs")
    link.symlink_to(target)
    for out in (target, link):
        ran = demo("export-agent", "-o", str(out))
        assert ran.code == 2
        assert f"{out} already exists" in ran.err
        assert "--force" in ran.err
    assert demo("export-agent", "-o", str(link), "--force").code == 0
    assert ("instructions:" in target.read_text(), link.is_symlink()) == (True, True)
    for bad in ("missing/x.yaml", "x" * 300, f"{target}/x.yaml"):
        ran = demo("export-agent", "-o", bad, "--force")
        assert (ran.code, "cannot write" in ran.err) == (2, True)
    left = [path.name for path in Path.cwd().iterdir() if path.name.startswith(".")]
    assert left == []
    before = target.read_bytes()
    assert demo("data", "list", "--db", str(target)).code == 7
    assert target.read_bytes() == before


def test_2_27_a_judge_template_that_hides_the_answer_is_refused_before_any_call(gp: Gp) -> None:
    Path("a.jsonl").write_text(ROW)
    Path("c.yaml").write_text(
        EVAL.replace("dataset: D", "dataset: a.jsonl").replace(
            "verify: math", "verify: {name: judge, template: t.md}"
        )
    )
    for text, said in (
        ("Is {response} right?", "the prompt never uses the slot response"),
        ("{{ question }}", "never shows the response"),
        ("{{ response }} {{ os }}", "unknown slot os"),
        ("{{ response ", "not a valid prompt template"),
        (None, "there is no template t.md"),
    ):
        Path("t.md").unlink(missing_ok=True)
        if text is not None:
            Path("t.md").write_text(text)
        ran = gp("eval", "--config", "c.yaml")
        assert ran.code == 2
        assert said in ran.err or "never shows the response" in ran.err
        assert "t.md" in ran.err
    assert counted("calls") == 0


VERIFY = "def check(sample, **kwargs):\n    return {'reward': 1.0}\n"


@pytest.mark.long_after(4)
@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("os:system", None, "os:system"),
        ("os.py:system", None, "there is no file os.py"),
        ("mine.py", VERIFY, "mine.py"),
        ("mine.py:absent", VERIFY, "the file defines check"),
        ("mine.py:check", "import absent_module", "ModuleNotFoundError"),
        ("mine.py:check", "def check(:", "SyntaxError"),
        ("mine.py:check", "raise SystemExit(0)", "SystemExit"),
        ("mine.py:check", "check = 7", "not a function"),
        ("mine.py:check", "\0", "cannot load it"),
        ("mine.py:check", "import os\nos._exit(0)", "ended while it was loaded"),
    ],
)
def test_2_41_a_verify_function_that_is_none_is_said_at_start(
    gp: Gp, name: str, text: str | None, said: str
) -> None:
    Path("a.jsonl").write_text(ROW)
    if text is not None:
        Path("mine.py").write_text(text)
    Path("c.yaml").write_text(
        EVAL.replace("dataset: D", "dataset: a.jsonl").replace("verify: math", f"verify: {name}")
    )
    ran = gp("eval", "--config", "c.yaml")
    assert ran.code == 2
    assert said in ran.err
    ran = gp("verify", name, "--answer", "4", "--response", "4")
    assert ran.code == 2
    assert said in ran.err


def test_2_41_two_files_of_one_name_are_two_modules_and_their_prints_no_data(gp: Gp) -> None:
    for folder, reward in (("a", 1.0), ("b", 0.25)):
        Path(folder).mkdir()
        Path(folder, "mine.py").write_text(
            f"print('loading')\n{VERIFY.replace('1.0', str(reward))}"
        )
        ran = gp("verify", f"{folder}/mine.py:check", "--answer", "4", "--response", "4", "--json")
        assert ran.document["reward"] == reward


def test_2_42_only_known_names_of_an_environment_file_are_loaded(gp: Gp) -> None:
    Path(".env").write_text(
        "PATH=/evil\nLD_PRELOAD=/evil.so\nUTU_LLM_MODEL=m\n"
        "UTU_LLM_BASE_URL=https://llm.example/v1\nUTU_LLM_API_KEY=sk-never-shown-1234\n"
    )
    Path(".env").chmod(0o644)
    before = dict(os.environ)
    ran = validate(gp, YOUTU)
    said = ran.out + ran.err
    assert ran.code == 0
    assert "can be read by other users; chmod 600" in said
    assert ": PATH, LD_PRELOAD (only" in said
    assert "llm.example" in said
    assert "sk-never" not in said
    assert dict(os.environ) == before
    Path(".env").chmod(0o600)
    ran = validate(gp, YOUTU)
    assert "can be read by other users" not in ran.out + ran.err


@pytest.mark.parametrize("root", [".git", "pyproject.toml", None])
def test_2_42_an_environment_file_above_a_cloned_repository_is_not_read(
    gp: Gp, monkeypatch: pytest.MonkeyPatch, root: str | None
) -> None:
    Path(".env").write_text(
        "OPENAI_BASE_URL=http://evil.example/v1\nOPENAI_API_KEY=sk-x-12345678\n"
    )
    inner = Path("repo/inner")
    inner.mkdir(parents=True)
    if root:
        Path("repo", root).touch()
    monkeypatch.chdir(inner)
    config = EVAL.replace("model: sim", "model: gpt-x")
    ran = validate(gp, config)
    assert "evil" not in ran.out + ran.err
    own = "OPENAI_BASE_URL=http://evil.example/v1\nOPENAI_API_KEY=sk-x-12345678\n"
    Path(".env" if root is None else "../.env").write_text(own)
    ran = validate(gp, config)
    path = Path(".env") if root is None else Path("../.env").resolve()
    assert f"OPENAI_API_KEY ({path}) goes to http://evil.example: {path}:1" in ran.out + ran.err
    Path(".env" if root is None else "../.env").write_text(own.splitlines()[0])
    where = f"note: gpt-x is called at http://evil.example/v1 (OPENAI_BASE_URL in {path})"
    said = validate(gp, config)
    assert where in said.out + said.err
    Path(".env" if root is None else "../.env").write_text(own)
    Path("a.jsonl").write_text(ROW)
    Path("c.yaml").write_text(config.replace("dataset: D", "dataset: a.jsonl"))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user-12345")
    ran = gp("eval", "--config", "c.yaml")
    assert ran.code == 2
    assert "which is named elsewhere" in ran.err


def test_2_41_a_file_that_never_ends_loading_does_not_hang_the_command(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_code, "LOAD_S", 0.5)
    Path("mine.py").write_text("import time\nwhile True:\n    time.sleep(9)\n")
    ran = gp("verify", "mine.py:check", "--answer", "4", "--response", "4")
    refused(ran, "verify mine.py:check: cannot load ", "it takes longer than 0.5 s")
