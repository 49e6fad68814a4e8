"""Words of a bundle that stand in the files of packages: a manifest is somebody else's text.

What a format writes as it is (names of files, of symbols, versions) has its form in the manifest
(``bundle/fields.py``). What this edgepack can make packages of is checked here once, for every format. What
may be any text (names of tensors, descriptions) is for each format to quote.
"""

from __future__ import annotations

from pathlib import Path

from edgepack.abi.header import header
from edgepack.bundle.layout import check_name
from edgepack.bundle.manifest import Manifest
from edgepack.errors import ConfigError

__all__ = ["check_words"]


def check_words(root: Path, manifest: Manifest) -> None:
    """Raise ConfigError unless the name is no reserved word, the dtypes are known, and the libraries and the
    params are among the files whose sums were compared."""
    wrong = []
    dtypes = set(header().dtypes.values())
    if any(tensor.dtype not in dtypes for tensor in (*manifest.inputs, *manifest.outputs)):
        wrong.append("dtype")
    there = {record.path for record in manifest.files}
    named = [*(artifact.path for artifact in manifest.binaries), manifest.params.file]
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
