"""Image layouts of OCI: each descriptor's blob is there and has its digest and its size, and no other is.

Source: the OCI image specification 1.1 (image-layout.md, descriptor.md, manifest.md, image-index.md).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from edgepack.release.archives.policy import Where
from edgepack.release.archives.source import Source

__all__ = ["LAYOUT", "check_layout"]

#: The file by which an image layout is known.
LAYOUT = "oci-layout"
_INDEX = "index.json"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_BLOB = re.compile(r"blobs/sha256/[0-9a-f]{64}")
_LONGEST = 4 << 20
#: Kinds of documents that have descriptors in them -> the fields with one, and with several.
_DOCUMENTS = {
    "application/vnd.oci.image.index.v1+json": (("subject",), ("manifests",)),
    "application/vnd.oci.image.manifest.v1+json": (("config", "subject"), ("layers",)),
}


def check_layout(files: Mapping[str, Source], where: Where) -> int:
    """Compare an image layout with itself.

    Args:
        files: every file of the archive by its path, without ``./``.
        where: for messages.

    Returns:
        how many blobs were compared.

    Raises:
        CheckFailedError: a blob is missing, differs, or is not spoken of; or a document is none.
    """
    return _Layout(files, where).check()


class _Layout:
    def __init__(self, files: Mapping[str, Source], where: Where) -> None:
        self._files, self._where = files, where
        self._sizes: dict[str, int] = {}

    def check(self) -> int:
        for path in self._files:
            if path not in (LAYOUT, _INDEX) and not _BLOB.fullmatch(path):
                raise self._where.differs(f"{path[:100]!r} is no part of an OCI image layout")
        if self._document(LAYOUT) != {"imageLayoutVersion": "1.0.0"}:
            raise self._wrong(LAYOUT, "is not of version 1.0.0")
        for path, source in self._files.items():
            if path.startswith("blobs/"):
                self._blob(path, source)
        self._descend(_INDEX, "application/vnd.oci.image.index.v1+json")
        if extra := self._files.keys() - self._sizes.keys() - {LAYOUT, _INDEX}:
            raise self._wrong(min(extra), "is in no manifest")
        return len(self._sizes)

    def _wrong(self, what: str, why: str) -> Exception:
        return self._where.unsafe(f"in its OCI image layout, {what[:100]!r} {why}")

    def _blob(self, path: str, source: Source) -> None:
        digest = hashlib.sha256()
        for chunk in source.chunks():
            digest.update(chunk)
        if digest.hexdigest() != path.rpartition("/")[2]:
            raise self._wrong(path, "has another digest than its name")

    def _document(self, path: str) -> dict[str, Any]:
        source = self._files.get(path)
        if source is None or source.size > _LONGEST:
            raise self._wrong(path, "is missing or too long")
        try:
            found = json.loads(source.read(0, source.size), object_pairs_hook=_once)
        except (ValueError, RecursionError) as error:
            raise self._wrong(path, f"is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise self._wrong(path, "is no object of JSON")
        return found

    def _descend(self, path: str, media_type: str) -> None:
        """Check the descriptors of an index or a manifest, and of those that it names."""
        waiting = [(path, media_type)]
        seen = set()
        while waiting:
            path, media_type = waiting.pop()
            if path in seen:
                continue
            seen.add(path)
            said = self._document(path)
            single, several = _DOCUMENTS[media_type]
            if said.get("schemaVersion") != 2 or said.get("mediaType", media_type) != media_type:
                raise self._wrong(path, f"is not of the kind {media_type}")
            others = {"manifests", "layers", "config"} - {*single, *several}
            if any(field in said for field in others):
                raise self._wrong(path, "is a manifest and an index")
            found = [said[field] for field in single if field in said]
            for field in several:
                if not isinstance(said.get(field), list):
                    raise self._wrong(path, f"has no {field}")
                found += said[field]
            if "config" in single and "config" not in said:
                raise self._wrong(path, "has no config")
            for descriptor in found:
                blob, kind = self._descriptor(path, descriptor)
                if kind in _DOCUMENTS:
                    waiting.append((blob, kind))

    def _descriptor(self, path: str, said: Any) -> tuple[str, str]:
        """The blob that it names, and its media type."""
        said = said if isinstance(said, dict) else {}
        digest = _DIGEST.fullmatch(str(said.get("digest")))
        kind, size = said.get("mediaType"), said.get("size")
        if digest is None or not isinstance(kind, str) or type(size) is not int or "urls" in said:
            raise self._wrong(path, "has a descriptor without digest, size or media type, or with addresses")
        blob = f"blobs/sha256/{digest[1]}"
        source = self._files.get(blob)
        if source is None:
            raise self._wrong(blob, f"is missing; {path} names it")
        if source.size != size:
            raise self._wrong(blob, f"has {source.size} bytes, and {path} says {size}")
        self._sizes[blob] = size
        if "data" in said and _decoded(said["data"]) != source.read(0, source.size):
            raise self._wrong(blob, f"differs from what {path} has of it")
        return blob, kind


def _decoded(data: Any) -> bytes | None:
    try:
        return base64.b64decode(data, validate=True) if isinstance(data, str) else None
    except ValueError:
        return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found
