"""How long a conversation is, where no provider counts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from agentruntime.graph.messages import Message
from agentruntime.graph.trimming import estimate_tokens


def estimate(messages: Sequence[Message], tools: Sequence[Any]) -> int:
    """Return about how many tokens the conversation and the tools take, rather too many."""
    offered = "".join(json.dumps([one.name, one.description, one.schema]) for one in tools)
    return sum(map(estimate_tokens, messages)) + (len(offered.encode()) + 2) // 3
