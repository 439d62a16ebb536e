"""`doctor`: each thing that would go wrong is found before it costs, with its exit code."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.build import doctor
from grpo_practice.build.doctor_data import boxed, look_at_questions, look_at_verify, near_miss
from grpo_practice.build.doctor_endpoints import models_of
from grpo_practice.config import load_eval, load_practice
from grpo_practice.types import Sample
from tests.build.project import CONFIG
from tests.cli.conftest import Gp, Ran, gp
from tests.faults.actions import Script, always, error, ok
from tests.faults.conftest import serving

__all__ = ["gp"]

KEY = "sk-proj-a-key-that-nobody-has-1234"
TOOL = {"id": "1", "type": "function", "function": {"name": "add", "arguments": "{}"}}


def write(folder: Path, questions: int = 6, **files: str) -> None:
    rows = [
        json.dumps({"question": f"What is {n} + 1?", "answer": n + 1}) for n in range(questions)
    ]
    (folder / "test.jsonl").write_text("\n".join(rows))
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)


def found(ran: Ran, about: str) -> list[tuple[str, str]]:
    return [(f["state"], f["text"]) for f in ran.document["findings"] if f["about"] == about]


def ask(gp: Gp, script: Script, *words: str, model: str = "m-1") -> tuple[Ran, Any]:
    with serving(script) as server:
        at = "agent.model.model_provider"
        sets = [f"{at}.base_url={server.url}", f"{at}.api_key={KEY}", f"{at}.model={model}"]
        sets += ["data.dataset=test.jsonl", "verify=math", "exp_id=e", *words]
        Path("e.yaml").write_text("{}")
        words = tuple(word for text in sets for word in ("--set", text))
        return gp("doctor", "--json", "--config", "e.yaml", *words), server


def test_an_empty_folder_has_no_problem_and_is_left_empty(gp: Gp, tmp_path: Path) -> None:
    ran = gp("doctor", "--json")
    assert (ran.code, ran.document["exit"], ran.document["requests"]) == (0, 0, {"new": 0})
    assert [text for state, text in found(ran, "config") if state == "warning"]
    assert list(tmp_path.iterdir()) == []
    assert "0 problems, 1 warning" in gp("doctor").out


def test_an_endpoint_is_asked_two_tiny_requests_that_no_ledger_keeps(
    gp: Gp, tmp_path: Path
) -> None:
    write(tmp_path)
    script = always(ok({"role": "assistant", "content": "4", "tool_calls": [TOOL]}, usage={}))
    ran, server = ask(gp, script)
    assert ran.code == 0, ran.err
    assert "2 tiny requests" in ran.err
    assert [len(a.body.get("tools", [])) for a in server.asked] == [0, 1]
    states = found(ran, "student")
    assert any(s == "ok" and "answers in" in t for s, t in states)
    assert ("ok", "calls tools") in states
    assert any(s == "warning" and "price is unknown" in t for s, t in states)
    assert any(s == "warning" and "token counts" in t for s, t in states)
    assert not list(tmp_path.glob("*.db"))


def test_what_an_endpoint_does_otherwise_than_it_was_asked_is_a_warning(
    gp: Gp, tmp_path: Path
) -> None:
    write(tmp_path)
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 30,
        "completion_tokens_details": {"reasoning_tokens": 25},
    }

    def script(asked: Any) -> Any:
        if "seed" in asked.body:
            return error(
                400, "Unsupported parameter: 'seed'", {}, param="seed", code="unsupported_parameter"
            )
        return ok("4", usage=usage, model="another-model")

    ran, _ = ask(gp, script)
    assert ran.code == 0, ran.out
    told = " ".join(text for _, text in found(ran, "student"))
    assert "does not take `seed`" in told
    assert "takes no seed" in told
    assert "answers as 'another-model'" in told
    assert "25 of 30 tokens" in told
    assert "did not call a tool" in told


def test_1_12_a_refused_key_is_exit_3_and_the_key_is_not_shown(gp: Gp, tmp_path: Path) -> None:
    write(tmp_path)
    ran, server = ask(gp, lambda a: error(401, f"bad key {a.headers['authorization']}"))
    assert (ran.code, ran.document["exit"], len(server.asked)) == (3, 3, 1)
    assert any(s == "problem" and "refused the API key" in t for s, t in found(ran, "student"))
    assert KEY not in ran.out + ran.err


def test_an_endpoint_that_is_not_there_is_exit_3(gp: Gp, tmp_path: Path) -> None:
    write(tmp_path)
    at = "agent.model.model_provider"
    for url, said in (
        ("http://127.0.0.1:9", "cannot reach"),
        ("http://nobody.invalid/v1", "no address is known for nobody.invalid"),
    ):
        sets = [f"{at}.base_url={url}", f"{at}.model=m", "data.dataset=test.jsonl", "verify=math"]
        (tmp_path / "e.yaml").write_text("{}")
        ran = gp("doctor", "--json", "-c", "e.yaml", *(w for text in sets for w in ("--set", text)))
        assert ran.code == 3
        assert any(said in text for _, text in found(ran, "student")), ran.out


def test_a_key_that_goes_out_in_clear_is_a_warning(tmp_path: Path) -> None:
    from grpo_practice.build.doctor_endpoints import _in_clear
    from grpo_practice.llm.endpoint import Endpoint

    for url, key, warned in (
        ("http://api.example.com/v1", KEY, True),
        ("https://api.example.com/v1", KEY, False),
        ("http://api.example.com/v1", None, False),
        ("http://127.0.0.1:8000/v1", KEY, False),
    ):
        assert bool(_in_clear("student", Endpoint((url,), key))) is warned


def test_each_model_at_each_address_is_asked_once(tmp_path: Path) -> None:
    at = "evaluation.agent.model.model_provider"
    flags = [
        f"{at}.model=m",
        f"{at}.base_url=[http://a/v1, http://b/v1]",
        "evaluation.verify=judge",
    ]
    (tmp_path / "c.yaml").write_text(CONFIG)
    config = load_practice(tmp_path / "c.yaml", flags, {}).config
    asked = [(role, m.model_provider.base_url) for role, m in models_of(config)]
    both = "student, teacher, judge"
    assert asked == [(both, ("http://a/v1",)), (both, ("http://b/v1",))]


def test_a_config_that_cannot_be_used_is_exit_2(gp: Gp, tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text("verify: mth\ndata: {dataset: test.jsonl}\nagnet: {}\n")
    ran = gp("doctor", "--json", "--config", "e.yaml")
    assert ran.code == 2
    assert any("agnet" in text for _, text in found(ran, "config"))


def test_a_dataset_that_is_not_there_is_exit_4(gp: Gp, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(CONFIG)
    ran = gp("doctor", "--json", "--config", "c.yaml")
    assert ran.code == 4
    assert found(ran, "practice data") == [("problem", "there is no dataset 'train' yet")]


def test_a_database_that_is_none_or_that_others_can_read(gp: Gp, tmp_path: Path) -> None:
    gp("doctor")
    path = tmp_path / "grpo-practice.db"
    path.write_text("no database at all, but long enough to be looked at" * 20)
    path.chmod(0o644)
    ran = gp("doctor", "--json")
    assert ran.code == 7
    path.unlink()
    write(tmp_path)
    assert gp("data", "upload", "test.jsonl", "--name", "d").code == 0
    path.chmod(0o640)
    tmp_path.chmod(0o777)
    ran = gp("doctor", "--json")
    assert ran.code == 2  # no run yet, so no configuration
    assert ("warning", f"{path.name} can be read by others") in found(ran, "database")
    assert any("can replace" in text for _, text in found(ran, "folder"))


def test_an_older_database_is_not_touched(gp: Gp, tmp_path: Path) -> None:
    path = tmp_path / "grpo-practice.db"
    write(tmp_path)
    gp("data", "upload", "test.jsonl", "--name", "d")
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 1")
    db.close()
    ran = gp("doctor", "--json")
    assert ran.code == 0
    assert any("has schema 1" in text for _, text in found(ran, "database"))
    db = sqlite3.connect(path)
    assert db.execute("PRAGMA user_version").fetchone() == (1,)
    db.close()


def test_2_42_an_env_file_that_others_can_read_is_pointed_out(gp: Gp, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text(f"UTU_LLM_API_KEY={KEY}\nLD_PRELOAD=/evil.so\n")
    (tmp_path / ".env").chmod(0o644)
    ran = gp("doctor", "--json")
    told = " ".join(text for state, text in found(ran, ".env") if state == "warning")
    assert "chmod 600" in told
    assert "LD_PRELOAD" in told
    assert KEY not in ran.out


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        ("tmpfs / ext4 rw 0 0\nhost:/x {at} nfs4 rw 0 0\n", "nfs4"),
        ("tmpfs / ext4 rw 0 0\nhost:/x {at}/other nfs4 rw 0 0\n", "ext4"),
        ("", None),
    ],
)
def test_the_file_system_is_that_of_the_nearest_mount(
    tmp_path: Path, lines: str, kind: str | None
) -> None:
    mounts, folder = tmp_path / "mounts", tmp_path / "a b" / "c"
    folder.mkdir(parents=True)
    at = str(folder.parent.resolve()).replace(" ", r"\040")
    mounts.write_text(lines.format(at=at))
    assert doctor.file_system(folder, mounts) == kind
    assert doctor.file_system(folder, tmp_path / "none") is None


def samples(*pairs: tuple[str, Any]) -> list[Sample]:
    return [Sample(question, answer) for question, answer in pairs]


def test_questions_that_stand_twice_are_counted_without_case_and_spaces() -> None:
    data = {
        "practice": samples(("What is  1+1?", 2), ("what is 1+1?", 2), ("b", 1)),
        "evaluation": samples(("WHAT IS 1+1? ", 2), ("c", 1)),
        "selection": samples(("d", 1)),
    }
    told = [(f.about, f.state, f.text) for f in look_at_questions(data)]
    assert told == [
        ("practice data", "warning", "1 questions are there again"),
        ("evaluation data", "warning", "1 of 2 questions are in the practice data too"),
    ]


SCORES = """
def said(sample):
    return sample.response.rpartition("{")[2].partition("}")[0] or sample.response
def lax(sample):
    return {"reward": 1.0}
def begins(sample):
    return {"reward": float(said(sample)[:1] == str(sample.correct_answer)[:1])}
def deaf(sample):
    return {"reward": 0.0}
def fragile(sample):
    return {"reward": float(int(said(sample)) == int(sample.correct_answer))}
"""


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("verify", "state", "said"),
    [
        ("math", "ok", "tried on 3 golds"),
        ("exact", "ok", "tried on 3 golds"),
        ("contains", "ok", "tried on 3 golds"),
        ("s.py:lax", "problem", "counts as right: an empty answer"),
        ("s.py:begins", "warning", "near misses count as right"),
        ("s.py:deaf", "warning", "3 of 3 golds are not right answers to themselves"),
        ("s.py:fragile", "warning", "raised"),
        ("s.py:gone", "problem", "cannot load"),
        ("judge", "ok", "not tried"),
    ],
)
async def test_a_verify_function_is_tried_on_golds_near_misses_and_hostile_answers(
    tmp_path: Path, verify: str, state: str, said: str
) -> None:
    (tmp_path / "s.py").write_text(SCORES)
    flags = ["data.dataset=d", f"verify={verify}", "agent.model.model_provider.model=sim"]
    config = load_eval(None, flags, {}).config
    data = {"evaluation": samples(("a", 123), ("b", 145), ("c", 77))}
    findings = await look_at_verify(config, data, tmp_path)
    assert any(f.state == state and said in f.text for f in findings), findings
    if state == "ok":
        assert {f.state for f in findings} == {"ok"}


@pytest.mark.anyio
async def test_golds_that_a_function_cannot_read_are_exit_4(tmp_path: Path) -> None:
    flags = ["data.dataset=d", "verify=choice", "agent.model.model_provider.model=sim"]
    config = load_eval(None, flags, {}).config
    data = {"evaluation": samples(("a", "neither of them"), ("b", "B"))}
    (finding,) = await look_at_verify(config, data, tmp_path)
    assert (finding.state, finding.exit_code) == ("problem", 4)
    assert "1 golds cannot be used" in finding.text


@pytest.mark.parametrize(
    ("gold", "miss"), [("24", "25"), ("1.9", "1.0"), ("Paris", "Parit"), ("Z", "Y"), ("?", "??7")]
)
def test_a_near_miss_differs_in_one_place(gold: str, miss: str) -> None:
    assert near_miss(Sample("q", gold)) == miss
    assert boxed("1") == r"The answer is \boxed{1}."
