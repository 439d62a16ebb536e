"""System prompts for an evaluation's attempts; effect measurements show half of a library."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from grpo_practice.config.schema.runs import EvalConfig
from grpo_practice.core.prompts.system import system_prompt
from grpo_practice.core.stats.effects import design
from grpo_practice.core.types import Library
from grpo_practice.rollout.attempts import SystemPrompt
from grpo_practice.rollout.play import AttemptKey
from grpo_practice.store.records import EFFECT, Purpose, StepRow


def prompts_of(
    purpose: Purpose, config: EvalConfig, library: Library, rows: Sequence[StepRow]
) -> Callable[[AttemptKey], SystemPrompt]:
    """Return a function that gives an attempt's system prompt, for a stored library."""
    instructions = config.agent.agent.instructions
    if purpose == EFFECT:
        return half_prompts(instructions, library, rows, config.seed)
    prompt = SystemPrompt(system_prompt(instructions, library), library)
    return lambda _: prompt


def half_prompts(
    instructions: str, library: Library, rows: Sequence[StepRow], seed: int
) -> Callable[[AttemptKey], SystemPrompt]:
    """Return a function that gives an attempt's prompt based on the attempt's place in the plan."""
    sizes = [len(row.plan.slots) for row in rows]
    ends = accumulate(sizes)
    first = {row.plan.step: end - size for row, end, size in zip(rows, ends, sizes, strict=True)}
    # More questions or attempts do not change the halves dealt so far; see `design`.
    k = max((k for row in rows for _, k in row.plan.slots), default=0)
    shown = design(len(library), sum(sizes), k, seed)
    prompts = dict[bytes, SystemPrompt]()

    def prompt(key: AttemptKey) -> SystemPrompt:
        half = shown[first[key.step] + key.slot, key.attempt]
        known = prompts.get(half.tobytes())  # an array cannot be a key
        if known is None:
            pairs = list(zip(library.experiences, half, strict=True))
            part = Library(tuple(e for e, is_shown in pairs if is_shown), library.next_label)
            left_out = tuple(e.id for e, is_shown in pairs if not is_shown)
            known = SystemPrompt(system_prompt(instructions, part), library, left_out)
            prompts[half.tobytes()] = known
        return known

    return prompt
