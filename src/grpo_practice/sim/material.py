r"""Reads a prompt of distillation as a person would: by what stands in it, not by our headings.

A prompt is the user's file, so attempts may stand in fences, tags, tables or JSON, under headings
in any words. A reader can rely on what the code puts into the slots: transcripts with marks
like `[assistant]`, experiences as `[E3] …`, rewards as numbers, proposals as `P1` and `ADD`; and
which form of reply is asked for. Only the user part is material: the system part may hold
examples. The library alone may stand in either.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from grpo_practice.sim.lore import MARKER, named
from grpo_practice.sim.questions import find
from grpo_practice.sim.request import FENCE, Fence, SimRequest
from grpo_practice.stages import STAGES, Stage
from grpo_practice.types import OpKind

REPORT = "The attempt read the task and took one decision."
"""How each summary of the simulated teacher begins."""
OUT_OF_TURNS = "You have used all the turns"
"""How a user's turn begins that is no task, but asks for the answer."""
_LONGEST = 800
"""Characters of one experience or lesson, at most."""

_KEY = MARKER.pattern
_METHOD = re.compile(r"Method ([a-z]+-[0-9a-f]{2,}): ([^.\n\\]+)\.")
_FOLLOWED = re.compile(r"Followed (E\d+(?:, E\d+)*)\.")
_ANSWER = re.compile(r"\\boxed\{([^{}]*)\}|The answer it gave is ([^\n]{1,200}?)\.(?=\s|\\n|<|$)")
_LABEL = re.compile(r"\bE\d+\b")

_NUMBER = r"(-?\d+(?:\.\d+)?(?:[eE]-?\d+)?)(?![\d.]*\d)"
_REWARD_WORDS = r"(?:\b(?:rewards?|scored?|scores|graded?|mark(?:ed)?)|奖励|得分|分数|评分|回报)"
_RANK_WORDS = r"(?:\b(?:rank(?:ed|ing)?|place)|排名|名次)"
_TELLS = r"(?:\s*(?:of|was|is|at|为|是))?[^\w\n|]{0,8}"
_REWARD = re.compile(rf"(?i){_REWARD_WORDS}{_TELLS}{_NUMBER}")
_RANK = re.compile(rf"(?i){_RANK_WORDS}{_TELLS}{_NUMBER}")
_ROW = re.compile(r"^[ \t]*\|.*\|?[ \t]*$", re.MULTILINE)
_HEADING = re.compile(
    r"(?i)(?:\b(?:attempt|try|trial|rollout|run|candidate|response|student|solution)s?|尝试|轨迹|第)"
    r"[^\w\n]{0,6}(?:number|no|id|nr)?[^\w\n]{0,6}\d+"
)
_TURN = re.compile(r"(?:^|\n|\\n|[>\"'|] ?)\[(user|assistant)\](?:\n|\\n| )")
_NO_ATTEMPT = frozenset(
    ("experiences", "library", "task", "question", "answer", "reference", "judgement", "criteria")
)
"""Names of fences that hold no attempt."""

_FORM = re.compile(
    r"<(lessons|operations)>.*?</\1>|\{\s*[\"'](?:lessons|operations)[\"']\s*:.*?\]\s*\}", re.DOTALL
)
"""How a reply is to look: it may stand in the user part, with examples in it."""
_ASKS_LESSONS = re.compile(r"(?i)<lessons?\b|[\"'`]lessons?[\"'`]")
_ENTRY = re.compile(rf"\[(E\d+)\] ?((?:(?!\[E\d+\])[^\n]){{0,{_LONGEST}}}?{_KEY})")
_SENTENCE = re.compile(
    rf"\bWhen (?!<)(?:(?!\bWhen )[^\n]){{3,{_LONGEST}}}?(?:{_KEY}|which misled\.)"
    r"(?:\s*\(about E\d+: \w+\))?"
)
_P_FIRST = re.compile(r"\b(P\d+)\b([^\n]{0,60}?)\b(ADD|UPDATE|DELETE)\b")
_OP_FIRST = re.compile(r"\b(ADD|UPDATE|DELETE)\b([^\n]{0,40}?)\b(P\d+)\b")
_AT = re.compile(r"[^\w\n]{0,4}(?:id|target|of|for|experience|about)?[^\w\n]{0,4}\b(E\d+)\b")
_NEW = re.compile(r"(?i)\bnew\b|新")
_BEHIND = (
    re.compile(r"(?i)(\d+)(?:\s+questions?)?\s+(?:stands?\s+behind|behind|supports?|confirm)"),
    re.compile(r"(?i)(?:behind|support\w*|confirm\w*|in favou?r|支持)\D{0,30}(\d+)"),
)
_AGAINST = (
    re.compile(r"(?i)(\d+)(?:\s+questions?)?\s+(?:speaks?\s+|stands?\s+)?(?:against|contradict)"),
    re.compile(r"(?i)(?:against|contradict\w*|opposed?|反对)\D{0,30}(\d+)"),
)
"""How many questions stand behind an experience or speak against it, in either order."""
_DECIDED = re.compile(r"(?im)^\s*It (stays|goes)\b")

_SIGNED: tuple[Stage, ...] = tuple(
    sorted(
        (stage for stage in reversed(list(STAGES)) if STAGES[stage].heading),
        key=lambda stage: STAGES[stage].role == "teacher",
    )
)
"""Stages that are known by a heading or a fence. The shipped prompts have one of them even where
there is nothing to show; no prompt needs them."""


@dataclass(frozen=True, slots=True)
class Witness:
    """Facts that the text of one attempt tells."""

    reward: float | None
    """A rank, negated, where no reward is shown: more is better."""
    method: str | None
    """The key of the method it used; None when the text does not show it."""
    do: str
    """The words that go with it."""
    followed: frozenset[str]
    """Labels of the experiences it followed."""
    answer: str | None


@dataclass(frozen=True, slots=True)
class Proposal:
    """One proposed edit of a library."""

    name: str
    op: OpKind
    target: str | None
    text: str | None


@dataclass(frozen=True, slots=True)
class Votes:
    """How many questions stand behind an experience, and against it, where that is shown."""

    behind: int | None = None
    against: int | None = None
    stays: bool | None = None
    """Decision that the prompt draws from them, where it does."""


def stage_of(asked: SimRequest) -> Stage:
    """Return the stage that is asked for; `play` unless the request shows another stage.

    A page that is to be read for a tool is of stage `tool`.
    """
    names, frame = {fence.name for fence in asked.fences}, asked.frame
    for stage in _SIGNED:
        if STAGES[stage].heading in frame or STAGES[stage].fence in names:
            return stage
    text = material(asked)
    question = find(text)
    if question is None and _proposal_marks(text):
        return "merge"
    shown = _count_attempts(asked, text, ours=question is not None)
    if shown == 0 and question is None and _SENTENCE.search(_ENTRY.sub("", text)):
        return "propose"
    if shown > 1:
        return "compare"
    return "summarise" if shown else "play"


def _count_attempts(asked: SimRequest, text: str, *, ours: bool) -> int:
    """Count the attempts that a prompt shows: 0, 1, or 2 for several.

    A question of `ours` is answered in words that are known; where it stands without them, it is
    to be played.
    """
    fenced = len(_attempt_fences(asked))
    begun = len([m for m in _TURN.finditer(text) if m[1] == "user"]) - text.count(OUT_OF_TURNS)
    shown = max(begun, text.count(REPORT), "[assistant]" in text and bool(_TURN.search(text)))
    if _ASKS_LESSONS.search(asked.told):
        several = shown > 1 or fenced > 1 or len(_rewards(asked.frame)) > 1
        return 2 if several else min(shown, 1)
    if shown == 0 and not ours:
        rewarded = min(len(_rewards(asked.frame)), len(_HEADING.findall(asked.frame)))
        return 2 if rewarded > 1 else int("attempt" in {fence.name for fence in asked.fences})
    return min(shown, 2)


def material(asked: SimRequest) -> str:
    """Return what the user part shows, without how a reply is to look."""
    return _without_forms(asked.asked)


@lru_cache(maxsize=4)
def _without_forms(text: str) -> str:
    """Cut out forms; one that holds an experience or a warning is material of the same shape."""

    def kept(match: re.Match[str]) -> str:
        body = match[0]
        return body if MARKER.search(body) or "which misled." in body else ""

    text = _FORM.sub(kept, text)
    return re.sub(r"\\u00(2[67]|3[cCeE])", lambda m: chr(int(m[1], 16)), text)


def library(asked: SimRequest) -> dict[str, str]:
    """Return the text of each experience of the library, by its label; in order."""
    found = dict[str, str]()
    for match in _ENTRY.finditer(asked.told.replace("\\u0027", "'")):
        found.setdefault(match[1], match[2])
    return found


def key_of(text: str) -> str | None:
    """Return the key of the experience a text holds."""
    match = MARKER.search(text)
    return match[1] if match else None


def witnesses(asked: SimRequest) -> list[Witness]:
    """Return the attempts shown, in order, with what each of them tells."""
    return [witness(reward, text) for reward, text in _attempts(asked)]


def witness(reward: float | None, text: str) -> Witness:
    """Read what the text of one attempt tells: of several methods the last one."""
    methods, answers = _METHOD.findall(text), _ANSWER.findall(text)
    method, do = methods[-1] if methods else (None, "")
    followed = frozenset(_LABEL.findall(" ".join(_FOLLOWED.findall(text))))
    answer = next(filter(None, answers[-1]), None) if answers else None
    return Witness(reward, method, do, followed, answer)


def _attempts(asked: SimRequest) -> list[tuple[float | None, str]]:
    """Return reward and text of each attempt."""
    fences = _attempt_fences(asked)
    if fences:  # each reward stands before its attempt or, where all come later, after it
        before = [_rewards(fence.before) for fence in fences]
        rest = _rewards(asked.asked.rpartition(">>>")[2])
        found = [*before[1:], rest] if not before[0] and rest else before
        return [(r[-1][1] if r else None, f.body) for r, f in zip(found, fences, strict=True)]
    text = material(asked)
    marks = _rewards(text)
    if len(marks) < 2:
        return [(None, part) for part in _parts(text)]
    places, values = [at for at, _ in marks], [value for _, value in marks]
    methods = [m.start() for m in _METHOD.finditer(text)]
    if methods and methods[0] < places[0] and places[-1] > methods[-1]:  # told after the attempt
        cuts = [0, *places]
    else:
        cuts = [*places, len(text)]
    pieces = [text[a:b] for a, b in pairwise(cuts)]
    return list(zip(values, pieces, strict=True))


def _attempt_fences(asked: SimRequest) -> list[Fence]:
    """Return the fences that hold attempts: those of one name, of which there are most."""
    fences = [f for f in asked.fences if f.name not in _NO_ATTEMPT]
    names = [f.name for f in fences]
    most = max(names, key=names.count, default="")
    telling = [f for f in fences if f.name == most]
    own = most in ("summary", "attempt")
    return telling if own or any(_TURN.search(f.body) or REPORT in f.body for f in telling) else []


def _rewards(text: str) -> list[tuple[int, float]]:
    """Return place and value of every reward; of every rank, negated, where there is none."""
    columns = list(_column(text, _REWARD_WORDS))
    found = columns or [(m.start(), float(m[1])) for m in _REWARD.finditer(text)]
    return found or [(m.start(), -float(m[1])) for m in _RANK.finditer(text)]


def _column(text: str, words: str) -> Iterator[tuple[int, float]]:
    """Return the numbers of a table's column with such a heading."""
    column, heading = None, re.compile(f"(?i){words}")
    for row in _ROW.finditer(text):
        cells = [cell.strip() for cell in row[0].strip().strip("|").split("|")]
        if column is None:
            column = next((i for i, cell in enumerate(cells) if heading.search(cell)), None)
        elif column < len(cells) and re.fullmatch(_NUMBER, cells[column]):
            yield row.start(), float(cells[column])


def _parts(text: str) -> list[str]:
    """Cut the text where attempts begin: at their headings, else at their first words."""
    begins = [m.start() for m in _HEADING.finditer(text)]
    if len(begins) < 2:
        begins = [m.start() for m in _TURN.finditer(text) if m[1] == "user"]
    if len(begins) < 2:
        begins = [m.start() for m in re.finditer(re.escape(REPORT), text)]
    cuts = [*begins, len(text)]
    return [text[a:b] for a, b in pairwise(cuts)]


def transcript(asked: SimRequest) -> str:
    """Return what is shown of the one attempt that is to be summarised."""
    return "\n".join(asked.fenced("attempt")) or material(asked)


def lessons(asked: SimRequest) -> list[str]:
    """Return the lessons of a prompt, in order, each with what it says about which experience."""
    fenced = asked.fenced("lesson")
    if fenced:
        return fenced
    text = _ENTRY.sub("", material(asked))
    return [_plain(match[0]) for match in _SENTENCE.finditer(text)]


def proposals(asked: SimRequest) -> list[Proposal]:
    """Return the proposals of a prompt, in order."""
    text = _ENTRY.sub("", material(asked))
    marks, end, target = _proposal_marks(text), 0, None
    found = []
    for i, (match, name, op) in enumerate(marks):
        target = _target(text[end : match.start()], match, text, target)
        stop = marks[i + 1][0].start() if i + 1 < len(marks) else len(text)
        segment = text[match.end() : stop]
        own = None if op == "DELETE" else _answer_in(segment)
        found.append(Proposal(name, op, None if op == "ADD" else target, own))
        said = _SENTENCE.search(segment) if own else None
        end = match.end() + (said.end() if said else 0)
    return found


def _proposal_marks(text: str) -> list[tuple[re.Match[str], str, OpKind]]:
    """Return where each proposal begins, with its name and operation; `P1 ADD` or `ADD … P1`."""
    first, second = _P_FIRST.search(text), _OP_FIRST.search(text)
    if second and (first is None or second.start() < first.start()):
        return [(m, m[3], _op(m[1])) for m in _OP_FIRST.finditer(text)]
    return [(m, m[1], _op(m[3])) for m in _P_FIRST.finditer(text)]


def _op(word: str) -> OpKind:
    return "ADD" if word == "ADD" else "UPDATE" if word == "UPDATE" else "DELETE"


def _target(between: str, mark: re.Match[str], text: str, before: str | None) -> str | None:
    """Return the experience a proposal is about: named with it, or by its heading."""
    own = _LABEL.search(mark[2]) or _AT.match(text, mark.end())
    if own:
        return own[own.lastindex or 0]
    labels = list(_LABEL.finditer(between))
    news = list(_NEW.finditer(between))
    if labels and (not news or news[-1].start() < labels[-1].start()):
        return labels[-1][0]
    return None if news else before


def _answer_in(segment: str) -> str | None:
    """Return the text a proposal has: what stands in its fence, else a sentence of this world."""
    fence = FENCE.search(segment)
    if fence:
        return fence[3]
    sentence = _SENTENCE.search(segment)
    return named(_plain(sentence[0])) if sentence else None


def votes(asked: SimRequest) -> dict[str, Votes]:
    """Read what is shown about the evidence for each experience, under its heading or beside it."""
    text, found = material(asked), dict[str, Votes]()
    labels = list(_LABEL.finditer(text))
    ends = [*(label.start() for label in labels), len(text)][1:]
    for label, end in zip(labels, ends, strict=True):
        piece = text[label.end() : min(end, label.end() + _LONGEST)]
        decided = _DECIDED.search(piece)
        stays = decided[1].lower() == "stays" if decided else None
        told = Votes(_first(_BEHIND, piece), _first(_AGAINST, piece), stays)
        if told != Votes():
            found[label[0]] = told
    return found


def _first(patterns: Sequence[re.Pattern[str]], text: str) -> int | None:
    """Return the number of the first pattern that is found."""
    match = next((m for p in patterns if (m := p.search(text))), None)
    return int(match[1]) if match else None


def limit(asked: SimRequest) -> int:
    """Return the most lessons asked for; 2 where it is not said."""
    words = r"(?:at most|up to|no more than|max(?:imum)?(?: of)?|limit|最多|不超过)"
    numbers = re.findall(rf"(?i){words}[^\d\n]{{0,20}}(\d+)\b(?!\s*words)", asked.frame)
    numbers = numbers or re.findall(rf"(?i){words}[^\d\n]{{0,20}}(\d+)\b(?!\s*words)", asked.told)
    return max(1, int(numbers[-1])) if numbers else 2


def _plain(text: str) -> str:
    """Return a sentence as it was before it became a JSON string."""
    return text.replace("\\\\", "\\")
