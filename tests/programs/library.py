"""A library of agents plays rollouts in its own environment, against an endpoint on loopback."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from typing_extensions import override

MODEL = "practised-model"
ANSWER = "the answer is 42"
SYSTEM = "Answer as briefly as you can."
QUESTIONS = ("What is 6 times 7?", "What is 40 plus 2?")
ATTEMPTS = 2
ROLLOUTS = len(QUESTIONS) * ATTEMPTS
TIMEOUT_S = 300

Message = dict[str, Any]
Answerer = Callable[[dict[str, Any]], Message]
"""From the body of a request to the message of its reply."""

FENCE = '''
import sys


def _audit(event, args):
    """Write down who else is looked for, and let nobody be reached."""
    if event == "socket.getaddrinfo":
        host = args[0]
    elif event == "socket.connect" and isinstance(args[1], tuple):
        host = args[1][0]
    else:
        return
    host = host.decode() if isinstance(host, bytes) else host
    if host not in (None, "", "127.0.0.1", "localhost", "::1"):
        with open("elsewhere.txt", "a") as file:
            file.write(f"{host}\\n")
        raise OSError(f"{host} is not to be asked")


sys.addaudithook(_audit)
'''
"""Put before the agent's file: it may ask at the rollout's address alone."""
CALLED = """

if __name__ == "__main__":
    import asyncio, inspect, json
    from types import SimpleNamespace

    given = json.load(sys.stdin)
    context = SimpleNamespace(**given)
    answer = solve(given["question"], given["system"], context)
    if inspect.isawaitable(answer):
        answer = asyncio.run(answer)
    print("\\n" + json.dumps({"answer": answer}))
"""
"""Put behind it: the function that `type: python` calls, as a command."""


def text(_: dict[str, Any]) -> Message:
    """Answer in plain words."""
    return {"role": "assistant", "content": ANSWER}


def play(python: Path, folder: Path, agent: str, answerer: Answerer = text) -> str:
    """Evaluate an agent by the function `solve` of this source; say how many requests came."""
    (folder / "agent.py").write_text(FENCE + agent + CALLED)
    program = {"type": "command", "command": [str(python), "agent.py"]}
    bodies = evaluated(folder, program, answerer)
    asked = json.dumps([body["messages"] for body in bodies])
    for part in (SYSTEM, *QUESTIONS):
        assert part in asked, f"{part!r} was not sent"
    sent = {key for body in bodies for key in body} - {"model", "messages", "seed", "tools"}
    return f"{len(bodies)} requests of {ROLLOUTS} rollouts, with {', '.join(sorted(sent))}"


def evaluated(
    folder: Path, agent: dict[str, Any], answerer: Answerer, *, reads: str = ANSWER
) -> list[dict[str, Any]]:
    """Evaluate an agent, and return the bodies of the requests that came.

    Raises:
        AssertionError: It asked somebody else, or for another model, or not in every rollout, or
            an answer does not contain `reads`.
    """
    rows = [{"question": question, "answer": reads} for question in QUESTIONS]
    (folder / "mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with answering(answerer) as (url, bodies):
        told = _document(folder, agent, url)
    elsewhere = folder / "elsewhere.txt"
    assert not elsewhere.exists(), f"it asked {sorted(set(elsewhere.read_text().split()))}"
    assert told["score"]["scored"] == ROLLOUTS, told["score"]
    assert told["score"]["mean"] == 1, f"{reads!r} was not answered: {bodies[-1]['messages']}"
    assert len(bodies) >= ROLLOUTS, f"{len(bodies)} requests for {ROLLOUTS} rollouts"
    assert {body["model"] for body in bodies} == {MODEL}
    return bodies


def _document(folder: Path, agent: dict[str, Any], url: str) -> dict[str, Any]:
    """Return the JSON document of the evaluation."""
    provider = {"model": MODEL, "base_url": url, "api_key": "none"}
    model = {"model_provider": provider, "model_settings": {"temperature": 0.7}}
    config = {
        "exp_id": "tried",
        "agent": {**agent, "model": model, "agent": {"name": "tried", "instructions": SYSTEM}},
        "data": {"dataset": "mine.jsonl"},
        "verify": "contains",
        "pass_k": ATTEMPTS,
        "concurrency": 1,  # a cache answers what was asked before, not what is being asked
    }
    (folder / "tried.yaml").write_text(json.dumps(config))
    # Each agent begins with nothing: by its name, an evaluation would go on.
    (folder / "grpo-practice.db").unlink(missing_ok=True)
    run = subprocess.run(
        [sys.executable, "-m", "grpo_practice", "eval", "--config", "tried.yaml", "--json"],
        cwd=folder,
        # Libraries keep caches and settings there.
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert run.returncode == 0, f"exit {run.returncode}: {run.stderr[-3000:]}"
    notices = [line for line in run.stderr.splitlines() if "sends its own" in line]
    assert not notices, notices
    document: dict[str, Any] = json.loads(run.stdout)
    return document


@contextmanager
def answering(answerer: Answerer) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Give the address of an endpoint, and the bodies of the requests that it answers."""
    bodies = list[dict[str, Any]]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            bodies.append(body)
            message = answerer(body)
            finish = "tool_calls" if message.get("tool_calls") else "stop"
            choice = {"index": 0, "message": message, "finish_reason": finish}
            usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
            reply = {"id": "1", "object": "chat.completion", "model": MODEL, "usage": usage}
            raw = json.dumps({**reply, "created": 1, "choices": [choice]}).encode()
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        @override
        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", bodies
    finally:
        server.shutdown()
        server.server_close()
