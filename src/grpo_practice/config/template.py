"""The files `grpo-practice init` writes: a commented config, `.env.example`, five questions."""

import re

from grpo_practice.config.base import NAME
from grpo_practice.config.compose import packaged_configs
from grpo_practice.errors import ConfigError

FILES = ("practice.yaml", ".env.example", "mine.jsonl")
_EXP_ID = "my_first_practice"


def init_files(exp_id: str) -> dict[str, str]:
    """The content of each file by name; the config's experiment is called `exp_id`.

    Raises:
        ConfigError: The name cannot be an experiment's.
    """
    if not re.fullmatch(NAME[1:-1], exp_id):
        raise ConfigError(
            f"{exp_id!r} cannot be the name of an experiment",
            hint="letters, digits, `.`, `_`, `-`; 1 to 100, not starting with . or -",
        )
    folder = packaged_configs() / "templates"
    texts = {name: (folder / name.removeprefix(".")).read_text("utf-8") for name in FILES}
    quoted = f"exp_id: '{exp_id}'"  # in quotes: `true` and `1.5` are names too
    return {name: text.replace(f"exp_id: {_EXP_ID}", quoted) for name, text in texts.items()}
