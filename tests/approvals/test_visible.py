"""Everything in a text can be seen: nothing hides, reorders, pretends or is cut without a mark."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.visible import is_suspicious, pieces, plain, shortened
from tests.approvals.attacks import ATTACKS

HIDING = ("Cc", "Cf", "Zl", "Zp", "Co", "Cs")


def joined(text):
    return "".join(piece.text for piece in pieces(text))


@pytest.mark.parametrize(
    "text", ["Refund 30.00 for 1042", "Grüße aus Köln, café", "Привет, мир", "日本"]
)
def test_ordinary_text_of_any_language_stays_as_it_is(text):
    assert joined(text) == text
    assert not is_suspicious(text)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb", "a‹U+202E›b"),
        ("a\u200bb", "a‹U+200B›b"),
        ("a\u00a0b", "a‹U+00A0›b"),
        ("a\tb\rc", "a‹U+0009›b‹U+000D›c"),
        ("a" + " " * 5000 + "b", "a‹5,000 spaces›b"),
        ("a\ufeff\u2060", "a‹U+FEFF›‹U+2060›"),
        ("\u3164x", "‹U+3164›x"),
    ],
)
def test_what_hides_is_spelt_out(text, shown):
    assert joined(text) == shown
    assert is_suspicious(text)


@pytest.mark.parametrize(
    ("word", "note"),
    [
        ("pаypal", "mixes Cyrillic and Latin letters"),
        ("раура", "Cyrillic letters that look like Latin ones"),
        ("１２", "looks like 12"),
        ("ﬁne", "looks like fine"),
        ("٣٤", "digits of another script"),
    ],
)
def test_what_pretends_is_flagged(word, note):
    found = [piece for piece in pieces(f"pay {word} now") if piece.kind == "twin"]
    assert [(piece.text, piece.note) for piece in found] == [(word, note)]


def test_a_foreign_host_is_shown_as_the_address_bar_shows_it():
    found = [piece for piece in pieces("mail a@bücher.example") if piece.kind == "twin"]
    assert "xn--bcher-kva.example" in found[0].note


@pytest.mark.parametrize("text", ATTACKS)
def test_nothing_of_an_attack_stays_invisible(text):
    assert_visible(joined(text))


@given(st.text())
def test_nothing_of_any_text_stays_invisible(text):
    assert_visible(joined(text))
    assert "\n" not in plain(text)


def assert_visible(shown):
    odd = [c for c in shown if unicodedata.category(c) in HIDING and c != "\n"]
    assert odd == []
    assert "    " not in shown


@given(st.text(max_size=300))
def test_what_is_cut_says_how_much(text):
    short = shortened(text, 100)
    assert short == text or short.endswith(f"[+{len(text) - 100:,} characters]")
