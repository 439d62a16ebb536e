"""LangChain, LangGraph."""

from pathlib import Path

from tests.programs.library import play

REQUIRES = ("langgraph", "langchain", "langchain-openai")

AGENT = """
from langchain.agents import create_agent
from langchain_openai import ChatOpenAI


async def solve(question, system, context):
    model = ChatOpenAI(model=context.model, base_url=context.base_url, api_key=context.api_key)
    agent = create_agent(model, tools=[], system_prompt=system)
    state = await agent.ainvoke({"messages": [("user", question)]})
    return state["messages"][-1].content
"""


def check(python: Path, folder: Path) -> str:
    """Play rollouts with an agent of the library."""
    return play(python, folder, AGENT)
