"""What is built -> the release's folder: packages of several devices, index, notes, sums; or nothing, where
all of it stands there already."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from edgepack.commands.export import export_bundles
from edgepack.formats.archives import epoch
from edgepack.pipeline.versions import tool_versions
from edgepack.registry import EXPORT_FORMATS
from edgepack.release.attestations import write_attestations
from edgepack.release.build import BUNDLE, package_record
from edgepack.release.differences import differences, update_refusal
from edgepack.release.index import (
    INDEX,
    NOTES,
    BudgetRecord,
    Change,
    Difference,
    Index,
    JointRecord,
    Limited,
    Sized,
    UnitRecord,
)
from edgepack.release.matrix import Unit
from edgepack.release.notes import render_notes
from edgepack.release.output import Earlier, check_output, replacing, write_sums
from edgepack.release.project_file import ProjectFile
from edgepack.release.seals import remember
from edgepack.release.unit_files import BuiltUnit
from edgepack.signing.sums import sign_sums
from edgepack.system.temporary import temporary_folder
from edgepack.version import __version__

if TYPE_CHECKING:
    from edgepack.signing.cosign import CosignSecretKey
    from edgepack.signing.minisign import MinisignSecretKey

__all__ = ["Assembly", "assemble"]

_LIMITED: tuple[Limited, ...] = get_args(Limited)
_SIZES: tuple[Sized, ...] = get_args(Sized)


@dataclass(frozen=True)
class Assembly:
    """What a release is made of.

    Attributes:
        only: patterns that chose a part of the project.
        before: the release to compare with.
        earlier: what stands in the folder.
        parts: each unit, and its files.
        sources: files that it is made from.
        key: signs the sums.
    """

    loaded: ProjectFile
    only: tuple[str, ...]
    before: Index | None
    earlier: Earlier
    parts: Sequence[tuple[Unit, BuiltUnit]]
    sources: Sequence[Path] = ()
    key: MinisignSecretKey | CosignSecretKey | None = None


def assemble(assembly: Assembly) -> tuple[Index, bool]:
    """Publish a release, unless the same one is there.

    Returns:
        its index, and whether it was written.

    Raises:
        ConfigError: it cannot be written, or bundles cannot become a package of several devices.
    """
    earlier, parts = assembly.earlier, assembly.parts
    records = [_completed(unit, built.record, assembly.before) for unit, built in parts]
    kept = {key: found for key in _groups(assembly) if (found := earlier.joint(*key))}
    if all(built.published for _, built in parts) and len(kept) == len(_groups(assembly)):
        index = _index(assembly, records, [one for found in kept.values() for one in found])
        same = earlier.holds(INDEX, index.to_json()) and earlier.holds(NOTES, render_notes(index))
        if same and earlier.whole():
            _sign(assembly, earlier.root)
            return index, False
    with replacing(earlier.root) as (new, publish):
        for unit, built in parts:
            built.take(new / unit.model / unit.device)
        joint = [one for key, units in _groups(assembly).items() for one in _joint(key, units, new)]
        index = _index(assembly, records, joint)
        (new / INDEX).write_text(index.to_json(), encoding="utf-8", newline="\n")
        (new / NOTES).write_text(render_notes(index), encoding="utf-8", newline="\n")
        write_attestations(new, index)
        sums = write_sums(new)
        _sign(assembly, new)
        check_output(earlier.root, partial=bool(assembly.only), sources=assembly.sources)  # it took minutes
        publish()
    remember(sums)  # else the next release builds all of it, and says why
    return index, True


def _sign(assembly: Assembly, root: Path) -> None:
    if assembly.key is not None:
        index = assembly.loaded.project
        sign_sums(root, assembly.key, f"{index.name} {index.version}")


def _completed(unit: Unit, record: UnitRecord, before: Index | None) -> UnitRecord:
    """A record with what depends on more than its files: budgets, and what changed."""
    sizes = record.sizes.model_dump()
    limits = unit.budgets.model_dump()
    budgets = [
        BudgetRecord(what=what, limit=limits[what], value=sizes[what])
        for what in _LIMITED
        if limits[what] is not None
    ]
    changes: tuple[Change, ...] | None = None
    parts: tuple[Difference, ...] = ()
    refusal: str | None = None
    if before is not None and (old := before.unit(record.name)) is not None:
        parts = differences(old, record)
        refusal = update_refusal(old, record, parts)
        were = old.sizes.model_dump()
        changes = tuple(
            Change(what=what, before=were[what], after=sizes[what])
            for what in _SIZES
            if were[what] is not None and sizes[what] is not None
        )
    found = {"changes": changes, "differences": parts, "update_refusal": refusal}
    return record.model_copy(update={"budgets": tuple(budgets), **found})


def _index(assembly: Assembly, units: Sequence[UnitRecord], joint: Sequence[JointRecord]) -> Index:
    project = assembly.loaded.project
    return Index(
        name=project.name,
        version=project.version,
        license=project.license,
        authors=project.authors,
        homepage=project.homepage,
        edgepack=__version__,
        tools={name: version for name, version in tool_versions().items() if name != "edgepack"},
        only=assembly.only,
        against=assembly.before.version if assembly.before is not None else "",
        units=tuple(sorted(units, key=lambda unit: (unit.model, unit.device))),
        joint=tuple(sorted(joint, key=lambda one: one.path)),
    )


_Key = tuple[str, str, str]


def _groups(assembly: Assembly) -> dict[_Key, list[Unit]]:
    """The units that become one package: by model, format, and a digest of all that decides on it."""
    groups: dict[tuple[str, str], list[tuple[Unit, str]]] = {}
    for unit, built in assembly.parts:
        for name in unit.joint:
            groups.setdefault((unit.model, name), []).append((unit, built.record.inputs))
    found = {}
    for (model, name), members in groups.items():
        members.sort(key=lambda member: member[0].device)
        decides = [
            [key for _, key in members],
            [name, EXPORT_FORMATS.origin(name), epoch()],
            asdict(members[0][0].package),
        ]
        digest = hashlib.sha256(json.dumps(decides).encode()).hexdigest()
        found[model, name, digest] = [unit for unit, _ in members]
    return found


def _joint(key: _Key, units: Sequence[Unit], new: Path) -> list[JointRecord]:
    model, name, digest = key
    bundles = [new / unit.model / unit.device / BUNDLE for unit in units]
    package = replace(units[0].package)
    with temporary_folder(new.parent) as folder:
        made = export_bundles(bundles, [name], folder / "made", package)
        records = []
        for path in made:
            path.rename(new / model / path.name)
            record = package_record(new / model / path.name, name, f"{model}/{path.name}")
            devices = tuple(unit.device for unit in units)
            records.append(JointRecord(**record.model_dump(), model=model, devices=devices, inputs=digest))
    return records
