"""C over CMSIS-NN or ESP-NN of a TFLite file, by bakenn:
``python mcu_cmsis_nn.py MODEL STATIC FOLDER TARGET``, TARGET one of bakenn's.

Run by mcu_instructions.py, in a process that has bakenn and its packages on its path and nothing of
edgepack.

bakenn takes a batch of 1 only where the file says so, wants options behind a Reshape, has no softmax of
TFLite, and calls CMSIS-NN where padding is the same on both sides. STATIC is the file that both sides
compute: of batch 1, and without a softmax at its end. CMSIS-NN's functions take the padding above and to the
left and the output's size, so they serve any padding, and are called for all convolutions.

ESP-NN's generic functions are called for the target esp32; for fully connected layers bakenn has its own.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path
from typing import Any

import bakenn
import tflite
from bakenn.backend.portable_c import CBackendOptions, KernelPolicy
from bakenn.backend.portable_c.families import conv
from bakenn.frontends.tflite import importer
from bakenn.targets.profiles import resolve_target

SOFTMAX, RESHAPE = 25, "ReshapeOptions"


def static(data: bytearray) -> bytearray:
    """The file with batches of 1, and without a softmax as its last operator."""
    model = tflite.Model.GetRootAsModel(data, 0)
    graph = model.Subgraphs(0)
    for i in range(graph.TensorsLength()):
        shape = graph.Tensors(i).ShapeSignatureAsNumpy()
        if not isinstance(shape, int):
            shape[shape == -1] = 1
    count = graph.OperatorsLength()
    last = graph.Operators(count - 1)
    code = model.OperatorCodes(last.OpcodeIndex())
    if max(code.BuiltinCode(), code.DeprecatedBuiltinCode()) == SOFTMAX:
        graph.OutputsAsNumpy()[0] = last.Inputs(0)
        operators = graph._tab.Vector(graph._tab.Offset(10))  # the schema's field of a subgraph
        struct.pack_into("<I", data, operators - 4, count - 1)
    return data


def main() -> None:
    """Writes STATIC, and FOLDER."""
    source, made, folder = map(Path, sys.argv[1:4])
    made.write_bytes(static(bytearray(source.read_bytes())))
    option = importer._option

    def lenient(schema: Any, operator: Any, name: str, kind: int) -> Any:
        missing = name == RESHAPE and operator.BuiltinOptionsType() == 0
        return None if missing else option(schema, operator, name, kind)

    importer._option = lenient
    conv._symmetric_padding = lambda padding: True
    target = resolve_target(sys.argv[4])
    espressif = target.target_id.startswith("esp")
    options = CBackendOptions(
        KernelPolicy.STATIC_PRIORITY, enable_cmsis_nn=not espressif, enable_esp_nn=espressif, target=target
    )
    bakenn.compile_tflite(str(made), str(folder), name="net", backend_options=options, target=target)


if __name__ == "__main__":
    main()
