"""What a package format is: a bundle, or several of one model, as files that an ecosystem's tools install.

A format is an object of :class:`ExportFormat`, found by its name (``registry.EXPORT_FORMATS``; those of other
packages by the entry point group ``edgepack.export_formats``). What the packages hold beside the bundle's own
files is rendered from ``templates/formats/<format>/``. A format takes what the bundle has; where an ecosystem
compiles itself (a Rust crate, an ESP-IDF component), it hands over sources and objects. The one thing that is
compiled here is the AAR's native half, which needs no SDK.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.bundle.layout import BundleLayout
from edgepack.bundle.manifest import Manifest, Memory
from edgepack.errors import ConfigError
from edgepack.formats.archives import Entry
from edgepack.formats.metadata import PackageMetadata
from edgepack.signing.sums import signature_files

__all__ = ["ExportFormat", "ExportJob", "SourceBundle"]


@dataclass(frozen=True)
class SourceBundle:
    """A bundle whose files are what its manifest says (its sums were compared).

    Attributes:
        root: its folder.
        manifest: what it holds.
    """

    root: Path
    manifest: Manifest

    @property
    def layout(self) -> BundleLayout:
        """Where its files lie."""
        return BundleLayout(self.manifest.name, self.manifest.device.os)

    def artifact(self, kind: str) -> Path | None:
        """The file of its shared or static library or of its program; None where it has none."""
        found = self.manifest.artifact(kind)
        return self.root / found.path if found is not None else None

    @property
    def params(self) -> Path | None:
        """The params file that goes with the library; None where the library holds the params itself."""
        file = self.manifest.params.file
        return self.root / file if self.manifest.params.mode != "embed" and file else None

    def files(self) -> list[str]:
        """Path of every file in it, with ``/``, sorted."""
        own = ("manifest.json", "SHA256SUMS")
        return sorted([*(record.path for record in self.manifest.files), *own])

    def file(self, path: str) -> Path | None:
        """The place of a file of the bundle; None for what it does not list, whatever lies in its folder."""
        return self.root / path if path in self.files() else None

    def whole(self) -> list[str]:
        """All :meth:`files`, and the signatures over SHA256SUMS where the bundle is signed."""
        return sorted([*self.files(), *signature_files(self.root)])


@dataclass(frozen=True)
class ExportJob:
    """What one format makes of one model.

    Attributes:
        bundles: of the same model, with the same inputs and outputs, for different devices; exactly one for
            a format that does not take several.
        package: whose package it is.
        folder: exists and is empty; the files go there.
    """

    bundles: Sequence[SourceBundle]
    package: PackageMetadata
    folder: Path

    @property
    def bundle(self) -> SourceBundle:
        """The first, or the only one."""
        return self.bundles[0]

    @property
    def name(self) -> str:
        """The model's name, a C identifier of lower or upper case letters."""
        return self.bundle.manifest.name

    @property
    def version(self) -> str:
        """The package's version, a semantic one; the caller's, or one that changes with the contents."""
        return self.package.version_of([one.manifest for one in self.bundles])

    def headers(self, folder: str) -> list[Entry]:
        """The C headers of all bundles, below ``folder/``: of targets that need different amounts of memory
        those of the one that needs most, as ``<NAME>_SESSION_BYTES`` is there.

        Raises:
            ConfigError: their arenas are in different sections.
        """
        sections = {tuple(one.section for one in b.manifest.memory.sections) for b in self.bundles}
        if len(sections) > 1:
            raise ConfigError(
                "The bundles have their arenas in different sections; a package has one header.",
                hint="Export them one by one, or pack them for devices with the same `memories`.",
            )
        most = max(self.bundles, key=lambda bundle: _array_bytes(bundle.manifest.memory))
        paths = [path for path in most.files() if path.startswith("include/") and path.endswith(".h")]
        return [Entry(f"{folder}/{path.removeprefix('include/')}", most.root / path) for path in paths]

    def licenses(self) -> list[Entry]:
        """The licences of what the library holds, and what they cover, in ``LICENSES/``."""
        paths = [path for path in self.bundle.files() if path.startswith("LICENSES/")]
        return [Entry(path, self.bundle.root / path) for path in paths]


def _array_bytes(memory: Memory) -> int:
    """Bytes of the caller's array, where that is not all of the arena."""
    return memory.sections[0].nbytes if memory.sections else memory.arena


@dataclass(frozen=True)
class ExportFormat:
    """One package format.

    Attributes:
        title: what it is and for whom, in a line (``A wheel, which pip installs``).
        refusal: why a bundle cannot become such a package, as one sentence without its hint; "" where it can.
        write: writes the package's files into ``job.folder`` and returns their names there, sorted. Same
            bundle, metadata and version of edgepack: same bytes.
        several: whether one package takes several bundles of a model (architectures of one platform).
        whole: whether it holds the bundle as it is, with its sums and the signatures over them.
    """

    title: str
    refusal: Callable[[SourceBundle], str]
    write: Callable[[ExportJob], Sequence[str]]
    several: bool = False
    whole: bool = False
