"""The documents as a site."""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from edgepack.runners import browser
from edgepack.system.process import run_tool

ROOT = Path(__file__).parents[1]
HERE = Path(__file__).parent / "support" / "site"
#: Pages that a browser opens: with tabs and pictures; headings with digits first; code in C; a long one.
OPENED = ("index.html", "getting-started.html", "use/c.html", "reference/options.html")
NEEDS_BROWSER = pytest.mark.skipif(
    browser.find_browser() is None, reason="no browser is here: apt-get install chromium"
)


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Builds the site of the folder. (With --quiet, mkdocs counts no warnings, and strict is nothing.)"""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(site)]
    told = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=told)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` builds."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    done = build(ROOT, folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_the_site_has_each_page_and_loads_nothing_from_elsewhere(site: Path) -> None:
    built = {path.relative_to(site) for path in site.rglob("*.html")}
    docs = ROOT / "docs"
    assert {page.with_suffix(".html").relative_to(docs) for page in docs.rglob("*.md")} <= built
    start = (site / "index.html").read_text(encoding="utf-8")
    assert "Use the bundle" in start and 'href="use/c.html' in start
    for page in ("index.html", "404.html", "use/c.html", "ship/report.html"):
        text = (site / page).read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|link|iframe)[^>]* (?:src|href)=\"?(https?://[^\"> ]+)", text)
    for path in (site / "assets" / "stylesheets").glob("*.css"):
        assert not re.findall(r"@import|url\([\"']?https?:", path.read_text(encoding="utf-8"))


def links_of(text: str) -> set[str]:
    """What a page links, shows and loads."""
    found = re.findall(r'<[^>]* (?:href|src|srcset)=(?:"([^"]*)"|([^\s">]+))', text)
    return {html.unescape(quoted or bare) for quoted, bare in found}


def test_each_link_within_the_site_leads_to_a_file_and_an_id_that_are_there(site: Path) -> None:
    pages = {
        path: path.read_text(encoding="utf-8") for path in site.rglob("*.html") if path.name != "404.html"
    }
    ids = {path: set(re.findall(r' id="?([^"\s>]+)', text)) for path, text in pages.items()}
    dead, followed = set(), 0
    for page, text in pages.items():
        for link in links_of(text):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / unquote(path)).resolve() if path else page
            followed += 1
            known = ids.get(target)
            if not target.exists() or (known is not None and anchor and unquote(anchor) not in known | ONLY):
                dead.add((page.relative_to(site).as_posix(), link))
    assert not dead
    assert followed > 5000


#: What a picture's address ends with that is for the site's style alone.
ONLY = {"only-light", "only-dark"}


def test_files_that_pages_link_are_in_the_site(site: Path) -> None:
    """Examples and measurements as pages, sources as text: no link becomes plain text."""
    linux = (site / "use" / "linux.html").read_text(encoding="utf-8")
    assert 'href="../examples/camera/index.html"' in linux
    assert "notes/side-by-side.html" in (site / "performance.html").read_text(encoding="utf-8")
    source = site / "source" / "edgepack" / "compiler" / "kernels" / "registry.py.txt"
    assert source.read_bytes() == (ROOT / "edgepack" / "compiler" / "kernels" / "registry.py").read_bytes()


@NEEDS_BROWSER
def test_the_site_works_in_a_browser(site: Path) -> None:
    """No error of JavaScript, a bar of one line, code in colours; light and dark, tabs, search do work."""
    script = "self.errors = []; addEventListener('error', (event) => errors.push(event.message))"
    head = f"<head><script>{script}</script>"
    for page in OPENED:
        text = (site / page).read_text(encoding="utf-8").replace("<head>", head, 1)
        (site / page).with_suffix(".opened.html").write_text(text, encoding="utf-8")
    found = browser.find_browser()
    assert found is not None
    names = [page.replace(".html", ".opened.html") for page in OPENED]
    where = f"here/page.html?{','.join(names)}"
    posts = browser.browse(found, {"site": site, "here": HERE}, where, timeout=120, what="the site")
    seen: dict[str, Any] = json.loads(posts["end"])
    assert "failed" not in seen, seen["failed"]
    for name in names:
        page = seen["pages"][name]
        assert page["errors"] == [], name
        assert (page["wide"], page["narrow"]) == (0, 0), name
        assert page["bar"] < 60, "a line of text takes 48 pixels"
        assert page["copy"], name
    assert all(seen["pages"][name]["colours"] >= 4 for name in names[2:])
    _, light, dark = seen["themes"]
    assert (light["scheme"], dark["scheme"]) == ("default", "slate")
    assert (light["pictures"], dark["pictures"]) == (["only-light"], ["only-dark"])
    assert light["background"] != dark["background"] and light["code"] != dark["code"]
    assert seen["tabs"] == [["Command line", 0], ["Python", 1], ["C", 2]]
    assert any("internals/kernels" in link for link in seen["found"])


@NEEDS_BROWSER
def test_the_search_works_in_a_page_that_is_opened_from_disk(site: Path, tmp_path: Path) -> None:
    """A browser starts no worker there."""
    script = """
    const errors = [];
    addEventListener("error", (e) => errors.push(e.message));
    addEventListener("load", async () => {
      const until = async (found) => {
        for (let tries = 0; tries < 500 && !found(); ++tries) await new Promise((go) => setTimeout(go, 20));
      };
      const $ = (selector) => document.querySelector(selector);
      await until(() => !/Initializing/.test($(".md-search-result__meta").textContent));
      $(".md-search__input").focus();
      $(".md-search__input").value = "winograd";
      $(".md-search__input").dispatchEvent(new KeyboardEvent("keyup", { bubbles: true }));
      await until(() => $(".md-search-result__item"));
      document.title = `${errors.length} errors, ${$(".md-search-result__meta").textContent}`;
    });
    """
    text = (site / "index.html").read_text(encoding="utf-8")
    page = site / "index.disk.html"
    page.write_text(text.replace("<head>", f"<head><script>{script}</script>", 1), encoding="utf-8")
    found = browser.find_browser()
    assert found is not None
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    options = ["--headless", "--disable-gpu", "--virtual-time-budget=30000", f"--user-data-dir={tmp_path}"]
    done = run_tool([found, *options, *sandbox, "--dump-dom", page.as_uri()], timeout=120)
    assert re.search(r"<title>0 errors, \d+ matching documents</title>", done.stdout)


@pytest.mark.slow
def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """mkdocs.yml asks for it: the build of one page whose links lead nowhere fails, and names them."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    text = re.sub(r"^nav:.*", "", text, flags=re.DOTALL | re.MULTILINE)
    text = text.replace("tools/docs_site.py", str(ROOT / "tools" / "docs_site.py"))
    (tmp_path / "mkdocs.yml").write_text(text, encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("[a](none.md) [b](#nothing)\n", encoding="utf-8")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode != 0
    assert "none.md" in done.stdout + done.stderr and "#nothing" in done.stdout + done.stderr
