"""Embed JSON, downloads and scripts in one HTML file safely."""

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import quote

import altair as alt
import vl_convert
from markupsafe import Markup, escape

TEMPLATES = Path(__file__).with_name("templates")
_MEDIA = {
    ".csv": "text/csv", ".json": "application/json", ".md": "text/markdown", ".tex": "application/x-tex",
    ".svg": "image/svg+xml",
}  # fmt: skip
_IN_ADDRESSES = ",;:/?@=+$!*()~._-'"  # not escaped, besides letters and digits
# Characters that could end a script element, start a comment in it, or end a line of JavaScript.
_IN_SCRIPTS = str.maketrans(
    {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026", "\u2028": r"\u2028", "\u2029": r"\u2029"}
)


@dataclass(frozen=True)
class Link:
    """A download whose content is in the page."""

    name: str
    href: str
    text: str


def download(name: str, content: bytes, text: str) -> Link:
    """Return a link that saves `content` as a file, without scripts."""
    media = _MEDIA[Path(name).suffix]
    return Link(name, f"data:{media};charset=utf-8,{quote(content, safe=_IN_ADDRESSES)}", text)


def embedded_json(document: object) -> Markup:
    """Return a document as JSON that cannot end its script element."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate(_IN_SCRIPTS).encode(errors="backslashreplace").decode())  # noqa: S704


def with_code(sentence: str) -> Markup:
    """Return a sentence as HTML, with text between backticks as code."""
    parts = (
        Markup("<code>{}</code>").format(part) if position % 2 else escape(part)
        for position, part in enumerate(sentence.split("`"))
    )
    return Markup("").join(parts)


def embedded_script(text: str) -> Markup:
    """Return a script of this project or of Vega for a script element."""
    if "</script" in text.lower() or "<!--" in text:
        raise AssertionError("a script that would end its own element")
    return Markup(text)  # noqa: S704


@cache
def chart_bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, in altair's version."""
    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", version)


def content_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """Return a policy that allows only these scripts and styles, no eval and no requests."""
    allowed = []
    for texts in (scripts, styles):
        digests = (hashlib.sha256(text.encode()).digest() for text in texts)
        allowed.append(" ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests))
    return (
        f"default-src 'none'; script-src {allowed[0]}; style-src {allowed[1]};"
        " base-uri 'none'; form-action 'none'"
    )
