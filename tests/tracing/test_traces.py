"""The traces of a run: what is stored is in them, with the same ids live and afterwards."""

import json
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from grpo_practice.core.events import Event, Notice
from grpo_practice.core.redact import redactor
from grpo_practice.store import Store, rollouts
from tests.contract.command import Gp
from tests.contract.receiver import Collector, Received, below, collecting
from tests.processes import HANG_S
from tests.run.project import Project
from tests.train.stored import QUESTIONS, RUN, training_database

TOOLS = "evaluation.agent.toolkits={py: {name: python_executor, mode: builtin}}"
JUDGE = "evaluation.verify=judge"
SHORT = "practice.epochs=1"
GROUP = 3
"""Attempts of a group, as the project has them."""


def practise(project: Project, *sets: str, **options: Any) -> list[Event]:
    """Practise as users do, and return what was emitted."""
    seen = list[Event]()
    Workspace(project.db).practise(
        project.config, sets=[SHORT, *sets], env={}, on_event=seen.append, **options
    )
    return seen


def notices(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Notice)]


def change(project: Project, *statements: str) -> None:
    """Change what is stored, as no command does."""
    with closing(sqlite3.connect(project.db)) as db, db:
        for statement in statements:
            db.execute(statement)


def stored(project: Project, run: str = "toy") -> Counter[str]:
    """What the store holds of a run, as kinds of spans."""
    steps = "(SELECT branch_id FROM branches WHERE run_id = ?)"
    [(models,)] = project.query(
        f"SELECT count(*) FROM calls WHERE tries > 0 AND branch_id IN {steps}", run
    )
    [(tools,)] = project.query(
        f"SELECT count(*) FROM calls WHERE tries = 0 AND branch_id IN {steps}", run
    )
    [(failures,)] = project.query(f"SELECT count(*) FROM failures WHERE branch_id IN {steps}", run)
    [(rollouts,)] = project.query("SELECT count(*) FROM v_rollouts WHERE run_id = ?", run)
    [(verdicts,)] = project.query(
        "SELECT count(*) FROM v_rollouts WHERE run_id = ? AND reward IS NOT NULL", run
    )
    [(groups,)] = project.query("SELECT count(DISTINCT slot || ' ' || step) FROM v_rollouts")
    [(taught,)] = project.query("SELECT count(*) FROM groups WHERE status = 'distilled'")
    [(merges,)] = project.query("SELECT count(DISTINCT step) FROM calls WHERE stage = 'merge'")
    return +Counter(
        LLM=models + failures,
        TOOL=tools,
        AGENT=rollouts,
        EVALUATOR=verdicts,
        CHAIN=groups + taught + merges,
    )


@pytest.mark.long_after(1)
@pytest.mark.parametrize("sets", [(), (TOOLS,), (JUDGE,)], ids=["plain", "tools", "judge"])
def test_what_is_stored_is_what_is_traced_live_and_afterwards(
    project: Project, monkeypatch: pytest.MonkeyPatch, sets: tuple[str, ...]
) -> None:
    with collecting() as live, collecting() as later:
        monkeypatch.setenv("PHOENIX_ENDPOINT", live.url)
        practise(project, *sets)
        monkeypatch.setenv("PHOENIX_ENDPOINT", later.url)
        report = Workspace(project.db).trace("toy")
    assert live.kinds == stored(project)
    assert later.kinds == stored(project)
    assert report.spans == stored(project)
    assert len(live.all) == len(live.spans)  # no span came twice
    assert {key: one.span.SerializeToString() for key, one in live.spans.items()} == {
        key: one.span.SerializeToString() for key, one in later.spans.items()
    }


def test_a_trace_is_a_group_or_a_merge_and_no_child_ends_after_its_parent(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        practise(project, TOOLS, JUDGE)
    spans = list(collector.spans.values())
    over = Counter((child.kind, parent.kind) for child, parent in below(spans))
    assert set(over) == {
        ("AGENT", "CHAIN"),
        ("LLM", "AGENT"),
        ("TOOL", "AGENT"),
        ("EVALUATOR", "AGENT"),
        ("LLM", "EVALUATOR"),
        ("CHAIN", "CHAIN"),
        ("LLM", "CHAIN"),
    }
    roots = [one for one in spans if not one.span.parent_span_id]
    traces = {one.span.trace_id for one in spans}
    assert len(roots) == len(traces)
    for child, parent in below(spans):
        assert parent.span.start_time_unix_nano <= child.span.start_time_unix_nano
        assert child.span.start_time_unix_nano <= child.span.end_time_unix_nano
        assert child.span.end_time_unix_nano <= parent.span.end_time_unix_nano
    assert {one.attributes["session.id"] for one in spans} == {"toy"}
    assert {one.attributes["grpo_practice.step"] for one in roots} == {0, 1}
    assert {one.attributes["grpo_practice.run"] for one in roots} == {"toy"}
    assert not any(one.failed for one in spans if one.kind != "TOOL")


def one_of(collector: Collector, kind: str, **has: str) -> Received:
    return next(
        one
        for one in collector.spans.values()
        if one.kind == kind
        and all(one.attributes[f"grpo_practice.{name}"] == value for name, value in has.items())
    )


def test_a_call_has_what_both_conventions_name(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        practise(project, TOOLS)
    call = one_of(collector, "LLM", stage="play").attributes
    tokens_in, tokens_out = call["gen_ai.usage.input_tokens"], call["gen_ai.usage.output_tokens"]
    stored = project.query("SELECT tokens_in, tokens_out FROM calls WHERE stage = 'play'")
    assert (tokens_in, tokens_out) in stored
    assert call["llm.model_name"] == call["gen_ai.request.model"] == "sim"
    assert call["llm.token_count.prompt"] == tokens_in
    assert call["llm.token_count.completion"] == tokens_out
    assert call["llm.token_count.total"] == tokens_in + tokens_out
    assert call["gen_ai.operation.name"] == "chat"
    assert call["llm.input_messages.0.message.role"] == "system"
    assert "boxed" in call["llm.input_messages.0.message.content"]
    assert call["llm.output_messages.0.message.role"] == "assistant"
    assert json.loads(call["llm.invocation_parameters"])["model"] == "sim"
    tool = one_of(collector, "TOOL").attributes
    assert tool["tool.name"] == tool["gen_ai.tool.name"] == "execute_python_code"
    assert "code" in json.loads(tool["input.value"])
    agent = one_of(collector, "AGENT")
    assert agent.attributes["input.value"].strip()
    assert agent.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert {"grpo_practice.reward", "output.value"} <= agent.attributes.keys()
    second = next(one for one in collector.all if one.kind == "LLM" and one.span.links)
    assert second.span.links[0].span_id in {one.span.span_id for one in collector.all}


def test_an_unknown_price_is_left_out_and_a_known_one_is_in_dollars(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def price(collector: Collector) -> Mapping[str, Any]:
        return one_of(collector, "LLM", stage="play").attributes

    with collecting() as known, collecting() as unknown:
        monkeypatch.setenv("PHOENIX_ENDPOINT", known.url)
        practise(project)
        change(project, "UPDATE calls SET cost_micro = NULL")
        monkeypatch.setenv("PHOENIX_ENDPOINT", unknown.url)
        Workspace(project.db).trace("toy")
    assert price(known)["llm.cost.total"] == 0.0
    assert "llm.cost.total" not in price(unknown)


def test_failed_rollouts_and_requests_are_errors(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    practise(project)
    change(
        project,
        """INSERT INTO failures (invocation_id, branch_id, step, slot, attempt, stage, kind,
             message, tries, maybe_paid, created_at)
           SELECT invocation_id, branch_id, step, slot, attempt, stage, 'provider',
             'HTTP 500 of a secret question', 3, 0, created_at FROM calls
            WHERE stage IN ('play', 'compare') AND step = 0""",
        """UPDATE rollouts SET outcome = 'error', reason = 'provider', error = 'of a question'
            WHERE rollout_id IN (SELECT rollout_id FROM rollouts LIMIT 2)""",
        "DELETE FROM verdicts WHERE rollout_id IN (SELECT rollout_id FROM rollouts LIMIT 2)",
    )
    with collecting() as whole, collecting() as bare:
        for collector, content in ((whole, True), (bare, False)):
            monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
            Workspace(project.db).trace("toy", content=content)
    assert whole.kinds == bare.kinds == stored(project)
    failed = [one for one in whole.spans.values() if one.failed]
    assert Counter(one.kind for one in failed)["AGENT"] == 2
    assert {one.attributes["error.type"] for one in failed if one.kind == "LLM"} == {"provider"}
    assert {one.span.status.message for one in failed} == {
        "provider: HTTP 500 of a secret question",
        "provider: of a question",
    }
    assert {one.span.status.message for one in bare.spans.values() if one.failed} == {"provider"}


def test_without_content_nothing_that_was_asked_or_said_is_sent(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        practise(project, TOOLS, JUDGE, trace_content=False)
    sent = b"\n".join(collector.bodies)
    texts = [text for (text,) in project.query("SELECT question FROM samples")]
    texts += [text for (text,) in project.query("SELECT response FROM rollout_bodies")]
    texts += [text for (text,) in project.query("SELECT text FROM lessons")]
    texts += [text for (text,) in project.query("SELECT critique FROM verdicts") if text]
    assert len(texts) > 24
    for text in texts:
        for line in text.splitlines():
            assert len(line) < 12 or line.encode() not in sent
    for word in (b"boxed", b"input_messages", b"print("):
        assert word not in sent
    assert collector.kinds == stored(project)


def test_a_share_of_the_groups_is_the_same_whole_groups_each_time(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as live, collecting() as later, collecting() as whole:
        monkeypatch.setenv("PHOENIX_ENDPOINT", live.url)
        practise(project, trace_sample=0.5)
        monkeypatch.setenv("PHOENIX_ENDPOINT", later.url)
        Workspace(project.db).trace("toy", sample=0.5)
        monkeypatch.setenv("PHOENIX_ENDPOINT", whole.url)
        Workspace(project.db).trace("toy")
    traces = {one.span.trace_id for one in live.spans.values()}
    assert live.spans.keys() == later.spans.keys()
    assert 0 < len(traces) < len({one.span.trace_id for one in whole.spans.values()})
    of_those = {key for key, one in whole.spans.items() if one.span.trace_id in traces}
    assert live.spans.keys() == of_those


def test_texts_are_redacted_and_cut(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    practise(project)
    change(
        project,
        "UPDATE samples SET question = 'the key sk-canary-12345678 of ' || replace(hex("
        "zeroblob(20000)), '00', 'ab')",
    )
    redactor.know(["sk-canary-12345678"])
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        Workspace(project.db).trace("toy")
    question = one_of(collector, "AGENT").attributes["input.value"]
    assert question.startswith("the key *** of abab")
    assert "more characters]" in question
    assert len(question) < 9_000
    assert all(b"sk-canary" not in body for body in collector.bodies)


def test_evaluations_are_traced_and_their_rescoring_is_not_counted_twice(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    ws = Workspace(project.db)
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        ws.evaluate(project.config, env={})
        played = collector.kinds
        ws.evaluate(project.config, env={}, verify="contains", rejudge=True)
    assert played == {"CHAIN": 12, "AGENT": 12, "LLM": 12, "EVALUATOR": 12}
    assert collector.kinds == {"CHAIN": 24, "AGENT": 24, "LLM": 12, "EVALUATOR": 24}


def test_groups_that_are_not_whole_are_left_out_and_counted(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    practise(project)
    change(
        project,
        "DELETE FROM verdicts WHERE rollout_id = 1",
        "DELETE FROM rollout_bodies WHERE rollout_id = 1",
        "DELETE FROM rollouts WHERE rollout_id = 1",
    )
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        report = Workspace(project.db).trace("toy")
    assert report.open_groups == 1
    assert collector.kinds["AGENT"] == 36 - 3


def test_a_trace_waits_for_rows_that_are_still_queued(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        save, flush = rollouts.save, Store.flush
        rewards = defaultdict[tuple[int, int], list[float | None]](list)

        def late(db: sqlite3.Connection, saves: Sequence[rollouts.Save]) -> Sequence[None]:
            for one in saves:
                verdict, place = one.rollout.verdict, (one.step, one.rollout.slot)
                rewards[place].append(None if verdict is None else verdict.reward)
                # Of a group that teaches nothing, since lessons are stored before it is traced, and
                # its last row, since the replies of its other attempts are stored before that.
                if len(rewards[place]) == GROUP and len(set(rewards[place])) == 1:
                    assert collector.asked.wait(HANG_S)
            return save(db, saves)

        def flushed(store: Store) -> None:
            collector.asked.set()
            flush(store)

        monkeypatch.setattr(rollouts, "save", late)
        monkeypatch.setattr(Store, "flush", flushed)
        practise(project, "practice.rollout_concurrency=1")
    assert collector.kinds == stored(project)


def test_a_run_that_trains_has_attempts_and_verdicts_and_no_calls(
    gp: Gp,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    database = training_database(tmp_path)
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        document = gp("runs", "trace", RUN, "--db", str(database), "--json").document
    # One attempt has no verdict.
    assert document["spans"] == {"AGENT": 48, "CHAIN": 12, "EVALUATOR": 47}
    assert document["spans"] == dict(sorted(collector.kinds.items()))
    assert (document["traces"], document["open_groups"]) == (12, 0)
    asked = {one.attributes.get("input.value") for one in collector.all}
    assert {text for text in asked if text} == {sample.question for sample in QUESTIONS}
