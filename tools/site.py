"""Hooks of mkdocs for the documentation site: pages outside `docs/`, help and messages of the program.

make docs                                     # builds site/
python tools/site.py                          # prints the pages that are made of the code
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```.*?^```[^\n]*$)", re.MULTILINE | re.DOTALL)
EXTERNAL = re.compile(r"[a-z]+:|#")
ERRORS = ("RequestError", "LaunchError", "OutOfOrder", "Interrupted", "WriteError", "LogError")


def outside() -> dict[str, str]:
    """Pages of the site by their path in the repository, of those that are not in `docs/`."""
    pages = {"README.md": "project.md", "CONTRIBUTING.md": "CONTRIBUTING.md", "CHANGELOG.md": "CHANGELOG.md"}
    readmes = [ROOT / "bench" / "README.md", *sorted(ROOT.glob("references/**/README.md"))]
    return pages | {path: path for path in (str(one.relative_to(ROOT)) for one in readmes)}


def generated() -> dict[str, str]:
    """Text of each page that is made of the code."""
    return {"help.md": "\n".join(_help()), "messages.md": "\n".join(_messages())}


def relinked(markdown: str, page: str) -> str:
    """Text of a page of the site with links that lead there: a file that is no page keeps its words alone."""
    source = {uri: path for path, uri in outside().items()}.get(page, f"docs/{page}")
    parts = FENCE.split(markdown)
    return "".join(
        part if part.startswith("```") else LINK.sub(lambda link: _link(link, source, page), part)
        for part in parts
    )


def _link(link: re.Match[str], source: str, page: str) -> str:
    mark, words, target = link.groups()
    if EXTERNAL.match(target):
        return link.group()
    path, sign, anchor = target.partition("#")
    file = os.path.normpath(os.path.join(os.path.dirname(source), path))  # noqa: PTH118, PTH120
    if file == "docs/decisions":
        file = "docs/decisions/README.md"
    uri = file.removeprefix("docs/") if file.startswith("docs/") else outside().get(file)
    if uri is None:
        return words
    return f"{mark}[{words}]({os.path.relpath(uri, os.path.dirname(page))}{sign}{anchor})"  # noqa: PTH120


def _help() -> Iterator[str]:
    from train_bench.cli.program import command
    from train_bench.cli.verbs import VERBS, help_page

    yield from ("# Help", "", "`train-bench --help`, and `--help` of each verb.", "", "```")
    yield from (help_page(), "```")
    for verb in VERBS:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            command(verb)(["--help"])
        yield from ("", f"## {verb}", "", "```", printed.getvalue().rstrip(), "```")


def _messages() -> Iterator[str]:
    yield from (
        "# Messages",
        "",
        "Sentences of errors by the module that raises them; `...` stands for a value.",
    )
    for path in sorted((ROOT / "train_bench").rglob("*.py")):
        found = sorted({text for node in ast.walk(ast.parse(path.read_text())) if (text := _sentence(node))})
        if found:
            yield from ("", f"## {path.relative_to(ROOT)}", "", *(f"- `{text}`" for text in found))


def _sentence(node: ast.AST) -> str | None:
    """Text of a call that makes an error of train_bench."""
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS):
        return None
    text = _text(node.args[0]) if node.args else ""
    return re.sub(r"\s+", " ", text).replace("`", "'").strip(" .") or None


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return "".join(map(_text, node.values)) if isinstance(node, ast.JoinedStr) else "..."


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in `docs/`."""
    from mkdocs.structure.files import File

    for path, uri in outside().items():
        files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    for uri, text in generated().items():
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Lead links of a page to pages of the site; a search finds guides before decisions and changes."""
    if page.file.src_uri.startswith(("decisions/", "CHANGELOG", "messages")):
        page.meta["search"] = {"boost": 0.001}
    return relinked(markdown, page.file.src_uri)


def main() -> int:
    """Print the pages that are made of the code."""
    print(*generated().values(), sep="\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
