"""Who may call what: the scope of a token, and the right to act on somebody's thread."""

from __future__ import annotations

from typing import Any

from rest_framework.permissions import SAFE_METHODS, BasePermission

from agentruntime.conf import runtime_settings
from agentruntime.models import Interrupt, InterruptKind, Run, Thread


class HasScope(BasePermission):
    """A token needs the scope of the call; a session stands for the person and needs none.

    A view names scopes by action in `required_scopes`, one or several of which any is enough;
    otherwise reading needs `read` and everything else `run`.
    """

    def has_permission(self, request: Any, view: Any) -> bool:
        if request.auth is None:
            return True
        found = getattr(request.auth, "scopes", None)
        if found is None:  # a token of another scheme of the project
            found = frozenset(runtime_settings().TOKEN_DEFAULT_SCOPES)
        wanted = needed_scopes(request, view)
        self.message = f"The token does not have the scope for this: {' or '.join(sorted(wanted))}."
        return bool(found & wanted)


def needed_scopes(request: Any, view: Any) -> frozenset[str]:
    """Return the scopes of which a token needs one for this call."""
    by_action = getattr(view, "required_scopes", {})
    named = by_action.get(getattr(view, "action", None) or request.method.lower())
    if named is None:
        named = "read" if request.method in SAFE_METHODS else "run"
    return frozenset([named] if isinstance(named, str) else named)


class MayAct(BasePermission):
    """Reading is for whoever sees the thread; acting for its owner, or an operator's right. What
    became of a call of unknown outcome only an operator says.

    What a caller does not see is not found before this is asked.
    """

    message = "Only the owner of the thread may do this."

    def has_object_permission(self, request: Any, view: Any, found: Any) -> bool:
        if request.method in SAFE_METHODS:
            return True
        if _is_about_an_outcome(found):  # what became of a payment is not its requester's to say
            rights = ("agentruntime.answer_interrupt", "agentruntime.operate_run")
            return any(request.user.has_perm(right) for right in rights)
        thread = found if isinstance(found, Thread) else found.thread
        if thread.user_id == request.user.pk:
            return True
        return isinstance(found, Run) and request.user.has_perm("agentruntime.operate_run")


def _is_about_an_outcome(found: Any) -> bool:
    return isinstance(found, Interrupt) and found.kind == InterruptKind.OUTCOME
