"""Names of runs that evaluate libraries, and of datasets made from recorded runs."""

import re
import shlex
from pathlib import Path

from grpo_practice.core.prompts.system import library_sha
from grpo_practice.core.types import Library
from grpo_practice.store.records import EFFECT

_SELECTS = "data="


def eval_name(exp_id: str, *variants: str) -> str:
    """Return `EXP/eval`, `EXP/eval/L1a2b3c4d`, `EXP/eval/agent/model=m`: a run per variant."""
    return "/".join([exp_id, "eval", *variants])


def library_variant(library: Library) -> str:
    """Return `L` and 8 hex digits of the hash, so that equal text is never evaluated twice."""
    return f"L{library_sha(library).hex()[:8]}"


def effect_name(exp_id: str, library: Library) -> str:
    """Return `EXP/effect/L1a2b3c4d`: the run that measures the experiences of a library."""
    return "/".join([exp_id, EFFECT, library_variant(library)])


def train_name(exp_id: str) -> str:
    """Return `EXP/train`: the run that trains weights on the questions of `EXP`."""
    return f"{exp_id}/train"


def weights_eval_name(run: str, dataset: str, sha: bytes, *, chooses: bool) -> str:
    """Return `EXP/train/eval/data=NAME/1a2b3c4d`: an evaluation of weights by their hash.

    An evaluation that is not used to choose weights gets `test=NAME` instead.
    """
    part = select_variant(dataset)
    part = part if chooses else f"test={part.removeprefix(_SELECTS)}"
    return f"{run}/eval/{part}/{sha.hex()[:8]}"


def trial_name(exp_id: str, number: int) -> str:
    """Return `EXP/tune/3`: a trial of a search for better training settings."""
    return f"{exp_id}/tune/{number}"


def renamed(run: str, exp_id: str, new: str) -> str:
    """Return the run's name if its experiment is called `new`."""
    rest = run.removeprefix(exp_id)
    return new + rest if rest[:1] in ("", "/") else run


def select_variant(dataset: str) -> str:
    """Return the part of an evaluation's name that marks it as choosing among libraries."""
    return f"{_SELECTS}{Path(dataset).stem if '.' in dataset else dataset}"


def questions_of(run: str) -> str:
    """Return the command that makes a dataset from the questions of a recorded run."""
    name = re.sub(r"[^\w.-]+", "-", run).strip("-.") or "recorded"
    return f"grpo-practice data upload --from-run {shlex.quote(run)} --name {name}-questions"
