"""The chat API of ours: requests that are none, and the certificate of a run's address."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tests.contract.certificates import YESTERDAY, certificate
from tests.contract.own import Own
from tests.contract.serving import both


async def test_a_body_that_is_none_is_refused_in_words(tmp_path: Path) -> None:
    rows = [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"messages": [{"role": "user"}], "x": NaN}', "NaN is not a JSON number"),
        (b'{"messages": [{"role": "user"}], "x": 1e999}', "1e999 is not a JSON number"),
        (b"[]", "JSON object"),
        (b"{}", "'messages' must not be empty"),
        (b'{"messages": "Q"}', "'messages' must be a list of objects"),
        (b'{"messages": ["Q"]}', "'messages' must be a list of objects"),
        (b'{"messages": [{"content": "Q"}]}', "'messages[0].role' must be text"),
        (b'{"messages": [{"role": "user"}], "tools": {}}', "'tools' must be"),
        (b'{"messages": [{"role": "user"}], "model": 1}', "'model' must be text"),
        (b'{"messages": [{"role": "user"}], "stream": "yes"}', "'stream' must be"),
        (b'{"messages": [{"role": "user"}], "stream_options": 1}', "'stream_options' must be"),
    ]
    async with both(tmp_path) as (up, place):
        for body, said in rows:
            async with place.session.post(f"{place.url}/chat/completions", data=body) as came:
                error = (await came.json())["error"]
                assert (came.status, error["type"]) == (400, "invalid_request_error"), body[:80]
                assert said in error["message"]
        assert not up.bodies


def locked(key: Path) -> Path:
    """Give the key a passphrase."""
    loaded = serialization.load_pem_private_key(key.read_bytes(), None)
    how = serialization.BestAvailableEncryption(b"secret")
    kinds = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path = key.with_name("locked.pem")
    path.write_bytes(loaded.private_bytes(*kinds, how))
    return path


async def test_what_is_wrong_with_a_certificate_is_said_before_anybody_connects(
    tmp_path: Path,
) -> None:
    project = Own(tmp_path)
    made = certificate(tmp_path, "127.0.0.1")
    other = certificate(tmp_path, "127.0.0.2", name="other")
    named = certificate(tmp_path, "here.example", name="named")
    old = certificate(tmp_path, "127.0.0.1", until=YESTERDAY, name="old")
    (tmp_path / "c").write_text("hello", "utf-8")
    answers = project.agent("def solve(*_): return '42'\n")
    rows = [
        (tmp_path / "no.pem", made.key, "tls_cert: there is no file"),
        (made.cert, tmp_path / "no.pem", "tls_key: there is no file"),
        (made.cert, other.key, "key values mismatch"),
        (made.cert, locked(made.key), "has a passphrase"),
        (tmp_path / "c", made.key, "one of them cannot be read"),
        (made.cert, made.cert, "one of them cannot be read"),
        (other.cert, other.key, "other-cert.pem: IP address mismatch"),
        (named.cert, named.key, "named-cert.pem: IP address mismatch"),
        (old.cert, old.key, "certificate has expired"),
    ]
    for cert, key, said in rows:
        proxy = f"agent.proxy={{tls_cert: {cert}, tls_key: {key}}}"
        with pytest.raises(Exception, match=f"(?i)agent.proxy.*({said})"):
            await project.evaluate(*answers, proxy)
    assert project.count("rollouts") == 0
    text = f"""
        import ssl

        async def solve(question, system, context):
            trusting = ssl.create_default_context(cafile={str(made.authority)!r})
            body = {{"messages": [user(question)]}}
            url = context.base_url + "/chat/completions"
            async with ClientSession() as session, session.post(url, json=body, ssl=trusting) as r:
                assert url.startswith("https://127.0.0.1:")
                return (await r.json())["choices"][0]["message"]["content"]
    """
    proxy = f"agent.proxy={{tls_cert: {made.cert}, tls_key: {made.key}}}"
    report = await project.evaluate(*project.agent(text), proxy)
    assert report.outcomes == {"ok": 12}
