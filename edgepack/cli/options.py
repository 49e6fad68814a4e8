"""Options that commands share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import click

from edgepack.cli import values
from edgepack.cli.complete import device_names, format_names, runner_names, toolchain_names
from edgepack.plan.gpu_target import Precision

__all__ = [
    "calibration_options",
    "custom_option",
    "device_option",
    "format_option",
    "json_option",
    "kernel_options",
    "limit_option",
    "limit_options",
    "model_options",
    "package_options",
    "run_options",
    "runner_option",
    "sdk_option",
    "size_options",
    "toolchain_option",
    "tuned_option",
]

_F = TypeVar("_F", bound=Callable[..., Any])

#: Of the commands that run a program where the user says.
runner_option = click.option(
    "--runner",
    shell_complete=runner_names,
    metavar="NAME[:PLACE]",
    help="What runs the program: native, qemu, ssh:USER@HOST, ...  [default: this machine, or the device's]",
)

#: Of those that take a model.
device_option = click.option(
    "-d",
    "--device",
    default="host",
    show_default=True,
    shell_complete=device_names,
    help="Name of a device, a chip or a board, or a device's YAML file.",
)


def toolchain_option(default: str) -> Callable[[_F], _F]:
    """The option of commands that compile C; ``default`` says what is taken without it."""
    return click.option(
        "--toolchain",
        shell_complete=toolchain_names,
        help=f"Name of a toolchain, or its YAML file.  [default: {default}]",
    )


#: Of those that compile.
limit_option = click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="All of it may take; 0 for no limit.  [default: 600]",
)
sdk_option = click.option(
    "--sdk",
    type=click.Path(path_type=Path),
    help="Folder of the toolchain's SDK (the Android NDK).  [default: as the toolchain finds it]",
)
#: Of those that read a model.
custom_option = click.option(
    "--custom",
    type=click.Path(path_type=Path),
    metavar="FILE.yaml",
    help="Declares operators that your own C computes.",
)
tuned_option = click.option(
    "--tuned",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Schedules that were measured on such a device (docs/tuning.md); several times for several files.",
)

#: Of those that give a result.
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")


def format_option(*, required: bool = False) -> Callable[[_F], _F]:
    """The option of commands that make packages of bundles."""
    return click.option(
        "--format",
        "formats",
        multiple=True,
        shell_complete=format_names,
        required=required,
        metavar="NAME",
        help="Package that is made of the bundle: tar.gz, zip, ... (`edgepack export --help` lists them); "
        "several times for several.",
    )


def package_options(function: _F) -> _F:
    """What a package says about itself, and who signs it."""
    options = [
        click.option(
            "--package-name", metavar="NAME", help="Of the package.  [default: by the model's name]"
        ),
        click.option(
            "--package-version",
            metavar="VERSION",
            help="Of the package: 1.2.0.  [default: 0.0.0- and a digest of what is in it]",
        ),
        click.option("--summary", metavar="TEXT", help="What the model does, in a line."),
        click.option("--license", metavar="SPDX", help="Of the model: Apache-2.0."),
        click.option(
            "--author", "authors", multiple=True, metavar="'NAME <MAIL>'", help="Several times for several."
        ),
        click.option("--homepage", metavar="URL", help="Where there is more about the model."),
        click.option(
            "--sign-key",
            metavar="FILE|env://NAME",
            help="Write a signature beside each package, by this secret key of minisign or cosign.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


#: How much may become of a small file.
_LIMITS = (
    click.option(
        "--max-constant-bytes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Bytes that constants which the model computes may take.  [default: 8 times those in "
        "the file, at least 512 MiB]",
    ),
    click.option(
        "--max-nodes",
        type=click.IntRange(min=1),
        metavar="N",
        help="Nodes that the model may have, functions and loops written out.  [default: 100000]",
    ),
)


#: Sizes and values that a model leaves open.
_SIZES = (
    click.option(
        "--shape",
        "shapes",
        multiple=True,
        callback=values.shapes,
        metavar="INPUT=1,3,224,224",
        help="An input's shape.",
    ),
    click.option(
        "--dim", "dims", multiple=True, callback=values.dims, metavar="SYMBOL=1", help="A symbolic dimension."
    ),
    click.option(
        "--const",
        multiple=True,
        callback=values.constants,
        metavar="INPUT=16000",
        help="An input becomes a constant: a number, or as many as it has elements, with commas.",
    ),
)


def size_options(function: _F) -> _F:
    """Sizes and values that a model leaves open."""
    return _with(function, _SIZES)


def model_options(function: _F) -> _F:
    """How much of a model is taken: sizes that it leaves open, and tensors to cut it at."""
    options = (
        *_SIZES,
        click.option(
            "--max",
            "maxima",
            multiple=True,
            callback=values.maxima,
            metavar="TENSOR=N",
            help="Room for N entries in a result whose size the data decide (NonMaxSuppression, ...). The "
            "output TENSOR_count says how many there are.",
        ),
        click.option(
            "--max-trips",
            type=click.IntRange(min=1),
            metavar="N",
            help="Trips that a loop may make; where the data decide, a run fails that would make more.  "
            "[default: 1000000]",
        ),
        custom_option,
        click.option(
            "--set-batch",
            type=click.IntRange(min=1),
            metavar="N",
            help="Samples of a run, where the model was exported with a fixed batch of 1.",
        ),
        click.option(
            "--inputs",
            "cut_inputs",
            multiple=True,
            metavar="TENSOR,...",
            help="Cut the model: tensors that become inputs; what stands before them is left out.",
        ),
        click.option(
            "--outputs",
            "cut_outputs",
            multiple=True,
            metavar="TENSOR,...",
            help="Cut the model: tensors that become the outputs.",
        ),
    )
    return _with(function, (*options, *_LIMITS))


def calibration_options(function: _F) -> _F:
    """How a model is quantised, of commands that do it."""
    options = (
        click.option(
            "--calibrate",
            type=click.Path(),
            metavar="FOLDER|FILE.npz|synthetic",
            help="Inputs such as the model will see: .npz files with an array for each input, whose first "
            "dimension can hold several samples; `synthetic` for random ones.",
        ),
        click.option(
            "--exclude",
            multiple=True,
            callback=values.patterns,
            metavar="PATTERN,...",
            help="Names of nodes, or operators, that stay float: `head*`, `Gemm`.",
        ),
        click.option(
            "--min-sqnr",
            type=click.FloatRange(min=0, min_open=True),
            metavar="DB",
            help="Leave as few layers float as bring each output to this signal-to-noise ratio.",
        ),
        click.option(
            "--reduce-range",
            is_flag=True,
            help="Weights of 7 bits: faster on x86 without VNNI (AVX2), less accurate.",
        ),
        click.option(
            "--activation-tables/--no-activation-tables",
            default=None,
            help="Round before activations too, which become tables: faster, less accurate.  [default: "
            "before SiLU, GELU and the like]",
        ),
    )
    return _with(function, options)


def limit_options(function: _F) -> _F:
    """How much may become of a model before it is refused."""
    return _with(function, _LIMITS)


def run_options(function: _F) -> _F:
    """How and where a bundle's own program is run: the fields of :class:`edgepack.options.RunOptions`."""
    options = (
        runner_option,
        click.option(
            "--device",
            metavar="NAME|FILE",
            shell_complete=device_names,
            help="Whose settings of the runner are taken.  [default: this machine's of the bundle's device]",
        ),
        click.option(
            "--threads", type=click.IntRange(min=1), help="Threads that compute.  [default: the device's]"
        ),
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            help="Seconds that the program may take.",
        ),
        click.option(
            "--sandbox",
            is_flag=True,
            help="Run the program under bubblewrap: it reads its bundle, writes nothing, has no network.",
        ),
    )
    return _with(function, options)


def kernel_options(function: _F) -> _F:
    """What kernels are chosen for."""
    options = (
        click.option(
            "--optimize",
            type=click.Choice(["latency", "size", "balanced"]),
            default="latency",
            show_default=True,
            help="Latency lets params grow where that is faster (Winograd), size never, balanced only small "
            "ones.",
        ),
        click.option(
            "--ram-budget",
            metavar="SIZE",
            help="RAM that a microcontroller's model may take (48 KiB); layers are computed by rows for it. "
            "[default: the device's]",
        ),
        tuned_option,
        click.option(
            "--opt-level",
            type=click.IntRange(0, 3),
            default=3,
            show_default=True,
            help="0: plain loops, an operator each, 1: fused, 2: layouts and register tiles too, 3: all.",
        ),
        click.option(
            "--strict-math",
            is_flag=True,
            help="No Winograd, libm's functions instead of vector polynomials, denormal numbers as they are.",
        ),
        click.option(
            "--weights",
            type=click.Choice(["float32", "float16"]),
            help="Float16 stores them, rounded, in half the space.  [default: as the model has them]",
        ),
        click.option(
            "--precision",
            type=click.Choice(get_args(Precision)),
            help="Fp16: a GPU keeps tensors as float16, a CPU that can multiplies in it; tf32: one of "
            "NVIDIA's rounds factors of products.  [default: fp32]",
        ),
    )
    return _with(function, options)


def _with(function: _F, options: Sequence[Callable[[_F], _F]]) -> _F:
    for option in reversed(options):
        function = option(function)
    return function
