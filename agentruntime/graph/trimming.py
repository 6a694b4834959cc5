"""What of a conversation a model is shown when it has grown long."""

from __future__ import annotations

import json

from agentruntime.graph.messages import Message


def estimate_tokens(message: Message) -> int:
    """Return about how many tokens `message` takes: a third of its bytes, and four for its frame.

    Rather too many than too few: English text has about four bytes to a token.
    """
    calls = "".join(
        call.name + json.dumps(call.arguments, ensure_ascii=False) for call in message.tool_calls
    )
    return 4 + (len((message.content + calls).encode("utf-8", "replace")) + 2) // 3
