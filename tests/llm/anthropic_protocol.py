"""A reply in the words of Anthropic's messages."""

from __future__ import annotations

import json
from typing import Any

from tests.llm.replies import Answer, Call

FINISH = {"length": "max_tokens", "stop": "end_turn", "tool_calls": "tool_use"}


def finish_of(answer: Answer) -> str | None:
    if answer.finish == "":
        return "tool_use" if answer.calls else "end_turn"
    return FINISH.get(answer.finish, answer.finish) if answer.finish else None


def usage_of(answer: Answer) -> dict[str, int]:
    read, written = answer.usage or (0, 0)
    return {"input_tokens": read, "output_tokens": written}


def head(answer: Answer, asked: dict[str, Any]) -> dict[str, Any]:
    model = answer.model or asked.get("model", "pretend")
    return {"id": answer.id, "type": "message", "role": "assistant", "model": model}


def whole(answer: Answer, asked: dict[str, Any]) -> bytes:
    """The body of a response that is not streamed."""
    content = [_block(part) for part in parts_of(answer)]
    ending = {"stop_reason": finish_of(answer), "stop_sequence": None, "usage": usage_of(answer)}
    return json.dumps({**head(answer, asked), "content": content, **ending}).encode()


def parts_of(answer: Answer) -> list[str | tuple[str, str] | Call]:
    text = [] if answer.whole_text is None else [answer.whole_text]
    return answer.parts or [*answer.thinking, *text, *answer.calls]


def _block(part: str | tuple[str, str] | Call) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, tuple):
        return {"type": "thinking", "thinking": part[0], "signature": part[1]}
    return {"type": "tool_use", "id": part.id, "name": part.name, "input": _value(part.arguments)}


def _value(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments


def stream(answer: Answer, asked: dict[str, Any]) -> bytes:
    """The body of a streamed response, whole; the server cuts it into pieces of any size."""
    events: list[dict[str, Any]] = []
    blocks = [_streamed(part, answer) for part in parts_of(answer)]
    for index, (start, deltas) in enumerate(blocks):
        events.append({"type": "content_block_start", "index": index, "content_block": start})
        events += [{"type": "content_block_delta", "index": index, "delta": one} for one in deltas]
        events.append({"type": "content_block_stop", "index": index})
        events.append({"type": "ping"})
    nothing = {"content": [], "stop_reason": None, "stop_sequence": None}
    opening = {**head(answer, asked), **nothing, "usage": {**usage_of(answer), "output_tokens": 1}}
    finish = finish_of(answer)
    stopped = {"stop_reason": finish, "stop_sequence": None}
    ending = [
        {"type": "message_delta", "delta": stopped, "usage": usage_of(answer)},
        {"type": "message_stop"},
    ]
    events = [{"type": "message_start", "message": opening}, *events, *(ending if finish else [])]
    lines = [f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events]
    return "".join(lines).encode()


def _streamed(part: str | tuple[str, str] | Call, answer: Answer) -> Any:
    """How a part begins, and the deltas that follow."""
    if isinstance(part, str):
        deltas = [{"type": "text_delta", "text": text} for text in answer.in_pieces(part)]
        return {"type": "text", "text": ""}, deltas
    if isinstance(part, tuple):
        thought = {"type": "thinking_delta", "thinking": part[0]}
        signed = {"type": "signature_delta", "signature": part[1]}
        return {"type": "thinking", "thinking": "", "signature": ""}, [thought, signed]
    given = part.arguments
    text = given if isinstance(given, str) else json.dumps(given)
    pieces = [text[n : n + part.pieces] for n in range(0, len(text), part.pieces)]
    start = {"type": "tool_use", "id": part.id, "name": part.name, "input": {}}
    return start, [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces]]
