"""The files `grpo-practice init` writes: a commented config, `.env.example`, five questions."""

from grpo_practice.config.reading.compose import packaged_configs
from grpo_practice.config.schema.base import check_name

FILES = ("practice.yaml", ".env.example", "mine.jsonl")
_EXP_ID = "my_first_practice"


def init_files(exp_id: str) -> dict[str, str]:
    """The content of each file by name; the config's experiment is called `exp_id`.

    Raises:
        ConfigError: The name cannot be an experiment's.
    """
    check_name(exp_id, "an experiment")
    folder = packaged_configs() / "templates"
    texts = {name: (folder / name.removeprefix(".")).read_text("utf-8") for name in FILES}
    quoted = f"exp_id: '{exp_id}'"  # in quotes: `true` and `1.5` are names too
    return {name: text.replace(f"exp_id: {_EXP_ID}", quoted) for name, text in texts.items()}
