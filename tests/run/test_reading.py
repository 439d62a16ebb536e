"""What the teacher reads in whole runs: the same when they go on, and what was scored."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.cli.terminal.transcripts_view import show_transcripts
from grpo_practice.config import load_practice, read_environment
from grpo_practice.core.errors import EndpointRefusedError, FingerprintError
from grpo_practice.run import specs
from grpo_practice.run.rollouts import rollouts_of
from grpo_practice.run.specs import teacher_context, teacher_context_text
from grpo_practice.store import Store, branches
from grpo_practice.store.queries import spending
from tests.contract.endpoint.actions import completion
from tests.contract.own import Programs
from tests.contract.project import Hook, served
from tests.run.project import Project

WHOLE = ("practice.epochs=1", "practice.batch_size=12")
"""One step."""
OWN = """
async def solve(question, system, context):
    message = await ask(context, {"role": "system", "content": system}, user(question))
    return message["content"][message["content"].rindex("boxed{") - 1:]
"""
"""What it returns is the end of its model's reply."""
LESSONS = json.dumps({"lessons": [{"lesson": "When a sum is asked, add."}]})
OPERATIONS = json.dumps({"operations": [{"op": "ADD", "text": "Sums: add."}]})


class Own(Programs, Project):
    """A project that is played by programs."""


@pytest.fixture
def project(tmp_path: Path) -> Own:
    return Own(tmp_path)


def stage(body: dict[str, Any]) -> str:
    """By its heading, as any endpoint could tell."""
    headings = {
        "## The attempts": "compare",
        "## The lessons": "propose",
        "## The proposals": "merge",
        "## The attempt\n": "summarise",
    }
    said = body["messages"][-1]["content"]
    return next((s for heading, s in headings.items() if heading in said), "play")


def teaching(*, merge: bool = True, play: Hook = lambda n, body: None) -> Hook:
    """A teacher that always says the same; at the merge, its key may be refused."""

    def hook(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        match stage(body):
            case "compare":
                return 200, completion(LESSONS)
            case "propose":
                return 200, completion(OPERATIONS)
            case "summarise":
                return 200, completion("It was done.")
            case "merge":
                refused = 401, {"error": {"message": "bad key"}}
                return (200, completion(OPERATIONS)) if merge else refused
            case _:
                return play(n, body)

    return hook


TALL = ("practice.teacher_context=2048", "practice.summaries=never")
"""A prompt has less room than its instructions take."""


ALWAYS = ("practice.summaries=always",)


@pytest.mark.long_after(1)
@pytest.mark.parametrize(
    ("settings", "own"),
    [
        ((), False),
        (TALL, False),
        (ALWAYS, True),
        pytest.param((), True, marks=pytest.mark.long),
        pytest.param(TALL, True, marks=pytest.mark.long),
        pytest.param(ALWAYS, False, marks=pytest.mark.long),
    ],
)
async def test_a_run_that_ended_before_its_merge_asks_nothing_else_again(
    project: Own, settings: tuple[str, ...], own: bool
) -> None:
    settings = (*WHOLE, *settings, *(project.practising(OWN) if own else ()))
    async with served(teaching(merge=False)) as endpoint:
        with pytest.raises(EndpointRefusedError):
            await project.practise(endpoint.override(), *settings)
        compared = [b for b in endpoint.bodies if stage(b) == "compare"]
    assert compared
    if settings[2:4] == TALL:  # cutting would only hide the attempts
        assert not any("more characters were cut here]" in str(b) for b in compared)
    async with served(teaching()) as endpoint:
        report = await project.practise(endpoint.override(), *settings)
        assert {stage(b) for b in endpoint.bodies} == {"merge"}
    assert [e.text for e in report.library.experiences] == ["Sums: add."]


async def test_what_an_own_agent_returned_is_what_is_compared_and_shown(
    project: Own, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = (*WHOLE, *project.practising(OWN))
    async with served(teaching()) as endpoint:
        await project.practise(endpoint.override(), *settings)
        compared = [b["messages"][-1]["content"] for b in endpoint.bodies if stage(b) == "compare"]
    responses = [row[0] for row in project.query("SELECT response FROM rollout_bodies")]
    assert compared
    for prompt in compared:
        assert prompt.count("[answer that was scored]") == prompt.count("### Attempt ") == 3
        assert sum(f"[answer that was scored]\n{text}\n" in prompt for text in set(responses)) >= 2
    report = await project.evaluate(*project.agent(OWN))
    with Store(project.db) as store:
        show_transcripts(rollouts_of(store, report.run), 2)
    told = capsys.readouterr().out
    assert told.count("[answer that was scored]\n") == 2


async def test_the_groups_a_forecast_counts_are_those_that_are_distilled(project: Own) -> None:
    """Also where attempts were cut off, which is compared, or refused, which is not."""

    def odd(n: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        if n % 3 == 0:
            return 200, completion("", finish="length")
        refusal = {"role": "assistant", "content": None, "refusal": "No."}
        return (200, completion(refusal)) if n % 4 == 0 else None

    async with served(teaching(play=odd)) as endpoint:
        await project.practise(endpoint.override(), *WHOLE, "practice.seed=5")
    groups = project.query("SELECT status, informative, teachable FROM groups")
    outcomes = {row[0] for row in project.query("SELECT outcome FROM rollouts")}
    assert outcomes == {"ok", "truncated", "refused"}
    with Store(project.db) as store:
        counted = store.read(spending.informative, store.read(branches.load, 1))
    assert counted == (
        sum(status != "too_few" for status, *_ in groups),
        sum(informative for _, informative, _ in groups),
    )
    ((teachable,),) = project.query(
        "SELECT count(*) FROM v_rollouts WHERE outcome IN ('ok', 'truncated')"
    )
    assert sum(row[2] for row in groups) == teachable


def context(project: Own, *overrides: str) -> tuple[int, str]:
    config = load_practice(project.config, overrides, read_environment({}, project.folder)).config
    return teacher_context(config), teacher_context_text(config)


def test_what_the_teacher_takes_is_as_configured_as_listed_or_as_assumed(project: Own) -> None:
    at = "model_provider: {base_url: 'https://api.openai.com/v1', api_key: k, model:"
    tokens, said = context(project)
    assert (tokens, "assumed" in said) == (32_768, True)
    assert context(project, f"practice.teacher_model={{{at} gpt-4o}}}}")[0] == 128_000
    assert context(project, f"practice.teacher_model={{{at} gpt-4}}}}") == (
        8_192,
        "8,192 tokens for a request and its reply (listed)",
    )
    tokens, said = context(project, f"practice.teacher_model={{{at} gpt-4.1}}}}")
    assert (tokens, "of the 1,000,000 in the price list" in said) == (131_072, True)
    wide = (f"practice.teacher_model={{{at} gpt-4.1}}}}", "practice.teacher_context=900000")
    assert context(project, *wide)[0] == 900_000


async def test_a_run_goes_on_after_the_list_of_models_has_changed(
    project: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody changed the configuration, so the hint says what to type."""
    listed = {"tokens": 9_000}
    monkeypatch.setattr(specs, "context_window", lambda model, url: listed["tokens"])
    async with served(teaching()) as endpoint:
        await project.practise(endpoint.override(), *WHOLE)
        listed["tokens"] = 10_000
        more = (*WHOLE, "practice.epochs=2")
        with pytest.raises(FingerprintError) as e:
            await project.practise(endpoint.override(), *more)
        typed = re.search(r"set (practice\.teacher_context): (\d+)", str(e.value.hint))
        assert typed
        await project.practise(endpoint.override(), *more, f"{typed[1]}={typed[2]}")


async def test_a_run_is_bound_to_what_its_teacher_takes(project: Own) -> None:
    async with served(teaching()) as endpoint:
        await project.practise(endpoint.override(), *WHOLE)
        ((identity,),) = project.query("SELECT identity FROM branches WHERE run_id = 'toy'")
        assert json.loads(identity)["practice.teacher_context"] == 32_768
        same = await project.practise(endpoint.override(), *WHOLE, "practice.teacher_context=32768")
        assert same.requests.new == 0
        with pytest.raises(FingerprintError) as e:
            await project.practise(endpoint.override(), *WHOLE, "practice.teacher_context=9000")
    assert [(c.key, c.was, c.now) for c in e.value.diff] == [
        ("practice.teacher_context", 32_768, 9_000)
    ]
