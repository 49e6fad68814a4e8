"""The documents: what is drawn is what was measured, and what is linked is there."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import chart
from markdown import read_section, read_tables, replace_section

import edgepack
from tools import draw_diagrams, draw_flow, write_api
from tools.svg import IMAGES, THEMES

ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "notes").glob("*.md")])


@pytest.fixture(scope="module")
def comparisons() -> list[chart.Comparison]:
    return [chart.read(section) for section in (*chart.SECTIONS, chart.CHARTS["performance-int8"])]


@pytest.mark.parametrize("name", THEMES)
@pytest.mark.parametrize("picture", chart.CHARTS)
def test_the_charts_are_drawn_from_the_committed_tables(picture: str, name: str) -> None:
    """`python benchmarks/chart.py` draws them anew."""
    drawn = (IMAGES / f"{picture}-{name}.svg").read_text(encoding="utf-8")
    assert drawn == chart.chart(chart.read(chart.CHARTS[picture]), THEMES[name])


@pytest.mark.parametrize("name", THEMES)
def test_the_flow_is_drawn_by_its_script(name: str) -> None:
    """`tools/draw_flow.py` draws it anew."""
    picture = (IMAGES / f"flow-{name}.svg").read_text(encoding="utf-8")
    assert picture == draw_flow.draw(THEMES[name])


@pytest.mark.parametrize("name", THEMES)
@pytest.mark.parametrize("picture", draw_diagrams.PICTURES)
def test_the_diagrams_are_drawn_by_their_script(picture: str, name: str) -> None:
    """`tools/draw_diagrams.py` draws them anew."""
    drawn = (IMAGES / f"{picture}-{name}.svg").read_text(encoding="utf-8")
    assert drawn == draw_diagrams.PICTURES[picture](THEMES[name])


def test_the_flow_shows_packages_that_there_are() -> None:
    for folder, packages in (("compiler", draw_flow.COMPILER), (".", draw_flow.BEHIND)):
        for package in packages:
            assert (ROOT / "edgepack" / folder / package / "__init__.py").is_file(), package


def test_the_reference_of_the_python_api_is_current() -> None:
    """`python tools/write_api.py` writes it anew."""
    assert write_api.PAGE.read_text(encoding="utf-8") == write_api.page()
    listed = [name for names in write_api.SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(set(edgepack.__all__) - {"__version__"})


def test_the_table_for_users_says_what_was_measured(comparisons: list[chart.Comparison]) -> None:
    """`python benchmarks/chart.py` writes it anew."""
    assert read_section("Against other engines", chart.PERFORMANCE) == chart.summary(comparisons[:2])


def test_the_fastest_other_engine_is_the_one_of_the_full_table(comparisons: list[chart.Comparison]) -> None:
    """Each ratio and mean follows from the times that stand beside it."""
    for comparison in comparisons:
        for threads, times in comparison.times.items():
            product = 1.0
            for network, time in times.items():
                ratio = float(time.peer) / float(time.edgepack)
                assert float(time.ratio) == pytest.approx(ratio, rel=0.01), (network, threads)
                product *= ratio
            assert float(comparison.means[threads]) == pytest.approx(product ** (1 / len(times)), abs=0.006)


def test_a_section_is_replaced_in_its_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n## Two words\n\nBefore.\n", encoding="utf-8")
    replace_section("Two words", "old", "script.py", page)
    page.write_text(page.read_text(encoding="utf-8") + "\nAfter.\n", encoding="utf-8")
    replace_section("Two words", "| a | b |\n|---|---:|\n| **1** | 2 |", "other.py", page)
    text = page.read_text(encoding="utf-8")
    assert text.endswith("\nAfter.\n")
    assert "old" not in text
    assert read_tables(read_section("Two words", page)) == [[["a", "b"], ["1", "2"]]]


def _anchors(text: str) -> set[str]:
    """Names that GitHub gives to a page's headings."""
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return set(re.findall(r'<a id="([^"]+)"', prose)) | {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_links_lead_somewhere(page: Path) -> None:
    """Files and headings that a page links, and pictures that it shows, exist."""
    text = page.read_text(encoding="utf-8")
    found = re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", text)
    for link in (a or b for a, b in found):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        if anchor:
            assert anchor in _anchors(target.read_text(encoding="utf-8")), link


def test_each_promise_of_security_has_a_test_that_there_is() -> None:
    page = (ROOT / "docs" / "internals" / "security-promises.md").read_text(encoding="utf-8")
    _, _, table = page.partition("## The promises")
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| ")][1:]
    assert len(rows) > 30
    for row in rows:
        held = re.findall(r"`([\w/]+\.py)`: ((?:`\w+`(?:, )?)+)", row[-1])
        assert held, row
        for file, names in held:
            source = (ROOT / "tests" / file).read_text(encoding="utf-8")
            for name in re.findall(r"`(\w+)`", names):
                assert f"def {name}(" in source, (file, name)
    assert len({row[1] for row in rows}) == len(rows), "a promise stands once"


def test_sources_name_documents_that_there_are() -> None:
    """A comment that says which page has the numbers outlives no page."""
    named = set()
    for folder in ("edgepack", "templates", "tests", "benchmarks", "tools", "workbench"):
        for path in (ROOT / folder).rglob("*.py"):
            named |= set(re.findall(r"(?:docs|notes)/[\w/-]+\.md", path.read_text(encoding="utf-8")))
    assert len(named) > 3
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []


def test_the_changelog_has_this_version() -> None:
    """Its first entry is edgepack's version, and says something."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[([^\]]+)\](?: - (?:unreleased|\d{4}-\d\d-\d\d))?$", text, re.MULTILINE)
    assert versions[0] == edgepack.__version__
    entry = text.partition(f"## [{versions[0]}]")[2].partition("\n## [")[0]
    kinds = re.findall(r"^### (\w+)$", entry, re.MULTILINE)
    assert kinds and set(kinds) <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}
    assert re.search(r"^- \S", entry, re.MULTILINE)
