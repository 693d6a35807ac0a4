"""The documentation site: built strictly and offline, searched in a browser from the disk."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from playwright.sync_api import expect

from tests.project.pages import DOCS, ROOT
from tests.report.conftest import Visitor, chromium, visit  # noqa: F401
from trust_cache.heads.head_settings import HeadSettings

CERTIFY = "trust_cache.api.certificate_functions.certify"
# What a page may not fetch: scripts, styles, pictures, fonts and frames of another host.
FETCHED = re.compile(
    r"<(?:script|img|iframe|source)[^>]+src=[\"']?(?:https?:)?//|@import|url\((?:https?:)?//"
)
LINKED = re.compile(r"<link[^>]+rel=[\"']?(?:stylesheet|preconnect|preload)[^>]+href=[\"']?(?:https?:)?//")


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(DOCS))
    return importlib.import_module("site_pages")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    # A proxy that does not exist: whatever would be fetched fails.
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    environment = os.environ | nowhere | {"NO_MKDOCS_2_WARNING": "1"}
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


def test_settings_have_the_defaults_of_the_code(script: ModuleType) -> None:
    page = script.settings_page()
    rows = dict(re.findall(r"^\| `(\w+)` \| `[^`]*` \| `([^`]*)` \|", page, flags=re.MULTILINE))
    for field in msgspec.structs.fields(HeadSettings):
        assert rows[field.name].strip('"') == str(field.default), field.name
    assert "| `weights` | `str` | required | a file, or the word `random` |" in page


def test_commands_have_their_options_and_defaults(script: ModuleType) -> None:
    page = script.commands_page()
    assert [line[3:] for line in page.splitlines() if line.startswith("## cache")] == [
        "cache info", "cache verify", "cache convert", "cache subset", "cache import", "cache export"
    ]  # fmt: skip
    assert "| `--epochs EPOCHS` | Epochs of training. [20] |" in page
    assert "trust-cache certify scores.csv --out certified/" in page


def test_every_public_name_has_a_place_in_the_reference(script: ModuleType) -> None:
    pages = script.api_pages()
    assert "::: trust_cache.api.certificate_functions.certify\n" in pages["certificates"]
    assert "::: trust_cache.api.certificate_functions.CertifyResult\n" in pages["certificates"]


@pytest.mark.browser
def test_it_needs_no_network(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > 30
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not FETCHED.search(text), page
        assert not LINKED.search(text), page


@pytest.mark.browser
def test_search_finds_the_function_and_opens_its_page(site: Path, visit: Visitor) -> None:  # noqa: F811
    shown = visit(site / "index.html")
    page = shown.page
    page.locator("input.md-search__input").click()
    page.keyboard.type("certify")
    found = page.locator(f".md-search-result__link[href*='{CERTIFY}']").first
    found.wait_for(state="attached")  # among further results of its page, which may be folded
    page.goto(found.evaluate("link => link.href"))
    expect(page.locator(f"h3[id='{CERTIFY}']")).to_be_visible()
    expect(page.get_by_text("Choose a threshold per recall target").first).to_be_visible()
    assert [url for url in shown.requests if not url.startswith(("file:", "about:", "data:"))] == []
    assert [text for text in shown.messages if text.startswith("error")] == []
