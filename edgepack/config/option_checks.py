"""What a caller gives as options: names that there are, values of the right types, one sentence where not."""

from __future__ import annotations

import difflib
import operator
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from math import isfinite
from numbers import Number
from typing import Any, get_args

from edgepack.config.device import Device
from edgepack.config.models import parse_size
from edgepack.errors import ConfigError
from edgepack.options import (
    CheckKeywords,
    CompareKeywords,
    PackOptions,
    QuantizeKeywords,
    RunKeywords,
    RunOptions,
)
from edgepack.plan.opt_level import ALL, OPT_LEVELS
from edgepack.plan.target import Optimize
from edgepack.registry import object_kind

__all__ = [
    "check_opt_level",
    "check_optimize",
    "check_options",
    "check_run",
    "check_seconds",
    "check_whole",
    "with_ram_budget",
]


_MODEL_HINT = "Give the path of a file that torch.onnx.export, tf2onnx or the like has written."


def check_options(given: Mapping[str, Any], function: str = "pack") -> None:
    """Raise ConfigError, in one sentence, for an option that there is not, or a value of a wrong type.

    Args:
        given: keyword arguments of the function.
        function: ``pack``, ``check``, ``export``, ``quantize``, ``compare``, ``update``, or ``bench`` or
            ``report`` of a bundle.
    """
    names = {
        "check": ["model", "device", *CheckKeywords.__annotations__],
        "tune": ["model", "device", *CheckKeywords.__annotations__, "runner", "run_timeout"],
        "export": [*_EXPORT_TYPES],
        "quantize": ["model", "output", *QuantizeKeywords.__annotations__],
        "verify_layers": ["model", *RunKeywords.__annotations__],
        "compare": ["first", "second", *CompareKeywords.__annotations__],
        "report": ["output", "bench", "verification", "run", "force", *RunKeywords.__annotations__],
        "bench": ["runs", "warmup", "profile", "variant", *RunKeywords.__annotations__],
        "update": [
            *RunKeywords.__annotations__,
            *("toolchain", "custom", "tuned", "max_constant_bytes", "max_nodes"),
        ],
    }.get(function, [*dict.fromkeys([*_TYPES, *(field.name for field in fields(PackOptions))])])
    for name, value in given.items():
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            also = f"Did you mean {near[0]}?" if near else f"It has {', '.join(names)}."
            raise ConfigError(f"{function} has no option {name!r}.", hint=also)
        types = {"export": _EXPORT_TYPES, "quantize": _QUANTIZE_TYPES, "compare": _COMPARE_TYPES}.get(
            function, _TYPES
        )
        if value is None or name not in types:
            continue
        wanted, fits = types[name]
        if not fits(value):
            options = {"quantize": "QuantizeOptions", "compare": "CompareOptions"}.get(
                function, "PackOptions"
            )
            hint = _MODEL_HINT if name == "model" else f"See help(edgepack.{options})."
            raise ConfigError(f"{name} of {function} is {wanted}, not {_shown(value)}.", hint=hint)


def check_optimize(value: str) -> None:
    """Raise ConfigError unless there are kernels that are chosen for this."""
    if value not in get_args(Optimize):
        raise ConfigError(f"No kernels are made for {value!r}.", hint="Use latency, size or balanced.")


def with_ram_budget(device: Device, given: int | str | None) -> Device:
    """The device, whose budget has the RAM that is given; as it is where none is.

    Raises:
        ConfigError: for what is no size, and for a device that is no microcontroller.
    """
    if given is None:
        return device
    if not device.bare_metal:
        raise ConfigError(
            f"--ram-budget is for microcontrollers, and {device.name} has an operating system.",
            hint="Leave it out; edgepack devices shows which devices are firmware (os: none).",
        )
    try:
        size = parse_size(given)
    except ValueError as error:
        raise ConfigError(f"--ram-budget: {error}.", hint="For example 48 KiB.") from None
    if size < 1:
        raise ConfigError(f"--ram-budget of {size} bytes leaves no RAM.", hint="For example 48 KiB.")
    return device.model_copy(update={"budget": device.budget.model_copy(update={"ram": size})})


def check_opt_level(value: Any, *, strict_speed: bool = False) -> None:
    """Raise ConfigError unless ``value`` is a level of optimisation, the highest with ``strict_speed``."""
    if not _is_whole(value) or value not in OPT_LEVELS:
        raise ConfigError(
            f"There is no optimisation level {_shown(value).removeprefix('the int ')}.",
            hint="Use 0 (each operator a kernel of plain loops), 1, 2 or 3 (everything).",
        )
    if strict_speed and value < ALL:
        raise ConfigError(
            f"--strict-speed refuses slow kernels, and --opt-level {value} asks for such.",
            hint="Leave out one of the two.",
        )


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


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_path(value: Any) -> bool:
    return isinstance(value, str | os.PathLike) and isinstance(os.fspath(value), str)


def _is_paths(value: Any) -> bool:
    return isinstance(value, Iterable) and not _is_path(value) and all(map(_is_path, value))


def _is_model(value: Any) -> bool:
    return _is_path(value) or bool(object_kind(value))


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


def _is_real(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_seconds(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _is_limit(value: Any) -> bool:
    return _is_seconds(value) or (value == 0 and not isinstance(value, bool))


def _is_shape(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str) and all(map(_is_whole, value))


def _is_numbers(value: Any) -> bool:
    if isinstance(value, Iterable) and not isinstance(value, str):
        return all(map(_is_numbers, value))
    return isinstance(value, Number) and not isinstance(value, complex)  # bool and NumPy's too


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
    "model": ("the path of a file, or a model in memory (onnx.ModelProto)", _is_model),
    "device": ("a device's name, the path of its YAML file, or a Device", _is_device),
    "output": ("the path of a folder", _is_path),
    "name": ("a text", _is_text),
    "shapes": ("a mapping of inputs' names to shapes of whole numbers", _is_mapping(_is_shape)),
    "dims": ("a mapping of dimensions' names to whole numbers", _is_mapping(_is_whole)),
    "const": ("a mapping of inputs' names to numbers, or lists of them", _is_mapping(_is_numbers)),
    "toolchain": ("a text", _is_text),
    "sdk": ("the path of a folder", _is_path),
    "params": ("a text", _is_text),
    "inputs": ("a mapping of inputs' names to paths of .npy files", _is_mapping(_is_path)),
    "seed": ("a whole number, 0 or more", lambda value: _is_whole(value) and value >= 0),
    "expected": ("a mapping of outputs' names to paths of .npy files", _is_mapping(_is_path)),
    "cut_inputs": ("a list of tensors' names", _is_names),
    "cut_outputs": ("a list of tensors' names", _is_names),
    "custom": ("the path of a YAML file", _is_path),
    "maxima": ("a mapping of tensors' names to whole numbers above 0", _is_mapping(_is_size)),
    "max_constant_bytes": ("a whole number above 0", _is_size),
    "max_nodes": ("a whole number above 0", _is_size),
    "max_trips": ("a whole number above 0", _is_size),
    "set_batch": ("a whole number above 0", _is_size),
    "optimize": ("a text", _is_text),
    "ram_budget": ("a number of bytes above 0, or a text like 48 KiB", lambda v: _is_size(v) or _is_text(v)),
    "tuned": ("a list of paths of files", _is_paths),
    "opt_level": ("a whole number from 0 to 3", _is_whole),
    "strict_math": ("True or False", _is_flag),
    "strict_speed": ("True or False", _is_flag),
    "formats": ("a list of names", _is_names),
    **_PACKAGE_TYPES,
    "weights": ("a text", _is_text),
    "precision": ("a text", _is_text),
    "quantize": ("a text", _is_text),
    "calibrate": ("the path of a folder or file, or 'synthetic'", _is_path),
    "exclude": ("a list of patterns", lambda value: not _is_text(value) and _is_names(value)),
    "min_sqnr": ("a number of decibels above 0", _is_seconds),
    "reduce_range": ("True or False", _is_flag),
    "activation_tables": ("True, False or None", lambda value: value is None or _is_flag(value)),
    "keep_stages": ("the path of a folder", _is_path),
    "force": ("True or False", _is_flag),
    "cache": ("True or False", _is_flag),
    "timeout": ("a number of seconds, 0 for no limit", _is_limit),
    "runner": ("a text", _is_text),
    "run_timeout": ("a number of seconds above 0", _is_seconds),
}
_QUANTIZE_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **{name: _TYPES[name] for name in QuantizeKeywords.__annotations__ if name in _TYPES},
    "model": _TYPES["model"],
    "output": ("the path of a file", _is_path),
    "dynamic": ("True or False", _is_flag),
    "method": ("a text", _is_text),
    "percentile": ("a number above 0", _is_seconds),
    "symmetric": ("True or False", _is_flag),
    "bias_correction": ("True or False", _is_flag),
    "accuracy": ("the path of a Python file", _is_path),
    "min_accuracy": ("a number", _is_real),
    "max_drop": ("a number, 0 or more", _is_limit),
    "like": ("the path of an ONNX file", _is_path),
    "samples": ("a whole number above 0", _is_size),
}
_COMPARE_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    **{name: _QUANTIZE_TYPES[name] for name in CompareKeywords.__annotations__ if name in _QUANTIZE_TYPES},
    "first": ("an ONNX file or a bundle: its path, an onnx.ModelProto, or a Bundle", _is_model),
    "second": ("an ONNX file or a bundle: its path, an onnx.ModelProto, or a Bundle", _is_model),
    "inputs": ("the path of a folder or file", _is_path),
    "max_error": ("a number, 0 or more", _is_limit),
    "min_top1": ("a number from 0 to 1", lambda value: _is_limit(value) and value <= 1),
}
