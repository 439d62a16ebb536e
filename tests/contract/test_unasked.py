"""An agent whose model calls go past us: it is said soon, and at the end."""

from pathlib import Path

from tests.contract.command import Gp
from tests.contract.project import CONFIG, Project

CACHED = """
import json, urllib.request

known = {}

def solve(question, system, context):
    if question not in known:
        messages = [{"role": "system", "content": system}, {"role": "user", "content": question}]
        body = json.dumps({"model": context.model, "messages": messages}).encode()
        headers = {"Content-Type": "application/json"}
        url = context.base_url + "/chat/completions"
        reply = urllib.request.urlopen(urllib.request.Request(url, body, headers))
        known[question] = json.load(reply)["choices"][0]["message"]["content"]
    return known[question]
"""
DEAF = "def solve(question, system, context): return str(len(question))"
AGENT = [
    *("--set", "evaluation.agent.type=python"),
    *("--set", "evaluation.agent.function=mine.py:solve"),
]
RUN = ("--config", "c.yaml", "--db", "p.db")


def project(folder: Path, program: str) -> None:
    Project(folder).folder.joinpath("mine.py").write_text(program)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_an_agent_that_never_asks_is_named_after_the_first_answers(tmp_path: Path, gp: Gp) -> None:
    project(tmp_path, DEAF)
    words = [word.replace("evaluation.agent", "agent") for word in AGENT]
    config = "exp_id: e\nverify: math\ndata: {dataset: test}\n"
    config += "agent: {model: {model_provider: {model: sim}}}\n"
    (tmp_path / "e.yaml").write_text(config)
    ran = gp("eval", "--config", "e.yaml", "--db", "p.db", "--concurrency", "1", *words)
    shown = flat(ran.out + ran.err)
    assert ran.code == 0
    assert shown.count("3 of the first 3 answers came without a request") == 1
    assert "12 answers came without any request to the rollout's address hint: the cost" in shown
    assert "context.base_url" in shown


def test_a_library_that_caches_is_no_run_that_found_nothing_to_do(tmp_path: Path, gp: Gp) -> None:
    project(tmp_path, CACHED)
    one = ("--set", "practice.rollout_concurrency=1", "--set", "evaluation.agent.workers=1")
    ran = gp("practice", *RUN, *AGENT, *one)
    shown = flat(ran.out + ran.err)
    assert ran.code == 1
    assert "all attempts of every group gave the same text" in shown
    assert "a cache between the agent and its model" in shown
    again = gp("practice", *RUN, *AGENT, *one, "--json")
    assert again.code == again.document["exit"] == 1
    # Twelve questions in two epochs: each is asked once, and three attempts are played of it.
    assert again.document["health"]["unasked"] == 2 * 12 * 3 - 12


def test_an_agent_that_asks_is_not_named(tmp_path: Path, gp: Gp) -> None:
    project(tmp_path, CACHED.replace("if question not in known", "if True"))
    ran = gp("practice", *RUN, *AGENT, "--json")
    assert ran.code == 0
    assert ran.document["health"]["unasked"] == 0
    assert "without a request" not in ran.err


def test_doctor_plays_one_made_up_question(tmp_path: Path, gp: Gp) -> None:
    project(tmp_path, DEAF)
    config = CONFIG.replace(
        "    model:", "    type: python\n    function: mine.py:solve\n    model:"
    )
    (tmp_path / "c.yaml").write_text(config)
    words = ("doctor", "--config", "c.yaml", "--db", "p.db")
    assert "without a request" not in flat(gp(*words).out)  # no program is run unasked
    shown = flat(gp(*words, "--run").out)
    assert "answered a made-up question without a request" in shown
    (tmp_path / "mine.py").write_text(CACHED)
    shown = flat(gp(*words, "--run").out)
    assert "mine.py:solve answered a made-up question with 1 request" in shown
    ignoring = CACHED.replace('"content": system', '"content": "Answer."')
    assert ignoring != CACHED
    (tmp_path / "mine.py").write_text(ignoring)
    shown = flat(gp(*words, "--run").out)
    assert "answered a made-up question, but no request contained its system prompt" in shown
    (tmp_path / "mine.py").write_text("def solve(question, system, context): return 1 / 0")
    shown = flat(gp(*words, "--run").out)
    assert "ZeroDivisionError at mine.py:1" in shown
