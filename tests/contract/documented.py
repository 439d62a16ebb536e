"""What holds of the JSON document of every command."""

import shlex
from collections.abc import Sequence

from tests.contract.command import Gp


def prints_one_document(demo: Gp, words: Sequence[str]) -> None:
    """The document is all that the command prints, and its next command works."""
    ran = demo(*words, "--json")
    assert (ran.code, ran.err) == (0, "")
    document = ran.document
    assert document["schema"].startswith("grpo-practice.")
    assert document["exit"] == 0
    after = document.get("next")
    if isinstance(after, str):
        program, *typed = shlex.split(after)
        assert program == "grpo-practice"
        if typed[0] == "eval":
            typed += ["--dataset", "test", "--verify", "math"]
        done = demo(*typed)
        assert done.code == 0, done.err


def fails_with_a_document(demo: Gp, words: Sequence[str]) -> None:
    """The document of a failure has its exit code, its message and its hint."""
    ran = demo(*words, "--json")
    assert ran.code == ran.document["exit"] != 0
    error = ran.document
    assert error["message"] in ran.err
    assert f"hint: {error['hint']}" in ran.err
