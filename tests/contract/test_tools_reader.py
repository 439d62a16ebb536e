"""Pages that this program reads itself: which they are, what is made of them, what is refused."""

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.contract.clerk import Call, misses, played, turn
from tests.contract.command import Gp
from tests.contract.endpoint.actions import ok
from tests.contract.endpoint.server import on_a_thread
from tests.contract.internet import MIB, PAGE, PUBLIC, Internet, served

KIT = {
    "search": {
        "config": {
            "crawl_engine": "local",
            "search_api_key": "key-of-nobody-4711",
            "search_banned_sites": ["banned.example"],
            "at_once": 8,
        }
    }
}
PEM = Path(__file__).with_name("page.pem")
"""Certificate and key of page.example."""
NAMES: dict[str, list[str]] = {
    "rebind.example": ["127.0.0.1"],
    "127.0.0.1.nip.io": ["127.0.0.1"],
    "one-of-two.example": ["93.184.216.34", "127.0.0.1"],
    "metadata.example": ["169.254.169.254"],
    "private.example": ["10.0.0.7"],
    "shared.example": ["100.64.0.1"],
    "zero.example": ["0.0.0.0"],
    "multicast.example": ["224.0.0.251"],
    "six.example": ["::1"],
    "unique-local.example": ["fd00::1"],
    "link-local.example": ["fe80::1"],
    "mapped.example": ["::ffff:127.0.0.1"],
    "nat64.example": ["64:ff9b::7f00:1"],
    "six-to-four.example": ["2002:7f00:1::"],
    "teredo.example": ["2001:0:4136:e378:8000:63bf:80ff:fffe"],
    "l\u03bfcalhost.example".encode("idna").decode(): ["127.0.0.1"],
    "nowhere.example": [],
}
"""Names that lead to no public address alone."""
FORMS = [
    *("file:///etc/passwd", "ftp://127.0.0.1/", "gopher://127.0.0.1/", "data:text/html,x"),
    *("//127.0.0.1/", "http://127.0.0.1/", "http://localhost/", "http://LOCALHOST./"),
    *("http://a.localhost/", "http://trap/", "http://[::1]/", "http://[::]/"),
    *("http://[::ffff:127.0.0.1]/", "http://[64:ff9b::7f00:1]/", "http://[fe80::1%25lo]/"),
    *("http://0/", "http://0.0.0.0/", "http://2130706433/", "http://0x7f000001/"),
    *("http://0x7f.1/", "http://017700000001/", "http://0177.0.0.1/", "http://127.1/"),
    *("http://127.0.0.1./", "http://\u2460\u2461\u2466.0.0.1/"),
    "http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3/",
    *("http://l\u03bfcalhost.example/", "http://127.0.0.1%2f@public.example/"),
    *("http://user:word@public.example/", "http://public.example:80@127.0.0.1/"),
    "http://127.0.0.1:80\\@public.example/",
    *("http://169.254.169.254/latest/meta-data/", "http://metadata.google.internal/"),
    *("http://public.example:22/", "http://public.example:6379/", "http://sub.banned.example/"),
    *(f"http://{name}/" for name in NAMES),
]
"""Addresses that are not read."""


def answer(body: bytes, *headers: str, kind: str = "text/html") -> bytes:
    head = ["HTTP/1.1 200 OK", f"Content-Type: {kind}", "Connection: close", *headers, "", ""]
    return "\r\n".join(head).encode() + body


def packed(body: bytes, how: str = "gzip") -> bytes:
    return answer(body, f"Content-Encoding: {how}")


BOMB = b"<p>" + b"0" * 64 * MIB
READ = {
    "plain": (PAGE + b"<p>Hi", "Hi"),
    "gzip": (packed(gzip.compress(b"<p>Hi")), "Hi"),
    "deflate": (packed(zlib.compress(b"<p>Hi"), "deflate"), "Hi"),
    "bare": (packed(zlib.compress(b"<p>Hi")[2:-4], "deflate"), "Hi"),
    "json": (answer(b'{"a": 1}', kind="application/json"), '{"a": 1}'),
    "text": (answer(b"a <b", kind="text/plain"), "a \u2039b"),
    "latin": (answer(b"<p>\xe9", kind="text/html; charset=latin-1"), "\u00e9"),
    "old": (b"HTTP/1.0 200 OK\r\n\r\n<p>Hi", "Hi"),
    # A page that took 12 s, in a thread that no limit ends and that let nothing else run.
    "charsets": (PAGE + b"<meta" * 38 + b" charset=" + b" " * 4096 + b"><p>Hi", "Hi"),
    "marks": (
        PAGE + b"<title>A &amp; B</title><script>if (a < b) x('<p>no</p>')</script><!-- no -->"
        b"<h1>The\n heading</h1><p>One <b>bold</b>   word and <a href='../z?a=1&amp;b=2'>a link"
        b"</a>.<p>Two<br>lines <a href='javascript:x()'>plain</a> <a href=/p> </a><ul><li>first"
        b"<li>second</ul><table><tr><td>1</td><td>2</td></tr></table><svg><text>no</text></svg>"
        b"<p title='a > b'>End &lt;here&gt; &#8364;.",
        "A & B\n\n# The heading\n\nOne bold word and [a link](http://marks.example/z?a=1&b=2).\n\n"
        "Two\nlines plain\n\n- first\n- second\n\n1 | 2 |\n\nEnd \u2039here> \u20ac.",
    ),
}
"""First part of a name → what its server sends, and the page's text."""
UNREAD = {
    "pdf": (answer(b"%PDF", kind="application/pdf"), "this is a PDF"),
    "image": (answer(b"x", kind="image/png"), "this is image"),
    "br": (packed(b"x", "br"), "compressed in a way that is not supported"),
    "broken": (packed(b"xx"), "cannot be decompressed"),
    "none": (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 404"),
    "astray": (b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\n\r\n", "HTTP status 302"),
    "bracket": (b"HTTP/1.1 302 Found\r\nLocation: http://[::1\r\nContent-Length: 0\r\n\r\n", ""),
    "ssh": (b"SSH-2.0-OpenSSH\r\n", "cannot be read"),
    "short": (answer(b"x", "Content-Length: 99"), "cannot be read"),
    "semicolons": (answer(b"x", kind="text/html" + ";" * 8000), "its content type is too long"),
    "brackets": (answer(b"x", kind="(" * 8000), "its content type is too long"),
    "nothing": (b"", "cannot be read"),
    "header": (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000, "cannot be read"),
    "circle": (b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n", "5 redirects"),
    "blank": (PAGE, "the page has no text"),
    **{
        f"obey{n}": (f"HTTP/1.1 {head}\r\n\r\n".encode(), "")
        for n, head in enumerate(
            (
                "302 Found\r\nLocation: javascript:obey-this",
                "302 Found\r\nLocation: http://obey this/",
                "302 Found\r\nLocation: http://obey-this.internal/",
                "302 Found\r\nLocation: http://obey-this.example:99/",
                "200 OK\r\nContent-Type: obey-this/now",
                "200 OK\r\nContent-Encoding: obey-this",
                "200 OK\r\nContent-Length: obey-this",
                "obey-this",
            )
        )
    },
}
"""First part of a name → what its server sends, and the error."""
LARGE = ("zipped", "deflated", "endless")


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Iterator[Internet]:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://192.0.2.1:81")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("SSL_CERT_FILE", str(PEM))
    pages = {f"{name}.example": sent for name, (sent, _) in (READ | UNREAD).items()}
    pages["zipped.example"] = packed(gzip.compress(BOMB, 1))
    pages["deflated.example"] = packed(zlib.compress(BOMB, 1), "deflate")
    pages["endless.example"] = answer(b"", kind="text/plain")
    endless = {"endless.example": b"0123456789abcdef" * 1024}
    with on_a_thread(served(Internet(pages, endless), str(PEM))) as it:
        it.names |= {name: [found] for name, found in NAMES.items()}
        it.names["turns.example"] = [[PUBLIC], ["127.0.0.1"]]
        it.build(monkeypatch)
        yield it


def page(url: str) -> Call:
    return "web_qa", {"url": url, "query": "What does it say?"}


def about(url: str) -> str:
    """Return how the request to the reading model names a page."""
    return f"\n{url}\n"


def test_public_pages_are_read_and_nothing_else_is_connected_to(gp: Gp, internet: Internet) -> None:
    led = {f"http://public.example/?to={quote(form)}": form for form in FORMS}
    urls = {name: f"http://{name}.example/" for name in [*READ, *LARGE, *UNREAD]}
    secure = ("https://page.example/", "https://other.example/")
    twice = "http://turns.example/"
    onward = "http://p.example/?to=/end"
    fragment = "http://public.example#@127.0.0.1:80/"
    clerk = played(
        gp,
        KIT,
        turn(*map(page, FORMS)),
        turn(*map(page, led)),
        turn(*map(page, [*urls.values(), *secure, onward, fragment])),
        turn(page(twice)),
        turn(page(twice)),
        reads=lambda asked: ok("It says so."),
    )
    asked_for = [*FORMS, *led, *urls, *secure, onward, fragment, "turns", "again"]
    said = dict(zip(asked_for, clerk.results, strict=True))
    assert [form for form in (*FORMS, *led) if not said[form].startswith("Error: ")] == []
    hops = [text for url in led if "redirects to another one" in (text := said[url])]
    assert len(hops) == len(led) - 1, "a URL with a backslash is no redirect"
    refused = {name: ["Error: ", text] for name, (_, text) in UNREAD.items()}
    fine = {name: [f"<<<web {name}.example "] for name in (*READ, *LARGE)}
    assert misses(said, refused | fine) == {}
    assert [
        text for name, text in said.items() if name.startswith("obey") and "obey-" in text
    ] == []
    assert "<<<web page.example" in said[secure[0]]
    assert "certificate" in said[secure[1]]
    assert "http://p.example/end" in said[onward]
    assert ("<<<web" in said["turns"], "only public pages" in said["again"]) == (True, True)
    assert internet.looked_up["turns.example"] == 2, "one look for each page"
    assert {at for at, _ in internet.connected} == {PUBLIC}
    assert "<<<web public.example" in said[fragment]
    assert internet.served["public.example"] == len(led) + 1
    assert internet.served["circle.example"] == 6
    assert not {"banned.example", "sub.banned.example", "obey-this.example"} & {*internet.looked_up}
    asked = {name: next(a for a in clerk.read if about(urls[name]) in a) for name in fine}
    assert misses(asked, {name: [f"\n{text}\n"] for name, (_, text) in READ.items()}) == {}
    for name in LARGE:
        assert "This is only its beginning, 10,000 tokens or so." in asked[name]
        assert 40_000 < len(asked[name]) < 42_000
    assert internet.sent["endless.example"] < 12 * MIB  # what the system's buffers hold is more
