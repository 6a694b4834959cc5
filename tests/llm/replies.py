"""What a pretend provider says: an answer in neutral words, or one of the ways to fail."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass
class Call:
    """One call as the provider words it. `arguments` is sent as it is: text, or any JSON value.

    Of a stream, `pieces` bounds how many letters of the arguments one delta carries. `fields` are
    unknown to every protocol; `index` overrides the place that a stream names.
    """

    name: Any = "lookup"
    arguments: Any = "{}"
    id: Any = "call_1"
    fields: dict[str, Any] = field(default_factory=dict)
    index: int | None = None
    pieces: int = 7


@dataclass
class Answer:
    """A whole answer. `finish` "" derives the reason; None: the provider never says one.

    `thinking` is a list of (text, signature); OpenAI's protocol has the texts only. `usage` is
    (input, output) tokens or None. `fields` are unknown fields of the message. `parts`, of
    Anthropic's protocol only, are texts, thoughts and calls in an order of their own.
    """

    text: str | list[str] | None = None
    calls: list[Call] = field(default_factory=list)
    finish: str | None = ""
    thinking: list[tuple[str, str]] = field(default_factory=list)
    usage: tuple[int, int] | None = (120, 30)
    fields: dict[str, Any] = field(default_factory=dict)
    refusal: str | None = None
    model: str = ""
    id: str = "answer-1"
    pieces: int = 5
    parts: list[str | tuple[str, str] | Call] = field(default_factory=list)

    @property
    def texts(self) -> list[str]:
        """The text in the pieces that a stream brings it in."""
        return self.text if isinstance(self.text, list) else self.in_pieces(self.text or "")

    def in_pieces(self, text: str) -> list[str]:
        return [text[n : n + self.pieces] for n in range(0, len(text), self.pieces)]

    @property
    def whole_text(self) -> str | None:
        return "".join(self.text) if isinstance(self.text, list) else self.text


@dataclass
class Failure:
    """An HTTP error. `body` may be a message, or any JSON, or bytes."""

    status: int
    body: Any = "the server says no"
    headers: dict[str, str] = field(default_factory=dict)


@dataclass
class Cut:
    """An answer that breaks off after `share` of its bytes.

    `how`: "close" drops the connection, "end" ends the response as if all were well, "error" says
    in the stream that it failed.
    """

    answer: Answer
    share: float = 0.6
    how: Literal["close", "end", "error"] = "close"


@dataclass
class Halted:
    """An answer that stands still after `share` of its bytes, until `go_on` is set."""

    answer: Answer
    go_on: threading.Event
    share: float = 0.5


@dataclass
class Raw:
    """These bytes with status 200, whatever they are."""

    body: bytes
    content_type: str = "application/json"


@dataclass
class Silence:
    """Nothing for so many seconds, then the connection is closed. `answer` is begun before."""

    seconds: float
    answer: Answer | None = None


Reply = Answer | Failure | Cut | Halted | Raw | Silence


def error_body(protocol: str, failure: Failure) -> bytes:
    """The body of an error response, in the protocol's words where it is a message only."""
    if isinstance(failure.body, bytes):
        return failure.body
    body = failure.body
    if isinstance(body, str):
        kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
        error = {"type": kinds.get(failure.status, "api_error"), "message": body}
        body = {"error": error if protocol == "anthropic" else {**error, "code": None}}
        if protocol == "anthropic":
            body["type"] = "error"
    return json.dumps(body).encode()
