"""Prompts, datasets and planted modules of strangers, beside a config of the user's own."""

import json
from collections.abc import Callable
from pathlib import Path

from tests.contract.hostile.attacks import Attack, Commands
from tests.contract.hostile.place import OWN, Place
from tests.contract.hostile.planted import python, row
from tests.hostile_templates import RUNS

PROMPTS_OF = Path(__file__).parents[3] / "src/grpo_practice/core/prompts"
STAGES = ("summarise", "compare", "propose", "merge", "reask")
SHIPPED = [PROMPTS_OF / f"{stage}.md" for stage in STAGES]
PRACTICE = """
exp_id: mine
practice: {epochs: 1, batch_size: 2, grpo_n: 2, prompts_dir: @PROMPTS@}
data: {practice_dataset_name: mine.jsonl}
evaluation: {verify: exact, agent: {agent: {name: mine, instructions: Answer.}}}
"""
PRACTISED = {
    "practice": ("practice", "--config", "p.yaml"),
    "practice --dry-run": ("practice", "--config", "p.yaml", "--dry-run"),
    "doctor": ("doctor", "--config", "p.yaml"),
    "validate": ("config", "validate", "--config", "p.yaml"),
}
JUDGED = {
    "eval": ("eval", "--config", "own.yaml"),
    "validate": ("config", "validate", "--config", "own.yaml"),
}
NAMES = (
    "${oc.env:GITHUB_TOKEN} $GITHUB_TOKEN %GITHUB_TOKEN% {{ environ.GITHUB_TOKEN }} {GITHUB_TOKEN}"
)
READS = (
    "{% include '@HOME@/.ssh/id_x' %} {% import '@HOME@/.ssh/id_x' as x %} file://@HOME@/.ssh/id_x"
    " @@HOME@/.ssh/id_x !include @HOME@/.ssh/id_x"
)
SOME = tuple(RUNS)[:12]


def prompts(name: str, write: Callable[[Place], None], at: str = "prompts") -> Attack:
    """Return the attack of a folder of prompts, which the user's own config names."""

    def put(place: Place) -> None:
        place.put("p.yaml", PRACTICE.replace("@PROMPTS@", at))
        write(place)

    return Attack("prompts", name, put, PRACTISED)


def all_prompts(more: str) -> Callable[[Place], None]:
    def write(place: Place) -> None:
        for shipped in SHIPPED:
            text = shipped.read_text("utf-8")
            place.put(f"prompts/{shipped.name}", f"{text}\n{more.replace('@@', '@MARK@')}\n")

    return write


def links(place: Place) -> None:
    for shipped in SHIPPED:
        place.link(f"prompts/{shipped.name}", ".ssh/id_x")


def judge(name: str, template: str, build: Callable[[Place], None] = lambda _: None) -> Attack:
    """Return the attack of a judge's template."""

    def put(place: Place) -> None:
        place.put("own.yaml", OWN.replace("exact", "{name: judge, template: judge.md}"))
        if template:
            place.put("judge.md", "{{ response }}\n" + template)
        build(place)

    return Attack("prompts", name, put, JUDGED)


PROMPTS = [
    *(prompts(f"templates: {name}", all_prompts(RUNS[name])) for name in SOME[:4]),
    prompts("templates that name variables", all_prompts(NAMES.replace("{GITHUB_TOKEN}", ""))),
    prompts("links to a key", links),
    prompts("a folder of the home", lambda _: None, at="../../.ssh"),
    judge(
        "a judge that names variables",
        "${oc.env:GITHUB_TOKEN} $GITHUB_TOKEN file://@HOME@/.ssh/id_x",
    ),
    judge("a judge that reads the environment", NAMES),
    judge("a judge that reads files", READS),
    *(judge(f"a judge: {name}", RUNS[name].replace("@@", "@MARK@")) for name in SOME[4:8]),
    judge("a judge that is a link", "", lambda place: place.link("judge.md", ".ssh/id_x")),
]

USED = {
    "upload": ("data", "upload", "mine.jsonl", "--name", "x"),
    "eval": ("eval", "--config", "own.yaml", "--show"),
    "practice": ("practice", "--config", "p.yaml"),
    "doctor": ("doctor", "--config", "own.yaml"),
}
IMAGE = [{"type": "image_url", "image_url": {"url": "file://@HOME@/.ssh/id_x"}}]
ROW_SETS = {
    "cells that name variables": row(question=f"What is {NAMES}?", answer=NAMES, source=NAMES)
    + row(question="${oc.env:GITHUB_TOKEN}", answer="${oc.env:OPENAI_API_KEY}"),
    "cells that name files": row(question=READS, answer="file://@HOME@/.ssh/id_x")
    + row(question="@HOME@/.ssh/id_x", answer="@@HOME@/.ssh/id_x"),
    "columns that name files": row(
        question="q",
        answer="a",
        image="@HOME@/.ssh/id_x",
        file_name="../../.ssh/id_x",
        images=["@HOME@/.ssh/id_x"],
    ),
    "chats with images": row(
        messages=[{"role": "user", "content": IMAGE}, {"role": "assistant", "content": "a"}]
    ),
    "columns that name programs": row(
        question="q",
        answer="a",
        verify="planted.py:solve",
        function="planted.py:solve",
        command="./run",
        meta={"verify": "planted.py:solve", "config": "c.yaml"},
        tools=[{"command": "./run"}],
    ),
    "objects that revive": row(
        question="q",
        answer="a",
        __reduce__=["os.system", "echo reduced >> @MARK@"],
        py=("!!python/object/apply:os.system ['echo yaml >> @MARK@']"),
    ),
}


def dataset(name: str, rows: str) -> Attack:
    def put(place: Place) -> None:
        place.put("mine.jsonl", rows)
        place.put("p.yaml", PRACTICE.replace(", prompts_dir: @PROMPTS@", ""))
        place.module("planted.py", "def solve(*_):\n    return 1\n")
        place.program(place.folder / "run", "run")

    return Attack("dataset", name, put, USED)


DATASETS = [dataset(name, rows) for name, rows in ROW_SETS.items()]

MODULES = (
    "math", "random", "types", "json", "re", "numbers", "fractions", "signal", "socket", "typing",
    "tokenize", "sympy", "mpmath", "gmpy2", "numpy", "latex2sympy2_extended", "math_verify",
    "antlr4", "aiohttp", "httpx", "typer", "yaml", "dotenv", "typing_extensions", "uvloop",
    "orjson", "conftest", "sitecustomize", "usercustomize", "planted", "score", "utu", "readline",
    "idna", "rich", "encodings",
)  # fmt: skip
"""Names of modules that something may import."""
SCORED = {
    "eval": ("eval", "--model", "m", "--dataset", "mine.jsonl", "--verify", "math"),
    "doctor": ("doctor", "--config", "own.yaml"),
    "verify": ("verify", "math", "--answer", "2x", "--response", "\\boxed{x+x}"),
}


def _modules(place: Place) -> None:
    for name in MODULES:
        place.module(f"{name}.py", "def verify_func(*_, **__):\n    return 1\n")
    place.module("grpo_practice/__init__.py")
    line = python(place.mark, "planted.pth")
    place.put("planted.pth", f"import os; {line}\n")
    place.put("mine.jsonl", row(question="What is x plus x?", answer="2x"))
    place.put("own.yaml", OWN.replace("exact", "math"))
    place.good.says = "\\boxed{x+x}"
    place.apart = True  # workers of this process were begun in another folder


def _elsewhere(verify: str) -> Callable[[Place], None]:
    """Have a config of the user's, in another folder, name a file that only this folder has."""

    def put(place: Place) -> None:
        _modules(place)
        (place.own / "far.yaml").write_text(
            OWN.replace("exact", verify).replace("mine.jsonl", "mine2.jsonl")
        )
        (place.own / "mine2.jsonl").write_text(json.dumps({"question": "q", "answer": "2x"}))

    return put


FAR: Commands = {
    "eval": ("eval", "--config", "../../own/far.yaml"),
    "eval --dry-run": ("eval", "--config", "../../own/far.yaml", "--dry-run"),
    "doctor": ("doctor", "--config", "../../own/far.yaml"),
}
VERIFY = [
    Attack("verify file", "modules beside a dataset", _modules, SCORED),
    Attack("verify file", "the reference's math.py, here", _elsewhere("math.py:verify_func"), FAR),
    Attack(
        "verify file",
        "a file that its config does not have",
        _elsewhere("score.py:verify_func"),
        FAR,
    ),
]
ATTACKS = [*PROMPTS, *DATASETS, *VERIFY]
