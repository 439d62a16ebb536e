"""A program of the user's own that does, for each question, what its name says."""

PROGRAM = '''
import json, os, sys
from functools import cached_property
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).parent
KIB = 1024

class Mine(str):
    def __reduce__(self):
        return (os.system, ("touch " + str(HERE / "ran"),))

class Odd(Exception):
    def __str__(self):
        return Mine("odd")

class Program:
    """A case for each question; `ask` asks the rollout's model."""

    def __init__(self, question, system, context):
        self.question, self.system, self.context = question, system, context

    def client_at(self, base_url, api_key):
        global openai
        import openai  # which takes a second, and few of the commands ask
        return openai.OpenAI(base_url=base_url, api_key=api_key)

    @cached_property
    def client(self):
        return self.client_at(self.context.base_url, self.context.api_key)

    def ask(self, text, model=None, **more):
        messages = text if isinstance(text, list) else [{"role": "user", "content": text}]
        model = model or self.context.model
        return self.client.chat.completions.create(model=model, messages=messages, **more)

    def said(self, text, **more):
        return self.ask(text, **more).choices[0].message.content

    def given(self):
        c = self.context
        return f"{self.question} {len(self.system) > 9} {c.model} {c.attempt} {c.limit_s > 9}"

    def two_turns(self):
        return f"{self.said('Q')} {self.said('and')} <think>hm</think>\\n"

    def streams(self):
        pieces = self.ask("long", stream=True)
        streamed = "".join(p.choices[0].delta.content or "" for p in pieces if p.choices)
        return str(streamed == self.said("long") == "word " * 300)

    def models(self):
        return ",".join(model.id for model in self.client.models.list())

    def told(self):
        found = []
        for text in ("422", "overflow", "filter"):
            try:
                self.said(text)
            except openai.APIStatusError as e:
                found.append(f"{e.status_code}:{e.code}")
        self.said("fine now")
        return " ".join(found)

    def guesses(self):
        token = self.context.base_url.split("/")[-2]
        assert self.context.api_key == token and len(token) >= 43
        found = 0
        for guess in (token[:-1], f"{token}x", token.lower(), "0", "", "..", "%2e%2e", "*"):
            address = self.context.base_url.replace(token, guess)
            try:
                self.client_at(address, "k").models.list()
            except openai.NotFoundError:
                found += 1
        bare = self.context.base_url.replace(f"/r/{token}", "")
        assert [m.id for m in self.client_at(bare, token).models.list()]
        return str(found)

    def refused_words(self):
        found = []
        for more in ({"n": 2}, {"logprobs": True}, {"temperature": "hot"}):
            try:
                self.said("Q", **more)
            except openai.BadRequestError as e:
                found.append(str(next(iter(more)) in str(e)))
        return " ".join(found)

    def resamples(self):
        return str(len({self.said("seed", seed=n) for n in range(4)} - {*"0123"}))

    def own_settings(self):
        self.said("Q", temperature=0.1, max_completion_tokens=5, top_p=1, stop=["x"])
        return self.said("Q", model="gpt-x", temperature=0.2)

    def tools(self):
        messages = [{"role": "user", "content": "tool"}]
        message = self.ask(messages).choices[0].message
        messages += [message.model_dump(exclude_none=True)]
        messages += [{"role": "tool", "tool_call_id": "a", "content": "41 + 1"}]
        return self.said(messages)

    def lost(self):
        return self.said("422")

    def overflow(self):
        return self.said("overflow")

    def filtered(self):
        return self.said("filter")

    def lost_but_answers(self):
        try:
            return self.said("422")
        except openai.APIStatusError:
            return "I answer without"

    def lost_then_raises(self):
        try:
            self.said("422")
        except openai.APIStatusError:
            self.said("fine now")
        raise KeyError("mine")

    def nothing(self):
        return None

    def blank(self):
        return " \\n"

    def thinks(self):
        return "<think>hm"

    def number(self):
        return 42

    def floods(self):
        return "x" * (KIB * KIB + 1)

    def long(self):
        return "x" * (KIB * KIB - 100)

    def raises(self):
        raise KeyError("lost")

    def leaves(self):
        sys.exit(3)

    def surrogate(self):
        raise ValueError("\\ud800" + "x" * 10_000)

    def own_text(self):
        return Mine("mine")

    def own_error(self):
        raise Odd

    def exits(self):
        os._exit(3)

    def killed(self):
        os.kill(os.getpid(), 9)

    def crashes(self):
        import ctypes
        ctypes.string_at(0)

    def prints(self):
        while True:
            print("x" * 10_000)

    def forks(self):
        return "the child" if os.fork() == 0 else "the parent"

    def pools(self):
        import multiprocessing
        with multiprocessing.get_context("fork").Pool(2) as pool:
            return str(pool.map(abs, [-1, 2]))

    def environment(self):
        shell = {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "NO_PROXY", "no_proxy"}
        shell |= {"SSL_CERT_FILE", "SSL_CERT_DIR"}
        ours = {"BASE_URL", "API_BASE", "API_KEY", "MODEL"}
        assert os.environ["OPENAI_BASE_URL"] == self.context.base_url
        assert os.environ["OPENAI_API_KEY"] == self.context.api_key
        for place in ("/proc/self/environ", f"/proc/{os.getppid()}/environ"):
            if Path(place).exists() and os.getppid() != int(os.environ.get("NOBODY", -1)):
                seen = Path(place).read_bytes() if place.startswith("/proc/self") else b""
                assert b"sk-canary" not in seen
        return str(sorted(os.environ.keys() - shell - {f"OPENAI_{name}" for name in ours}))

    def folder(self):
        return str(os.path.realpath(os.getcwd()) == str(HERE))

    def writes(self):
        import subprocess
        sys.stdout.buffer.write(b"bytes")
        subprocess.run(["true"], stdout=sys.stderr, check=True)
        return sys.stdout.encoding

RAW = {
    "raw_last": 'loading\\n50 %\\n\\n{"answer": "é 42", "more": 1}\\n\\n',
    "raw_lines": '{\\n  "answer": "42"\\n}\\n',
    "raw_null": '{"answer": null}',
    "raw_number": "42",
    "raw_word": "forty-two",
    "raw_nothing": "",
    "raw_int": '{"answer": 42}',
    "raw_deep": "[" * 200_000,
    "raw_bytes": "\\udcff",
}

def solve(question, system, context):
    return getattr(Program(question, system, context), question.split()[0])()

async def on_loop(question, system, context):
    import asyncio
    return await asyncio.to_thread(solve, question, system, context)

if __name__ == "__main__":
    given = json.load(sys.stdin)
    if given["question"] in RAW:
        sys.stdout.buffer.write(RAW[given["question"]].encode(errors="surrogateescape"))
        sys.exit()
    if given["question"] == "complains":
        sys.stderr.write("x" * 99_999 + "END")
        sys.exit(3)
    context = SimpleNamespace(**given)
    assert given.keys() == {
        "question", "system", "base_url", "api_key", "model", "attempt", "seed", "limit_s"
    }
    print(json.dumps({"answer": solve(given["question"], given["system"], context)}))
'''
