"""New params for a library that is in use: a retrained model's weights, without a new library.

The retrained model is packed as the bundle's own was, and the two packs must have the same layout
(``bundle/params_layout.py``): then they differ in their weights alone. The bundle's own program proves it, on
recorded data of the new model, before anything is written.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from edgepack.bundle.checksums import check_sums
from edgepack.bundle.layout import find_bundle
from edgepack.bundle.listed_files import copy_listed
from edgepack.bundle.manifest import Manifest, load_manifest
from edgepack.bundle.output_file import beside, check_output_file
from edgepack.commands.compiled_targets import tuned_for, variants_of
from edgepack.commands.pack import pack_model
from edgepack.commands.packed_again import bundle_device, bundle_toolchain, options_of
from edgepack.config.device import Device
from edgepack.config.option_checks import check_options, check_run, with_ram_budget
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.options import PackOptions, PathLike, RunKeywords, RunOptions
from edgepack.render.params_file import MAGIC, signed_message, write_signed
from edgepack.runners.program import run_program
from edgepack.runners.verify import Verification, verify
from edgepack.system.atomic import replace_file
from edgepack.system.boundary import guarded, undisturbed
from edgepack.system.disk_errors import refusal, writing_to
from edgepack.system.progress import Progress
from edgepack.system.temporary import remove_dead, temporary_folder

if TYPE_CHECKING:
    from edgepack.signing.cosign import CosignSecretKey
    from edgepack.signing.minisign import MinisignSecretKey

__all__ = ["Update", "UpdateKeywords", "update"]

#: Where a bundle has the C of its custom operators.
_CUSTOM = "src/custom/"


@dataclass(frozen=True)
class _Options(RunOptions):
    """What is given for an update: where the program runs, and what a bundle does not record of how its model
    was packed, the user's own files (toolchain, custom operators, tuned schedules) and limits."""

    toolchain: str | None = None
    custom: PathLike | None = None
    tuned: Sequence[PathLike] = ()
    max_constant_bytes: int | None = None
    max_nodes: int | None = None


class UpdateKeywords(RunKeywords, total=False):
    """The options of :func:`update` as keyword arguments."""

    toolchain: str | None
    custom: PathLike | None
    tuned: Sequence[PathLike]
    max_constant_bytes: int | None
    max_nodes: int | None


@dataclass(frozen=True)
class Update:
    """Params that were made for a library.

    Attributes:
        path: the params file.
        params_id: SHA-256 of its data, in hex.
        verification: what the bundle's own program said of it, on recorded data of the new model.
    """

    path: Path
    params_id: str
    verification: Verification


@guarded
def update(
    bundle: PathLike,
    model: PathLike,
    output: PathLike,
    *,
    key: PathLike | None = None,
    params_version: int = 0,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[UpdateKeywords],
) -> Update:
    """Make new params for a bundle's library, of a retrained model.

    Args:
        bundle: its folder.
        model: the same network with other weights.
        output: the params file to write.
        key: the secret key of minisign that belongs to the bundle's ``params_key``: its file, or
            ``env://NAME``; the password of an encrypted one is in ``EDGEPACK_SIGNING_PASSWORD``. None: the
            params are not signed, for callers that list their id.
        params_version: signed too, higher for later params, below 2**63; callers ask for a least one.
        force: replace a file at the output.
        progress: as for :func:`edgepack.pack`.
        options: ``runner``, ``device``, ``threads``, ``timeout`` and ``sandbox`` as in ``Bundle.verify``:
            where the program runs. As for :func:`edgepack.pack`: ``device`` and ``toolchain``, default what
            has the bundle's names for them here (it names no files), ``custom`` and ``tuned`` where the
            bundle was packed with such, ``max_constant_bytes``, ``max_nodes``.

    Raises:
        ConfigError: the library takes no other params, or key, device, network or operators are others.
        CheckFailedError: the bundle is damaged, or its program does not compute what the model does.
        ModelError, ToolchainError, InternalError: as for :func:`edgepack.pack`.
    """
    check_options(options, "update")
    check_run(where := _Options(**options))
    root, target = find_bundle(Path(bundle)), Path(output)
    check_sums(root, manifest := load_manifest(root))
    _check_not_quantised(root, manifest)
    signer = _signer(root, manifest, key, params_version)
    _check_custom(root, manifest, where.custom)
    _check_output(target, root, manifest, force=force)
    folder = beside(target)
    with writing_to({"output folder": folder}):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            remove_dead(folder)
            with temporary_folder(folder, prefix=".update.") as place:
                fresh = _packed(root, manifest, Path(model), place, where, undisturbed(progress))
                trial, said = _trial(root, manifest, place, fresh, signer, params_version, where)
                result = verify(trial, said, where)
                if not result.ok:
                    what = f"The program of {root} does not compute what {model} does."
                    raise CheckFailedError(what, hint="Pack anew, and ship the library with its params.")
                replace_file(trial / str(fresh.params.file), target)
        except OSError as error:
            raise refusal(error) or ConfigError(
                f"{target} cannot be written: {error.strerror or error}.", hint="Choose another --output."
            ) from error
    return Update(target, fresh.params.id, result)


def _signer(
    root: Path, manifest: Manifest, source: PathLike | None, version: int
) -> MinisignSecretKey | CosignSecretKey | None:
    """The key to sign with; None for none; ConfigError where the library would not take what it signs, or
    for a version that no params can have."""
    from edgepack.signing.sums import secret_key

    if not 0 <= version < 1 << 63 or (version and source is None):
        raise ConfigError(
            f"The params cannot have the version {version}{' without a key' if source is None else ''}.",
            hint="Versions are numbers from 1 to 2**63 - 1, and stand under a signature: give --key too.",
        )
    params = manifest.params
    if not params.layout or (source is not None and not params.key):
        raise ConfigError(
            f"The library of {root} trusts no key.",
            hint="Leave --key out: callers list the id of the new params. Or pack with --params-key KEY.pub.",
        )
    if params.mode == "embed" or not params.file:
        ways = "--params caller" if manifest.device.bare_metal else "--params file or --params caller"
        raise ConfigError(
            f"The library of {root} has its params in it.",
            hint=f"Pack it with {ways} to be able to update its weights alone.",
        )
    if source is None:
        return None
    signer = secret_key(os.fspath(source))
    if signer.public.raw.hex() != params.key:
        raise ConfigError(
            f"The library of {root} trusts another key than {source}.",
            hint="Sign with the secret key that belongs to the key of `pack --params-key`.",
        )
    return signer


def _check_not_quantised(root: Path, manifest: Manifest) -> None:
    """Raise ConfigError for a model that the pack itself quantised: a new one could not be so again."""
    if manifest.model.quantised is not None:
        raise ConfigError(
            f"The model of {root} was quantised as it was packed, with data that the bundle does not hold.",
            hint="Pack what `edgepack quantize` writes to be able to update its weights alone: --like keeps "
            "the scales of the model before.",
        )


def _check_output(target: Path, root: Path, manifest: Manifest, *, force: bool) -> None:
    """Raise ConfigError where the params cannot go to ``target``."""
    own = {
        root / file.path: f"a file of the bundle {root}, which would differ from its sums"
        for file in manifest.files
    }
    check_output_file(target, force=force, what="a params file", begins=MAGIC, inputs=own)


def _check_custom(root: Path, manifest: Manifest, custom: PathLike | None) -> None:
    """Raise ConfigError unless custom operators are declared where the bundle has some, and only there."""
    files = ", ".join(_custom_sources(manifest))
    if files and custom is None:
        raise ConfigError(
            f"{root} has custom operators, computed by {files}.",
            hint="Name the YAML file that it was packed with: --custom FILE.yaml.",
        )
    if custom is not None and not files:
        raise ConfigError(
            f"{root} has no custom operators, and {os.fspath(custom)} declares some.",
            hint="Leave --custom out. Or pack the model anew, and ship the library with its params.",
        )


def _check_tuned(root: Path, manifest: Manifest, device: Device, options: PackOptions) -> None:
    """Raise ConfigError unless the tuned schedules are those that the bundle was packed with."""
    recorded = manifest.options.tuned
    if recorded is not None and not options.tuned:
        raise ConfigError(
            f"{root} was packed with {recorded.choices} tuned schedules.",
            hint="Name the files that it was packed with: --tuned FILE.",
        )
    if not options.tuned:
        return
    device = with_ram_budget(device, options.ram_budget)
    given = tuned_for([*variants_of(device), device], options).record
    if given == recorded:
        return
    files = ", ".join(str(Path(file)) for file in options.tuned)
    if recorded is None and given is not None:
        raise ConfigError(
            f"{root} was packed without tuned schedules, and {files} has {given.choices} for its CPU.",
            hint="Leave --tuned out. Or pack the model anew, and ship the library with its params.",
        )
    raise ConfigError(
        f"{root} was packed with other tuned schedules than those of {files}.",
        hint="Give the files as they were then; a repository has them. Or pack the model anew, and ship the "
        "library with its params.",
    )


def _custom_sources(manifest: Manifest) -> dict[str, str]:
    """The C files of the bundle's custom operators, each with its SHA-256."""
    return {file.path: file.sha256 for file in manifest.files if file.path.startswith(_CUSTOM)}


def _packed(
    root: Path, manifest: Manifest, model: Path, place: Path, where: _Options, progress: Progress | None
) -> Manifest:
    """The new model as a bundle in ``place/fresh``, packed as the old one was, with the same layout."""
    device = bundle_device(root, manifest, where.device)
    chosen = replace(
        options_of(manifest),
        custom=where.custom,
        tuned=where.tuned,
        max_constant_bytes=where.max_constant_bytes,
        max_nodes=where.max_nodes,
        toolchain=bundle_toolchain(root, manifest, device, where.toolchain),
    )
    _check_tuned(root, manifest, device, chosen)
    pack_model(model, device, place / "fresh", chosen, progress)
    fresh = load_manifest(place / "fresh")
    if fresh.params.layout != manifest.params.layout:
        raise ConfigError(
            f"{model} cannot give new params to {root}: {_difference(manifest, fresh)}.",
            hint="Pack it anew, and ship the library with its params. A quantised model is new params "
            "where it has the scales of the one before: `edgepack quantize --like OLD.onnx`.",
        )
    return fresh


def _difference(old: Manifest, new: Manifest) -> str:
    """Why two packs have another layout, in words."""
    if (old.inputs, old.outputs) != (new.inputs, new.outputs):
        return "its inputs or outputs are others"
    before, now = ({**one.tools, "edgepack": one.edgepack} for one in (old, new))
    for name in sorted(before.keys() | now.keys()):
        if before.get(name) != now.get(name):
            return f"the bundle was made with {name} {before.get(name)}, and here is {now.get(name)}"
    for index, (one, other) in enumerate(zip(old.steps, new.steps, strict=False)):
        if (one.kernel, one.tasks) != (other.kernel, other.tasks):
            nodes = f" ({', '.join(other.nodes[:3])})" if other.nodes else ""
            return f"it is another network from step {index} on{nodes}"
    had, has = _custom_sources(old), _custom_sources(new)
    if changed := [path for path in sorted(had.keys() | has.keys()) if had.get(path) != has.get(path)]:
        return f"the C of custom operators differs: {', '.join(changed)}"
    if len(old.steps) != len(new.steps) or old.params.nbytes != new.params.nbytes:
        return "it is another network"
    return "its weights change the program itself, which holds some of them as numbers"


def _trial(
    root: Path,
    manifest: Manifest,
    place: Path,
    fresh: Manifest,
    signer: MinisignSecretKey | CosignSecretKey | None,
    version: int,
    where: _Options,
) -> tuple[Path, Manifest]:
    """What is tried, and what it is: ``place/fresh``; with a key the files of the old bundle in
    ``place/bundle``, with recorded data and params of ``place/fresh``, these signed.

    Firmware has its recorded data in its image, so that the results are those of the new one, which has the
    same code, with the signed params; the old one says that it takes them, or CheckFailedError.
    """
    trial, new = place / "bundle", place / "fresh"
    if signer is None:
        return new, fresh
    copy_listed(root, manifest, trial, without=("test", str(fresh.params.file)))
    shutil.copytree(new / "test", trial / "test")
    params = trial / str(fresh.params.file)
    params.parent.mkdir(exist_ok=True)
    layout, params_id = (bytes.fromhex(text) for text in (fresh.params.layout, fresh.params.id))
    signature = signer.sign_raw(signed_message(layout, params_id, version))
    write_signed(new / str(fresh.params.file), signature, params, version)
    params.chmod(0o644)
    if manifest.device.bare_metal:
        run_program(trial, manifest, ["check-params"], where)
        shutil.copyfile(params, new / str(fresh.params.file))
        return new, fresh
    return trial, manifest.model_copy(update={"recorded": fresh.recorded})
