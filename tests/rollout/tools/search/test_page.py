"""Which addresses are a page's, which are public, and which sites are banned."""

import ipaddress

import pytest
from yarl import URL

from grpo_practice.rollout.tools import ToolError
from grpo_practice.rollout.tools.search.page import (
    LONGEST_URL,
    Banned,
    domain_of,
    is_public,
    page_url,
)

PRIVATE = [
    *("0.0.0.0", "0.1.2.3", "10.0.0.1", "100.64.0.1", "127.0.0.1", "127.255.255.255"),
    *("169.254.169.254", "172.16.0.1", "192.0.0.9", "192.0.2.1", "192.88.99.1", "192.168.1.1"),
    *("198.18.0.1", "198.51.100.1", "203.0.113.1", "224.0.0.251", "239.255.255.250", "240.0.0.1"),
    *("255.255.255.255", "::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:8.8.8.8"),
    *("::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::1", "100::1"),
    *("2001::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "2002:808:808::", "3fff::1"),
    *("168.63.129.16", "5f00::1", "fc00::1", "fd12::1", "fe80::1", "fec0::1", "ff02::1", "ff0e::1"),
]


@pytest.mark.parametrize("address", PRIVATE)
def test_2_31_an_address_that_is_not_public_is_known(address: str) -> None:
    assert not is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "2a00::1"])
def test_a_public_address_is_known(address: str) -> None:
    assert is_public(ipaddress.ip_address(address))


@pytest.mark.parametrize(
    ("text", "url", "domain"),
    [
        (" https://Example.COM/a?b=c#d ", "https://example.com/a?b=c", "example.com"),
        ("http://www.example.com", "http://www.example.com", "example.com"),
        ("http://b\u00fccher.example/", "http://xn--bcher-kva.example/", "xn--bcher-kva.example"),
        ("http://EXAMPLE\u3002com./", "http://example.com./", "example.com"),
        ("http://93.184.216.34/", "http://93.184.216.34/", "93.184.216.34"),
        ("http://[2606:4700::1111]/", "http://[2606:4700::1111]/", "2606:4700::1111"),
        ("http://1.example.com:80/", "http://1.example.com/", "1.example.com"),
    ],
)
def test_a_page_has_a_url_and_a_domain(text: str, url: str, domain: str) -> None:
    found = page_url(text)
    assert (str(found), domain_of(found)) == (url, domain)


@pytest.mark.parametrize(
    "text",
    [
        *("", "example.com", "javascript:alert(1)", "about:blank", "http://", "http://:80/"),
        *("http:/a", "http://a..example/", "http://a%00.example/", "http://a.example:0/"),
        *("http://a.example:x/", "http://a.example/\nHost: b", "http://a.example/ b"),
        *("http://[::1", "http://256.1.1.1/", "http://1.2.3/", "http://x@a.example/"),
        "http://a.example/" + "a" * LONGEST_URL,
    ],
)
def test_2_30_what_is_no_address_of_a_page_is_refused(text: str) -> None:
    with pytest.raises(ToolError):
        page_url(text)


def test_what_a_refusal_shows_is_short_and_has_no_control_characters() -> None:
    with pytest.raises(ToolError) as e:
        page_url("http://a.example/\x1b[31m" + "a" * 5000)
    assert "\x1b" not in str(e.value)
    assert len(str(e.value)) < 300


@pytest.mark.parametrize(
    ("site", "url", "banned"),
    [
        ("example.com", "https://example.com/a", True),
        ("example.com", "https://a.b.example.com/", True),
        ("example.com", "https://www.EXAMPLE.com./", True),
        ("example.com", "https://notexample.com/", False),
        ("example.com", "https://example.com.evil.example/", False),
        ("sub.example.com", "https://example.com/", False),
        ("www.example.com", "https://example.com/", True),
        ("*.example.com", "https://a.example.com/", True),
        ("https://Example.com/path", "http://example.com/", True),
        ("B\u00dcCHER.example", "http://xn--bcher-kva.example/", True),
        ("xn--bcher-kva.example", "http://b\u00fccher.example/", True),
    ],
)
def test_a_banned_site_is_a_domain_and_all_below_it(site: str, url: str, banned: bool) -> None:
    assert (URL(url) in Banned([site])) is banned


@pytest.mark.parametrize("site", ["", "http://", "a:b:c"])
def test_what_is_no_domain_cannot_be_banned(site: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Banned([site])
