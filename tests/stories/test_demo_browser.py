"""The refund story in a real browser: a customer on the page, an approver in the admin."""

import re
import time

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from agentruntime.demo.journal import Journal
from agentruntime.demo.management.commands.demo import PASSWORD
from tests.services import free_port

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.database("sqlite"),
    pytest.mark.stories,
]

STORY = "Order 1042 arrived broken, please refund it"
expect.set_options(timeout=20_000)
SCRIPT = '<img src=x onerror="document.title=1">'
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


class Demo:
    """`manage.py demo` on this test's database, with a shop of its own."""

    def __init__(self, site_process, directory):
        self._start, self._directory = site_process, directory
        self.port = free_port()
        self.process = self.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        options = ["--port", str(self.port), "--dir", str(self._directory)]
        self.process = self._start("demo", *options)
        self.process.wait_for(PASSWORD)
        return self.process

    def paid(self):
        """The lines of the gateway's ledger."""
        return Journal(self._directory / "payments.jsonl").entries()


@pytest.fixture
def demo(site_process, tmp_path):
    return Demo(site_process, tmp_path / "shop")


@pytest.fixture(scope="module")
def chromium(chromium_path):
    # Its event loop runs in this thread, also while a test's database is put back.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=chromium_path, args=options)
        yield browser
        browser.close()


@pytest.fixture
def log_in(demo, chromium):
    """Logs a person in, in a browser window of their own, and gives its page.

    A page outside of the admin that wrote an error into its console fails the test at its end.
    """
    complaints, windows = [], []

    def note(line):
        # A dropped connection, as when the server is killed, is not the page's fault; nor is the
        # icon that a browser looks for by itself.
        excused = ("net::ERR", "WebSocket connection", "favicon.ico")
        text = f"{line.text} {line.location['url']}"
        if line.type == "error" and not any(one in text for one in excused):
            complaints.append(text)

    def window(name, where="/", **options):
        options = {"viewport": DESKTOP, **options}
        context = chromium.new_context(**options)
        context.set_default_timeout(20_000)
        windows.append(context)
        page = context.new_page()
        if where == "/":
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", note)
        page.goto(demo.address + where)
        page.get_by_label(re.compile("user ?name", re.I)).fill(name)
        page.get_by_label(re.compile("password", re.I)).fill(PASSWORD)
        page.get_by_label(re.compile("password", re.I)).press("Enter")
        page.wait_for_url(demo.address + where)
        return page

    yield window
    for context in windows:
        context.close()
    assert complaints == []


def write(page, text):
    page.get_by_label("Your message").fill(text)
    page.get_by_label("Your message").press("Enter")


def state(page):
    return page.locator("#state")


def talk(page, text):
    """Where the conversation says `text`; the log under it says it too."""
    return page.locator("#entries").get_by_text(text)


def open_decision(lead, title):
    lead.goto(lead.url.split("/admin/")[0] + "/admin/approvals/approval/")
    lead.get_by_role("link", name=title).click()


def test_the_refund_is_asked_for_approved_in_the_admin_and_made_once(demo, log_in):
    sam = log_in("sam")
    write(sam, STORY)

    expect(talk(sam, "Waits for a person with the right “Can decide refunds”")).to_be_visible()
    expect(state(sam)).to_have_text("Waiting for a person")
    assert demo.paid() == []

    lead = log_in("lead", "/admin/")
    open_decision(lead, "Refund 49.90 for order 1042")
    expect(lead.locator("#content").get_by_text(STORY).first).to_be_visible()
    lead.locator("button[value=approve]").click()
    approved = time.monotonic()

    answer = talk(sam, "Your refund of 49.90 EUR for order 1042")
    expect(answer).to_be_visible()
    seconds = time.monotonic() - approved
    expect(talk(sam, "Approved by lead")).to_be_visible()
    expect(state(sam)).to_have_text("Completed")
    assert [one["amount"] for one in demo.paid()] == ["49.90"]
    assert demo.paid()[0]["answer"]["id"] in answer.inner_text()
    # The promise is one second; a machine that runs the whole suite beside this gets a little more.
    assert seconds < 3


def test_declined_with_a_reason_nothing_is_paid_and_the_answer_tells_the_reason(demo, log_in):
    sam = log_in("sam")
    write(sam, STORY)
    expect(state(sam)).to_have_text("Waiting for a person")

    lead = log_in("lead", "/admin/")
    open_decision(lead, "Refund 49.90 for order 1042")
    lead.locator("textarea[name=reason]").fill("The photo shows another teapot")
    lead.locator("button[value=decline]").click()

    expect(talk(sam, "was declined. The reason that was given")).to_contain_text(
        "The photo shows another teapot"
    )
    expect(state(sam)).to_have_text("Completed")
    assert demo.paid() == []


def test_killed_while_it_waits_the_page_comes_back_and_the_story_goes_on(demo, log_in):
    sam = log_in("sam")
    lead = log_in("lead", "/admin/")
    write(sam, STORY)
    expect(state(sam)).to_have_text("Waiting for a person")

    demo.process.kill()
    expect(sam.get_by_text("The connection is lost")).to_be_visible()
    demo.start()
    open_decision(lead, "Refund 49.90 for order 1042")
    lead.locator("button[value=approve]").click()
    demo.process.kill()
    demo.start()

    expect(talk(sam, "Your refund of 49.90 EUR for order 1042")).to_be_visible()
    assert [one["kind"] for one in demo.paid()] == ["refund"]


def test_a_question_is_answered_on_the_page_and_a_run_can_be_stopped(demo, log_in):
    sam = log_in("sam")
    sam.get_by_label("Agent").select_option("purchase")
    write(sam, "Please.")
    expect(talk(sam, "Ship to 1 Main St?")).to_be_visible()
    sam.get_by_role("button", name="Yes").click()
    expect(talk(sam, "Confirmed: the parcel goes to 1 Main St.").last).to_be_visible()
    expect(state(sam)).to_have_text("Completed")
    assert len(demo.paid()) == 1

    write(sam, "Once more.")
    expect(talk(sam, "Waits for you")).to_be_visible()
    sam.get_by_role("button", name="Stop").click()
    expect(state(sam)).to_have_text("Stopped")
    expect(sam.get_by_role("button", name="Send")).to_be_enabled()


def test_what_people_write_is_shown_as_text(demo, log_in):
    sam = log_in("sam")
    write(sam, f"{SCRIPT} where is order 1043?")
    expect(state(sam)).to_have_text("Completed")

    expect(sam.locator(".bubble")).to_contain_text(SCRIPT)
    assert sam.locator("#entries img").count() == 0
    assert sam.title() != "1"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_pages_are_accessible_and_fit(demo, log_in, scheme, size, tmp_path):
    # axe is put into the page as a script of its own, which the pages' policy would refuse.
    sam = log_in("sam", color_scheme=scheme, viewport=size, bypass_csp=True)
    check_page(sam, tmp_path / "home.png")

    write(sam, STORY)
    expect(state(sam)).to_have_text("Waiting for a person")
    sam.locator(".call summary").first.click()
    check_page(sam, tmp_path / "thread.png")


def check_page(page, screenshot):
    found = Axe().run(page).response["violations"]
    page.screenshot(path=screenshot, full_page=True)
    assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in found] == []
    width = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    assert width <= 0, "the page is wider than the window"
