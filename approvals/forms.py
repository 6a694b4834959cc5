"""The form of the decision page: a verdict on exactly what was shown, perhaps with changes."""

from __future__ import annotations

import time
from typing import Any

from django import forms
from django.core import signing
from django.utils.translation import gettext_lazy as _

from agentruntime.graph.json_values import NotJson, read_json
from approvals.masking import is_secret
from approvals.models import Approval, Verdict
from approvals.templatetags.approvals import as_text, label_of

SALT = "approvals.shown"
MAX_SHOWN_SECONDS = 7 * 86_400


def shown_token(approval: Approval, user: Any) -> str:
    """Return a signed word for: this page was shown to this person now."""
    return signing.dumps([str(approval.pk), str(user.pk), time.time()], salt=SALT)


def seconds_since_shown(token: str, approval: Approval, user: Any) -> float | None:
    """Return how long ago the page with this token was shown, or None for a foreign one."""
    try:
        shown, whom, at = signing.loads(token, salt=SALT, max_age=MAX_SHOWN_SECONDS)
    except (signing.BadSignature, ValueError, TypeError):
        return None
    if [shown, whom] != [str(approval.pk), str(user.pk)]:
        return None
    return round(max(0.0, time.time() - at), 3)


class DecisionForm(forms.Form):
    """Approve or decline, with a reason, and with a field for each argument that may be changed."""

    verdict = forms.ChoiceField(choices=Verdict.choices)
    digest = forms.CharField(max_length=64, widget=forms.HiddenInput)
    shown = forms.CharField(required=False, widget=forms.HiddenInput)
    reason = forms.CharField(
        label=_("Reason"),
        required=False,
        max_length=2000,
        widget=forms.Textarea(attrs={"rows": 3, "cols": 60}),
        help_text=_("Kept with the decision. The agent is told it when you decline."),
    )

    def __init__(self, approval: Approval, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.approval = approval
        for name in approval.editable:
            if name in approval.arguments and not is_secret(name):
                self.fields[f"edit-{name}"] = _edit_field(name, approval.arguments[name])

    @property
    def edits_typed(self) -> bool:
        return any(name.startswith("edit-") for name in self.changed_data)

    @property
    def edit_fields(self) -> list[forms.BoundField]:
        return [self[name] for name in self.fields if name.startswith("edit-")]

    def clean(self) -> dict[str, Any]:
        found = super().clean() or {}
        if found.get("verdict") == Verdict.DECLINE and not (found.get("reason") or "").strip():
            self.add_error("reason", _("Say why: the agent and the customer are told."))
        return found

    def edits(self) -> dict[str, Any] | None:
        """Return the arguments that were changed, or None.

        What should be JSON and is none is passed on as text: the tool's schema says what is wrong.
        """
        changed = {}
        for name in self.approval.editable:
            key = f"edit-{name}"
            if key not in self.data or key not in self.cleaned_data:
                continue
            given = self.cleaned_data[key]
            before = self.approval.arguments[name]
            after = _read(given, before)
            if after != before:
                changed[name] = after
        return changed or None


def _edit_field(name: str, value: Any) -> forms.Field:
    text = as_text(value)
    long = "\n" in text or len(text) > 80
    widget = forms.Textarea(attrs={"rows": 4, "cols": 60}) if long else forms.TextInput()
    widget.attrs |= {"autocomplete": "off", "spellcheck": "false"}
    return forms.CharField(
        label=label_of(name), initial=text, required=False, strip=False, widget=widget
    )


def _read(given: str, before: Any) -> Any:
    if isinstance(before, str):
        # A browser sends every line end as CR LF, whatever the text had.
        same = given.replace("\r\n", "\n") == before.replace("\r\n", "\n")
        return before if same else given.replace("\r\n", "\n")
    if given == as_text(before).replace("\n", "\r\n"):
        return before
    try:
        return read_json(given)
    except NotJson:
        return given
