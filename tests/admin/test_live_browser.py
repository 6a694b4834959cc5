"""The live page of a run in a real browser: by polling and over the socket, both widths, both
themes.

SCREENSHOTS=DIR keeps the pictures, so that a person can look at them.
"""

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from agentruntime.lifecycle import resume_run, start_run
from agentruntime.models import Interrupt

pytestmark = [
    pytest.mark.django_db(transaction=True),
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.database("sqlite"),
    pytest.mark.xdist_group("admin-browser"),
]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
POLICY = "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:"
XSS = '<img src=x onerror="document.title=1">'
RIGHTS = ("agentruntime.view_run", "agentruntime.view_thread", "agentruntime.answer_interrupt")
expect.set_options(timeout=20_000)


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
    # Its event loop runs in this thread, also while a test's database is put back.
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        options = ["--no-sandbox", "--disable-dev-shm-usage"]
        browser = playwright.chromium.launch(executable_path=chromium_path, args=options)
        yield browser
        browser.close()


@pytest.fixture
def open_run(chromium, client, person, settings):
    """Opens the live page of a run at `address` as a member of staff; complaints fail the test."""
    contexts, complaints = [], []
    client.force_login(person("sta", *RIGHTS, is_staff=True))
    cookie = client.cookies[settings.SESSION_COOKIE_NAME].value

    def opened(address, run, size=DESKTOP, theme="light", **options):
        context = chromium.new_context(viewport=size, color_scheme=theme, **options)
        contexts.append(context)
        one = {"name": settings.SESSION_COOKIE_NAME, "value": cookie, "url": address}
        context.add_cookies([one])
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda one: complaints.append(one.text) if "Policy" in one.text else 0)
        page.goto(f"{address}/admin/agentruntime/run/{run.pk}/live/")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


@pytest.fixture
def waiting(work, person, asking):
    return work(start_run(graph=asking, input=XSS, user=person("ann")).pk)


@pytest.fixture
def go_on(work):
    """Answers what a run asks, and works it off."""

    def answer(run):
        question = Interrupt.objects.get(run=run)
        resume_run(interrupt_id=question.pk, value=XSS, user=run.user)
        return work(run.pk)

    return answer


def marked(page):
    return page.locator("#graph .here > text:not(.mark):not(.note)")


def sees_the_run_advance(page, advance):
    expect(page.locator("#state")).to_have_text("Waiting for a person")
    expect(page.locator("#waits")).to_contain_text(f"What about {XSS}?")
    expect(marked(page)).to_have_text("tools")
    steps = page.locator("#steps li").count()

    advance()
    expect(page.locator("#state")).to_have_text("Completed")
    expect(page.get_by_text("Nobody is asked for anything.")).to_be_visible()
    expect(marked(page)).to_have_text("End")
    expect(page.locator("#calls")).to_contain_text("Succeeded")
    seen = [int(one.get_attribute("data-seq")) for one in page.locator("#steps li").all()]
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) > steps
    assert page.locator("#live img").count() == 0
    assert page.title() != "1"


def test_a_run_advances_without_the_socket(open_run, live_server, waiting, go_on, settings):
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.StrictPolicy"]
    page = open_run(live_server.url, waiting)
    expect(page.get_by_text("Looks for news every few seconds")).to_be_visible()
    sees_the_run_advance(page, lambda: go_on(waiting))


def test_a_run_advances_over_the_socket(open_run, web, work, shop, person):
    run = start_run(graph="support", input=f"{XSS} where is order 1043?", user=person("ann"))
    page = open_run(web(runtime={"EMBEDDED_WORKER": False}).url(""), run)
    expect(page.get_by_text("Follows live")).to_be_visible()
    expect(page.get_by_text("Waits for a worker.")).to_be_visible()
    expect(marked(page)).to_have_text("Start")

    work(run.pk)
    expect(page.locator("#state")).to_have_text("Completed")
    expect(marked(page)).to_have_text("End")
    expect(page.locator("#steps")).to_contain_text(XSS)
    assert page.locator("#live img").count() == 0


def test_text_is_shown_as_it_is_written(open_run, live_server, waiting):
    page = open_run(live_server.url, waiting)
    expect(page.locator("#writing-box")).to_be_hidden()
    page.evaluate("text => { write({ text }); write({ text: ' more' }); }", XSS)
    expect(page.locator("#writing")).to_have_text(f"{XSS} more")
    assert page.locator("#live img").count() == 0
    page.evaluate("write({ text: '', restarts: true })")
    expect(page.locator("#writing-box")).to_be_hidden()


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_the_page_fits_and_is_accessible(open_run, live_server, waiting, size, theme):
    page = open_run(live_server.url, waiting, size, theme)
    expect(marked(page)).to_have_text("tools")
    folder = os.environ.get("SCREENSHOTS")
    if folder:
        name = f"live-{'phone' if size is PHONE else 'desktop'}-{theme}.png"
        page.screenshot(path=str(Path(folder) / name), full_page=True)
    found = Axe().run(page, context="#live").response["violations"]
    assert [(one["id"], [node["target"] for node in one["nodes"]]) for one in found] == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
