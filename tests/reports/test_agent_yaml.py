"""The YAML export is the agent, for whoever loads it."""

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from grpo_practice.config import AgentConfig
from grpo_practice.core.redact import Redactor, redactor
from grpo_practice.core.types import Experience, Library
from grpo_practice.reports.exported_agent import ExportedAgent, Provenance
from tests.config.files import agent_in
from tests.reports.rendered import render
from tests.reports.sample import AGENT, HOSTILE, LIBRARY, agent

ENV = {"UTU_LLM_BASE_URL": "http://h/v1", "UTU_LLM_API_KEY": "key", "HOME": "/root"}


def loaded(exported: ExportedAgent) -> AgentConfig:
    with TemporaryDirectory() as folder:
        path = Path(folder, "agent.yaml")
        path.write_text(render(exported, "yaml"), "utf-8", newline="")
        return agent_in(path, ENV)


def test_the_file_is_the_agent() -> None:
    config = loaded(AGENT)
    assert config.agent.name == "solver"
    assert config.agent.instructions == AGENT.system_prompt
    assert config.model.model_provider.model == "model-a"
    assert config.model.model_provider.base_url == "http://h/v1"
    assert config.model.model_provider.key == "key"
    assert config.model.model_settings.given() == AGENT.model_settings
    assert (config.type, config.toolkits, config.max_turns) == ("simple", {}, 50)


def test_the_file_reads_as_a_person_would_write_it() -> None:
    header, body = render(AGENT, "yaml").split("type: simple\n")
    assert all(line.startswith("# ") for line in header.splitlines())
    assert body == (
        "model:\n"
        "  model_provider:\n"
        "    type: chat.completions\n"
        "    model: model-a\n"
        "  model_settings:\n"
        "    temperature: 0.3\n"
        "    extra_args:\n"
        "      timeout: 3000\n"
        "agent:\n"
        "  name: solver\n"
        "  instructions: |-\n"
        "    Solve it.\n"
        "\n"
        "    Finish with \\boxed{{…}}.\n"
        "\n"
        "    ## Experience from practice\n"
        "\n"
        "    Learnt from earlier attempts at tasks like this one. Follow each entry where it "
        "applies.\n"
        "\n"
        "    [E1] Check: Recompute the sum.\n"
        "    [E4] Ünits: Keep.\n"
        "toolkits: {}\n"
        "max_turns: 50\n"
    )


@given(instructions=HOSTILE, learnt=st.none() | HOSTILE)
@example("***Note***: see https://example.com", None)
@example("${oc.env:HOME} ${HOME} {{ x }} \\${", None)
@example(" starts with a space\n\n\n", None)
@example("\n\n  \nonly the end ", None)
@example("1.5e3", None)
@example("null", None)
@example("---\n...\n# x: |-\n%YAML\n", "--- # System")
def test_the_prompt_survives_byte_for_byte(instructions: str, learnt: str | None) -> None:
    library = Library(()) if learnt is None else Library((Experience(1, learnt),), 2, 1)
    exported = agent(instructions=instructions, library=library)
    assert loaded(exported).agent.instructions == exported.system_prompt


def resolved(text: str) -> str:
    """Return a text as OmegaConf resolves it: half the backslashes before a `${`, or an error."""

    def plain(found: re.Match[str]) -> str:
        assert len(found[1]) % 2, f"an interpolation: {text!r}"
        return "\\" * (len(found[1]) // 2) + "${"

    return re.sub(r"(\\*)\$\{", plain, text)


@given(HOSTILE)
@example("cost: ${price}$, {a}, \\${b}, \\\\\\${c}\t${oc.env:HOME} ${")
def test_the_reference_which_resolves_twice_reads_the_same_prompt(text: str) -> None:
    exported = agent(instructions=text)
    read = yaml.safe_load(render(exported, "yaml"))
    assert resolved(resolved(read["agent"]["instructions"])) == exported.system_prompt


def test_the_reference_finds_the_keys_where_it_looks_for_them() -> None:
    assert render(AGENT, "yaml").startswith("# @package _global_\n")


KEYS = HOSTILE.filter(lambda key: len(key) <= 60)
VALUES: Any = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | HOSTILE,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=5,
)


@given(
    name=HOSTILE.filter(lambda s: 1 <= len(s) <= 200),
    body=st.dictionaries(KEYS, VALUES, max_size=4),
)
@example("${oc.env:HOME}", {"stop": ["${", "\\${x}", "1.5e3", "no"]})
def test_names_and_settings_are_taken_literally_too(name: str, body: dict[str, Any]) -> None:
    vars(redactor).update(vars(Redactor()))  # what another example held for a key is none here
    config = loaded(agent(name=name, model_settings={"extra_body": body}))
    assert config.agent.name == name
    assert config.model.model_settings.extra_body == body


@pytest.mark.parametrize("text", ["\x1b]0;x\x07", "\x9b2J", "\u202egnp.exe", "a\x85b"])
def test_nothing_in_the_file_is_hidden(text: str) -> None:
    origin = Provenance(f"m\n{text}", 1, None, simulated=True)
    file = render(agent(instructions=text, name=f"n{text}", provenance=origin), "yaml")
    assert all(c.isprintable() or c == "\n" for c in file)
    assert "# SIMULATED" in file


def test_texts_of_the_agent_are_not_in_comments() -> None:
    text = render(agent(library=LIBRARY, name="SECRETNAME"), "yaml")
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert not any("Recompute" in line or "SECRETNAME" in line for line in comments)
    assert "score with the library: 0.750" in text
