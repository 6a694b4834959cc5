"""A websocket client inside of the process (Channels' own needs a server of its own to import)."""

import json
from typing import Any
from urllib.parse import unquote

from asgiref.testing import ApplicationCommunicator


class Socket(ApplicationCommunicator):
    """Speaks ASGI to the site as a server would for one socket."""

    def __init__(
        self, application: Any, path: str, headers: Any = (), subprotocols: Any = ()
    ) -> None:
        place, _, query = path.partition("?")
        scope = {
            "type": "websocket",
            "path": unquote(place),
            "query_string": query.encode(),
            "headers": list(headers),
            "subprotocols": list(subprotocols),
        }
        super().__init__(application, scope)
        self.opened = False
        self.subprotocol: str | None = None

    async def connect(self) -> None:
        await self.send_input({"type": "websocket.connect"})
        answer = await self.receive_output(5)
        self.opened = answer["type"] == "websocket.accept"
        self.subprotocol = answer.get("subprotocol")

    async def say(self, text: str | bytes) -> None:
        kind = "text" if isinstance(text, str) else "bytes"
        await self.send_input({"type": "websocket.receive", kind: text})

    async def hear(self, timeout: float = 5) -> Any:
        message = await self.receive_output(timeout)
        assert message["type"] == "websocket.send", message
        return json.loads(message["text"])

    async def leave(self) -> None:
        await self.send_input({"type": "websocket.disconnect", "code": 1000})
        await self.wait(5)
