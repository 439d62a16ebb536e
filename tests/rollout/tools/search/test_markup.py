"""A page as text, whatever it is made of, and in time with its length."""

import pytest

from grpo_practice.rollout.tools.search.markup import META, decoded, readable

URL = "https://a.example/x/y.html"


@pytest.mark.long_after(11)
@pytest.mark.parametrize(
    "piece",
    [
        *("<a ", "<!--", "<![CDATA[", "<", "</", "&", "<!x", "<?", "<a x='", "<script></", "<a ="),
        *("<p>x</p>", "<a href='", "<script>", "<svg>", "[](", "<a href=x></a>", "&#", " \n"),
        *("<a \"'>", "<meta charset", "&amp", "<a/>", "\x00", "<p '>", "</script"),
        *("<b><i><u></b>", "<table><tr><td>", "<p a=1 b=2 c ", "<math><mi>", "&notinva", "<title>"),
    ],
)
def test_2_33_no_page_takes_time_with_the_square_of_its_length(piece: str) -> None:
    page = (piece * 300_000)[:300_000]  # with the square of that, this test would take hours
    assert decoded(page.encode(), None) == page
    text, _ = readable(page, URL, 40_000)
    assert len(text) <= 160_000


@pytest.mark.parametrize(
    "head",
    [
        *(b"<meta charset", b"<meta charset=", b"<meta charset='", b"<meta" * 38 + b" charset"),
        *(b"<meta" * 38 + b" charset=", b"<meta charset=" * 15),
    ],
)
@pytest.mark.parametrize("piece", [b" ", b"' ", b"\n=", b"<meta charset= "])
def test_2_33_no_head_takes_time_with_the_square_of_its_length(head: bytes, piece: bytes) -> None:
    """Longer than what is ever searched: 4 KB of these took up to 12 s, so this would take days."""
    assert META.search(head + (piece * 300_000)[:300_000]) is None


@pytest.mark.parametrize(
    ("data", "charset"),
    [
        (b"<meta charset=koi8-r>", b"koi8-r"),
        (b"<META name=x charset = ' koi8-r '>", b"koi8-r"),
        (b'<meta http-equiv="Content-Type" content="text/html; charset=koi8-r">', b"koi8-r"),
        (b"<meta x><p charset=koi8-r>", None),
    ],
)
def test_a_page_s_own_word_for_its_charset_is_found(data: bytes, charset: bytes | None) -> None:
    said = META.search(data)
    assert (said and said[1]) == charset


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<a href=/1>a<svg class=i /></a><p>b", "[a](https://a.example/1)\n\nb"),
        ("<svg><title>icon</title><text>td</text><path>td</path></svg>a", "a"),
        ("<p>a<svg/><h2>b</h2>c", "a\n\n## b\n\nc"),
        ("<script>if (a<b) '</p>'</script>a", "a"),
        ("a<script>never closed", "a"),
        ("<a href='/x'>a<a href='/y'>b", "[a](https://a.example/x)[b"),
        ("<p title='a > b>c</p>d", ""),
        ("<plaintext><p>a", "<p>a"),
    ],
)
def test_pages_out_of_order_are_read_as_a_browser_does(page: str, text: str) -> None:
    assert readable(page, URL, 100)[0] == text


def test_a_number_of_many_digits_is_no_error() -> None:
    assert readable(f"<p>a&#{'9' * 10_000};b", URL, 100) == ("a\ufffdb", True)


def test_text_ends_soon_after_what_was_asked_for() -> None:
    assert readable("<p>abc</p>" * 100_000, URL, 10) == ("abc\n\nabc\n\n", False)


@pytest.mark.parametrize(
    ("data", "charset", "text"),
    [
        ("\u00e9".encode(), None, "\u00e9"),
        (b"\xe9t\xe9 ...", None, "\u00e9t\u00e9 ..."),
        (b"\xe9 \x93", "iso-8859-1", "\u00e9 \u201c"),
        ("\u043f".encode("koi8-r"), "KOI8-R", "\u043f"),
        (b'<meta charset="windows-1251">\xef', None, '<meta charset="windows-1251">\u043f'),
        (b"\xef\xbb\xbf\xc3\xa9", "iso-8859-1", "\u00e9"),
        ("\u00e9".encode("utf-16"), None, "\u00e9"),
        ("\u65e5".encode("shift_jis"), "Shift_JIS", "\u65e5"),
        (b"abc", "punycode", "abc"),
        (b"\\x41", "unicode_escape", "\\x41"),
        (b"abc", "hex", "abc"),
        (b"\xff\xfe\x00", "no-such", "\ufffd"),
        ("a\u20ac".encode()[:-1], None, "a\ufffd"),
    ],
)
def test_a_page_is_decoded_by_what_it_says_it_is(
    data: bytes, charset: str | None, text: str
) -> None:
    assert decoded(data, charset) == text
