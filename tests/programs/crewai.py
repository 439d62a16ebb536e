"""CrewAI."""

from pathlib import Path

from tests.programs.library import play

REQUIRES = ("crewai",)

AGENT = """
import os

os.environ["CREWAI_DISABLE_TELEMETRY"] = "true"
from crewai import LLM, Agent, Crew, Task


def solve(question, system, context):
    llm = LLM(model=f"openai/{context.model}", base_url=context.base_url, api_key=context.api_key)
    agent = Agent(role="solver", goal="Answer the question.", backstory=system, llm=llm)
    task = Task(description=question, expected_output="The answer.", agent=agent)
    return Crew(agents=[agent], tasks=[task]).kickoff().raw
"""


def check(python: Path, folder: Path) -> str:
    """Play rollouts with a crew of one."""
    return play(python, folder, AGENT)
