"""What users are told to install comes from where their edgepack came from, and from no name on an index."""

from __future__ import annotations

import json
import re
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from edgepack.system import installation
from edgepack.system.installation import Origin, extra_command, origin

ROOT = Path(__file__).resolve().parents[2]


class Installed:
    """An installation of edgepack as pip records it."""

    def __init__(self, record: dict[str, Any] | None) -> None:
        self.record = record

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return None if self.record is None else json.dumps(self.record)


def installed(monkeypatch: pytest.MonkeyPatch, record: dict[str, Any] | None) -> None:
    """As if this edgepack lay in an environment, and pip had written the record."""
    monkeypatch.setattr(installation, "_PACKAGE", Path("/env/lib/site-packages/edgepack"))
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed(record))


def test_a_checkout_that_runs_in_place_is_installed_in_place() -> None:
    assert origin() == Origin("checkout", str(ROOT), editable=True)
    assert extra_command("torch").startswith("python -m pip install -e ")
    assert f"{ROOT}[torch]" in extra_command("torch")


def test_a_folder_a_wheel_and_a_repository_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "my checkout"
    folder.mkdir()
    wheel = tmp_path / "edgepack-0.1.0-py3-none-any.whl"
    wheel.touch()
    installed(monkeypatch, {"url": folder.as_uri(), "dir_info": {}})
    assert extra_command("sign") == f"python -m pip install '{folder}[sign]'"
    installed(monkeypatch, {"url": wheel.as_uri(), "archive_info": {}})
    assert origin() == Origin("wheel", str(wheel))
    assert extra_command("sign") == f"python -m pip install '{wheel}[sign]'"
    vcs = {"vcs": "git", "commit_id": "c0ffee", "requested_revision": "main"}
    installed(monkeypatch, {"url": "https://example.org/edgepack", "vcs_info": vcs})
    wanted = "'edgepack[sign] @ git+https://example.org/edgepack@c0ffee'"
    assert extra_command("sign") == f"python -m pip install {wanted}"


def test_where_the_source_is_not_known_the_packages_themselves_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    listed = [
        "numpy>=1.26",
        "torch>=2.9; extra == 'torch'",
        'onnxscript>=0.5; extra == "torch"',
        "x; extra == 'y'",
    ]
    monkeypatch.setattr(metadata, "requires", lambda _: listed)
    gone = {"url": (tmp_path / "gone").as_uri(), "dir_info": {}}
    for record in (None, gone):
        installed(monkeypatch, record)
        assert extra_command("torch") == "python -m pip install 'torch>=2.9' 'onnxscript>=0.5'"


def test_nothing_says_that_pip_shall_look_for_edgepack_on_an_index() -> None:
    """Neither sources nor templates, examples or documents: nobody owns the name there."""
    named = re.compile(
        r"pip[3x]? (?:install|download) [^\n`#]*?(?<=[\s\"'])edgepack(?![\w./-])(?!(?:\[[\w,]+\])? @)"
        r"|\"edgepack\[[\w,]+\]=="
    )
    places = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for folder in ("edgepack", "templates", "examples", "docs", "tools", "toolchains"):
        places += [path for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES]
    assert len(places) > 1000
    found = [(str(path), *named.findall(path.read_text(encoding="utf-8"))) for path in places]
    assert not [one for one in found if len(one) > 1]
    assert named.search('pip install "edgepack[torch]"') and named.search("pip install edgepack\n")
    assert named.search('EDGEPACK: "edgepack[sign]==0.1.0"') and not named.search(
        "pip install ./edgepack-1.whl"
    )


SUFFIXES = {".py", ".md", ".j2", ".yml", ".yaml", ".sh", ".txt", ".toml"}
