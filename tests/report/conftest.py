"""The browser that the page is tested in: Debian's chromium, driven by Playwright."""

import inspect
import os
import shutil
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, sync_playwright
from playwright.sync_api import TimeoutError as PlaywrightTimeout

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking")
PATIENCE = 90_000  # milliseconds; a loaded machine draws slowly
NEXT_FRAME = """() => new Promise(done => {
    requestAnimationFrame(() => done(true));
    setTimeout(() => done(false), 30000);
})"""


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


class Chromium:
    """The one browser of all tests; it can be started anew."""

    def __init__(self, playwright: Playwright, path: str) -> None:
        self._playwright, self._path = playwright, path
        self.browser = self._launch()

    def _launch(self) -> Browser:
        launch = self._playwright.chromium.launch
        return launch(executable_path=self._path, args=list(FLAGS), timeout=PATIENCE)

    def restart(self) -> None:
        self.browser.close()
        self.browser = self._launch()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    """Start chromium; a machine without it skips the test, but CI fails."""
    path = shutil.which("chromium")
    if path is None:
        reason = "chromium is not installed (apt-get install chromium)"
        if os.environ.get("CI") == "true":
            pytest.fail(f"{reason}: in CI the page must be tested in a browser")
        pytest.skip(reason)
    with sync_playwright() as playwright:
        started = Chromium(playwright, path)
        yield started
        started.browser.close()


class Visitor:
    """Opens pages from the disk and listens to them."""

    def __init__(self, chromium: Chromium) -> None:
        self.chromium = chromium
        self._contexts: list[BrowserContext] = []

    def __call__(self, file: Path, **settings: object) -> Visit:
        context = self.chromium.browser.new_context(**settings)  # type: ignore[arg-type]
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE)
        visit = Visit(context.new_page())
        visit.page.on("console", lambda message: visit.messages.append(f"{message.type}: {message.text}"))
        visit.page.on("pageerror", lambda error: visit.messages.append(f"error: {error}"))
        visit.page.on("dialog", lambda dialog: visit.messages.append(f"dialog: {dialog.message}"))
        visit.page.on("request", lambda request: visit.requests.append(request.url))
        visit.page.goto(file.resolve().as_uri())
        return visit

    def frames_come(self) -> bool:
        """Tell whether the browser still paints, which is its business and not the page's."""
        pages = [page for context in self._contexts for page in context.pages]
        return all(page.evaluate(NEXT_FRAME) for page in pages)

    def close(self) -> None:
        for context in self._contexts:
            context.close()
        self._contexts.clear()


@pytest.fixture
def visit(chromium: Chromium) -> Iterator[Visitor]:
    visitor = Visitor(chromium)
    yield visitor
    visitor.close()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Run a test once more in a new browser, if and only if the old one had stopped painting.

    On a machine with many more busy processes than cores chromium was seen to stop producing frames:
    nothing scrolls, draws or is clicked then, whatever the page does.
    """
    try:
        return (yield)
    except (PlaywrightTimeout, AssertionError):
        visitor = pyfuncitem.funcargs.get("visit")
        if not isinstance(visitor, Visitor) or visitor.frames_come():
            raise
        visitor.close()
        visitor.chromium.restart()
        names = inspect.signature(pyfuncitem.obj).parameters
        pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names})
        return True
