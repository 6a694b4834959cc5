"""The nouns: an approval is a question before people, a decision is what one of them answered."""

from approvals.models.approval import Approval, Outcome, Status
from approvals.models.chain import Chain
from approvals.models.decision import Decision, Door, Verdict
from approvals.models.notice import Channel, Notice, NoticeStatus

__all__ = (
    "Approval",
    "Chain",
    "Channel",
    "Decision",
    "Door",
    "Notice",
    "NoticeStatus",
    "Outcome",
    "Status",
    "Verdict",
)
