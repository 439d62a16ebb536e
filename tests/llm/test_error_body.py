"""What is read from the many words of an error answer."""

from typing import Any

import pytest

from grpo_practice.core.errors import ContextOverflowError
from tests.llm.test_retry_policy import error, run


@pytest.mark.parametrize(
    ("said", "limit"),
    [
        ({"message": "This model's maximum context length is 4096 tokens. You asked for 5"}, 4096),
        ({"message": "request (512 tokens) exceeds the available context size (406 tokens)"}, 406),
        ({"message": "the request exceeds the available context size", "n_ctx": 4096}, 4096),
        ({"message": "Requested tokens (5012) exceed context window of 2048"}, 2048),
        ({"message": "prompt is too long: 204018 tokens > 200000 maximum"}, 200_000),
        ({"message": "input length and max_tokens exceed context limit: 190 + 20000 > 200"}, 200),
        ({"message": "The input token count (12) exceeds the maximum number of tokens allowed (9)"},
         9),
        ({"message": "the model is loaded with context length of only 4,096 tokens"}, 4096),
        ({"message": "max_tokens must be at least 1, got -186."}, None),
        ({"message": "prompt is too long", "n_ctx": "4096"}, None),
    ],
)  # fmt: skip
async def test_the_context_is_read_from_the_error(said: dict[str, Any], limit: int | None) -> None:
    came, _, _ = await run(error(400, **said), "1")
    assert isinstance(came, ContextOverflowError)
    assert came.limit == limit
