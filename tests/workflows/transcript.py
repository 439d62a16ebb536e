"""Print both workflows as they go: commands, what they say, scores, and who was asked how often.

python -m tests.workflows.transcript
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.workflows.desk import Desk
from tests.workflows.play import MATH, WEB, fetch, kill, publish
from tests.workflows.services import services

COLUMNS = (
    *("play", "summarise", "compare", "propose", "merge", "judge"),
    *("execute_python_code", "search", "web_qa", "page read by a model", "Serper", "Jina reader"),
)
NAMES = {"student-1": "page read by a model", "serper": "Serper", "jina-reader": "Jina reader"}


def main() -> None:
    """Both workflows, each in a folder of its own."""
    for title, commands in (("Mathematics", MATH), ("Web search", WEB)):
        say(f"\n# {title}\n")
        with TemporaryDirectory() as folder, services() as running:
            publish(running.hub)
            _tell(Desk(Path(folder) / "desk", running), commands)
        with TemporaryDirectory() as folder, services(latency_s=0.02) as running:
            _tell_kill(Desk(Path(folder) / "desk", running), commands)


def say(text: str) -> None:
    """A line of the transcript."""
    sys.stdout.write(f"{text}\n")


def _tell(desk: Desk, commands: Sequence[str]) -> None:
    rows, before = list[tuple[str, dict[str, int]]](), dict[str, int]()
    for command in commands:
        out, err = desk.type(command)
        say(f"$ {command}\n{_shown(out, err)}\n")
        now = _counted(desk)
        new = {name: n - before.get(name, 0) for name, n in now.items() if n > before.get(name, 0)}
        rows += [(command, new)] if new else []
        before = now
    say("## Answered calls that are stored, and requests to the services, by command\n")
    used = [name for name in COLUMNS if any(name in new for _, new in rows)]
    say(f"| command | {' | '.join(used)} |\n|---|{'---|' * len(used)}")
    for command, new in rows:
        say(f"| `{command}` | {' | '.join(str(new.get(name, '')) for name in used)} |")
    say("\n## The same commands again\n")
    for command, _ in rows:
        report = desk.json(command)
        requests = report["requests"]
        score = report.get("score")
        told = f", score {score['mean']:.3f}" if score else ""
        say(f"- `{command}`: {requests['new']} new requests{told}")
    asked = sum(desk.services.asked().values()) - _requests(before)
    say(f"- asked of the services in all: {asked} requests more")


def _tell_kill(desk: Desk, commands: Sequence[str]) -> None:
    fetch(desk, commands)
    killed = kill(desk, commands)
    stored = ", ".join(f"{n} {NAMES.get(name, name)}" for name, n in killed.stored.items())
    say("\n## `kill -9` in the middle of practice, then the same command\n")
    say(f"- calls stored when it was killed: {stored}")
    say(f"- trajectories that had called a tool and had not ended: {killed.cut}")
    say(f"- requests in flight, without a stored answer: {killed.in_flight}")
    say(f"- requests paid twice, over both commands: {killed.paid_twice}")


def _counted(desk: Desk) -> dict[str, int]:
    services = {NAMES[k]: n for k, n in desk.services.asked().items() if k in NAMES}
    return {NAMES.get(name, name): n for name, n in desk.calls().items()} | services


def _requests(counted: dict[str, int]) -> int:
    """Those that were asked of a model or a service of the web."""
    tools = ("execute_python_code", "search", "web_qa")
    return sum(n for name, n in counted.items() if name not in tools)


def _shown(out: str, err: str) -> str:
    """What was printed; of the progress only the steps."""
    steps = [line for line in err.splitlines() if line.startswith(("step", "note: tools"))]
    closed = [line for line in steps if "closed" in line or "tools" in line]
    return "\n".join(["```", *closed, *out.rstrip().splitlines(), "```"])


if __name__ == "__main__":
    main()
