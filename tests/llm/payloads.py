"""The one validator of what a model is asked: each call has one result, in order, ids unique.

`check_payload` reads a request as a provider gets it, of either protocol; `check_messages` reads a
list of neutral messages (objects or dicts) as a model node or a scripted model is given it. Both
raise `InvalidPayload` with all they found. Nothing of the project is imported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

OPENAI_ID = re.compile(r".{1,40}", re.DOTALL)
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]+")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class InvalidPayload(AssertionError):
    """A provider would refuse this request, or would misunderstand it."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(problems)
        super().__init__("; ".join(self.problems))


def check_payload(payload: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> None:
    """Raise `InvalidPayload` unless a request, or its list of messages, is one a provider takes."""
    if isinstance(payload, Mapping) and "input" in payload:
        found = responses_problems(payload["input"]) + tool_problems(payload.get("tools") or [])
        if found:
            raise InvalidPayload(found)
        return
    messages = payload["messages"] if isinstance(payload, Mapping) else payload
    is_anthropic = any(isinstance(one.get("content"), list) for one in messages) or (
        isinstance(payload, Mapping) and "max_tokens" in payload and "system" in payload
    )
    found = anthropic_problems(messages) if is_anthropic else openai_problems(messages)
    if isinstance(payload, Mapping):
        found += tool_problems(payload.get("tools") or [])
    if found:
        raise InvalidPayload(found)


# --- OpenAI's chat completions ---------------------------------------------------------------


def openai_problems(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    pairing = _Pairing()
    problems: list[str] = []
    for n, message in enumerate(messages):
        role = message["role"]
        if role == "tool":
            pairing.result(n, message.get("tool_call_id"))
            if not isinstance(message.get("content"), str):
                problems.append(f"message {n}: the result is no text")
            continue
        calls = message.get("tool_calls") or []
        pairing.turn(n, [call.get("id") for call in calls])
        problems += [problem for call in calls for problem in _openai_call(n, call)]
        if not calls and not (message.get("content") or "").strip():
            problems.append(f"message {n}: {role} says nothing")
    return problems + pairing.finish(OPENAI_ID)


def _openai_call(n: int, call: Mapping[str, Any]) -> Iterable[str]:
    function = call["function"]
    if not NAME.fullmatch(function["name"]):
        yield f"message {n}: {function['name']!r} is no name"
    try:
        is_object = isinstance(json.loads(function["arguments"]), dict)
    except (ValueError, TypeError):
        is_object = False
    if not is_object:
        yield f"message {n}: the arguments of {call['id']} are no JSON object"


# --- OpenAI's responses ----------------------------------------------------------------------


def responses_problems(items: Sequence[Mapping[str, Any]]) -> list[str]:
    pairing = _Pairing()
    problems: list[str] = []
    turn: list[Any] = []
    for n, item in enumerate(items):
        kind = item.get("type", "message")
        if kind == "function_call":
            turn.append(item["call_id"])
            call = {"id": item["call_id"], "function": item}
            problems += _openai_call(n, call)
            continue
        if turn if kind == "function_call_output" else item.get("role") == "user":
            pairing.turn(n, turn)
            turn = []
        if kind == "function_call_output":
            pairing.result(n, item["call_id"])
            if not isinstance(item["output"], str):
                problems.append(f"item {n}: the result is no text")
        elif kind == "message" and not _text_of(item).strip():
            problems.append(f"item {n}: {item['role']} says nothing")
    if turn:
        pairing.turn(len(items), turn)
    return problems + pairing.finish(OPENAI_ID)


def _text_of(item: Mapping[str, Any]) -> str:
    content = item["content"]
    if isinstance(content, str):
        return content
    return "".join(one.get("text", one.get("refusal", "")) for one in content)


# --- Anthropic's messages --------------------------------------------------------------------


def anthropic_problems(messages: Sequence[Mapping[str, Any]]) -> list[str]:
    pairing = _Pairing()
    problems: list[str] = []
    if messages and messages[0]["role"] != "user":
        problems.append("the first message is not the user's")
    for n, message in enumerate(messages):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        results = [block for block in blocks if block["type"] == "tool_result"]
        if results and blocks[: len(results)] != results:
            problems.append(f"message {n}: results stand after other blocks")
        for block in results:
            pairing.result(n, block["tool_use_id"])
        calls = [block for block in blocks if block["type"] == "tool_use"]
        if calls or len(results) < len(blocks):
            pairing.turn(n, [call["id"] for call in calls])
        problems += [problem for block in blocks for problem in _anthropic_block(n, block)]
        if not blocks:
            problems.append(f"message {n}: no content")
    return problems + pairing.finish(ANTHROPIC_ID)


def _anthropic_block(n: int, block: Mapping[str, Any]) -> Iterable[str]:
    if block["type"] == "text" and not block["text"].strip():
        yield f"message {n}: an empty text block"
    if block["type"] == "tool_use":
        if not isinstance(block["input"], dict):
            yield f"message {n}: the input of {block['id']} is no object"
        if not NAME.fullmatch(block["name"]):
            yield f"message {n}: {block['name']!r} is no name"
    if block["type"] == "thinking" and not block.get("signature"):
        yield f"message {n}: thinking without its signature"


def tool_problems(tools: Sequence[Mapping[str, Any]]) -> list[str]:
    names = [one.get("function", one)["name"] for one in tools]
    problems = [f"two tools are named {name}" for name in set(names) if names.count(name) > 1]
    return problems + [f"{name!r} is no name for a tool" for name in names if not NAME.match(name)]


# --- neutral messages ------------------------------------------------------------------------


def check_messages(messages: Sequence[Any], *, complete: bool = True) -> None:
    """Raise `InvalidPayload` unless neutral messages are a conversation that a model may be given.

    Every message id and, within its message, every call id occurs once; each call has exactly one
    result, and the results stand right after their message, in the order of its calls.
    `complete=False` is for a conversation whose last calls are at work: these may lack theirs.
    """
    problems = _repeated("message id", [_get(one, "id") for one in messages])
    pairing = _Pairing(scoped=True)
    for n, message in enumerate(messages):
        role = _get(message, "role")
        if role == "tool":
            pairing.result(n, _get(message, "tool_call_id"))
            continue
        if role not in ("user", "system", "assistant"):
            problems.append(f"message {n}: there is no role {role!r}")
        pairing.turn(n, [_get(call, "id") for call in _get(message, "tool_calls") or []])
    problems += pairing.finish(None, last_is_open=not complete)
    if problems:
        raise InvalidPayload(problems)


def _get(thing: Any, name: str) -> Any:
    return thing.get(name) if isinstance(thing, Mapping) else getattr(thing, name)


def _repeated(what: str, values: Iterable[Any]) -> list[str]:
    seen: set[Any] = set()
    problems = []
    for value in values:
        if value in seen:
            problems.append(f"the {what} {value!r} occurs twice")
        seen.add(value)
    return problems


def check_tools(tools: Iterable[Any]) -> None:
    """Raise `InvalidPayload` if two tools that a model is offered share a name."""
    if problems := _repeated("tool name", [_get(one, "name") for one in tools]):
        raise InvalidPayload(problems)


# --- calls and results -----------------------------------------------------------------------


class _Pairing:
    """Walks a conversation: calls open, results close them, a new turn finds none open."""

    def __init__(self, *, scoped: bool = False) -> None:
        self.scoped = scoped  # ids are unique within their message only
        self.open: list[Any] = []
        self.ids: list[Any] = []
        self.problems: list[str] = []

    def turn(self, n: int, ids: list[Any]) -> None:
        if self.open:
            self.problems.append(f"message {n}: the calls {self.open} have no result before it")
        self.problems += _repeated("call id", ids)
        self.ids += ids
        self.open = list(ids)

    def result(self, n: int, ident: Any) -> None:
        if ident not in self.open:
            self.problems.append(f"message {n}: the result {ident!r} belongs to no open call")
        elif self.open[0] != ident:
            self.problems.append(f"message {n}: the result {ident!r} is out of order")
        if ident in self.open:
            self.open.remove(ident)

    def finish(self, form: re.Pattern[str] | None, *, last_is_open: bool = False) -> list[str]:
        if self.open and not last_is_open:
            self.problems.append(f"the calls {self.open} have no result")
        if not self.scoped:
            self.problems += _repeated("call id of the payload", self.ids)
        for ident in self.ids:
            if not isinstance(ident, str) or not ident or (form and not form.fullmatch(ident)):
                self.problems.append(f"{ident!r} is no id for a call")
        return self.problems
