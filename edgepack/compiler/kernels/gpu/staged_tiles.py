"""Tiles of a product's operands for tensor cores, on their way from memory to shared memory in stages.

Shared memory has room for several tiles of a operand, its stages, of which one is multiplied while the next
ones are on their way. What lies in memory as the kernel needs it is copied asynchronously, 16 bytes at a time
(``FETCH_16``: ``cp.async``, since compute capability 8.0; before, by registers with a single stage). What is
computed on the way, or lies otherwise, is read into registers before the multiplication and written behind
it.

A row (column) of a tile has 16 words of 32 bits, four chunks of 16 bytes. Chunk c of row r lies in the place
c ^ (r / 2 % 4) of its row, so that the same chunk of eight rows one after the other lies in all 32 banks
(16 r + 4 (c ^ (r / 2 % 4)) mod 32 are the eight multiples of 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from edgepack.compiler.kernels.contract import Operand, Packing
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct
from edgepack.compiler.kernels.gpu.operands import contiguous, loaded

__all__ = ["WORDS", "Format", "StagedTiles", "stages_of"]

#: Words of 32 bits of a row of a tile, and words that are copied at once.
WORDS, VECTOR = 16, 4

#: Stages at most, and at least; shared memory of a thread, in bytes: of 512 threads with 128 registers each,
#: all that a multiprocessor has, this is less than the 100 KiB that those of 8.6 have.
MOST_STAGES, LEAST_STAGES, THREAD_BYTES = 4, 2, 192

#: Steps of a thread that it reads for before it writes what it has read: for more, which the compiler puts
#: side by side, it has not enough registers.
MOST_STEPS = 8


def stages_of(tile_bytes: int, threads: int, tiles: int, local_bytes: int) -> int:
    """How many tiles of both operands are in shared memory.

    Args:
        tile_bytes: of both operands, and ``tiles`` how many a group multiplies.
        local_bytes: that a group can have.
    """
    most = min(local_bytes, threads * THREAD_BYTES) // tile_bytes
    return max(LEAST_STAGES, min(MOST_STAGES, most, tiles + 1))


@dataclass(frozen=True)
class Format:
    """What the instruction multiplies.

    Attributes:
        dtype: of the operands' tensors in memory, and ``c_type`` what it is to the kernel.
        in_word: numbers of a word of 32 bits.
        product: the instruction's function.
        rounded: whether operands are rounded to what the instruction takes (TF32).
    """

    dtype: str
    c_type: str
    in_word: int
    product: str
    rounded: bool = False

    @property
    def depth(self) -> int:
        """Terms of a tile, and numbers from a row to the next."""
        return WORDS * self.in_word

    @property
    def vector(self) -> int:
        """Numbers that are copied at once: 16 bytes."""
        return VECTOR * self.in_word


class StagedTiles:
    """Writes how a operand's tiles come to shared memory.

    Args:
        kernel: whose code has ``t``, the thread's number, ``m0`` and ``n0``, the group's first row and
            column, ``batch``, ``k0``, the tile's first term, ``to``, the stage, and ``part``, where there are
            several.
        number: 0 for the first operand, 1 for the second.
        length: rows of a tile of the first operand, or columns of one of the second.
        packed: the operand's own layout, column after column, where it is a constant.

    Attributes:
        name: of the array in shared memory.
        copied: whether 16 bytes are copied as they are.
        parts: in which a tile is read and written, one after the other.
        rounds_late: whether what is in shared memory is not rounded yet.
    """

    def __init__(
        self,
        kernel: Kernel,
        product: MatrixProduct,
        form: Format,
        number: int,
        *,
        length: int,
        threads: int,
        packed: Packing | None = None,
    ) -> None:
        self.kernel, self.code, self.product, self.form = kernel, kernel.code, product, form
        self.length, self.threads, self.packed = length, threads, packed
        self.name, self._side = ("first", "m") if number == 0 else ("second", "n")
        self._operand = product.first if number == 0 else product.second
        terms_first = product.first_along_k if number == 0 else product.second_along_k
        if packed is not None:
            self.copied = product.counts["k"] % form.vector == 0
        else:
            self.copied = contiguous(product, kernel, number, "k", count=form.vector, dtype=form.dtype)
        self._along_k = terms_first or packed is not None or self.copied
        self.rounds_late = form.rounded and self.copied and packed is None
        self._width = form.vector if self.copied else 1
        self._steps = -(-length * form.depth // (self._width * threads))
        self.parts = 1 if self.copied else -(-self._steps // MOST_STEPS)
        self._each = self._steps // self.parts
        assert self._each * self.parts == self._steps, "tiles and groups are powers of two"

    @property
    def numbers(self) -> int:
        """Elements of one stage."""
        return self.length * self.form.depth

    def declare(self, stages: str) -> None:
        """The array, and registers: where 16 bytes are copied, those of GPUs that cannot copy by
        themselves."""
        kind = self.form.c_type
        self.code.line(f"SHARED ALIGNED(128) {kind} {self.name}[{stages} * {self.numbers}];")
        self.code.line(f"{'uint4' if self.copied else kind} {self.name}_next[{self._each}];")

    def fetch(self) -> None:
        """Begins to read the tile whose first term is ``k0``: what is behind the last row is that one again,
        and not stored; behind the depth it is 0."""
        code, evaluator = self.code, self.kernel.evaluator
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {self._each}; ++i)"), evaluator.fresh():
            self._places()
            with code.block(self._inside()):
                self._fetch_one()

    def keep(self) -> None:
        """Writes what was read into registers to the stage."""
        code = self.code
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {self._each}; ++i)"):
            self._places()
            guard, value = self._inside(), f"{self.name}_next[i]"
            if self.copied:
                code.line(f"{guard} KEEP_16({self._place()}, {value});".strip())
                return
            if self.form.rounded and self.packed is None:
                value = f"ep_tf32({value})"
            code.line(f"{guard} *({self._place()}) = {value};".strip())

    def _places(self) -> None:
        """Which row and term a thread serves, as ``row`` and ``depth``: neighbours read neighbouring
        elements."""
        code, count = self.code, self.form.depth // self._width
        number = "i" if self.parts == 1 else f"(part * {self._each} + i)"
        code.line(f"const int e = {number} * {self.threads} + t;")
        if self._along_k:
            times = f" * {self._width}" if self.copied else ""
            code.line(f"const int row = e / {count}, depth = e % {count}{times};")
        else:
            code.line(f"const int row = e % {self.length}, depth = e / {self.length};")

    def _inside(self) -> str:
        """The condition under which a step of a thread has something to do; "" for always."""
        total = self.numbers // self._width
        return "" if total % self.threads == 0 else f"if (e < {total})"

    def _place(self) -> str:
        """Where in the stage ``row`` and ``depth`` lie."""
        form = self.form
        turned = f"(depth ^ row / 2 % 4 * {form.vector})"
        return f"{self.name} + to * {self.numbers} + row * {form.depth} + {turned}"

    def _fetch_one(self) -> None:
        code, product, depth = self.code, self.product, self.form.depth
        count, terms = product.counts[self._side], product.counts["k"]
        at, k = f"{self._side}0 + row", "k0 + depth"
        whole = terms % depth == 0
        code.line(f"const int at = {at if count % self.length == 0 else f'min({at}, {count - 1})'};")
        code.line(f"const int k = {k if whole else f'min({k}, {terms - self._width})'};")
        env = {product.variables[self._side]: "at", product.variables["k"]: "k"}
        env[product.variables["b"]] = "batch"
        inside = [] if whole else [f"{k} < {terms}"]
        if self.copied:
            source, tests = self._source(env)
            condition = " && ".join([*inside, *tests]) or "1"
            code.line(f"FETCH_16({self.name}_next[i], {self._place()}, {source}, {condition});")
            return
        if self.packed is not None:
            pointer, place = self._columns()
            text = f"{pointer}[{place}]"
        else:
            text = self.kernel.evaluator.value(self._operand, env)
            text = f"HALF_BITS({text})" if self.form.dtype == "float16" else text
        zero = f"({self.form.c_type})0"
        code.line(f"{self.name}_next[i] = {f'{inside[0]} ? {text} : {zero}' if inside else text};")

    def _columns(self) -> tuple[str, str]:
        n, k = self.product.counts["n"], self.product.counts["k"]
        pointer = self.code.parameter(Operand("packed", 0), self.form.dtype)
        return pointer, f"(batch * {n} + at) * {k} + k"

    def _source(self, env: dict[Any, str]) -> tuple[str, list[str]]:
        """Where 16 bytes lie, and the conditions under which they are not 0."""
        if self.packed is not None:
            pointer, place = self._columns()
            return f"{pointer} + {place}", []
        found = loaded(self._operand)
        assert found is not None
        load, condition = found
        evaluator = self.kernel.evaluator
        tests = [f"({evaluator.value(c, env)})" for c in condition]
        pointer, place = evaluator.place(load, env)
        return f"{pointer} + {place}", tests
