"""Who decides in the tests of the verbs: somebody with the right to, by the one door."""

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Permission

from approvals.decide import decide
from approvals.models import Approval


def decided(verdict="approve", **arguments):
    """Decide the pending approval that has these arguments; return it."""
    lead, is_new = get_user_model().objects.get_or_create(username="lead", is_staff=True)
    if is_new:
        lead.user_permissions.add(Permission.objects.get(codename="decide_approval"))
    pending = Approval.objects.filter(status="pending")
    approval = next(one for one in pending if arguments.items() <= one.arguments.items())
    decide(approval_id=approval.pk, verdict=verdict, user=lead)
    return approval
