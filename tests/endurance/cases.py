"""Commands for the kill test, the project that they are given in, and what is compared."""

import json
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CONCURRENCY = 8
CONFIG = f"""
exp_id: killed
practice: {{epochs: 1, batch_size: 6, grpo_n: 4, rollout_concurrency: {CONCURRENCY}}}
data: {{practice_dataset_name: train}}
evaluation:
  verify: check.py:check
  concurrency: {CONCURRENCY}
  data: {{dataset: train}}
  agent:
    model: {{model_provider: {{model: sim}}}}
    agent: {{name: solver, instructions: "Solve it. Put the answer in \\\\boxed{{}}."}}
"""
CHECK = """
def check(sample, **kwargs):
    return {"reward": float("{" + str(sample.correct_answer) + "}" in sample.response)}
"""
RESULTS = (
    """SELECT r.run_id, r.step, r.slot, r.attempt, r.outcome, b.response, r.reward, r.left_out
         FROM v_rollouts r JOIN rollout_bodies b USING (rollout_id) ORDER BY 1, 2, 3, 4""",
    """SELECT s.run_id, s.step, s.status, s.stats, hex(l.sha256), i.position, t.text
         FROM v_steps s LEFT JOIN libraries l ON l.library_id = s.library_out
         LEFT JOIN library_items i USING (library_id)
         LEFT JOIN experience_texts t USING (experience_id, version) ORDER BY 1, 2, 6""",
    """SELECT b.run_id, step, slot, ordinal, source, op, text, status
         FROM operations JOIN branches b USING (branch_id) ORDER BY 1, 2, 3, 5, 4""",
    """SELECT b.run_id, step, slot, attempt, stage, hex(request_hash), nth
         FROM calls JOIN branches b USING (branch_id) ORDER BY 1, 2, 3, 4, 5, 6, 7""",
    "SELECT run_id, kind, status FROM runs ORDER BY 1",
)
TIMES = {"begun", "ended", "seconds", "seconds_per_rollout"}
"""Keys of documents whose values differ between equal runs."""
UP_TO = {"rollouts": 60, "verification": 25, "distillation": 40, "merge": 5, "closing": 5}
"""At which visit of each place the command is killed, at most."""

Visits = Mapping[str, int]
"""Place → at which visit of it a command is killed, at most."""


@dataclass(frozen=True)
class Case:
    """Commands that are killed, given one after the other."""

    commands: tuple[tuple[str, Visits], ...]
    shows: str
    """Command whose document shows the results."""
    kills: int = 20
    before: tuple[str, ...] = ()
    """Commands that are left alone."""


def anywhere(command: str, up_to: int) -> tuple[str, Visits]:
    """Return a command of a case that is killed wherever it waits, at one of so many visits."""
    return command, {"anywhere": up_to}


PRACTISE = "practice --config c.yaml --set evaluation.agent.model.model_provider.base_url=URL"
EVALUATE = PRACTISE.replace("practice", "eval", 1)
HELD_OUT = f"{EVALUATE} --set evaluation.data.dataset=held-out"
DIRECT = (
    "--set practice.agent_objective='A question in, a number out.'"
    " --set practice.learning_objective='Solve it.'"
)
ARMS = f"{HELD_OUT} --arms none,full,aa,direct,filler -k 2"
EFFECT = (
    "experiences effect --run killed --dataset held-out -k 4"
    " --set evaluation.agent.model.model_provider.base_url=URL"
)
NOTEBOOK = Path(__file__).parents[1] / "contract" / "notebook.py"
TOOLKIT = {
    "mode": "mcp",
    "stateful": True,
    "config": {"command": sys.executable, "args": [str(NOTEBOOK)], "workdir": "rollout"},
}
WITH_SERVERS = (
    f"{EVALUATE} --set evaluation.data.dataset=notes"
    f" --set {shlex.quote('evaluation.agent.toolkits=' + json.dumps({'notes': TOOLKIT}))}"
)
APPROVED = f"{PRACTISE} --set practice.approve=true"
APPROVE = "experiences approve --all"
REUSE = f"{HELD_OUT} -k 4 --set exp_id=other"
CASES = {
    "practice": Case(((PRACTISE, UP_TO),), shows="experiences list", kills=60),
    "arms": Case((anywhere(ARMS, 200),), ARMS, before=(f"{PRACTISE} {DIRECT}",)),
    "effect": Case((anywhere(EFFECT, 200),), EFFECT, before=(PRACTISE,)),
    "approve": Case(
        (
            anywhere(APPROVED, 200),
            anywhere(APPROVE, 4),
            anywhere(f"{APPROVED} --set practice.epochs=2", 200),
            anywhere(APPROVE, 4),
        ),
        shows="experiences list",
    ),
    "servers": Case((anywhere(WITH_SERVERS, 40),), WITH_SERVERS),
    "reuse": Case((anywhere(f"{HELD_OUT} -k 2", 100), anywhere(REUSE, 100)), REUSE),
}
