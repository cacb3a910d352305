"""Nothing invisible reaches a person's eyes, and only links we built are live (H13, H18)."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.showing import is_live_link, shown


@pytest.mark.parametrize(
    ("hostile", "harmless"),
    [
        ("\x1b[2J\x1b[Hall good", "all good"),
        ("rev\u202e5 ot odnu", "rev\\u{202e}5 ot odnu"),
        ("kube\u200b-system", "kube\\u{200b}-system"),
        ("a\x00b\x07c", "abc"),
        ("\x1b]8;;https://evil.example\x07click\x1b]8;;\x07", "click"),
        ("two\nlines\ttab", "two\nlines\ttab"),
        ("naïve 日本 🚨", "naïve 日本 🚨"),
    ],
)
def test_h18_spoofing_is_made_visible(hostile: str, harmless: str) -> None:
    assert shown(hostile) == harmless


@given(st.text())
def test_no_control_or_format_character_is_left(text: str) -> None:
    left = {unicodedata.category(character) for character in shown(text) if character not in "\n\t"}
    assert not left & {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


@given(st.text())
def test_showing_twice_changes_nothing(text: str) -> None:
    assert shown(shown(text)) == shown(text)


@pytest.mark.parametrize(
    ("link", "live"),
    [
        ("http://prometheus:9090/graph?g0.expr=up", True),
        ("https://prometheus:9090/graph", True),
        ("http://prometheus:9091/graph", False),
        ("javascript:alert(1)", False),
        ("http://prometheus:9090@evil.example/login", False),
        ("//prometheus:9090/", False),
        ("http://[bad", False),
        ("", False),
    ],
)
def test_h13_only_our_own_hosts_are_live(link: str, live: bool) -> None:
    assert is_live_link(link, {"prometheus:9090"}) is live
