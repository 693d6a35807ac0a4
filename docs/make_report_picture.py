"""Make docs/report.png: the top of the report of docs/notebooks/scores.csv, in Debian's chromium.

From the top of the project: python docs/make_report_picture.py
"""

import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

import trust_cache as tc

WIDTH, HEIGHT = 900, 705
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"]


def main() -> None:
    """Certify the scores of the README, write the page and take the picture."""
    with tempfile.TemporaryDirectory() as name:
        folder, scores = Path(name), Path(name) / "scores.csv"
        shutil.copy(Path(__file__).parent / "notebooks" / "scores.csv", scores)
        tc.certify(scores, folder / "certified")
        tc.write_report([scores, folder / "certified"], folder / "report.html")
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=FLAGS)
            page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
            page.goto((folder / "report.html").as_uri())
            page.wait_for_timeout(2_000)  # charts are drawn after the page is loaded
            page.screenshot(path=Path(__file__).with_name("report.png"))
            browser.close()


if __name__ == "__main__":
    main()
