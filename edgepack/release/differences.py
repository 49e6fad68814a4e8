"""What of a unit is another one than in the release before, and whether its users need more than new params.

A retrained model has the same sizes, so sizes say nothing of it. What a bundle is made of is written into
release.json as digests, part by part (:class:`edgepack.release.index.Contents`), and compared.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from edgepack.bundle.manifest import Manifest, load_manifest
from edgepack.bundle.paths import inside
from edgepack.errors import ConfigError
from edgepack.release.index import Contents, Difference, Index, Part, UnitRecord
from edgepack.system.files import sha256_file

__all__ = ["contents_of", "differences", "update_refusal", "with_contents"]

#: Of a bundle's sources, what is the same for all models.
_COMMON = ("src/runtime/", "src/loader/", "src/model.c")
#: Parts in the order in which they are told, and what each means for who has the library already.
_WHY: dict[Part, str] = {
    "inputs and outputs": "its inputs or outputs are others",
    "tools": "it was made with other versions",
    "options": "it was packed with other options",
    "scales": "integers of its inputs or outputs have another meaning",
    "kernels": "its kernels are others, which hold numbers of a model",
}


def contents_of(manifest: Manifest) -> Contents:
    """The parts of a bundle, each by a digest."""
    tensors = (*manifest.inputs, *manifest.outputs)
    code = [
        (file.path, file.sha256)
        for file in manifest.files
        if file.path.startswith("src/") and not file.path.startswith(_COMMON)
    ]
    model = manifest.model.model_dump(mode="json", exclude={"file", "sha256", "quantised"})
    return Contents(
        weights=manifest.params.id,
        layout=manifest.params.layout,
        kernels=_digest(sorted(code)),
        interface=_digest([(one.name, one.dtype, one.shape) for one in tensors]),
        scales=_digest([one.model_dump(mode="json").get("quantisation") for one in tensors]),
        options=_digest(
            [manifest.options.model_dump(mode="json"), model, manifest.params.mode, manifest.params.key]
        ),
        tools=_digest([manifest.edgepack, manifest.tools, manifest.toolchain.model_dump(mode="json")]),
        updatable=bool(
            manifest.params.layout and manifest.params.mode != "embed" and not manifest.model.quantised
        ),
    )


def _digest(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def with_contents(index: Index, folder: Path) -> Index:
    """A release whose units say what they are made of: those of releases before there were such digests are
    asked by their manifests, where these lie below ``folder`` and are what the index says."""
    return index.model_copy(update={"units": tuple(_asked(unit, folder) for unit in index.units)})


def _asked(unit: UnitRecord, folder: Path) -> UnitRecord:
    if unit.contents is None:
        with suppress(ConfigError, OSError):
            root = inside(folder, unit.bundle)
            if sha256_file(root / "manifest.json") == unit.manifest_sha256:
                return unit.model_copy(update={"contents": contents_of(load_manifest(root))})
    return unit


def differences(before: UnitRecord, now: UnitRecord) -> tuple[Difference, ...]:
    """The parts of a unit that are others now; () where it is the same."""
    pairs: list[tuple[Part, str, str]] = [("model", before.model_sha256, now.model_sha256)]
    if before.contents is not None and now.contents is not None:
        old, new = before.contents, now.contents
        pairs += [
            ("weights", old.weights, new.weights),
            ("kernels", old.kernels, new.kernels),
            ("scales", old.scales, new.scales),
            ("inputs and outputs", old.interface, new.interface),
            ("options", old.options, new.options),
            ("tools", old.tools, new.tools),
        ]
    return tuple(Difference(what=what, before=a, after=b) for what, a, b in pairs if a != b)


def update_refusal(before: UnitRecord, now: UnitRecord, found: Sequence[Difference]) -> str | None:
    """Why who has the library of the release before needs another one; "" where new params alone do, as
    ``edgepack update`` makes them; None where the old one does as it is, or nobody knows."""
    old, new = before.contents, now.contents
    if old is None or new is None or (old.weights, old.layout) == (new.weights, new.layout):
        return None
    changed = {one.what for one in found}
    if old.layout == new.layout and "tools" not in changed:
        return "" if old.updatable else "its params are in the library, or it was quantised as it was packed"
    return next((why for what, why in _WHY.items() if what in changed), "it is another network")
