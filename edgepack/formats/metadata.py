"""Whose package it is: name, version, license, authors; and a version's spelling in each ecosystem.

All of it is text of others. It is checked here once, for lines and control characters break out of most
formats; a format's own escapes are still its own business.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from edgepack.bundle.manifest import Manifest
from edgepack.errors import ConfigError

__all__ = [
    "PackageMetadata",
    "debian_version",
    "mail_address",
    "package_metadata",
    "pep440_version",
    "without_prerelease",
]

_NUMBER, _PART = r"(?:0|[1-9][0-9]*)", r"(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
_VERSION = re.compile(rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-({_PART}(?:\.{_PART})*))?")
_AUTHOR = re.compile(
    r"[^<>\x00-\x1f\x7f-\x9f]+(?: <[^<>\s@\x00-\x1f\x7f-\x9f]+@[^<>\s@\x00-\x1f\x7f-\x9f]+>)?"
)
#: A license expression of SPDX, or a reference to a text of the package's own.
_LICENSE = re.compile(r"[A-Za-z0-9.+()\- ]+")
_LONGEST = 300


@dataclass(frozen=True)
class PackageMetadata:
    """What a package says about itself.

    Attributes:
        name: of the package; default what the format makes of the model's name.
        version: three numbers, and perhaps what comes before a release (``1.2.0``, ``2.0.0-beta.1``); default
            ``0.0.0-m`` and a digest of what is in the bundles, so that no two contents share a version.
        summary: one line.
        license: of the model, an SPDX expression (``Apache-2.0``); "" is said as not given.
        authors: ``Name`` or ``Name <mail@example.org>``.
        homepage: an https or http URL.
    """

    name: str = ""
    version: str = ""
    summary: str = ""
    license: str = ""
    authors: Sequence[str] = ()
    homepage: str = ""

    def check(self) -> None:
        """Raise ConfigError for what no package can say."""
        if self.version and not _VERSION.fullmatch(self.version):
            raise ConfigError(
                f"{self.version!r} is no version of a package.",
                hint="Three numbers, and perhaps what comes before a release: 1.2.0, 2.0.0-beta.1.",
            )
        if self.license and not _LICENSE.fullmatch(self.license):
            raise ConfigError(
                f"{self.license!r} is no license expression of SPDX.",
                hint="Such as MIT, or Apache-2.0 OR MIT.",
            )
        for author in self.authors:
            if not _AUTHOR.fullmatch(author):
                raise ConfigError(f"{author!r} is no author.", hint="Write Name <mail@example.org>, or Name.")
        if self.homepage and not re.fullmatch(r"https?://[!-;=?-~]+", self.homepage):
            raise ConfigError(f"{self.homepage!r} is no URL.", hint="Write https://example.org/model.")
        for what, text in {"name": self.name, "summary": self.summary, "homepage": self.homepage}.items():
            if len(text) > _LONGEST or re.search(
                r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]", text
            ):
                raise ConfigError(
                    f"The package's {what} has more than {_LONGEST} characters, or one that is no text.",
                    hint="Write one line.",
                )

    def version_of(self, manifests: Sequence[Manifest]) -> str:
        """``version``, or one by the digest of all files of the bundles."""
        if self.version:
            return self.version
        digest = hashlib.sha256()
        for manifest in manifests:
            digest.update(manifest.device.name.encode() + b"\0")
            for record in manifest.files:
                digest.update(f"{record.path}\0{record.sha256}\n".encode())
        return f"0.0.0-m{digest.hexdigest()[:12]}"


def mail_address(author: str) -> str:
    """``Name <mail>`` as a header of mails has it: a name with commas, quotes and the like in quotes."""
    name, _, mail = author.rpartition(" <")
    if re.search(r'[,:;@."\\()\[\]]', name):
        name = '"' + re.sub(r'(["\\])', r"\\\1", name) + '"'
    return f"{name} <{mail}"


def _parts(version: str) -> tuple[str, str]:
    release, _, before = version.partition("-")
    return release, before


def without_prerelease(version: str) -> str:
    """The three numbers alone, for ecosystems that know nothing else."""
    return _parts(version)[0]


def pep440_version(version: str) -> str:
    """A semantic version as Python packages spell it (PEP 440): ``2.0.0-beta.1`` gives ``2.0.0b1``,
    ``-rc.2`` ``rc2``; any other text before a release becomes a local version (``0.0.0+m1a2b``)."""
    release, before = _parts(version)
    if not before:
        return release
    if known := re.fullmatch(r"(alpha|a|beta|b|rc)[.-]?([0-9]*)", before):
        return f"{release}{ {'alpha': 'a', 'beta': 'b'}.get(known[1], known[1]) }{int(known[2] or 0)}"
    return f"{release}+{re.sub('[^a-z0-9]+', '.', before.lower()).strip('.')}"


def debian_version(version: str) -> str:
    """A version as Debian's tools order it: a tilde sorts before the release (``2.0.0~beta.1``)."""
    release, before = _parts(version)
    return f"{release}~{before.replace('-', '.')}" if before else release


def package_metadata(options: Mapping[str, Any]) -> PackageMetadata:
    """What options of :func:`edgepack.pack` and ``export`` say of a package; "" where they say nothing."""
    texts = {name: options.get(name) or "" for name in ("summary", "license", "homepage")}
    return PackageMetadata(
        name=options.get("package_name") or "",
        version=options.get("package_version") or "",
        authors=tuple(options.get("authors") or ()),
        **texts,
    )
