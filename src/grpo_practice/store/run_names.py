"""Names of the runs that evaluate libraries."""

from grpo_practice.prompts.system import library_sha
from grpo_practice.types import Library


def eval_name(exp_id: str, *variants: str) -> str:
    """Return `EXP/eval`, `EXP/eval/L1a2b3c4d`, `EXP/eval/agent/model=m`: one run for each."""
    return "/".join([exp_id, "eval", *variants])


def library_variant(library: Library) -> str:
    """Return `L` and 8 digits of the hash: equal text is never evaluated twice."""
    return f"L{library_sha(library).hex()[:8]}"
