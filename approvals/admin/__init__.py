"""Approvals in the admin: the queue, the decision page, bulk, the record, how the queue does."""

from approvals.admin.decisions import DecisionAdmin
from approvals.admin.queue import ApprovalAdmin

__all__ = ("ApprovalAdmin", "DecisionAdmin")
