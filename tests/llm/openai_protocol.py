"""A reply in the words of OpenAI's chat completions."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.llm.replies import Answer, Call


def finish_of(answer: Answer) -> str | None:
    if answer.finish != "":
        return answer.finish
    return "tool_calls" if answer.calls else "stop"


def usage_of(answer: Answer) -> dict[str, int] | None:
    if answer.usage is None:
        return None
    read, written = answer.usage
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def frame(answer: Answer, asked: dict[str, Any], kind: str, choices: list[Any]) -> dict[str, Any]:
    model = answer.model or asked.get("model", "pretend")
    now = int(time.time())
    return {"id": answer.id, "object": kind, "created": now, "model": model, "choices": choices}


def whole(answer: Answer, asked: dict[str, Any]) -> bytes:
    """The body of a response that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": answer.whole_text}
    if answer.thinking:
        message["reasoning_content"] = "".join(text for text, _ in answer.thinking)
    if answer.refusal is not None:
        message["refusal"] = answer.refusal
    message |= answer.fields
    if answer.calls:
        message["tool_calls"] = [whole_call(call) for call in answer.calls]
    choice = {"index": 0, "message": message, "finish_reason": finish_of(answer)}
    body = frame(answer, asked, "chat.completion", [choice])
    return json.dumps({**body, "usage": usage_of(answer)}).encode()


def whole_call(call: Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.id, "type": "function", "function": function, **call.fields}


def stream(answer: Answer, asked: dict[str, Any]) -> bytes:
    """The body of a streamed response, whole; the server cuts it into pieces of any size."""
    events = [_delta(answer, asked, delta) for delta in _deltas(answer)]
    if (finish := finish_of(answer)) is not None:
        events.append(_delta(answer, asked, {}, finish))
    if answer.usage is not None:
        last = frame(answer, asked, "chat.completion.chunk", [])
        events.append({**last, "usage": usage_of(answer)})
    lines = [f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


def _delta(
    answer: Answer, asked: dict[str, Any], delta: dict[str, Any], finish: str | None = None
) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return frame(answer, asked, "chat.completion.chunk", [choice])


def _deltas(answer: Answer) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning_content": text} for text, _ in answer.thinking]
    deltas += [{name: value} for name, value in answer.fields.items()]
    if answer.refusal is not None:
        deltas.append({"refusal": answer.refusal})
    deltas += [{"content": text} for text in answer.texts]
    for position, call in enumerate(answer.calls):
        deltas += [{"tool_calls": [piece]} for piece in _call_pieces(call, position)]
    return deltas


def _call_pieces(call: Call, position: int) -> list[dict[str, Any]]:
    index = position if call.index is None else call.index
    arguments = "" if isinstance(call.arguments, str) else call.arguments
    function = {"name": call.name, "arguments": arguments}
    begun = {"index": index, "id": call.id, "type": "function", "function": function}
    pieces = [begun | call.fields]
    if isinstance(call.arguments, str):
        for start in range(0, len(call.arguments), call.pieces):
            text = call.arguments[start : start + call.pieces]
            pieces.append({"index": index, "function": {"arguments": text}})
    return pieces
