"""How approvals look from outside, and what a decision request may hold."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from approvals.models import Approval, Decision, Outcome, Status, Verdict


class DecisionSerializer(serializers.Serializer):
    """A decision as it is told; nothing is written through it."""

    verdict = serializers.ChoiceField(choices=Verdict.choices)
    by = serializers.CharField()
    at = serializers.DateTimeField()
    reason = serializers.CharField()
    arguments = serializers.JSONField(allow_null=True)
    digest = serializers.CharField()
    is_final = serializers.BooleanField(
        help_text="False where several people must agree and others are still missing."
    )


class ApprovalSerializer(serializers.Serializer):
    """What waits for a person, and what became of it."""

    id = serializers.UUIDField()
    interrupt = serializers.UUIDField(source="interrupt_id", allow_null=True)
    run = serializers.UUIDField(source="run_id")
    thread = serializers.UUIDField(source="thread_id")
    title = serializers.CharField()
    tool = serializers.CharField()
    arguments = serializers.JSONField()
    digest = serializers.CharField(help_text="Sent back with the decision.")
    status = serializers.ChoiceField(choices=Status.choices)
    outcome = serializers.ChoiceField(choices=Outcome.choices)
    told = serializers.CharField(help_text="Status and outcome in words.")
    amount = serializers.SerializerMethodField()
    currency = serializers.CharField()
    target = serializers.CharField()
    editable = serializers.ListField(child=serializers.CharField())
    approvers = serializers.IntegerField()
    requester = serializers.CharField(source="requester_name")
    claimed_by = serializers.SerializerMethodField()
    created_at = serializers.DateTimeField()
    expires_at = serializers.DateTimeField(allow_null=True)
    decision = serializers.SerializerMethodField()
    decisions = serializers.SerializerMethodField()

    def get_amount(self, approval: Approval) -> str | None:
        """What would be paid, as text: no digit is lost."""
        rule = approval.rule
        found = rule.get("edited_amount") or rule.get("amount")
        return None if found is None else str(found)

    def get_claimed_by(self, approval: Approval) -> str | None:
        return approval.claimed_by.get_username() if approval.claimed_by else None

    @extend_schema_field(DecisionSerializer(allow_null=True))
    def get_decision(self, approval: Approval) -> dict[str, Any] | None:
        """The decision that settled it, or null."""
        final = [one for one in approval.decisions.all() if one.is_final]
        return DecisionSerializer(final[0]).data if final else None

    def get_decisions(self, approval: Approval) -> list[dict[str, Any]]:
        """All decisions, oldest first: where several must agree, each of them."""
        ordered = sorted(approval.decisions.all(), key=lambda one: one.number)
        return [DecisionSerializer(one).data for one in ordered]


class Text(serializers.CharField):
    """Text, and nothing that could be written as text."""

    def to_internal_value(self, data: Any) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return str(super().to_internal_value(data))


class DecideSerializer(serializers.Serializer):
    """The body of `approve` and `decline`. Unknown fields are refused."""

    digest = Text(max_length=64, required=False, allow_null=True)
    reason = Text(
        required=False,
        allow_blank=True,
        default="",
        max_length=2000,
        trim_whitespace=False,
        help_text="What the agent is told of a no. Not demanded here, as the admin demands it.",
    )
    arguments = serializers.JSONField(required=False, allow_null=True, default=None)

    def to_internal_value(self, data: Any) -> Any:
        if not isinstance(data, dict):
            raise serializers.ValidationError({"non_field_errors": ["An object was expected."]})
        if unknown := sorted(set(data) - set(self.fields)):
            raise serializers.ValidationError(
                {str(name): [f"{name} is not a field of a decision."] for name in unknown}
            )
        return super().to_internal_value(data)


class DecidedSerializer(DecisionSerializer):
    """The answer to a decision."""

    approval = serializers.UUIDField(source="approval_id")


class ErrorSerializer(serializers.Serializer):
    """What every refusal looks like."""

    code = serializers.CharField()
    detail = serializers.CharField()


def decided(decision: Decision) -> dict[str, Any]:
    """Return the body that answers a decision."""
    return dict(DecidedSerializer(decision).data)
