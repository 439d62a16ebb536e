"""litellm."""

from pathlib import Path

from tests.programs.library import play

REQUIRES = ("litellm",)

AGENT = """
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm


async def solve(question, system, context):
    reply = await litellm.acompletion(
        model=f"openai/{context.model}",
        api_base=context.base_url,
        api_key=context.api_key,
        messages=[{"role": "system", "content": system}, {"role": "user", "content": question}],
    )
    return reply.choices[0].message.content
"""


def check(python: Path, folder: Path) -> str:
    """Play rollouts with the library's call."""
    return play(python, folder, AGENT)
