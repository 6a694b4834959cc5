"""The caller's webhook endpoints: made, listed, rotated, deleted; and what was sent to them."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import QuerySet
from drf_spectacular.utils import OpenApiResponse, extend_schema
from rest_framework import mixins, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from agentruntime import pagination
from agentruntime.api_docs import ERRORS
from agentruntime.models import WebhookDelivery, WebhookEndpoint, tenant_of
from agentruntime.outbound import Refused, check_url
from agentruntime.serializers import Choice, Command, NoFields, Text
from agentruntime.webhooks import KINDS

MAX_ENDPOINTS = 20


class CreateEndpoint(Command):
    """Where to send, and what."""

    url = Text(max_length=500)
    kinds = serializers.ListField(
        child=Choice(choices=KINDS), allow_empty=False, max_length=len(KINDS)
    )

    def validate_url(self, url: str) -> str:
        try:
            check_url(url)
        except Refused as error:
            raise serializers.ValidationError(str(error)) from None
        return url


class EndpointBody(serializers.ModelSerializer[WebhookEndpoint]):
    """An endpoint, without its secret."""

    kinds = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = WebhookEndpoint
        fields = ("id", "url", "kinds", "is_active", "created_at")
        read_only_fields = fields


class NewEndpointBody(EndpointBody):
    """An endpoint with its secret, which is told this once."""

    secret = serializers.CharField(read_only=True)

    class Meta(EndpointBody.Meta):
        fields = (*EndpointBody.Meta.fields, "secret")
        read_only_fields = fields


class DeliveryBody(serializers.ModelSerializer[WebhookDelivery]):
    """One message to an endpoint."""

    class Meta:
        model = WebhookDelivery
        fields = ("id", "event_key", "status", "attempts", "answer", "created_at", "sent_at")
        read_only_fields = fields


class WebhookViewSet(
    mixins.ListModelMixin,
    mixins.RetrieveModelMixin,
    mixins.DestroyModelMixin,
    viewsets.GenericViewSet[WebhookEndpoint],
):
    """Endpoints of the caller."""

    queryset = WebhookEndpoint.objects.none()
    serializer_class = EndpointBody
    pagination_class = pagination.Newest
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[WebhookEndpoint]:
        user = self.request.user
        return WebhookEndpoint.objects.filter(user=user, tenant=tenant_of(user))

    @extend_schema(request=CreateEndpoint, responses={201: NewEndpointBody, **ERRORS})
    def create(self, request: Request) -> Response:
        """Have events of the caller's threads sent to an address."""
        given = CreateEndpoint(data=request.data)
        given.is_valid(raise_exception=True)
        if self.get_queryset().count() >= MAX_ENDPOINTS:
            raise serializers.ValidationError({"url": [f"There are {MAX_ENDPOINTS} already."]})
        made = WebhookEndpoint.objects.create(
            user=request.user, tenant=tenant_of(request.user), **given.validated_data
        )
        return Response(NewEndpointBody(made).data, 201)

    @extend_schema(responses={204: OpenApiResponse(description="It is gone."), **ERRORS})
    def destroy(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        """Send nothing more to an address."""
        return super().destroy(request, *args, **kwargs)

    @extend_schema(request=NoFields, responses={200: NewEndpointBody, **ERRORS})
    @action(detail=True, methods=["post"])
    def rotate(self, request: Request, pk: uuid.UUID) -> Response:
        """Sign with a fresh secret, beside the one in use until the next rotation."""
        endpoint = self.get_object()
        NoFields(data=request.data).is_valid(raise_exception=True)
        endpoint.rotate_secret()
        return Response(NewEndpointBody(endpoint).data)

    @extend_schema(responses={200: DeliveryBody(many=True), **ERRORS})
    @action(detail=True, methods=["get"])
    def deliveries(self, request: Request, pk: uuid.UUID) -> Response:
        """What was sent, what waits, and what was given up."""
        paginator = pagination.Newest()
        page = paginator.paginate_queryset(self.get_object().deliveries.all(), request, view=self)
        answer: Response = paginator.get_paginated_response(DeliveryBody(page, many=True).data)
        return answer
