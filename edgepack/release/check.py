"""``edgepack check-release``: whether a release is what it says, unpacks safely, and does what it should."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgepack.bundle.checksums import check_sums
from edgepack.bundle.layout import MANIFEST
from edgepack.bundle.manifest import load_manifest
from edgepack.bundle.paths import inside
from edgepack.errors import CheckFailedError, ConfigError, EdgepackError, ToolchainError
from edgepack.options import RunOptions
from edgepack.release.archives import check_archive
from edgepack.release.index import INDEX, SUMS, Index, UnitRecord, load_index
from edgepack.release.output import UNSUMMED, read_sums
from edgepack.runners import select_runner
from edgepack.runners.program import STATUSES
from edgepack.runners.recorded import device_of
from edgepack.runners.verify import verify
from edgepack.signing.sums import check_signature, public_key, signature_files
from edgepack.system.files import sha256_file

__all__ = ["Finding", "check_files", "check_release"]


@dataclass(frozen=True)
class Finding:
    """What one check found.

    Attributes:
        what: what was checked: ``files``, ``signature``, a unit's or a package's name.
        status: ``ok``, ``failed``, or ``not checked``.
        text: what was found, or why it was not checked.
    """

    what: str
    status: Literal["ok", "failed", "not checked"]
    text: str


def check_release(
    root: Path,
    *,
    key: str | None = None,
    run: bool = True,
    sandbox: bool = False,
    show: Callable[[str, str], None] | None = None,
) -> list[Finding]:
    """Check a release. What fails is a finding; nothing is executed or unpacked before all sums are right.

    Args:
        root: its folder.
        key: public key that must have signed it; see :func:`edgepack.signing.sums.public_key`.
        run: run the programs of its bundles that can run here.
        sandbox: run them under bubblewrap.
        show: is told what is checked.

    Raises:
        ConfigError: there is no release, or no such key.
    """
    show = show or (lambda _stage, _detail: None)
    index = load_index(root)
    findings = []
    for what, check in (("signature", lambda: _signature(root, key)), ("files", lambda: _files(root))):
        show(what, "")
        findings.append(_found(what, check))
    if any(one.status == "failed" for one in findings):
        return findings
    findings.append(_found("index", lambda: _index(root, index)))
    for record in (*(one for unit in index.units for one in unit.packages), *index.joint):
        show("unpack", record.path)
        path = root / record.path
        findings.append(_found(record.path, lambda path=path: _package(path)))  # type: ignore[misc]
    for unit in index.units:
        show("bundle", unit.name)
        findings.append(_found(unit.name, lambda unit=unit: _bundle(root, unit)))  # type: ignore[misc]
        if findings[-1].status == "ok" and run:
            show("run", unit.name)
            name = f"{unit.name} runs"
            findings.append(_found(name, lambda unit=unit: _runs(root, unit, sandbox)))  # type: ignore[misc]
    return findings


def check_files(root: Path) -> None:
    """Compare the files of a release with its sums, and the sums with ``release.json``.

    Raises:
        CheckFailedError: a file is missing, differs or is in no sum, the first of which is named, or the two
            disagree.
        ConfigError: there is no release.
    """
    index = load_index(root)
    _files(root)
    _index(root, index)


def _found(what: str, check: Callable[[], str | Finding]) -> Finding:
    try:
        found = check()
    except EdgepackError as error:
        return Finding(what, "failed", f"{error.message} {error.detail}".strip())
    return found if isinstance(found, Finding) else Finding(what, "ok", found)


def _signature(root: Path, key: str | None) -> str | Finding:
    names = signature_files(root)
    if key is None:
        said = f"it has {', '.join(names)}; name the public key" if names else "it is not signed"
        return Finding("signature", "not checked", said)
    comment = check_signature(root, public_key(key))
    return f"by the key {key}" + (f" ({comment})" if comment else "")


def _files(root: Path) -> str:
    sums = read_sums(root)
    there = {name for name in _every(root) if name not in UNSUMMED}
    wrong = [f"{name}: missing" for name in sorted(sums.keys() - there)]
    wrong += [f"{name}: in no sum" for name in sorted(there - sums.keys())]
    try:
        common = sorted(sums.keys() & there)
        wrong += [f"{name}: differs" for name in common if sha256_file(inside(root, name)) != sums[name]]
    except ConfigError as error:
        raise CheckFailedError(error.message) from error
    if INDEX not in sums:
        wrong.append(f"{INDEX}: in no sum")
    if wrong:
        count = "1 file is" if len(wrong) == 1 else f"{len(wrong)} files are"
        more = ", ..." if len(wrong) > 1 else ""
        raise CheckFailedError(
            f"{count} not as {SUMS} says: {wrong[0]}{more}.", detail="; ".join(wrong[1:20])
        )
    return f"{len(sums)} as {SUMS} says"


def _every(root: Path) -> Iterator[str]:
    """Every file, with ``/``. CheckFailedError for what is neither file nor folder: nothing else is in a
    release."""
    folders = [root]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                if entry.is_dir(follow_symlinks=False):
                    folders.append(path)
                elif stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                    yield path.relative_to(root).as_posix()
                else:
                    raise CheckFailedError(f"{path} is neither file nor folder.")


def _index(root: Path, index: Index) -> str:
    sums = read_sums(root)
    wrong = []
    for record in (*(one for unit in index.units for one in unit.packages), *index.joint):
        if sums.get(record.path) != record.sha256:
            wrong.append(record.path)
    for unit in index.units:
        if sums.get(f"{unit.bundle}/{MANIFEST}") != unit.manifest_sha256:
            wrong.append(f"{unit.bundle}/{MANIFEST}")
    if wrong:
        raise CheckFailedError(f"{INDEX} and {SUMS} disagree: {wrong[0]}.", detail="; ".join(wrong[1:20]))
    packages = sum(len(unit.packages) for unit in index.units) + len(index.joint)
    return f"{index.name} {index.version}: {len(index.units)} bundles, {packages} packages"


def _package(path: Path) -> str | Finding:
    count = check_archive(path)
    if not count:
        return Finding(path.name, "not checked", "it is no archive")
    return f"{count} files, unpack safely"


def _bundle(root: Path, unit: UnitRecord) -> str:
    folder = inside(root, unit.bundle)
    manifest = load_manifest(folder)
    said = (manifest.name, manifest.device.name, manifest.model.sha256)
    if said != (unit.model, unit.device, unit.model_sha256):
        raise CheckFailedError(f"{folder} is the bundle of {manifest.name}@{manifest.device.name}.")
    count = check_sums(folder, manifest)
    broken = [one.what for one in unit.budgets if not one.kept]
    return f"{count} files as packed" + (f"; exceeds its budget of {', '.join(broken)}" if broken else "")


def _runs(root: Path, unit: UnitRecord, sandbox: bool) -> str | Finding:
    folder = inside(root, unit.bundle)
    manifest = load_manifest(folder)
    if manifest.artifact("program") is None:
        return Finding(f"{unit.name} runs", "not checked", "its bundle has no program")
    try:
        select_runner(device_of(manifest.device))
    except ToolchainError as error:
        return Finding(f"{unit.name} runs", "not checked", error.message)
    result = verify(folder, manifest, RunOptions(sandbox=sandbox))
    if not result.ok:
        raise CheckFailedError(f"its own program says: {STATUSES[result.status]}")
    missing = [f"{one.name} needs {one.missing}" for one in result.variants if one.missing]
    return f"ok, {result.runner}" + (f"; not run: {'; '.join(missing)}" if missing else "")
