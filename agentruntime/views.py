"""The REST API: threads, their runs and history, questions. A view validates, asks, shows."""

from __future__ import annotations

import uuid
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import mixins, viewsets
from rest_framework.decorators import action
from rest_framework.filters import BaseFilterBackend
from rest_framework.request import Request
from rest_framework.response import Response

from agentruntime import filters, lifecycle, pagination
from agentruntime import serializers as bodies
from agentruntime.api_docs import CONFLICT, ERRORS, IDEMPOTENCY_KEY
from agentruntime.event_views import EventsMixin
from agentruntime.models import Interrupt, InterruptStatus, Run, Thread, tenant_of
from agentruntime.permissions import MayAct

OPEN_INTERRUPTS = Prefetch(
    "interrupts",
    Interrupt.objects.filter(status=InterruptStatus.OPEN).order_by("created_at", "id"),
    to_attr="open_interrupts",
)


class _Base(viewsets.GenericViewSet[Any]):
    """What all of them share: only what the caller sees exists, and acting needs a right."""

    lookup_value_converter = "uuid"
    pagination_class = pagination.Newest
    filter_backends: tuple[type[BaseFilterBackend], ...] = ()
    http_method_names = ("get", "post", "delete", "head", "options")

    def get_permissions(self) -> list[Any]:
        return [*super().get_permissions(), MayAct()]

    def read_command(self, command: type[bodies.Command]) -> dict[str, Any]:
        """Return the checked fields of the request's body. Raises `ValidationError`."""
        given = command(data=self.request.data)
        given.is_valid(raise_exception=True)
        return dict(given.validated_data)

    def show_page(self, rows: QuerySet[Any], body: Any, order: type[Any]) -> Response:
        """Return one page of `rows` in the order of a pagination class."""
        paginator = order()
        page = paginator.paginate_queryset(rows, self.request, view=self)
        shown = body(page, many=True, context=self.get_serializer_context())
        answer: Response = paginator.get_paginated_response(shown.data)
        return answer

    def show_run(self, run_id: uuid.UUID, status: int = 200) -> Response:
        """Return a run as it is now."""
        found = Run.objects.prefetch_related(OPEN_INTERRUPTS).get(pk=run_id)
        return Response(bodies.RunBody(found, context=self.get_serializer_context()).data, status)


class ThreadViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, _Base, EventsMixin):
    """Threads: a thread belongs to who made it."""

    queryset = Thread.objects.none()
    filterset_class = None
    throttle_scopes = {"runs": "run", "fork": "run"}

    def get_queryset(self) -> QuerySet[Thread]:
        return Thread.objects.visible_to(self.request.user)

    def get_serializer_class(self) -> Any:
        return bodies.ThreadBody if self.action == "list" else bodies.ThreadDetailBody

    @extend_schema(request=bodies.CreateThread, responses={201: bodies.ThreadDetailBody, **ERRORS})
    def create(self, request: Request) -> Response:
        """Make an empty thread."""
        given = self.read_command(bodies.CreateThread)
        thread = Thread.objects.create(user=request.user, tenant=tenant_of(request.user), **given)
        return Response(bodies.ThreadDetailBody(thread).data, 201)

    @extend_schema(responses={204: OpenApiResponse(description="It is gone."), **ERRORS})
    def destroy(self, request: Request, pk: uuid.UUID) -> Response:
        """Delete a thread with its runs, checkpoints, messages, ledger and events."""
        lifecycle.delete_thread(thread_id=self.get_object().pk)
        return Response(status=204)

    @extend_schema(responses={200: bodies.MessageBody(many=True), **ERRORS})
    @action(detail=True, methods=["get"], pagination_class=pagination.ByOrdinal)
    def messages(self, request: Request, pk: uuid.UUID) -> Response:
        """The conversation, in its order."""
        rows = self.get_object().messages.all()
        return self.show_page(rows, bodies.MessageBody, pagination.ByOrdinal)

    @extend_schema(responses={200: bodies.CheckpointBody(many=True), **ERRORS})
    @action(detail=True, methods=["get"], pagination_class=pagination.ByVersion)
    def checkpoints(self, request: Request, pk: uuid.UUID) -> Response:
        """The states of the thread, the newest first."""
        rows = self.get_object().checkpoints.all()
        return self.show_page(rows, bodies.CheckpointBody, pagination.ByVersion)

    @extend_schema(
        parameters=[OpenApiParameter("version", int, OpenApiParameter.PATH)],
        responses={200: bodies.CheckpointBody, **ERRORS},
    )
    @action(
        detail=True,
        methods=["get"],
        url_path="checkpoints/<int:version>",
        url_name="checkpoint",
    )
    def checkpoint(self, request: Request, pk: uuid.UUID, version: int) -> Response:
        """The state of the thread at a version."""
        rows = self.get_object().checkpoints
        found = get_object_or_404(rows, version=min(version, bodies.MAX_VERSION))
        return Response(bodies.CheckpointBody(found, context=self.get_serializer_context()).data)

    @extend_schema(responses={200: bodies.ToolExecutionBody(many=True), **ERRORS})
    @action(
        detail=True, methods=["get"], url_path="tool-executions", pagination_class=pagination.ById
    )
    def tool_executions(self, request: Request, pk: uuid.UUID) -> Response:
        """The ledger: every call that was asked for, and what came of it."""
        rows = filters.ToolExecutionFilter(
            request.query_params, self.get_object().tool_executions.all()
        ).checked()
        return self.show_page(rows, bodies.ToolExecutionBody, pagination.ById)

    @extend_schema(
        parameters=[IDEMPOTENCY_KEY],
        request=bodies.StartRun,
        responses={201: bodies.RunBody, 200: bodies.RunBody, **CONFLICT},
    )
    @action(detail=True, methods=["post"])
    def runs(self, request: Request, pk: uuid.UUID) -> Response:
        """Start a run. With an `Idempotency-Key` an equal request again gives the same run."""
        thread = self.get_object()
        run = lifecycle.start_run(
            **self.read_command(bodies.StartRun),
            thread_id=thread.pk,
            user=request.user,
            tenant=thread.tenant,
            idempotency_key=request.headers.get("Idempotency-Key"),
        )
        return self.show_run(run.pk, 200 if run.was_started_before else 201)

    @extend_schema(request=bodies.ForkThread, responses={201: bodies.ThreadDetailBody, **ERRORS})
    @action(detail=True, methods=["post"])
    def fork(self, request: Request, pk: uuid.UUID) -> Response:
        """Make a new thread from a checkpoint. Questions are asked anew; no decision travels."""
        thread = self.get_object()
        given = self.read_command(bodies.ForkThread)
        run = lifecycle.fork_thread(
            thread_id=thread.pk, version=given["version"], user=request.user
        )
        made = Thread.objects.get(pk=run.thread_id)
        return Response(bodies.ThreadDetailBody(made).data, 201)


class RunViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, _Base, EventsMixin):
    """Runs of the threads that the caller sees."""

    queryset = Run.objects.none()
    serializer_class = bodies.RunBody
    filter_backends = (filters.Backend,)
    filterset_class = filters.RunFilter
    throttle_scopes = {"retry": "run"}

    def get_queryset(self) -> QuerySet[Run]:
        seen = Thread.objects.visible_to(self.request.user)
        return (
            Run.objects.filter(thread__in=seen)
            .select_related("thread")
            .prefetch_related(OPEN_INTERRUPTS)
        )

    @extend_schema(request=bodies.NoFields, responses={200: bodies.RunBody, **CONFLICT})
    @action(detail=True, methods=["post"])
    def stop(self, request: Request, pk: uuid.UUID) -> Response:
        """Stop a run; one that works is told within a second and ends before its next step."""
        run = self.get_object()
        self.read_command(bodies.NoFields)
        lifecycle.stop_run(run_id=run.pk)
        return self.show_run(run.pk)

    @extend_schema(request=bodies.RetryRun, responses={200: bodies.RunBody, **CONFLICT})
    @action(detail=True, methods=["post"])
    def retry(self, request: Request, pk: uuid.UUID) -> Response:
        """Let a failed run go on from its last checkpoint."""
        run = self.get_object()
        given = self.read_command(bodies.RetryRun)
        lifecycle.retry_run(run_id=run.pk, config=given["config"])
        return self.show_run(run.pk)


class InterruptViewSet(mixins.ListModelMixin, mixins.RetrieveModelMixin, _Base):
    """Questions that runs wait on. An approval is answered at its own address."""

    queryset = Interrupt.objects.none()
    serializer_class = bodies.InterruptBody
    filter_backends = (filters.Backend,)
    filterset_class = filters.InterruptFilter
    throttle_scopes = {"resume": "decide"}

    def get_queryset(self) -> QuerySet[Interrupt]:
        seen = Thread.objects.visible_to(self.request.user)
        return Interrupt.objects.filter(thread__in=seen).select_related("thread")

    @extend_schema(
        request=bodies.AnswerInterrupt, responses={200: bodies.InterruptBody, **CONFLICT}
    )
    @action(detail=True, methods=["post"])
    def resume(self, request: Request, pk: uuid.UUID) -> Response:
        """Answer a question; the run goes on."""
        interrupt = self.get_object()
        given = self.read_command(bodies.AnswerInterrupt)
        lifecycle.resume_run(interrupt_id=interrupt.pk, value=given["value"], user=request.user)
        interrupt.refresh_from_db()
        return Response(bodies.InterruptBody(interrupt, context=self.get_serializer_context()).data)
