"""sbom.cdx.json: the bundle's bill of materials, CycloneDX 1.6.

Written without the CycloneDX library, which would bring seven packages for one small file; the tests
validate the result with that library's schema. There is no time in it, and the serial number is derived
from the content, so that the same bundle has the same bill.
"""

from __future__ import annotations

import json
import uuid
from typing import Any

from edgepack.bundle.manifest import Manifest

__all__ = ["file_hash", "render_sbom", "tool_components"]

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
    depends = ["model", "runtime"]
    paths = [artifact.path for artifact in manifest.artifacts]
    if manifest.params.file:
        paths.append(manifest.params.file)
    for path in sorted(paths):
        component: dict[str, Any] = {"type": "file", "bom-ref": f"file:{path}", "name": path}
        if path in files:
            component["hashes"] = file_hash(files[path].sha256)
        components.append(component)
        depends.append(f"file:{path}")
    bom: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "component": {
                "type": "firmware",
                "bom-ref": "bundle",
                "name": f"{manifest.name}-{manifest.device.name}",
            },
            "tools": {"components": tool_components(manifest)},
            "properties": [
                {"name": "edgepack:device", "value": manifest.device.name},
                {"name": "edgepack:triple", "value": manifest.device.triple},
            ],
        },
        "components": components,
        "dependencies": [
            {"ref": "bundle", "dependsOn": depends},
            *({"ref": component["bom-ref"]} for component in components),
        ],
    }
    content = json.dumps(bom, sort_keys=True)
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(_NAMESPACE, content)}"
    return json.dumps(bom, indent=1, ensure_ascii=False) + "\n"


def tool_components(manifest: Manifest) -> list[dict[str, Any]]:
    """What made a bundle: name and version of each package and of the compiler, sorted."""
    tools = {**manifest.tools, manifest.toolchain.name: manifest.toolchain.version}
    return [
        {"type": "application", "name": name, "version": version} for name, version in sorted(tools.items())
    ]


def file_hash(digest: str) -> list[dict[str, str]]:
    """A SHA-256 in hex as CycloneDX has it."""
    return [{"alg": "SHA-256", "content": digest}]
