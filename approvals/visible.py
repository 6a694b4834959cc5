"""Text from models and tools, taken apart so that everything in it can be seen.

Characters that hide, reorder or pretend are turned into marked pieces; templates print the pieces
one by one, escaped as ever. What runs is never changed by this: it is for the eye only.
Sources: Trojan Source (CVE-2021-42574, CVE-2021-42694), Unicode TR 36 and TS 39.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

LONG = 400
MANY_SPACES = 4
MANY_MARKS = 2
# Letters of other scripts that a reader takes for Latin ones, and letters that show nothing.
TWINS = frozenset("аеорсухіјѕԁһԛԝӏАВЕКМНОРСТХІЈЅԌοανρτυκιΑΒΕΖΗΙΚΜΝΟΡΤΥΧօսոհԱՏᎪᏴᏟᎬᎻᎫᏦᏞᎷᏢᎡᏚᎢᏙᏃ")
BLANKS = frozenset("\u115f\u1160\u3164\uffa0\u2800\u034f\u17b4\u17b5\u180b\u180c\u180d\u180f")
WORD = re.compile(r"[^\W_]+(?:[.@-][^\W_]+)*")


@dataclass(frozen=True)
class Piece:
    """A stretch of text: plain, an escaped character (`odd`), a word that deceives (`twin`)."""

    text: str
    kind: str = "plain"
    note: str = ""


def pieces(text: str) -> list[Piece]:
    """Return `text` as pieces that leave nothing invisible; joined, they say all of it."""
    found: list[Piece] = []
    for piece in _escaped(text):
        found.extend(_words(piece.text) if piece.kind == "plain" else [piece])
    return found


def is_suspicious(text: str) -> bool:
    """Say whether anything in `text` hides, reorders or pretends."""
    return any(piece.kind != "plain" for piece in pieces(text))


def plain(text: str) -> str:
    """Return `text` on one line with odd characters escaped, for mails, logs and page titles."""
    return "".join(piece.text for piece in _escaped(text.replace("\n", " ")))


def shortened(text: str, limit: int = 120) -> str:
    """Return `text`, or its beginning with a mark that says how much is missing."""
    if len(text) <= limit:
        return text
    return f"{text[:limit]}… [+{len(text) - limit:,} characters]"


def _escaped(text: str) -> Iterator[Piece]:
    start = position = marks = 0
    while position < len(text):
        character = text[position]
        marks = marks + 1 if unicodedata.category(character) in ("Mn", "Me") else 0
        width = _width_of_spaces(text, position)
        if not width and not _is_odd(character) and marks <= MANY_MARKS:
            position += 1
            continue
        if start < position:
            yield Piece(text[start:position])
        yield _spaces(width) if width else _odd(character)
        position += width or 1
        start = position
    if start < len(text):
        yield Piece(text[start:])


def _width_of_spaces(text: str, position: int) -> int:
    if text[position] != " ":
        return 0
    width = len(text) - position - len(text[position:].lstrip(" "))
    return width if width >= MANY_SPACES else 0


def _is_odd(character: str) -> bool:
    if character == "\n" or " " <= character <= "~":
        return False
    category = unicodedata.category(character)
    if category in ("Cc", "Cf", "Co", "Cn", "Cs", "Zl", "Zp", "Zs"):
        return True
    return character in BLANKS or "\ufe00" <= character <= "\ufe0f"


def _odd(character: str) -> Piece:
    name = unicodedata.name(character, "unnamed")
    return Piece(
        f"‹U+{ord(character):04X}›", "odd", f"An invisible or controlling character: {name}"
    )


def _spaces(width: int) -> Piece:
    return Piece(f"‹{width:,} spaces›", "odd", "A run of spaces")


def _words(text: str) -> Iterator[Piece]:
    if text.isascii():
        yield Piece(text)
        return
    start = 0
    for match in WORD.finditer(text):
        note = _twin_note(match[0])
        if note:
            if start < match.start():
                yield Piece(text[start : match.start()])
            yield Piece(match[0], "twin", note)
            start = match.end()
    if start < len(text):
        yield Piece(text[start:])


def _twin_note(word: str) -> str:
    """Return why a word may be read as another one, or ""."""
    if word.isascii():
        return ""
    folded = unicodedata.normalize("NFKC", word)
    scripts = {_script(character) for character in word if character.isalpha()} - {""}
    note = ""
    if folded.isascii() or unicodedata.normalize("NFC", word) != folded:
        note = f"looks like {folded}"
    elif len(scripts) > 1 and "LATIN" in scripts:
        note = f"mixes {' and '.join(one.title() for one in sorted(scripts))} letters"
    elif all(character in TWINS for character in word if character.isalpha()) and scripts:
        note = f"{sorted(scripts)[0].title()} letters that look like Latin ones"
    elif any(character.isdigit() and not character.isascii() for character in word):
        note = "digits of another script"
    if ("." in word or "@" in word) and (coded := _punycode(word)):
        note = f"{note}; {coded}" if note else coded
    return note


def _script(character: str) -> str:
    name = unicodedata.name(character, "")
    script = name.split(" ", 1)[0]
    known = {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE", "COPTIC", "HEBREW", "ARABIC"}
    return script if script in known else ""


def _punycode(word: str) -> str:
    host = word.rpartition("@")[2]
    try:
        coded = host.encode("idna").decode()
    except UnicodeError:
        return ""
    return f"in the address bar: {coded}" if coded != host else ""
