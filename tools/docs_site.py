"""What mkdocs.yml needs beside mkdocs: pages from the top of the repository, headings' names as GitHub gives
them, and links to files of the repository that are no pages.

    make docs          # or: python -m mkdocs build --strict
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
#: Pages that lie at the top of the repository, and what they are called in the site.
TOP = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
}


def slug(heading: str, separator: str) -> str:
    """The name of a heading, for links to it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Headings are named as GitHub names them, so that one link does for both."""
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": slug, "permalink": True}
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages from the top of the repository."""
    for name, page in TOP.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=_moved(text)))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Turns links to pages at the top, and to files that are no pages, into what the site has."""
    del config, files
    # Lists and code that follow a line of text directly, as GitHub takes them.
    return _separated(_linked(markdown, page.file.src_uri))


def _moved(text: str) -> str:
    """A page from the top, with links as they are in docs/."""
    for name, page in TOP.items():
        text = re.sub(rf"\]\({re.escape(name)}(?=[#)])", f"]({page}", text)
    text = re.sub(r"\]\((?=(?:examples|notes|edgepack|benchmarks|toolchains|tools|tests)/)", "](../", text)
    return re.sub(r'(\]\(|src="|srcset="|href=")docs/', r"\1", text)


def _linked(text: str, page: str) -> str:
    """Links of a page of docs/ as the site has them.

    Those to pages at the top lead to where these are; those to other files of the repository become names.
    """
    folder = posixpath.dirname(page)

    def link(found: re.Match[str]) -> str:
        name, path, anchor = found.group(1), found.group(2), found.group(3) or ""
        if re.match(r"[a-z]+:", path):
            return found.group()
        target = posixpath.normpath(posixpath.join(folder, path))
        if not target.startswith("../"):
            return found.group()
        if (top := TOP.get(target.removeprefix("../"))) is None:
            return name
        return f"[{name}]({posixpath.relpath(top, folder or '.')}{anchor})"

    return re.sub(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)", link, text)


def _separated(text: str) -> str:
    lines: list[str] = []
    fenced = False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        begins = re.match(r"(?:- |[0-9]+\. |\|)", line)
        before = lines[-1] if lines else ""
        inside = re.match(r"(?:- |[0-9]+\. |\||  )", before)
        if begins and not fenced and before.strip() and not inside:
            lines.append("")
        lines.append(line)
    return "\n".join(lines)
