"""What becomes of a rollout when an answer comes in pieces, and the pieces are at fault."""

from typing import Any

from tests.contract.endpoint.actions import Action, Asked, cut, drip, in_turn, ok, sse, stall
from tests.contract.endpoint.server import serving
from tests.faults.conftest import DEADLINE, Evaluate, each_then_good, of_first_question, question
from tests.faults.test_body import messages

STREAM = ("--set", "agent.model.model_provider.stream=true")
USAGE = {"prompt_tokens": 11, "completion_tokens": 7}
EVENTS = {"Content-Type": "text/event-stream"}


def chunk(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "c-1", "object": "chat.completion.chunk", "model": "m-1"} | {
        "choices": [choice],
        **more,
    }


START, MIDDLE, END = (
    chunk({"role": "assistant", "content": "2"}),
    chunk({"content": "4"}),
    chunk({}, "stop"),
)
COUNTED = {"id": "c-1", "model": "m-1", "choices": [], "usage": USAGE}
WHOLE = sse(START, MIDDLE, END, COUNTED)


def test_1_46_a_stream_is_put_together_and_stored_as_one_message(evaluate: Evaluate) -> None:
    with serving(in_turn(WHOLE)) as server:
        seen = evaluate(server, *STREAM)
    assert seen.outcomes == {"ok": 5}
    assert all(a.body["stream"] is True for a in seen.asked)
    assert messages(seen) == [{"role": "assistant", "content": "24"}] * 5
    assert seen.query("SELECT DISTINCT tokens_in, tokens_out, finish FROM calls") == [
        (11, 7, "stop")
    ]
    with serving(in_turn(WHOLE)) as server:
        again = evaluate(server)
    assert (again.outcomes, again.asked) == ({"ok": 5}, [])


UNFINISHED = [
    sse(START, MIDDLE, done=False),
    sse(done=False),
    cut(WHOLE, 150),
    cut(WHOLE, 90),
    sse(START, {"error": {"code": 502, "message": "upstream"}}, done=False),
    sse(START, "data: {nothing", done=False),
]


def test_1_46_a_stream_that_breaks_is_asked_for_again_and_nothing_of_it_is_stored(
    evaluate: Evaluate,
) -> None:
    with serving(each_then_good(*UNFINISHED, good=WHOLE)) as server:
        seen = evaluate(server, *STREAM, "-k", "2")
    assert (seen.outcomes, seen.tries) == ({"ok": 10}, [2] * len(UNFINISHED) + [1] * 4)
    assert messages(seen) == [{"role": "assistant", "content": "24"}] * 10


def test_1_46_an_error_in_a_stream_is_judged_by_what_it_says(evaluate: Evaluate) -> None:
    said = {"error": {"code": "insufficient_quota", "message": "no credit"}}
    with serving(in_turn(sse(START, said))) as server:
        seen = evaluate(server, *STREAM)
    assert (seen.code, len(seen.asked)) == (3, 1)
    assert seen.query("SELECT count(*) FROM calls") == [(0,)]


def test_1_46_a_character_may_come_in_two_pieces(evaluate: Evaluate) -> None:
    text = "24 \u00e9 \u6f22 \U0001f600"
    chunks = f'data: {{"choices": [{{"index": 0, "delta": {{"content": "{text}"}}}}]}}'
    with serving(in_turn(sse(chunks, END, pieces=1))) as server:
        seen = evaluate(server, *STREAM)
    assert seen.outcomes == {"ok": 5}
    assert {m["content"] for m in messages(seen)} == {text}


def test_1_46_comments_and_a_plain_answer_are_fine_too(evaluate: Evaluate) -> None:
    def script(asked: Asked) -> Action:
        return ok("24") if question(asked) % 2 else sse(": wait", START, ": wait", MIDDLE, END)

    with serving(script) as server:
        seen = evaluate(server, *STREAM)
    assert (seen.outcomes, seen.tries) == ({"ok": 5}, [1] * 5)
    assert {m["content"] for m in messages(seen)} == {"24"}


def test_1_46_a_stream_is_whole_when_it_says_so_though_the_connection_stays_open(
    evaluate: Evaluate,
) -> None:
    deadline = "agent.model.model_settings.extra_args.timeout=5"
    with serving(of_first_question(stall(WHOLE, after=10**6), WHOLE)) as server:
        seen = evaluate(server, *STREAM, "--set", deadline)
    assert (seen.outcomes, seen.tries) == ({"ok": 5}, [1] * 5)


def test_1_22_a_stream_that_only_says_that_it_lives_ends_with_the_deadline(
    evaluate: Evaluate,
) -> None:
    alive = drip(b": keep-alive\n\n", interval_s=0.02, headers=EVENTS)
    with serving(of_first_question(alive, WHOLE)) as server:
        seen = evaluate(server, *STREAM, *DEADLINE)
    assert seen.outcomes == {"ok": 5}
    assert seen.tries[0] >= 2
