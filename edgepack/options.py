"""What a user may choose when a model is packed."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypedDict

from edgepack.plan.gpu_target import Precision
from edgepack.plan.limits import Limits
from edgepack.plan.opt_level import OptLevel
from edgepack.plan.quantisation import CalibrationMethod, Quantize
from edgepack.plan.target import Optimize
from edgepack.plan.types import ParamsMode, WeightsDtype

__all__ = [
    "DEFAULT_TIMEOUT",
    "CheckKeywords",
    "CompareKeywords",
    "CompareOptions",
    "PackKeywords",
    "PackOptions",
    "PackageKeywords",
    "PathLike",
    "QuantizeKeywords",
    "QuantizeOptions",
    "RunKeywords",
    "RunOptions",
]

PathLike = str | os.PathLike[str]

#: Seconds that a pack or a check may take unless `timeout` says otherwise.
DEFAULT_TIMEOUT = 600.0


@dataclass(frozen=True)
class PackOptions:
    """What a user may choose for a bundle.

    Attributes:
        name: of library, header and symbol, a C identifier; default from the file's name.
        shapes: an input's name to its shape, where the model leaves it open.
        dims: a symbolic dimension's name to its value.
        const: an input's name to a number, or as many as it has elements: the input becomes a constant, and
            is none of the bundle's.
        toolchain: name of a toolchain, or its YAML file; default the device's.
        sdk: folder of the toolchain's SDK (the Android NDK); default as the toolchain finds it.
        params: where the params go: a file of the bundle that the library maps, inside the library, or a file
            that the application hands in. Default what the device says.
        params_key: a public key of minisign. The library then takes params of the same layout that this key
            signed too (:func:`edgepack.update` makes them), and compares all params with their hash when it
            opens them (docs/ship/updates.md).
        inputs: an input's name to a .npy file for the recorded data; the rest is drawn from ``seed``.
        seed: of the random recorded inputs.
        expected: an output's name to a .npy file for the recorded data, of all outputs, where nothing here
            can compute them; then all inputs are given too.
        cut_inputs: tensors of the model that become the bundle's inputs; what stands before them is left out.
            A tensor whose type cannot be inferred is written with it: ``name:float32``.
        cut_outputs: tensors of the model that become the bundle's outputs.
        custom: a YAML file that declares operators which the user's own C computes
            (docs/custom-operators.md).
        maxima: a result's name to how many entries there is room for, of results whose size the data decide
            (docs/varying-sizes.md).
        max_constant_bytes: bytes that constants which the model computes from others may take; default eight
            times what those in the file take, and at least 512 MiB.
        max_nodes: nodes that the model may have with its functions and loops written out; default 100,000.
        max_trips: trips that a loop may make; default 1,000,000. Where the data decide how many it makes, a
            run fails that would make more (docs/models.md).
        set_batch: samples of a run, of a model that was exported with a fixed batch of 1. A model whose batch
            is a named dimension takes it by ``dims``.
        optimize: "latency" takes whatever runs fastest, even where it needs more params (Winograd); "size"
            leaves params as large as the model's, and firmware's kernels that differ in numbers only share a
            function; "balanced" lets only small params grow.
        ram_budget: bytes of RAM that a run on a microcontroller may take, or text with a unit (``"48 KiB"``);
            default what the device has. Where whole tensors do not fit, layers are computed some rows at a
            time (docs/use/microcontrollers.md).
        tuned: files of schedules that were measured (docs/tuning.md); those for the device's kind of CPU are
            taken where the model has such layers. Several count as one.
        opt_level: how much is done for speed: 0 makes each operator a kernel of plain loops, 1 fuses
            operators, 2 chooses layouts, packed weights and kernels of register tiles as well, 3 does
            everything (docs/performance.md).
        strict_math: neither Winograd convolutions, nor factors of an image's channels in the weights, nor
            polynomials in place of libm's functions, nor zeros in place of denormal numbers.
        strict_speed: refuse a model of which a large part would be far slower than the CPU could be, instead
            of a warning.
        formats: names of package formats: the packages are written beside the bundle (docs/ship/formats.md).
        package_name: of the packages, or of the npm package of a bundle for WebAssembly, with its scope if it
            has one: ``@acme/detector``; default by the model's name.
        package_version: of the packages, a semantic version; default ``0.0.0-`` and a digest of what is in
            them.
        summary: what the model does, in a line, for packages.
        license: of the model, an SPDX expression, for packages.
        authors: ``Name <mail@example.org>`` each, for packages.
        homepage: an URL, for packages.
        sign_key: a secret key, its file or ``env://NAME``, that signs each package (docs/ship/signing.md).
        weights: "float16" rounds the weights of convolutions, products and tables to that, and stores them
            in half the space (for WebAssembly as float32, which a compressed download makes small again:
            docs/use/web.md); "float32" does not. Default: float16 for models of float16 or bfloat16 on CPUs
            that have instructions to convert it, else float32.
        precision: "fp16" keeps weights and what lies between a GPU's kernels as float16, in half the memory
            (docs/gpu.md); a CPU that can multiplies by weights in it (docs/internals/kernels.md). "tf32"
            rounds the factors of products on NVIDIA's GPUs. Default "fp32".
        quantize: a float model is quantised before it is packed (docs/quantisation.md): "int8" with
            calibration data, "dynamic" without. The recorded outputs are those of the quantised model.
        calibrate, exclude, min_sqnr, reduce_range, activation_tables: then, as for :class:`QuantizeOptions`.
        keep_stages: a folder for texts of what the model becomes on the way: the graph after each group of
            passes, TIR, LLVM IR and assembly of each kernel, the plan (docs/internals/stages.md). Kernels are
            then compiled anew, be they in the cache or not.
        force: replace a bundle at the output, and texts in the folder ``keep_stages``.
        cache: look in, and add to, the cache of compiled models.
        timeout: seconds that all of it may take; 0 for no limit, default 600.
    """

    name: str | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    dims: Mapping[str, int] | None = None
    const: Mapping[str, float | Sequence[float]] | None = None
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
    max_trips: int | None = None
    set_batch: int | None = None
    optimize: Optimize = "latency"
    ram_budget: int | str | None = None
    tuned: Sequence[PathLike] = ()
    opt_level: OptLevel = 3
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
    quantize: Quantize | None = None
    calibrate: PathLike | None = None
    exclude: Sequence[str] = ()
    min_sqnr: float | None = None
    reduce_range: bool = False
    activation_tables: bool | None = None
    keep_stages: PathLike | None = None
    force: bool = False
    cache: bool = True
    timeout: float | None = None

    @property
    def limits(self) -> Limits:
        """How much may become of a model before it is refused."""
        given = {
            "constant_bytes": self.max_constant_bytes,
            "nodes": self.max_nodes,
            "trips": self.max_trips,
        }
        return Limits(**{name: int(value) for name, value in given.items() if value is not None})


class CheckKeywords(TypedDict, total=False):
    """The fields of :class:`PackOptions` that decide about what is compiled, as keyword arguments."""

    shapes: Mapping[str, Sequence[int]] | None
    dims: Mapping[str, int] | None
    const: Mapping[str, float | Sequence[float]] | None
    cut_inputs: Sequence[str]
    cut_outputs: Sequence[str]
    custom: PathLike | None
    maxima: Mapping[str, int] | None
    max_constant_bytes: int | None
    max_nodes: int | None
    max_trips: int | None
    set_batch: int | None
    optimize: Optimize
    ram_budget: int | str | None
    tuned: Sequence[PathLike]
    opt_level: OptLevel
    strict_math: bool
    weights: WeightsDtype | None
    precision: Precision | None
    timeout: float | None


@dataclass(frozen=True)
class QuantizeOptions:
    """How a float model is quantised.

    Attributes:
        calibrate: a folder of ``.npz`` or ``.npy`` files, or one such file, with inputs such as the model
            will see: an array for each input, by its name, whose first dimension can hold several samples.
            Or "synthetic": random ones, which say nothing about accuracy.
        dynamic: ranges of activations are computed when the model runs; matrix products and LSTMs only.
            Calibration data then are only compared with.
        method: how the range of activations is chosen: all values ("minmax"), the clipping that changes their
            distribution least ("entropy"), or all but the outermost ("percentile").
        percentile: percent of the values that the range holds, for the method "percentile".
        symmetric: activations are int8 with zero point 0, instead of uint8 with any.
        exclude: patterns (``conv1*``) of nodes' names and operators that stay float.
        min_sqnr: signal-to-noise ratio in dB of each output, at least; few layers stay float for it.
        accuracy: a Python file with a function ``accuracy(run)`` that returns a number, the larger the
            better; ``run({"input": array})`` gives the outputs of the model that is measured by their names.
            It measures the float and the quantised model, in a process of edgepack's.
        min_accuracy: accuracy that the quantised model has at least; few layers stay float for it.
        max_drop: by how much its accuracy may be less than the float model's; layers stay float likewise.
        bias_correction: take the mean error that rounded weights make off the biases, unless that harms.
        reduce_range: weights of 7 bits, which x86 CPUs without VNNI (AVX2) multiply as bytes.
        like: an older quantised model, whose scales are kept: then weights are new params for its library.
        activation_tables: products are rounded before their activations too, which are look-up tables then:
            faster, less accurate. None: before those that are expensive to compute (SiLU, GELU, tanh), not
            before others (hard-swish).
        samples: samples of the calibration data that are used at most.
        seed: of random calibration data.
        shapes: an input's name to its shape, where the model leaves it open.
        dims: a symbolic dimension's name to its value.
        const: an input's name to a number, or as many as it has elements: the input becomes a constant.
        force: replace a file at the output.
        timeout: seconds that all of it may take; 0 for no limit, default 600.
    """

    calibrate: PathLike | None = None
    dynamic: bool = False
    method: CalibrationMethod = "minmax"
    percentile: float = 99.99
    symmetric: bool = False
    exclude: Sequence[str] = ()
    min_sqnr: float | None = None
    accuracy: PathLike | None = None
    min_accuracy: float | None = None
    max_drop: float | None = None
    like: PathLike | None = None
    bias_correction: bool = True
    reduce_range: bool = False
    activation_tables: bool | None = None
    samples: int = 128
    seed: int = 0
    shapes: Mapping[str, Sequence[int]] | None = None
    dims: Mapping[str, int] | None = None
    const: Mapping[str, float | Sequence[float]] | None = None
    force: bool = False
    timeout: float | None = None


class QuantizeKeywords(TypedDict, total=False):
    """The fields of :class:`QuantizeOptions` as keyword arguments."""

    calibrate: PathLike | None
    dynamic: bool
    method: CalibrationMethod
    percentile: float
    symmetric: bool
    exclude: Sequence[str]
    min_sqnr: float | None
    accuracy: PathLike | None
    min_accuracy: float | None
    max_drop: float | None
    like: PathLike | None
    bias_correction: bool
    reduce_range: bool
    activation_tables: bool | None
    samples: int
    seed: int
    shapes: Mapping[str, Sequence[int]] | None
    dims: Mapping[str, int] | None
    const: Mapping[str, float | Sequence[float]] | None
    force: bool
    timeout: float | None


@dataclass(frozen=True)
class CompareOptions:
    """How two models or bundles are compared.

    Attributes:
        inputs: a folder of ``.npz`` or ``.npy`` files, or one such file, with what both are run on: an array
            for each input, by its name, whose first dimension can hold several samples. Default: random
            ones, or between two bundles the recorded inputs of the first.
        seed: of random inputs.
        samples: samples that are used at most; of random ones there are 8.
        min_sqnr: signal-to-noise ratio in dB that each output has to have.
        max_error: largest error that each output may have.
        min_top1: share of rows, 0 to 1, whose largest element has to be the same one, of outputs that look
            like scores of classes.
        shapes: an input's name to its shape, where a model leaves it open.
        dims: a symbolic dimension's name to its value.
        const: an input's name to a number, or as many as it has elements: the input becomes a constant.
        runner, device, threads: how bundles are run, as in :meth:`Bundle.verify`.
        timeout: seconds that all of it may take; 0 for no limit, default 600.
    """

    inputs: PathLike | None = None
    seed: int = 0
    samples: int = 128
    min_sqnr: float | None = None
    max_error: float | None = None
    min_top1: float | None = None
    shapes: Mapping[str, Sequence[int]] | None = None
    dims: Mapping[str, int] | None = None
    const: Mapping[str, float | Sequence[float]] | None = None
    runner: str | None = None
    device: Any = None
    threads: int | None = None
    timeout: float | None = None


class CompareKeywords(TypedDict, total=False):
    """The fields of :class:`CompareOptions` as keyword arguments."""

    inputs: PathLike | None
    seed: int
    samples: int
    min_sqnr: float | None
    max_error: float | None
    min_top1: float | None
    shapes: Mapping[str, Sequence[int]] | None
    dims: Mapping[str, int] | None
    const: Mapping[str, float | Sequence[float]] | None
    runner: str | None
    device: Any
    threads: int | None
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
    quantize: Quantize | None
    calibrate: PathLike | None
    exclude: Sequence[str]
    min_sqnr: float | None
    reduce_range: bool
    activation_tables: bool | None
    keep_stages: PathLike | None
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
        threads: threads that compute; default what the device's profile says.
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
