"""What is tried, or suggested, where an endpoint refuses a request."""

import httpx
import pytest

from grpo_practice.core.calls import Request
from grpo_practice.core.errors import EndpointError, EndpointRefusedError
from tests.llm.test_retry_policy import USER, error, run


@pytest.mark.parametrize("name", ["top_p", "presence_penalty", "frequency_penalty"])
async def test_1_41_a_sampling_setting_that_reasoning_models_refuse_is_left_out(name: str) -> None:
    words = f"Unsupported parameter: '{name}' is not supported with this model."
    fault = error(400, message=words, param=name, code="unsupported_parameter")
    came, server, _ = await run(fault, "24", ask=Request("m-1", {name: 0.95, "seed": 5}, USER))
    assert came == "24"
    assert server.seen[1] == {"model": "m-1", "messages": USER, "seed": 5}


VAGUE = [
    error(400),
    error(400, message="Bad Request"),
    error(400, message="Invalid request body."),
    error(422, message="Provider returned error"),
    error(400, message="Extra inputs are not permitted"),
    httpx.Response(400, text=""),
]


@pytest.mark.parametrize("fault", VAGUE)
async def test_a_refusal_that_names_nothing_comes_with_the_setting_to_try_first(
    fault: httpx.Response,
) -> None:
    came, _, _ = await run(fault)
    assert type(came) is EndpointError
    assert "`send_seed: false` under model_provider" in str(came)
    unseeded, _, _ = await run(fault, send_seed=False)
    assert "send_seed" not in str(unseeded)


async def test_a_refusal_that_says_what_is_wrong_is_left_as_it_is() -> None:
    for words in ("bad image", "'messages' must not be empty", "Invalid value for 'temperature'"):
        came, _, _ = await run(error(400, message=words))
        assert "send_seed" not in str(came)


@pytest.mark.parametrize(
    "url",
    [
        "https://mine.openai.azure.com",
        "https://mine.openai.azure.com/openai/deployments/gpt",
        "https://mine.services.ai.azure.com/openai/v1",
        "https://gateway.example.com/openai/deployments/gpt",
    ],
)
async def test_1_15_a_404_of_azure_says_which_two_addresses_there_are(url: str) -> None:
    came, _, _ = await run(error(404, code="404", message="Resource not found"), url=url)
    assert isinstance(came, EndpointRefusedError)
    for part in ("/openai/v1", "/openai/deployments/NAME", "extra_query: {api-version: "):
        assert part in str(came.hint)


async def test_1_15_a_404_of_another_endpoint_does_not_speak_of_azure() -> None:
    came, _, _ = await run(httpx.Response(404, text="nope"))
    assert isinstance(came, EndpointRefusedError)
    assert "azure" not in str(came.hint).lower()
    assert "ends in /v1" in str(came.hint)
