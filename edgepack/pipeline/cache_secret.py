"""The secret by which what this user's edgepack made is sealed (entries of the cache, units of a release):
who does not have it can make none that is believed."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import stat
from contextlib import suppress

from edgepack.errors import ConfigError
from edgepack.system.paths import config_dir
from edgepack.system.private_files import NotOursError, OwnFolder, own_folder, private_folder, read_own_file

__all__ = ["SECRET_ENV", "cache_secret", "seal"]

#: Environment variable with the secret, for a cache that several machines share.
SECRET_ENV = "EDGEPACK_CACHE_KEY"

_FILE = "cache.key"
_LEAST = 32


def cache_secret() -> bytes:
    """32 bytes: from ``EDGEPACK_CACHE_KEY``, else from a file in the user's configuration, made on first use.

    Raises:
        ConfigError: the environment variable is too short for a secret.
        OSError: the file cannot be made or read, others can read it, or it is no such file.
    """
    if given := os.environ.get(SECRET_ENV, ""):
        if len(given) < _LEAST:
            raise ConfigError(
                f"{SECRET_ENV} has {len(given)} characters; a secret has at least {_LEAST}.",
                hint="Make one with `openssl rand -hex 32`, or unset it.",
            )
        return hashlib.sha256(os.fsencode(given)).digest()
    config = config_dir()
    # It may be a link: those who keep their configuration elsewhere do so. Who could put another one there
    # has this user's home.
    with own_folder(private_folder(config.resolve())) as folder:
        try:
            return _read(folder)
        except FileNotFoundError:
            _make(folder)
            return _read(folder)


def seal(secret: bytes, name: str, content: bytes) -> bytes:
    """The seal of ``content`` under a name, HMAC-SHA-256 (RFC 2104): 64 hexadecimal digits. What was sealed
    under one name is not sealed under another."""
    return hmac.new(secret, name.encode() + b"\n" + content, hashlib.sha256).hexdigest().encode()


def _read(folder: OwnFolder) -> bytes:
    path = folder.path / _FILE
    with read_own_file(folder, _FILE) as file:
        if hasattr(os, "geteuid") and stat.S_IMODE(os.fstat(file).st_mode) & 0o077:
            raise NotOursError(f"other users can read {path}, which is a secret; remove it")
        text = os.read(file, 66).decode("ascii", "replace")
    if not re.fullmatch(r"[0-9a-f]{64}\n?", text):
        raise OSError(f"{path} does not hold 64 hexadecimal digits; remove it")
    return bytes.fromhex(text.strip())


def _make(folder: OwnFolder) -> None:
    """Write the file whole or not at all; another process may have been faster."""
    name = f".{_FILE}-{secrets.token_hex(6)}"
    new, final = folder.path / name, folder.path / _FILE
    with os.fdopen(folder.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "w", encoding="ascii") as file:
        file.write(secrets.token_hex(32) + "\n")
    try:
        final.hardlink_to(new)
    except FileExistsError:
        pass
    except (OSError, NotImplementedError):  # a file system without hard links
        new.rename(final)
    with suppress(FileNotFoundError):
        new.unlink()
