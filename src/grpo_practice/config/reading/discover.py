"""Config files: the file that `--config NAME` selects, and the files that `init` writes."""

import difflib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from grpo_practice.config.reading.compose import compose, is_file, packaged_configs
from grpo_practice.config.reading.problems import did_you_mean
from grpo_practice.config.reading.yaml_reader import Tree
from grpo_practice.config.schema.base import check_name
from grpo_practice.core.errors import ConfigError

Command = Literal["practice", "eval"]
TEMPLATES = ("practice.yaml", ".env.example", "mine.jsonl")
"""Files of a new project: a commented config, environment variables, and sample questions."""
UNNAMED = (TEMPLATES[0], "grpo-practice.yaml")
"""Config files that a command finds in the current folder without `--config`, just as `make` finds
its file.
"""


def find_config(name: str, command: Command, cwd: Path | None = None) -> Path:
    """Find the file called NAME: the path as typed, then a file in ./configs, then a built-in file.

    In a configs folder, NAME and NAME.yaml are searched for under `practice/` and `eval/` (the
    command's own folder first) and at the top level.

    Raises:
        ConfigError: No file matches, or several files in one place do.
    """
    cwd = cwd or Path.cwd()
    typed = cwd / name
    if is_file(typed):
        return Path(name) if cwd == Path.cwd() else typed
    # A project's own configs override built-in ones of the same name.
    for folder in (cwd / "configs", packaged_configs()):
        hits = list(_candidates(folder, name, command))
        if len(hits) > 1:
            both = " and ".join(str(hit) for hit in hits)
            raise ConfigError(f"--config {name} could be {both}", hint="give its path")
        if hits:
            return hits[0]
    raise ConfigError(f"there is no config {name}", hint=_near(name, cwd))


def config_here(command: Command) -> Path | None:
    """Return the config in the current folder that needs no `--config`, or None.

    Raises:
        ConfigError: Two files qualify.
    """
    for names in [("eval.yaml",)] * (command == "eval") + [UNNAMED]:
        found = [name for name in names if is_file(Path(name))]
        if len(found) > 1:
            both = " and ".join(found)
            raise ConfigError(
                f"this folder has more than one config: {both}", hint=f"--config {found[0]}"
            )
        if found:
            return Path(found[0])
    return None


def _candidates(folder: Path, name: str, command: Command) -> Iterator[Path]:
    # Absolute paths and paths with `..` would select a file outside the configs folder.
    if ".." in Path(name).parts or Path(name).is_absolute():
        return
    other = "eval" if command == "practice" else "practice"
    for part in (command, other, "."):
        for spelling in (name, f"{name}.yaml"):
            path = folder / part / spelling
            if is_file(path):
                yield path


def project_config(dataset: str) -> Path | None:
    """Return the config that `init` wrote here if it evaluates on this dataset, else None."""
    named = project_evaluation().at("data").data.get("dataset")
    return Path(TEMPLATES[0]) if named == dataset else None


def project_evaluation() -> Tree:
    """Return the evaluation section of the config that `init` wrote here, or an empty tree."""
    path = Path(TEMPLATES[0])
    try:
        return (compose(path) if is_file(path) else Tree({})).at("evaluation")
    except ConfigError:  # the command that loads it reports the error
        return Tree({})


def is_divided(dataset: str) -> bool:
    """Return whether the config that `init` wrote in this folder names a part of this dataset."""
    return any(project_config(f"{dataset}-{part}") for part in ("test", "train"))


def _near(name: str, cwd: Path) -> str:
    # Compare stems, because the common suffix would make all names look similar.
    here = {path.stem: path.name for path in cwd.glob("*.yaml") if is_file(path)}
    stem = Path(name).name.removesuffix(".yaml")
    if near := difflib.get_close_matches(stem, here, n=1):  # prefer it to a built-in config
        return f"did you mean {here[near[0]]}?"
    known = set(here.values())
    for folder in (cwd / "configs", packaged_configs()):
        for path in folder.rglob("*.yaml"):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[0] in ("practice", "eval"):
                known.add("/".join(parts[1:]))
            elif len(parts) == 1:
                known.add(parts[0])
    return did_you_mean(name.removesuffix(".yaml"), known) or "write one with `grpo-practice init`"


def init_files(exp_id: str) -> dict[str, str]:
    """Return the files of a new project by name; raise ConfigError for an invalid `exp_id`."""
    check_name(exp_id, "an experiment")
    folder = packaged_configs() / "templates"
    texts = {name: (folder / name.removeprefix(".")).read_text("utf-8") for name in TEMPLATES}
    quoted = f"exp_id: '{exp_id}'"  # quoted, because `true` and `1.5` are valid names
    return {name: text.replace("exp_id: my_first_practice", quoted) for name, text in texts.items()}
