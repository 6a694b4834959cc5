"""The demo as a process of its own, and what a person does on its pages."""

import re

from playwright.sync_api import expect

from agentruntime.demo.journal import Journal
from agentruntime.demo.management.commands.demo import PASSWORD
from tests.services import free_port

STORY = "Order 1042 arrived broken, please refund it"
DESKTOP, PHONE = {"width": 1280, "height": 860}, {"width": 390, "height": 844}
expect.set_options(timeout=20_000)


class Demo:
    """`manage.py demo` on this test's database, with a shop of its own."""

    def __init__(self, site_process, directory, **environment):
        self._start, self._directory, self._environment = site_process, directory, environment
        self.port = free_port()
        self.process = self.start()

    @property
    def address(self):
        return f"http://127.0.0.1:{self.port}"

    def start(self, **more):
        options = ["--port", str(self.port), "--dir", str(self._directory)]
        self.process = self._start("demo", *options, env={**self._environment, **more})
        self.process.wait_for(PASSWORD)
        return self.process

    def paid(self):
        """The lines of the gateway's ledger."""
        return Journal(self._directory / "payments.jsonl").entries()


def log_in(page, where, name):
    page.goto(where)
    page.get_by_label(re.compile("user ?name", re.I)).fill(name)
    page.get_by_label(re.compile("password", re.I)).fill(PASSWORD)
    page.get_by_label(re.compile("password", re.I)).press("Enter")
    page.wait_for_url(where)


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
