"""DSPy."""

from pathlib import Path
from typing import Any

from tests.programs.library import ANSWER, Message, play

REQUIRES = ("dspy",)

AGENT = """
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import dspy


def solve(question, system, context):
    lm = dspy.LM(
        f"openai/{context.model}",
        api_base=context.base_url,
        api_key=context.api_key,
        cache=False,
    )
    signature = dspy.Signature("question -> answer", system)
    with dspy.context(lm=lm):
        return dspy.Predict(signature)(question=question).answer
"""


def fields(_: dict[str, Any]) -> Message:
    """Answer in the form that the library asks for."""
    content = f"[[ ## answer ## ]]\n{ANSWER}\n\n[[ ## completed ## ]]"
    return {"role": "assistant", "content": content}


def check(python: Path, folder: Path) -> str:
    """Play rollouts with a module of the library."""
    return play(python, folder, AGENT, fields)
