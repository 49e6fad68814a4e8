"""The documents as a site."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def test_the_site_is_built_without_a_dead_link(tmp_path: Path) -> None:
    """`make docs` builds it; every page is in its navigation, and no page loads anything from elsewhere."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    # (With --quiet, mkdocs counts no warnings, and strict is nothing.)
    assert done.returncode == 0, done.stderr
    built = {path.relative_to(tmp_path / "site") for path in (tmp_path / "site").rglob("*.html")}
    docs = ROOT / "docs"
    assert {page.with_suffix(".html").relative_to(docs) for page in docs.rglob("*.md")} <= built
    start = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert "Use the bundle" in start and 'href="use/c.html' in start
    loaded = re.findall(r"<(?:script|img|link|iframe)[^>]* (?:src|href)=\"?(https?://[^\"> ]+)", start)
    assert not loaded


@pytest.mark.slow
def test_a_dead_link_is_found(tmp_path: Path) -> None:
    """mkdocs.yml asks for it: the build of one page whose links lead nowhere fails, and names them."""
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    text = re.sub(r"^nav:.*", "", text, flags=re.DOTALL | re.MULTILINE)
    text = text.replace("tools/docs_site.py", str(ROOT / "tools" / "docs_site.py"))
    (tmp_path / "mkdocs.yml").write_text(text, encoding="utf-8")
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text("[a](none.md) [b](#nothing)\n", encoding="utf-8")
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "none.md" in done.stdout + done.stderr and "#nothing" in done.stdout + done.stderr
