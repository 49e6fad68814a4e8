"""What a user may choose when a model is packed."""

from __future__ import annotations

import difflib
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypedDict, get_args

from edgepack.errors import ConfigError
from edgepack.plan.gpu_target import Precision
from edgepack.plan.limits import Limits
from edgepack.plan.target import Optimize
from edgepack.plan.types import ParamsMode, WeightsDtype

__all__ = [
    "DEFAULT_TIMEOUT",
    "CheckKeywords",
    "PackKeywords",
    "PackOptions",
    "PackageKeywords",
    "PathLike",
    "RunKeywords",
    "RunOptions",
    "check_optimize",
    "check_options",
    "check_run",
    "check_seconds",
    "check_whole",
]

PathLike = str | os.PathLike[str]

#: Seconds that a pack or a check may take unless `timeout` says otherwise.
DEFAULT_TIMEOUT = 600.0


@dataclass(frozen=True)
class PackOptions:
    """What a user may choose for a bundle.

    Attributes:
        name: C identifier that names library, header and symbol; default from the file's name.
        shapes: an input's name to its shape, where the model leaves it open.
        dims: a symbolic dimension's name to its value.
        toolchain: default the device's.
        sdk: folder of the toolchain's SDK (the Android NDK); default as the toolchain finds it.
        params: where the params go: a file of the bundle that the library maps, inside the library, or a file
            that the application hands in. Default what the device says.
        params_key: a public key of minisign. The library then takes params of the same layout that this key
            signed too (:func:`edgepack.update` makes them), and compares all params with their hash when it
            opens them (docs/updates.md).
        inputs: an input's name to a .npy file for the recorded data; the rest is drawn from ``seed``.
        seed: of the recorded inputs.
        expected: an output's name to a .npy file for the recorded data, of all outputs, where nothing here
            can compute them; then all inputs are given too.
        cut_inputs: tensors of the model that become the bundle's inputs; what stands before them is left out.
            A tensor whose type cannot be inferred is written with it: ``name:float32``.
        cut_outputs: tensors of the model that become the bundle's outputs.
        custom: a YAML file that declares operators which the user's own C computes
            (docs/custom-operators.md).
        maxima: a result's name to how many entries there is room for, of results whose size the data decide
            (docs/varying-sizes.md).
        max_constant_bytes: that constants which the model computes from others may take; default eight times
            what those in the file take, and at least 512 MiB.
        max_nodes: that the model may have with its functions and loops written out; default 100,000.
        set_batch: samples of a run, of a model that was exported with a fixed batch of 1. A model whose batch
            is a named dimension takes it by ``dims``.
        optimize: "latency" takes whatever runs fastest, even where it needs more params (Winograd); "size"
            leaves params as large as the model's; "balanced" lets only small ones grow.
        strict_math: neither Winograd convolutions nor polynomials in place of libm's functions.
        strict_speed: refuse a model of which a large part would be far slower than the CPU could be, instead
            of a warning.
        formats: names of package formats: the packages are written beside the bundle (docs/formats.md).
        package_name: of these packages, or of the npm package of a bundle for WebAssembly, with its scope if
            it has one: ``@acme/detector``; default by the model's name.
        package_version: of them, a semantic version; default ``0.0.0-`` and a digest of what is in them.
        summary: what the model does, in a line, for packages.
        license: of the model, an SPDX expression, for packages.
        authors: ``Name <mail@example.org>`` each, for packages.
        homepage: an URL, for packages.
        sign_key: a secret key, its file or ``env://NAME``, that signs each of them (docs/signing.md).
        weights: "float16" rounds the weights of convolutions, products and tables to that, and stores them
            in half the space; "float32" does not. Default: float16 for models of float16 or bfloat16 on CPUs
            that have instructions to convert it, else float32.
        precision: "fp16" keeps weights and what lies between a GPU's kernels as float16, in half the memory
            (docs/gpu.md); a CPU that can multiplies by weights in it (docs/kernels.md). "tf32" rounds
            the factors of products on NVIDIA's GPUs. Default "fp32".
        force: replace a bundle at the output.
        cache: look in, and add to, the cache of compiled models.
        timeout: seconds that all of it may take; 0 for no limit, default 600.
    """

    name: str | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    dims: Mapping[str, int] | None = None
    toolchain: str | None = None
    sdk: PathLike | None = None
    params: ParamsMode | None = None
    params_key: PathLike | None = None
    inputs: Mapping[str, PathLike] | None = None
    seed: int = 0
    expected: Mapping[str, PathLike] | None = None
    cut_inputs: Sequence[str] = ()
    cut_outputs: Sequence[str] = ()
    custom: PathLike | None = None
    maxima: Mapping[str, int] | None = None
    max_constant_bytes: int | None = None
    max_nodes: int | None = None
    set_batch: int | None = None
    optimize: Optimize = "latency"
    strict_math: bool = False
    strict_speed: bool = False
    formats: Sequence[str] = ()
    package_name: str | None = None
    package_version: str | None = None
    summary: str | None = None
    license: str | None = None
    authors: Sequence[str] = ()
    homepage: str | None = None
    sign_key: PathLike | None = None
    weights: WeightsDtype | None = None
    precision: Precision | None = None
    force: bool = False
    cache: bool = True
    timeout: float | None = None

    @property
    def limits(self) -> Limits:
        """How much may become of a model before it is refused."""
        given = {"constant_bytes": self.max_constant_bytes, "nodes": self.max_nodes}
        return Limits(**{name: int(value) for name, value in given.items() if value is not None})


class CheckKeywords(TypedDict, total=False):
    """The fields of :class:`PackOptions` that decide about what is compiled, as keyword arguments."""

    shapes: Mapping[str, Sequence[int]] | None
    dims: Mapping[str, int] | None
    cut_inputs: Sequence[str]
    cut_outputs: Sequence[str]
    custom: PathLike | None
    maxima: Mapping[str, int] | None
    max_constant_bytes: int | None
    max_nodes: int | None
    set_batch: int | None
    optimize: Optimize
    strict_math: bool
    weights: WeightsDtype | None
    precision: Precision | None
    timeout: float | None


class PackageKeywords(TypedDict, total=False):
    """What a package made of a bundle says about itself, and who signs it, as keyword arguments."""

    package_name: str | None
    package_version: str | None
    summary: str | None
    license: str | None
    authors: Sequence[str]
    homepage: str | None
    sign_key: PathLike | None


class PackKeywords(CheckKeywords, PackageKeywords, total=False):
    """The fields of :class:`PackOptions` as keyword arguments."""

    name: str | None
    toolchain: str | None
    sdk: PathLike | None
    params: ParamsMode | None
    params_key: PathLike | None
    inputs: Mapping[str, PathLike] | None
    seed: int
    expected: Mapping[str, PathLike] | None
    strict_speed: bool
    formats: Sequence[str]
    force: bool
    cache: bool


@dataclass(frozen=True)
class RunOptions:
    """How and where a bundle's own program is run.

    Attributes:
        runner: name of the runner, or ``NAME:PLACE`` for one that runs programs elsewhere (``ssh:pi@board``);
            default this machine, or the device's own runner.
        device: a device's name, a path to its YAML file, or the device, whose settings of the runner are
            taken; default what this machine has under the name of the bundle's device.
        threads: that compute; default what the device's profile says.
        timeout: seconds for each run of the program; default what the device's profile says.
        sandbox: run it under bubblewrap: it sees its bundle and the system's libraries, and changes nothing.
    """

    runner: str | None = None
    device: Any = None
    threads: int | None = None
    timeout: float | None = None
    sandbox: bool = False


class RunKeywords(TypedDict, total=False):
    """The fields of :class:`RunOptions` as keyword arguments."""

    runner: str | None
    device: Any
    threads: int | None
    timeout: float | None
    sandbox: bool


def check_options(given: Mapping[str, Any], function: str = "pack") -> None:
    """Raise ConfigError, in one sentence, for an option that there is not, or a value of a wrong type.

    Args:
        given: keyword arguments of the function.
        function: ``pack``, ``check``, ``export``, ``update``, or ``bench`` of a bundle.
    """
    names = {
        "check": ["model", "device", *CheckKeywords.__annotations__],
        "export": [*_EXPORT_TYPES],
        "bench": ["runs", "warmup", "profile", "variant", *RunKeywords.__annotations__],
        "update": [*RunKeywords.__annotations__, "custom"],
    }.get(function, [*dict.fromkeys([*_TYPES, *(field.name for field in fields(PackOptions))])])
    for name, value in given.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            also = f"Did you mean {near[0]}?" if near else f"It has {', '.join(names)}."
            raise ConfigError(f"{function} has no option {name!r}.", hint=also)
        types = _EXPORT_TYPES if function == "export" else _TYPES
        if value is None or name not in types:
            continue
        wanted, fits = types[name]
        if not fits(value):
            raise ConfigError(f"{name} of {function} is {wanted}, not {_shown(value)}.", hint=_hint(value))


def check_optimize(value: str) -> None:
    """Raise ConfigError unless there are kernels that are chosen for this."""
    if value not in get_args(Optimize):
        raise ConfigError(f"No kernels are made for {value!r}.", hint="Use latency, size or balanced.")


def check_whole(name: str, value: Any, *, least: int) -> None:
    """Raise ConfigError unless ``value`` is None or a whole number of at least ``least``."""
    if value is not None and not (_is_whole(value) and value >= least):
        raise ConfigError(
            f"{name} is a whole number, not {_shown(value)}."
            if not _is_whole(value)
            else f"{name} is at least {least}, not {value}.",
            hint=f"Give {least} or more.",
        )


def check_seconds(name: str, value: Any) -> None:
    """Raise ConfigError unless ``value`` is None or a number of seconds above 0."""
    if value is not None and not _is_seconds(value):
        raise ConfigError(f"{name} is a number of seconds above 0, not {_shown(value)}.")


def check_run(options: RunOptions) -> None:
    """Raise ConfigError for a value of a wrong type."""
    if options.runner is not None and not _is_text(options.runner):
        kind = type(options.runner).__name__
        raise ConfigError(f"runner is a name or NAME:PLACE, not a value of type {kind}.")
    if options.device is not None and not _is_device(options.device):
        raise ConfigError(f"device is {_TYPES['device'][0]}, not {_shown(options.device)}.")
    check_whole("threads", options.threads, least=1)
    check_seconds("timeout", options.timeout)
    if not _is_flag(options.sandbox):
        raise ConfigError(f"sandbox is True or False, not {_shown(options.sandbox)}.")


def _shown(value: Any) -> str:
    """A value as a sentence names it: short ones as they are, others by their type."""
    kind, text = type(value).__name__, repr(value)
    return f"the {kind} {text}" if len(text) <= 60 and text.isprintable() else f"a value of type {kind}"


def _hint(value: Any) -> str:
    if type(value).__name__ == "ModelProto":
        return "Write the model to a file: onnx.save(model, path)."
    return "See help(edgepack.PackOptions)."


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str)


def _is_device(value: Any) -> bool:
    # Not isinstance: what makes a Device is loaded only by what needs one.
    return _is_path(value) or type(value).__name__ == "Device"


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    try:
        operator.index(value)  # numpy's integers too
    except TypeError:
        return False
    return not isinstance(value, bool)


def _is_size(value: Any) -> bool:
    return _is_whole(value) and value > 0


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_limit(value: Any) -> bool:
    return _is_seconds(value) or (value == 0 and not isinstance(value, bool))


def _is_shape(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str) and all(map(_is_whole, value))


def _is_names(value: Any) -> bool:
    return isinstance(value, Iterable) and all(map(_is_text, value))


def _is_mapping(of: Callable[[Any], bool]) -> Callable[[Any], bool]:
    def fits(value: Any) -> bool:
        return isinstance(value, Mapping) and all(map(_is_text, value)) and all(map(of, value.values()))

    return fits


#: An option's name to what it is, in words and as a function.
_PACKAGE_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "package_name": ("a text", _is_text),
    "package_version": ("a text", _is_text),
    "summary": ("a text", _is_text),
    "license": ("a text", _is_text),
    "authors": ("a list of texts", _is_names),
    "homepage": ("a text", _is_text),
    "sign_key": ("the path of a file, or env://NAME", _is_path),
}
_EXPORT_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bundles": ("a bundle, its folder, or a list of them", lambda value: value is not None),
    "formats": ("a name or a list of names", lambda value: _is_text(value) or _is_names(value)),
    "output": ("the path of a folder", _is_path),
    **_PACKAGE_TYPES,
    "force": ("True or False", _is_flag),
}
_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "model": ("the path of a file", _is_path),
    "device": ("a device's name, the path of its YAML file, or a Device", _is_device),
    "output": ("the path of a folder", _is_path),
    "name": ("a text", _is_text),
    "shapes": ("a mapping of inputs' names to shapes of whole numbers", _is_mapping(_is_shape)),
    "dims": ("a mapping of dimensions' names to whole numbers", _is_mapping(_is_whole)),
    "toolchain": ("a text", _is_text),
    "sdk": ("the path of a folder", _is_path),
    "params": ("a text", _is_text),
    "inputs": ("a mapping of inputs' names to paths of .npy files", _is_mapping(_is_path)),
    "seed": ("a whole number", _is_whole),
    "expected": ("a mapping of outputs' names to paths of .npy files", _is_mapping(_is_path)),
    "cut_inputs": ("a list of tensors' names", _is_names),
    "cut_outputs": ("a list of tensors' names", _is_names),
    "custom": ("the path of a YAML file", _is_path),
    "maxima": ("a mapping of tensors' names to whole numbers above 0", _is_mapping(_is_size)),
    "max_constant_bytes": ("a whole number above 0", _is_size),
    "max_nodes": ("a whole number above 0", _is_size),
    "set_batch": ("a whole number above 0", _is_size),
    "optimize": ("a text", _is_text),
    "strict_math": ("True or False", _is_flag),
    "strict_speed": ("True or False", _is_flag),
    "formats": ("a list of names", _is_names),
    **_PACKAGE_TYPES,
    "weights": ("a text", _is_text),
    "precision": ("a text", _is_text),
    "force": ("True or False", _is_flag),
    "cache": ("True or False", _is_flag),
    "timeout": ("a number of seconds, 0 for no limit", _is_limit),
}
