"""Which collector is asked, and what it may do to a run: nothing but take its traces."""

import socket
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from grpo_practice import Workspace
from grpo_practice.api.workspace import environment
from grpo_practice.config import read_environment
from grpo_practice.core.errors import ConfigError, EndpointError
from grpo_practice.core.events import Event, Notice, StepFinished
from grpo_practice.core.redact import environment_secrets, redactor
from grpo_practice.tracing import stored as sending
from grpo_practice.tracing import tracer
from grpo_practice.tracing.collector import Collector, collector_of, variables_of
from tests.contract.receiver import collecting
from tests.processes import HANG_S
from tests.run.project import Project
from tests.tracing.test_traces import notices, practise, stored

PHOENIX = "http://127.0.0.1:6006"
OTLP = "http://127.0.0.1:4318"


@pytest.mark.parametrize(
    ("variables", "url", "headers"),
    [
        ({"PHOENIX_ENDPOINT": PHOENIX}, f"{PHOENIX}/v1/traces", {}),
        ({"PHOENIX_COLLECTOR_ENDPOINT": f"{PHOENIX}/"}, f"{PHOENIX}/v1/traces", {}),
        ({"PHOENIX_ENDPOINT": f"{PHOENIX}/v1/traces"}, f"{PHOENIX}/v1/traces", {}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": OTLP}, f"{OTLP}/v1/traces", {}),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": f"{OTLP}/a/"}, f"{OTLP}/a/v1/traces", {}),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{OTLP}/x"}, f"{OTLP}/x", {}),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": OTLP, "PHOENIX_ENDPOINT": PHOENIX},
            f"{PHOENIX}/v1/traces",
            {},
        ),
        (
            {"PHOENIX_ENDPOINT": PHOENIX, "PHOENIX_API_KEY": "px-key-1"},
            f"{PHOENIX}/v1/traces",
            {"authorization": "Bearer px-key-1"},
        ),
        (
            {
                "OTEL_EXPORTER_OTLP_ENDPOINT": OTLP,
                "OTEL_EXPORTER_OTLP_HEADERS": "X-Key=a%20b,other = c=d",
            },
            f"{OTLP}/v1/traces",
            {"x-key": "a b", "other": "c=d"},
        ),
        # What is for the collector of one is not sent to the other.
        (
            {"PHOENIX_ENDPOINT": PHOENIX, "OTEL_EXPORTER_OTLP_HEADERS": "key=abc"},
            f"{PHOENIX}/v1/traces",
            {},
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": OTLP, "PHOENIX_API_KEY": "px-key-1"},
            f"{OTLP}/v1/traces",
            {},
        ),
    ],
)
def test_the_environment_names_the_collector(
    variables: Mapping[str, str], url: str, headers: Mapping[str, str]
) -> None:
    found = collector_of(variables)
    assert found is not None
    assert (found.url, dict(found.headers)) == (url, headers)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"PHOENIX_ENDPOINT": " "},
        {"PHOENIX_PROJECT_NAME": "mine"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": OTLP, "OTEL_SDK_DISABLED": "true"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": OTLP, "OTEL_TRACES_EXPORTER": "none"},
    ],
)
def test_nothing_is_traced_unless_a_collector_is_named(variables: Mapping[str, str]) -> None:
    assert collector_of(variables) is None


@pytest.mark.long_after(2)
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"PHOENIX_ENDPOINT": "localhost:6006"}, "PHOENIX_ENDPOINT"),
        ({"PHOENIX_ENDPOINT": "http://"}, "http://"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": OTLP, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "http/protobuf",
        ),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": OTLP, "OTEL_EXPORTER_OTLP_HEADERS": "a=b%0Ac"},
            "OTEL_EXPORTER_OTLP_HEADERS",
        ),
    ],
)
def test_what_cannot_be_used_is_said_once_and_the_run_goes_on(
    project: Project, monkeypatch: pytest.MonkeyPatch, variables: Mapping[str, str], words: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said = [text for text in notices(practise(project)) if "traces" in text]
    assert len(said) == 1
    assert words in said[0]
    assert stored(project)["AGENT"] == 36
    with pytest.raises(ConfigError, match="no traces"):
        Workspace(project.db).trace("toy")


@pytest.mark.long_after(1)
@pytest.mark.parametrize("given", [True, False])
def test_a_dotenv_file_names_a_phoenix_on_this_machine(
    project: Project, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    monkeypatch.chdir(project.folder)
    monkeypatch.setenv("PHOENIX_API_KEY", "of-the-shell")
    with collecting() as collector:
        lines = f"PHOENIX_ENDPOINT={collector.url}/v1/traces\nPHOENIX_PROJECT_NAME=Youtu-Agent\n"
        (project.folder / ".env").write_text(lines)
        seen = list[Any]()
        Workspace(project.db).practise(
            project.config,
            sets=["practice.epochs=1"],
            env=environment() if given else None,
            on_event=seen.append,
        )
        live = len(collector.paths)
        Workspace(project.db).trace("toy")
    assert 0 < live < len(collector.paths)
    assert f"traces go to {collector.url}/v1/traces (PHOENIX_ENDPOINT)" in notices(seen)
    assert b"Youtu-Agent" in collector.bodies[0]
    # A key of the shell goes to no address that a folder's file names.
    assert not any("authorization" in headers for headers in collector.headers)


@pytest.mark.parametrize(
    ("url", "loaded"),
    [
        ("http://127.0.0.1:6006/v1/traces", True),
        ("http://localhost:6006", True),
        ("https://phoenix.example/v1/traces", False),
        ("http://localhost.phoenix.example", False),
        ("localhost:6006", False),
    ],
)
def test_a_dotenv_file_names_no_phoenix_elsewhere(tmp_path: Path, url: str, loaded: bool) -> None:
    (tmp_path / ".env").write_text(f"PHOENIX_ENDPOINT={url}\nPHOENIX_PROJECT_NAME=p\n")
    env = read_environment({}, tmp_path)
    assert ("PHOENIX_ENDPOINT" in env, "PHOENIX_PROJECT_NAME" in env) == (loaded, loaded)
    assert any(": PHOENIX_ENDPOINT, " in said for said in env.notices) is not loaded


def test_the_collector_of_the_process_wins_over_that_of_a_dotenv_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text(f"PHOENIX_ENDPOINT={PHOENIX}\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", OTLP)
    found = collector_of(variables_of(None))
    assert found is not None
    assert found.variable == "OTEL_EXPORTER_OTLP_ENDPOINT"


def test_a_dotenv_file_names_no_collector_of_opentelemetry(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        (project.folder / ".env").write_text(f"OTEL_EXPORTER_OTLP_ENDPOINT={collector.url}\n")
        monkeypatch.chdir(project.folder)
        seen = list[Any]()
        Workspace(project.db).practise(
            project.config,
            sets=["practice.epochs=1"],
            env={**environment(), "PHOENIX_ENDPOINT": collector.url},
            on_event=seen.append,
        )
    assert collector.paths == []


def test_headers_are_secrets(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting(always=401) as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Basic%20abcdefghij")
        practise(project)
    assert collector.headers[0]["authorization"] == "Basic abcdefghij"
    assert redactor.text("it was Basic abcdefghij") == "it was ***"
    assert redactor.text("it was abcdefghij") == "it was ***"
    # Known before a command prints anything, too, in the form that the variable has.
    known = environment_secrets({"OTEL_EXPORTER_OTLP_HEADERS": "key=abcdefghij,other=123456789"})
    assert {"abcdefghij", "123456789"} <= known


@pytest.mark.long_after(2)
@pytest.mark.parametrize(
    ("status", "words", "tries"),
    [
        (500, "HTTP 500", 2),
        (401, "requires a login", 1),
        (302, "redirects", 1),
        (404, "HTTP 404", 1),
    ],
)
def test_a_collector_that_takes_nothing_is_one_notice_and_no_storm(
    project: Project, monkeypatch: pytest.MonkeyPatch, status: int, words: str, tries: int
) -> None:
    with collecting() as elsewhere, collecting(always=status, location=elsewhere.url) as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        monkeypatch.setattr(tracer, "GROUPS_PER_READ", 1)
        said = notices(practise(project))
    trouble = [text for text in said if text.startswith("no traces")]
    assert len(trouble) == 1
    assert words in trouble[0]
    [left] = [text for text in said if "not be sent in time" in text]
    assert "grpo-practice runs trace toy" in left
    # Once, and where it may be over, once more at the end.
    assert len(collector.paths) <= tries
    assert elsewhere.paths == []
    assert stored(project)["AGENT"] == 36


def test_a_dead_collector_fails_no_run(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        monkeypatch.setenv("PHOENIX_ENDPOINT", f"http://127.0.0.1:{taken.getsockname()[1]}")
        said = notices(practise(project))
    assert sum("cannot be reached" in text for text in said) == 1
    assert stored(project)["AGENT"] == 36


def test_a_hanging_collector_holds_the_end_for_no_longer_than_two_seconds(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float | None]()
    join = threading.Thread.join

    def joined(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name == "traces":
            waits.append(timeout)
            timeout = 0.01
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", joined)
    with collecting(hangs=True) as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        said = notices(practise(project))
        assert waits == [tracer.END_S]
        assert tracer.END_S <= 2
    # 12 groups and the merges: none was taken.
    [left] = [text for text in said if "not be sent in time" in text]
    assert left.startswith("the traces of 14 groups")


def test_a_collector_that_recovers_gets_all(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer, "PAUSE_S", 0.01)
    monkeypatch.setattr(tracer, "GATHER_S", 0.0)
    said = list[str]()
    with collecting(statuses=[503]) as collector:

        def see(event: Event) -> None:
            if isinstance(event, Notice):
                said.append(event.text)
            if isinstance(event, StepFinished):
                assert collector.asked.wait(HANG_S)

        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        Workspace(project.db).practise(project.config, env={}, on_event=see)
    assert sum("HTTP 503" in text for text in said) == 1
    assert collector.kinds == stored(project)


def test_a_full_queue_drops_what_comes_later_and_counts_it(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracer, "QUEUED", 3)
    monkeypatch.setattr(tracer, "GATHER_S", 60.0)
    monkeypatch.setattr(tracer, "GROUPS_PER_READ", 60)
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        said = notices(practise(project))
    assert len({one.span.trace_id for one in collector.all}) == 3
    assert [text for text in said if text.startswith("the traces of 11 groups could not")]


def test_a_stored_run_insists_where_a_collector_is_busy(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    practise(project)
    pauses = list[float]()
    monkeypatch.setattr(sending, "sleep", pauses.append)
    with collecting(statuses=[503, 429]) as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        Workspace(project.db).trace("toy")
    assert collector.kinds == stored(project)
    assert pauses == [1.0, 2.0]
    with collecting(always=503) as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        with pytest.raises(EndpointError, match="HTTP 503"):
            Workspace(project.db).trace("toy")
    assert len(collector.paths) == sending.TRIES


def test_without_the_extra_a_run_goes_on_and_the_command_says_what_to_install(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHOENIX_ENDPOINT", PHOENIX)
    for module in ("otlp", "sender"):
        monkeypatch.setitem(sys.modules, f"grpo_practice.tracing.{module}", None)
    said = [text for text in notices(practise(project)) if "traces" in text]
    assert said == [f"no traces are sent: OpenTelemetry is not installed; {tracer.NOT_INSTALLED}"]
    with pytest.raises(ConfigError) as caught:
        Workspace(project.db).trace("toy")
    assert caught.value.hint == tracer.NOT_INSTALLED


def test_a_dry_run_traces_nothing(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting() as collector:
        monkeypatch.setenv("PHOENIX_ENDPOINT", collector.url)
        Workspace(project.db).forecast_practice(project.config, env={})
    assert collector.paths == []


@pytest.mark.parametrize("share", [0.0, -1.0, 1.5, float("nan")])
def test_a_share_that_is_none_is_refused(project: Project, share: float) -> None:
    with pytest.raises(ConfigError, match="trace_sample"):
        practise(project, trace_sample=share)
    with pytest.raises(ConfigError, match="trace_sample"):
        Workspace(project.db).trace("toy", sample=share)


def test_a_run_without_a_name_or_a_collector_is_refused(project: Project) -> None:
    with pytest.raises(ConfigError, match="no run"):
        Workspace(project.db).trace("tay")
    practise(project)
    with pytest.raises(ConfigError, match="no trace collector"):
        Workspace(project.db).trace("toy")


def test_spans_are_compressed_where_that_is_asked_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "gzip")
        practise(project)
    assert collector.headers[0]["content-encoding"] == "gzip"
    assert collector.kinds == stored(project)


def test_the_address_of_a_collector_is_shown_without_its_login() -> None:
    found = collector_of({"PHOENIX_ENDPOINT": "http://me:swordfish1@127.0.0.1:6006"})
    assert isinstance(found, Collector)
    assert "swordfish1" not in found.shown
    assert redactor.text("swordfish1") == "***"
