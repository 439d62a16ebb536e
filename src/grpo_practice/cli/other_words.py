"""Words that are not of this program, removed ones too, and what to type instead."""

import os
import re

_RESTART = "leave it out to go on (that is `null`); --restart-step N plays from step N on"
OPTIONS = {
    "--file_path": "the file is an argument: `data upload FILE --name NAME`",
    "--dataset_name": "--name NAME",
    "--experiment_name": "--exp-id NAME",
    "--config_name": "--config FILE",
    "--restart_step": _RESTART,
    "--restart-step": _RESTART,
    "--step": "`eval` plays and scores each rollout at once;"
    " `eval --rejudge --run RUN --verify NAME` scores again without playing",
}
"""Option as typed there → what to type here."""
GONE = {
    "data stats": "`data show NAME` shows rows, `data upload` reports repeated questions, and"
    " `data export NAME` writes every row as JSON lines, to be counted with any tool",
}
"""Removed command → what to type instead."""
DATABASE_URL = "UTU_DB_URL"
_UNKNOWN = re.compile(r"No such option: (--?[\w-]+)")
_NO_COMMAND = re.compile(r"No such command '([\w-]+)'")
_INVALID = re.compile(r"Invalid value for '(--[\w-]+)'")


def hint_for(message: str, options: frozenset[str], group: str) -> str | None:
    """Return a hint for a message about an option or a command; None without one.

    `options` are those of the command: `--grpo_n` is meant as `--grpo-n` where that is one.
    `group` is the group of the command, such as `data`; '' for the program itself.
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
    return f"{ours} is what it is called here" if ours != typed and ours in options else None


def database_hint() -> str | None:
    """Return a sentence about a database that the reference's variable names; None without."""
    url = os.environ.get(DATABASE_URL)
    if not url or os.environ.get("GRPO_PRACTICE_DB"):
        return None
    return f"{DATABASE_URL} is not read: name the file with --db FILE or GRPO_PRACTICE_DB"
