"""Telling people that something waits: planned in the database, sent by the sweep, once each."""

from approvals.notifications.planning import plan_round
from approvals.notifications.sending import send_due

__all__ = ("plan_round", "send_due")
