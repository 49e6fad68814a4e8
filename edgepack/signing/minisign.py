"""minisign's keys and signatures: Ed25519 over the BLAKE2b-512 of a file, with a trusted comment.

The formats are those of https://jedisct1.github.io/minisign/ (version 0.8 and later). Signatures of its
older kind, over the file itself, are refused. Ed25519 is deterministic: the same key, file and comment give
the same signature.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import struct
from dataclasses import dataclass

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from edgepack.errors import CheckFailedError, ConfigError

__all__ = ["SUFFIX", "MinisignPublicKey", "MinisignSecretKey", "decoded", "read_public", "read_secret"]

SUFFIX = ".minisig"
_COMMENT = "untrusted comment: "
_TRUSTED = "trusted comment: "
_KEY, _HASHED = b"Ed", b"ED"
_SCRYPT, _PLAIN, _BLAKE2 = b"Sc", b"\0\0", b"B2"
#: Algorithms of signature, key derivation and checksum; salt; operations and bytes of scrypt; key's number,
#: secret key, checksum.
_SECRET = struct.Struct("<2s2s2s32sQQ104s")
#: Bytes that the derivation of a key may take: minisign's own keys take as much.
_MOST_MEMORY = 1 << 30


@dataclass(frozen=True)
class MinisignPublicKey:
    """A key to verify with.

    Attributes:
        number: 8 bytes that tell keys apart; minisign prints them as a number in hexadecimal.
        key: 32 bytes, of Ed25519.
    """

    number: bytes
    key: bytes
    suffix: str = SUFFIX

    @property
    def name(self) -> str:
        """The key's number as minisign prints it."""
        return _name(self.number)

    @property
    def raw(self) -> bytes:
        """The 32 bytes that a library holds."""
        return self.key

    def check(self, data: bytes, signature: str, what: str) -> str:
        """The trusted comment, if ``signature`` is this key's over ``data``; CheckFailedError if not."""
        lines = signature.splitlines()
        if len(lines) != 4 or not lines[0].startswith(_COMMENT) or not lines[2].startswith(_TRUSTED):
            raise CheckFailedError(f"{what} is no signature of minisign.", hint="Sign it again.")
        first, last = decoded(lines[1]), decoded(lines[3])
        if len(first) != 74 or len(last) != 64 or first[:2] not in {_KEY, _HASHED}:
            raise CheckFailedError(f"{what} is no signature of minisign.", hint="Sign it again.")
        if first[:2] == _KEY:
            raise CheckFailedError(
                f"{what} is a signature of minisign's older kind.", hint="Sign without minisign's option -l."
            )
        if first[2:10] != self.number:
            raise CheckFailedError(
                f"{what} was made with the key {_name(first[2:10])}, not with {self.name}.",
                hint="Check with the public key of whom you expect it from, or do not use these files.",
            )
        comment = lines[2][len(_TRUSTED) :]
        public = Ed25519PublicKey.from_public_bytes(self.key)
        try:
            public.verify(first[10:], hashlib.blake2b(data).digest())
            public.verify(last, first[10:] + comment.encode())
        except InvalidSignature:
            raise CheckFailedError(
                f"{what} does not match: what was signed, or the signature, was changed.",
                hint="Do not use these files: get them again from whom you expect them.",
            ) from None
        return comment


@dataclass(frozen=True)
class MinisignSecretKey:
    """A key to sign with; ``seed``: 32 bytes, of Ed25519."""

    number: bytes
    seed: bytes
    suffix: str = SUFFIX

    @property
    def public(self) -> MinisignPublicKey:
        """What verifies its signatures."""
        key = Ed25519PrivateKey.from_private_bytes(self.seed).public_key()
        return MinisignPublicKey(self.number, key.public_bytes(Encoding.Raw, PublicFormat.Raw))

    def sign(self, data: bytes, comment: str) -> str:
        """The text of the signature file; ``comment`` is signed too."""
        key = Ed25519PrivateKey.from_private_bytes(self.seed)
        signature = key.sign(hashlib.blake2b(data).digest())
        over_all = key.sign(signature + comment.encode())
        first = _encoded(_HASHED + self.number + signature)
        header = f"{_COMMENT}signature of the key {_name(self.number)}"
        return f"{header}\n{first}\n{_TRUSTED}{comment}\n{_encoded(over_all)}\n"

    def sign_raw(self, message: bytes) -> bytes:
        """The plain Ed25519 signature, 64 bytes."""
        return bytes(Ed25519PrivateKey.from_private_bytes(self.seed).sign(message))


def read_public(text: str, where: str) -> MinisignPublicKey:
    """A public key: the two lines of minisign's file, or the second of them alone."""
    lines = text.split("\n")
    data = decoded(lines[1] if lines[0].startswith(_COMMENT) and len(lines) > 1 else lines[0])
    if len(data) != 42 or data[:2] != _KEY:
        raise ConfigError(f"{where} is no public key of minisign.", hint="Give the file minisign.pub.")
    return MinisignPublicKey(data[2:10], data[10:])


def read_secret(text: str, where: str, password: str | None) -> MinisignSecretKey:
    """A secret key, deciphered by the password where it is encrypted.

    Raises:
        ConfigError: it is none, the password is missing or wrong, or its derivation takes more than 1 GiB.
    """
    lines = text.split("\n")
    data = decoded(lines[1]) if len(lines) > 1 else b""
    if len(data) != _SECRET.size:
        raise ConfigError(f"{where} is no secret key of minisign.", hint="Give what `minisign -G` saved.")
    algorithm, derivation, checksum, salt, operations, memory, secret = _SECRET.unpack(data)
    if algorithm != _KEY or checksum != _BLAKE2 or derivation not in {_SCRYPT, _PLAIN}:
        raise ConfigError(f"{where} is a key of a kind that edgepack does not know.", hint="Use minisign's.")
    if derivation == _SCRYPT:
        if password is None:
            raise ConfigError(
                f"{where} is encrypted, and there is no password.",
                hint="Set EDGEPACK_SIGNING_PASSWORD, or make a key without one: minisign -G -W.",
            )
        stream = _stream(password, salt, operations, memory, where)
        secret = bytes(a ^ b for a, b in zip(secret, stream, strict=True))
        if hashlib.blake2b(algorithm + secret[:72], digest_size=32).digest() != secret[72:]:
            raise ConfigError(f"The password of {where} is wrong.", hint="Check EDGEPACK_SIGNING_PASSWORD.")
    key = MinisignSecretKey(secret[:8], secret[8:40])
    if key.public.key != secret[40:72]:
        raise ConfigError(f"{where} is damaged: its two halves do not belong together.", hint="Restore it.")
    return key


def _stream(password: str, salt: bytes, operations: int, memory: int, where: str) -> bytes:
    """What the secret part is encrypted by: scrypt, whose cost follows from the two limits as in libsodium
    (``crypto_pwhash_scryptsalsa208sha256``)."""
    operations = max(operations, 32768)
    by_memory = operations >= memory // 32
    most = memory // (8 * 128) if by_memory else operations // (8 * 4)
    n = 2
    while n <= most // 2 and n < 1 << 62:
        n *= 2
    p = min(operations // 4 // n, 0x3FFFFFFF) // 8 if by_memory else 1
    if n * 8 * 128 > _MOST_MEMORY or not 1 <= p <= 16:
        raise ConfigError(
            f"{where} asks for more memory than edgepack gives a password: {n >> 10} MiB.",
            hint="Make the key with minisign itself.",
        )
    most = _MOST_MEMORY + (64 << 20)
    return hashlib.scrypt(password.encode(), salt=salt, n=n, r=8, p=p, dklen=104, maxmem=most)


def decoded(line: str) -> bytes:
    """The bytes of a line of base64; b"" where it is none."""
    try:
        return base64.b64decode(line.strip(), validate=True)
    except (binascii.Error, ValueError):
        return b""


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _name(number: bytes) -> str:
    return f"{int.from_bytes(number, 'little'):016X}"
