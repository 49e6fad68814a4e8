"""What a bundle was packed for and with, to pack a model again in the same way."""

from __future__ import annotations

import os
from pathlib import Path

from edgepack.bundle.manifest import Manifest
from edgepack.config.device import DEVICES, Device, load_device
from edgepack.config.toolchain import TOOLCHAINS, load_toolchain
from edgepack.errors import ConfigError
from edgepack.options import PackOptions, PathLike

__all__ = ["bundle_device", "bundle_toolchain", "options_of"]


def options_of(manifest: Manifest) -> PackOptions:
    """The options that a bundle was packed with, as far as its manifest says; those that name files of the
    user are not among them."""
    record, options = manifest.model, manifest.options
    return PackOptions(
        name=manifest.name,
        shapes=record.shapes or None,
        dims=record.dims or None,
        const=record.const or None,
        cut_inputs=record.cut_inputs,
        cut_outputs=record.cut_outputs,
        set_batch=record.batch or None,
        maxima=record.maxima or None,
        max_trips=record.max_trips or None,
        params=manifest.params.mode,
        optimize=options.optimize,
        ram_budget=options.ram_budget,
        opt_level=options.opt_level,
        strict_math=options.strict_math,
        weights=options.weights,
        precision=options.precision,
    )


def bundle_device(root: Path, manifest: Manifest, given: PathLike | Device | None) -> Device:
    """The user's device, or what this machine has under the name of the bundle's: that never is a file of the
    bundle's choice, for a device says what is started."""
    if given is not None:
        return load_device(given) if isinstance(given, str | os.PathLike) else given
    if (known := DEVICES.known(manifest.device.name)) is not None:
        return known
    raise ConfigError(
        f"{root} was packed for the device {manifest.device.name!r}, which is not known here.",
        hint="Name the YAML file that it was packed for: --device FILE.yaml.",
    )


def bundle_toolchain(root: Path, manifest: Manifest, device: Device, given: str | None) -> str | None:
    """The name or file of the user's toolchain, or that of the bundle's, as for :func:`bundle_device`; None
    for that of ``device``, which may be a file."""
    name = manifest.toolchain.name
    if given is not None:
        return given
    if load_toolchain(device.toolchain).name == name:
        return None
    if TOOLCHAINS.known(name) is not None:
        return name
    raise ConfigError(
        f"{root} was packed with the toolchain {name!r}, which is not known here.",
        hint="Name the YAML file that it was packed with: --toolchain FILE.yaml.",
    )
