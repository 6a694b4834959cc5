"""A reply in the words of OpenAI's Responses API."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from tests.llm.replies import Answer, Call

# The reasons to stop of the chat protocol, as an incomplete response tells them.
INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}


def usage_of(answer: Answer) -> dict[str, Any] | None:
    if answer.usage is None:
        return None
    read, written = answer.usage
    details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    details |= {"output_tokens_details": {"reasoning_tokens": 0}}
    both = {"input_tokens": read, "output_tokens": written, "total_tokens": read + written}
    return {**both, **details}


def frame(answer: Answer, asked: dict[str, Any], status: str, output: list[Any]) -> dict[str, Any]:
    why = INCOMPLETE.get(answer.finish or "")
    if why and status == "completed":
        status = "incomplete"
    return {
        "id": answer.id, "object": "response", "created_at": int(time.time()), "status": status,
        "model": answer.model or asked.get("model", "pretend"), "output": output,
        "incomplete_details": {"reason": why} if status == "incomplete" else None,
        "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None,
        "usage": usage_of(answer) if status != "in_progress" else None,
    }  # fmt: skip


def items(answer: Answer) -> list[dict[str, Any]]:
    """What the answer holds, in its order: thoughts, the text, the calls."""
    found: list[dict[str, Any]] = []
    for n, (text, signature) in enumerate(answer.thinking):
        summary = [{"type": "summary_text", "text": text}] if text else []
        thought = {"id": f"rs_{n}", "type": "reasoning", "summary": summary}
        found.append({**thought, "encrypted_content": signature, **answer.fields})
    if answer.refusal is not None:
        found.append(_message([{"type": "refusal", "refusal": answer.refusal}]))
    if answer.whole_text is not None:
        text = {"type": "output_text", "text": answer.whole_text, "annotations": [], "logprobs": []}
        found.append(_message([text]))
    return found + [_call(call, n) for n, call in enumerate(answer.calls)]


def _message(content: list[dict[str, Any]]) -> dict[str, Any]:
    whole = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed"}
    return {**whole, "content": content}


def _call(call: Call, position: int) -> dict[str, Any]:
    words = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
    ends = {"id": f"fc_{position}", "type": "function_call", "status": "completed"}
    return {**ends, **words, **call.fields}


def as_chat(asked: dict[str, Any]) -> dict[str, Any]:
    """Return a request as the chat protocol would word it, for scripts and tests to read."""
    messages: list[dict[str, Any]] = []
    if asked.get("instructions"):
        messages.append({"role": "system", "content": asked["instructions"]})
    for item in asked["input"]:
        kind = item.get("type", "message")
        if kind == "function_call":
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            if messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": None})
            messages[-1].setdefault("tool_calls", []).append(call)
        elif kind == "function_call_output":
            result = {"role": "tool", "tool_call_id": item["call_id"]}
            messages.append({**result, "content": item["output"]})
        elif kind == "message":
            said = item["content"]
            if not isinstance(said, str):
                said = "".join(one.get("text", one.get("refusal", "")) for one in said)
            messages.append({"role": item["role"], "content": said})
    return {**asked, "messages": messages}


def whole(answer: Answer, asked: dict[str, Any]) -> bytes:
    """The body of a response that is not streamed."""
    return json.dumps(frame(answer, asked, "completed", items(answer))).encode()


def stream(answer: Answer, asked: dict[str, Any]) -> bytes:
    """The body of a streamed response, whole; the server cuts it into pieces of any size."""
    lines = []
    for number, event in enumerate(_events(answer, asked)):
        data = json.dumps({**event, "sequence_number": number})
        lines.append(f"event: {event['type']}\ndata: {data}\n\n")
    return "".join(lines).encode()


def _events(answer: Answer, asked: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": frame(answer, asked, "in_progress", [])}
    for index, item in enumerate(items(answer)):
        place = {"output_index": index, "item_id": item["id"]}
        begun = {
            "message": {"content": []},
            "function_call": {"arguments": ""},
            "reasoning": {"summary": []},
        }
        added = {**item, **begun.get(item["type"], {}), "status": "in_progress"}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        yield from _pieces(answer, item, place)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    if answer.finish is not None:
        last = frame(answer, asked, "completed", items(answer))
        yield {"type": f"response.{last['status']}", "response": last}


def _pieces(
    answer: Answer, item: dict[str, Any], place: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    if item["type"] == "function_call" and isinstance(item["arguments"], str):
        for text in answer.in_pieces(item["arguments"]):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": text}
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **place, **done}
    elif item["type"] == "reasoning":
        yield from _summary(answer, item, place)
    elif item["type"] == "message":
        [part] = item["content"]
        kind = part["type"]
        empty = {**part, "text": ""} if kind == "output_text" else {**part, "refusal": ""}
        place = {**place, "content_index": 0}
        yield {"type": "response.content_part.added", **place, "part": empty}
        texts = answer.texts if kind == "output_text" else [part["refusal"]]
        for text in texts:
            yield {"type": f"response.{kind}.delta", **place, "delta": text, "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}


def _summary(
    answer: Answer, item: dict[str, Any], place: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    kind = "response.reasoning_summary"
    for index, part in enumerate(item["summary"]):
        here = {**place, "summary_index": index}
        yield {"type": f"{kind}_part.added", **here, "part": {**part, "text": ""}}
        for text in answer.in_pieces(part["text"]):
            yield {"type": f"{kind}_text.delta", **here, "delta": text}
        yield {"type": f"{kind}_text.done", **here, "text": part["text"]}
        yield {"type": f"{kind}_part.done", **here, "part": part}
