"""Words of the reference implementation and removed ones are refused with the word to type."""

import re
from pathlib import Path

import pytest

from tests.contract.command import Gp

CONFIG = """
exp_id: mine
data: {{dataset: d}}
verify: "{verify}"
agent: {{model: {{model_provider: {{model: sim}}}}}}
"""


@pytest.mark.parametrize(
    ("typed", "ours"),
    [
        ("data upload --file_path rows.jsonl", "data upload FILE --name NAME"),
        ("data upload rows.jsonl --dataset_name d", "--name NAME"),
        ("practice --experiment_name x", "--exp-id NAME"),
        ("practice --config_name x", "--config FILE"),
        ("practice --restart_step null", "leave it out to continue"),
        ("practice --restart-step null", "leave it out to continue"),
        ("practice --batch_size 5", "it is called --batch-size here"),
        ("eval --step rollout", "eval --rejudge --run RUN --verify NAME"),
        ("data stats mine", "`data show NAME`"),
    ],
)
def test_another_word_is_refused_with_ours(gp: Gp, typed: str, ours: str) -> None:
    ran = gp(*typed.split())
    assert ran.code == 2
    (hint,) = [line for line in ran.err.splitlines() if line.startswith("hint: ")]
    assert ours in hint
    assert "--help" in hint


def test_any_other_unknown_option_points_to_the_help_alone(gp: Gp) -> None:
    assert "hint: grpo-practice eval --help\n" in gp("eval", "--nope").err
    assert "hint: grpo-practice data --help\n" in gp("data", "nope").err


def test_the_database_of_the_reference_is_not_passed_over_in_silence(
    gp: Gp, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = "UTU_DB_URL is ignored: name the file with --db FILE or GRPO_PRACTICE_DB"
    assert said not in gp("runs", "list").err
    monkeypatch.setenv("UTU_DB_URL", "sqlite:///theirs.db")
    assert said in gp("runs", "list").err
    assert said not in gp("runs", "list", "--db", "ours.db").err
    monkeypatch.delenv("UTU_DB_URL")
    Path(".env").write_text("UTU_LLM_MODEL=sim\nUTU_DB_URL=sqlite:///theirs.db\n")
    Path("c.yaml").write_text(CONFIG.format(verify="math"))
    assert f".env:2: {said}" in gp("config", "validate", "--config", "c.yaml").err


def test_config_validate_looks_for_the_verify_function(gp: Gp) -> None:
    def validate(verify: str) -> tuple[int, str]:
        Path("c.yaml").write_text(CONFIG.format(verify=verify))
        ran = gp("config", "validate", "--config", "c.yaml")
        return ran.code, ran.out + ran.err

    code, said = validate("score.py:check")
    assert (code, "there is no file score.py" in said) == (2, True)
    Path("score.py").write_text("raise SystemExit('it is run')\ndef other(sample): ...\n")
    code, said = validate("score.py:check")
    assert code == 2
    assert "score.py does not define check" in said
    assert "hint: the file defines other" in said
    code, said = validate("score.py:other")
    assert code == 0
    assert str(Path("score.py").resolve()) in re.sub(r"\n +", "", said)  # a long path is broken
    assert validate("nope")[0] == 2


def test_a_file_of_the_reference_that_needs_its_modules_is_taken_over_in_sight(gp: Gp) -> None:
    Path("webwalker.py").write_text(
        "from utu.utils import LLM\nfrom utu.db import EvaluationSample\n\n"
        "async def verify_func(sample, timeout_score=0, **kwargs): ...\n"
    )
    Path("c.yaml").write_text(CONFIG.format(verify="webwalker.py:verify_func"))
    said = "is not run because it imports utu.utils, which is not installed: the built-in"
    ran = gp("config", "validate", "--config", "c.yaml")
    assert ran.code == 0
    assert said in ran.err
    assert "{name: judge, preset: webwalker} takes over" in ran.err
    Path("rows.jsonl").write_text('{"question": "1+1?", "answer": "2"}\n')
    gp("data", "upload", "rows.jsonl", "--name", "d")
    ran = gp("eval", "--config", "c.yaml")
    assert ran.code == 0
    assert said in ran.err
