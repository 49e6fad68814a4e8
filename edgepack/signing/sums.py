"""Signs a folder's SHA256SUMS, or a package, and checks such a signature of sums."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.errors import CheckFailedError, ConfigError
from edgepack.system.atomic import write_file
from edgepack.system.files import read_regular
from edgepack.system.installation import extra_command

if TYPE_CHECKING:
    from edgepack.signing.cosign import CosignPublicKey, CosignSecretKey
    from edgepack.signing.minisign import MinisignPublicKey, MinisignSecretKey

__all__ = [
    "PASSWORD",
    "SIGNATURES",
    "check_signature",
    "is_encrypted",
    "public_key",
    "secret_key",
    "sign_file",
    "sign_sums",
    "signature_files",
]

#: The environment variable with the password of an encrypted key.
PASSWORD = "EDGEPACK_SIGNING_PASSWORD"
SUMS = "SHA256SUMS"
#: What a signature's file is called behind the name of what is signed: of minisign, of cosign.
SIGNATURES = (".minisig", ".sig")
_ENVIRONMENT = "env://"
#: Bytes of a key or a signature, and of sums.
_LARGEST_KEY, _LARGEST_SUMS = 64 << 10, 64 << 20
#: What is a public key itself, whatever files there are: minisign's line, also one that lost some characters,
#: and the text of a key's file.
_KEY_TEXT = re.compile(r"\s*(RW[A-Za-z0-9+/=]{46,62}\s*|untrusted comment:.*|-----BEGIN .*)", re.DOTALL)


def secret_key(source: str | Path, password: str | None = None) -> MinisignSecretKey | CosignSecretKey:
    """A key to sign with.

    Args:
        source: a file, or ``env://NAME`` for a variable that holds what the file would.
        password: of an encrypted key; default the variable ``EDGEPACK_SIGNING_PASSWORD``.

    Raises:
        ConfigError: there is none, it is of another kind, or its password is missing or wrong.
    """
    _check_installed()
    from edgepack.signing import cosign, minisign

    text, where = _text(source)
    given = password if password is not None else os.environ.get(PASSWORD)
    if text.startswith("-----BEGIN"):
        if "PUBLIC KEY" in text.split("\n", 1)[0]:
            raise ConfigError(f"{where} is a public key.", hint="Sign with the private one.")
        return cosign.read_secret(text, where, given)
    return minisign.read_secret(text, where, given)


def public_key(source: str | Path) -> MinisignPublicKey | CosignPublicKey:
    """A key to verify with: a file, ``env://NAME``, or the line of base64 that ``minisign -P`` takes.

    What has the form of a key is one, also where there is a file of that name (``./RW...`` names the file):
    the folder may be somebody else's.

    Raises:
        ConfigError: there is none, or it is of another kind.
    """
    _check_installed()
    from edgepack.signing import cosign, minisign

    given = str(source)
    text, where = (given.strip() + "\n", "The key") if _KEY_TEXT.fullmatch(given) else _text(source)
    if "PRIVATE KEY" in text.split("\n", 1)[0] or "secret key" in text.split("\n", 1)[0]:
        raise ConfigError(f"{where} is a secret key.", hint="Verify with the public one.")
    read = cosign.read_public if text.startswith("-----BEGIN") else minisign.read_public
    return read(text, where)


def sign_sums(folder: Path, key: MinisignSecretKey | CosignSecretKey, comment: str = "") -> Path:
    """Sign ``folder/SHA256SUMS``; an older signature of the same kind is replaced.

    Args:
        comment: one line that is signed with it; default ``file:SHA256SUMS``. cosign's signatures have none.

    Returns:
        the signature's file: ``SHA256SUMS.minisig`` or ``SHA256SUMS.sig``.

    Raises:
        ConfigError: there are no sums, the comment is no line, or the file cannot be written.
    """
    if not comment.isprintable() or len(comment) > 1000:
        raise ConfigError(
            "The comment of a signature is one line of at most 1000 characters.", hint="Shorten it."
        )
    data = _read(folder / SUMS, "Pack the model, or make the release, first.")
    target = folder / f"{SUMS}{key.suffix}"
    try:
        write_file(target, key.sign(data, comment or f"file:{SUMS}").encode())
    except OSError as error:
        raise ConfigError(
            f"{target} cannot be written: {error.strerror}.", hint="Make the folder writable."
        ) from error
    return target


def sign_file(path: Path, key: MinisignSecretKey | CosignSecretKey) -> Path:
    """Sign a file of any size that fits into memory, with the comment ``file:NAME``.

    Returns:
        the signature's file beside it: ``NAME.minisig`` or ``NAME.sig``.

    Raises:
        OSError: as for the file.
    """
    target = path.with_name(path.name + key.suffix)
    target.write_text(key.sign(path.read_bytes(), f"file:{path.name}"), encoding="utf-8", newline="\n")
    return target


def check_signature(folder: Path, key: MinisignPublicKey | CosignPublicKey) -> str:
    """Check the signature over ``folder/SHA256SUMS``. The files that it names are compared elsewhere
    (``bundle/checksums.py``).

    Returns:
        the trusted comment; "" for cosign's.

    Raises:
        CheckFailedError: there is no signature, it is another key's, or does not match.
        ConfigError: there are no sums.
    """
    path = folder / f"{SUMS}{key.suffix}"
    if not path.is_file():
        raise CheckFailedError(
            f"{folder} has no {path.name}: nobody signed it with such a key.",
            hint="Ask whom you have it from for the signature.",
        )
    signature = _read(path, "Sign it again.", _LARGEST_KEY).decode("utf-8", "replace")
    return key.check(_read(folder / SUMS, "Get the files again."), signature, str(path))


def signature_files(folder: Path) -> list[str]:
    """Names of the signatures that a folder has; links, and files that are too large for one, are none."""
    paths = [folder / f"{SUMS}{suffix}" for suffix in SIGNATURES]
    return [path.name for path in paths if _is_small_file(path)]


def _is_small_file(path: Path) -> bool:
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_size <= _LARGEST_KEY


def is_encrypted(source: str | Path) -> bool:
    """Whether a secret key needs a password. Errors as for :func:`secret_key`."""
    _check_installed()
    from edgepack.signing.minisign import decoded

    text, _ = _text(source)
    first, second = [*text.splitlines(), "", ""][:2]
    return "ENCRYPTED" in first or decoded(second)[2:4] == b"Sc"


def _text(source: str | Path) -> tuple[str, str]:
    """What a key's file or variable holds, and what to call it."""
    if str(source).startswith(_ENVIRONMENT):
        name = str(source)[len(_ENVIRONMENT) :]
        if not (text := os.environ.get(name, "")):
            raise ConfigError(f"The environment variable {name!r} with the key is not set.", hint="Set it.")
        return text.strip() + "\n", f"The key in {name}"
    try:
        return read_regular(Path(source), _LARGEST_KEY).decode("ascii"), str(source)
    except OSError as error:
        raise ConfigError(
            f"{source} cannot be read: {error.strerror or error}.", hint="Give the file of a key."
        ) from error
    except ValueError as error:
        raise ConfigError(f"{source} is no key.", hint="Give a key of minisign or cosign.") from error


def _read(path: Path, hint: str, most: int = _LARGEST_SUMS) -> bytes:
    try:
        return read_regular(path, most)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise ConfigError(f"{path} cannot be read: {why}.", hint=hint) from error


def _check_installed() -> None:
    try:
        import cryptography  # noqa: F401
        import nacl  # noqa: F401
    except ImportError as error:
        raise ConfigError(
            f"Signatures need a package that is not installed: {error.name}.",
            hint=extra_command("sign"),
        ) from error
