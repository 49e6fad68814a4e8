"""Markdown as GitHub takes it, which is how the documents are written, to what mkdocs.yml's extensions take.

lists and code that follow a line of text directly     get an empty line before
indented code                                          is fenced, with the language that gives it colours
<!-- tabs -->, **Title** and what follows, <!-- /tabs --> become tabs, one for each title
<picture> with a source for dark                       is two pictures, of which the site's switch shows one
"""

from __future__ import annotations

import re
import textwrap

#: What a line of a block begins with that is for a shell.
_PROGRAMS = re.compile(
    r"(?:edgepack|pip|python3?|cd|cc|cmake|make|dask|npm|docker|minisign|ssh|scp|cp|cargo|uv) "
    r"|# |\.\./|bin/|tools/"
)
#: What else a block of code is, by what it begins with.
_LANGUAGES = {
    "yaml": re.compile(r"\w+:\n"),
    "toml": re.compile(r"\[[\w.\"-]+\]\n"),
    "python": re.compile(r"(?:\w+ = )?(?:np|tvm|torch|edgepack)\.\w+[.(]"),
    "c": re.compile(r".*[;{](?: +/\*.*)?$", re.MULTILINE),
}
_INDENTED = re.compile(r"(?<=\n\n)((?: {4}[^\n]*\n|\n(?= {4}))+)")
_FENCED = re.compile(r"^( *)```.*?^\1```[^\n]*\n", re.MULTILINE | re.DOTALL)
_TABS = re.compile(r"^<!-- tabs -->\n(.*?)^<!-- /tabs -->\n", re.MULTILINE | re.DOTALL)
_TITLE = re.compile(r"^\*\*([^*\n]+)\*\*\n", re.MULTILINE)
_PICTURE = re.compile(
    r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" srcset="([^"]+)">\s*'
    r'<img alt="([^"]*)" src="([^"]+)">\s*</picture>'
)


def for_mkdocs(text: str) -> str:
    """A page's Markdown, as the site's extensions take it."""
    return _tabbed(_fenced(_separated(_pictures(text))))


def _pictures(text: str) -> str:
    return _PICTURE.sub(r'<img alt="\2" src="\3#only-light"><img alt="\2" src="\1#only-dark">', text)


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


def _fenced(text: str) -> str:
    """Indented code as fenced code; what is indented in a list, and code that is fenced, stays."""
    parts: list[str] = []
    end = 0
    for found in [*_FENCED.finditer(text), None]:
        parts.append(_with_languages(text[end : found.start() if found else len(text)]))
        if found:
            parts.append(found[0])
            end = found.end()
    return "".join(parts)


def _with_languages(prose: str) -> str:
    def fence(found: re.Match[str]) -> str:
        before = prose[: found.start()].rstrip("\n").rpartition("\n\n")[2]
        if re.match(r" {2,}|- |\d+\. ", before):  # a list's
            return found[0]
        code = textwrap.dedent(found[0]).strip("\n")
        return f"```{language(code)}\n{code}\n```\n\n"

    return _INDENTED.sub(fence, prose)


def language(code: str) -> str:
    """The name that Pygments gives to the language of code without one."""
    if re.search(r"^\$ ", code, re.MULTILINE):
        return "console"
    if _PROGRAMS.match(code):
        return "sh"
    return next((name for name, begins in _LANGUAGES.items() if begins.match(code)), "text")


def _tabbed(text: str) -> str:
    def tabs(found: re.Match[str]) -> str:
        _, *parts = _TITLE.split(found[1])
        written = [
            f'=== "{title}"\n\n{textwrap.indent(body.strip(chr(10)), "    ")}\n'
            for title, body in zip(parts[::2], parts[1::2], strict=True)
        ]
        return "\n".join(written)

    return _TABS.sub(tabs, text)
