"""The site's addresses."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path

urlpatterns = [
    path("admin/", admin.site.urls),
    path(
        "accounts/login/",
        # The admin's page for a form every user may fill in.
        LoginView.as_view(
            template_name="admin/login.html",
            redirect_authenticated_user=True,
            extra_context={"site_header": "Agents", "title": "Log in", "site_title": "Agents"},
        ),
        name="login",
    ),
    path("accounts/logout/", LogoutView.as_view(), name="logout"),
    path("api/v1/", include("agentruntime.urls")),
    path("api/v1/", include("approvals.urls")),
]
