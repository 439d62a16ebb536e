import pytest

from grpo_practice.core.calls import Address, Scope
from grpo_practice.rollout.tools import Output, ToolError
from grpo_practice.rollout.tools.function import tool_of

AT = Scope(Address(1, 0, 0, 0, "tool"), 0, "", 0)


async def look_up(word: str, at: Scope, times: int = 2, tags: list[str] | None = None) -> str:
    """Look a word up.

    Twice, if need be.

    Args:
        word: The word itself.
        times: How often.
    """
    return f"{word} {times} {tags} {at.address.stage}"


def test_the_schema_follows_from_hints_and_docstring() -> None:
    assert tool_of(look_up).schema == {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Look a word up.\n\nTwice, if need be.",
            "parameters": {
                "type": "object",
                "properties": {
                    "word": {"type": "string", "description": "The word itself."},
                    "times": {"type": "integer", "description": "How often.", "default": 2},
                    "tags": {
                        "anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}],
                        "default": None,
                    },
                },
                "required": ["word"],
            },
        },
    }


async def test_arguments_are_read_as_the_function_takes_them() -> None:
    run = tool_of(look_up).run
    assert await run({"word": "a"}, AT) == Output("a 2 None tool")
    assert await run({"word": "a", "times": "3", "tags": ["x"]}, AT) == Output("a 3 ['x'] tool")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "word: Field required"),
        ({"word": "a", "times": "many"}, "times: Input should be a valid integer"),
        ({"word": "a", "wrd": "b"}, "there is no argument wrd; there are: word, times, tags"),
    ],
)
async def test_arguments_that_do_not_fit_are_named(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(ToolError, match=said):
        await tool_of(look_up).run(arguments, AT)
