"""The files that a repository host, an editor and a package index read."""

import re
from pathlib import Path
from typing import Any

import yaml

from grpo_practice import __version__

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]


def parsed(path: Path) -> dict[str, Any]:
    # YAML 1.1 reads the key `on` as true, and so would this test.
    document = yaml.load(path.read_text("utf-8"), Loader=yaml.BaseLoader)
    assert isinstance(document, dict), path
    return document


def steps(path: Path) -> list[dict[str, Any]]:
    return [step for job in parsed(path)["jobs"].values() for step in job["steps"]]


def test_every_workflow_calls_targets_and_scripts_that_exist() -> None:
    assert [path.stem for path in WORKFLOWS] == ["ci", "docs", "release"]
    called = list[tuple[str, str]]()
    for path in WORKFLOWS:
        assert {"name", "on", "permissions", "jobs"} <= set(parsed(path))
        for job in parsed(path)["jobs"].values():
            assert set(job.get("needs", "").split()) <= set(parsed(path)["jobs"])
        for step in steps(path):
            assert ("uses" in step) != ("run" in step), (path, step)
            called += re.findall(r"make ([a-z-]+)|bash (\S+)", step.get("run", ""))
    assert called
    for target, script in called:
        assert target in TARGETS or (script and (ROOT / script).is_file()), (target, script)


def test_the_supported_versions_are_those_that_are_tested() -> None:
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert re.findall(r"Python :: (3\.\d+)", text) == PYTHONS
    assert f'requires-python = ">={PYTHONS[0]}"' in text
    matrix = parsed(ROOT / ".github/workflows/ci.yml")["jobs"]["test"]["strategy"]["matrix"]
    assert matrix == {"os": ["ubuntu-latest", "macos-latest"], "python": PYTHONS}


def test_the_release_compares_the_tag_with_the_line_of_the_version() -> None:
    (command,) = [
        step["run"]
        for step in steps(ROOT / ".github/workflows/release.yml")
        if "GITHUB_REF_NAME" in step.get("run", "")
    ]
    pattern = command.split('"', 1)[1].split('" src')[0].replace('\\"', '"')
    wanted = pattern.replace("${GITHUB_REF_NAME#v}", __version__)
    assert wanted in (ROOT / "src/grpo_practice/__init__.py").read_text("utf-8").splitlines()


def test_forms_and_settings_parse() -> None:
    for path in (ROOT / ".github/ISSUE_TEMPLATE").glob("*.yml"):
        form = parsed(path)
        assert path.stem == "config" or {"name", "description", "body"} <= set(form), path
    hooks = [h for repo in parsed(ROOT / ".pre-commit-config.yaml")["repos"] for h in repo["hooks"]]
    assert [hook["entry"].split()[0] for hook in hooks] == [
        ".venv/bin/ruff",
        ".venv/bin/ruff",
        ".venv/bin/mypy",
    ]
    assert parsed(ROOT / "CITATION.cff")["references"][0]["url"].endswith("2510.08191")


def test_every_file_that_the_guides_name_exists() -> None:
    for name in ("AGENTS.md", "SECURITY.md", "RELEASING.md"):
        text = (ROOT / name).read_text("utf-8")
        named = re.findall(r"`([\w./]+(?:\.md|\.py|\.toml|\.cff|\.yml))`", text)
        places = (ROOT, ROOT / ".github/workflows")
        assert [n for n in named if not any((place / n).exists() for place in places)] == []
        for module in re.findall(r"`python -m ([\w.]+)`", text):
            assert (ROOT / f"{module.replace('.', '/')}.py").exists(), module
        for words in re.findall(r"`make ([^`]+)`", text):
            assert {word for word in words.split() if "=" not in word} <= TARGETS, words
