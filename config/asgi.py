"""What an ASGI server loads: pages and API over HTTP, live events over websockets."""

import os

from channels.routing import ProtocolTypeRouter, URLRouter
from django.conf import settings
from django.contrib.staticfiles.handlers import ASGIStaticFilesHandler
from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

http = get_asgi_application()
if settings.DEBUG:
    # Picks up a changed file at once; outside DEBUG whitenoise serves from memory.
    http = ASGIStaticFilesHandler(http)

import agentruntime.routing
import approvals.routing

application = ProtocolTypeRouter(
    {
        "http": http,
        # Refuses foreign origins, and knows callers by session or token.
        "websocket": agentruntime.routing.guarded(
            URLRouter(
                [
                    *agentruntime.routing.websocket_urlpatterns,
                    *approvals.routing.websocket_urlpatterns,
                ]
            )
        ),
    }
)
