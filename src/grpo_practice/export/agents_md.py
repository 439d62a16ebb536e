"""Export of experiences as a marked section of an `AGENTS.md` file, whose other text is kept."""

import re
import stat
from pathlib import Path

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.files import plain_file, replace_file
from grpo_practice.core.foreign_text import fenced_experiences, no_markup
from grpo_practice.core.prompts.system import HEADING
from grpo_practice.core.redact import redactor
from grpo_practice.reports.exported_agent import ExportedAgent

_MARK = "<!-- grpo-practice"
BEGIN = f"{_MARK} begin: the next export replaces all from here to the end mark -->"
END = f"{_MARK} end -->"
_ANY = re.compile(rf"^[ \t]*{_MARK}[^\r\n]*", re.MULTILINE)
_WHOLE = re.compile(rf"[ \t]*{_MARK} (begin\b.*|end) -->[ \t]*")


def to_section(agent: ExportedAgent) -> str:
    """Return the section with marks, experiences and origin, without the agent's instructions.

    An `AGENTS.md` file has instructions of its own.
    """
    learnt = fenced_experiences(agent.library) if len(agent.library) else "None yet."
    origin = "\n".join(f"- {no_markup(fact)}" for fact in agent.facts)
    return f"{BEGIN}\n{HEADING}\n\n{learnt}\n\n{origin}\n{END}\n"


def with_section(text: str, section: str) -> str:
    """Return the text with this section in place of the existing section, or else at its end.

    All other text is unchanged; the section uses the line breaks of the text.

    Raises:
        ConfigError: The text has marks other than one begin mark and one end mark after it.
    """
    marks = list(_ANY.finditer(text))
    # Use the existing section's line breaks: after a lone \r, each export would differ.
    breaks = text[marks[0].end() :][:2] if marks else text
    end = "\r\n" if "\r\n" in breaks else "\n"
    section = section.replace("\n", end)
    if not marks:
        apart = "" if not text else end if text.endswith("\n") else 2 * end
        return text + apart + section
    # Only the first word counts: the sentence after it may differ between versions.
    kinds = [(_WHOLE.fullmatch(mark[0]) or ["", "no mark"])[1][:5] for mark in marks]
    if kinds != ["begin", "end"]:
        lines = ", ".join(str(text.count("\n", 0, mark.start()) + 1) for mark in marks)
        raise ConfigError(
            f"the marks around the section are damaged: expected one begin mark, then one end mark"
            f" (lines {lines})",
            hint=f"remove the section and the lines that begin with {_MARK}; the export"
            " then adds a new section at the end",
        )
    return text[: marks[0].start()] + section.removesuffix(end) + text[marks[1].end() :]


def write_section(path: Path, section: str) -> None:
    """Put the section, without secrets, into the file; all other text is unchanged.

    Raises:
        ConfigError: The file cannot be read as text or written, or its marks are damaged.
    """
    section = redactor.text(section)
    text, mode = "", 0o644
    try:
        if plain_file(path) is not None and path.exists():
            text, mode = path.read_bytes().decode(), stat.S_IMODE(path.stat().st_mode)
        text = with_section(text, section)
    except OSError as e:
        raise ConfigError(f"cannot read {path}: {e.strerror}") from e
    except UnicodeDecodeError as e:
        raise ConfigError(
            f"{path} is not UTF-8 text (byte {e.start})", hint="name another file with -o"
        ) from e
    except ConfigError as e:
        raise ConfigError(f"{path}: {e}", hint=e.hint) from e
    replace_file(path, [text.encode()], mode)
