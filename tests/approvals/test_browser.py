"""The queue and the decision page in a real browser: keyboard only, both widths, light and dark.

SCREENSHOTS=DIR keeps the pictures, so that a person can look at them.
"""

import os
from pathlib import Path

import pytest

from approvals.models import Approval, Decision
from tests.approvals.attacks import ATTACKS

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.database("sqlite"),
    pytest.mark.xdist_group("approvals-browser"),
]
POLICY = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:"
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
QUEUE = "/admin/approvals/approval/"


class StrictPolicy:
    """Lets the pages run nothing that stands in them, as a careful site would."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        answer = self.get_response(request)
        answer["Content-Security-Policy"] = POLICY
        return answer


@pytest.fixture(scope="module")
def chromium(chromium_path):
    from playwright.sync_api import sync_playwright

    # Its event loop runs in this thread, which also reads and empties the database.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=chromium_path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_desk(chromium, live_server, settings, client, bob, person):
    """Opens a page of the admin as bob: `open_desk(PHONE, "dark")`."""
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.StrictPolicy"]
    contexts = []

    def opened(size=DESKTOP, theme="light", user=None):
        client.force_login(user or bob)
        context = chromium.new_context(
            viewport=size, color_scheme=theme, base_url=live_server.url, has_touch=size is PHONE
        )
        cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
        context.add_cookies(
            [{"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": live_server.url}]
        )
        contexts.append(context)
        page = context.new_page()
        page.complaints = []
        page.on(
            "console", lambda one: page.complaints.append(one.text) if "Policy" in one.text else 0
        )
        page.on("dialog", lambda one: page.complaints.append(f"dialog {one.message}"))
        return page

    yield opened
    for context in contexts:
        context.close()


def picture(page, name):
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        page.screenshot(path=str(Path(folder) / f"{name}.png"), full_page=True)


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def goes_to(page, *keys):
    with page.expect_navigation():
        press(page, *keys)


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_every_page_fits_its_width_and_has_no_fault_that_the_stock_admin_has_not(
    ask, bob, person, work, open_desk, settings, size, theme
):
    from axe_playwright_python.sync_playwright import Axe

    from approvals.decide import decide

    settings.APPROVALS = {"RULES": {"mail": {"permission": "approvals.decide_refund"}}}
    lead = person(
        "lead", "approvals.decide_refund", "approvals.view_dashboard", "approvals.view_decision",
        "approvals.export_decisions", "auth.view_user",
    )  # fmt: skip
    done = ask(order_id="1001", amount="12.00")
    decide(approval_id=done.pk, verdict="approve", user=bob, reason="Seen the photo.")
    work()
    first = ask(reason="It arrived broken, in many pieces, and the box was wet.")
    odd = ask(order_id="10\u202e42", reason=f"{ATTACKS[0]} раураl.com " + " " * 50 + "pay mallory")
    for number in range(4):
        ask(order_id=f"200{number}", amount=f"{25 * (number + 1)}.00")
    ask("mail", to="someone@example.com", text="Hello,\nyour parcel is on its way.")
    page = open_desk(size, theme, lead)
    stock = set()
    for path in ("?q=lead", f"{lead.pk}/change/", f"{lead.pk}/history/"):
        page.goto(f"/admin/auth/user/{path}")
        stock |= found_by(Axe(), page)
    label = f"{theme}-{'phone' if size is PHONE else 'desktop'}"
    pages = {
        "queue": QUEUE,
        "closed": f"{QUEUE}?queue=closed",
        "decision": f"{QUEUE}{first.pk}/change/",
        "odd": f"{QUEUE}{odd.pk}/change/",
        "decided": f"{QUEUE}{done.pk}/change/",
        "history": f"{QUEUE}{done.pk}/history/",
        "dashboard": f"{QUEUE}dashboard/",
        "record": "/admin/approvals/decision/",
    }
    for name, path in pages.items():
        page.goto(path)
        picture(page, f"{name}-{label}")
        fits(page, name)
        assert found_by(Axe(), page) - stock == set(), name
    page.goto(QUEUE)
    every = page.locator("#action-toggle")
    box = every.bounding_box()
    assert box["x"] + box["width"] <= size["width"] - 15  # the margin of the page
    every.check()
    page.select_option("select[name=action]", "decline_selected")
    with page.expect_navigation():
        page.click("button[name=index]")
    picture(page, f"bulk-{label}")
    fits(page, "bulk")
    assert found_by(Axe(), page) - stock == set()
    assert page.complaints == []


def found_by(axe, page):
    found = axe.run(page).response["violations"]
    return {(one["id"], one["impact"]) for one in found}


def fits(page, name):
    wide = page.evaluate("document.scrollingElement.scrollWidth - window.innerWidth")
    assert wide <= 0 or name in {"queue", "closed", "record", "history"}, (
        f"{name}: {wide} px too wide"
    )


def test_approve_with_the_keyboard_and_see_what_became_of_it(ask, open_desk, work, shop):
    ask()
    page = open_desk()
    page.goto(QUEUE)
    press(page, "j")
    goes_to(page, "Enter")
    page.wait_for_selector("#approval-form")
    press(page, "a")
    assert page.evaluate("document.activeElement.value") == "approve"
    assert Approval.objects.get().status == "pending"
    goes_to(page, "Enter")
    assert "You approved this." in page.inner_text(".messagelist")
    work()
    page.wait_for_selector("text=Approved, executed", timeout=10_000)
    assert len(shop.refunds) == 1
    goes_to(page, "b")
    assert page.url.endswith(QUEUE)


def test_decline_with_the_keyboard(ask, open_desk, work, shop, answer_of):
    approval = ask()
    page = open_desk()
    page.goto(QUEUE)
    press(page, "j")
    goes_to(page, "d")
    page.wait_for_function("document.activeElement.id === 'id_reason'")
    page.keyboard.type("It was opened.")
    press(page, "Tab", "Tab")
    goes_to(page, "Enter")
    work()
    approval.refresh_from_db()
    assert (approval.status, shop.refunds) == ("declined", [])
    assert "It was opened." in answer_of(approval)


def test_edit_with_the_keyboard(ask, open_desk, work, shop):
    approval = ask()
    page = open_desk(PHONE, "dark")
    page.goto(f"{QUEUE}{approval.pk}/change/")
    press(page, "e")
    page.wait_for_function("document.activeElement.name === 'edit-amount'")
    press(page, "Control+a")
    page.keyboard.type("19.99")
    assert page.inner_text(".approval-yes") == "Approve with the changes"
    press(page, "Escape", "a")
    goes_to(page, "Enter")
    work()
    assert [one["amount"] for one in shop.refunds] == ["19.99"]
    page.wait_for_selector("text=Edited and approved, executed", timeout=10_000)


def test_claim_release_and_next_with_the_keyboard(ask, open_desk, bob):
    first, second = ask(order_id="1"), ask(order_id="2")
    page = open_desk()
    page.goto(f"{QUEUE}{first.pk}/change/")
    goes_to(page, "c")
    assert Approval.objects.get(pk=first.pk).claimed_by == bob
    goes_to(page, "c")
    assert Approval.objects.get(pk=first.pk).claimed_by is None
    goes_to(page, "n")
    assert str(second.pk) in page.url


def test_bulk_with_the_keyboard_goes_through_all_steps(ask, open_desk, settings, work):
    settings.APPROVALS = {"BULK_STEP": 2}
    for number in range(5):
        ask(order_id=str(number))
    page = open_desk()
    page.goto(QUEUE)
    press(page, "j", "x", "j", "x", "j", "x", "j", "x", "j", "x")
    page.focus("select[name=action]")
    page.keyboard.type("Decline")
    press(page, "Tab")
    goes_to(page, "Enter")
    page.focus("#bulk-reason")
    page.keyboard.type("The shop is closed.")
    press(page, "Tab")
    goes_to(page, "Enter")
    page.wait_for_function("document.getElementById('bulk-left').textContent === '0'")
    assert page.locator("#bulk-results tr").count() == 5
    assert Decision.objects.filter(verdict="decline", door="bulk").count() == 5


def test_the_queue_and_the_page_follow_without_a_reload(ask, open_desk, bob, person):
    from approvals.decide import decide

    first = ask(order_id="1")
    desk, page = open_desk(), open_desk(PHONE)
    desk.goto(QUEUE)
    page.goto(f"{QUEUE}{first.pk}/change/")
    ask(order_id="2")
    desk.wait_for_selector("text=Refund 30.00 for 2", timeout=15_000)
    decide(approval_id=first.pk, verdict="decline", user=bob, reason="no")
    desk.wait_for_selector("text=Refund 30.00 for 1", state="detached", timeout=15_000)
    page.wait_for_selector("text=What became of it", timeout=15_000)
    assert page.locator("#approval-form").count() == 0


def test_what_somebody_types_is_not_lost_when_the_page_changes(ask, open_desk, person):
    from approvals.claims import claim

    approval = ask()
    page = open_desk()
    page.goto(f"{QUEUE}{approval.pk}/change/")
    page.fill("#id_reason", "half a sentence")
    claim(approval_id=approval.pk, user=person("carol", "approvals.decide_refund"))
    page.wait_for_selector("#approval-news:not([hidden])", timeout=15_000)
    assert page.input_value("#id_reason") == "half a sentence"


def test_no_attack_runs_in_a_real_browser(ask, open_desk):
    page = open_desk()
    foreign = []
    page.on("request", lambda one: foreign.append(one.url) if "evil.example" in one.url else 0)
    for attack in ATTACKS[:34]:
        approval = ask(order_id=attack, reason=attack)
        page.goto(f"{QUEUE}{approval.pk}/change/")
        assert page.evaluate("window.attacked") is None
        assert page.locator("#approval form").count() == 2
        assert page.url.endswith("/change/")
    page.goto(QUEUE)
    assert page.evaluate("window.attacked") is None
    assert (page.complaints, foreign) == ([], [])
    assert not Decision.objects.exists()
