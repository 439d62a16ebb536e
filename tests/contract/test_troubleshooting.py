"""Every message on docs/troubleshooting.md appears, and every command there can be typed then."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.contract.command import Gp, Ran
from tests.contract.endpoint.actions import always, status
from tests.contract.endpoint.server import serving

PAGE = (Path(__file__).parents[2] / "docs/troubleshooting.md").read_text("utf-8")
USAGE = 2
PLAY = ("eval", "--config", "practice.yaml")
PRACTISE = ("practice", "--config", "practice.yaml")


def sections() -> dict[str, list[str]]:
    """Return the commands below each message."""
    found = dict[str, list[str]]()
    for part in PAGE.split("\n### ")[1:]:
        message, _, text = part.partition("\n")
        blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
        found[message] = [line for block in blocks for line in block.splitlines()]
    return found


def settings(model: str = "sim", **more: str) -> None:
    lines = [f"UTU_LLM_MODEL={model}", *(f"UTU_LLM_{name}={text}" for name, text in more.items())]
    Path(".env").write_text("\n".join(lines))
    Path(".env").chmod(0o600)


def unnamed(gp: Gp) -> Ran:
    Path(".env").unlink()
    return gp(*PLAY)


def without_scheme(gp: Gp) -> Ran:
    settings("m", BASE_URL="127.0.0.1:9/v1")
    return gp(*PLAY)


def away(gp: Gp) -> Ran:
    settings("m", BASE_URL="http://127.0.0.1:9/v1")
    return gp(*PLAY)


def refused(gp: Gp) -> Ran:
    with serving(always(status(401))) as server:
        settings("m", BASE_URL=server.url, API_KEY="sk-wrong")
        return gp(*PLAY)


def failed(gp: Gp) -> Ran:
    lines = [
        "def check(sample):",
        "    assert sample.correct_answer in sample.response",
        "    return 1",
    ]
    Path("score.py").write_text("\n".join(lines))
    return gp(*PLAY, "--exp-id", "broken", "--set", "evaluation.verify=score.py:check")


def odd_columns(gp: Gp) -> Ran:
    Path("odd.csv").write_text("frage,antwort\n1+1?,2\n")
    return gp("data", "upload", "odd.csv", "--name", "odd")


def without_answers(gp: Gp) -> Ran:
    Path("open.jsonl").write_text('{"question": "Why?"}\n')
    return gp("data", "upload", "open.jsonl", "--name", "open")


def changed(gp: Gp) -> Ran:
    gp(*PRACTISE)
    return gp(*PRACTISE, "--set", "practice.batch_size=6")


def with_colon(gp: Gp) -> Ran:
    Path("brief.yaml").write_text("agent: {name: a, instructions: Answer: briefly}\n")
    return gp(*PLAY, "--arms", "brief.yaml,none")


def uniform(gp: Gp) -> Ran:
    gp(*PRACTISE)
    return gp("runs", "diagnose", "my_first_practice")


def too_few(gp: Gp) -> Ran:
    gp(*PRACTISE)
    run = ("eval", "--run", "my_first_practice")
    return gp(*run, "--arms", "none,full", "--limit", "5", "--exp-id", "few")


def other_file(gp: Gp) -> Ran:
    Path("other.db").write_bytes(b"no database" * 300)
    return gp("runs", "list", "--db", "other.db")


CASES: dict[str, Callable[[Gp], Ran]] = {
    "no model is named": unnamed,
    "has no scheme": without_scheme,
    "cannot reach": away,
    "refused the API key": refused,
    "more than max_failed_share": failed,
    "no column for the question or the answer": odd_columns,
    "no row has an answer": without_answers,
    "there is no dataset": lambda gp: gp(*PLAY, "--dataset", "mine.jsonl2"),
    "unknown key": lambda gp: gp(*PRACTISE, "--set", "practice.grpo=3"),
    "not valid YAML": with_colon,
    "was started with a different configuration": changed,
    "paused by --max-requests": lambda gp: gp(*PRACTISE, "--max-requests", "3"),
    "not informative": uniform,
    "Not enough questions to tell": too_few,
    "is not a database": other_file,
    "training needs": lambda gp: gp("train", "--config", "practice.yaml", "--model", "./m"),
}


def test_each_message_on_the_page_has_its_case() -> None:
    assert list(sections()) == list(CASES)


@pytest.mark.parametrize("message", CASES)
@pytest.mark.long_after(11)
def test_the_message_appears_and_its_commands_can_be_typed(message: str, gp: Gp) -> None:
    assert gp("init", ".").code == 0
    settings()
    assert gp("data", "upload", "mine.jsonl", "--name", "mine", "--verify", "exact").code == 0
    assert gp("data", "split", "mine", "--into", "train=0.5,test=0.5").code == 0
    ran = CASES[message](gp)
    assert message in ran.out + ran.err, (ran.out[-500:], ran.err)
    for command in sections()[message]:
        program, *words = shlex.split(command)
        assert program == "grpo-practice"
        done = gp(*words)
        # `config show` and `doctor` still find the problem; a wrong command would be a usage error.
        looks = words[0] in ("doctor", "config")
        assert done.code == 0 or (looks and done.code != USAGE), (command, done)
