"""The limit of open files is raised to what the connections need, or said to be too low."""

import resource
from collections.abc import Iterator

import pytest

from grpo_practice.errors import ConfigError
from grpo_practice.llm.client import Client
from grpo_practice.llm.concurrency import Limit
from grpo_practice.llm.endpoint import Endpoint
from grpo_practice.llm.open_files import OTHERS, Descriptors
from tests.fakes import FakeEndpoint, answers


@pytest.fixture
def soft() -> Iterator[int]:
    """A soft limit that is too low for a thousand connections; put back afterwards."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = 600
    assert before[1] == resource.RLIM_INFINITY or before[1] > 4 * low
    resource.setrlimit(resource.RLIMIT_NOFILE, (low, before[1]))
    yield low
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def limit() -> int:
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_connections_raise_the_soft_limit_to_what_they_need_together(soft: int) -> None:
    files = Descriptors()
    files.take(soft - OTHERS)
    assert limit() == soft
    files.take(400)
    assert limit() == soft + 400
    files.give(400)
    files.take(300)
    assert limit() == soft + 400


async def test_a_client_has_room_for_all_its_connections(soft: int) -> None:
    url = "http://127.0.0.1:9/v1"
    async with Client(Endpoint((url,)), Limit(1_000), notice=print):
        assert limit() >= 1_000 + OTHERS > soft
        async with Client(Endpoint((url,)), Limit(500), notice=print):
            assert limit() >= 1_500 + OTHERS
    async with Client(Endpoint((url,)), Limit(1_000), notice=print):
        assert limit() < 2_000 + OTHERS


async def test_answers_without_a_network_need_no_files(soft: int) -> None:
    server = FakeEndpoint(answers("x"))
    endpoint = Endpoint(("http://127.0.0.1:9/v1",))
    async with Client(endpoint, Limit(5_000), notice=print, transport=server.transport):
        assert limit() == soft


def test_what_the_system_does_not_allow_is_said_before_anything_is_sent(soft: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        pytest.skip("this system has no hard limit")
    wanted = f"{hard} requests at once need {hard + OTHERS} open files, .* {hard}$"
    files = Descriptors()
    with pytest.raises(ConfigError, match=wanted) as caught:
        files.take(hard)
    assert "concurrency" in str(caught.value.hint)
    files.take(soft)  # the refused ones are not counted
    assert limit() == soft + OTHERS
