"""Every prompt of every agent in the suite goes through the one validator.

Import `every_prompt_is_sound` into a `conftest.py` and all tests below it are watched: what any
`create_agent` gives its model, scripted or real, is checked in the moment it is given.
"""

from collections.abc import Iterator

import pytest

from agentruntime.graph.agent import Prompt
from tests.llm.payloads import InvalidPayload, check_messages


@pytest.fixture(autouse=True)
def every_prompt_is_sound(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail the test at its end if a model was given a conversation that is not sound."""
    found: list[InvalidPayload] = []
    build = Prompt.messages

    def checked(self: Prompt, state: object) -> object:
        messages = build(self, state)
        try:
            check_messages(messages)
        except InvalidPayload as problem:
            found.append(problem)
        return messages

    monkeypatch.setattr(Prompt, "messages", checked)
    yield
    if found:
        pytest.fail(f"A model was given an unsound conversation: {found[0]}", pytrace=False)
