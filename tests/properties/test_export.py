"""What is exported is what was measured, byte for byte, in every format, whatever it says."""

import json
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import event, given, settings
from hypothesis import strategies as st

from grpo_practice.config import AgentConfig, load_eval
from grpo_practice.core.prompts.system import system_prompt
from grpo_practice.core.text import visible
from grpo_practice.core.types import Experience, Library
from grpo_practice.reports.agent_documents import CHANGED
from tests.properties.test_config import FREE, NAMES
from tests.properties.texts import HARD, TEXTS
from tests.reports.rendered import render
from tests.reports.sample import agent
from tests.reports.test_agent_yaml import resolved

MARKS = st.sampled_from(["```", "# System", "---", "~~~", "<b>", "[x](y)", *HARD])
LINES = st.lists(MARKS | TEXTS, min_size=1, max_size=4).map(
    lambda words: " ".join(" ".join(words).split()) or "Name: do it."
)
LIBRARIES = st.lists(LINES, max_size=3).map(
    lambda texts: Library(tuple(Experience(n, t) for n, t in enumerate(texts, 1)), len(texts) + 1)
)


def read(folder: str, text: str) -> AgentConfig:
    """The agent in a file of that text, as `eval --agent` takes it."""
    path = Path(folder) / "agent.yaml"
    path.write_bytes(text.encode())
    return load_eval(None, ["data.dataset=D", "verify=exact"], {}, agent=path).config.agent


@settings(max_examples=settings().max_examples // 2)
@given(
    NAMES,
    TEXTS | st.lists(MARKS | TEXTS).map("\n".join),
    LIBRARIES,
    st.dictionaries(TEXTS.map("x{}".format), FREE, max_size=2),
)
def test_every_format_has_the_prompt_that_was_measured(
    name: str, instructions: str, library: Library, body: dict[str, Any]
) -> None:
    exported = agent(
        name=name, model="sim", instructions=instructions, library=library,
        model_settings={"extra_body": body},
    )  # fmt: skip
    prompt = system_prompt(instructions, library)

    with tempfile.TemporaryDirectory() as folder:
        found = read(folder, render(exported, "yaml"))
    assert found.agent.instructions == prompt
    assert found.agent.name == name
    assert found.model.model_settings.extra_body == body
    read_plainly = yaml.safe_load(render(exported, "yaml"))["agent"]["instructions"]
    assert resolved(resolved(read_plainly)) == prompt

    document = json.loads(render(exported, "json"))
    assert document["system_prompt"] == prompt
    assert [e["text"] for e in document["experiences"]] == [e.text for e in library.experiences]
    assert document["model"]["settings"] == {"extra_body": body}

    page = render(exported, "md")
    assert f"text\n{visible(prompt)}\n```" in page
    assert (CHANGED in page) == (visible(prompt) != prompt)
    event("spelt out" if visible(prompt) != prompt else "as it is")
