"""Signatures of ``cosign sign-blob``: ECDSA on P-256 over the SHA-256 of a file, in DER, as a line of base64.

Keys are PEM: cosign's own, which are encrypted (scrypt and XSalsa20-Poly1305), or openssl's. A signature is
made deterministically (RFC 6979): the same key and file give the same one. What cosign writes into a
transparency log beside it is not made: verify with ``cosign verify-blob --insecure-ignore-tlog``.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Literal

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    load_der_private_key,
    load_pem_private_key,
    load_pem_public_key,
)
from pydantic import BaseModel, Field

from edgepack.errors import CheckFailedError, ConfigError
from edgepack.signing.minisign import decoded

__all__ = ["SUFFIX", "CosignPublicKey", "CosignSecretKey", "read_public", "read_secret"]

SUFFIX = ".sig"
_ENCRYPTED = ("-----BEGIN ENCRYPTED SIGSTORE PRIVATE", "-----BEGIN ENCRYPTED COSIGN PRIVATE")
_HINT = "Give a key of P-256, such as `cosign generate-key-pair` makes."
#: Bytes that the derivation of a key may take: cosign's own take 64 MiB.
_MOST_MEMORY = 1 << 30


class _Cost(BaseModel):
    """What scrypt takes: ``N`` steps over ``r`` blocks of 128 bytes, ``p`` times."""

    N: int = Field(gt=1, le=_MOST_MEMORY)
    r: int = Field(gt=0, le=1024)
    p: int = Field(gt=0, le=16)


class _Derivation(BaseModel):
    name: Literal["scrypt"]
    params: _Cost
    salt: str


class _Cipher(BaseModel):
    name: Literal["nacl/secretbox"]
    nonce: str


class _Envelope(BaseModel):
    """A secret key as cosign saves it; texts are in base64."""

    kdf: _Derivation
    cipher: _Cipher
    ciphertext: str


@dataclass(frozen=True)
class CosignPublicKey:
    """A key to verify with."""

    key: ec.EllipticCurvePublicKey
    suffix: str = SUFFIX

    @property
    def raw(self) -> bytes:
        """Libraries verify Ed25519 only: raises ConfigError."""
        raise ConfigError(
            "A library verifies signatures of minisign's keys, and this is a key of cosign or openssl.",
            hint="Make one: minisign -G -p weights.pub -s weights.sec.",
        )

    def check(self, data: bytes, signature: str, what: str) -> str:
        """Raise CheckFailedError unless ``signature`` is this key's over ``data``; returns "": no comment."""
        try:
            self.key.verify(decoded(signature), data, ec.ECDSA(SHA256()))
        except InvalidSignature:
            raise CheckFailedError(
                f"{what} does not match: it is another key's, or what was signed was changed.",
                hint="Check with the public key of whom you expect it from, or do not use these files.",
            ) from None
        return ""


@dataclass(frozen=True)
class CosignSecretKey:
    """A key to sign with."""

    key: ec.EllipticCurvePrivateKey
    suffix: str = SUFFIX

    def sign_raw(self, message: bytes) -> bytes:
        """Refuses to sign bytes as they are, for the reason that :attr:`CosignPublicKey.raw` gives."""
        del message
        raise ConfigError(
            "Params are signed by minisign's keys, and this is a key of cosign or openssl.",
            hint="Sign with the secret key that belongs to the key of `pack --params-key`.",
        )

    def sign(self, data: bytes, comment: str) -> str:
        """The text of the signature file, in which a comment has no place."""
        del comment
        signature = self.key.sign(data, ec.ECDSA(SHA256(), deterministic_signing=True))
        return base64.b64encode(signature).decode("ascii") + "\n"

    @property
    def public(self) -> CosignPublicKey:
        """What verifies its signatures."""
        return CosignPublicKey(self.key.public_key())


def read_public(text: str, where: str) -> CosignPublicKey:
    """A public key in PEM; ConfigError for another one."""
    try:
        key = load_pem_public_key(text.encode())
    except (ValueError, UnsupportedAlgorithm):
        raise ConfigError(f"{where} is no public key that is known here.", hint=_HINT) from None
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != "secp256r1":
        raise ConfigError(f"{where} is a key of another kind.", hint=_HINT)
    return CosignPublicKey(key)


def read_secret(text: str, where: str, password: str | None) -> CosignSecretKey:
    """A private key in PEM, deciphered by the password where it is encrypted.

    Raises:
        ConfigError: it is none, of another kind or damaged, or the password is missing or wrong.
    """
    encrypted = "ENCRYPTED" in text
    if encrypted and password is None:
        raise ConfigError(
            f"{where} is encrypted, and there is no password.", hint="Set EDGEPACK_SIGNING_PASSWORD."
        )
    secret = (password or "").encode() if encrypted else None
    try:
        if text.startswith(_ENCRYPTED):
            key = load_der_private_key(_deciphered(text, (password or "").encode()), None)
        else:
            key = load_pem_private_key(text.encode(), secret)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        why = "is damaged, or its password is wrong" if encrypted else "is no private key"
        raise ConfigError(f"{where} {why}.", hint=_HINT) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or key.curve.name != "secp256r1":
        raise ConfigError(f"{where} is a key of another kind.", hint=_HINT)
    return CosignSecretKey(key)


def _deciphered(text: str, password: bytes) -> bytes:
    """The key of a cosign file in DER; ValueError for another file or password."""
    import hashlib

    from nacl.exceptions import CryptoError
    from nacl.secret import SecretBox

    body = "".join(line for line in text.splitlines() if not line.startswith("-----"))
    envelope = _Envelope.model_validate_json(decoded(body))
    cost = envelope.kdf.params
    if cost.N * cost.r * 128 > _MOST_MEMORY:
        raise ValueError("too much memory")
    salt, most = decoded(envelope.kdf.salt), _MOST_MEMORY + (64 << 20)
    key = hashlib.scrypt(password, salt=salt, n=cost.N, r=cost.r, p=cost.p, dklen=32, maxmem=most)
    try:
        return bytes(SecretBox(key).decrypt(decoded(envelope.ciphertext), decoded(envelope.cipher.nonce)))
    except CryptoError as error:
        raise ValueError("wrong password") from error
