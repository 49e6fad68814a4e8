"""Run in a process of its own: compiles one vector kernel with TVM for each target of a JSON list on stdin.

Arguments: the folder for the objects. LLVM tells of a CPU or feature that it does not know on stderr only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import tvm
from tvm import te

from edgepack.compiler.tvm_target import llvm_target
from edgepack.plan.target import CpuTarget


def main() -> None:
    """Compile C = A * B + A for 1024 floats."""
    a, b = (te.placeholder((1024,), "float32", name=name) for name in "ab")
    function = te.create_prim_func([a, b, te.compute((1024,), lambda i: a[i] * b[i] + a[i], name="c")])
    for name, data in json.load(sys.stdin).items():
        target = CpuTarget.from_json(data)
        print(f"[{name}]", file=sys.stderr, flush=True)
        built = tvm.compile(tvm.IRModule({"kernel": function}), target=llvm_target(target))
        print(f"[/{name}]", file=sys.stderr, flush=True)
        getattr(built, "mod", built).write_to_file(str(Path(sys.argv[1], f"{name}.o")), "o")


if __name__ == "__main__":
    main()
