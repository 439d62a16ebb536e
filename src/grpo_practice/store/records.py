"""Values that are passed to the store and returned by it."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from grpo_practice.core.types import Distilled, Edit, Library, PlannedStep, Rollout
from grpo_practice.store.run_labels import ArmName, RunLabels

RunKind = Literal["practice", "eval", "train"]
ShownKind = Literal["practice", "train", "eval", "effect", "recorded"]
"""Kind of a run as shown to a person."""
Cause = Literal["start", "restart", "rejudge"]

Purpose = Literal["practice", "test", "select", "effect", "rejudge", "train", "trial", "recorded"]
"""Purpose of a run; `store/schema/1.sql` explains each one."""

EFFECT: Purpose = "effect"
"""Purpose of an evaluation that shows each rollout half of a library, and so has no score."""


@dataclass(frozen=True, slots=True)
class AgentRecord:
    """The agent that a branch plays; the fields are its columns.

    Branches with the same agent, weights and prompt are comparable, whatever their runs are called.
    """

    model: str | None = None
    """Model that answers; None for a user's own agent with an unknown model."""
    k: int | None = None
    """Configured number of attempts at a question; None for a recorded run."""
    seed: int | None = None
    """Seed of an evaluation, or of the evaluations of a practice run."""
    agent_sha: bytes | None = None
    """Hash of the agent's settings without its instructions."""
    weights_sha: bytes | None = None
    """Hash of the trained weights in use; None for any other model."""
    library_sha: bytes | None = None
    """Hash of the library of an evaluation, even if it is in its instructions; None without one."""
    prompt_sha: bytes | None = None
    """Hash of the system prompt of an evaluation; None for a run with several."""


@dataclass(frozen=True, slots=True)
class TestSet:
    """Test questions of a practice run's agent, as configured."""

    dataset: str | None = None
    """Name of the dataset, or a file; None if the configuration names neither."""
    k: int = 1
    limit: int | None = None
    """Maximum number of questions of an evaluation during the run; None for all."""


@dataclass(frozen=True, slots=True)
class VerifierRecord:
    """A version of a verify function, to which its verdicts belong."""

    sha: bytes
    name: str
    spec: Mapping[str, Any]
    source: str | None = None


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Spec of a run for a command: its name, and the keys that a branch is bound to."""

    name: str
    exp_id: str
    kind: RunKind
    identity: Mapping[str, Any]
    """Flat, dotted, redacted keys that a branch is bound to."""
    config_text: str
    base_dir: Path
    dataset_id: int
    verifier: VerifierRecord
    purpose: Purpose
    k: int
    seed: int | None = None
    base_model: str | None = None  # of a training run; for `k` and `seed`, see `AgentRecord`
    arm: ArmName | None = None  # None if no agent or library was typed
    prompts: Mapping[str, str] = field(default_factory=dict)
    """Prompt texts by name; a resumed run uses the texts stored at its start."""
    library: Library = field(default_factory=Library)
    """Library that an evaluation uses, or that a new practice run starts with."""
    tests: TestSet = field(default_factory=TestSet)
    simulated: bool = False
    parent_run: str | None = None
    parent_step: int | None = None
    reuses: int | None = None
    """Branch of another run whose calls may answer the requests of a new run."""
    addresses: Mapping[str, str] = field(default_factory=dict, repr=False)
    """`student_at` and `judge_at` → `Endpoint.address`, secrets included; {} if they are unknown.
    Only evaluations lend answers, so only they have addresses."""
    fence_key: bytes | None = field(default=None, repr=False)
    """Secret of a new run's fences; None creates one. A rejudge reuses its source's secret."""


class Segment(NamedTuple):
    """The steps `first` … `end`-1 of a run, which this branch holds; also parameters of a query."""

    branch_id: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Branch:
    """The branch that a command works on, and the branches that hold the steps before its own."""

    id: int
    run: str
    from_step: int
    line: tuple[Segment, ...]
    """Segments, newest first; together they cover every step from 0 on."""
    verifier_id: int
    dataset_id: int
    """Row of the dataset; 0 for a recorded run, which has neither dataset nor verifier."""
    library: Library
    """Library before `from_step`."""
    prompts: Mapping[str, str]
    agent: AgentRecord = field(default_factory=AgentRecord)
    tests: TestSet = field(default_factory=TestSet)
    identity: Mapping[str, Any] = field(default_factory=dict)
    """Keys that the branch is bound to. See `RunSpec`."""
    reuses: tuple[int, ...] = ()
    """Branches of the same work, with another config or name, whose calls may answer requests."""
    fence_key: bytes = field(default=b"", repr=False)
    """Secret of the fences in its prompts."""
    notices: tuple[str, ...] = ()
    """Decisions about resuming, for a person to read."""

    def holder(self, step: int) -> int:
        """Return the branch that holds a step on this line; this one for an impossible number."""
        return next((s.branch_id for s in self.line if s.first <= step < s.end), self.id)


@dataclass(frozen=True, slots=True)
class StepRow:
    """A step in its current state."""

    branch_id: int
    plan: PlannedStep
    status: str
    library_in: int | None = None
    library_out: int | None = None
    played_by: int | None = None
    stats: Mapping[str, Any] | None = None

    @property
    def library(self) -> str | None:
        """Name of the library after the step; None before it exists."""
        return f"L{self.library_out}" if self.library_out else None

    @property
    def groups(self) -> int:
        """Number of groups to play."""
        return sum(k > 0 for _, k in self.plan.slots)

    @property
    def rollouts(self) -> int:
        """Number of planned rollouts."""
        return self.plan.rollouts

    def attempts(self, slot: int) -> int:
        """Return the number of rollouts that a group plans."""
        return self.plan.slots[slot][1]

    @property
    def pauses(self) -> int:
        """Number of times that the step was paused because no comparison was usable."""
        return int((self.stats or {}).get("pauses", 0))

    @property
    def closed(self) -> bool:
        """True if the step is closed: then only its library and its stats are still read."""
        return self.status in ("closed", "merge_failed")


@dataclass(frozen=True, slots=True)
class RolloutPrompt:
    """Prompt that a rollout was played with."""

    seed: int
    """Seed of the first request."""
    system: str
    library_id: int | None
    left_out: tuple[str, ...] = ()
    """IDs of that library's experiences that are not in `system`."""


@dataclass(frozen=True, slots=True)
class Unscored:
    """Reason why a rollout has no verdict."""

    reason: str
    """Failing part: `verify` or `judge`."""
    error: str


@dataclass(frozen=True, slots=True)
class GroupRow:
    """Outcome of a group; the fields are the columns of its row."""

    slot: int
    sample_id: int
    planned: int
    played: int
    scored: int
    teachable: int
    mean_reward: float | None
    informative: bool
    status: Literal["scored", "distilled", "uniform", "too_few", "failed"]
    reason: str | None = None
    unanswered: bool = False
    """True if the group failed because a request to the teacher got no answer."""
    library_id: int | None = None
    """Library in the prompts of its attempts; None means the step's `library_in`."""
    parts: str | None = None
    """The group's `Part`s as JSON; None if all its attempts were shown the whole library."""


class Part(NamedTuple):
    """The attempts of a group that were shown the same experiences."""

    left_out: Set[str]  # IDs of the library's experiences that were not in the prompt
    reward: float
    """Mean over its `scored` attempts."""
    scored: int


@dataclass(frozen=True, slots=True)
class Play:
    """A question's attempts with the same prompt in one step: the experiences and the result."""

    sample_id: int
    library_id: int | None
    part: Part
    mean: float  # of the whole step


@dataclass(frozen=True, slots=True)
class Past:
    """Votes and plays of closed steps on the experiences of a library."""

    votes: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    """`E12` → sample id → votes for it minus votes against it."""
    plays: Sequence[Play] = ()
    """All plays, oldest first."""
    shown: Mapping[int, Set[str]] = field(default_factory=dict)
    """Library id → the experiences that it contains with their current text."""
    subjects: Sequence[Set[int]] = ()
    """Ids of the samples whose proposals were about each experience, also a removed one."""
    disproved: Sequence[str] = ()  # texts removed because rewards fell with them, oldest first
    families: Mapping[int, str] = field(default_factory=dict)  # sample id → its cluster


@dataclass(frozen=True, slots=True)
class Approval:
    """A held operation that a person approved, and the resulting edit."""

    held: int
    """Row of the held operation."""
    edit: Edit


@dataclass(frozen=True, slots=True)
class Approvals:
    """Held operations that enter a library, and the resulting library."""

    approved: Sequence[Approval]
    library: Library


@dataclass(frozen=True, slots=True)
class StepResult:
    """Everything that closing a practice step writes in one transaction."""

    groups: Sequence[GroupRow]
    distilled: Sequence[Distilled]
    edits: Sequence[Edit]
    """Merged operations, including refused ones, followed by removals that no merge requested."""
    library: Library
    """The step's own library after exactly these edits; any other library is refused."""
    stats: Mapping[str, Any]
    failed: str | None = None
    """Reason for a failed merge; `library` is then unchanged."""
    unanswered: bool = False
    """True if the merge failed because its request got no answer."""
    approvals: Approvals | None = None
    """Held operations approved while the step was open; they are applied after its edits."""


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """One update of the weights; the fields are the columns of its row."""

    step: int
    inner: int
    """Number of the update in its step, from 0."""
    loss: float
    learning_rate: float
    grad_norm: float
    """Norm of the gradient before it was clipped."""
    entropy: float | None
    kl: float | None
    """Mean divergence from the base model; None if `beta` is 0."""
    clip_low: float | None
    """Share of the tokens with a ratio clipped from below."""
    clip_high: float | None
    uniform_share: float
    """Share of the groups with equal rewards, which taught nothing."""
    tokens: int
    """Tokens of the step's prompts and answers."""
    seconds: float
    """Wall time of the update; for the first in a step, including rollouts and scoring."""

    @property
    def clipped(self) -> float | None:
        """Share of the tokens with a clipped ratio; None if it is unknown."""
        known = [share for share in (self.clip_low, self.clip_high) if share is not None]
        return sum(known) if known else None


@dataclass(frozen=True, slots=True)
class CheckpointRow:
    """A checkpoint on disk; the fields are the columns of its row."""

    step: int
    """Last step included in it."""
    path: str
    """Path of the folder, relative to the database's folder if it is below that."""
    sha256: bytes
    """Hash of its weights: of the adapter, or of the whole model."""
    bytes: int
    """Size of its weights."""
    made_at: str = ""


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """Everything that closing a step of a training run writes in one transaction."""

    rollouts: Sequence[Rollout]
    prompt: RolloutPrompt
    groups: Sequence[GroupRow]
    updates: Sequence[UpdateRow]
    stats: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DatasetRow:
    """An uploaded dataset."""

    id: int
    name: str
    revision: int
    sha256: str
    n: int
    origin: str
    created_at: str


@dataclass(frozen=True, slots=True)
class RunRow(RunLabels):
    """A run, for lists and look-ups."""

    name: str
    exp_id: str
    kind: str
    purpose: Purpose
    parent_run: str | None
    parent_step: int | None
    head_branch: int | None
    status: str
    simulated: bool
    created_at: str
    imported: bool
    """True if the run began in another database."""
    steps: int
    steps_closed: int
    branches: int

    @property
    def shown_kind(self) -> str:
        """Kind as shown to a person, to whom a run of purpose `effect` is not an evaluation."""
        return EFFECT if self.purpose == EFFECT else self.kind

    @property
    def learns(self) -> bool:
        """True if the agent changes during the run, so that two visits test different agents."""
        return self.kind in ("practice", "train")

    @property
    def has_score(self) -> bool:
        """True for an evaluation of one agent, whose mean reward measures the agent."""
        return self.kind == "eval" and self.purpose != EFFECT
