"""What the kernels of recurrent layers have in common: tiles, blocks, the weights, where operands lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.recurrent import Activation, Recurrence
from edgepack.compiler.kernels.contract import Array, Implementation, Packing, Stage
from edgepack.compiler.kernels.cpu.analysis.operands import declare_param
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, balanced_split, index
from edgepack.compiler.kernels.cpu.emit.register_tile import power_of_two_chunks
from edgepack.compiler.kernels.cpu.emit.vector_parts import MATH_DTYPE
from edgepack.compiler.kernels.cpu.recurrent.cells import phases_of
from edgepack.compiler.kernels.cpu.recurrent.step import Block, Weights
from edgepack.plan.target import CpuTarget

__all__ = ["RecurrentKernel"]


class RecurrentKernel(KernelBuilder):
    """Emits the kernels of a layer.

    Attributes:
        tiles: (rows of a tile, how many such tiles), the larger size first.
        pieces: how many tiles the batch has.
        blocks: of each phase, runs of equal blocks: the first one, and how many.
    """

    #: Which parameter of the kernel's fused groups the weights of the state are.
    weights_param = 1

    #: Whether the batch is cut into as many tiles as give each thread some.
    shares_batch = True

    def __init__(self, fused: FusedGroup, form: Recurrence, target: CpuTarget, *, packed: bool) -> None:
        super().__init__("recurrent", target, dtype=MATH_DTYPE)
        self.fused, self.form, self.packed = fused, form, packed
        self.phases = phases_of(form)
        gates = max(len(phase.gates) for phase in self.phases)
        sums = _sums(target)
        shares = -(-target.threads // form.directions) if self.shares_batch else 1
        self.tiles = balanced_split(form.batch, max(1, min(sums // gates, form.batch // shares)))
        self.pieces = sum(count for _, count in self.tiles)
        rows = self.tiles[0][0]
        self.blocks = {
            p: _runs(form.size, self.lanes, _vectors(sums, rows, len(p.gates))) for p in self.phases
        }

    def parameters(self) -> dict[str, Any]:
        return {"rows": self.tiles[0][0], "block": self.blocks[self.phases[0]][0][0].width}

    def implementation(self, stages: tuple[Stage, ...], temps: tuple[int, ...] = ()) -> Implementation:
        """The layer, computed by these stages."""
        form = self.form
        return Implementation(
            self.rule,
            stages,
            packed=(Packing(self.weights_param, self._packing_key(), self._pack),) if self.packed else (),
            temps=temps,
            scratch=tuple(self.e.scratch_bytes),
            parameters=self.parameters(),
            flops=2 * form.steps * form.batch * form.directions * form.gates * form.size**2,
        )

    # Weights ------------------------------------------------------------------------------------------------

    def _packing_key(self) -> str:
        blocks = ",".join(f"{b.width}x{n}" for runs in self.blocks.values() for b, n in runs)
        return f"recurrent-{self.form.cell}-{len(self.phases)}-{blocks}"

    def _pack(self, weights: Array) -> Array:
        """[directions, size, gates * size] in the order in which :class:`Weights` is read."""
        form = self.form
        apart = weights.reshape(form.directions, form.size, form.gates, form.size)
        parts = []
        for phase in self.phases:
            for direction in range(form.directions):
                for block, count in self.blocks[phase]:
                    for first in range(block.first, block.first + count * block.width, block.width):
                        columns = slice(first, first + block.width)
                        parts.append(apart[direction][:, list(phase.gates), columns].ravel())
        return np.concatenate(parts)

    # Operands -----------------------------------------------------------------------------------------------

    def weights_in(self, buffer: Any) -> Weights:
        """The weights of the state in a kernel's buffer."""
        return Weights(buffer, self.form, self.packed)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the state's weights of one direction."""
        return self.element_bytes * self.form.gates * self.form.size**2

    def declared(self, e: Emitter, *names: str) -> dict[str, Any]:
        """Declares those of the layer's operands that there are."""
        numbers = {name: i for i, name in enumerate(self.form.operands) if name in names}
        return {n: declare_param(e, i, self.fused.function.params[i]) for n, i in numbers.items()}

    def state(self, direction: Index, first: Index) -> Index:
        """Where the state of a direction and a row lies in [directions, batch, size]."""
        return (direction * self.form.batch + first) * self.form.size

    def strides(self, width: int) -> tuple[int, int]:
        """From one step and from one sequence to the next, in a tensor of rows of so many elements."""
        form = self.form
        return (width, form.steps * width) if form.batch_first else (form.batch * width, width)

    def by_direction(
        self, e: Emitter, direction: Index, body: Callable[[tuple[Activation, ...]], None]
    ) -> None:
        """``body(activations)`` of the direction; one for both where they have the same."""
        first, *others = self.form.activations
        if all(other == first for other in others):
            body(first)
        else:
            e.branch(tirx.EQ(index(direction), index(0)), lambda: body(first), lambda: body(others[0]))


def _sums(target: CpuTarget) -> int:
    """Vectors of sums that a tile may have: what the registers hold beside weights and a broadcast."""
    if not target.vector_bits:
        return target.scalar_accumulators
    return 24 if target.usable_registers >= 32 else 12 if target.fma_reads_memory else 8


def _vectors(sums: int, rows: int, gates: int) -> int:
    """Vectors of a block: 9 sums hide the latency of the multiply-add; more would be blocks that do not come
    out even."""
    return max(1, min(sums, 9 if rows == 1 and sums != 16 else sums) // (rows * gates))


def _runs(size: int, lanes: int, vectors: int) -> list[tuple[Block, int]]:
    """Cuts hidden units into blocks of at most so many vectors; what is left of a vector is one more."""
    runs, at = [], 0
    for each, count in balanced_split(size // lanes, vectors) if size >= lanes else []:
        runs.append((Block(at, tuple((v * lanes, lanes) for v in range(each))), count))
        at += each * count * lanes
    if at < size:
        runs.append((Block(at, tuple(power_of_two_chunks(size - at, lanes))), 1))
    return runs
