"""Following links decides nothing: not a person's, not a scanner's, not a crawler's."""

import re
from collections import Counter
from urllib.parse import urljoin, urlsplit

import pytest
from django.core import mail
from django.test import Client

from approvals import due
from approvals.models import Approval, Decision

pytestmark = pytest.mark.django_db(transaction=True)
VARIANTS = 3
"""How many queries of one path are followed: filters can be put together without end."""


def state():
    rows = Approval.objects.order_by("pk").values_list(
        "pk", "status", "claimed_by", "digest", "outcome"
    )
    return list(rows), Decision.objects.count()


def crawl(client, starts):
    seen, todo, variants = set(), list(starts), Counter()
    while todo:
        url = todo.pop(0)
        path = urlsplit(url).path
        if url in seen or "logout" in path or path.startswith("/static/"):
            continue
        variants[path] += 1
        if variants[path] > VARIANTS:
            continue
        seen.add(url)
        for call in (client.get, client.head, client.options):
            answer = call(url)
            assert answer.status_code < 500, (call.__name__, url)
        answer = client.get(url)
        text = "" if answer.streaming else answer.text
        links = re.findall(r'(?:href|src|action|data-pulse)="([^"#]+)', text)
        todo += [urljoin(url, link.replace("&amp;", "&")) for link in links if "://" not in link]
    return seen


@pytest.fixture
def asked(ask, settings, bob):
    settings.APPROVALS = {"MAIL": True, "SITE_URL": "http://testserver"}
    approvals = [ask(), ask("mail", to="x@example.com")]
    due.sweep()
    assert mail.outbox
    return approvals


def links_of_mails():
    return [
        urlsplit(link).path for one in mail.outbox for link in re.findall(r"https?://\S+", one.body)
    ]


def test_a_link_scanner_without_a_login_changes_nothing(asked):
    before = state()
    seen = crawl(Client(), links_of_mails())
    assert any("/login/" in url for url in seen) or seen
    assert state() == before


def test_a_crawler_with_the_approvers_login_changes_nothing(asked, bob, person):
    client = Client()
    client.force_login(person(
        "carol", "approvals.decide_refund", "approvals.decide_approval", "approvals.view_dashboard",
        "approvals.view_decision", "approvals.export_decisions",
    ))  # fmt: skip
    before = state()
    seen = crawl(client, [*links_of_mails(), "/admin/"])
    assert len(seen) > 20
    assert any(url.endswith("/decide/") for url in seen)
    assert state() == before
