"""Where the outside world hands in what came of a long job. The address is the permission."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiTypes, extend_schema
from rest_framework import serializers
from rest_framework.permissions import AllowAny
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from agentruntime.api_docs import ERRORS
from agentruntime.lifecycle.callbacks import take_callback


class CallbackBody(serializers.Serializer[Any]):
    """How the call stands that the result was handed in for."""

    status = serializers.CharField()


class CallbackView(APIView):
    """Takes a result, once; what comes later changes nothing and is answered the same."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
    throttle_scope = "callback"

    @extend_schema(request=OpenApiTypes.OBJECT, responses={200: CallbackBody, **ERRORS}, auth=[])
    def post(self, request: Request, token: str) -> Response:
        """Hand in {"result": ...} or {"error": "..."} for the call that waits at this address."""
        row = take_callback(token, request.data)
        return Response(CallbackBody({"status": row.status}).data)
