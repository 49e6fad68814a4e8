"""A library for TVM's own runtime on a device, linked by the compiler that edgepack has for it.

    python examples/export_library.py linux-aarch64 model.so

edgepack's bundles need nothing of TVM. Who runs TVM's virtual machine on the device instead, and only wants
a cross compiler, gives ``edgepack.cross_compiler(device)`` to TVM's own ``export_library``: it knows the
target's C library and flags, and needs no more than an installed edgepack.
"""

from __future__ import annotations

import sys

import tvm
from tvm import relax

import edgepack


def executable(triple: str) -> tvm.runtime.Executable:
    """A small network, compiled by TVM for a CPU with this LLVM triple."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((1, 64), "float32"))
    w = relax.Var("w", relax.TensorType((64, 10), "float32"))
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit_output(builder.emit(relax.op.nn.relu(relax.op.matmul(x, w))))
        builder.emit_func_output(y)
    return relax.build(builder.get(), tvm.target.Target({"kind": "llvm", "mtriple": triple}))


def main(device: str, output: str) -> None:
    """Compile the network for ``device`` and link it into the shared library ``output``."""
    compiler = edgepack.cross_compiler(device)
    executable(compiler.get_target_triple()).export_library(output, fcompile=compiler)


if __name__ == "__main__":
    main(*sys.argv[1:])
