"""The documents: what is drawn is what was measured, and what is linked is there."""

from __future__ import annotations

import ast
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


def test_the_reference_has_what_torch_compile_offers() -> None:
    """It is read from the sources, so that a name or an option that is new there could be forgotten."""
    text = write_api.PAGE.read_text(encoding="utf-8")
    sources = ROOT / "edgepack" / "torch"
    tree = ast.parse((sources / "__init__.py").read_text(encoding="utf-8"))
    (names,) = (ast.literal_eval(node.value) for node in tree.body if isinstance(node, ast.Assign))
    for name in set(names) - {"backend"}:  # PyTorch calls that one
        assert f"\n### edgepack.torch.{name}\n" in text, name
    options = text.partition("\n### Options of torch.compile\n")[2]
    for name in ("threads", "shapes", "precision", "weights"):
        assert re.search(rf"^{name}: .* = ", options, re.MULTILINE), name


NUMBERS = {"twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "seventeen": 17}


def test_a_chart_s_text_says_how_many_networks_it_has() -> None:
    """For those who do not see it."""
    found = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for said, picture in re.findall(
            r'<img alt="[^"]* for (\w+) networks[^"]*" src="[^"]*/(performance[\w-]*)-light', text
        ):
            assert NUMBERS[said] == len(chart.read(chart.CHARTS[picture]).times[1]), (page.name, picture)
            found += 1
    assert found == 4


def test_ranges_in_prose_are_those_of_the_tables() -> None:
    """What docs/performance.md says of quantised networks, and of how much is left, is what notes/ has."""
    text = re.sub(r"\s+", " ", (ROOT / "docs" / "performance.md").read_text(encoding="utf-8"))
    quantised = chart.read(chart.CHARTS["performance-int8"])
    assert f"{quantised.means[1]} times as fast as the better of the two" in text
    assert f"{quantised.means[2]} times on two" in text
    ratios = {name: float(time.ratio) for name, time in quantised.times[1].items()}
    assert f"(from {min(ratios.values())}, ResNet-50, to {max(ratios.values())}, EfficientNet-B0)" in text
    assert (min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)) == (
        "resnet50",
        "efficientnet_b0",
    )
    said = re.search(r"(\d+) to (\d+) % of edgepack's time on one thread, (\d+) to (\d+) % on two", text)
    assert said is not None
    left = []
    for rows in read_tables(read_section("Side by side")):
        if "least / edgepack" in rows[0]:
            column = rows[0].index("least / edgepack")
            shares = [int(row[column].rstrip("%")) for row in rows[1:]]
            left += [min(shares), max(shares)]
    assert [int(one) for one in said.groups()] == left


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


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_link_that_is_a_page_s_name_leads_to_that_page(page: Path) -> None:
    """Pages have moved and were called otherwise."""
    for text, link in re.findall(r"\[([^]]*)\]\(([^)\s#]+)[^)]*\)", page.read_text(encoding="utf-8")):
        if re.fullmatch(r"`?[\w./-]+\.md`?", text):
            assert Path(text.strip("`")).name == Path(link).name, (text, link)


def test_each_note_is_listed() -> None:
    listed = set(
        re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "notes" / "README.md").read_text(encoding="utf-8"))
    )
    assert listed == {path.name for path in (ROOT / "notes").glob("*.md")} - {"README.md"}


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
