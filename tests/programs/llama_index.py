"""LlamaIndex."""

from pathlib import Path

from tests.programs.library import play

REQUIRES = ("llama-index-core", "llama-index-llms-openai-like")

AGENT = """
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.llms.openai_like import OpenAILike


async def solve(question, system, context):
    llm = OpenAILike(
        model=context.model,
        api_base=context.base_url,
        api_key=context.api_key,
        is_chat_model=True,
        is_function_calling_model=True,
        additional_kwargs={"temperature": None},
    )
    return str(await FunctionAgent(llm=llm, system_prompt=system).run(question))
"""


def check(python: Path, folder: Path) -> str:
    """Play rollouts with an agent of the library."""
    return play(python, folder, AGENT)
