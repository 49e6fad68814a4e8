"""Markdown as readers of it show it: CommonMark with GitHub's tables, HTML let through as it is."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

from markdown_it import MarkdownIt

__all__ = ["HOSTILE_TEXTS", "foreign_tags", "tags", "text_of"]

#: Texts that would be HTML, links, code, cells, headings, lists or several lines somewhere.
HOSTILE_TEXTS = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[x](javascript:alert(1))",
    "![x](https://example.org/a.png)",
    "<javascript:alert(1)>",
    "<https://example.org>",
    "[x]: javascript:alert(1)",
    "`code` ``more`` ```\nfence",
    "a | b || \\| \\\\| c\\",
    "line\nend\r\n\n# heading\n\n- list\n1. one\n> quote",
    "# heading",
    "- list",
    "1. one",
    "12) two",
    "+ list",
    "===",
    "---",
    "***",
    "* list",
    "    indented",
    "> quote",
    "~~~\nfence",
    "\"quotes\" and 'more'",
    "$(id) ${x} $math$ #{x} {{ x }} %s",
    "]]> --> */ ?> <!-- x --> <![CDATA[x]]>",
    "&lt;b&gt; &#60;b&#62; &amp;",
    "*a* **b** _c_ __d__ ~~e~~ a_b_c",
    "\\<b> \\\\<b> \\`x\\`",
    "\u202eevil\u2028\x1b[31m\u0000",
    "http://example.org/<b>",
)


class _Reader(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_endtag(self, tag: str) -> None:
        self.text += "\0" if tag in {"td", "th"} else ""

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        self.tags.append("!--")

    def handle_decl(self, decl: str) -> None:
        self.tags.append("!")

    def handle_pi(self, data: str) -> None:
        self.tags.append("?")

    def unknown_decl(self, data: str) -> None:
        self.tags.append("![")


def _read(page: str) -> _Reader:
    return _Reader(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(page))


def tags(page: str) -> set[str]:
    """Names of the HTML elements that a page of Markdown becomes, and of what else is no text."""
    return set(_read(page).tags)


def text_of(page: str) -> str:
    """The text that a page of Markdown shows; behind each cell of a table, without line ends, is a NUL."""
    text = _read(page).text
    return "\0".join(part.strip("\n") for part in text.split("\0"))


def foreign_tags(file: Path) -> set[str]:
    """What a file of Markdown becomes that none of ours does: they have headings, lists, tables and code."""
    own = {"h1", "h2", "h3", "p", "pre", "code", "ul", "li", "strong", "em", "hr"}
    own |= {"table", "thead", "tbody", "tr", "th", "td"}
    return tags(file.read_text(encoding="utf-8")) - own
