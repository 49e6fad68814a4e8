"""A bundle's shared library before it is loaded into a process."""

from __future__ import annotations

from pathlib import Path

from edgepack.bundle.listed_files import find_damage
from edgepack.bundle.manifest import Artifact, Manifest
from edgepack.bundle.paths import inside
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.loading import check_headers, loader_digest

__all__ = ["check_library", "check_whole_file"]

_HINT = "Pack the model again, or copy the bundle again."


def check_library(root: Path, manifest: Manifest, artifact: Artifact, *, whole: bool) -> Path:
    """Look at a shared library without loading it: what a damaged one does to a process, nothing can catch.

    Args:
        root: the bundle's folder.
        artifact: the library.
        whole: compare all of it with the manifest's hash. Else its size, its headers, and what the loader
            reads.

    Returns:
        its path.

    Raises:
        CheckFailedError: it is damaged, or for another machine.
        ConfigError: it lies outside of the bundle.
    """
    path = inside(root, artifact.path)
    os, arch = manifest.device.os, manifest.device.arch
    try:
        if not path.is_file():
            raise ValueError("it is not a file")
        if (size := path.stat().st_size) != artifact.nbytes:
            raise ValueError(f"it has {size} bytes, {artifact.nbytes} were packed")
        check_headers(path, os, arch)
        if artifact.loader_sha256 not in {"", loader_digest(path, os, arch)}:
            raise ValueError("it differs from what was packed")
    except ValueError as error:
        raise CheckFailedError(f"{path} cannot be loaded: {error}.", hint=_HINT) from error
    except OSError as error:
        raise CheckFailedError(f"{path} cannot be read: {error.strerror or error}.", hint=_HINT) from error
    if whole:
        check_whole_file(root, manifest, artifact.path)
    return path


def check_whole_file(root: Path, manifest: Manifest, name: str) -> None:
    """Raise CheckFailedError unless a file of the bundle has the manifest's hash. Errors as in
    :func:`check_library`."""
    path = inside(root, name)
    record = next((file for file in manifest.files if file.path == name), None)
    if record is None or find_damage(root, record):
        raise CheckFailedError(f"{path} cannot be loaded: it differs from what was packed.", hint=_HINT)
