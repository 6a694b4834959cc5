"""Webhooks for staff: endpoints to add and switch off, and what was sent, dead letters first."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import admin, messages
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from agentruntime.admin.windows import Window, link_to, link_to_list
from agentruntime.models import DeliveryStatus, WebhookDelivery, WebhookEndpoint, tenant_of
from agentruntime.outbound import Refused, check_url
from agentruntime.webhooks import KINDS


class EndpointForm(forms.ModelForm):  # type: ignore[type-arg]
    """Where to send and what; the secret is made here and is no field."""

    url = forms.URLField(label=gettext_lazy("URL"), max_length=500, assume_scheme="https")
    kinds = forms.MultipleChoiceField(
        label=gettext_lazy("Tell of"),
        choices=[(kind, kind) for kind in KINDS],
        widget=forms.CheckboxSelectMultiple,
    )

    class Meta:
        model = WebhookEndpoint
        fields = ("user", "url", "kinds", "is_active")

    def clean_url(self) -> str:
        url: str = self.cleaned_data["url"]
        try:
            check_url(url)
        except Refused as error:
            raise forms.ValidationError(str(error)) from None
        return url


@admin.register(WebhookEndpoint)
class WebhookEndpointAdmin(admin.ModelAdmin):  # type: ignore[type-arg]
    """Endpoints of users. One that is no longer wanted is switched off: what was sent stays."""

    form = EndpointForm
    list_display = ("url", "user", "tenant", "is_active", "dead_letters", "created_at")
    list_filter = ("is_active", "tenant")
    search_fields = ("=id", "url", "user__username")
    list_select_related = ("user",)
    show_full_result_count = False
    raw_id_fields = ("user",)
    ordering = ("-created_at",)
    actions = ("rotate_secrets",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookEndpoint]:
        dead = Count("deliveries", filter=Q(deliveries__status=DeliveryStatus.DEAD))
        rows: QuerySet[WebhookEndpoint] = super().get_queryset(request).annotate(dead=dead)
        return rows

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        # Whose events are told is said once: another user's are another endpoint.
        return () if obj is None else ("user", "tenant", "created_at", "dead_letters")

    def get_fields(self, request: HttpRequest, obj: Any = None) -> list[Any]:
        shown = ["user", "url", "kinds", "is_active"]
        return shown if obj is None else [*shown, "tenant", "created_at", "dead_letters"]

    @admin.display(description=gettext_lazy("given up"), ordering="dead")
    def dead_letters(self, row: Any) -> SafeString | str:
        if not row.dead:
            return "-"
        filters = {"status__exact": DeliveryStatus.DEAD.value, "endpoint__id__exact": row.pk}
        return link_to_list(WebhookDelivery, str(row.dead), **filters)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        if change:
            # Only what the form shows: a rotation beside this one must not be undone.
            obj.save(update_fields=["url", "kinds", "is_active"])
        else:
            obj.tenant = tenant_of(obj.user)
            super().save_model(request, obj, form, change)

    def response_add(
        self, request: HttpRequest, obj: WebhookEndpoint, post_url_continue: Any = None
    ) -> HttpResponse:
        return self._tell_secrets(request, [obj])

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return False

    @admin.action(
        description=gettext_lazy("Give fresh secrets (shown once)"), permissions=["change"]
    )
    def rotate_secrets(
        self, request: HttpRequest, queryset: QuerySet[WebhookEndpoint]
    ) -> HttpResponse:
        rows = list(queryset)
        for row in rows:
            row.rotate_secret()
            self.log_change(request, row, _("Gave a fresh secret"))
        return self._tell_secrets(request, rows)

    def _tell_secrets(self, request: HttpRequest, rows: list[WebhookEndpoint]) -> HttpResponse:
        """Show secrets in the answer itself: no message, cookie or page keeps them."""
        context = {
            **self.admin_site.each_context(request),
            "title": _("Signing secrets"),
            "rows": rows,
            "opts": self.opts,
        }
        place = "admin/agentruntime/webhookendpoint/secrets.html"
        return TemplateResponse(request, place, context)


@admin.register(WebhookDelivery)
class WebhookDeliveryAdmin(Window):
    list_display = (
        "event_key",
        "status",
        "endpoint_link",
        "attempts",
        "answer",
        "due_at",
        "created_at",
        "sent_at",
    )
    list_filter = ("status",)
    list_select_related = ("endpoint",)
    search_fields = ("=id", "event_key", "endpoint__url", "=endpoint__id")
    json_fields = ("payload",)
    ordering = ("-created_at", "id")
    actions = ("send_again",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[WebhookDelivery]:
        # Those of an endpoint that was deleted meanwhile are left out.
        return super().get_queryset(request).select_related("endpoint")

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        return lookup == "endpoint__id__exact" or super().lookup_allowed(lookup, value, request)

    @admin.display(description=gettext_lazy("endpoint"))
    def endpoint_link(self, row: WebhookDelivery) -> SafeString | str:
        return link_to(row.endpoint, row.endpoint.url[:60])

    def has_resend_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("agentruntime.change_webhookdelivery"))

    @admin.action(description=gettext_lazy("Send again what was given up"), permissions=["resend"])
    def send_again(self, request: HttpRequest, queryset: QuerySet[WebhookDelivery]) -> None:
        for row in queryset:
            told, level = self._send_again(request, row)
            about = _("Delivery %(key)s: %(told)s") % {"key": row.event_key, "told": told}
            self.message_user(request, about, level)

    def _send_again(self, request: HttpRequest, row: WebhookDelivery) -> tuple[str, int]:
        if not row.endpoint.is_active:
            return _("not sent, its endpoint is switched off."), messages.WARNING
        if not row.send_again():
            return _("not sent, it was not given up."), messages.WARNING
        self.log_change(request, row, _("Sent again"))
        return _("is sent again, with the same id."), messages.SUCCESS
