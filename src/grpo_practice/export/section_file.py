"""A file such as `AGENTS.md`: it belongs to someone else, and only one section is ours."""

import stat
from pathlib import Path

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.files import plain_file, replace_file
from grpo_practice.core.redact import redactor
from grpo_practice.export.agents_md import with_section


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
