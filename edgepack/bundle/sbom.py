"""sbom.cdx.json: the bundle's bill of materials, CycloneDX 1.6.

Written without the CycloneDX library, which would bring seven packages for one small file; the tests
validate the result with that library's schema. There is no time in it, and the serial number is derived
from the content, so that the same bundle has the same bill.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from edgepack.bundle.manifest import Manifest

__all__ = ["bill_of_materials", "file_hash", "render_sbom", "tool_components"]

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:edgepack:bundle")


def render_sbom(manifest: Manifest) -> str:
    """The text of sbom.cdx.json: the model, its params, edgepack's runtime, every library and program with
    its hash, and the tools that made them."""
    files = {record.path: record for record in manifest.files}
    model = {
        "type": "machine-learning-model",
        "bom-ref": "model",
        "name": manifest.model.file,
        "hashes": file_hash(manifest.model.sha256),
        "properties": [{"name": "edgepack:role", "value": "the model file that was packed"}],
    }
    runtime = {
        "type": "library",
        "bom-ref": "runtime",
        "name": "edgepack-runtime",
        "version": manifest.edgepack,
        "licenses": [{"license": {"id": "Apache-2.0"}}],
    }
    components: list[dict[str, Any]] = [model, runtime]
    paths = [artifact.path for artifact in manifest.binaries]
    if manifest.params.file:
        paths.append(manifest.params.file)
    for path in sorted(paths):
        component: dict[str, Any] = {"type": "file", "bom-ref": f"file:{path}", "name": path}
        if path in files:
            component["hashes"] = file_hash(files[path].sha256)
        components.append(component)
    bill = bill_of_materials(
        {"type": "firmware", "bom-ref": "bundle", "name": f"{manifest.name}-{manifest.device.name}"},
        tools=tool_components(manifest),
        properties=[("edgepack:device", manifest.device.name), ("edgepack:triple", manifest.device.triple)],
        components=components,
        namespace=_NAMESPACE,
    )
    return json.dumps(bill, indent=1, ensure_ascii=False) + "\n"


def bill_of_materials(
    subject: Mapping[str, Any],
    *,
    tools: Sequence[Mapping[str, Any]],
    properties: Sequence[tuple[str, str]],
    components: Sequence[Mapping[str, Any]],
    namespace: uuid.UUID,
) -> dict[str, Any]:
    """A bill of CycloneDX 1.6, whose serial number is derived from its content.

    Args:
        subject: the component that the bill is of; it depends on all others, and these on nothing.
        tools: what made it.
        properties: names and values.
        components: what is in it, in the order of the bill; each has a ``bom-ref``.
        namespace: of the serial number.
    """
    bill: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": subject,
            "tools": {"components": list(tools)},
            "properties": [{"name": name, "value": value} for name, value in properties],
        },
        "components": list(components),
        "dependencies": [
            {"ref": subject["bom-ref"], "dependsOn": [one["bom-ref"] for one in components]},
            *({"ref": one["bom-ref"]} for one in components),
        ],
    }
    bill["serialNumber"] = f"urn:uuid:{uuid.uuid5(namespace, json.dumps(bill, sort_keys=True))}"
    return bill


def tool_components(manifest: Manifest) -> list[dict[str, Any]]:
    """What made a bundle: name and version of each package and of the compiler, sorted."""
    tools = {**manifest.tools, manifest.toolchain.name: manifest.toolchain.version}
    return [
        {"type": "application", "name": name, "version": version} for name, version in sorted(tools.items())
    ]


def file_hash(digest: str) -> list[dict[str, str]]:
    """A SHA-256 in hex as CycloneDX has it."""
    return [{"alg": "SHA-256", "content": digest}]
