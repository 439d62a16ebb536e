"""One table says which formats there are; a format may be a folder."""

import pytest

from grpo_practice.core.errors import ConfigError
from grpo_practice.reports.agent_formats import (
    DEFAULT,
    FORMATS,
    Format,
    format_by_name,
    render_files,
)
from tests.reports.rendered import render
from tests.reports.sample import AGENT


def test_each_format_is_found_by_the_end_of_a_file_name() -> None:
    by_suffix = {f.suffix: name for name, f in FORMATS.items() if f.suffix}
    assert {s: format_by_name(f"Agent{s.upper()}") for s in by_suffix} == by_suffix
    assert format_by_name("") == format_by_name("agent.yml") == DEFAULT


def test_the_same_agent_gives_the_same_files_and_every_path_stays_in_the_folder() -> None:
    for name in FORMATS:
        files = render_files(AGENT, name)
        assert files == render_files(AGENT, name)
        assert not [path for path in files if path.startswith("/") or ".." in path.split("/")]


def test_a_folder_is_no_text_and_an_unknown_format_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATS, "bundle", Format(lambda agent: {"a.md": agent.name, "b/c": "x"}))
    assert render_files(AGENT, "bundle") == {"a.md": "solver", "b/c": "x"}
    with pytest.raises(ConfigError, match="writes a folder"):
        render(AGENT, "bundle")
    with pytest.raises(ConfigError, match="no export format 'toml'") as told:
        render(AGENT, "toml")
    assert told.value.hint == f"choose one of {', '.join(FORMATS)}"
