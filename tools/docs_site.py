"""What mkdocs.yml needs beside mkdocs: pages from outside docs/, headings' names as GitHub gives them, and
links to files of the repository that are no pages.

    make docs          # or: python -m mkdocs build --strict
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs_markup import for_mkdocs
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
#: Pages that lie at the top of the repository, and what they are called in the site.
TOP = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "README.md": "index.md",
}
#: Folders whose pages the site has too, where they are linked: measurements, and examples' READMEs.
PAGES = ("notes/", "examples/")
#: Where the site has other files of the repository that pages link, as text.
SOURCES = "source"
#: A link and what it leads to, but for code.
_LINK = re.compile(r"(`[^`\n]*`)|\[((?:[^\[\]`]|`[^`]*`)*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_FENCED = re.compile(r"(^ *```.*?^ *```)", re.MULTILINE | re.DOTALL)
#: Diaries do not stand beside the pages for users in what a search finds.
_UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"


def slug(heading: str, separator: str) -> str:
    """The name of a heading, for links to it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", separator)


def on_config(config: Any) -> Any:
    """Headings are named as GitHub names them, so that one link does for both."""
    config.mdx_configs["toc"] = {**config.mdx_configs.get("toc", {}), "slugify": slug, "permalink": True}
    return config


def on_files(files: Files, *, config: Any) -> Files:
    """Adds the pages from outside docs/ and the files that pages link."""
    if Path(config.docs_dir) != ROOT / "docs":
        return files
    waiting = [f"docs/{file.src_uri}" for file in files.documentation_pages()]
    waiting += [path for path in TOP if TOP[path] not in files.src_uris]
    seen = set(waiting)
    while waiting:
        path = waiting.pop()
        if path in TOP or path.startswith(PAGES):
            text = for_mkdocs(_linked(_text(path), path))
            text = _UNSEARCHED + text if path.startswith(PAGES) else text
            files.append(File.generated(config, in_site(path), content=text))
        elif not path.startswith("docs/"):
            files.append(File.generated(config, in_site(path), content=(ROOT / path).read_bytes()))
            continue
        linked = {target for target in _targets(_text(path), path) if not target.startswith("docs/")}
        waiting += sorted(linked - seen - {"README.md"})
        seen |= linked
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Files) -> str:
    """Turns a page of docs/ into what the site has."""
    del config, files
    if page.file.generated_by:
        return markdown
    return for_mkdocs(_linked(markdown, f"docs/{page.file.src_uri}"))


def in_site(path: str) -> str:
    """Where the site has a file of the repository: both as paths with ``/``, from their tops."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    if path in TOP:
        return TOP[path]
    return path if path.startswith(PAGES) and path.endswith(".md") else f"{SOURCES}/{path}.txt"


def _text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def _repository_path(link: str, page: str) -> str | None:
    """The file of the repository that a page's link leads to; of a folder, what says what is in it."""
    if re.match(r"[a-z]+:", link):
        return None
    target = posixpath.normpath(posixpath.join(posixpath.dirname(page), link))
    folder = ROOT / target
    if folder.is_dir():
        named = [name for name in ("README.md", "__init__.py") if (folder / name).is_file()]
        return f"{target}/{named[0]}" if named else None
    return target


def _targets(text: str, page: str) -> Iterator[str]:
    """Files of the repository that a page links and that are there."""
    for found in _LINK.finditer(_FENCED.sub("", text)):
        path = found[3] and _repository_path(found[3], page)
        if path and (ROOT / path).is_file():
            yield path


def _linked(text: str, page: str) -> str:
    """A page's text with links as the site has them: ``page`` is its path in the repository."""
    folder = posixpath.dirname(in_site(page))

    def link(found: re.Match[str]) -> str:
        if found[1] or re.match(r"[a-z]+:", found[3]):
            return found[0]
        path = _repository_path(found[3], page)
        if path is None:
            return found[2]
        return f"[{found[2]}]({posixpath.relpath(in_site(path), folder or '.')}{found[4] or ''})"

    def picture(found: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), found[2]))
        return f'{found[1]}="{posixpath.relpath(in_site(path), folder or ".")}"'

    parts = _FENCED.split(text)
    for number in range(0, len(parts), 2):
        parts[number] = re.sub(r'\b(src|srcset|href)="([^":#]+)"', picture, _LINK.sub(link, parts[number]))
    return "".join(parts)
