"""Words of a bundle that stand in the files of packages: a manifest is somebody else's text.

What a format writes as it is (names of files, of symbols, versions) is checked here once, for every format;
what may be any text (names of tensors, descriptions) is for each format to quote.
"""

from __future__ import annotations

import re
from pathlib import Path

from edgepack import abi
from edgepack.bundle.layout import check_name
from edgepack.bundle.manifest import Manifest
from edgepack.errors import ConfigError

__all__ = ["check_words"]

_WORD = re.compile(r"[A-Za-z0-9_.+-]{0,100}")
_DEVICE = re.compile(r"[^\s.\-/\\:*?\"<>|](?:[^/\\:*?\"<>|]{0,98}[^\s./\\:*?\"<>|])?")


def check_words(root: Path, manifest: Manifest) -> None:
    """Raise ConfigError unless names, versions and dtypes are such as edgepack writes them, and the libraries
    and the params are among the files whose sums were compared."""
    device = manifest.device
    words = {
        "symbol": manifest.symbol,
        "edgepack": manifest.edgepack,
        "device.arch": device.arch,
        "device.os": device.os,
        "device.libc": device.libc,
        "device.triple": device.triple,
        "device.cpu": device.cpu,
    }
    wrong = [field for field, word in words.items() if not _WORD.fullmatch(word)]
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", manifest.symbol):
        wrong.append("symbol")
    if not _DEVICE.fullmatch(device.name) or not device.name.isprintable():
        wrong.append("device.name")
    dtypes = set(abi.header().dtypes.values())
    if any(tensor.dtype not in dtypes for tensor in (*manifest.inputs, *manifest.outputs)):
        wrong.append("dtype")
    if any(extent < 0 for tensor in (*manifest.inputs, *manifest.outputs) for extent in tensor.shape):
        wrong.append("shape")
    there = {record.path for record in manifest.files}
    named = [*(artifact.path for artifact in manifest.artifacts), manifest.params.file]
    if any(path is not None and path not in there for path in named):
        wrong.append("artifacts")
    try:
        check_name(manifest.name)
    except ConfigError:
        wrong.append("name")
    if wrong:
        raise ConfigError(
            f"The manifest of {root} has something in the field {wrong[0]} that edgepack does not write.",
            hint="Pack the model again.",
        )
