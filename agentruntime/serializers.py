"""What the API shows (read), and what it takes (commands). No class does both."""

from __future__ import annotations

from typing import Any

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from agentruntime.conf import runtime_settings
from agentruntime.graph.masking import mask
from agentruntime.models import (
    BusyPolicy,
    Checkpoint,
    Interrupt,
    InterruptStatus,
    Message,
    Run,
    Thread,
    ToolExecution,
)

MAX_VERSION = 2_147_483_647

# --- read --------------------------------------------------------------------------------------


@extend_schema_field(OpenApiTypes.ANY)
class MaskedField(serializers.JSONField):
    """JSON with the values of secret fields hidden."""

    def to_representation(self, value: Any) -> Any:
        return mask(value, runtime_settings().SECRET_FIELDS)


class ErrorBody(serializers.Serializer[Any]):
    """Every error of the API. `facts` or `errors` say more where there is more to say."""

    code = serializers.CharField()
    detail = serializers.CharField()
    facts = serializers.DictField(required=False)
    errors = serializers.DictField(required=False)
    path = serializers.CharField(required=False, help_text="The place in a body that is no JSON.")


class RunErrorBody(serializers.Serializer[Any]):
    """Why a run failed."""

    code = serializers.CharField()
    detail = serializers.CharField()


class UsageBody(serializers.Serializer[Any]):
    """What the model calls of a run took; the cost in US dollars."""

    model_calls = serializers.IntegerField()
    input_tokens = serializers.IntegerField()
    output_tokens = serializers.IntegerField()
    cost = serializers.CharField()


class InterruptBody(serializers.ModelSerializer[Interrupt]):
    """A question. `approval` is the id of the approval that puts it before people, if one does."""

    payload = MaskedField(read_only=True)
    response_schema = MaskedField(read_only=True)
    approval = serializers.SerializerMethodField()

    class Meta:
        model = Interrupt
        fields = (
            "id",
            "run",
            "thread",
            "kind",
            "message",
            "payload",
            "response_schema",
            "status",
            "tool_execution",
            "approval",
            "expires_at",
            "created_at",
            "answered_at",
        )
        read_only_fields = fields

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_approval(self, interrupt: Interrupt) -> str | None:
        # Of whatever app puts questions before people; the runtime does not know it.
        approval = getattr(interrupt, "approval", None)
        return str(approval.pk) if approval is not None else None


class RunBody(serializers.ModelSerializer[Run]):
    """A run with its open questions."""

    error = RunErrorBody(read_only=True, allow_null=True)
    open_interrupts = serializers.SerializerMethodField()
    config = MaskedField(read_only=True)
    usage = UsageBody(read_only=True)

    class Meta:
        model = Run
        fields = (
            "id",
            "thread",
            "graph",
            "status",
            "error",
            "open_interrupts",
            "config",
            "usage",
            "created_at",
            "started_at",
            "finished_at",
        )
        read_only_fields = fields

    @extend_schema_field(InterruptBody(many=True))
    def get_open_interrupts(self, run: Run) -> Any:
        return InterruptBody(open_interrupts(run), many=True, context=self.context).data


def open_interrupts(run: Run) -> list[Interrupt]:
    """Return the open questions of a run, the oldest first; read before, where a list did."""
    if hasattr(run, "open_interrupts"):
        found: list[Interrupt] = run.open_interrupts
        return found
    asked = run.interrupts.filter(status=InterruptStatus.OPEN)
    return list(asked.order_by("created_at", "id"))


class ThreadBody(serializers.ModelSerializer[Thread]):
    """A thread."""

    on_busy = serializers.CharField(read_only=True)

    class Meta:
        model = Thread
        fields = (
            "id",
            "title",
            "on_busy",
            "head_version",
            "message_count",
            "event_count",
            "created_at",
        )
        read_only_fields = fields


class ThreadDetailBody(ThreadBody):
    """A thread with what it waits for: a page that is loaded anew finds its questions here."""

    open_interrupts = serializers.SerializerMethodField()
    active_run = serializers.SerializerMethodField()

    class Meta(ThreadBody.Meta):
        fields = (*ThreadBody.Meta.fields, "active_run", "open_interrupts")
        read_only_fields = fields

    @extend_schema_field(InterruptBody(many=True))
    def get_open_interrupts(self, thread: Thread) -> Any:
        asked = thread.interrupts.filter(status=InterruptStatus.OPEN).order_by("created_at", "id")
        return InterruptBody(asked, many=True, context=self.context).data

    @extend_schema_field(serializers.UUIDField(allow_null=True))
    def get_active_run(self, thread: Thread) -> str | None:
        found = thread.runs.active().values_list("pk", flat=True).first()
        return str(found) if found else None


class MessageBody(serializers.ModelSerializer[Message]):
    """A message, as the model APIs use the words."""

    def to_representation(self, instance: Message) -> Any:
        return mask(super().to_representation(instance), runtime_settings().SECRET_FIELDS)

    class Meta:
        model = Message
        fields = (
            "id",
            "ordinal",
            "version",
            "role",
            "content",
            "tool_calls",
            "tool_call_id",
            "created_at",
        )
        read_only_fields = fields


class CheckpointBody(serializers.ModelSerializer[Checkpoint]):
    """The state of a thread at a version, and the node that comes next."""

    state = MaskedField(read_only=True)

    class Meta:
        model = Checkpoint
        fields = ("version", "run", "node", "next_node", "state", "message_count", "created_at")
        read_only_fields = fields


class ToolExecutionBody(serializers.ModelSerializer[ToolExecution]):
    """One row of the ledger."""

    arguments = MaskedField(read_only=True)
    result = MaskedField(read_only=True)
    error = MaskedField(read_only=True)

    class Meta:
        model = ToolExecution
        fields = (
            "id",
            "run",
            "call_key",
            "kind",
            "tool",
            "effect",
            "status",
            "arguments",
            "result",
            "error",
            "attempts",
            "created_at",
            "started_at",
            "finished_at",
        )
        read_only_fields = fields


class EventBody(serializers.Serializer[Any]):
    """One stored event; `seq` has no gaps within its thread."""

    seq = serializers.IntegerField()
    type = serializers.CharField()
    run = serializers.UUIDField(allow_null=True)
    thread = serializers.UUIDField()
    at = serializers.DateTimeField()
    data = MaskedField()


class EventPage(serializers.Serializer[Any]):
    """Events after a number. `next_after` asks for what follows; `oldest`: some are gone."""

    results = EventBody(many=True)
    next_after = serializers.IntegerField()
    more = serializers.BooleanField()
    oldest = serializers.IntegerField(allow_null=True)


# --- commands ----------------------------------------------------------------------------------


class Command(serializers.Serializer[Any]):
    """Takes only the fields that it names: identity and status are never a caller's to send."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, dict) and (unknown := sorted(set(data) - set(self.fields))):
            raise serializers.ValidationError(
                {str(name): ["There is no such field."] for name in unknown}
            )
        return super().to_internal_value(data)


class Text(serializers.CharField):
    """Text, and nothing that could be written as text."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class Choice(serializers.ChoiceField):
    """One of a few words; who sends another is told which there are."""

    def __init__(self, choices: Any, **options: Any) -> None:
        super().__init__(choices, **options)
        known = ", ".join(str(one) for one in self.choices)
        self.error_messages["invalid_choice"] = (
            f'"{{input}}" is not a valid choice; there are: {known}.'
        )


class NoFields(Command):
    """An empty body."""


class CreateThread(Command):
    """A new, empty thread."""

    title = Text(max_length=200, required=False, allow_blank=True, default="")
    on_busy = Choice(
        choices=BusyPolicy.choices,
        required=False,
        allow_blank=True,
        default="",
        help_text="What a message does while a run waits or works: `reject` (409), `queue`, "
        "`cancel`; empty: what the site's settings say.",
    )


@extend_schema_field(
    {
        "oneOf": [{"type": "string"}, {"type": "object", "additionalProperties": {}}],
        "description": "Text, or an object with `messages` and state fields.",
    }
)
class InputField(serializers.JSONField):
    """What a run is given."""


class StartRun(Command):
    """What to run on a thread."""

    graph = Text(max_length=100)
    input = InputField()
    config = serializers.DictField(required=False, default=dict)


class RetryRun(Command):
    """How to go on: `config` is laid over the run's own."""

    config = serializers.DictField(required=False, default=dict)


@extend_schema_field(OpenApiTypes.ANY)
class AnyField(serializers.JSONField):
    """Any JSON value, null and other falsy ones included."""


class AnswerInterrupt(Command):
    """An answer to a question."""

    value = AnyField(allow_null=True)


class ForkThread(Command):
    """From which checkpoint a new thread begins."""

    version = serializers.IntegerField(min_value=1, max_value=MAX_VERSION)
