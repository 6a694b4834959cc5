"""API tokens: made with a password or a session, shown once, listed, revoked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import serializers, viewsets
from rest_framework.authentication import BasicAuthentication, SessionAuthentication
from rest_framework.decorators import action
from rest_framework.exceptions import Throttled, ValidationError
from rest_framework.request import Request
from rest_framework.response import Response

from agentruntime.api_docs import ERRORS
from agentruntime.conf import runtime_settings
from agentruntime.models import TokenGrant
from agentruntime.serializers import Choice, Command, Text
from agentruntime.throttles import seconds_until_login
from agentruntime.tokens import SCOPES, ScopedTokenAuthentication, create_token, live_tokens

ID_CHARACTERS = 32


class CountedBasicAuthentication(BasicAuthentication):
    """Name and password; each try is counted before the password is looked at."""

    def authenticate_credentials(self, userid: str, password: str, request: Any = None) -> Any:
        if wait := seconds_until_login(request, userid):
            raise Throttled(wait)
        if "\x00" in userid + password:
            userid = password = ""
        return super().authenticate_credentials(userid, password, request)


class CreateToken(Command):
    """What a token may do, and for how long."""

    scopes = serializers.ListField(
        child=Choice(choices=SCOPES),
        allow_empty=False,
        max_length=len(SCOPES),
        help_text="One or more of read, run, decide; never run and decide together.",
    )
    name = Text(max_length=100, required=False, allow_blank=True, default="")
    days = serializers.FloatField(min_value=0.001, max_value=3650, required=False)

    def validate_scopes(self, scopes: list[str]) -> list[str]:
        if {"run", "decide"} <= set(scopes):
            raise ValidationError("No token has both run and decide.")
        return scopes


class TokenBody(serializers.Serializer[Any]):
    """A token, without its text."""

    id = serializers.SerializerMethodField()
    name = serializers.SerializerMethodField()
    scopes = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField(source="created")
    expires_at = serializers.DateTimeField(source="expiry", allow_null=True)

    def get_id(self, token: Any) -> str:
        return str(token.digest[:ID_CHARACTERS])

    def get_name(self, token: Any) -> str:
        grant = self._grant(token)
        return grant.name if grant else ""

    def get_scopes(self, token: Any) -> list[str]:
        grant = self._grant(token)
        return sorted(grant.scopes if grant else runtime_settings().TOKEN_DEFAULT_SCOPES)

    def _grant(self, token: Any) -> TokenGrant | None:
        grants = self.context.setdefault("grants", {})
        if token.digest not in grants:
            grants[token.digest] = TokenGrant.of(token.digest)
        found: TokenGrant | None = grants[token.digest]
        return found


class NewTokenBody(TokenBody):
    """A token with its text, which is told this once."""

    token = serializers.CharField()


class TokenViewSet(viewsets.ViewSet):
    """The caller's own tokens. A token makes no tokens: that takes a session or the password."""

    authentication_classes = (SessionAuthentication, CountedBasicAuthentication)
    throttle_scopes = {"create": "token"}
    required_scopes = {"revoke": SCOPES}
    serializer_class = TokenBody
    lookup_field = "token_id"
    lookup_value_converter = "str"
    pagination_class = None

    def get_authenticate_header(self, request: Request) -> str:
        return 'Basic realm="api"'  # a caller without credentials gets 401

    @extend_schema(responses={200: TokenBody(many=True), **ERRORS})
    def list(self, request: Request) -> Response:
        """The tokens that still hold."""
        return Response(TokenBody(live_tokens(request.user)[:200], many=True).data)

    @extend_schema(request=CreateToken, responses={201: NewTokenBody, **ERRORS})
    def create(self, request: Request) -> Response:
        """Make a token. Its text is in this answer and nowhere else."""
        given = CreateToken(data=request.data)
        given.is_valid(raise_exception=True)
        wanted = given.validated_data
        lifetime = timedelta(days=wanted["days"]) if "days" in wanted else None
        token, text = create_token(
            request.user, wanted["scopes"], name=wanted["name"], lifetime=lifetime
        )
        token.token = text
        return Response(NewTokenBody(token).data, 201)

    @extend_schema(responses={204: OpenApiResponse(description="It is revoked."), **ERRORS})
    def destroy(self, request: Request, token_id: str) -> Response:
        """Revoke a token; what is open with it is closed within seconds."""
        if len(token_id) != ID_CHARACTERS or not token_id.isalnum():
            token_id = "none"
        get_object_or_404(live_tokens(request.user), digest__startswith=token_id).delete()
        return Response(status=204)

    @extend_schema(
        request=None, responses={204: OpenApiResponse(description="It is revoked."), **ERRORS}
    )
    @action(
        detail=False,
        methods=["post"],
        authentication_classes=[ScopedTokenAuthentication],
    )
    def revoke(self, request: Request) -> Response:
        """Revoke the token that this call was made with."""
        request.auth.delete()
        return Response(status=204)
