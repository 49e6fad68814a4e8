"""Debian packages: installed by dpkg into a root of their own, compiled against, run, and removed."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.api import Bundle, export
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.deb import DEB, architecture
from tests.support.packages import METADATA, blocks, hostile, on, run, tool, write


@pytest.fixture(scope="module")
def packages(small_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dëb s") / "dist"
    return write(DEB, [source_bundle(small_bundle.path)], folder, replace(METADATA, name="Acme_Small"))


def dpkg(root: Path, *arguments: str | Path) -> str:
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    options = ("--force-not-root", "--force-depends", f"--log={root}/log", f"--root={root}")
    return run(tool("dpkg"), *options, *arguments, cwd=root, PATH=path)


def fields(package: Path, cwd: Path) -> dict[str, str]:
    text = run(tool("dpkg-deb"), "--field", package, cwd=cwd)
    return dict(re.findall(r"^([\w-]+): (.*(?:\n .*)*)$", text, re.MULTILINE))


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="dpkg gives files to root")
def test_is_installed_compiled_against_and_removed(packages: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "root"
    for folder in ("info", "updates"):
        (root / "var/lib/dpkg" / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").write_text("")
    before = sorted(root.rglob("*"))
    dpkg(root, "--install", *packages)
    for name in ("libacme-small", "libacme-small-dev", "acme-small"):
        assert not dpkg(root, "--verify", name)
    done = run(root / "usr/bin/acme-small", "verify", root / "usr/share/acme-small/test", cwd=tmp_path)
    assert '"status": "ok"' in done or '"ok"' in done
    readme = root / "usr/share/doc/libacme-small-dev/README.md"
    (tmp_path / "app.c").write_text(blocks(readme, "c")[0])
    (library,) = root.rglob("libsmall.so")
    libraries = library.parent
    environment = {
        "PKG_CONFIG_LIBDIR": str(libraries / "pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(root),
        "LD_LIBRARY_PATH": str(libraries),
        "CFLAGS": "-Wall",
    }
    script = blocks(readme, "sh")[0].replace(
        "--variable=params small)", f"--variable=params small | sed 's|^/usr|{root}/usr|')"
    )
    assert run("sh", "-e", "-c", script, cwd=tmp_path, **environment) == "Success.\n"
    dpkg(root, "--purge", "acme-small", "libacme-small-dev", "libacme-small")
    left = [path for path in root.rglob("*") if not path.is_relative_to(root / "var") and path.name != "log"]
    assert set(left) <= set(before), left


def test_what_the_packages_say(packages: list[Path], tmp_path: Path) -> None:
    assert [path.name.partition("_")[0] for path in packages] == [
        "acme-small",
        "libacme-small-dev",
        "libacme-small",
    ]
    for package in packages:
        seen = fields(package, tmp_path)
        assert seen["Version"] == "1.2.0~beta.1" and seen["Homepage"] == METADATA.homepage
        assert seen["Maintainer"].endswith("<zoe@example.org>")
        assert METADATA.summary.split()[0] in seen["Description"]
        assert set(seen) <= {
            *("Package", "Version", "Architecture", "Maintainer", "Installed-Size", "Depends", "Section"),
            *("Priority", "Multi-Arch", "Homepage", "Description"),
        }
        folder = tmp_path / package.stem
        run(tool("dpkg-deb"), "--raw-extract", package, folder, cwd=tmp_path)
        run("md5sum", "--check", "--strict", folder / "DEBIAN/md5sums", cwd=folder)
        name = seen["Package"]
        assert "Apache-2.0 OR MIT" in (folder / f"usr/share/doc/{name}/copyright").read_text("utf-8")
        with gzip.open(folder / f"usr/share/doc/{name}/changelog.gz", "rt", encoding="utf-8") as log:
            (tmp_path / "changelog").write_text(log.read(), encoding="utf-8")
        if shutil.which("dpkg-parsechangelog"):
            parsed = run("dpkg-parsechangelog", "-l", "changelog", "-S", "Version", cwd=tmp_path)
            assert parsed == "1.2.0~beta.1\n"


def test_same_bytes_each_time(packages: list[Path], small_bundle: Bundle, tmp_path: Path) -> None:
    package = replace(METADATA, name="Acme_Small")
    again = write(DEB, [source_bundle(small_bundle.path)], tmp_path / "dist", package)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in packages]


def test_names_of_tensors_stand_in_the_readme_alone(small_bundle: Bundle, tmp_path: Path) -> None:
    (package,) = (path for path in write(DEB, [hostile(small_bundle)], tmp_path / "d") if "-dev" in path.name)
    run(tool("dpkg-deb"), "--extract", package, tmp_path / "x", cwd=tmp_path)
    readme = tmp_path / "x/usr/share/doc/libsmall-dev/README.md"
    assert len(blocks(readme, "c")) == len(blocks(readme, "sh")) == 1
    rows = [line for line in readme.read_text("utf-8").splitlines() if line.startswith("| ")]
    assert len(rows) == 41 and all(line.replace("\\|", "").count("|") == 5 for line in rows)


@pytest.mark.parametrize("wrong", ["a b", "../x", "ü", "x", "-x", 'a"b'])
def test_a_name_that_dpkg_does_not_know_is_refused(wrong: str, small_bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is no name of a Debian package"):
        export(small_bundle, "deb", tmp_path / "dist", package_name=wrong)


def test_architectures_are_those_of_debian(small_bundle: Bundle) -> None:
    source = source_bundle(small_bundle.path)
    for device, want in (
        ({"arch": "aarch64"}, "arm64"),
        ({"arch": "arm", "triple": "armv7a-unknown-linux-gnueabihf"}, "armhf"),
        ({"arch": "arm", "triple": "armv7a-unknown-linux-gnueabi"}, "armel"),
        ({"arch": "riscv64"}, "riscv64"),
        ({"libc": "musl"}, ""),
        ({"os": "android"}, ""),
        ({"os": "windows"}, ""),
    ):
        changed = on(source, **device)
        assert architecture(changed)[0] == want
        assert bool(DEB.refusal(changed)) == (not want)


def test_a_library_that_debian_does_not_have_is_refused(small_bundle: Bundle) -> None:
    source = source_bundle(small_bundle.path)
    for artifact in source.manifest.artifacts:
        artifact.audit["needed"] = ["libc.so.6", "libacme.so.3"]
    assert "libacme.so.3" in DEB.refusal(source)


@pytest.mark.slow
def test_lintian_finds_no_error(packages: list[Path]) -> None:
    command = [tool("lintian"), "--fail-on", "error", "--allow-root", *map(str, packages)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
