"""The site's addresses."""

from django.contrib import admin
from django.contrib.auth.views import LoginView, LogoutView
from django.urls import include, path, re_path
from django.views.decorators.csrf import csrf_exempt
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerView

import agentruntime.urls
import approvals.urls
from agentruntime.exceptions_http import not_found

admin.autodiscover()
urlpatterns = [
    path("admin/", admin.site.urls),
    path(
        "accounts/login/",
        LoginView.as_view(
            template_name="agentruntime/login.html", redirect_authenticated_user=True
        ),
        name="login",
    ),
    path("accounts/logout/", LogoutView.as_view(), name="logout"),
    path(
        "api/v1/",
        include(([*agentruntime.urls.urlpatterns, *approvals.urls.urlpatterns], "v1"), "v1"),
    ),
    path("api/schema/", SpectacularAPIView.as_view(api_version="v1"), name="schema"),
    path("api/docs/", SpectacularSwaggerView.as_view(url_name="schema"), name="docs"),
    # A mistyped address of the API is told as JSON, also while debugging.
    re_path(r"^api/", csrf_exempt(not_found)),
    path("health/", include("agentruntime.health")),
    path("", include("agentruntime.pages")),
]
handler404 = "agentruntime.exceptions_http.not_found"
handler500 = "agentruntime.exceptions_http.server_error"
