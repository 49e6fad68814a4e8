"""Feeds damaged models to the worker's tasks: a case is a number, from which all follows.

``python -m tests.support.fuzz_models --first 0 --count 20000`` prints the cases that end otherwise than with
exit code 0 or 3, ``--case 4711`` runs one, and leaves its model in the working folder.

Cases run in forked children, some tens in each, that may take 2 GB and 30 s a case: what a child prints of a
case is what the worker would have said, and one that dies of a case dies as the worker would have.
"""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import onnx

from edgepack import errors
from edgepack.compiler import worker
from edgepack.plan.limits import Limits
from tests.support.forked_cases import Outcome, main_of, run_forked, running
from tests.support.mutate import EXTERNAL, damaged
from tests.support.mutate_flatbuffer import damaged_flatbuffer
from tests.support.mutate_tables import changed_tables
from workbench.models.decoders import DECODERS, decoder
from workbench.models.drawn_regions import Drawn
from workbench.models.growing import CHAINS, growing
from workbench.models.odd import ODD
from workbench.models.operators import CASES
from workbench.models.quantised import QUANTISED
from workbench.models.recurrent import stacked

__all__ = [
    "FIRST_DRAWN",
    "FIRST_GROWING",
    "FIRST_QUANTISED",
    "FIRST_TFLITE",
    "Heard",
    "corpus",
    "run_cases",
    "write_case",
]


#: From this case on models are quantised ones.
FIRST_QUANTISED = 1_000_000

#: From this case on they are models of Ifs and loops.
FIRST_DRAWN = 2_000_000

#: From this case on they are loops of what grows, which every second case gives a room.
FIRST_GROWING = 3_000_000

#: From this case on they are TFLite files.
FIRST_TFLITE = 4_000_000

#: Every so many cases the model is planned too, not imported alone.
_PLANNED = 8

_OPERATORS = (
    *("relu", "add_int32", "mul_float32", "gelu_erf", "softmax_axis_1", "matmul_batched", "gemm_all"),
    *("conv_1d", "conv_depthwise", "convtranspose", "maxpool_ceil", "averagepool_pads", "qlinear_conv"),
    *("qlinear_matmul", "qdq_conv", "dynamic_quantize", "layernorm", "batchnorm", "instancenorm_1d", "lrn"),
    *("reshape_minus_one", "expand", "tile", "pad_constant", "resize_opset11", "resize_crop_axes"),
    *("upsample_linear",),
    *("slice_steps", "gather_elements", "scatter_nd", "topk", "onehot_constant_depth", "range_constant"),
    *("constant_of_shape", "shape_chain", "split_sizes", "einsum_attention", "where_broadcast"),
    *("cast_float16",),
    *("cumsum", "gridsample", "roialign_scaled", "eyelike", "reducesum_axes", "concat_three", "trilu_upper"),
)  # fmt: skip
_ODD = (
    "float16_conv",
    "many_inputs_outputs",
    "odd_names",
    "old_initializer_inputs",
    "local_function",
    "scalars",
)


_TFLITE = (
    *("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "MUL", "SOFTMAX", "STRIDED_SLICE", "PAD"),
    *("LOGISTIC", "AVERAGE_POOL_2D", "CONCATENATION", "RESHAPE", "GATHER", "TRANSPOSE_CONV", "SVDF"),
    *("RESIZE_BILINEAR", "SPLIT_V", "TOPK_V2", "REVERSE_SEQUENCE", "SCATTER_ND", "MEAN", "BATCH_MATMUL"),
    *("UNIDIRECTIONAL_SEQUENCE_LSTM", "DENSIFY", "ONE_HOT", "QUANTIZE"),
)  # fmt: skip


@lru_cache(maxsize=4)
def corpus(
    *, quantised: bool = False, drawn: bool = False, grown: bool = False
) -> tuple[onnx.ModelProto, ...]:
    """Small models of all kinds, or of one integer operator each, or of Ifs and loops, or of what grows."""
    if grown:
        decoders = (decoder(kind, trips=trips) for kind in DECODERS for trips in (None, 9))
        return (*decoders, *(growing({name: chain}) for name, chain in CHAINS.items()))
    if drawn:
        return tuple(Drawn(seed, depth).model for seed in range(12) for depth in (1, 2))
    if quantised:
        return tuple(make() for make in QUANTISED.values())
    recurrent = [stacked(kind, 1, 3, 4, 2, classes=2) for kind in ("LSTM", "GRU")]
    return (*(CASES[name]() for name in _OPERATORS), *(ODD[name]() for name in _ODD), *recurrent)


@lru_cache(maxsize=1)
def tflite_corpus() -> tuple[bytes, ...]:
    """Small TFLite files: of operators of all kinds, of Ifs and loops, of variables, of sparse constants."""
    from workbench.models.tflite import drawn
    from workbench.models.tflite.control_flow import counting, long_branches

    return (*(drawn(kind, 3) for kind in _TFLITE), long_branches("int8"), counting(3, "float32"))


def write_case(case: int, folder: Path) -> Path:
    """The model of a case, and the external data beside it."""
    if case >= FIRST_TFLITE:
        files = tflite_corpus()
        path = folder / "model.tflite"
        content, other = files[case % len(files)], files[(case * 7 + 3) % len(files)]
        whole = case // len(files) % 3  # what the reader of flatbuffers takes is for the rest of the way
        path.write_bytes(changed_tables(content, case) if whole else damaged_flatbuffer(content, other, case))
        return path
    models = corpus(
        quantised=FIRST_QUANTISED <= case < FIRST_DRAWN,
        drawn=FIRST_DRAWN <= case < FIRST_GROWING,
        grown=case >= FIRST_GROWING,
    )
    other = models[(case * 7 + 3) % len(models)].SerializeToString()
    path = folder / "model.onnx"
    path.write_bytes(damaged(models[case % len(models)], other, case))
    (folder / EXTERNAL[0]).write_bytes(bytes(range(256)) * (EXTERNAL[1] // 256))
    return path


class Heard(worker.Events):
    """Keeps the last event of each task."""

    def __init__(self) -> None:
        self.last: dict[str, object] = {}
        self._stream = io.StringIO()

    def send(self, **event: object) -> None:
        if event["event"] in ("done", "error"):
            self.last = event
        elif event["event"] == "running":
            running(str(event["name"]))


def _run(case: int) -> tuple[int, str]:
    """The exit code of packing a case's model, and why."""
    with tempfile.TemporaryDirectory() as name:
        folder, beside = Path(name) / "job", Path(name) / "model"
        folder.mkdir()
        beside.mkdir()
        model = str(write_case(case, beside))
        common = {
            "frontend": "tflite" if case >= FIRST_TFLITE else "onnx", "model": model,
            "shapes": {}, "dims": {}, "custom": [], "cut_inputs": [],
            "cut_outputs": [], "batch": 0, "weights": None, "maxima": _maxima(case), "seed": 0, "inputs": {},
            "limits": Limits().to_json(), "precision": None, "strict_math": False, "const": {},
            "tuned": [],
        }  # fmt: skip
        tasks = ["read", "summarise", "import", "check" if case % _PLANNED == 0 else "load"]
        for task in tasks:
            if task == "load":
                return _load(folder)
            from edgepack.config.device import load_device

            target = load_device("linux-x86_64").cpu_target().to_json() if task == "check" else None
            (folder / "job.json").write_text(json.dumps({**common, "task": task, "target": target}))
            heard = Heard()
            worker.run_job(folder, heard)
            if heard.last["event"] == "error":
                return _code(heard.last)
    return 0, ""


def _maxima(case: int) -> dict[str, int]:
    return {"tokens": 12} if FIRST_GROWING <= case < FIRST_TFLITE and case % 2 else {}


def _load(folder: Path) -> tuple[int, str]:
    from edgepack.compiler.frontend.onnx import frontend

    try:
        frontend.load(folder)
    except errors.EdgepackError as error:
        return error.exit_code, str(error.message)
    return 0, ""


def _code(event: dict[str, object]) -> tuple[int, str]:
    """That of an error; of one that says that the room of a case fits nothing in the damaged model, 3."""
    message = str(event["message"])
    code: int = getattr(errors, str(event["class"])).exit_code
    return 3 if message.startswith("--max:") else code, message


def run_cases(cases: Sequence[int]) -> Iterator[Outcome]:
    """How each case ends, in order."""
    _preload()
    return run_forked(cases, _run)


def _preload() -> None:
    """What all children need: a fork has it at once."""
    import onnxruntime  # noqa: F401
    import tvm.relax.frontend.onnx  # type: ignore[import-untyped]  # noqa: F401

    from edgepack.compiler.frontend import onnx as _  # noqa: F401
    from edgepack.compiler.graph import lower  # noqa: F401
    from edgepack.compiler.planner import build  # noqa: F401

    corpus()
    corpus(quantised=True)


def main() -> int:
    """See above."""
    _preload()
    return main_of(_run, write_case)


if __name__ == "__main__":
    sys.exit(main())
