"""`demo`: the whole workflow with the simulated endpoint."""

import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from grpo_practice.cli.options import DATABASE, PROGRAM
from grpo_practice.cli.terminal.formatting import count, reward, say
from grpo_practice.core.errors import ConfigError
from grpo_practice.core.files import write_file

if TYPE_CHECKING:
    from grpo_practice import Workspace
    from grpo_practice.sim import World

EXP_ID = "demo"
AGENT = "agent.yaml"
PRACTICE, TEST = 24, 40
"""Number of practice questions, and of separate test questions."""
SEED = 7
CONFIG = f"""\
# The demo's experiment. The program itself answers as `model: sim`, which costs nothing. The
# results say nothing about a real model.
exp_id: {EXP_ID}
practice:
  seed: 3
  epochs: 2
  batch_size: {PRACTICE // 2}
  grpo_n: 5
  rollout_concurrency: 16
  do_eval: true
  agent_objective: Given a sum in words, the agent gives the number that answers it.
  learning_objective: Find out what separates right answers from wrong ones.
data:
  practice_dataset_name: practice
evaluation:
  agent:
    agent:
      name: demo_agent
      instructions: 'Solve the problem. Put the answer, and nothing else, into \\boxed{{}}.'
    model:
      model_provider: {{model: sim}}
  data: {{dataset: test}}
  verify: math
  pass_k: 2
"""


def demo(
    serve: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65_535,
            metavar="PORT",
            help="Only serve the simulated endpoint (0: any free port).",
        ),
    ] = None,
    world: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            dir_okay=False,
            help="With --serve: simulate the world in this JSON file.",
        ),
    ] = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", file_okay=False, help="Keep config, data and results in this folder."
        ),
    ] = None,
) -> None:
    """Run the whole workflow with a simulated endpoint.

    The demo evaluates, practises, evaluates again and exports. All of this takes seconds and needs
    only this program. With --serve, the command only runs an OpenAI-compatible endpoint until
    Ctrl-C.

    Example: grpo-practice demo --keep my-demo
    """
    if serve is not None and keep is not None:
        raise ConfigError(
            "--serve writes no files, so it cannot be used with --keep",
            hint="leave out --keep or --serve",
        )
    if serve is not None:
        from grpo_practice.sim import DEFAULT, World

        _serve(serve, DEFAULT if world is None else World.load(world))
        return
    if world is not None:
        raise ConfigError("--world works only with --serve", hint="add --serve 0")
    from grpo_practice import Workspace

    with _folder(keep) as folder:
        say("Everything here is simulated: it shows the workflow, not how well a model learns.")
        _write_files(folder)
        _play(Workspace(folder / DATABASE, command=f"{PROGRAM} demo", signals=True), folder)
    if keep is not None:
        say(f"4. The practised agent, exported: {keep / AGENT}")
        say(f"next: cd {shlex.quote(str(keep))} && {PROGRAM} runs list")
    else:
        say(f"Nothing was kept. To keep the files and explore them: {PROGRAM} demo --keep my-demo")
        say("For a task and a model of your own:")
        say(f"next: {PROGRAM} init my-task")


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Make a folder: a temporary one, or the folder to keep.

    Raises:
        ConfigError: The folder is not empty, or cannot be created.
    """
    if keep is None:
        with TemporaryDirectory(prefix=f"{PROGRAM}-demo-") as name:
            yield Path(name)
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        full = any(keep.iterdir())
    except OSError as e:
        raise ConfigError(f"cannot make {keep}: {e.strerror}") from e
    if full:
        raise ConfigError(f"{keep} is not empty", hint="name a new folder")
    yield keep


def _write_files(folder: Path) -> None:
    from grpo_practice.sim.questions import questions

    write_file(folder / "practice.yaml", CONFIG)
    made = questions(PRACTICE + TEST, SEED)
    for name, samples in (("practice", made[:PRACTICE]), ("test", made[PRACTICE:])):
        rows = (
            {"question": s.question, "answer": str(s.answer), "source": s.source} for s in samples
        )
        text = "".join(f"{json.dumps(row, ensure_ascii=False)}\n" for row in rows)
        write_file(folder / f"{name}.jsonl", text)


def _play(ws: "Workspace", folder: Path) -> None:
    """Upload, evaluate, practise and export, as the commands do."""
    from grpo_practice.cli.terminal.progress_view import progress
    from grpo_practice.cli.terminal.reports_view import show_practice

    for name in ("practice", "test"):
        stored = ws.datasets.upload(name, folder / f"{name}.jsonl")
        say(f"dataset {name}: {count(stored.dataset.n, 'question')}")
    config = folder / "practice.yaml"
    say("1. The agent before practice")
    with progress(json=False) as emit:
        # env={}: the user's environment and `.env` must not redirect the demo to a real model.
        before = ws.evaluate(config, env={}, on_event=emit)
    say(f"   score {reward(before.score.mean)} on {before.dataset.name}")
    say("2. Practice, with an evaluation after each epoch")
    with progress(json=False) as emit:
        report = ws.practise(config, env={}, on_event=emit)
    say("3. The results")
    show_practice(report, next_line=False, limit=None)
    say("The mark in brackets is how the simulation recognises its own texts. What a real teacher")
    say("writes may be empty or wrong, too, and has no such label: read what your agent learns.")
    ws.export(EXP_ID, output=folder / AGENT)


def _serve(port: int, world: "World") -> None:
    import asyncio

    from grpo_practice.core.text import LOOPBACK
    from grpo_practice.rollout.chat_server.sim_server import serve

    def ready(bound: int) -> None:
        say(f"the simulated endpoint answers at http://{LOOPBACK}:{bound}/v1 until Ctrl-C")
        say(f"next: export UTU_LLM_MODEL=sim UTU_LLM_BASE_URL=http://{LOOPBACK}:{bound}/v1")

    try:
        asyncio.run(serve(port, world=world, on_ready=ready))
    except OSError as e:
        raise ConfigError(f"cannot listen on port {port}: {e.strerror}") from e
    except KeyboardInterrupt:
        say("stopped")
