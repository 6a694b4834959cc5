"""`manage.py demo` and `manage.py crash_demo`: what a first look starts with."""

import socket

import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError, call_command

from agentruntime.demo.management.commands.demo import (
    PASSWORD,
    PEOPLE,
    free_port,
    make_person,
    welcome,
)

pytestmark = [pytest.mark.django_db, pytest.mark.database("sqlite")]


def make_people():
    for name, flags, permissions, _ in PEOPLE:
        make_person(name, flags, permissions)


def test_the_people_of_the_demo_may_do_what_it_says_of_them():
    make_people()

    sam, lead, admin = (get_user_model().objects.get(username=one[0]) for one in PEOPLE)
    assert not sam.is_staff
    assert not sam.has_perm("approvals.decide_refund")
    assert lead.is_staff
    assert not lead.is_superuser
    assert lead.get_user_permissions() == {"approvals.decide_refund"}
    assert admin.is_superuser
    assert all(user.check_password(PASSWORD) for user in (sam, lead, admin))


def test_a_second_start_changes_nothing_so_that_sessions_stay_open():
    make_people()
    before = list(get_user_model().objects.order_by("pk").values())

    make_people()

    assert list(get_user_model().objects.order_by("pk").values()) == before


def test_a_second_start_takes_back_rights_that_the_demo_does_not_tell_of():
    make_people()
    get_user_model().objects.filter(username="sam").update(is_superuser=True, is_active=False)

    make_people()

    sam = get_user_model().objects.get(username="sam")
    assert (sam.is_superuser, sam.is_active) == (False, True)


def test_a_port_that_is_taken_is_not_chosen():
    first = free_port("127.0.0.1")
    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
        other.listen()

        assert free_port("127.0.0.1") != first


def test_the_welcome_names_the_address_the_people_and_the_ledger(shop):
    told = welcome("127.0.0.1", 8123)

    assert "http://127.0.0.1:8123/" in told
    assert all(one[0] in told for one in PEOPLE)
    assert PASSWORD in told
    assert str(shop / "payments.jsonl") in told


def test_the_demo_does_not_run_where_strangers_may_come(settings):
    settings.DEBUG = False

    with pytest.raises(CommandError, match="DEBUG"):
        call_command("demo")


@pytest.mark.slow
@pytest.mark.stories
def test_the_crash_story_charges_once_each_and_takes_less_than_a_minute(site_process):
    story = site_process("crash_demo", redis=False)

    assert story.wait(60) == 0, story.output()
    told = story.output()
    assert told.count("charges now: 1") == 2
    assert "requests that reached the payment gateway: 1" in told
    assert "print_label   ran 2 times, with 1 key" in told
    assert told.count("kill -9") == 2
