"""Bundles as an OCI artifact, an image layout in a tar archive: registries of containers keep and serve it.

Source: the OCI image specification 1.1 (image-layout.md, manifest.md, image-index.md, annotations.md).
"""

from __future__ import annotations

import base64
import hashlib
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from edgepack.bundle.layout import SBOM
from edgepack.formats.archives import Entry, bundle_entries, epoch, write_tar, write_tar_gz
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.languages import package_name
from edgepack.render.templates import render
from edgepack.system.files import sha256_file
from edgepack.text.printable import printable

__all__ = ["OCI", "platform"]

#: What the artifact is, and its layers: the bundle as an archive.
ARTIFACT, ARCHIVE = "application/vnd.edgepack.bundle.v1", "application/vnd.edgepack.bundle.v1.tar+gzip"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_INDEX = "application/vnd.oci.image.index.v1+json"
_IMAGE = "org.opencontainers.image"
#: A repository's last component; the part before it is the registry's business.
_NAME = r"[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*"
_SYSTEMS = {"macos": "darwin", "wasi": "wasip1"}
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "wasm32": "wasm"}

Json = dict[str, Any]


def platform(bundle: SourceBundle) -> Json:
    """The device as Go names it (``GOOS``, ``GOARCH``), by which clients choose; empty without a system."""
    device = bundle.manifest.device
    if device.bare_metal:
        return {}
    found = {
        "architecture": _ARCHITECTURES.get(device.arch, device.arch),
        "os": _SYSTEMS.get(device.os, device.os),
    }
    if device.arch == "arm":
        found["variant"] = "v6" if device.triple.startswith("armv6") else "v7"
    return found


class _Blobs:
    """Contents by their digests, for the tar archive."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}

    def add(self, content: bytes | Path, media_type: str, **more: Any) -> Json:
        """Keep a content; returns its descriptor."""
        digest = hashlib.sha256(content).hexdigest() if isinstance(content, bytes) else sha256_file(content)
        entry = Entry(f"blobs/sha256/{digest}", content)
        self.entries[entry.name] = entry
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": entry.size, **more}

    def add_json(self, value: Json, media_type: str, **more: Any) -> Json:
        return self.add(_json(value), media_type, **more)


def _json(value: Json) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def _annotations(job: ExportJob, base: str) -> dict[str, str]:
    package = job.package
    found = {
        "title": base,
        "version": job.version,
        "description": package.summary or f"{job.name}, a model compiled ahead of time",
        "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch())),
        "licenses": package.license,
        "authors": ", ".join(package.authors),
        "url": package.homepage,
    }
    return {f"{_IMAGE}.{name}": text for name, text in found.items() if text}


def _manifest(
    blobs: _Blobs, bundle: SourceBundle, archive: Path, readme: bytes, annotations: dict[str, str]
) -> Json:
    """The descriptor of a bundle's manifest."""
    empty = b"{}"
    config = blobs.add(
        empty, "application/vnd.oci.empty.v1+json", data=base64.b64encode(empty).decode("ascii")
    )

    def title(name: str) -> Json:
        return {"annotations": {f"{_IMAGE}.title": name}}

    stem = archive.name.removesuffix(".tar.gz")
    layers = [
        blobs.add(archive, ARCHIVE, **title(archive.name)),
        blobs.add(bundle.root / SBOM, "application/vnd.cyclonedx+json", **title(f"{stem}.cdx.json")),
        blobs.add(readme, "text/markdown", **title("README.md")),
    ]
    made = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "artifactType": ARTIFACT,
        "config": config,
        "layers": layers,
        "annotations": {
            **annotations,
            "dev.edgepack.device": bundle.manifest.device.name,
            "dev.edgepack.params.id": bundle.manifest.params.id,
            "dev.edgepack.version": bundle.manifest.edgepack,
        },
    }
    more = {"platform": platform(bundle)} if platform(bundle) else {}
    return blobs.add_json(made, _MANIFEST, artifactType=ARTIFACT, **more)


def _write(job: ExportJob) -> Sequence[str]:
    base = package_name(job.package.name, job.name.lower(), _NAME, "an OCI repository: a-z, 0-9, ., - and _")
    devices = job.bundle.manifest.device.name if len(job.bundles) == 1 else f"{len(job.bundles)}-devices"
    file = f"{base}-{devices}-{job.version}-oci.tar"
    stems = {id(one): f"{base}-{one.manifest.device.name}-{job.version}" for one in job.bundles}
    first = platform(job.bundle)
    readme = render(
        "formats/oci/readme.md.j2",
        {
            "base": base,
            "name": job.name,
            "version": job.version,
            "file": file,
            "summary": job.package.summary or f"{job.name}, a model compiled ahead of time",
            "platform": _text(first) if len(job.bundles) > 1 else "",
            "edgepack": job.bundle.manifest.edgepack,
            "bundles": [
                {
                    "device": printable(one.manifest.device.name),
                    "platform": _text(platform(one)),
                    "archive": f"{stems[id(one)]}.tar.gz",
                }
                for one in job.bundles
            ],
        },
    ).encode()
    blobs, manifests, archives = _Blobs(), [], []
    annotations = _annotations(job, base)
    for number, bundle in enumerate(job.bundles):
        folder = job.folder / f"layer-{number}"
        folder.mkdir()
        archives.append(folder / f"{stems[id(bundle)]}.tar.gz")
        write_tar_gz(archives[-1], bundle_entries(bundle.root, bundle.whole(), stems[id(bundle)]))
        manifests.append(_manifest(blobs, bundle, archives[-1], readme, annotations))
    root = manifests[0]
    if len(manifests) > 1:
        index = {"schemaVersion": 2, "mediaType": _INDEX, "artifactType": ARTIFACT, "manifests": manifests}
        root = blobs.add_json({**index, "annotations": annotations}, _INDEX, artifactType=ARTIFACT)
    tagged = {**root, "annotations": {f"{_IMAGE}.ref.name": job.version}}
    layout = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [tagged]}),
    }
    with (job.folder / file).open("wb") as out:
        write_tar(out, [*(Entry(name, data) for name, data in layout.items()), *blobs.entries.values()])
    for archive in archives:
        archive.unlink()
        archive.parent.rmdir()
    return [file]


def _text(found: Json) -> str:
    return "/".join(found[key] for key in ("os", "architecture", "variant") if key in found)


def _refusal(bundle: SourceBundle) -> str:
    return "" if SBOM in bundle.files() else f"it has no {SBOM}; pack the model again."


OCI = ExportFormat("An OCI artifact, for container registries", _refusal, _write, several=True, whole=True)
