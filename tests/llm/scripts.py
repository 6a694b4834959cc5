"""Scripted models behind the pretend provider: what they decide goes over real HTTP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from agentruntime.graph import Message, ToolCall
from tests.llm.replies import Answer, Call, Failure, Reply

Script = Callable[[dict[str, Any]], Reply]
SEAL = "thought_signature"


def served(model: Callable[..., Message]) -> Script:
    """Return the script that answers as a model `(messages, tools) -> Message` would."""

    def script(body: dict[str, Any]) -> Reply:
        said = model(messages_of(body), [])
        calls = [
            Call(name=call.name, id=call.id, arguments=json.dumps(call.arguments))
            for call in said.tool_calls
        ]
        return Answer(text=said.content or None, calls=calls)

    return script


def demanding(script: Script) -> Script:
    """Return the script that seals each call, and refuses a thread that lost a seal.

    For OpenAI's protocol. A seal is opaque text that no protocol knows; it follows from the call,
    so that any process of the provider can check it.
    """

    def sealed(body: dict[str, Any]) -> Reply:
        sent = [call for message in body["messages"] for call in message.get("tool_calls") or []]
        for call in sent:
            function = call["function"]
            if call.get(SEAL) != seal(function["name"], function["arguments"]):
                return Failure(400, f"the call {call['id']} lost its {SEAL}")
        reply = script(body)
        if not isinstance(reply, Answer):
            return reply
        calls = [
            replace(call, fields={SEAL: seal(call.name, call.arguments)}) for call in reply.calls
        ]
        return replace(reply, calls=calls)

    return sealed


def seal(name: str, arguments: str) -> str:
    return hashlib.sha256(f"{name}({arguments})".encode()).hexdigest() + '+/="\\\u0000ü'


def messages_of(body: dict[str, Any]) -> list[Message]:
    """Return the conversation of a request, of either protocol, as neutral messages."""
    found = [Message.system(body["system"])] if isinstance(body.get("system"), str) else []
    for message in body["messages"]:
        content = message["content"]
        if isinstance(content, list):
            found += _from_blocks(message["role"], content)
        elif message["role"] == "tool":
            found.append(Message.tool(content, tool_call_id=message["tool_call_id"]))
        else:
            calls = [
                _call(one["id"], one["function"]["name"], json.loads(one["function"]["arguments"]))
                for one in message.get("tool_calls") or []
            ]
            found.append(Message(role=message["role"], content=content or "", tool_calls=calls))
    return found


def _from_blocks(role: Any, blocks: list[dict[str, Any]]) -> list[Message]:
    results = [
        Message.tool(_text(block["content"] or []), tool_call_id=block["tool_use_id"])
        for block in blocks
        if block["type"] == "tool_result"
    ]
    calls = [
        _call(block["id"], block["name"], block["input"])
        for block in blocks
        if block["type"] == "tool_use"
    ]
    text = _text(blocks)
    said = [Message(role=role, content=text, tool_calls=calls)] if text or calls else []
    return [*results, *said]


def _text(blocks: list[dict[str, Any]] | str) -> str:
    if isinstance(blocks, str):
        return blocks
    return "".join(block["text"] for block in blocks if block["type"] == "text")


def _call(ident: str, name: str, arguments: Any) -> ToolCall:
    return ToolCall(id=ident, name=name, arguments=arguments)
