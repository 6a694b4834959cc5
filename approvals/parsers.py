"""JSON from outside, read strictly: what could not be stored or has two readings is refused."""

from __future__ import annotations

from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from agentruntime.graph.json_values import NotJson, read_json

MAX_BODY_BYTES = 262_144


class StrictJSONParser(BaseParser):
    """Reads a JSON body; NUL, lone surrogates, doubled keys, NaN, depth and size are a 400."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: Any = None, parser_context: Any = None) -> Any:
        body = stream.read(MAX_BODY_BYTES + 1)
        if not body.strip():
            return {}
        try:
            return read_json(body.decode("utf-8"), max_bytes=MAX_BODY_BYTES)
        except UnicodeDecodeError:
            raise ParseError("The body is no UTF-8.") from None
        except NotJson as error:
            raise ParseError(f"The body is not accepted: {error}") from None
