"""A library in a file: written by hand, or by `export-agent --format json`."""

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any

from grpo_practice.config.reading.yaml_reader import parse_document, read_text
from grpo_practice.config.schema.agent import AgentConfig
from grpo_practice.core.errors import ChangedKey, ConfigError, FingerprintError
from grpo_practice.core.hashing import clean
from grpo_practice.core.redact import key_shaped, redactor
from grpo_practice.core.text import brief, count
from grpo_practice.core.types import Experience, Library
from grpo_practice.data.cells import value_in
from grpo_practice.practice.lint import why_not
from grpo_practice.practice.replies import EXPERIENCE_CHARS
from grpo_practice.run.library_refs import LibraryRef, library_of
from grpo_practice.run.session import Session
from grpo_practice.store import Store, branches, libraries
from grpo_practice.store.identity import LIBRARY_SHA
from grpo_practice.store.queries import runs

ENDINGS = (".yaml", ".yml", ".json")
MOST = 1000
"""Maximum number of experiences in a file, because all of them are included in every prompt."""
SHOWN_CHARS = 60
_LABEL = re.compile("E([1-9][0-9]{0,8})")
_FORMS = (
    "a library is a list of texts, a mapping of ids to texts, or has one of these under"
    " `experiences:`"
)

Entry = tuple[str, str, object]
"""Place in the file, id ("" if it has none) and value."""


def start_library(session: Session, start: str | Path | Library | None) -> Library | None:
    """Return the library that a run should start from; None if the request does not name one.

    Raises:
        ConfigError: The run, step or file does not exist, or cannot be used.
    """
    store = session.store
    if (ref := start_ref(store, start)) is not None:
        return ref.library
    if isinstance(start, str | Path):
        library = read_library(Path(start))
        # The user wrote this file, so lint only warns. Texts from a model would be quarantined.
        for e in library.experiences:
            if why := why_not(e.text):
                session.notice(f"{start}: {e.id} is used although {why.sentence}: {_shown(e.text)}")
        return library
    return None if start is None else store.read(libraries.as_stored, start)


def start_ref(store: Store, start: str | Path | Library | None) -> LibraryRef | None:
    """Return the stored library if the start is `RUN[:STEP]` or `L12`; otherwise None."""
    # A run's name may also end in `.json`; the run takes precedence over a file.
    if isinstance(start, str) and (
        store.read(runs.find, start) or not start.lower().endswith(ENDINGS)
    ):
        return library_of(store, start)
    return None


def start_option(start: str | Path | Library | None) -> str:
    """Return the option that names a run's start; empty without a start."""
    if start is None:
        return ""
    return "start" if isinstance(start, Library) else f"--from {quote(str(start))}"


@contextmanager
def start_named(store: Store, run: str, start: Library | None, option: str) -> Iterator[None]:
    """Begin a run in the block; if its start library differs, raise an error quoting the option.

    Raises:
        FingerprintError: The run began with another library or configuration.
    """
    try:
        yield
    except FingerprintError as e:
        keys = [change.key for change in e.diff]
        if LIBRARY_SHA not in keys or not option:
            raise
        began = _words(store.read(branches.start_library, run))
        names = f"{_words(start)} ({option})"
        diff = [ChangedKey(c.key, began, names) if c.key == LIBRARY_SHA else c for c in e.diff]
        way_out = (
            f"leave out {option} to resume {run}; to begin with that library, give the new run"
            " another --exp-id, or add --restart-step 0"
        )
        if len(keys) > 1:
            raise FingerprintError(str(e), diff, hint=f"{way_out}; for the rest: {e.hint}") from e
        message = f"{e}: it began with {began}, but {option} names a different library"
        raise FingerprintError(message, diff, hint=way_out) from e


def _words(library: Library | None) -> str:
    if not library:
        return "no experiences"
    return f"{count(len(library), 'experience')}{f' (L{library.id})' if library.id else ''}"


def read_library(path: Path) -> Library:
    """Return the library in a file.

    Experiences keep labels such as E1 or E4 if all of them are labelled; otherwise they are
    numbered from 1.

    Raises:
        ConfigError: The file cannot be read, or an experience cannot be used. The message names the
            file, the line (for JSON, the position in the list) and the value.
    """
    entries, texts = _entries(path), dict[str, tuple[str, str]]()
    for place, name, value in entries:
        text = _text(place, value)
        if text in texts:
            raise ConfigError(
                f"{place}: {_shown(text)} is a duplicate of {texts[text][0]}",
                hint="remove one of them",
            )
        texts[text] = place, name
    if len(texts) > MOST:
        raise ConfigError(
            f"{path}: {len(texts):,} experiences, but at most {MOST:,} are allowed, because each"
            " is part of every prompt",
            hint="keep the most helpful ones",
        )
    labels = [_LABEL.fullmatch(name) for _, name in texts.values()]
    numbers = [int(label[1]) for label in labels if label]
    # Number all texts again if a single label is missing or repeated, because an experience must
    # not get the label of another.
    if len(set(numbers)) < len(texts):
        numbers = list(range(1, len(texts) + 1))
    return Library(tuple(map(Experience, numbers, texts)), max(numbers) + 1)


def holds_library(path: Path) -> bool:
    """Return True for a library file, False for an agent file.

    Raises:
        ConfigError: The file cannot be read.
    """
    value, _ = parse_document(read_text(path), str(path))
    if not isinstance(value, dict):
        return isinstance(value, list)
    texts = all(isinstance(text, str) for text in value.values())
    return "experiences" in value or (texts and not value.keys() & AgentConfig.model_fields.keys())


def _entries(path: Path) -> list[Entry]:
    """Return the experiences of a file as written.

    Raises:
        ConfigError: The file cannot be read, or contains no experience.
    """
    text = read_text(path)
    redactor.know(key_shaped(text))  # before an error message can quote it
    if path.suffix.lower() == ".json":
        value, lines = _json(path, text), dict[Any, str]()
    else:
        value, places = parse_document(text, str(path))
        lines = {key: place.shown for key, place in places.items()}
    key: tuple[str, ...] = ()
    if isinstance(value, dict) and "experiences" in value:
        value, key = value["experiences"], ("experiences",)
    if not isinstance(value, list | dict):
        raise ConfigError(f"{lines.get(key, path)}: {_FORMS}, not {_shown(value)}")
    if not value:
        raise ConfigError(f"{path}: it contains no experience", hint=_FORMS)
    found = value.items() if isinstance(value, dict) else enumerate(value)
    return list(_named(path, found, key, lines))


def _named(
    path: Path, found: Any, key: tuple[str, ...], lines: Mapping[tuple[object, ...], str]
) -> Iterator[Entry]:
    for n, (name, value) in enumerate(found, 1):
        place = lines.get((*key, name), f"{path}, experience {n}")
        id_ = name if isinstance(name, str) else ""
        if isinstance(value, dict):
            id_ = str(value.get("id", id_))
        yield place, id_, value


def _text(place: str, value: object) -> str:
    """Return the text of one experience, joined to a single line.

    Raises:
        ConfigError: The value is not a string, or the text cannot be used.
    """
    said = value.get("text") if isinstance(value, dict) else value
    if not isinstance(said, str):
        raise ConfigError(
            f"{place}: an experience must be text, not {_shown(value)}",
            hint='write it as "Name: one sentence", in quotes, or as `text:` of a mapping',
        )
    text = " ".join(filter(None, map(str.strip, clean(said).splitlines())))
    if not text:
        raise ConfigError(f"{place}: this experience is empty", hint="remove it, or add its text")
    if redactor.holds(text):
        raise ConfigError(
            f"{place}: this experience contains a secret, such as an API key: {_shown(text)}",
            hint="remove it, because experiences are stored and sent to models",
        )
    if len(text) > EXPERIENCE_CHARS:
        raise ConfigError(
            f"{place}: this experience has {len(text):,} characters (at most {EXPERIENCE_CHARS}):"
            f" {_shown(text)}",
            hint="shorten it, or split it into several",
        )
    return text


def _json(path: Path, text: str) -> Any:
    start = len(text) - len(text.lstrip(" \t\r\n"))
    try:
        value, end = value_in(text, start)
        if text[end:].strip(" \t\r\n"):
            raise json.JSONDecodeError("Extra data", text, end)
    except json.JSONDecodeError as e:
        raise ConfigError(f"{path}:{e.lineno}: not valid JSON: {e.msg}") from e
    return value


def _shown(value: object) -> str:
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return redactor.text(brief(said, SHOWN_CHARS))
