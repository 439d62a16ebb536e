"""A run is sent while it is played, and a collector that is bad costs it nothing but a notice."""

import logging
from pathlib import Path
from typing import Any

import pytest

from grpo_practice.errors import ConfigError, EndpointError
from grpo_practice.events import Event, Notice
from grpo_practice.telemetry import collector, tracer
from grpo_practice.telemetry.settings import collector_of
from grpo_practice.workspace import Workspace
from tests.app.project import Project, finished
from tests.telemetry.receiver import Behaviour, attributes, receiving


@pytest.fixture(autouse=True)
def no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PHOENIX_COLLECTOR_ENDPOINT", "PHOENIX_ENDPOINT", "PHOENIX_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("ENDPOINT", "TRACES_ENDPOINT", "HEADERS", "TRACES_HEADERS"):
        monkeypatch.delenv(f"OTEL_EXPORTER_OTLP_{name}", raising=False)


def practise(project: Project, *, run: str = "toy", **options: Any) -> list[str]:
    """Practise, and return the notices."""
    events = list[Event]()
    Workspace(project.db).practise(
        project.config, overrides={"exp_id": run}, env={}, on_event=events.append, **options
    )
    return [event.text for event in events if isinstance(event, Notice)]


def test_it_is_the_same_live_and_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = Project(tmp_path / "p")
    with receiving() as live, receiving() as later:
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", live.url)
        monkeypatch.setenv("PHOENIX_PROJECT_NAME", "mine")
        # Whatever the machine does meanwhile, all of it is sent here.
        monkeypatch.setattr(tracer, "END_S", 60.0)
        notices = practise(project)
        assert f"traces go to {live.url}/v1/traces (PHOENIX_COLLECTOR_ENDPOINT)" in notices
        assert not [text for text in notices if "not sent" in text]
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", later.url)
        sent = Workspace(project.db).trace("toy")
        assert len(live.ids) == len(live.spans)
        assert live.ids == later.ids
        assert live.kinds == later.kinds == dict(sent.spans)
        assert {r["openinference.project.name"] for r in live.resources} == {"mine"}
        before = {s.span_id: (s.name, s.start_time_unix_nano, attributes(s)) for s in live.spans}
        after = {s.span_id: (s.name, s.start_time_unix_nano, attributes(s)) for s in later.spans}
        assert before == after


@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("500", "HTTP 500"),
        ("401", "it wants a login (HTTP 401)"),
        ("redirects", "it redirects, which is not followed"),
        ("hangs", "no answer in"),
        ("dead", "it cannot be reached"),
    ],
)
def test_a_bad_collector_costs_one_notice(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    behaviour: Any,
    said: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(collector, "REQUEST_S", 0.2)
    monkeypatch.setattr(tracer, "END_S", 60.0)
    project = Project(tmp_path / "p")
    how: Behaviour = "takes" if behaviour == "dead" else behaviour
    with receiving() as elsewhere, receiving(how, f"{elsewhere.url}/v1/traces") as bad:
        url = "http://127.0.0.1:9" if behaviour == "dead" else bad.url
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        notices = practise(project)
        about = [text for text in notices if text.startswith("traces: ")]
        assert len(about) == 1
        assert f"groups were not sent to {url}/v1/traces: {said}" in about[0]
        assert elsewhere.bodies == []
        with pytest.raises(EndpointError, match="took 0 spans"):
            Workspace(project.db).trace("toy")
    assert project.query("SELECT status FROM runs WHERE run_id = 'toy'") == [("done",)]
    assert capsys.readouterr().err == "", "the library logs nothing"
    assert logging.getLogger("urllib3").propagate is False


def test_with_content_off_no_question_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path / "p")
    monkeypatch.setattr(tracer, "END_S", 60.0)
    with receiving() as one:
        monkeypatch.setenv("PHOENIX_ENDPOINT", one.url)
        practise(project, trace_content=False)
        assert one.kinds["LLM"] > 72
        for (question,) in project.query("SELECT question FROM samples"):
            assert not [body for body in one.bodies if question[:25].encode() in body]


async def test_keys_of_one_collector_are_not_sent_to_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = await finished(tmp_path / "p")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20abc12345678,x=y")
    with receiving() as phoenix, receiving() as other:
        monkeypatch.setenv("PHOENIX_COLLECTOR_ENDPOINT", phoenix.url)
        monkeypatch.setenv("PHOENIX_API_KEY", "px-987654321")
        Workspace(project.db).trace("toy")
        assert {h.get("authorization") for h in phoenix.headers} == {"Bearer px-987654321"}
        assert {h.get("x") for h in phoenix.headers} == {None}
        monkeypatch.delenv("PHOENIX_COLLECTOR_ENDPOINT")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", f"{other.url}/v1/traces")
        Workspace(project.db).trace("toy")
        assert {h.get("authorization") for h in other.headers} == {"Bearer abc12345678"}


def test_a_file_of_the_folder_names_no_collector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = Project(tmp_path / "p")
    practise(project)
    monkeypatch.chdir(project.folder)
    with receiving() as theirs:
        Path(".env").write_text(
            f"PHOENIX_COLLECTOR_ENDPOINT={theirs.url}\nOTEL_EXPORTER_OTLP_ENDPOINT={theirs.url}\n"
        )
        with pytest.raises(ConfigError, match="no collector is named"):
            Workspace(project.db).trace("toy")
        assert theirs.bodies == []


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({"PHOENIX_ENDPOINT": "http://a:6006/"}, "http://a:6006/v1/traces"),
        ({"PHOENIX_COLLECTOR_ENDPOINT": "http://a/v1/traces"}, "http://a/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "https://a/otlp"}, "https://a/otlp/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "https://a/in"}, "https://a/in"),
        (
            {"PHOENIX_ENDPOINT": "http://a", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://b"},
            "http://a/v1/traces",
        ),
        ({"PHOENIX_ENDPOINT": " "}, None),
        ({}, None),
    ],
)
def test_the_environment_names_the_collector(variables: dict[str, str], url: str | None) -> None:
    found = collector_of(variables)
    assert (found.url if found else None) == url


def test_an_address_that_is_none_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="PHOENIX_ENDPOINT: 'localhost:6006' is no http://"):
        collector_of({"PHOENIX_ENDPOINT": "localhost:6006"})
    shown = collector_of({"PHOENIX_ENDPOINT": "http://me:pass12345@a"})
    assert shown is not None
    assert "pass12345" not in shown.shown + repr(shown).replace(shown.url, "")


@pytest.mark.parametrize("share", [-0.1, 1.5])
def test_a_share_that_is_none_is_said(tmp_path: Path, share: float) -> None:
    project = Project(tmp_path / "p")
    with pytest.raises(ConfigError, match="should be from 0 to 1"):
        practise(project, trace_sample=share)
