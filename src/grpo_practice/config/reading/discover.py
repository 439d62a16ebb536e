"""Which file `--config NAME` means."""

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from grpo_practice.config.reading.compose import is_file, packaged_configs
from grpo_practice.config.reading.problems import did_you_mean
from grpo_practice.errors import ConfigError

Command = Literal["practice", "eval"]


def find_config(name: str, command: Command, cwd: Path | None = None) -> Path:
    """The file called NAME: the path as typed, else in ./configs, else among the shipped ones.

    In a configs folder NAME or NAME.yaml is looked for under `practice/` and `eval/` (the
    command's own first) and at the top.

    Raises:
        ConfigError: There is none, or one place has two.
    """
    cwd = cwd or Path.cwd()
    typed = cwd / name
    if is_file(typed):
        return Path(name) if cwd == Path.cwd() else typed
    for folder in (cwd / "configs", packaged_configs()):
        hits = list(_candidates(folder, name, command))
        if len(hits) > 1:
            both = " and ".join(str(hit) for hit in hits)
            raise ConfigError(f"--config {name} could be {both}", hint="type the path")
        if hits:
            return hits[0]
    raise ConfigError(f"there is no config {name}", hint=_near(name, cwd))


def _candidates(folder: Path, name: str, command: Command) -> Iterator[Path]:
    if ".." in Path(name).parts or Path(name).is_absolute():
        return
    other = "eval" if command == "practice" else "practice"
    for part in (command, other, "."):
        for spelling in (name, f"{name}.yaml"):
            path = folder / part / spelling
            if is_file(path):
                yield path


def _near(name: str, cwd: Path) -> str:
    known = set()
    for folder in (cwd / "configs", packaged_configs()):
        for path in folder.rglob("*.yaml"):
            parts = path.relative_to(folder).with_suffix("").parts
            if parts[0] in ("practice", "eval"):
                known.add("/".join(parts[1:]))
            elif len(parts) == 1:
                known.add(parts[0])
    return did_you_mean(name.removesuffix(".yaml"), known) or "write one with `grpo-practice init`"
