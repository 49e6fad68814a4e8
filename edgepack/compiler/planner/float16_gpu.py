"""Which tensors of a program are float16 in the GPU's memory: with ``--precision fp16`` weights and what lies
between kernels, with ``--weights float16`` the weights.

Kernels compute in float32 whatever is in memory, so what they read and write may be of either type. float32
stay

- inputs and outputs of the model, and what the CPU reads or writes: nothing is converted beside the kernels;
- positions: what a float becomes an integer of, and what that is computed from without a product in between;
- results that are far smaller than what they were computed from: the sums, means and variances of
  normalisations are among them, which may be far larger than what was summed, and their bytes do not count;
- what belongs to nodes whose results were seen to be beyond float16 (frontend/onnx/calibration.py);
- small constants, and those that float16 cannot hold.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from math import prod
from typing import Any

import numpy as np
import tvm_ffi
from tvm.tirx import Cast

from edgepack.compiler.kernels.gpu.contract import HalfOperands
from edgepack.compiler.planner.float16_weights import LEAST, is_float16, lost, said
from edgepack.compiler.planner.program import Call, Program, Value
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["HalfTensors", "half_tensors"]

#: A result with at most this part of the elements of the largest activation that it is computed from stays
#: float32.
SMALL = 1 / 8


class HalfTensors:
    """What is float16 in the GPU's memory.

    Attributes:
        constants, buffers: indices into those of the program.
        exact: names of groups between whose kernels all is float32; None: of all.
        tf32: whether the products of other groups may round their factors to TF32.
        warnings: constants that stay float32 for float16 cannot hold them.
    """

    def __init__(self, constants: Collection[int] = (), buffers: Collection[int] = ()) -> None:
        self.constants, self.buffers = frozenset(constants), frozenset(buffers)
        self.exact: frozenset[str] | None = None
        self.tf32 = False
        self.warnings: tuple[str, ...] = ()

    def holds(self, value: Value) -> bool:
        """Whether a tensor is among them."""
        found = {"constant": self.constants, "buffer": self.buffers}.get(value.kind, frozenset())
        return value.index in found

    def of_call(self, call: Call) -> HalfOperands:
        """What of a call is."""
        values = [*call.arguments, *call.results]
        params = frozenset(i for i, value in enumerate(values) if self.holds(value))
        constants = frozenset(i for i, value in enumerate(call.arguments) if value.kind == "constant")
        rounds = self.exact is not None and call.fused.name not in self.exact
        if self.tf32:
            return HalfOperands(params, False, constants, rounds)
        return HalfOperands(params, rounds, constants)


def half_tensors(
    program: Program, target: GpuTarget, names: Sequence[str] = (), large: Collection[str] = ()
) -> HalfTensors:
    """Decides about all tensors of a program of which it is known which calls the GPU computes.

    Args:
        names: of the model's nodes, and ``large`` those whose results float16 does not hold.
    """
    kept = _Kept(program)
    found = HalfTensors()
    if target.precision == "fp16":
        lost = dict(_constants(program, kept.constants, rounded=True))
        exceed = [c for c in program.calls if any(i < len(names) and names[i] in large for i in c.nodes)]
        beyond = {v.index for call in exceed for v in call.results}
        buffers = set(range(len(program.buffers))) - kept.buffers - beyond
        found = HalfTensors([i for i, why in lost.items() if not why], buffers)
        found.exact = frozenset(kept.exact | {call.fused.name for call in exceed})
        found.warnings = tuple(said({i: why for i, why in lost.items() if why}, program, names))
        return found
    if target.float16_weights:
        found = HalfTensors([i for i, why in _constants(program, kept.constants, rounded=False) if not why])
    if target.precision == "tf32":
        found.tf32, found.exact = True, frozenset(kept.exact)
    return found


class _Kept:
    """What stays float32, whatever its values are.

    Attributes:
        constants, buffers: indices into those of the program.
        exact: names of groups that compute positions.
    """

    def __init__(self, program: Program) -> None:
        self.exact: set[str] = set()
        self.constants: set[int] = set()
        self.buffers: set[int] = set()
        self._positions: set[int] = set()
        self._keep(program.outputs)
        for call in reversed(program.calls):
            self._read(call)

    def _read(self, call: Call) -> None:
        params = list(call.fused.function.params)
        values = [*call.arguments, *call.results]
        if call.gpu is None:
            self._keep(values)
            return
        self._keep(v for b, v in zip(params, values, strict=True) if str(b.dtype) != "float32")
        sizes = [prod(int(d) for d in buffer.shape) for buffer in params]
        read = [n for n, v in zip(sizes, call.arguments, strict=False) if v.kind != "constant"]
        if max(sizes[len(call.arguments) :]) <= SMALL * max(read, default=0):
            self._keep(call.results)
        of_positions = not self._positions.isdisjoint(v.index for v in call.results)
        if _makes_integers(call) or (of_positions and call.fused.anchor is None):
            self._keep(call.arguments)
            self._positions.update(v.index for v in call.arguments if v.kind == "buffer")
            self.exact.add(call.fused.name)

    def _keep(self, values: Iterable[Value]) -> None:
        for value in values:
            kept = {"buffer": self.buffers, "constant": self.constants}.get(value.kind)
            if kept is not None:
                kept.add(value.index)


def _makes_integers(call: Call) -> bool:
    """Whether a number becomes an integer: a position, or a step of a quantised value."""
    found: list[Any] = []
    tvm_ffi.structural_walk(call.fused.function.body, (Cast, found.append))
    return any("int" in _dtype(x) and _dtype(x.value) == "float32" for x in found)


def _dtype(x: Any) -> str:
    return str(x.ty.dtype) if hasattr(x.ty, "dtype") else str(x.ty)


def _constants(program: Program, kept: Collection[int], *, rounded: bool) -> Iterator[tuple[int, str]]:
    """The program's large float32 constants that are not kept, each with why float16 does not hold it, or "".

    Args:
        rounded: whether it may be rounded.
    """
    for index, array in enumerate(program.constants):
        if index in kept or array.dtype != np.float32 or array.size < LEAST:
            continue
        if not rounded:
            yield index, "" if is_float16(array) else "is no float16 number"
            continue
        yield index, lost(array)
