"""What a release says of where its packages come from, for tools that read it: a bill of materials for each
(CycloneDX 1.6), and one statement of provenance (in-toto, SLSA 1.0).

No time, host or user is in them: the same inputs and versions give the same bytes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from edgepack.bundle.manifest import Manifest, load_manifest
from edgepack.bundle.sbom import bill_of_materials, file_hash, tool_components
from edgepack.release.index import Index, PackageRecord, UnitRecord
from edgepack.report.build import render_report

__all__ = ["BILLS", "PROVENANCE", "REPORTS", "package_bill", "provenance", "write_attestations"]

#: Folders in a release, with a file for each package and unit, and a file at its top.
BILLS, REPORTS = "sbom", "reports"
PROVENANCE = "provenance.intoto.json"

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:edgepack:package")
#: What a bundle's own files are licensed by, and what made its machine code.
_LICENSES = {
    "apache-tvm": "Apache-2.0",
    "edgepack": "Apache-2.0",
    "llvm": "Apache-2.0 WITH LLVM-exception",
}


def write_attestations(root: Path, index: Index) -> None:
    """Write the bills, the reports and the statement into a release whose bundles and packages are there."""
    manifests = {unit.name: load_manifest(root / unit.bundle) for unit in index.units}
    for record, units in _packages(index):
        bundles = [manifests[unit.name] for unit in units]
        _write(root / BILLS / f"{record.path}.cdx.json", package_bill(index, record, bundles))
    for unit in index.units:
        report = render_report(manifests[unit.name])
        _write(root / REPORTS / unit.model / f"{unit.device}.html", report)
    _write(root / PROVENANCE, provenance(index, manifests))


def _packages(index: Index) -> Iterator[tuple[PackageRecord, list[UnitRecord]]]:
    """Each package with the units whose bundles are in it."""
    for unit in index.units:
        for record in unit.packages:
            yield record, [unit]
    for joint in index.joint:
        of_it = [one for one in index.units if one.model == joint.model and one.device in joint.devices]
        yield joint, of_it


def package_bill(index: Index, record: PackageRecord, manifests: Sequence[Manifest]) -> str:
    """The bill of materials of one package, CycloneDX 1.6: each bundle's model, weights, libraries and
    programs by hash, edgepack's runtime, the tools that made them, and the licences that are known.

    Args:
        index: of the release.
        record: the package.
        manifests: of the bundles in it.
    """
    components: dict[str, dict[str, Any]] = {}
    for manifest in manifests:
        for component in _components(index, manifest):
            components[component["bom-ref"]] = component
    tools = {(one["name"], one["version"]): one for m in manifests for one in tool_components(m)}
    package = {
        "type": "application",
        "bom-ref": "package",
        "name": record.path.rpartition("/")[2],
        "version": index.version,
        "hashes": file_hash(record.sha256),
        **_licensed(index.license),
    }
    bill = bill_of_materials(
        package,
        tools=[_tool(tools[key]) for key in sorted(tools)],
        properties=[
            ("edgepack:format", record.format),
            *(("edgepack:device", one.device.name) for one in manifests),
        ],
        components=[components[ref] for ref in sorted(components)],
        namespace=_NAMESPACE,
    )
    return _text(bill)


def _components(index: Index, manifest: Manifest) -> Iterator[dict[str, Any]]:
    files = {record.path: record.sha256 for record in manifest.files}
    device, params = manifest.device.name, manifest.params
    yield {
        "type": "machine-learning-model",
        "bom-ref": f"model:{manifest.model.sha256}",
        "name": manifest.model.file,
        "hashes": file_hash(manifest.model.sha256),
        **_licensed(index.license),
    }
    yield {
        "type": "data",
        "bom-ref": f"weights:{device}",
        "name": f"weights of {manifest.name} for {device}",
        "hashes": file_hash(params.id),
        "properties": [{"name": "edgepack:params-layout", "value": params.layout}],
    }
    yield {
        "type": "library",
        "bom-ref": f"runtime:{manifest.edgepack}",
        "name": "edgepack-runtime",
        "version": manifest.edgepack,
        **_licensed("Apache-2.0"),
    }
    paths = [artifact.path for artifact in manifest.binaries] + ([params.file] if params.file else [])
    for path in sorted(paths):
        yield {
            "type": "file",
            "bom-ref": f"file:{device}:{path}",
            "name": path,
            **({"hashes": file_hash(files[path])} if path in files else {}),
        }


def _licensed(expression: str) -> dict[str, Any]:
    return {"licenses": [{"expression": expression}]} if expression else {}


def _tool(component: Mapping[str, Any]) -> dict[str, Any]:
    return {**component, **_licensed(_LICENSES.get(component["name"], ""))}


def provenance(index: Index, manifests: Mapping[str, Manifest]) -> str:
    """The statement of how the packages came about: an in-toto Statement 1 with SLSA's predicate
    ``provenance/v1``. It is not signed itself: SHA256SUMS names it.

    Args:
        index: of the release.
        manifests: of its bundles, by the units' names.
    """
    records = sorted({one.path: one for one, _ in _packages(index)}.items())
    units = [
        {
            "model": unit.model,
            "device": unit.device,
            "bound": manifests[unit.name].model.model_dump(mode="json", exclude={"file", "sha256"}),
            "options": manifests[unit.name].options.model_dump(mode="json"),
            "params": manifests[unit.name].params.mode,
            "formats": sorted({one.format for one in unit.packages}),
        }
        for unit in index.units
    ]
    models = {one.model.sha256: one.model.file for one in manifests.values()}
    tools = {**index.tools}
    compilers = {m.toolchain.name: m.toolchain.version for m in manifests.values()}
    dependencies: list[dict[str, Any]] = [
        {"name": file, "digest": {"sha256": digest}} for digest, file in sorted(models.items())
    ]
    dependencies += [
        {"name": name, "uri": f"pkg:pypi/{name}@{version}"} for name, version in sorted(tools.items())
    ]
    dependencies += [
        {"name": name, "annotations": {"version": version}} for name, version in sorted(compilers.items())
    ]
    statement = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": path, "digest": {"sha256": one.sha256}} for path, one in records]
        + [
            {"name": f"{unit.bundle}/manifest.json", "digest": {"sha256": unit.manifest_sha256}}
            for unit in index.units
        ],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:edgepack:release:1",
                "externalParameters": {
                    "command": "edgepack release",
                    "project": index.name,
                    "version": index.version,
                    "only": list(index.only),
                    "units": units,
                },
                "resolvedDependencies": dependencies,
            },
            "runDetails": {"builder": {"id": "urn:edgepack", "version": {"edgepack": index.edgepack}}},
        },
    }
    return _text(statement)


def _text(data: Mapping[str, Any]) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")
