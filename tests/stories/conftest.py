"""The demo beside the test, and browser windows in which people use it.

This file is read before Django is set up, so it imports what needs that where it is used.
"""

import pytest
from playwright.sync_api import sync_playwright


@pytest.fixture
def demo_environment():
    """What the demo's environment holds beside the suite's own; for a test file to say."""
    return {}


@pytest.fixture
def demo(site_process, tmp_path, demo_environment):
    from tests.stories.browser import Demo

    return Demo(site_process, tmp_path / "shop", **demo_environment)


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
    from tests.stories import browser

    complaints, windows = [], []

    def note(line):
        # A dropped connection, as when the server is killed, is not the page's fault; nor is the
        # icon that a browser looks for by itself.
        excused = ("net::ERR", "WebSocket connection", "favicon.ico")
        text = f"{line.text} {line.location['url']}"
        if line.type == "error" and not any(one in text for one in excused):
            complaints.append(text)

    def window(name, where="/", **options):
        options = {"viewport": browser.DESKTOP, **options}
        context = chromium.new_context(**options)
        context.set_default_timeout(20_000)
        windows.append(context)
        page = context.new_page()
        if where == "/":
            page.on("pageerror", lambda error: complaints.append(str(error)))
            page.on("console", note)
        browser.log_in(page, demo.address + where, name)
        return page

    yield window
    for context in windows:
        context.close()
    assert complaints == []
