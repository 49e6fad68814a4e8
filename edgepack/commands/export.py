"""Makes packages of bundles: ``edgepack export``, and ``--format`` of ``edgepack pack``."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.bundle.checksums import check_sums
from edgepack.bundle.layout import MANIFEST, SUMS, find_bundle
from edgepack.bundle.listed_files import copy_listed
from edgepack.bundle.manifest import load_manifest
from edgepack.errors import CheckFailedError, ConfigError, EdgepackWarning
from edgepack.formats.base import ExportFormat, ExportJob, SourceBundle
from edgepack.formats.metadata import PackageMetadata
from edgepack.formats.words import check_words
from edgepack.options import PathLike
from edgepack.registry import EXPORT_FORMATS
from edgepack.signing.sums import SIGNATURES, secret_key, sign_file, signature_files
from edgepack.system.atomic import replace_file
from edgepack.system.disk_errors import refusal, writing_to
from edgepack.system.files import read_regular, sha256_file
from edgepack.system.temporary import remove_dead, temporary_folder
from edgepack.text.spelling import spelled

if TYPE_CHECKING:
    from edgepack.signing.cosign import CosignSecretKey
    from edgepack.signing.minisign import MinisignSecretKey

__all__ = ["check_formats", "export_bundles", "formats_hint", "signer_of", "source_bundle"]

#: Bytes of a manifest, sums or a signature that are read.
_LARGEST = 64 << 20


def check_formats(formats: Sequence[str], package: PackageMetadata) -> list[ExportFormat]:
    """The formats of these names. Raises ConfigError for a name that is none, or twice, and for wrong
    metadata."""
    package.check()
    for name in formats:
        if list(formats).count(name) > 1:
            raise ConfigError(f"The format {name} is given twice.", hint="Give it once.")
    return [EXPORT_FORMATS.find(name) for name in formats]


def signer_of(source: PathLike | None, formats: Sequence[str]) -> MinisignSecretKey | CosignSecretKey | None:
    """The key that signs packages; None for none. Raises ConfigError where there is no such key, or no
    package to sign."""
    if source is None:
        return None
    if not formats:
        raise ConfigError(
            "There is no package to sign.",
            hint="Name one with --format; `edgepack sign` signs the bundle itself.",
        )
    return secret_key(os.fspath(source))


def source_bundle(path: Path) -> SourceBundle:
    """The bundle in a folder.

    Raises:
        ConfigError: there is none, or its manifest has names that edgepack does not write.
        CheckFailedError: a file is not what the bundle's sums say: it is not given on.
    """
    root = find_bundle(path)
    manifest = load_manifest(root)
    check_sums(root, manifest)
    check_words(root, manifest)
    return SourceBundle(root, manifest)


def export_bundles(
    bundles: Sequence[Path],
    formats: Sequence[str],
    output: Path,
    package: PackageMetadata,
    *,
    force: bool = False,
    key: MinisignSecretKey | CosignSecretKey | None = None,
) -> list[Path]:
    """Write the packages into the folder ``output``: all of them, or none. An EdgepackWarning says where a
    bundle is signed and its packages are not.

    Args:
        bundles: folders of bundles; several become one package where the format takes several, else a package
            each.
        formats: names of ``EXPORT_FORMATS``.
        output: is made where it is missing.
        package: whose packages they are.
        force: replace files of the same names.
        key: signs each package, beside which the signature is written.

    Returns:
        the files, each package's signature behind it.

    Raises:
        ConfigError: wrong metadata, no such format, a bundle that cannot become such a package, or a file
            that is there already.
        CheckFailedError: a bundle is damaged, or was changed meanwhile.
    """
    chosen = check_formats(formats, package)
    sources = [source_bundle(path) for path in bundles]
    _check_alike(sources)
    for name, one in zip(formats, chosen, strict=True):
        for source in sources:
            if why := one.refusal(source):
                raise ConfigError(
                    f"{source.root} cannot become a package of the format {name}: {why}",
                    hint=formats_hint(sources),
                )
    with writing_to({"output folder": output}):
        try:
            output.mkdir(parents=True, exist_ok=True)
            remove_dead(output)
            with temporary_folder(output, prefix=".export.") as place:
                copies = [_copied(one, place / f"bundle-{number}") for number, one in enumerate(sources)]
                made = _write_all(chosen, copies, package, place)
                if key is not None:
                    made = [file for path in made for file in (path, sign_file(path, key))]
                published = _publish(made, output, force=force)
        except OSError as error:
            raise refusal(error) or ConfigError(
                f"{output} cannot be written: {error.strerror or error}.",
                hint="Choose another folder with --output.",
            ) from error
    if key is None:
        _warn_of_signatures(chosen, sources)
    return published


def formats_hint(sources: Sequence[SourceBundle]) -> str:
    """The formats that take all of these bundles, as a hint: asked of each format that there is."""
    takes = []
    for name in EXPORT_FORMATS.names():
        with suppress(ConfigError):  # another package's, which cannot be imported
            if not any(EXPORT_FORMATS.find(name).refusal(source) for source in sources):
                takes.append(name)
    what = "it" if len(sources) == 1 else "all of them"
    return f"`edgepack export --help` lists the formats. These take {what}: {', '.join(takes)}."


def _warn_of_signatures(formats: Sequence[ExportFormat], sources: Sequence[SourceBundle]) -> None:
    signed = [source.root for source in sources if signature_files(source.root)]
    if signed and not all(one.whole for one in formats):
        text = f"{signed[0]} is signed, its packages are not (--sign-key): they hold other files."
        warnings.warn(spelled(text), EdgepackWarning, stacklevel=4)


def _check_alike(sources: Sequence[SourceBundle]) -> None:
    first = sources[0].manifest
    for source in sources[1:]:
        other = source.manifest
        if (other.name, other.inputs, other.outputs) != (first.name, first.inputs, first.outputs):
            raise ConfigError(
                f"{source.root} is of another model than {sources[0].root}: name, inputs or outputs differ.",
                hint="Give the bundles of one model for several devices.",
            )


def _copied(source: SourceBundle, folder: Path) -> SourceBundle:
    """The bundle again, in a folder of this process's own: packages are written of files that nobody swaps
    after their sums were compared."""
    copy_listed(source.root, source.manifest, folder)
    for name in (MANIFEST, SUMS, *signature_files(source.root)):
        try:
            content = read_regular(source.root / name, _LARGEST)
        except OSError as error:
            raise CheckFailedError(
                f"{source.root}: {name} cannot be read: {error.strerror or error}.",
                hint="Export it when nothing writes there.",
            ) from error
        (folder / name).write_bytes(content)
    copy = source_bundle(folder)
    if copy.manifest != source.manifest:
        raise CheckFailedError(
            f"{source.root} was changed while it was exported.", hint="Export it when nothing writes there."
        )
    return copy


def _write_all(
    formats: Sequence[ExportFormat], sources: Sequence[SourceBundle], package: PackageMetadata, place: Path
) -> list[Path]:
    made: list[Path] = []
    for number, one in enumerate(formats):
        groups = [sources] if one.several else [[source] for source in sources]
        for index, group in enumerate(groups):
            folder = place / f"{number}-{index}"
            folder.mkdir()
            names = one.write(ExportJob(group, package, folder))
            made += [folder / name for name in names]
    return made


def _publish(made: Sequence[Path], output: Path, *, force: bool) -> list[Path]:
    taken: set[str] = set()
    for path in made:
        if path.name in taken:
            raise ConfigError(
                f"Two packages would be called {path.name}.", hint="Export them into different folders."
            )
        taken.add(path.name)
        target = output / path.name
        if os.path.lexists(target) and (not force or not target.is_file()):
            raise ConfigError(
                f"{target} exists.", hint="Replace it with --force, or choose another folder with --output."
            )
    for path in made:
        _forget_signatures(path, output / path.name)
        path.chmod(0o644)
        replace_file(path, output / path.name)
    return [output / path.name for path in made]


def _forget_signatures(new: Path, old: Path) -> None:
    """Delete the signatures over a package that other content is about to replace."""
    signatures = [old.with_name(old.name + suffix) for suffix in SIGNATURES]
    found = [path for path in signatures if path.is_file() and old.is_file()]
    if found and sha256_file(new) != sha256_file(old):
        for path in found:
            path.unlink()
