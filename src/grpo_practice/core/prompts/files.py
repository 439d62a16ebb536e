"""Prompts: one Markdown file each, with a system part and a user part.

Slots are strict (a missing or unknown slot is an error at load, not in the third hour of a run),
values are never parsed as templates, and text from outside is put in a fence that it cannot close.
"""

from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from grpo_practice.core.calls import Message
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.fences import Fences
from grpo_practice.core.prompts import TemplateFault
from grpo_practice.core.stages import STAGES, distillation

if TYPE_CHECKING:
    from grpo_practice.core.prompts.template import Template, TemplateEnvironment

DIVIDER = "\n--- user ---\n"
FOLDER = Path(__file__).parent

SLOTS: Mapping[str, frozenset[str]] = {
    **{stage: STAGES[stage].slots for stage in distillation() if STAGES[stage].slots},
    "reask": frozenset(["error"]),
}
"""The prompts of distillation, and the values that the code fills into each."""
DIRECT = STAGES["direct"].slots
"""Values of a prompt that is not part of practice: see `practice/placebo_arms.py`."""
OPTIONAL = frozenset({"votes", "size", "disproved", "reward", "words", "instructions"})
"""Values that a prompt need not use: a user's own prompt may have been written before they
existed.
"""

STORED_HINT = (
    "a run keeps the prompts it began with; to use those of prompts_dir, or the shipped ones, "
    "choose another exp_id or --restart-step 0"
)

FINAL = (FOLDER / "final.md").read_text("utf-8").strip()
"""Request to a student that has used all its turns."""

_TRIAL: Mapping[str, object] = {
    **dict.fromkeys(frozenset[str]().union(*SLOTS.values()), "text"),
    "attempts": [
        {
            "number": 1,
            "shown": "E1",
            "kind": "attempt",
            "text": "text",
            "summary": "text",
            "reward": "1",
            "rank": 1,
            "judgement": "text",
        }
    ],
    "truth": True,
    "limit": 1,
    "lessons": ["text"],
    "size": {"now": 1, "most": 1},
    "disproved": ["text"],
    "proposals": [("E1", [{"id": "P1", "op": "UPDATE", "finding": "unclear", "text": "text"}])],
    "votes": {
        "E1": {
            "supporting": "1 question",
            "opposing": "1 question",
            "change": "+0.10",
            "asked": "1 question",
            "stays": True,
        }
    },
}
"""Sample values with the real structure; a prompt that uses any other name fails at load."""


_FENCES: ContextVar[Fences] = ContextVar("fences")
"""Fences of the prompt that is being rendered; unset outside `Prompt.render`."""


def fenced(text: object, label: str = "text") -> str:
    """Fence a text; available to prompts as a filter."""
    return _FENCES.get().around(text, label)


@cache
def _environment() -> "TemplateEnvironment":
    # A command that fills no prompt does not need Jinja, which takes 30 ms to import.
    from grpo_practice.core.prompts.template import TemplateEnvironment

    return TemplateEnvironment({"fenced": fenced})


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, checked, and compiled when it is first used."""

    name: str
    text: str
    """Content of the file, as stored with the run."""

    def render(self, fences: Fences, /, **slots: object) -> list[Message]:
        """Fill the slots; return the user message, after the system message if there is one.

        Raises:
            TemplateFault: The prompt cannot be filled with these values.
        """
        # Pass the fences in a context variable: compiled prompts are shared by runs, fences are
        # not.
        token = _FENCES.set(fences)
        try:
            system_part, user_part = _compiled(self.text)
            system = system_part.render(slots).strip()
            user: Message = {"role": "user", "content": user_part.render(slots).strip()}
        finally:
            _FENCES.reset(token)
        return [{"role": "system", "content": system}, user] if system else [user]


def compile_prompt(
    name: str, text: str, slots: Iterable[str], *, where: str, hint: str | None = None
) -> Prompt:
    """Compile the prompt in `text`, whose slots must be exactly `slots`, except for optional ones.

    Messages give `where` as the source of the text; the default hint lists the permitted syntax.

    Raises:
        ConfigError: The text is not a template, or its slots differ; the message names them.
    """
    wanted = frozenset(slots)
    # With Windows line ends, the divider would not be found.
    text = text.replace("\r\n", "\n")
    try:
        system, user = _compiled(text)
    except TemplateFault as e:
        raise ConfigError(
            f"{where}: not a valid prompt template: {e}", hint=hint or _environment().language
        ) from e
    found = system.slots | user.slots
    if found - wanted:
        unknown = ", ".join(sorted(found - wanted))
        raise ConfigError(
            f"{where}: unknown slot {unknown}",
            hint=hint or f"slots here: {', '.join(sorted(wanted))}",
        )
    if wanted - found - OPTIONAL:
        missing = ", ".join(sorted(wanted - found - OPTIONAL))
        raise ConfigError(f"{where}: the prompt never uses the slot {missing}", hint=hint)
    return Prompt(name, text)


@lru_cache(maxsize=32)  # compiling a new text takes 10 ms
def _compiled(text: str) -> "tuple[Template, Template]":
    """Compile a prompt's system part and its user part."""
    system, divider, user = text.partition(DIVIDER)
    if not divider:
        return _environment().compiled(""), _environment().compiled(text)
    line = 1 + (system + divider).count("\n")
    return _environment().compiled(system), _environment().compiled(user, line)


def template_fault(text: str) -> str | None:
    """Return why a text is not a valid prompt template, whatever its slots; None if it is valid."""
    try:
        _compiled(text)
    except TemplateFault as e:
        return f"not a valid prompt template: {e}"
    return None


def template_slots(text: str) -> frozenset[str] | None:
    """Return the slots that a text uses; None if it is not a prompt template."""
    try:
        system, user = _compiled(text)
    except TemplateFault:
        return None
    return system.slots | user.slots


def try_out(
    prompt: Prompt, values: Mapping[str, object], *, where: str, hint: str | None = None
) -> None:
    """Fill a prompt with sample values of the real structure; raise ConfigError if that fails."""
    try:
        prompt.render(Fences.with_new_key(), **values)
    except TemplateFault as e:
        raise ConfigError(f"{where} cannot be filled: {e}", hint=hint) from e


def load_prompt(path: Path, slots: Iterable[str]) -> Prompt:
    """Read the prompt in a file; raise ConfigError unless it is valid and has these slots."""
    return compile_prompt(path.stem, _read(path), slots, where=str(path))


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read the prompt {path}: {e}") from e


def load_prompts(folder: Path | None = None) -> dict[str, Prompt]:
    """Read the prompts of distillation, by name; files in `folder` replace the shipped ones.

    Raises:
        ConfigError: The folder is missing or contains an unknown prompt, or a prompt is invalid.
    """
    if folder is not None:
        if not folder.is_dir():
            raise ConfigError(f"prompts_dir {folder} is not a folder")
        unknown = sorted(p.name for p in folder.glob("*.md") if p.stem not in SLOTS)
        if unknown:
            raise ConfigError(
                f"prompts_dir {folder}: no stage uses {', '.join(unknown)}",
                hint=f"the prompts are {', '.join(f'{n}.md' for n in SLOTS)}",
            )
    loaded = {}
    for name, slots in SLOTS.items():
        own = folder / f"{name}.md" if folder else None
        path = own if own is not None and own.exists() else FOLDER / f"{name}.md"
        loaded[name] = _tried(name, _read(path), slots, where=str(path))
    return loaded


def prompts_from(texts: Mapping[str, str], run: str) -> dict[str, Prompt]:
    """Compile the prompts stored with a run; raise ConfigError if one cannot be used."""
    loaded = {}
    for name, slots in SLOTS.items():
        where = f"the prompt {name!r} stored with run {run}"
        if name not in texts:
            raise ConfigError(f"{where} is missing", hint=STORED_HINT)
        loaded[name] = _tried(name, texts[name], slots, where=where, hint=STORED_HINT)
    return loaded


def _tried(
    name: str, text: str, slots: Iterable[str], *, where: str, hint: str | None = None
) -> Prompt:
    """Compile and fill a prompt now, before any rollout is paid for, unless it is the shipped one.

    The tests try out the shipped prompts; doing so here would take 10 ms for each.
    """
    if text == _read(FOLDER / f"{name}.md"):
        return Prompt(name, text)
    prompt = compile_prompt(name, text, slots, where=where, hint=hint)
    try_out(prompt, {slot: _TRIAL[slot] for slot in slots}, where=where, hint=hint)
    return prompt
