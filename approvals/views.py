"""The REST routes of approvals: read them, decide them, claim them."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from drf_spectacular.utils import extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.exceptions import (
    AuthenticationFailed,
    NotAuthenticated,
    PermissionDenied,
    ValidationError,
)
from rest_framework.permissions import SAFE_METHODS, BasePermission, IsAuthenticated
from rest_framework.request import Request
from rest_framework.response import Response

from agentruntime.conf import runtime_settings
from agentruntime.pagination import Newest
from approvals.claims import claim, release
from approvals.decide import decide
from approvals.exceptions import AlreadyDecided, ApprovalError, ApprovalNotFound, NotLetIn
from approvals.filters import ApprovalFilter
from approvals.history import note_refused
from approvals.models import Approval, Door, Verdict
from approvals.parsers import StrictJSONParser
from approvals.permissions import rights_of, visible_to
from approvals.serializers import (
    ApprovalSerializer,
    DecidedSerializer,
    DecideSerializer,
    ErrorSerializer,
    decided,
)

REFUSALS = {status: ErrorSerializer for status in (400, 401, 403, 404, 409)}


class HasDecideScope(BasePermission):
    """A token needs `decide` to decide and `read` to read; a session stands for the person."""

    def has_permission(self, request: Request, view: Any) -> bool:
        if request.auth is None:
            return True
        scopes = getattr(request.auth, "scopes", None)
        if scopes is None:  # a token of another scheme of the project
            scopes = runtime_settings().TOKEN_DEFAULT_SCOPES
        wanted = "read" if request.method in SAFE_METHODS else "decide"
        self.message = f"The token does not have the scope for this: {wanted}."
        return wanted in scopes


class ApprovalViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, viewsets.GenericViewSet):
    """What waits for a person. Seen by those who may decide it, its requester and auditors."""

    queryset = Approval.objects.none()
    serializer_class = ApprovalSerializer
    permission_classes = (IsAuthenticated, HasDecideScope)
    throttle_scopes = {"approve": "decide", "decline": "decide"}
    parser_classes = (StrictJSONParser,)
    pagination_class = Newest
    filterset_class = ApprovalFilter
    lookup_value_converter = "uuid"

    def get_queryset(self) -> QuerySet[Approval]:
        if getattr(self, "swagger_fake_view", False):
            return self.queryset
        found = Approval.objects.filter(visible_to(rights_of(self.request.user)))
        if self.action in ("approve", "decline"):
            return found.only("pk")  # `decide` reads it anew, under its lock
        return found.select_related("claimed_by").prefetch_related("decisions")

    def filter_queryset(self, queryset: QuerySet[Approval]) -> QuerySet[Approval]:
        if self.action != "list":
            return queryset
        wanted = ApprovalFilter(self.request.query_params, queryset, request=self.request)
        known = {*wanted.filters, "cursor", "page_size", "format"}
        if unknown := sorted(set(self.request.query_params) - known):
            raise ValidationError({name: ["There is no such filter."] for name in unknown})
        given = {name: wanted.data[name] for name in wanted.filters if name in wanted.data}
        if empty := sorted(name for name, value in given.items() if not value.strip()):
            raise ValidationError({name: ["A value was expected."] for name in empty})
        if not wanted.is_valid():
            raise ValidationError(wanted.errors)
        return wanted.qs

    def handle_exception(self, exc: Exception) -> Response:
        if not isinstance(exc, ApprovalError):
            self._note_refused(exc)
            return super().handle_exception(exc)
        facts = {name: str(value)[:500] for name, value in exc.facts.items() if name != "decision"}
        body: dict[str, Any] = {"code": exc.code, "detail": str(exc), "facts": facts}
        if isinstance(exc, AlreadyDecided):
            body["decision"] = exc.facts.get("decision")
        return Response(body, status=type(exc).status)

    def _note_refused(self, exc: Exception) -> None:
        """Note a try to decide that got no further than the door; `decide()` notes all others."""
        if self.action not in ("approve", "decline"):
            return
        user, pk = self.request.user, self.kwargs["pk"]
        if isinstance(exc, Http404):
            note_refused(pk, user, Door.REST, ApprovalNotFound(approval=pk))
        elif isinstance(exc, NotAuthenticated | AuthenticationFailed | PermissionDenied):
            note_refused(pk, user, Door.REST, NotLetIn(user=str(user), reason=str(exc)))

    @extend_schema(request=DecideSerializer, responses={200: DecidedSerializer, **REFUSALS})
    @action(detail=True, methods=["post"])
    def approve(self, request: Request, pk: uuid.UUID) -> Response:
        """Say yes to exactly the call that was shown, or to an edited one."""
        return self._decide(request, Verdict.APPROVE)

    @extend_schema(request=DecideSerializer, responses={200: DecidedSerializer, **REFUSALS})
    @action(detail=True, methods=["post"])
    def decline(self, request: Request, pk: uuid.UUID) -> Response:
        """Say no; the agent is told the reason. The admin demands one; here it may be left out."""
        return self._decide(request, Verdict.DECLINE)

    @extend_schema(request=None, responses={200: ApprovalSerializer, **REFUSALS})
    @action(detail=True, methods=["post"])
    def claim(self, request: Request, pk: uuid.UUID) -> Response:
        """Tell the others that you are at work on this one."""
        claim(approval_id=self.get_object().pk, user=request.user)
        return Response(ApprovalSerializer(self.get_object()).data)

    @extend_schema(request=None, responses={200: ApprovalSerializer, **REFUSALS})
    @action(detail=True, methods=["post"])
    def release(self, request: Request, pk: uuid.UUID) -> Response:
        """Give a claimed one back to the others."""
        release(approval_id=self.get_object().pk, user=request.user)
        return Response(ApprovalSerializer(self.get_object()).data)

    def _decide(self, request: Request, verdict: str) -> Response:
        approval = self.get_object()
        wanted = DecideSerializer(data=request.data)
        wanted.is_valid(raise_exception=True)
        decision = decide(
            approval_id=approval.pk,
            verdict=verdict,
            user=request.user,
            digest=wanted.validated_data.get("digest"),
            reason=wanted.validated_data["reason"],
            arguments=wanted.validated_data["arguments"],
            door=Door.REST,
        )
        return Response(decided(decision))
