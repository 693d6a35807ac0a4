"""MkDocs hooks: the pages of the site that are made from the code, the notebooks and files at the top.

- commands.md from the command line
- settings.md from the dataclasses, with the defaults and the comments beside them
- api/*.md from the public names of `trust_cache`, for mkdocstrings
- notebooks/*.md from the notebooks with their stored outputs
- security.md, contributing.md, changes.md, cache-format.md from the files of the repository
"""

import importlib
import inspect
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

import trust_cache
from trust_cache_cli.main import app

ROOT = Path(__file__).parents[1]
COPIED = {
    "security.md": "SECURITY.md",
    "contributing.md": "CONTRIBUTING.md",
    "changes.md": "CHANGELOG.md",
    "cache-format.md": "trust_cache/cache/FORMAT.md",
    "loop.svg": "trust_cache/figures/loop.svg",
    "paper_operating_points.csv": "tests/goldens/paper_operating_points.csv",
}
SETTINGS = (
    ("Heads and training", "heads.head_settings", ("HeadSettings", "TrainingSettings")),
    ("Certificates", "certificate.certification", ("CertifySettings",)),
    ("Protocols", "manifest.protocol", ("Protocol",)),
    ("Comparisons", "studies.compare.comparison_results", ("CompareSettings",)),
    ("Rivals", "studies.rivals.rival_rules", ("RivalSettings",)),
    ("Extraction", "cache.extract.extraction_plan", ("ExtractSettings",)),
    ("Pictures", "images.picture_folder", ("ImageSettings",)),
    ("Triage", "clinic.triage", ("TriageSettings",)),
)
API = {
    "certificates": ("Certificates", ("api.certificate_functions", "api.verify_folder")),
    "studies": ("Comparisons and pages", ("api.study_functions", "api.reproduce")),
    "training": ("Heads, external, sweeps", ("api.training_functions", "heads.estimator")),
    "data": ("Manifests and caches", ("api.data_functions", "cache.cache_reader")),
    "images": (
        "Images, encoders, triage",
        ("api.image_functions", "api.encoder_functions", "api.estimate", "encoders.known_encoders"),
    ),
    "clinic": ("Models, monitoring", ("api.clinic_functions",)),
    "machine": ("Machine and demo", ("api.doctor", "api.demo")),
    "numbers": (
        "Bounds and thresholds",
        ("statistics.bounds", "statistics.thresholds", "heads.closed_loop"),
    ),
}
_EVERYWHERE = {"help", "verbose", "log"}
RESULT = "::: trust_cache.api.result\n    options:\n      members: [Result, PlottedResult]\n"


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the generated pages."""
    made = {target: (ROOT / source).read_text(encoding="utf-8") for target, source in COPIED.items()}
    made["commands.md"] = commands_page()
    made["settings.md"] = settings_page()
    made |= {f"api/{name}.md": text for name, text in api_pages().items()}
    for notebook in sorted((ROOT / "docs" / "notebooks").glob("*.ipynb")):
        made[f"notebooks/{notebook.stem}.md"] = notebook_page(
            json.loads(notebook.read_text(encoding="utf-8"))
        )
    for target, text in made.items():
        files.append(File.generated(config, target, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Turn links to files of the repository into links to their pages."""
    up = _up(page)
    for target, source in COPIED.items():
        name = re.escape(source)
        markdown = re.sub(rf"\]\((?:\.\./)*{name}(#[^)]*)?\)", rf"]({up}{target}\1)", markdown)
    markdown = re.sub(r"\]\(([\w./-]*notebooks/\w+)\.ipynb\)", r"](\1.md)", markdown)
    return re.sub(r"\]\(docs/", f"]({up}", markdown)


def on_post_page(output: str, *, page: Page, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Search from the disk with a script of our own: nothing is fetched from the network."""
    return output.replace("https://unpkg.com/iframe-worker/shim", f"{_up(page)}search-from-disk.js")


def on_post_template(output_content: str, *, template_name: str, config: MkDocsConfig) -> str:  # noqa: ARG001
    """Do the same for the page of an unknown address."""
    return output_content.replace("https://unpkg.com/iframe-worker/shim", "search-from-disk.js")


def _up(page: Page) -> str:
    return "../" * page.file.src_uri.count("/")


def commands_page() -> str:
    """Return every command with its help, its options and its examples."""
    parts = ["# Commands", "Made from the code; `trust-cache COMMAND --help` prints the same."]
    for name, command in _commands(typer.main.get_command(app)):
        texts = [line.strip() for line in (command.epilog or "").splitlines()]
        examples = [line for line in texts if line.startswith("trust-cache ")]
        rows = [_option_row(parameter) for parameter in command.params if parameter.name not in _EVERYWHERE]
        table = "\n".join(["| option | meaning |", "|---|---|", *rows])
        console = "```console\n" + "\n".join(examples) + "\n```"
        parts += [f"## {name}", inspect.cleandoc(command.help or ""), console, table]
    return "\n\n".join(parts) + "\n"


def _commands(group: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} ")
        else:
            yield f"{path}{name}", command


def _option_row(parameter: Any) -> str:
    words = ", ".join(name for name in parameter.opts if name.startswith("--"))
    value = "" if getattr(parameter, "is_flag", False) else parameter.metavar or parameter.name.upper()
    shown = f"{words} {value}".strip()
    default = parameter.default
    plain = isinstance(default, str | int | float) and not isinstance(default, bool)
    said = f" [{default}]" if plain and words else ""
    text = f"{parameter.help or ''}{said}".replace("|", "&#124;")
    return f"| `{shown.replace('|', '/')}` | {text} |"


def settings_page() -> str:
    """Return every setting with its default and the comment beside it."""
    parts = [
        "# Settings and defaults",
        "Made from the code. Options of the command line have the same names, with hyphens for underscores.",
    ]
    for title, module, names in SETTINGS:
        parts.append(f"## {title}")
        for name in names:
            kind = getattr(importlib.import_module(f"trust_cache.{module}"), name)
            parts += [f"### {name}", inspect.getdoc(kind) or "", _settings_table(kind)]
    return "\n\n".join(parts) + "\n"


def _settings_table(kind: type) -> str:
    source = inspect.getsource(kind)
    rows = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for field in msgspec.inspect.type_info(kind).fields:
        pattern = rf"^    {field.name}: ([^=#\n]+?)(?: = [^\n]*?)?(?:  # (.*))?$"
        line = re.search(pattern, source, flags=re.MULTILINE)
        if line is None:
            raise ValueError(f"{kind.__name__}.{field.name}: expected a line of its own in the source")
        type_name = line[1].strip().replace(" | ", " or ")  # a bar would end the cell
        rows.append(f"| `{field.name}` | `{type_name}` | {_default(field)} | {line[2] or ''} |")
    return "\n".join(rows)


def _default(field: Any) -> str:
    if field.required:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    name = getattr(value, "name", None)
    return f"`{name if isinstance(name, str) else json.dumps(value) if isinstance(value, str) else value}`"


def api_pages() -> dict[str, str]:
    """Return one page per topic with all public names of its modules."""
    by_home = defaultdict(list)
    for name, home in sorted(trust_cache._HOMES.items()):
        by_home[home.removeprefix("trust_cache.")].append(name)
    pages = {}
    for key, (title, homes) in API.items():
        names = [(home, name) for home in homes for name in by_home.pop(home)]
        items = "\n".join(f"::: trust_cache.{home}.{name}\n" for home, name in names)
        results = [
            f"::: trust_cache.{home}.{kind}\n"
            for home in homes
            for kind, value in inspect.getmembers(
                importlib.import_module(f"trust_cache.{home}"), inspect.isclass
            )
            if value.__module__ == f"trust_cache.{home}"
            and home.startswith("api.")
            and hasattr(value, "to_polars")
        ]
        shown = "\n## Results\n\n" + "\n".join(results) if results else ""
        pages[key] = f"# {title}\n\n`import trust_cache as tc`, then `tc.NAME`.\n\n{items}{shown}"
    if by_home:
        raise ValueError(f"no API page for {dict(by_home)}: add their modules to API")
    pages["results"] = f"# What results have in common\n\n{RESULT}"
    return pages


def notebook_page(notebook: dict[str, Any]) -> str:
    """Return a notebook as Markdown, with its stored outputs."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        parts += [shown for output in cell["outputs"] if (shown := _output(output))]
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return f"```text\n{''.join(output['text']).rstrip()}\n```"
    data = output.get("data", {})
    for kind in ("image/svg+xml", "text/html"):
        if kind in data:
            return f'<div class="output">{" ".join("".join(data[kind]).split())}</div>'
    return f"```text\n{''.join(data.get('text/plain', '')).rstrip()}\n```"
