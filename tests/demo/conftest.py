"""The shop in a temporary directory, a model without delays, and runs worked off in the test.

This file is read before Django is set up, so it imports models where it uses them.
"""

import pytest


@pytest.fixture(autouse=True)
def shop(settings, tmp_path):
    """The folder of the shop's files; no worker but the test itself works off runs."""
    settings.DEMO_MODEL_DELAY = 0
    settings.DEMO_DIR = tmp_path / "shop"
    settings.AGENTRUNTIME = {**settings.AGENTRUNTIME, "EMBEDDED_WORKER": False}
    return settings.DEMO_DIR


@pytest.fixture
def sam(transactional_db, django_user_model):
    return django_user_model.objects.create_user("sam")


@pytest.fixture
def lead(transactional_db, django_user_model):
    from django.contrib.auth.models import Permission

    user = django_user_model.objects.create_user("lead", is_staff=True)
    user.user_permissions.add(Permission.objects.get(codename="decide_refund"))
    return user


@pytest.fixture
def work_off():
    """Works on a run until it pauses or ends, and returns it."""
    from agentruntime.lifecycle.loop import execute
    from agentruntime.models import Run

    def work(run):
        execute(run.pk)
        return Run.objects.get(pk=run.pk)

    return work


@pytest.fixture
def begin(sam, work_off):
    """Begins a conversation of sam's and works on it until it pauses or ends."""
    from agentruntime.lifecycle import start_run

    def start(text="Order 1042 arrived broken, please refund it", graph="support", **options):
        return work_off(start_run(graph=graph, input=text, user=sam, **options))

    return start
