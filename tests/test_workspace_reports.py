"""Reports as a script or a notebook shows them, and checks and serving without a file."""

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typing_extensions import override

from grpo_practice import Workspace
from grpo_practice.core.types import Sample
from grpo_practice.reports.experience_reports import Changes
from grpo_practice.serve.serving import Served
from grpo_practice.sim.questions import questions
from tests.test_workspace import N, config


@pytest.fixture
def ws(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(tmp_path / "x.db") as opened:
        samples = questions(2 * N, 7)
        opened.datasets.upload("sums", samples[:N])
        opened.datasets.upload("test", samples[N:])
        yield opened


class Tags(HTMLParser):
    """Collects the tags of a text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found = set[str]()
        self.feed(text)

    @override
    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.found.add(tag)


def test_a_notebook_shows_reports_with_foreign_text_escaped(ws: Workspace) -> None:
    hostile = "<script>alert(1)</script> \x1b[31m what is 1 + 1?"
    ws.datasets.upload("bad", [Sample(hostile, "2")])
    evaluated = ws.evaluate(config(), dataset="bad", verify="exact")
    (rollout,) = ws.rollouts(evaluated.run)
    for report in (evaluated, rollout, ws.runs(), ws.run(evaluated.run)):
        assert Tags(report._repr_html_()).found <= {"b", "table", "tr", "td"}
        assert "\x1b" not in repr(report) + report._repr_html_()
    assert "&lt;script&gt;" in rollout._repr_html_()
    assert repr(evaluated).startswith(evaluated.run)


def test_a_configuration_is_shown_without_the_secrets_in_its_urls(ws: Workspace) -> None:
    model = {"model": "m", "base_url": "https://me:hunter2@h.example/v1?key=s3cr3t"}
    one = config()
    one["evaluation"]["agent"]["model"] = {"model_provider": model}
    file = ws.path.with_name("c.yaml")
    file.write_text(json.dumps(one))
    shown = ws.configuration(str(file))
    for text in (
        repr(shown),
        shown._repr_html_(),
        json.dumps(shown.document()),
        repr(shown.config),
    ):
        assert "hunter2" not in text
        assert "s3cr3t" not in text
    assert "h.example" in repr(shown)
    assert repr(shown).startswith("toy")


def test_a_diagnosis_shows_its_checks(ws: Workspace) -> None:
    diagnosis = ws.doctor()
    assert [check.about in repr(diagnosis) for check in diagnosis.findings[:3]] == [True] * 3


async def test_the_doctor_takes_a_configuration_in_any_form_and_has_an_async_twin(
    ws: Workspace,
) -> None:
    seen = list[str]()
    found = await ws.doctor_async(config(), on_event=lambda event: seen.append(str(event)))
    told = {check.about: check.sentence for check in found.findings}
    assert told["config"] == "the given config can be used"
    assert "teacher" in told
    again = ws.doctor(config()).findings
    assert [(c.about, c.severity) for c in again] == [(c.about, c.severity) for c in found.findings]
    assert found.exit_code == 0, found
    file = ws.path.with_name("c.yaml")
    file.write_text(json.dumps(config()))
    typed = ws.configuration(file).config
    assert ws.configuration(typed).config == ws.configuration(config()).config == typed


async def test_an_agent_is_served_from_a_mapping(ws: Workspace) -> None:
    agent = config()["evaluation"]["agent"]
    ready, served = asyncio.Event(), list[Served]()

    def on_ready(now: Served) -> None:
        served.append(now)
        ready.set()

    work = asyncio.create_task(ws.serve_async(agent, port=0, record="rec", on_ready=on_ready))
    await asyncio.wait([work, asyncio.create_task(ready.wait())], return_when="FIRST_COMPLETED")
    assert not work.done(), work.exception()
    work.cancel()
    await asyncio.wait([work])
    document = served[0].document()
    assert (document["name"], document["model"], document["run"]) == ("solver", "sim", "rec")
    with closing(sqlite3.connect(ws.path)) as db:
        (command,) = db.execute("SELECT command FROM invocations").fetchone()
    assert command == f"{ws!r}.serve(agent)"


def test_scores_and_changes_show_themselves(ws: Workspace) -> None:
    ws.evaluate(config())
    ws.practise(config())
    scores = ws.run("toy").scores
    (score,) = scores.values()
    assert scores == {"toy/eval": score}
    assert score.mean is not None
    assert repr(scores).startswith(f"1 score\n  toy/eval  {score.mean:.3f}  ")
    first = ws.experiences().library.experiences[0]
    changes = ws.experience(first.id).history.changes
    assert isinstance(changes, Changes)
    assert repr(changes).startswith(f"1 change\n  step {changes[0].step}  ADD  ")
    for shown in (scores, changes):
        assert "Score(" not in repr(shown)
        assert Tags(shown._repr_html_()).found == {"b", "table", "tr", "td"}
