"""Diagnosis of a run from its stored rows: the command `runs diagnose`."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from shlex import quote
from typing import Any, ClassVar

from typing_extensions import override

from grpo_practice.core.errors import ConfigError
from grpo_practice.core.findings import Finding, counted, noteworthy
from grpo_practice.core.text import count, folded
from grpo_practice.reports.answer_findings import SOME
from grpo_practice.reports.base import Report
from grpo_practice.reports.compared import extracts
from grpo_practice.reports.learning_findings import counted_steps, spoken
from grpo_practice.reports.stored_runs import run_report
from grpo_practice.store import Store, branches, datasets, trained_steps
from grpo_practice.store.distillation import HARMLESS, Distillation
from grpo_practice.store.identity import ATTEMPTS_SHA
from grpo_practice.store.queries import arms, obstacles, run_health, runs
from grpo_practice.store.records import Branch, RunRow, StepRow
from grpo_practice.store.run_names import questions_of

FEW = 10
"""Minimum number of groups, answers or texts for which a share is meaningful."""
HALF = 0.5
"""Minimum share of groups that teach nothing, or of texts no longer kept, for a finding."""
TENTH = 0.1
"""Share of groups smaller than planned above which a finding is reported."""
LONGER = 1.5
"""Ratio of the last step's answer length to the first step's above which a finding is reported."""
LITTLE = 0.1
"""Ratio of the last step's entropy to the first step's below which a finding is reported."""
LARGE = 63
"""Maximum number of experiences with measurable effects; models rarely follow more."""

MOST = 0.9
"""Share of groups with identical answers above which a finding is reported."""


@dataclass(frozen=True, slots=True, repr=False)
class RunDiagnosis(Report):
    """All checks made on a run."""

    schema: ClassVar = "grpo-practice.diagnosis/1"

    run: str
    simulated: bool
    findings: Sequence[Finding]

    @property
    @override
    def next_command(self) -> str:
        """Command of the first noteworthy finding that has one."""
        named = (found.command for found in noteworthy(self.findings) if found.command)
        return next(named, f"grpo-practice runs show {quote(self.run)}")

    @override
    def summary(self) -> Sequence[Sequence[str]]:
        """Return a row for each noteworthy finding."""
        rows = [(found.sentence, found.hint or "") for found in noteworthy(self.findings)]
        return [(f"{self.run}: findings",), *(rows or [("nothing", "")])]


def diagnose(store: Store, name: str) -> RunDiagnosis:
    """Return the problems that keep a run from learning or a score from being meaningful.

    Raises:
        ConfigError: The run does not exist, or nothing has been stored for it.
    """
    run = store.read(runs.named, name)
    name = run.name
    if run.kind == "recorded":
        raise ConfigError(
            f"{name} is a recorded run, so nothing was practised or scored", hint=questions_of(name)
        )
    if run.head_branch is None:
        raise ConfigError(
            f"{name} was never started, so there is nothing to diagnose",
            hint="grpo-practice runs list",
        )
    # The first noteworthy finding names the next command, so causes are listed before their
    # effects.
    branch, report = store.read(branches.load, run.head_branch), run_report(store, name)
    found = [*report.checked, *_answers(store, run, branch), *_disagreements(store, run, branch)]
    if run.learns:
        found = [*_groups(store, run, branch), *found]
    if run.kind == "train":
        found += _entropy(store, run, branch)
    if run.kind == "practice":
        found = [*_sampling(store, run, branch), *found]
        found += [*_texts(run, report.steps), *_library(store, run, report.steps)]
    found += _questions(store, run, branch)
    return RunDiagnosis(name, run.simulated, found)


def _share(n: float, of: float) -> str:
    return f"{n:,.0f} of {of:,.0f}"


def _sampling(store: Store, run: RunRow, branch: Branch) -> Iterator[Finding]:
    """Yield a finding about groups whose attempts are all identical."""
    groups, equal = store.read(obstacles.equal_answers, branch)
    yield counted(
        "equal answers",
        (equal, groups),
        f"all answers are identical in {_share(equal, groups)} groups",
        "unless answers are only a word or two, the endpoint may ignore the requested temperature:"
        " check its own settings (with transformers serve, do_sample in the model's"
        " generation_config.json)",
        f"grpo-practice rollouts list {quote(run.name)}",
        groups >= FEW and equal > MOST * groups,
    )


def _groups(store: Store, run: RunRow, branch: Branch) -> Iterator[Finding]:
    """Yield findings about groups that taught nothing and groups smaller than planned."""
    of, name = store.read(obstacles.groups, branch), quote(run.name)
    alike = of.right + of.wrong
    learn, attempts = "practise", "practice.grpo_n"
    if run.kind == "train":
        learn, attempts = "train", "train.group_size"
    many = of.all >= FEW and alike > HALF * of.all
    yield counted(
        "all right",
        (of.right, of.all),
        f"{_share(of.right, of.all)} groups were not informative: all of their attempts are right",
        f"{learn} on harder questions, or with a smaller model: a group in which every attempt"
        " is right leaves nothing to compare",
        f"grpo-practice rollouts list {name}",
        many and of.right >= of.wrong,
    )
    yield counted(
        "all wrong",
        (of.wrong, of.all),
        f"{_share(of.wrong, of.all)} groups were not informative: all of their attempts are wrong",
        f"check that answers are read as intended; then raise {attempts}, or {learn} on"
        " easier questions",
        f"grpo-practice rollouts list {name} --failed",
        many and of.wrong > of.right,
    )
    health = store.read(run_health.health_of, branch)
    smaller = sum(step.groups for step in health.shrunk)
    kinds = ", ".join(f"{n} {kind}" for kind, n in health.unanswered.items())
    yield counted(
        "shrunk",
        (smaller, of.all),
        f"{_share(smaller, of.all)} groups have fewer scored attempts than planned"
        + (f" (abandoned requests: {kinds})" if kinds else ""),
        "failed calls are not wrong answers and leave nothing to compare: see why they failed",
        f"grpo-practice rollouts list {name} --failed",
        of.all > 0 and smaller > TENTH * of.all,
    )


def _answers(store: Store, run: RunRow, branch: Branch) -> Iterator[Finding]:
    """Yield findings about unreadable answers and about growing answer length."""
    totals, name = store.read(arms.arm_totals, branch), quote(run.name)
    longer = (
        "check what the experiences ask for: longer answers cost more and are cut off more often"
    )
    show = f"grpo-practice experiences list --run {name}"
    if run.kind == "train":
        longer = "look at some: longer answers take more time and are cut off more often"
        show = f"grpo-practice rollouts list {name}"
    if extracts(branch, totals) and ATTEMPTS_SHA not in branch.identity:
        yield counted(
            "no answer read",
            (totals.unread, totals.scored),
            f"{_share(totals.unread, totals.scored)} answers could not be read",
            "specify the format of the answer in the agent's instructions",
            f"grpo-practice rollouts list {name} --failed",
            totals.scored >= FEW and totals.unread > SOME * totals.scored,
        )
    lengths = store.read(obstacles.answer_tokens, branch) if run.learns else []
    if len(lengths) > 1 and min(lengths[0][2], lengths[-1][2]) >= FEW:
        (first, was, _), (last, now, _) = lengths[0], lengths[-1]
        yield counted(
            "longer",
            (round(now, 1), round(was, 1)),
            f"an answer takes {now:,.0f} tokens in step {last}, {was:,.0f} in step {first}",
            longer,
            show,
            now > LONGER * was,
        )


def _entropy(store: Store, run: RunRow, branch: Branch) -> Iterator[Finding]:
    """Yield a finding about the share of its initial entropy that a trained model has kept."""
    rows = store.read(trained_steps.updates, branch)
    known = [
        (row.step, row.entropy)
        for row in rows
        if row.entropy is not None and math.isfinite(row.entropy)
    ]
    if len(known) < FEW:
        return
    (first, was), (last, now) = known[0], known[-1]
    yield counted(
        "entropy",
        (round(now, 4), round(was, 4)),
        f"the entropy of a token is {now:.2g} in step {last}, {was:.2g} in step {first}",
        "attempts become alike and teach nothing: a higher train.temperature or a larger"
        " second number of train.clip keeps them diverse",
        f"grpo-practice runs show {quote(run.name)}",
        now < LITTLE * was,
    )


def _disagreements(store: Store, run: RunRow, branch: Branch) -> Iterator[Finding]:
    """Yield findings about rollouts to which another verify function gave a different reward."""
    for of in store.read(obstacles.disagreements, run.name, branch):
        yield counted(
            "scored otherwise",
            (of.differ, of.rollouts),
            f"{_share(of.differ, of.rollouts)} rollouts get a different reward from {of.verify}",
            "look at some of them: one of the two verify functions is wrong there",
            f"grpo-practice rollouts list {quote(of.run)} --against {quote(run.name)} --flipped",
            of.rollouts >= FEW and of.differ > SOME * of.rollouts,
        )


def _questions(store: Store, run: RunRow, branch: Branch) -> Iterator[Finding]:
    """Yield findings about duplicates and overlaps among practice, selection and test questions."""
    asked = _asked(store, run.exp_id)
    for one, other in (("practice", "test"), ("selection", "test"), ("practice", "selection")):
        a, b = asked.get(one, frozenset()), asked.get(other, frozenset())
        if a and b:
            yield counted(
                "overlap",
                (len(a & b), len(b)),
                f"{_share(len(a & b), len(b))} {other} questions are also {one} questions",
                "a score on these means less: split the dataset, and evaluate on the unused part",
                "grpo-practice data split --help",
                bool(a & b),
            )
    if run.learns:
        samples = store.read(arms.planned_samples, {segment.branch_id for segment in branch.line})
        texts = store.read(arms.question_texts, samples).values()
        twice = len(texts) - len({folded(text) for text in texts})
        yield counted(
            "duplicates",
            (twice, len(texts)),
            f"{_share(twice, len(texts))} practice questions are duplicates",
            "a question that is asked twice teaches once but counts twice",
            "grpo-practice data upload --help",
            twice > SOME * len(texts),
        )


def _asked(store: Store, exp_id: str) -> dict[str, frozenset[str]]:
    """Return an experiment's folded questions by purpose: practice, selection or test."""
    of, own = dict[str, set[int]](), [r for r in store.read(runs.all_runs) if r.exp_id == exp_id]
    heads = {r.name: store.read(branches.load, r.head_branch) for r in own if r.head_branch}
    # Prompts may be compared on the practice questions, while the test uses others.
    tested = {heads[r.name].tests.dataset for r in own if r.learns and r.name in heads}
    practised = {heads[r.name].dataset_id for r in own if r.learns and r.name in heads}
    tries = {
        name
        for name, head in heads.items()
        if head.dataset_id in practised
        and not tested & {None, store.read(datasets.by_id, head.dataset_id).name}
    }
    for run in own:
        if run.has_score and run.purpose == "test" and run.name in tries:
            continue
        if run.head_branch is not None and run.kind != "recorded":
            # Questions of an `effect` run decide which experiences stay in a library.
            chosen = "selection" if run.purpose == "select" or not run.has_score else "test"
            part = "practice" if run.learns else chosen
            line = store.read(branches.load, run.head_branch).line
            of.setdefault(part, set()).update(segment.branch_id for segment in line)
    texts = {
        part: store.read(arms.question_texts, store.read(arms.planned_samples, ids)).values()
        for part, ids in of.items()
    }
    return {part: frozenset(map(folded, found)) for part, found in texts.items()}


def _texts(run: RunRow, rows: Sequence[StepRow]) -> Iterator[Finding]:
    """Yield findings about quarantined and refused proposals, with the rules involved."""
    sums = Distillation.total(list(counted_steps(rows).values()))
    refused = {rule: n for rule, n in sums.refused.items() if rule not in HARMLESS}
    quarantined = f"grpo-practice experiences list --quarantined --run {quote(run.name)}"
    kinds: list[tuple[str, Mapping[Any, int], str | None]] = [
        ("quarantined", sums.quarantined, quarantined),
        ("refused proposals", refused, None),
    ]
    for kind, rules, command in kinds:
        n, named = (
            sum(rules.values()),
            ", ".join(f"{n} {spoken(rule)}" for rule, n in rules.items()),
        )
        yield counted(
            kind,
            (n, sums.proposals),
            f"{_share(n, sums.proposals)} proposals were {kind.split()[0]}"
            + (f": {named}" if named else ""),
            "review the texts and the reason for each" if command else "see docs/learning.md",
            command,
            sums.proposals >= FEW and n > TENTH * sums.proposals,
        )


def _library(store: Store, run: RunRow, rows: Sequence[StepRow]) -> Iterator[Finding]:
    """Yield findings about the library's size and about learnt texts that it no longer holds."""
    of = store.read(obstacles.growth, rows)
    if not of.sizes:
        return
    name = quote(run.name)
    yield counted(
        "size",
        (of.sizes[-1], LARGE),
        f"the library has {count(of.sizes[-1], 'experience')}"
        f" (after each step: {', '.join(map(str, of.sizes))})",
        "every request pays for all of them: remove those that do not help",
        f"grpo-practice experiences list --run {name}",
        of.sizes[-1] > LARGE,
    )
    gone = of.texts - of.kept
    yield counted(
        "churn",
        (gone, of.texts),
        f"{_share(gone, of.texts)} learnt texts are no longer in the last library",
        "later steps rewrite what earlier ones learnt: larger steps (practice.batch_size) see more"
        " before they decide",
        f"grpo-practice experiences list --run {name}",
        of.texts >= FEW and gone > HALF * of.texts,
    )
