"""Spans are what is stored: as many of each kind, one inside the other, under ids of their own."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from grpo_practice.store import Store, branches
from grpo_practice.store.queries import runs
from grpo_practice.store.queries.trace_rows import MERGE, group_places
from grpo_practice.telemetry.settings import TraceSettings
from grpo_practice.telemetry.spans import Span
from grpo_practice.telemetry.tracer import stored_spans
from tests.app.project import Project, finished


@pytest.fixture
async def project(tmp_path: Path) -> Project:
    return await finished(tmp_path / "p")


def spans(project: Project, settings: TraceSettings | None = None) -> list[Span]:
    with Store(project.db) as store:
        run = store.read(runs.get, "toy")
        assert run.head_branch is not None
        branch = store.read(branches.load, run.head_branch)
        return [
            span
            for place in store.each(group_places, branch)
            for span in store.read(stored_spans, branch, place, settings or TraceSettings())
        ]


def count(project: Project, sql: str) -> int:
    return int(project.query(sql)[0][0])


async def test_there_are_as_many_spans_as_calls_and_rollouts(project: Project) -> None:
    kinds = Counter(span.kind for span in spans(project))
    calls = "SELECT count(*) FROM calls c JOIN branches b USING (branch_id) WHERE run_id = 'toy'"
    assert kinds["LLM"] == count(project, f"{calls} AND tries > 0")
    assert kinds["AGENT"] == kinds["EVALUATOR"] == count(project, "SELECT count(*) FROM rollouts")
    merges = count(project, f"{calls} AND stage = 'merge'")
    taught = count(project, f"{calls} AND stage = 'compare'")
    assert merges
    assert taught
    assert kinds["CHAIN"] == count(project, "SELECT count(*) FROM groups") + taught + merges


async def test_a_trace_is_a_tree_whose_parts_lie_within_their_parents(project: Project) -> None:
    found = {span.span_id: span for span in spans(project)}
    assert len(found) == len(spans(project))
    roots = Counter(span.trace_id for span in found.values() if span.parent_id is None)
    assert set(roots) == {span.trace_id for span in found.values()}
    assert set(roots.values()) == {1}
    for span in found.values():
        assert 0 < span.start_ns <= span.end_ns
        if span.parent_id is not None:
            parent = found[span.parent_id]
            assert parent.trace_id == span.trace_id
            assert parent.start_ns <= span.start_ns
            assert span.end_ns <= parent.end_ns
    inner = Counter(
        (found[span.parent_id].kind, span.kind) for span in found.values() if span.parent_id
    )
    assert set(inner) == {
        ("CHAIN", "AGENT"),
        ("CHAIN", "CHAIN"),
        ("CHAIN", "LLM"),
        ("AGENT", "LLM"),
        ("AGENT", "EVALUATOR"),
    }


async def test_the_attributes_are_what_is_stored(project: Project) -> None:
    first = next(span for span in spans(project) if span.name == "play")
    row = project.query(
        """SELECT name, tokens_in, tokens_out, cost_micro, seconds FROM calls
            WHERE stage = 'play' ORDER BY step, slot, call_id LIMIT 1"""
    )[0]
    of = first.attributes
    assert of["llm.model_name"] == of["gen_ai.request.model"] == row[0]
    assert of["llm.token_count.prompt"] == of["gen_ai.usage.input_tokens"] == row[1]
    assert of["llm.token_count.completion"] == of["gen_ai.usage.output_tokens"] == row[2]
    assert of["llm.token_count.total"] == row[1] + row[2]
    assert of["session.id"] == "toy"
    assert of["llm.input_messages.0.message.role"] == "system"
    assert of["llm.output_messages.0.message.role"] == "assistant"
    assert abs((first.end_ns - first.start_ns) / 1e9 - row[4]) < 1e-6
    agents = [span for span in spans(project) if span.kind == "AGENT"]
    rewards = [span.attributes.get("grpo_practice.reward") for span in agents]
    stored = project.query("SELECT reward FROM v_rollouts ORDER BY step, slot, attempt")
    assert rewards == [reward for (reward,) in stored]


async def test_what_is_unknown_is_left_out_and_never_zero(project: Project) -> None:
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute("UPDATE calls SET cost_micro = NULL, tokens_cached = NULL, answered_by = NULL")
    for span in spans(project):
        assert "llm.cost.total" not in span.attributes
        assert "llm.token_count.prompt_details.cache_read" not in span.attributes
        assert None not in span.attributes.values()


async def test_without_content_nothing_that_was_said_is_there(project: Project) -> None:
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute(
            """UPDATE rollouts SET outcome = 'error', reason = 'agent', error = 'SAID'
                WHERE attempt = 0"""
        )
        db.execute("UPDATE verdicts SET critique = 'SAID', extracted = 'SAID'")
    questions = [q for (q,) in project.query("SELECT question FROM samples")]
    answers = [a for (a,) in project.query("SELECT response FROM rollout_bodies")]
    told = repr(spans(project, TraceSettings(content=False)))
    whole = repr(spans(project))
    assert "SAID" in whole
    assert any(question[:30] in whole for question in questions)
    for text in [*questions, *answers, "SAID"]:
        assert text[:30] not in told
    assert len(spans(project, TraceSettings(content=False))) == len(spans(project))


async def test_a_share_takes_whole_groups_and_always_the_same(project: Project) -> None:
    whole = dict[int, set[int]]()
    for span in spans(project):
        whole.setdefault(span.trace_id, set()).add(span.span_id)
    some = dict[int, set[int]]()
    for span in spans(project, TraceSettings(sample=0.4)):
        some.setdefault(span.trace_id, set()).add(span.span_id)
    assert 0 < len(some) < len(whole)
    assert all(whole[trace] == found for trace, found in some.items())
    assert spans(project, TraceSettings(sample=0)) == []


async def test_failures_are_errors(project: Project) -> None:
    with closing(sqlite3.connect(project.db)) as db, db:
        db.execute(
            """INSERT INTO failures (invocation_id, branch_id, step, slot, attempt, stage, kind,
                 http_status, message, tries, maybe_paid, created_at)
               SELECT invocation_id, branch_id, step, slot, attempt, stage, 'provider', 503, 'busy',
                 1, 0, created_at FROM calls WHERE stage IN ('play', 'compare') GROUP BY stage"""
        )
    failed = [span for span in spans(project) if span.error is not None]
    assert [(span.kind, span.error) for span in failed] == [("LLM", "busy")] * 2
    quiet = spans(project, TraceSettings(content=False))
    assert [span.error for span in quiet if span.error] == ["provider"] * 2


async def test_the_places_are_found_one_by_one(project: Project) -> None:
    with Store(project.db) as store:
        run = store.read(runs.get, "toy")
        branch = store.read(branches.load, run.head_branch or 0)
        places = [*store.each(group_places, branch)]
    wanted = project.query("SELECT DISTINCT step, slot FROM calls ORDER BY 1, 2")
    assert places == wanted
    assert MERGE in {slot for _, slot in places}
