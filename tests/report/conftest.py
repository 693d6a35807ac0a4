"""The browser that the page is tested in: Debian's chromium, driven by Playwright."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
PATIENCE = 90_000  # milliseconds; a loaded machine draws slowly


@dataclass
class Visit:
    """A page with everything that it said and asked for."""

    page: Page
    messages: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def draw_everything(self) -> None:
        """Scroll until every chart is drawn by Vega."""
        charts = self.page.locator("[data-chart]")
        for index in range(charts.count()):
            charts.nth(index).scroll_into_view_if_needed()
            self.page.locator("[data-chart]").nth(index).locator(".live svg").wait_for(
                state="attached", timeout=PATIENCE
            )


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Start chromium; elsewhere than in CI a machine without it skips."""
    path = shutil.which("chromium")
    if path is None:
        reason = "chromium is not installed (apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason}: in CI the page must be tested in a browser")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=list(FLAGS), timeout=PATIENCE)
        yield started
        started.close()


class Visitor:
    """Opens pages from the disk and listens to them."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        self._contexts: list[object] = []

    def __call__(self, file: Path, **settings: object) -> Visit:
        context = self._browser.new_context(**settings)  # type: ignore[arg-type]
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE)
        visit = Visit(context.new_page())
        visit.page.on("console", lambda message: visit.messages.append(f"{message.type}: {message.text}"))
        visit.page.on("pageerror", lambda error: visit.messages.append(f"error: {error}"))
        visit.page.on("dialog", lambda dialog: visit.messages.append(f"dialog: {dialog.message}"))
        visit.page.on("request", lambda request: visit.requests.append(request.url))
        visit.page.goto(file.resolve().as_uri())
        return visit

    def close(self) -> None:
        for context in self._contexts:
            context.close()  # type: ignore[attr-defined]


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visitor]:
    visitor = Visitor(browser)
    yield visitor
    visitor.close()
