"""The built-in `judge`: a model decides whether the answer means the same as the gold answer."""

import asyncio
import re
import unicodedata
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpo_practice.core import user_code
from grpo_practice.core.calls import Chat, Message, Reply
from grpo_practice.core.errors import ConfigError, EndpointError, GrpoPracticeError, JudgeError
from grpo_practice.core.fences import Fences
from grpo_practice.core.hashing import clean
from grpo_practice.core.played import PlayedTurn
from grpo_practice.core.prompts import TemplateFault
from grpo_practice.core.prompts.files import FOLDER, Prompt, compile_prompt, template_slots, try_out
from grpo_practice.core.text import strip_think
from grpo_practice.core.types import Sample, Verdict
from grpo_practice.verify.answers import gold_texts
from grpo_practice.verify.rollout_text import rollout_text

SLOTS = frozenset({"question", "answer", "response", "criteria", "trajectory"})
SHOWN: Mapping[str, Path] = {
    "answer": FOLDER / "judge.md",
    "trajectory": FOLDER / "judge_trajectory.md",
}
"""Value of `show` → built-in template."""
PRESETS: Mapping[str, Path] = {"webwalker": FOLDER / "webwalker.md"}
"""Name of a preset → file with the criteria for a known kind of question."""

_QUOTES = r"\"'\u2018-\u201f\u2039\u203a\u00ab\u00bb\u300c-\u300f>|\uff1e\uff5c"
# It starts the line or a sentence and is not quoted: a quoted grade belongs to the answer.
_GRADE = re.compile(
    r"(?:^|[.!?\u3002])[^\w" + _QUOTES + r"]{0,9}GRADE\s*[:=\uff1a]\s*(CORRECT|INCORRECT)"
    r"[^\w" + _QUOTES + r"]{0,9}$",
    re.IGNORECASE,
)
_QUOTED = re.compile(
    r"\s*[>|\uff1e\uff5c]| {4}|\t"
    r'|[^"]*(?:"[^"]*"[^"]*)*"[^"]*$'
    r"|.*[\u201c\u00ab\u300c][^\u201d\u00bb\u300d]*$"
)
"""A line that quotes: a quotation, a table row, indented text, or a line with an unclosed
quotation mark.
"""
_WRONG = re.compile(
    r"(?:^|[.!?\u3002])\W{0,9}(?:\\\w+\{)?GRADE\s*[:=\uff1a]\s*INCORRECT", re.IGNORECASE
)
_CRITIQUE = 2_000
"""Maximum number of characters kept from the judge's reasons."""

_MASTER_KEYS = frozenset(
    {
        "solution",
        "answer",
        "the answer",
        "final answer",
        "thought process",
        "let's solve this problem step by step",
        "\u89e3",
        "\u304b\u3044\u305b\u3064",
        "respuesta",
    }
)
"""Empty opening phrases that judges are known to accept as correct answers (arXiv 2507.08794)."""


class JudgeClient:
    """The judge's client for verify functions; it records a failure that the function may catch."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.failure: GrpoPracticeError | None = None
        """First error raised by a call; once it is set, the function's verdict is invalid."""

    async def query_one(self, messages: str | list[Message]) -> str:
        """Return the text of the model's reply; raise JudgeError if there is no reply."""
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        try:
            return text_of(await ask(self._chat, asked))
        except GrpoPracticeError as e:
            self.failure = self.failure or e
            raise


class BlockingJudge:
    """The judge's client for a synchronous function, which runs on its own thread."""

    def __init__(self, judge: JudgeClient) -> None:
        """Send requests through the running event loop."""
        self._judge, self._loop = judge, asyncio.get_running_loop()
        self._asked = set[Future[str]]()
        self._closed = False

    def query_one(self, messages: str | list[Message]) -> str:
        """Wait for the model's reply and return its text.

        Raises:
            JudgeError: The judge did not reply, or the time for scoring is over.
        """
        # Waiting here would block the very loop that has to fetch the reply.
        if self._loop is _running_loop():
            raise RuntimeError("a function that awaits must be defined with `async def`")
        if self._closed:
            raise JudgeError("nobody waits for this verdict any more")
        future = asyncio.run_coroutine_threadsafe(self._judge.query_one(messages), self._loop)
        self._asked.add(future)
        try:
            return future.result()
        finally:
            self._asked.discard(future)

    def close(self) -> None:
        """Cancel all requests: the function's thread continues, but its result is discarded."""
        self._closed = True
        for future in list(self._asked):
            future.cancel()


def _running_loop() -> asyncio.AbstractEventLoop | None:
    with suppress(RuntimeError):
        return asyncio.get_running_loop()
    return None


async def ask(
    chat: Chat, messages: list[Message], *, r: int = 0, limit_s: float | None = None
) -> Reply:
    """Return the judge's reply; raise JudgeError if there is no usable reply in time."""
    try:
        return await chat(messages, r=r, limit_s=limit_s)
    except (EndpointError, TimeoutError) as e:
        raise JudgeError(f"the judge could not be asked: {e}") from e


def text_of(reply: Reply) -> str:
    """Return the judge's text without its thinking; '' if the thinking never ends."""
    return strip_think(reply.content) or ""


def load_template(path: Path) -> Prompt:
    """Return the prompt in a judge's template file.

    Raises:
        ConfigError: The file is unreadable or not a template, has an unknown slot, or lacks the
            slot for the response.
    """
    where = str(path)
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise ConfigError(f"cannot read the judge's template {path}: {e}") from e
    used = template_slots(text)
    if used is not None and "response" not in used:
        raise ConfigError(
            f"{where}: the judge's template never shows the response",
            hint='write {{ response | fenced("answer") }} where it belongs',
        )
    prompt = compile_prompt("judge", text, SLOTS if used is None else used & SLOTS, where=where)
    trial: dict[str, str | None] = dict.fromkeys(SLOTS, "text")
    try_out(prompt, trial, where=where)
    try_out(prompt, trial | {"answer": None, "criteria": None}, where=where)
    return prompt


ASKS = 2
"""Maximum number of requests, per command and answer, to a judge that replies without a grade."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """Prompt, criteria and time limit of the built-in judge."""

    prompt: Prompt
    criteria: str | None = None
    limit_s: float | None = None
    """Maximum seconds for one request."""
    shows_rollout: bool = False
    """True if the prompt shows the actions of the agent."""


def rubric_of(
    base_dir: Path,
    limit_s: float | None,
    *,
    preset: str | None = None,
    criteria: str | None = None,
    template: str | None = None,
    show: str | None = None,
) -> Rubric:
    """Return the judge's prompt and criteria from the parameters of a config.

    The user's `criteria` follow the preset's; `template` is a prompt file for the whole request.
    `show` is `answer` (default) or `trajectory`, which shows the judge what the agent did.

    Raises:
        ConfigError: The preset or file does not exist, or the file is not a template.
    """
    path = user_code.find_file(template, base_dir) if template else None
    if template and path is None:
        raise ConfigError(
            f"verify judge: there is no template {template}", hint=user_code.looked_in(base_dir)
        )
    if show not in (None, *SHOWN):
        raise ConfigError(f"verify judge: show must be {' or '.join(SHOWN)}, not {show!r}")
    prompt = load_template(path or SHOWN[show or "answer"])
    shows_rollout = "trajectory" in (template_slots(prompt.text) or ())
    if path is not None and show is not None and shows_rollout != (show == "trajectory"):
        raise ConfigError(
            f"verify judge: show is {show}, but {path} {'has' if shows_rollout else 'lacks'} the"
            " slot for the trajectory",
            hint='write {{ trajectory | fenced("rollout") }} where it belongs, or leave out show',
        )
    if preset is not None and preset not in PRESETS:
        raise ConfigError(
            f"verify judge: there is no preset {preset!r}",
            hint=f"the presets are: {', '.join(PRESETS)}",
        )
    texts = [PRESETS[preset].read_text("utf-8").strip()] if preset is not None else []
    texts += [criteria] if criteria else []
    return Rubric(prompt, "\n\n".join(texts) or criteria, limit_s, shows_rollout)


async def judged(
    rubric: Rubric,
    sample: Sample,
    rollout: tuple[str, Sequence[PlayedTurn]],
    chat: Chat,
    fences: Fences,
) -> Verdict:
    """Return 1.0 if the judge's last line grades the answer CORRECT, 0.0 if INCORRECT.

    An empty answer gets 0.0 without a request. `rollout`: the response, and the turns before it,
    which only some rubrics show.

    Raises:
        JudgeError: The judge could not be reached, or gave no grade in two replies.
    """
    response, turns = rollout
    visible = (strip_think(response) or "").strip()
    golds = gold_texts(sample.answer)
    if empty_answer(visible) and visible not in golds:
        return Verdict(0.0, "the response holds no answer", visible or None)
    slots: dict[str, Any] = {
        "question": sample.question,
        "answer": "\n".join(["Any one of these:", *golds])
        if len(golds) > 1
        else (golds[0] if golds else None),
        "response": visible,
        "criteria": rubric.criteria,
        "trajectory": rollout_text(turns),
    }
    try:
        messages, asked, r = rubric.prompt.render(fences, **slots), 0, 0
    except TemplateFault as e:
        raise JudgeError(f"the judge's prompt cannot be filled: {e}") from e
    while asked < ASKS:
        reply = await ask(chat, messages, r=r, limit_s=rubric.limit_s)
        text = text_of(reply)
        if not reply.ended_early and (right := read_grade(text)) is not None:
            lines = [line for line in clean(text).splitlines() if not _GRADE.search(_visible(line))]
            return Verdict(float(right), "\n".join(lines).strip()[-_CRITIQUE:] or None)
        # Replies from earlier commands stay unusable; each command sends up to ASKS new requests.
        asked, r = asked + (not reply.replayed), r + 1
    end = _CUT if reply.ended_early else f"the last ended {text[-100:]!r}"
    raise JudgeError(f"the judge gave no grade in {ASKS} replies; {end}")


_CUT = "the last was cut off: raise judge_model.model_settings.max_tokens, or set a judge_model"


def read_grade(text: str) -> bool | None:
    """Return True or False for the grade in the judge's last line; None without a grade.

    CORRECT is ignored if an earlier line grades INCORRECT, because an answer may ask the judge to
    quote it last.
    """
    *before, last = _visible(text).strip().splitlines() or [""]
    grade = None if _QUOTED.match(last) else _GRADE.search(last)
    if grade is None:
        return None
    right = grade[1].upper() == "CORRECT"
    return None if right and any(map(_WRONG.search, before)) else right


def empty_answer(text: str) -> bool:
    """Return whether an answer has no content: no letters or digits, or only an opening phrase."""
    words = _visible(text).strip().strip(".:!# ").casefold().replace("\u2019", "'")
    return words in _MASTER_KEYS or not any(char.isalnum() for char in words)


def _visible(text: str) -> str:
    """Remove zero-width characters and Markdown emphasis, which can hide a grade."""
    return "".join(c for c in text if unicodedata.category(c) != "Cf" and c not in "*`_")
