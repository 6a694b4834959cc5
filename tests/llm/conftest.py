"""A pretend provider of each protocol, and a way to ask it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from agentruntime import llm
from agentruntime.graph import Message, Tool
from tests.llm.fake_server import FakeProvider
from tests.llm.replies import Answer, Reply
from tests.llm.scripts import Script

KEY = "sk-canary-7c1f9a2b"
MODELS = {
    "openai": "gpt-4o-mini", "openai-responses": "gpt-4o-mini", "anthropic": "claude-opus-5",
}  # fmt: skip


@dataclass
class Asker:
    """Asks the pretend provider. `deltas` and `retries` are what was heard of the last question."""

    protocol: str
    streaming: bool
    provider: FakeProvider
    deltas: list[str] = field(default_factory=list)
    retries: list[llm.Retry] = field(default_factory=list)

    @property
    def model(self) -> str:
        return f"{self.protocol}:{MODELS[self.protocol]}"

    def options(self, **changes: Any) -> llm.ModelOptions:
        provider = llm.Provider(
            kind=self.protocol, base_url=self.provider.base_url(self.protocol), api_key=KEY
        )
        # Above 20,000 tokens the library streams by itself what was not asked to be streamed.
        limits = {"first_wait": 0.01, "longest_wait": 5.0, "max_tokens": 4096} | changes
        return llm.ModelOptions(providers={self.protocol: provider}, **limits)

    def script(self, answer: Reply | Script) -> None:
        """Let every request be answered with this, or by this function of the request."""
        self.provider.script = answer if callable(answer) else lambda body: answer

    async def ask(
        self,
        *messages: Message,
        tools: tuple[Tool, ...] = (),
        deadline: float | None = None,
        **changes: Any,
    ) -> Message:
        self.deltas, self.retries = [], []
        return await llm.complete(
            self.model,
            list(messages) or [Message.user("hello")],
            tools,
            options=self.options(**changes),
            on_delta=self.deltas.append if self.streaming else None,
            on_retry=self.retries.append,
            deadline=deadline,
        )

    async def ask_again(self, answer: Message, *, results: bool = True, **changes: Any) -> Any:
        """Send the conversation on as it comes back from a store; return the request's body."""
        answer = stored(answer)
        told = [Message.tool("done", tool_call_id=call.id) for call in answer.tool_calls]
        self.script(Answer(text="fine"))
        more = [Message.user("go on")] if not told else []
        history = [Message.user("hello"), answer, *(told if results else []), *more]
        await self.ask(*history, **changes)
        return self.provider.bodies[-1]


def stored(message: Message) -> Message:
    """Return the message as a store gives it back: from JSON whose keys are in another order."""
    text = json.dumps(message.model_dump(mode="json"), sort_keys=True)
    return Message.model_validate_json(text)


@pytest.fixture(autouse=True)
def _no_real_requests() -> Iterator[None]:
    with llm.real_requests_refused():
        yield


@pytest.fixture(autouse=True)
async def _no_open_connections() -> AsyncIterator[None]:
    yield
    await llm.close_clients()


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture(params=["openai", "openai-responses", "anthropic"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["whole", "stream"])
def asker(request: pytest.FixtureRequest, protocol: str, provider: FakeProvider) -> Asker:
    """Asks by each protocol, with and without streaming."""
    return Asker(protocol, request.param == "stream", provider)


@pytest.fixture
def streamer(protocol: str, provider: FakeProvider) -> Asker:
    """Asks by each protocol, streaming."""
    return Asker(protocol, True, provider)


@pytest.fixture
def chat(provider: FakeProvider) -> Callable[[bool], Asker]:
    """Asks by OpenAI's protocol, with or without streaming."""
    return lambda streaming: Asker("openai", streaming, provider)
