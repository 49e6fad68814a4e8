"""Where edgepack and its tests make sessions of ONNX Runtime: exact, and the same on every machine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from edgepack.compiler.frontend.onnx.extents import stored_bytes
from edgepack.compiler.frontend.onnx.external_data import save_with_data
from edgepack.compiler.frontend.onnx.machine_independent import machine_independent
from edgepack.compiler.frontend.onnx.time_first import time_first
from edgepack.system.temporary import temporary_folder

if TYPE_CHECKING:
    import onnx
    import onnxruntime

__all__ = ["WRONG", "Level", "as_source", "create_session", "newest_versions", "optimise", "value_types"]

#: How much of ONNX Runtime's graph optimisation is done. Its highest level is left out: it lays convolutions
#: out in blocks of as many channels as a vector of this CPU has elements, so that sums are added up in
#: another order on another CPU.
Level = Literal["none", "basic", "extended"]

#: Optimisations that are left out everywhere, because they change results (ONNX Runtime 1.31). The first one
#: makes zeros that a Pad writes padding of a MaxPool, which is less than any number: of negative numbers the
#: largest at the border is not zero then. The second one makes one of two pairs of QuantizeLinear and
#: DequantizeLinear by different scales, which rounds once in place of twice. The third one rounds weights and
#: biases of float32 to integers where what they are multiplied with, and the result, are quantised.
WRONG = ("Pad_Fusion", "DoubleQDQPairsRemover", "WeightBiasQuantization")

#: Models above this size, in bytes, travel through files, which ONNX Runtime maps: as bytes they are in
#: memory five times while it reads them (protocol buffers end at 2 GiB anyway).
SERIALISED_LIMIT = 256 << 20


def create_session(model: onnx.ModelProto, level: Level = "none") -> onnxruntime.InferenceSession:
    """A session on the CPU whose results are exact and depend neither on the CPU nor on its number of cores.

    "Exact" is said of integers: they never saturate before the operator's own definition does. Floats are
    rounded, in the same way on x86-64 CPUs with AVX2, AVX-512 and VNNI, which ``tests/test_other_cpu.py``
    checks. On x86-64 without FMA and on ARM ONNX Runtime has other kernels, and
    the last bits of floats may differ from these.

    What makes it so:

    - The model is rewritten (``machine_independent.py``), because of
      the two places where no option helps, and ``time_first.py`` makes recurrent layers of what it refuses.
    - ``session.x64quantprecision = 1``: "x64 SSE4.1/AVX2/AVX512 (with no VNNI) has overflow problem with
      quantized matrix multiplication with U8S8. [...] This option, if turned on, uses slower U8U8 matrix
      multiplications" (onnxruntime_session_options_config_keys.h, kOrtSessionOptionsAvx2PrecisionMode). It is
      a graph optimisation: it does nothing below the level "extended", and nothing for operands that are no
      constants, so it stands behind the rewriting for what that level makes out of other operators.
    - ``session.disable_quant_qdq = 1``: DequantizeLinear, operator, QuantizeLinear stay what the model says,
      floats in between, instead of becoming one integer operator with its own rounding, or one that quantises
      activations which the model keeps in float (same header, kOrtSessionOptionsDisableQuantQDQ and
      kOrtSessionOptionsQDQMatMulNBitsAccuracyLevel, whose default is 4: 8-bit integers).
    - ``intra_op_num_threads = 1``: where products are cut for threads decides about their order (seen with
      Conv of rank 3: other last bits on two threads). 0, the default, is the number of cores or the variable
      ORT_INTRA_OP_NUM_THREADS. The execution mode is sequential, the default.
    - ``use_deterministic_compute``: off by default, as it "is likely not as performant"
      (core/framework/session_options.h).
    - ``mlas.disable_kleidiai = 1``: Arm's library of kernels takes part on some ARM CPUs only, and users of
      ONNX Runtime 1.27 report wrong convolutions from it. The key was read off the library of ONNX Runtime
      1.31. It does nothing on x86, and edgepack was not tried on a packing machine with ARM.
    - ``read_config_from_model = 0``: by default the variable ORT_LOAD_CONFIG_FROM_MODEL lets the model's
      metadata replace these options (onnxruntime_inference_collection.py); so it is an error to set it. The
      compiler's process is started without any variable of ONNX Runtime's.

    Args:
        model: all that it needs is in it: weights loaded. Not changed.
        level: graph optimisations; with "extended" the same sums are added up in another order.

    Raises:
        Exception: of ONNX Runtime, which has no base class for its own, if it refuses the model.
    """
    options = _options(level)
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    with as_source(machine_independent(time_first(model))) as source:
        return _session(source, options)


def optimise(model: onnx.ModelProto, *, disabled: Sequence[str] = (), largest: int = 0) -> onnx.ModelProto:
    """The model after ONNX Runtime's basic graph optimisations, in standard operators, folded exactly.

    Args:
        model: as for :func:`create_session`. Operators stay the model's own: only what depends on constants
            alone is rewritten before it is folded, and what ONNX Runtime refuses (``time_first.py``).
        disabled: names of optimisations to leave out.
        largest: bytes above which a constant is not folded; 0 for no limit.

    Raises:
        Exception: of ONNX Runtime, if it refuses the model.
    """
    import onnx

    options = _options("basic")
    options.add_session_config_entry("session.disable_prepacking", "1")  # nothing will be run
    if largest:
        options.add_session_config_entry(
            "optimization.constant_folding_max_output_size_in_bytes", str(largest)
        )
    with temporary_folder() as folder:
        optimised = Path(folder) / "optimised.onnx"
        options.optimized_model_filepath = str(optimised)
        with as_source(machine_independent(time_first(model), constants_only=True)) as source:
            if isinstance(source, str):
                key = "session.optimized_model_external_initializers_file_name"
                options.add_session_config_entry(key, "optimised.data")
            _session(source, options, disabled)
        return onnx.load(str(optimised))


def value_types(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Types and shapes of the tensors inside a model as ONNX Runtime infers them, which knows its own
    operators too.

    Raises:
        Exception: of ONNX Runtime, if it refuses the model.
    """
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {value.name for value in copy.graph.output}
    names = [name for node in copy.graph.node for name in node.output if name and name not in known]
    copy.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    names_of_types = set(onnx.TensorProto.DataType.keys())
    found = []
    for output in create_session(copy).get_outputs():
        element = output.type.removeprefix("tensor(").removesuffix(")").upper()
        if output.type.startswith("tensor(") and element in names_of_types:
            kind = onnx.TensorProto.DataType.Value(element)
            found.append(onnx.helper.make_tensor_value_info(output.name, kind, output.shape))
    return found


@lru_cache(maxsize=1)
def newest_versions() -> tuple[int, int]:
    """The newest IR version and opset that ONNX Runtime takes a model of. It has no function that says so."""
    import onnx

    def taken(ir_version: int, opset: int) -> bool:
        value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
        graph = onnx.helper.make_graph([], "empty", [value], [value])
        opsets = [onnx.helper.make_opsetid("", opset)]
        model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=ir_version)
        try:
            _session(model.SerializeToString(), _options("none"))
        except Exception:  # whatever it refuses a version with
            return False
        return True

    oldest = (7, 13)
    versions = range(onnx.IR_VERSION, oldest[0], -1)
    ir_version = next((v for v in versions if taken(v, oldest[1])), oldest[0])
    opsets = range(onnx.defs.onnx_opset_version(), oldest[1], -1)
    return ir_version, next((v for v in opsets if taken(ir_version, v)), oldest[1])


def _options(level: Level) -> onnxruntime.SessionOptions:
    import onnxruntime

    levels = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = {
        "none": levels.ORT_DISABLE_ALL,
        "basic": levels.ORT_ENABLE_BASIC,
        "extended": levels.ORT_ENABLE_EXTENDED,
    }[level]
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.use_deterministic_compute = True
    options.add_session_config_entry("session.x64quantprecision", "1")
    options.add_session_config_entry("mlas.disable_kleidiai", "1")
    return options


def _session(
    source: bytes | str, options: onnxruntime.SessionOptions, disabled: Sequence[str] = ()
) -> onnxruntime.InferenceSession:
    import onnxruntime

    return onnxruntime.InferenceSession(
        source,
        options,
        providers=["CPUExecutionProvider"],
        read_config_from_model=0,
        disabled_optimizers=[*WRONG, *disabled],
    )


@contextlib.contextmanager
def as_source(model: onnx.ModelProto) -> Iterator[bytes | str]:
    """What to hand to ONNX Runtime: bytes, or a file's path if they would be too many."""
    if stored_bytes(model) <= SERIALISED_LIMIT:  # protocol buffers cannot say how large they are above 2 GiB
        yield model.SerializeToString()
        return
    with temporary_folder() as folder:
        path = folder / "model.onnx"
        save_with_data(model, path, "model.data")
        yield str(path)
