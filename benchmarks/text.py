"""Message text that compresses about as prose does, the same for every contender."""

from __future__ import annotations

import random


class Text:
    """An endless supply of text, reproducible: two instances give the same pieces in turn."""

    def __init__(self, seed: int = 11) -> None:
        draw = random.Random(seed)
        letters = "eeeetttaaaooiinnsshhrrdlucmfwypvbgk"
        words = ["".join(draw.choices(letters, k=draw.randint(2, 10))) for _ in range(4000)]
        self._all = " ".join(draw.choices(words, k=120_000))
        self._at = 0

    def piece(self, size: int) -> str:
        """The next `size` characters (ASCII, so as many bytes)."""
        if self._at + size > len(self._all):
            self._at = 0
        self._at += size
        return self._all[self._at - size : self._at]


text = Text().piece
