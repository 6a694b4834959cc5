"""Every way to refuse a decision: one sentence, its facts, a stable code, an HTTP status."""

from __future__ import annotations

from agentruntime.exceptions import RequestError


class ApprovalError(RequestError):
    """Base of what `decide()` and its neighbours refuse; nothing was changed."""

    code = "APPROVAL_001"
    status = 400


class ApprovalNotFound(ApprovalError):
    code = "APPROVAL_NOT_FOUND_001"
    sentence = "There is no approval {approval}."
    status = 404


class NotAllowed(ApprovalError):
    code = "APPROVAL_FORBIDDEN_001"
    sentence = "{user} may not decide this: {reason}"
    status = 403


class NotLetIn(ApprovalError):
    """Who tries to decide is nobody whom this door lets in: no login, no staff, no scope."""

    code = "APPROVAL_FORBIDDEN_002"
    sentence = "{user} was not let in: {reason}"
    status = 403


class UnknownVerdict(ApprovalError):
    code = "APPROVAL_VERDICT_001"
    sentence = "A verdict is approve or decline, not {verdict!r}."


class DigestMissing(ApprovalError):
    code = "APPROVAL_DIGEST_001"
    sentence = (
        "A decision names the digest of what was shown; read the approval and send its digest."
    )


class DigestMismatch(ApprovalError):
    code = "APPROVAL_DIGEST_002"
    sentence = (
        "What was shown is not what is asked now: read the approval again. Nothing was decided."
    )
    status = 409


class AlreadyDecided(ApprovalError):
    """Its facts are the answer to who (`by`), when (`at`, ISO) and what (`verdict`)."""

    code = "APPROVAL_DECIDED_001"
    sentence = "{by} {what} this at {at}; nothing was changed."
    status = 409


class AlreadyAgreed(ApprovalError):
    """The same person's voice does not count twice where several must agree."""

    code = "APPROVAL_AGREED_001"
    sentence = "You have already agreed to this version; others have to agree too."
    status = 409


class NoLongerAsked(ApprovalError):
    """The question ended without a decision: it expired, was withdrawn, or was asked anew."""

    code = "APPROVAL_CLOSED_001"
    sentence = "This is {became} since {at} and takes no decision any more. {told}"
    status = 409


class InvalidReason(ApprovalError):
    code = "APPROVAL_REASON_001"
    sentence = "The reason cannot be stored: {reason}."


class InvalidEdit(ApprovalError):
    code = "APPROVAL_EDIT_001"
    sentence = "The edited arguments are not accepted: {reason}"


class ClaimedByOther(ApprovalError):
    code = "APPROVAL_CLAIMED_001"
    sentence = "{by} is at work on this since {at}."
    status = 409


class NotSendable(ApprovalError):
    """A notice that is not sent, now or ever: a forbidden address, an answer that is no success."""

    code = "APPROVAL_NOTICE_001"
    sentence = "The notice was not taken: {reason}."
