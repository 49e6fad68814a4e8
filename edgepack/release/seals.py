"""Remembers the releases that this user's edgepack made, by a seal over each one's SHA256SUMS.

A release is the same bytes whoever makes it, so the seal does not lie in it but in the cache, under the sums'
own digest: also for a release that was moved. Without its seal a release is shown and replaced, but none of
its files is taken into the next one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from contextlib import suppress

from edgepack.pipeline.cache_secret import cache_secret, seal
from edgepack.system.paths import cache_dir
from edgepack.system.private_files import OwnFolder, own_folder, private_folder, read_own_file

__all__ = ["is_remembered", "remember"]

_FOLDER = "releases-1"
_NAME = "release"
#: Seals that are kept, the newest: 64 bytes each.
_MOST = 1000


def remember(sums: bytes) -> str:
    """Seal a release by the content of its SHA256SUMS.

    Returns:
        why that cannot be done here, or "".
    """
    try:
        secret = cache_secret()
        with own_folder(private_folder(cache_dir() / _FOLDER)) as folder:
            name = hashlib.sha256(sums).hexdigest()
            folder.remove(name)
            with os.fdopen(folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
                file.write(seal(secret, _NAME, sums))
            _trim(folder)
    except OSError as error:
        return str(error.strerror or error)
    return ""


def is_remembered(sums: bytes) -> bool:
    """Whether SHA256SUMS with this content was sealed by this user's secret."""
    with suppress(OSError):
        secret = cache_secret()
        with (
            own_folder(cache_dir() / _FOLDER) as folder,
            read_own_file(folder, hashlib.sha256(sums).hexdigest()) as file,
        ):
            return hmac.compare_digest(os.read(file, 65), seal(secret, _NAME, sums))
    return False


def _trim(folder: OwnFolder) -> None:
    names = folder.names()
    if len(names) > _MOST:
        for name in sorted(names, key=lambda one: folder.status(one).st_mtime_ns)[:-_MOST]:
            folder.remove(name)
