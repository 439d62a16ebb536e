"""Files that are written whole or not at all."""

import os
import tempfile
from pathlib import Path

from grpo_practice.errors import ConfigError
from grpo_practice.redact import redactor


def write_file(path: Path, text: str, *, force: bool = False) -> None:
    """Make the file hold this text, without secrets, or leave it as it was.

    A link in its place is replaced, not followed.

    Raises:
        ConfigError: The file exists and `force` is not set, or it cannot be written.
    """
    if os.path.lexists(path) and not force:
        raise ConfigError(f"{path} is there already", hint="name another file, or add --force")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as e:
        raise ConfigError(f"cannot write {path}: {e.strerror}") from e
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(redactor.text(text))
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as e:
        raise ConfigError(f"cannot write {path}: {e.strerror}") from e
    finally:
        temporary.unlink(missing_ok=True)
