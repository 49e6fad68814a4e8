"""An edgepack that is installed from a wheel has what a checkout has, and works from any folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from edgepack.resources import PACKAGE, data_folder
from edgepack.system.files import list_files, sha256_file
from workbench.models import build, save

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from a copy of its files that git knows of."""
    source = tmp_path_factory.mktemp("source")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes((ROOT / name).read_bytes())
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", str(folder), str(source)], check=True, timeout=300)
    (found,) = folder.glob("edgepack-*.whl")
    return found


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, installed into a folder of its own."""
    folder = tmp_path_factory.mktemp("site packages")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(folder), str(wheel)], check=True, timeout=300)
    return folder


def environment(site: Path, **more: str) -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(site), **more}


def edgepack(site: Path, cwd: Path, *arguments: str | Path) -> str:
    """What the installed program prints, run in ``cwd``."""
    run = subprocess.run(
        [sys.executable, "-m", "edgepack", *map(str, arguments)],
        cwd=cwd,
        env=environment(site),
        capture_output=True,
        encoding="utf-8",
        timeout=600,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_the_wheels_data_are_the_trees(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    for room in ("templates", "toolchains"):
        names = [name for name in list_files(ROOT / room) if "__pycache__" not in name]
        assert list_files(tmp_path / "edgepack" / "data" / room) == names
        for name in names:
            assert sha256_file(tmp_path / "edgepack" / "data" / room / name) == sha256_file(
                ROOT / room / name
            )


def test_data_are_found_in_a_checkout_and_in_a_wheel(site: Path, tmp_path: Path) -> None:
    assert data_folder(PACKAGE) == ROOT
    assert data_folder(site / "edgepack") == site / "edgepack" / "data"
    with pytest.raises(RuntimeError, match="install edgepack again"):
        data_folder(tmp_path / "edgepack")


def test_an_editable_install_finds_the_checkout_from_another_folder(tmp_path: Path) -> None:
    show = "import edgepack.resources as r; print(r.TEMPLATES)"
    # As an editable install does it: the checkout is on the path by a .pth file. Nothing else is, since the
    # environment of the tests may have edgepack installed in another way, as `make demo` does it.
    (tmp_path / "edgepack.pth").write_text(f"{ROOT}\n")
    code = f"import site; site.addsitedir({str(tmp_path)!r}); {show}"
    run = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert Path(run.stdout.strip()) == ROOT / "templates"


def test_an_installed_wheel_packs_and_verifies_from_another_folder(site: Path, tmp_path: Path) -> None:
    model = save(build("mlp"), tmp_path, "net.onnx")
    where = json.loads(edgepack(site, tmp_path, "pack", model, "--output", "bundle", "--no-cache", "--json"))
    assert Path(where["bundle"]) == tmp_path / "bundle"
    verified: dict[str, Any] = json.loads(edgepack(site, tmp_path, "verify", "bundle", "--json"))
    assert verified["ok"] is True
    known = [device["name"] for device in json.loads(edgepack(site, tmp_path, "devices", "--json"))]
    assert known == sorted(path.stem for path in (ROOT / "toolchains" / "devices").glob("*.yaml"))


def locked(file: str = "requirements-ci.txt") -> dict[str, list[tuple[str, int]]]:
    """Package -> each version of it in the lock file, and how many hashes it has."""
    text = (ROOT / file).read_text(encoding="utf-8")
    found: dict[str, list[tuple[str, int]]] = {}
    for one in text.replace("\\\n", " ").splitlines():
        if not one.startswith("#"):
            requirement = Requirement(one.split(" --hash=")[0])
            (pinned,) = requirement.specifier
            assert pinned.operator == "==", one
            name = canonicalize_name(requirement.name)
            found.setdefault(name, []).append((pinned.version, one.count("--hash=sha256:")))
    return found


def test_the_lock_has_all_that_the_tests_need_and_only_files_with_hashes() -> None:
    """After a change of pyproject.toml: tools/lock_requirements.py."""
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has none, and the lock is for newer ones")
    lock = locked()
    assert all(hashes > 0 for versions in lock.values() for _, hashes in versions)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(one for name in ("wasm", "test", "dev") for one in extras[name])]
    for requirement in map(Requirement, asked):
        if requirement.name != "edgepack":
            versions = lock[canonicalize_name(requirement.name)]
            assert all(requirement.specifier.contains(version) for version, _ in versions), requirement


def test_the_site_is_made_by_the_versions_that_are_tested() -> None:
    """`make docs` installs neither edgepack nor TVM, but what of the tests' packages a site needs."""
    lock, docs = locked(), locked("requirements-docs.txt")
    assert "mkdocs-material" in docs and "apache-tvm" not in docs
    assert docs == {name: lock[name] for name in docs}


@pytest.mark.parametrize("file", ["requirements-ci.txt", "requirements-docs.txt"])
def test_the_lock_names_no_place(file: str) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert not re.search(r"://|--(?:extra-)?index|--find-links|@ ", text)
