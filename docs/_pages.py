"""Adds the pages of the site that have their source elsewhere."""

import re
import subprocess
import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the pages of the repository's root, and the reference of all commands."""
    pages = {page: _for_site((ROOT / name).read_text("utf-8")) for name, page in PAGES.items()}
    pages["commands.md"] = _commands()
    for name, text in pages.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, **_: object) -> str:
    """Point links to files of the repository's root at their pages, and name pages without path."""
    markdown = re.sub(r"\[docs/(\w+)\.md\]", r"[\1]", markdown)
    return re.sub(r"\]\(\.\./(\w+\.md)", lambda link: f"]({PAGES.get(link[1], link[0])}", markdown)


def _for_site(text: str) -> str:
    text = re.sub(r"(\]\(|[\"'])docs/", r"\1", text)
    return re.sub(r"\]\((\w+\.md)", lambda link: f"]({PAGES.get(link[1], link[1])}", text)


def _commands() -> str:
    words = ["-m", "typer", "grpo_practice.main", "utils", "docs", "--name", "grpo-practice"]
    made = subprocess.run([sys.executable, *words], check=True, text=True, capture_output=True)
    text = re.sub(r"^Example: (.+)$", r"Example: `\1`", made.stdout, flags=re.MULTILINE)
    # Typer does not escape `][` in its sentences, which Markdown takes for a reference.
    return text.replace("# `grpo-practice`", "# Commands", 1).replace("][", "]\\[")
