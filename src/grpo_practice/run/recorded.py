"""Attempts that already exist, as practice data: from a file, or from a run of the database."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from grpo_practice.config.schema.runs import PracticeConfig
from grpo_practice.core.calls import content_texts
from grpo_practice.core.errors import ConfigError, DataError
from grpo_practice.core.hashing import digest
from grpo_practice.core.text import count, is_data_file
from grpo_practice.core.types import Sample
from grpo_practice.data.attempts import (
    Attempt,
    AttemptError,
    StagedAttempts,
    question_in,
    stage_lines,
)
from grpo_practice.data.staged_samples import StagedSamples
from grpo_practice.rollout.play import UNSCORED
from grpo_practice.run.preflight import unscorable
from grpo_practice.run.rollouts import rollouts_of
from grpo_practice.run.served_agent import ServedAgent
from grpo_practice.run.session import Session
from grpo_practice.store import Store, branches, datasets, recorded_runs
from grpo_practice.store.queries import runs
from grpo_practice.store.recorded_runs import SYSTEM
from grpo_practice.store.records import Branch, DatasetRow, RunRow, StepRow
from grpo_practice.verify.resolve import VerifyFunction


@dataclass(frozen=True, slots=True)
class RecordedAttempts:
    """Attempts that a practice run learns from instead of playing."""

    staged: StagedAttempts
    questions: tuple[DatasetRow, list[int]]
    """Dataset of their questions, and its samples to learn from."""
    counts: Mapping[int, int]
    """Sample id → number of attempts."""
    unscored: Mapping[int, int]
    """Sample id → number of attempts without a recorded reward."""

    def to_score(self, rows: Iterable[StepRow]) -> int:
        """Return the number of attempts in these steps that have no recorded reward."""
        return sum(self.unscored[sample] for row in rows for sample, _ in row.plan.slots)

    def unknown(self, rows: Iterable[StepRow]) -> int:
        """Return the number of groups in these steps whose rewards may turn out to be equal."""
        return sum(self.unscored[sample] > 0 for row in rows for sample, _ in row.plan.slots)

    def fill(self, store: Store, branch: Branch, rows: Iterable[StepRow]) -> None:
        """Store the attempts of the open steps as rollouts, unless they are already stored."""
        for row in rows:
            if not row.closed:
                store.fill_step(branch, row.plan, self.staged)


def stage_attempts(
    store: Store | None, name: str, base_dir: Path, *, rewards: bool = True
) -> StagedAttempts:
    """Return the attempts of a file, or else of a run; see `StagedAttempts.settle`.

    Raises:
        ConfigError: There is no such run, or no database (`store` is None).
        DataError: The file cannot be read.
    """
    staged = StagedAttempts()
    if is_data_file(name):
        stage_lines(staged, base_dir / name)
    elif store is None:
        raise ConfigError(f"practice.attempts: there is no run {name!r} yet")
    else:
        _stage_run(staged, store, store.read(runs.named, name))
    staged.settle(rewards=rewards)
    return staged


def recorded_attempts(
    session: Session, config: PracticeConfig, base_dir: Path, verify: VerifyFunction
) -> RecordedAttempts | None:
    """Return the attempts that a configuration names; None without `practice.attempts`.

    Notices count the used attempts, and name the others.

    Raises:
        DataError: No question has two attempts that differ, or none can be scored.
    """
    settings, store = config.practice, session.store
    if settings.attempts is None:
        return None
    name, truth = settings.attempts, settings.given_ground_truth
    staged = stage_attempts(store, name, base_dir, rewards=truth)
    for text in staged.notices(name):
        session.notice(text)
    with StagedSamples(staged.samples()) as samples:
        if not samples:
            raise DataError(
                f"{name}: no question has two attempts that can be compared",
                hint="docs/attempts.md describes the form of the lines",
            )
        stem = Path(name).stem if is_data_file(name) else name.replace("/", "-")
        named = f"{stem[:60]}-attempts-{staged.sha[:8]}"
        dataset, _ = store.add_dataset(named, samples, origin=f"attempts of {name}", replace=True)
    ids, of = store.read(datasets.sample_ids, dataset.id), staged.counts()
    counts = {i: n for i, (n, _) in zip(ids, of, strict=True)}
    unscored = {i: n for i, (_, n) in zip(ids, of, strict=True)}
    bad = unscorable(store, dataset, verify) if any(unscored.values()) else {}
    # A question needs a usable answer only if an attempt at it still has to be scored.
    gone = {i: bad[at] for at, i in enumerate(ids) if at in bad and unscored[i]}
    if gone:
        why = next(iter(gone.values()))
        told = f"{name}: {len(gone)} of {count(len(ids), 'question')} cannot be scored: {why}"
        if len(gone) == len(ids):
            raise DataError(told, hint="record rewards, or set evaluation.verify: judge")
        session.notice(told)
    ids = [i for i in ids if i not in gone][: settings.rollout_data_truncate]
    return RecordedAttempts(staged, (dataset, ids), counts, unscored)


def _stage_run(staged: StagedAttempts, store: Store, run: RunRow) -> None:
    if run.kind == "recorded" and run.head_branch is not None:
        branch = store.read(branches.load, run.head_branch)
        # Without a model, since the agent only takes its own prompt out of the messages.
        agent = ServedAgent(run.name, "", branch.prompts[SYSTEM])
        for talk in store.each(recorded_runs.conversations, branch.id):
            messages = agent.theirs(talk.messages)
            sample = Sample(question_in(messages) or "", source=run.name)
            reply = "\n".join(content_texts(messages[-1].get("content")))
            model = branch.agent.model or ""
            _add(staged, Attempt(sample, reply, messages, model=model), f"{talk.number}")
        return
    model = (
        store.read(branches.load, run.head_branch).agent.model if run.head_branch else ""
    ) or ""
    for report in rollouts_of(store, run.name):
        rollout, played = report.rollout, report.rollout.played
        place = f"{report.step}/{rollout.slot}/{rollout.attempt}"
        if rollout.verdict is None and not (played.answered or played.reason in UNSCORED):
            staged.skip("ended with an error", place)
            continue
        made = Attempt(rollout.sample, played.response, played.transcript, rollout.reward, model)
        _add(staged, made, place)


def _add(staged: StagedAttempts, attempt: Attempt, place: str) -> None:
    try:
        if not attempt.sample.question.strip():
            raise AttemptError("no question")
        staged.add(attempt, place, digest([place, attempt.response, attempt.reward]))
    except AttemptError as e:
        staged.skip(str(e), place)
