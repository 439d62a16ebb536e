"""How the backend `monty` makes code print its last value."""

import pytest

from grpo_practice.rollout.tools.python.monty import showing


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("1", "_ = (\n1\n)\nif _ is not None: print(repr(_))"),
        ("a = 1; a # x", "a = 1; _ = (\na\n)\nif _ is not None: print(repr(_))"),
        ("a = 1", "a = 1"),
        ("x = (", "x = ("),
        ("", ""),
    ],
)
def test_the_last_expression_is_printed_there(code: str, shown: str) -> None:
    assert showing(code)[0] == shown
