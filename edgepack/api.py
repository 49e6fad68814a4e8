"""edgepack from Python: what the commands do, without printing.

bundle = edgepack.pack("resnet18.onnx", "raspberrypi4", "dist/resnet18", shapes={"input": (1, 3, 224, 224)})
bundle.verify()
with edgepack.load("dist/resnet18-host") as session:
    outputs = session.run({"input": x})
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import Unpack

from edgepack.client.bundle import Bundle
from edgepack.config.option_checks import check_options
from edgepack.errors import ConfigError
from edgepack.options import (
    CheckKeywords,
    CompareKeywords,
    CompareOptions,
    PackageKeywords,
    PackKeywords,
    PackOptions,
    PathLike,
    QuantizeKeywords,
    QuantizeOptions,
    RunKeywords,
)
from edgepack.system.boundary import guarded, undisturbed
from edgepack.system.progress import Progress
from edgepack.text.spelling import spelled

if TYPE_CHECKING:
    from edgepack.client.session import Session
    from edgepack.commands.compare import Comparison
    from edgepack.commands.layers import LayersVerification
    from edgepack.commands.quantize import Quantized
    from edgepack.config.device import Device
    from edgepack.plan.model_check import ModelCheck
    from edgepack.toolchains.cross_compiler import CrossCompiler

__all__ = [
    "Bundle",
    "check",
    "compare",
    "cross_compiler",
    "export",
    "load",
    "pack",
    "quantize",
    "sign",
    "verify_layers",
]


@guarded
def load(
    bundle: Bundle | PathLike,
    *,
    threads: int | None = None,
    sessions: int | None = None,
    check: bool = False,
) -> Session:
    """Open a bundle for this machine through its C ABI.

    Args:
        bundle: the bundle or its folder.
        threads: how many compute in a run; default what the device's profile says.
        sessions: how many runs there are at once, from any threads; further ones wait. Default the number of
            cores. For many runs at once, ``threads=1`` is soonest done with all of them.
        check: compare all of the library and of the params with their hashes first, at the cost of reading
            them. Without it, the library's size, headers and what the system's loader reads are looked at,
            and of the params the header: weights that were damaged later are not seen.

    Returns:
        a session: ``outputs = session.run({"input": array})``. Close it, or use it in a ``with`` statement.
    """
    from edgepack.client.session import Session

    return Session(bundle, threads=threads, sessions=sessions, check=check)


@guarded
def pack(
    model: PathLike | Any,
    device: PathLike | Device = "host",
    output: PathLike | None = None,
    *,
    progress: Progress | None = None,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    **options: Unpack[PackKeywords],
) -> Bundle:
    """Compile a model into a bundle.

    Args:
        model: an ONNX file, or a ``.pt2`` or TorchScript (``.pt``) file of PyTorch's; or an
            ``onnx.ModelProto`` with its weights, which is called by ``name``, else by its graph's name, and
            recorded as a file of that name; or a ``torch.export.ExportedProgram``, or a ``torch.nn.Module``
            with ``example_inputs``.
        device: a device's name, a path to its YAML file, or the device.
        output: the bundle's folder; default ``<name>-<device>`` in the working directory.
        progress: called with a stage's name and a detail; what it raises ends the pack and reaches the caller
            as it is. Python gives Ctrl-C to its main thread alone: a pack in another one is ended so.
        example_inputs: of a module, or a file of TorchScript: a tuple of its arguments, a dict of its
            keywords, or its only tensor, with which it is exported (``torch.export``) and recorded.
        dynamic_shapes: of a module, as for ``torch.export.export``; sizes that it leaves open are ``dims``'.
        options: the fields of :class:`PackOptions`.

    Raises:
        ConfigError, ModelError, ToolchainError, CheckFailedError, InternalError: see edgepack.errors. Nothing
        is left behind, nor is there after KeyboardInterrupt, and no process runs on.
    """
    from edgepack.bundle.layout import chosen_name
    from edgepack.commands.export import check_formats, export_bundles, signer_of
    from edgepack.commands.pack import pack_model
    from edgepack.formats.metadata import package_metadata
    from edgepack.pipeline.exported_file import exported_file

    check_options({"model": model, "device": device, "output": output, **options})
    chosen = PackOptions(**options)
    package = package_metadata(options)
    check_formats(chosen.formats, package)
    key = signer_of(chosen.sign_key, chosen.formats)
    if chosen.name is not None:
        chosen_name(chosen.name)  # sooner than a module is exported, which takes long
    told, given = undisturbed(progress), (chosen.name, example_inputs, dynamic_shapes)
    with exported_file(model, *given, timeout=chosen.timeout, progress=told) as file:
        folder, seconds = pack_model(file, device, output, chosen, told)
    if chosen.formats:
        export_bundles([folder], chosen.formats, folder.parent, package, force=chosen.force, key=key)
    return Bundle(folder, stage_seconds=seconds)


@guarded
def check(
    model: PathLike | Any,
    device: PathLike | Device = "host",
    *,
    progress: Progress | None = None,
    **options: Unpack[CheckKeywords],
) -> ModelCheck:
    """Say what would become of a model on a device, without packing it.

    Args:
        model: as for :func:`pack`.
        device: a device's name, a path to its YAML file, or the device. No compiler for it is needed.
        progress: as for :func:`pack`.
        options: ``shapes``, ``dims``, ``cut_inputs``, ``cut_outputs``, ``set_batch``, ``optimize``,
            ``opt_level``, ``strict_math``, ``weights`` and ``timeout`` of :class:`PackOptions`.

    Returns:
        what would be compiled, how large it is, and whether a microcontroller has room for it; operators that
        cannot be compiled are no error, nor is a model that is too large.

    Raises:
        ConfigError, ModelError, InternalError: the model cannot be read, or a size is missing.
    """
    from edgepack.commands.check import check_model
    from edgepack.pipeline.model_objects import model_file, without_folder

    check_options({"model": model, "device": device, **options}, "check")
    with model_file(model) as file:
        found = check_model(file, device, PackOptions(**options), undisturbed(progress))

    def shown(text: str) -> str:
        return spelled(without_folder(text, model, file))

    return replace(
        found,
        message=shown(found.message),
        hint=shown(found.hint),
        warnings=tuple(map(shown, found.warnings)),
    )


@guarded
def quantize(
    model: PathLike | Any,
    output: PathLike,
    *,
    progress: Progress | None = None,
    **options: Unpack[QuantizeKeywords],
) -> Quantized:
    """Make a quantised ONNX model of a float one (docs/quantisation.md).

    Args:
        model: as for :func:`pack`.
        output: the ONNX file to write (``.onnx``); its sizes are static. Its folder must be there.
        progress: as for :func:`pack`.
        options: the fields of :class:`QuantizeOptions`; ``calibrate`` or ``dynamic`` must be given.

    Returns:
        how far the quantised model is from the float model, by layer and by output.

    Raises:
        ConfigError: calibration data or options do not fit the model, or the output exists.
        ModelError: the model cannot be read, is quantised already, or has nothing to quantise.
        CheckFailedError: ``min_sqnr`` cannot be reached.
    """
    from edgepack.commands.quantize import quantize_model
    from edgepack.pipeline.model_objects import model_file

    check_options({"model": model, "output": output, **options}, "quantize")
    with model_file(model) as file:
        return quantize_model(file, Path(output), QuantizeOptions(**options), undisturbed(progress))


@guarded
def compare(
    first: PathLike | Bundle | Any,
    second: PathLike | Bundle | Any,
    *,
    progress: Progress | None = None,
    **options: Unpack[CompareKeywords],
) -> Comparison:
    """Run two models or bundles on the same inputs, and say how far apart their results are; of two models
    also layer by layer (docs/quantisation.md).

    Args:
        first: what is taken for exact: an ONNX file, an ``onnx.ModelProto``, or a bundle or its folder.
        second: the same.
        progress: as for :func:`pack`.
        options: the fields of :class:`CompareOptions`.

    Raises:
        ConfigError: inputs or outputs are not the same, data or options do not fit, or a bundle's program
            takes no inputs.
        ModelError: a model cannot be read or run.
        CheckFailedError: a bundle is damaged, or its program crashes. Results that are too far apart are a
            result.
        ToolchainError: there is no runner for a bundle's device here.
    """
    from edgepack.commands.compare import compare_sides
    from edgepack.config.option_checks import check_run
    from edgepack.options import RunOptions
    from edgepack.pipeline.model_objects import model_file

    given = [one.path if isinstance(one, Bundle) else one for one in (first, second)]
    check_options({"first": given[0], "second": given[1], **options}, "compare")
    chosen = CompareOptions(**options)
    check_run(RunOptions(chosen.runner, chosen.device, chosen.threads))
    with model_file(given[0]) as one, model_file(given[1]) as other:
        return compare_sides(one, other, chosen, undisturbed(progress))


@guarded
def verify_layers(
    bundle: PathLike | Bundle,
    model: PathLike,
    *,
    progress: Progress | None = None,
    **options: Unpack[RunKeywords],
) -> LayersVerification:
    """Say where a bundle's program loses accuracy: the model is packed once more for the same device, with
    the tensors between its kernels as outputs, and run on the recorded inputs; each of these tensors is
    compared with what the reference computes (docs/quantisation.md).

    Args:
        bundle: the bundle, or its folder.
        model: the file that it was packed from; of one that was quantised on the way, the quantised model
            that :func:`quantize` makes with the same data and options.
        progress: as for :func:`pack`.
        options: ``runner``, ``device``, ``threads``, ``timeout`` and ``sandbox`` as in
            :meth:`Bundle.verify`; ``device`` is also what is packed for.

    Raises:
        ConfigError: the bundle was packed from another model, or its tensors cannot be looked at.
        CheckFailedError: the bundle is damaged, or a program refuses or crashes. A tensor that is too far off
            is a result.
        ModelError, ToolchainError, InternalError: as for :func:`pack`.
    """
    from edgepack.commands.layers import verify_layers as compared
    from edgepack.config.option_checks import check_run
    from edgepack.options import RunOptions

    check_options({"model": model, **options}, "verify_layers")
    where = RunOptions(**options)
    check_run(where)
    folder = bundle.path if isinstance(bundle, Bundle) else Path(bundle)
    return compared(folder, Path(model), where, undisturbed(progress))


@guarded
def export(
    bundles: PathLike | Bundle | Sequence[PathLike | Bundle],
    formats: str | Sequence[str],
    output: PathLike = ".",
    *,
    force: bool = False,
    **package: Unpack[PackageKeywords],
) -> list[Path]:
    """Make packages of a bundle, or of several bundles of one model for different devices.

    Args:
        bundles: bundles or their folders.
        formats: name of a package format, or several (``edgepack export --help`` lists them).
        output: folder for the packages.
        force: replace files of the same names.
        package: ``package_name``, ``package_version``, ``summary``, ``license`` (an SPDX expression),
            ``authors`` and ``homepage``: what the packages say about themselves; ``sign_key``: a secret key
            by which a signature is written beside each, as for :func:`sign`.

    Returns:
        the files that were written, signatures too.

    Raises:
        ConfigError: a bundle cannot become such a package, what it should say is wrong, or the key is.
        CheckFailedError: a bundle is damaged.
    """
    from edgepack.commands.export import export_bundles, signer_of
    from edgepack.formats.metadata import package_metadata

    check_options(
        {"bundles": bundles, "formats": formats, "output": output, "force": force, **package}, "export"
    )
    given = [bundles] if isinstance(bundles, str | os.PathLike | Bundle) else list(bundles)
    paths = [one.path if isinstance(one, Bundle) else Path(one) for one in given]
    names = [formats] if isinstance(formats, str) else list(formats)
    if not paths or not names:
        raise ConfigError("There is nothing to export.", hint="Give a bundle's folder and a format.")
    key = signer_of(package.get("sign_key"), names)
    return export_bundles(paths, names, Path(output), package_metadata(package), force=force, key=key)


@guarded
def sign(folder: PathLike | Bundle, key: PathLike, *, comment: str = "", password: str | None = None) -> Path:
    """Sign the SHA256SUMS of a bundle or a release, as minisign or cosign do, after all files were compared
    with them.

    Args:
        folder: of the bundle or the release.
        key: a secret key of minisign or cosign: its file, or ``env://NAME`` for an environment variable that
            holds it.
        comment: a line that minisign's signature covers too; default ``file:SHA256SUMS``.
        password: of an encrypted key; default the environment variable ``EDGEPACK_SIGNING_PASSWORD``.

    Returns:
        the signature's file, which lies beside the sums.

    Raises:
        CheckFailedError: a file is not what the sums say; nothing is signed.
        ConfigError: it is neither bundle nor release, there is no such key, its password is wrong, or
            ``edgepack[sign]`` is not installed.
    """
    from edgepack.bundle.checksums import check_sums
    from edgepack.bundle.layout import MANIFEST
    from edgepack.bundle.manifest import load_manifest
    from edgepack.release.check import check_files
    from edgepack.release.index import INDEX
    from edgepack.signing.sums import secret_key, sign_sums

    where = folder.path if isinstance(folder, Bundle) else Path(folder)
    signer = secret_key(os.fspath(key), password)
    if os.path.lexists(where / MANIFEST):
        check_sums(where, load_manifest(where))
    elif os.path.lexists(where / INDEX):
        check_files(where)
    else:
        raise ConfigError(
            f"{where} is neither a bundle nor a release: it holds no {MANIFEST} and no {INDEX}.",
            hint="Give the folder that `edgepack pack` or `edgepack release` wrote.",
        )
    return sign_sums(where, signer, comment)


@guarded
def cross_compiler(
    device: PathLike | Device, toolchain: str | None = None, *, sdk: PathLike | None = None
) -> CrossCompiler:
    """A device's compiler for TVM's own ``export_library``::

        executable = tvm.relax.build(module, target)
        executable.export_library("model.so", fcompile=edgepack.cross_compiler("linux-aarch64"))

    What it links is a library for TVM's runtime on the device, not a bundle: it needs that runtime, and
    exports all that the objects define.

    Args:
        device: a device's name, a path to its YAML file, or the device.
        toolchain: default the device's.
        sdk: folder of the toolchain's SDK (the Android NDK); default as the toolchain finds it.

    Returns:
        a function of TVM's protocol for ``fcompile``, with the attributes that TVM asks for.

    Raises:
        ConfigError: there is no such device or toolchain, or the one cannot be built with the other.
        ToolchainError: when it is called, and the compiler is missing or fails.
    """
    from edgepack.config.device import load_device
    from edgepack.toolchains import resolve

    profile = load_device(device) if isinstance(device, str | os.PathLike) else device
    return resolve(profile, toolchain, sdk).cross_compiler()
