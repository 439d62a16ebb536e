"""Options and commands of the reference and of earlier versions, with their replacements."""

import os
import re

_RESTART = "leave it out to continue (that is `null`); --restart-step N replays from step N"
OPTIONS = {
    "--file_path": "the file is an argument: `data upload FILE --name NAME`",
    "--dataset_name": "--name NAME",
    "--experiment_name": "--exp-id NAME",
    "--config_name": "--config FILE",
    "--restart_step": _RESTART,
    "--restart-step": _RESTART,
    "--step": "`eval` plays and scores each rollout in one go;"
    " `eval --rejudge --run RUN --verify NAME` scores again without playing",
}
"""Option of the reference or of earlier versions → its replacement."""
GONE = {
    "data stats": "`data show NAME` shows rows, `data upload` reports repeated questions, and"
    " `data export NAME` writes every row as JSON lines, to be counted with any tool",
}
"""Removed command → its replacement."""
DATABASE_URL = "UTU_DB_URL"
_UNKNOWN = re.compile(r"No such option: (--?[\w-]+)")
_NO_COMMAND = re.compile(r"No such command '([\w-]+)'")
_INVALID = re.compile(r"Invalid value for '(--[\w-]+)'")


def hint_for(message: str, options: frozenset[str], group: str) -> str | None:
    """Return a hint for an error about an option or a command, or None.

    Args:
        message: The error message.
        options: Options of the command. `--grpo_n` means `--grpo-n` if the command has that option.
        group: Group of the command, such as `data`; '' for the program itself.
    """
    if gone := _NO_COMMAND.search(message):
        return GONE.get(f"{group} {gone[1]}".strip())
    found = _UNKNOWN.search(message) or _INVALID.search(message)
    if found is None:
        return None
    typed = found[1]
    if typed in OPTIONS:
        return OPTIONS[typed]
    ours = typed.replace("_", "-")
    return f"it is called {ours} here" if ours != typed and ours in options else None


def database_hint() -> str | None:
    """Return a notice that the reference's database variable is ignored; None if it is not set."""
    url = os.environ.get(DATABASE_URL)
    if not url or os.environ.get("GRPO_PRACTICE_DB"):
        return None
    return f"{DATABASE_URL} is ignored: name the file with --db FILE or GRPO_PRACTICE_DB"
