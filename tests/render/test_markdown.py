"""Texts of others in Markdown: a parser of it finds one text, and nothing else."""

from __future__ import annotations

import random
import re

import pytest

from edgepack.render.markdown import code, code_cell, markdown
from edgepack.resources import TEMPLATES
from edgepack.text.printable import printable
from tests.support.pages import HOSTILE_TEXTS, tags, text_of


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_text_is_one_text(text: str) -> None:
    plain = " ".join(printable(text, keep="\n\t").split())
    for page in (f"{markdown(text)}\n", f"before\n\n{markdown(text)}\n\nafter\n", f"a {markdown(text)} b\n"):
        assert plain in text_of(page), page
        assert tags(page) <= {"p"}, page


@pytest.mark.parametrize("text", HOSTILE_TEXTS)
def test_a_text_is_one_cell_of_a_table_and_one_span_of_code(text: str) -> None:
    plain, shown = " ".join(printable(text, keep="\n\t").split()), printable(text)
    page = f"| a | b |\n|---|---|\n| {markdown(text)} | {code_cell(text)} |\n| x | y |\n"
    assert tags(page) <= {"table", "thead", "tbody", "tr", "th", "td", "code"}, page
    cells = text_of(page).split("\0")
    assert cells[:2] == ["a", "b"] and cells[-3:] == ["x", "y", ""]
    assert len(cells) == 7
    assert cells[2] == plain and cells[3].strip() in (shown.strip(), plain)
    assert tags(f"x {code(text)} y\n") == {"p", "code"}
    assert shown in text_of(f"x {code(text)} y\n")


def test_texts_of_random_marks_are_texts() -> None:
    rng = random.Random(8)
    for _ in range(1000):
        text = "".join(rng.choices("\\`*_[]()<>#!|~&$-+=:.1 a\n\"'{}/@;", k=rng.randrange(1, 14)))
        row = f"| {markdown(text)} | {code_cell(text)} |\n|---|---|\n| {markdown(text)} | x |\n"
        page = f"{markdown(text)}\n\n{row}"
        assert tags(page) <= {"p", "table", "thead", "tbody", "tr", "th", "td", "code"}, (text, page)
        assert text_of(page).split("\0")[-3] == " ".join(text.split()), (text, page)


def test_plain_texts_stay_as_they_are() -> None:
    for text in (
        "ResNet-18, for cats & dogs (v1.2)",
        "input_ids",
        "größe 漢字",
        "It's 5 % of R&D.",
        "3.5 MB",
    ):
        assert markdown(text) == text
    assert (code("a`b"), code("`"), code(""), code("x")) == (
        "``a`b``",
        "`` ` ``",
        "` ` `"[:0] + "`  `",
        "`x`",
    )


#: What a template may show that others wrote, and the filters that make it harmless.
_OF_OTHERS = re.compile(
    r"summary|license|description|reference|warning|\bdevice\b(?!\.(triple|os|arch|cpu)\b)|model\.file|artifact\.path"
    r"|(tensor|one|output|input|part)\.(name|note)\b"
)
_FILTERS = re.compile(r"\|\s*(markdown|code|code_cell|shell|printable|js_\w+|length|bytes|join)\b")


def test_templates_of_markdown_escape_what_others_wrote() -> None:
    files = [path for path in TEMPLATES.rglob("*.j2") if path.suffixes[-2:] == [".md", ".j2"]]
    assert len(files) > 20
    for file in files:
        for expression in re.findall(r"\{\{(.*?)\}\}", file.read_text(encoding="utf-8")):
            shown = re.sub(r"(?<= if ).*", "", expression)
            assert not _OF_OTHERS.search(shown) or _FILTERS.search(expression), (file.name, expression)
