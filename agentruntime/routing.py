"""The addresses of the websockets, and the gate that stands before them."""

from __future__ import annotations

from typing import Any

from channels.auth import AuthMiddlewareStack
from channels.routing import URLRouter
from django.urls import path

from agentruntime.consumers import RunEvents, ThreadEvents
from agentruntime.credentials import NOT_FOUND
from agentruntime.socket_gate import SocketGate

websocket_urlpatterns = [
    path("ws/runs/<uuid:run_id>/", RunEvents.as_asgi()),
    path("ws/threads/<uuid:thread_id>/", ThreadEvents.as_asgi()),
]


def guarded(application: Any) -> Any:
    """Return `application` behind the origin check and both ways to say who one is."""
    return AuthMiddlewareStack(SocketGate(KnownAddresses(application)))


class KnownAddresses:
    """Closes a socket at an address that no route has with 4404, instead of failing."""

    def __init__(self, application: Any) -> None:
        self.application = application

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> Any:
        if not isinstance(self.application, URLRouter) or self._has(scope):
            return await self.application(scope, receive, send)
        await receive()
        # A close code reaches a browser only on a socket that was accepted.
        await send({"type": "websocket.accept", "subprotocol": scope.get("subprotocol")})
        reason = "There is no socket at this address."
        await send({"type": "websocket.close", "code": NOT_FOUND, "reason": reason})
        return None

    def _has(self, scope: dict[str, Any]) -> bool:
        root, path = scope.get("root_path", ""), scope["path"]
        if not path.startswith(root):
            return False
        rest = path.removeprefix(root).lstrip("/")
        return any(route.pattern.match(rest) for route in self.application.routes)
