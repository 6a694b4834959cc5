"""Open questions in the admin: what is known, and a form for the answer where one is wanted
here.
"""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agentruntime.admin.windows import Window, link_to, show_json
from agentruntime.exceptions import AgentRuntimeError
from agentruntime.graph.json_values import NotJson, read_json
from agentruntime.lifecycle import resume_run
from agentruntime.models import Interrupt, InterruptKind, InterruptStatus

ANSWER = "agentruntime.answer_interrupt"


class AnswerForm(forms.Form):
    """The answer to a question of code: JSON, or plain text where it is none."""

    value = forms.CharField(
        label=gettext_lazy("Answer"),
        widget=forms.Textarea(attrs={"rows": 4}),
        help_text=gettext_lazy("JSON (true, 12, {…}); anything else is taken as text."),
    )

    def clean_value(self) -> Any:
        text = self.cleaned_data["value"]
        try:
            return read_json(text)
        except NotJson:
            return text


class OutcomeForm(forms.Form):
    """What became of a call that was started and never recorded."""

    outcome = forms.ChoiceField(
        label=gettext_lazy("What happened?"),
        widget=forms.RadioSelect,
        choices=(
            (
                "succeeded",
                gettext_lazy("It happened: record the result below, do not run it again"),
            ),
            ("failed", gettext_lazy("It did not happen: tell the model so, do not run it again")),
            ("retry", gettext_lazy("It did not happen: run it again, with the same key")),
        ),
    )
    detail = forms.CharField(
        label=gettext_lazy("Result or reason"),
        required=False,
        widget=forms.Textarea(attrs={"rows": 3}),
        help_text=gettext_lazy("The provider's answer (JSON or text), or why it did not happen."),
    )

    @property
    def answer(self) -> dict[str, Any]:
        outcome, detail = self.cleaned_data["outcome"], self.cleaned_data["detail"]
        if outcome == "retry":
            return {"outcome": outcome}
        if outcome == "failed":
            return {
                "outcome": outcome,
                "error": detail or _("a person found that it did not take effect"),
            }
        try:
            return {"outcome": outcome, "result": read_json(detail) if detail else None}
        except NotJson:
            return {"outcome": outcome, "result": detail}


@admin.register(Interrupt)
class InterruptAdmin(Window):
    list_display = ("message_or_kind", "kind", "status", "run_link", "created_at", "answered_at")
    list_filter = ("status", "kind")
    search_fields = ("=id", "=run__id", "=thread__id", "message")
    list_select_related = ("run",)
    json_fields = ("payload", "answer", "response_schema")
    hidden_fields = ("digest", "occurrence")
    ordering = ("-created_at",)
    change_form_template = "admin/agentruntime/interrupt/change_form.html"

    @admin.display(description=gettext_lazy("question"))
    def message_or_kind(self, row: Interrupt) -> str:
        return row.message[:120] or row.get_kind_display()

    @admin.display(description=gettext_lazy("run"))
    def run_link(self, row: Interrupt) -> SafeString | str:
        return link_to(row.run, str(row.run_id)[:8])

    def has_answer_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm(ANSWER))

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(self.answer_view)
        return [
            path("<uuid:interrupt_id>/answer/", view, name="agentruntime_interrupt_answer"),
            *super().get_urls(),
        ]

    def change_view(
        self, request: HttpRequest, object_id: str, *args: Any, **kwargs: Any
    ) -> HttpResponse:
        row = self.get_object(request, object_id)
        extra = dict(kwargs.get("extra_context") or {})
        extra["may_answer"] = (
            row is not None
            and row.status == InterruptStatus.OPEN
            and row.kind != InterruptKind.APPROVAL
            and self.has_answer_permission(request)
        )
        kwargs["extra_context"] = extra
        return super().change_view(request, object_id, *args, **kwargs)

    def answer_view(self, request: HttpRequest, interrupt_id: Any) -> HttpResponse:
        """Show what is known of a question and take its answer; a lost race is a message."""
        row = (
            Interrupt.objects.select_related("run", "tool_execution")
            .filter(pk=interrupt_id)
            .first()
        )
        if row is None or row.kind == InterruptKind.APPROVAL:
            raise Http404
        if not self.has_answer_permission(request):
            return HttpResponse(_("You may not answer questions of runs."), status=403)
        kind = OutcomeForm if row.kind == InterruptKind.OUTCOME else AnswerForm
        form = kind(request.POST or None)
        sent = request.method == "POST" and form.is_valid()
        if sent and self._answer(request, row, form):
            return HttpResponseRedirect(
                reverse("admin:agentruntime_interrupt_change", args=[row.pk])
            )
        context = {
            **self.admin_site.each_context(request),
            "title": row.message or row.get_kind_display(),
            "interrupt": row,
            "call": row.tool_execution,
            "known": show_json(row.payload),
            "form": form,
            "opts": self.opts,
        }
        return TemplateResponse(request, "admin/agentruntime/interrupt/answer.html", context)

    def _answer(self, request: HttpRequest, row: Interrupt, form: Any) -> bool:
        value = form.answer if isinstance(form, OutcomeForm) else form.cleaned_data["value"]
        try:
            resume_run(interrupt_id=row.pk, value=value, user=request.user)
        except AgentRuntimeError as error:
            self.message_user(request, str(error), messages.ERROR)
            return False
        self.log_change(request, row, _("Answered"))
        self.message_user(request, _("The answer is recorded; the run goes on."))
        return True
