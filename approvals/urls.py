"""The addresses of approvals in the REST API."""

from rest_framework.routers import SimpleRouter

from approvals.views import ApprovalViewSet

app_name = "v1"

router = SimpleRouter(use_regex_path=False)
router.register("approvals", ApprovalViewSet, basename="approval")

urlpatterns = router.urls
