"""Facts with one owner: another file that states one again is named here."""

import ast

import pytest

from grpo_practice.core.errors import EndpointError, is_transient
from grpo_practice.core.text import is_loopback
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.http_response import Response
from grpo_practice.llm.retry_policy import Retry, decide
from grpo_practice.rollout.agents.custom_agents import _request_error
from tests.test_house import FILES, ROOT

ELSEWHERE = {
    "rollout/tools/search/page.py": "refuses names of private networks, this machine's among them",
    "rollout/tools/python/probe.py": "is run by itself, without this package",
}
"""File → why it may spell the names of this machine itself."""


def stated(names: set[str]) -> set[str]:
    """The files in which one of the texts stands, docstrings left out."""
    found = set[str]()
    for path in FILES:
        source = path.read_text("utf-8")
        for node in ast.walk(ast.parse(source)) if any(name in source for name in names) else ():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                alone = node.value in names or any(f"//{name}" in node.value for name in names)
                if alone and "\n" not in node.value and " " not in node.value:
                    found.add(str(path.relative_to(ROOT)))
    return found


def test_this_machine_is_named_in_one_file() -> None:
    named = stated({"127.0.0.1", "localhost", "::1"}) - ELSEWHERE.keys()
    assert named == {"core/text.py"}, "use text.LOOPBACK or text.is_loopback"


@pytest.mark.parametrize(
    ("host", "here"),
    [
        *[(host, True) for host in ("localhost", "127.0.0.1", "127.8.0.1", "::1")],
        *[(host, False) for host in ("", "0.0.0.0", "10.0.0.1", "localhost.example", "1::1")],
    ],
)
def test_this_machine(host: str, here: bool) -> None:
    assert is_loopback(host) is here


def test_characters_per_token_are_stated_in_one_file() -> None:
    owners = {
        str(path.relative_to(ROOT))
        for path in FILES
        if "_PER_TOKEN" in (source := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Assign | ast.AnnAssign)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id.endswith("_PER_TOKEN")
    }
    assert owners == {"core/text.py"}


def test_who_retries_and_who_passes_a_failure_on_agree() -> None:
    for status in range(400, 600):
        answer = Response(status, {}, "", None, "http://h/v1")
        assert isinstance(decide(answer, {}, Endpoint("http://127.0.0.1")), Retry) is is_transient(
            status
        ), status
        passed_on = _request_error(EndpointError("no", status=status)).status
        assert passed_on == (502 if is_transient(status) else status)
