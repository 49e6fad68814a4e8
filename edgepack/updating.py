"""New params for a library that is in use: a retrained model's weights, without a new library.

The retrained model is packed as the bundle's own was, and the two packs must have the same layout
(``bundle/params_layout.py``): then they differ in their weights alone. The bundle's own program proves it, on
recorded data of the new model, before anything is written.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import Unpack

from edgepack.boundary import guarded, undisturbed
from edgepack.bundle.checksums import check_sums
from edgepack.bundle.layout import find_bundle
from edgepack.bundle.manifest import Manifest, load_manifest
from edgepack.errors import CheckFailedError, ConfigError
from edgepack.options import PackOptions, PathLike, RunKeywords, RunOptions, check_options, check_run
from edgepack.packing import pack_model
from edgepack.progress import Progress
from edgepack.render.params_file import signed_message, write_signed
from edgepack.runners.verify import Verification, verify
from edgepack.storage import refusal, writing_to
from edgepack.temporary import remove_dead, temporary_folder

if TYPE_CHECKING:
    from edgepack.signing.cosign import CosignSecretKey
    from edgepack.signing.minisign import MinisignSecretKey

__all__ = ["Update", "update"]


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
    key: PathLike,
    force: bool = False,
    progress: Progress | None = None,
    **options: Unpack[RunKeywords],
) -> Update:
    """Make new params for a bundle's library, of a retrained model.

    Args:
        bundle: was packed with ``params_key``; its folder.
        model: the same network with other weights.
        output: the params file to write.
        key: the secret key of minisign that belongs to ``params_key``: its file, or ``env://NAME``. The
            password of an encrypted one is in ``EDGEPACK_SIGNING_PASSWORD``.
        force: replace a file at the output.
        progress: as for :func:`edgepack.pack`.
        options: ``runner``, ``device``, ``threads``, ``timeout`` and ``sandbox`` as in ``Bundle.verify``:
            where the bundle's program runs. ``device`` is needed too where the bundle is for one of your own.

    Raises:
        ConfigError: the library takes no other params, the key is another one, or the model is of another
            network.
        CheckFailedError: the bundle is damaged, or its program does not compute with the new params what the
            model does.
        ModelError, ToolchainError, InternalError: as for :func:`edgepack.pack`.
    """
    check_options(options, "update")
    where = RunOptions(**options)
    check_run(where)
    root, target = find_bundle(Path(bundle)), Path(output)
    manifest = load_manifest(root)
    check_sums(root, manifest)
    signer = _signer(root, manifest, os.fspath(key))
    if os.path.lexists(target) and (not force or not target.is_file()):
        raise ConfigError(f"{target} exists.", hint="Replace it with --force, or choose another --output.")
    folder = target.resolve().parent
    with writing_to({"output folder": folder}):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            remove_dead(folder)
            with temporary_folder(folder, prefix=".update.") as place:
                fresh = _packed(root, manifest, Path(model), place, where, undisturbed(progress))
                trial = place / "bundle"
                made = _signed(root, trial, place / "fresh", fresh, signer)
                result = verify(trial, manifest.model_copy(update={"recorded": fresh.recorded}), where)
                if not result.ok:
                    raise CheckFailedError(
                        f"The program of {root} does not compute what {model} does.",
                        hint="Pack the model anew, and ship the library with its params.",
                    )
                made.replace(target)
        except OSError as error:
            raise refusal(error) or ConfigError(
                f"{target} cannot be written: {error.strerror or error}.", hint="Choose another --output."
            ) from error
    return Update(target, fresh.params.id, result)


def _signer(root: Path, manifest: Manifest, source: str) -> MinisignSecretKey | CosignSecretKey:
    """The key to sign with; ConfigError where the library would not take what it signs."""
    from edgepack.signing.sums import secret_key

    params = manifest.params
    if not params.key or not params.layout:
        raise ConfigError(
            f"The library of {root} takes its own params only.",
            hint="Pack it with --params-key KEY.pub to be able to update its weights alone.",
        )
    if params.mode == "embed" or not params.file:
        raise ConfigError(
            f"The library of {root} has its params in it.",
            hint="Pack it with --params file or --params caller to be able to update its weights alone.",
        )
    signer = secret_key(source)
    if signer.public.raw.hex() != params.key:
        raise ConfigError(
            f"The library of {root} trusts another key than {source}.",
            hint="Sign with the secret key that belongs to the key of `pack --params-key`.",
        )
    return signer


def _packed(
    root: Path, manifest: Manifest, model: Path, place: Path, where: RunOptions, progress: Progress | None
) -> Manifest:
    """The new model as a bundle in ``place/fresh``, packed as the old one was, with the same layout."""
    record, options = manifest.model, manifest.options
    chosen = PackOptions(
        name=manifest.name,
        shapes=record.shapes or None,
        dims=record.dims or None,
        cut_inputs=record.cut_inputs,
        cut_outputs=record.cut_outputs,
        set_batch=record.batch or None,
        maxima=record.maxima or None,
        params=manifest.params.mode,
        toolchain=manifest.toolchain.name,
        optimize=options.optimize,
        strict_math=options.strict_math,
        weights=options.weights,
        precision=options.precision,
    )
    device = where.device if where.device is not None else manifest.device.name
    pack_model(model, device, place / "fresh", chosen, progress)
    fresh = load_manifest(place / "fresh")
    if fresh.params.layout != manifest.params.layout:
        raise ConfigError(
            f"{model} cannot give new params to {root}: {_difference(manifest, fresh)}.",
            hint="Pack it anew, and ship the library with its params.",
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
    if len(old.steps) != len(new.steps) or old.params.nbytes != new.params.nbytes:
        return "it is another network"
    return "its weights change the program itself, which holds some of them as numbers"


def _signed(
    root: Path, trial: Path, fresh: Path, manifest: Manifest, signer: MinisignSecretKey | CosignSecretKey
) -> Path:
    """The old bundle in ``trial``, with the new one's recorded data and signed params, whose path is
    returned."""
    shutil.copytree(root, trial, ignore=lambda folder, names: ["test"] if Path(folder) == root else [])
    shutil.copytree(fresh / "test", trial / "test")
    params = trial / str(manifest.params.file)
    params.unlink()
    message = signed_message(bytes.fromhex(manifest.params.layout), bytes.fromhex(manifest.params.id))
    write_signed(fresh / str(manifest.params.file), signer.sign_raw(message), params)
    params.chmod(0o644)
    return params
