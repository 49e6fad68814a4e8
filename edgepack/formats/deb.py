"""Debian packages: the library with its params, what programs are compiled with, and the bundle's program.

Written as deb(5) describes it, without Debian's tools. Sources: Debian Policy 4.7 (names, control files,
copyright, shared libraries), deb(5), deb-symbols(5), deb-triggers(5).
"""

from __future__ import annotations

import gzip
import hashlib
import io
import re
import shutil
import tarfile
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from pathlib import Path, PurePosixPath
from typing import IO

from edgepack.bundle.layout import SBOM
from edgepack.formats.archives import Entry, epoch
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import package_name
from edgepack.formats.metadata import debian_version, mail_address
from edgepack.formats.prefix import Prefix, c_example
from edgepack.render.templates import render
from edgepack.text.printable import printable

__all__ = ["DEB", "architecture"]

_NAME = r"[a-z0-9][a-z0-9+.-]{1,99}"
#: What a library may need, and the package that has it.
_NEEDED = {
    r"lib(c|m|dl|rt|pthread)\.so\.[0-9]+|ld-linux[a-z0-9_.-]*\.so\.[0-9]+": "libc6",
    r"libgcc_s\.so\.1": "libgcc-s1",
    r"libstdc\+\+\.so\.6": "libstdc++6",
}
#: Nobody, for a package without an author with an address.
_NOBODY = "Nobody <nobody@localhost>"


@dataclass(frozen=True)
class _Package:
    """One binary package.

    Attributes:
        name: of the package.
        section: of Debian's archive.
        about: what it is, for its description.
        depends: packages, as the control file has them.
        entries: its files, relative to the root.
        links: path to target of symbolic links.
        control: more files of control.tar.
    """

    name: str
    section: str
    about: str
    depends: Sequence[str]
    entries: Sequence[Entry]
    links: Mapping[str, str] = field(default_factory=dict)
    control: Mapping[str, str] = field(default_factory=dict)


def architecture(bundle: SourceBundle) -> tuple[str, str]:
    """Debian's names of the device's architecture: its packages', and its folders' (``armhf``,
    ``arm-linux-gnueabihf``); empty where it has none."""
    device = bundle.manifest.device
    if device.os != "linux" or device.libc != "glibc":
        return "", ""
    if device.arch == "arm":
        hard = device.triple.endswith("hf")
        return ("armhf", "arm-linux-gnueabihf") if hard else ("armel", "arm-linux-gnueabi")
    names = {"x86_64": "amd64", "aarch64": "arm64", "riscv64": "riscv64"}
    return names.get(device.arch, ""), f"{device.arch}-linux-gnu"


def _refusal(bundle: SourceBundle) -> str:
    if not architecture(bundle)[0]:
        return f"Debian does not run on {bundle.manifest.device.name}: it is Linux with glibc."
    if bundle.artifact("shared") is None:
        return "it has no shared library; pack for a device whose artifacts include `shared`."
    if unknown := [one for kind in ("shared", "program") for one in _depends(bundle, kind) if "?" in one]:
        return f"no package of Debian is known to have {unknown[0].strip('?')}."
    return ""


def _depends(bundle: SourceBundle, kind: str) -> list[str]:
    """Packages that an artifact needs, by its audit; ``?file?`` for a library that no known one has."""
    found = bundle.manifest.artifact(kind)
    if found is None:
        return []
    packages = set()
    for library in found.audit.get("needed", ()):
        packages.add(
            next(
                (name for pattern, name in _NEEDED.items() if re.fullmatch(pattern, str(library))),
                f"?{printable(str(library))}?",
            )
        )
    version = str(found.audit.get("glibc") or "")
    newest = f" (>= {version})" if re.fullmatch(r"[0-9.]+", version) else ""
    return [f"libc6{newest}", *sorted(packages - {"libc6"})]


def _packages(job: ExportJob, base: str) -> list[_Package]:
    bundle, name, version = job.bundle, job.name, debian_version(job.version)
    triplet = architecture(bundle)[1]
    home = f"usr/lib/{triplet}/{base}"
    prefix = Prefix(f"lib/{triplet}", f"include/{triplet}/{base}", f"lib/{triplet}/{base}/params", "/usr")
    library, development = f"lib{base}", f"lib{base}-dev"
    own = f"{library} (= {version})"
    soname = PurePosixPath(bundle.layout.shared).name
    made = [
        _Package(
            library,
            "libs",
            "This package has the shared library"
            + (" and the params file that it opens." if bundle.params else ", which holds the params."),
            _depends(bundle, "shared"),
            [entry.below("usr") for entry in prefix.runtime(job)],
            control={
                "triggers": "activate-noawait ldconfig\n",
                "symbols": f"{soname} {library} #MINVER#\n {bundle.manifest.symbol}@Base {version}\n",
            },
        ),
        _Package(
            development,
            "libdevel",
            "This package has headers, the static library, and files for pkg-config and CMake.",
            [own],
            [entry.below("usr") for entry in prefix.development(job)],
        ),
    ]
    if program := bundle.artifact("program"):
        tests = [path for path in bundle.files() if path.startswith("test/")]
        entries = [Entry(f"{home}/bin/{name}", program, True)]
        entries += [Entry(f"usr/share/{base}/{path}", bundle.root / path) for path in tests]
        made.append(
            _Package(
                base,
                "utils",
                "This package has a program that runs the model on files, checks it on recorded data and"
                " measures it.",
                [own, *_depends(bundle, "program")],
                entries,
                {f"usr/bin/{base}": f"../lib/{triplet}/{base}/bin/{name}"},
            )
        )
    return made


def _write(job: ExportJob) -> Sequence[str]:
    given = re.sub("_", "-", (job.package.name or job.name).lower())
    base = package_name(given, "", _NAME, "a Debian package: at least two ASCII letters, digits, +, . and -")
    version, arch = debian_version(job.version), architecture(job.bundle)[0]
    names = []
    for package in _packages(job, base):
        names.append(f"{package.name}_{version}_{arch}.deb")
        _write_package(job.folder / names[-1], package, _documented(job, base, package), job)
    return sorted(names)


def _documented(job: ExportJob, base: str, package: _Package) -> list[Entry]:
    """The package's files with those below /usr/share/doc."""
    bundle, doc = job.bundle, f"usr/share/doc/{package.name}"
    authors = list(job.package.authors) or ["The author of the model, who is not named here"]
    values = {
        "name": job.name,
        "base": base,
        "package": package.name,
        "version": debian_version(job.version),
        "arch": architecture(bundle)[0],
        "triplet": architecture(bundle)[1],
        "maintainer": _maintainer(job),
        "date": formatdate(epoch()),
        "license": job.package.license,
        "authors": authors,
        "homepage": job.package.homepage,
        "summary": _summary(job),
        "program": bundle.artifact("program") is not None,
        "params": bundle.params is not None,
        "edgepack": bundle.manifest.edgepack,
        **c_example(job),
    }
    made = [
        Entry(f"{doc}/copyright", render("formats/deb/copyright.j2", values).encode()),
        Entry(f"{doc}/changelog.gz", _gzipped(render("formats/deb/changelog.j2", values).encode())),
    ]
    if package.name.endswith("-dev"):
        made.append(Entry(f"{doc}/README.md", render("formats/deb/readme.md.j2", values).encode()))
    if package.section == "libs" and (sbom := bundle.file(SBOM)) is not None:
        made.append(Entry(f"{doc}/{SBOM}.gz", _gzipped(sbom.read_bytes())))
    return [*package.entries, *made]


def _summary(job: ExportJob) -> str:
    return " ".join(job.package.summary.split()) or f"{job.name}, a model compiled ahead of time"


def _description(job: ExportJob, package: _Package) -> dict[str, object]:
    """``synopsis``, and ``lines`` of what follows it; "." is an empty one."""
    role = {"libdevel": " (for compiling)", "utils": " (program)"}.get(package.section, " (library)")
    summary = _summary(job)
    synopsis = textwrap.shorten(summary, 60, placeholder="...")
    lines = textwrap.wrap(package.about, 78)
    if synopsis != summary:
        lines = [*textwrap.wrap(summary, 78), ".", *lines]
    return {"synopsis": synopsis + role, "lines": lines}


def _maintainer(job: ExportJob) -> str:
    """The first author with an address."""
    return next((mail_address(author) for author in job.package.authors if "<" in author), _NOBODY)


def _gzipped(data: bytes) -> bytes:
    return gzip.compress(data, 9, mtime=0)


def _write_package(path: Path, package: _Package, entries: Sequence[Entry], job: ExportJob) -> None:
    size = sum(-(-entry.size // 1024) for entry in entries)
    control = {
        "control": render(
            "formats/deb/control.j2",
            {
                "package": package,
                "version": debian_version(job.version),
                "arch": architecture(job.bundle)[0],
                "maintainer": _maintainer(job),
                "size": max(size, 1),
                "homepage": job.package.homepage,
                **_description(job, package),
            },
        ),
        "md5sums": "".join(f"{_md5(entry)}  {entry.name}\n" for entry in _sorted(entries)),
        **package.control,
    }
    control_entries = [Entry(name, text.encode()) for name, text in control.items()]
    data = path.with_suffix(".data")
    with data.open("wb") as raw, gzip.GzipFile("", "wb", 6, raw, mtime=0) as file:
        _write_tar(file, entries, package.links)
    packed = io.BytesIO()
    with gzip.GzipFile("", "wb", 9, packed, mtime=0) as file:
        _write_tar(file, control_entries, {})
    with path.open("wb") as out, data.open("rb") as content:
        out.write(b"!<arch>\n")
        _member(out, "debian-binary", io.BytesIO(b"2.0\n"), 4)
        _member(out, "control.tar.gz", io.BytesIO(packed.getvalue()), packed.getbuffer().nbytes)
        _member(out, "data.tar.gz", content, data.stat().st_size)
    data.unlink()


def _sorted(entries: Sequence[Entry]) -> list[Entry]:
    return sorted(entries, key=lambda entry: entry.name)


def _md5(entry: Entry) -> str:
    with entry.open() as content:
        digest = hashlib.md5(usedforsecurity=False)
        while chunk := content.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def _member(out: IO[bytes], name: str, content: IO[bytes], size: int) -> None:
    """A member of an ar archive, without the slash that GNU's ar puts behind names."""
    out.write(f"{name:<16}{epoch():<12}{0:<6}{0:<6}{'100644':<8}{size:<10}`\n".encode("ascii"))
    shutil.copyfileobj(content, out)
    if size % 2:
        out.write(b"\n")


def _write_tar(file: gzip.GzipFile, entries: Sequence[Entry], links: Mapping[str, str]) -> None:
    """Writes a tar with an entry for each folder: dpkg removes only folders that it knows."""
    paths = [*(entry.name for entry in entries), *links]
    folders = {str(parent) for path in paths for parent in PurePosixPath(path).parents} - {"."}
    by_name = {entry.name: entry for entry in entries}
    with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for name in ["", *sorted([*folders, *paths])]:
            info = tarfile.TarInfo(f"./{name}")
            info.mtime, info.uname, info.gname = epoch(), "root", "root"
            if entry := by_name.get(name):
                info.size, info.mode = entry.size, 0o755 if entry.executable else 0o644
                if entry.name.endswith(".so"):  # which are not executed on Debian
                    info.mode = 0o644
                with entry.open() as content:
                    archive.addfile(info, content)
                continue
            info.type, info.mode = tarfile.DIRTYPE, 0o755
            if target := links.get(name):
                info.type, info.linkname, info.mode = tarfile.SYMTYPE, target, 0o777
            archive.addfile(info)


DEB = ExportFormat("Debian packages: library, -dev and program", _refusal, _write)
