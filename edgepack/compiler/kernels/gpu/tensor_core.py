"""Rule ``tensor_core``: products of float16 tensors, or of float32 ones whose factors are rounded to TF32, by
the matrix units of NVIDIA's GPUs, with float32 sums.

A matrix product as in rule ``contraction``. A group's tiles of both factors are in shared memory, each row
(column) with its terms one after the other; a warp computes ``mma.sync.m16n8k16`` of float16, ``m16n8k8`` of
TF32: 8 words of 32 bits of a row, which hold two numbers or one, in the same fragments. The next tiles are on
their way from memory while these are multiplied: they wait in registers. A row is four words longer than its
terms, so that the eight rows of a fragment lie in different banks, and begin at multiples of 16 bytes.

Where a factor is a tensor whose last dimension is the innermost of the depth, 16 bytes are read at once.
Constant second factors are stored so: column after column.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from edgepack.compiler.kernels.contract import Operand, RuleError
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.factors import contiguous, loaded, packed_columns
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.matrix_product import MatrixProduct, matrix_product
from edgepack.compiler.kernels.gpu.nests import Nest
from edgepack.compiler.kernels.gpu.tiles import chosen_tile, is_half
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["tensor_core"]

#: Words of 32 bits of a row of a tile, by how much a row is longer than that, and words read at once.
WORDS, GAP, VECTOR = 16, 4, 4

#: Rows and columns of the instruction, and words of its terms.
ROWS, COLUMNS, TERMS = 16, 8, 8

#: Elements of a large tile: what is read of memory for it is multiplied often enough.
LARGE = 64 * 32

#: Threads of a warp.
WARP = 32


@dataclass(frozen=True)
class _Format:
    """What the instruction multiplies.

    Attributes:
        dtype: of the factors' tensors in memory, and ``c_type`` what it is to the kernel.
        in_word: numbers of a word of 32 bits.
        product: the instruction's function.
        rounded: functions that make of what was read what the instruction takes, one number and 16 bytes.
    """

    dtype: str
    c_type: str
    in_word: int
    product: str
    rounded: tuple[str, str] = ("", "")

    @property
    def depth(self) -> int:
        """Terms of a tile."""
        return WORDS * self.in_word

    @property
    def pitch(self) -> int:
        """Numbers from a row to the next."""
        return (WORDS + GAP) * self.in_word

    @property
    def vector(self) -> int:
        """Numbers that are read at once: 16 bytes."""
        return VECTOR * self.in_word


HALF = _Format("float16", "ep_half", 2, "ep_mma")
TF32 = _Format("float32", "float", 1, "ep_mma_tf32", ("ep_tf32", "ep_tf32x4"))


@dataclass(frozen=True)
class _Tile:
    """What a group computes: ``height`` x ``width``, by a grid of ``down`` x ``across`` warps."""

    height: int
    width: int
    down: int
    across: int

    @property
    def threads(self) -> int:
        return self.down * self.across * WARP

    @property
    def fragments(self) -> tuple[int, int]:
        """Of a warp, along rows and along columns."""
        return self.height // self.down // ROWS, self.width // self.across // COLUMNS

    @property
    def shared_bytes(self) -> int:
        return 4 * (self.height + self.width) * (WORDS + GAP)


#: Largest first.
TILES = (
    *(_Tile(128, 128, 2, 4), _Tile(128, 64, 4, 2), _Tile(64, 128, 2, 4), _Tile(64, 64, 2, 2)),
    *(_Tile(128, 32, 4, 1), _Tile(32, 64, 1, 4), _Tile(64, 32, 4, 1), _Tile(32, 32, 2, 2)),
    *(_Tile(16, 64, 1, 4), _Tile(64, 16, 4, 1), _Tile(16, 32, 1, 4)),
)


def tensor_core(kernel: Kernel, nest: Nest, target: GpuTarget) -> GpuStage:
    """The kernel of a nest whose reduction is a sum of products of float16 tensors, or of ones that may be
    rounded to TF32. RuleError for another one, and where the GPU has no such units."""
    if nest.reduction is None or not target.tensor_cores:
        raise RuleError("no reduction, or no tensor cores")
    product = matrix_product(nest.reduction, kernel.evaluator.inlined)
    form = TF32 if kernel.tf32 else HALF
    if product.counts["m"] < ROWS or product.counts["k"] < TERMS * form.in_word:
        raise RuleError("a product that is smaller than the instruction")
    if form is HALF and not all(is_half(x, kernel) for x in product.factors):
        raise RuleError("a factor is float32 in memory")
    return _Builder(kernel, nest, product, target, form).build()


@dataclass(frozen=True)
class _Source:
    """Where a factor's elements come from, 8 of the depth at once.

    Attributes:
        pointer: of the tensor, and ``at`` the position of the first of them.
        condition: under which they are not 0; "" for always.
    """

    pointer: str
    at: str
    condition: str


class _Builder:
    """Writes the kernel.

    Attributes:
        packed: the second factor, where it is a constant.
    """

    def __init__(
        self, kernel: Kernel, nest: Nest, product: MatrixProduct, target: GpuTarget, form: _Format
    ) -> None:
        self.kernel, self.nest, self.product, self.target = kernel, nest, product, target
        self.code, self.form = kernel.code, form
        self.m, self.n, self.k, self.b = (product.counts[name] for name in "mnkb")
        fitting = [
            t for t in TILES if t.threads <= target.group_size and t.shared_bytes <= target.local_bytes
        ]
        sizes = [(t.height, t.width) for t in fitting]
        chosen, self.slices = chosen_tile(sizes, LARGE, product, form.depth, target)
        self.tile = fitting[chosen]
        self.packed = packed_columns(product, kernel, form.dtype)
        self.vectors = {"first": self._is_contiguous(0), "second": self._is_contiguous(1)}

    def build(self) -> GpuStage:
        code, tile = self.code, self.tile
        pitch, kind = self.form.pitch, self.form.c_type
        code.line(f"SHARED ALIGNED(16) {kind} first[{tile.height * pitch}];")
        code.line(f"SHARED ALIGNED(16) {kind} second[{tile.width * pitch}];")
        code.line(f"const int t = THREAD(0), warp = t / {WARP}, lane = t % {WARP};")
        code.line(f"const int n0 = GROUP(0) * {tile.width}, m0 = GROUP(1) * {tile.height};")
        self.slices.begin(code, self.product)
        down, across = tile.fragments
        code.line(f"const int row0 = warp / {tile.across} * {down * ROWS} + lane / 4;")
        code.line(f"const int column0 = warp % {tile.across} * {across * COLUMNS};")
        code.line(f"float sum[{down * across}][4];")
        with code.block(f"for (int i = 0; i < {down * across}; ++i)"):
            code.line("sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0.0f;")
        for name in ("first", "second"):
            code.line(f"{'uint4' if self.vectors[name] else kind} {name}_next[{self._steps(name)}];")
        code.line("int k0 = k_first;")
        self._fetch()
        with code.block("for (; k0 < k_end;)"):
            self._keep()
            code.line("BARRIER;")
            code.line(f"k0 += {self.form.depth};")
            with code.block("if (k0 < k_end)"):
                self._fetch()
            self._multiply()
            code.line("BARRIER;")
        self._store()
        groups = (-(-self.n // tile.width), -(-self.m // tile.height), self.b * self.slices.count)
        stage = code.stage(groups, (tile.threads, 1, 1), local_bytes=tile.shared_bytes)
        stage = self.slices.ended(stage, self.kernel, self.nest, self.product, self.target)
        return stage if self.packed is None else replace(stage, packed=(self.packed,))

    # From memory to registers, and from there to shared memory ---------------------------------------------

    def _length(self, name: str) -> int:
        return self.tile.height if name == "first" else self.tile.width

    def _at_once(self, name: str) -> int:
        """Numbers that a thread reads in a step."""
        return self.form.vector if self.vectors[name] else 1

    def _steps(self, name: str) -> int:
        """How often a thread reads for a tile."""
        per_step = self.tile.threads * self._at_once(name)
        return -(-self._length(name) * self.form.depth // per_step)

    def _places(self, name: str) -> None:
        """Which row and term a thread serves, as ``row`` and ``depth``: neighbours read neighbouring
        elements."""
        code, p = self.code, self.product
        width = self._at_once(name)
        count = self.form.depth // width
        along_k = p.first_along_k if name == "first" else p.second_along_k or self.packed is not None
        code.line(f"const int e = i * {self.tile.threads} + t;")
        if along_k or self.vectors[name]:
            code.line(f"const int row = e / {count}, depth = e % {count} * {width};")
        else:
            length = self._length(name)
            code.line(f"const int row = e % {length}, depth = e / {length};")

    def _inside(self, name: str) -> str:
        """The condition under which a step of a thread has something to do; "" for always."""
        total = self._length(name) * self.form.depth // self._at_once(name)
        return "" if total % self.tile.threads == 0 else f"if (e < {total})"

    def _fetch(self) -> None:
        for name in ("first", "second"):
            code, evaluator = self.code, self.kernel.evaluator
            code.line("UNROLL")
            with code.block(f"for (int i = 0; i < {self._steps(name)}; ++i)"), evaluator.fresh():
                self._places(name)
                with code.block(self._inside(name)):
                    self._fetch_one(name)

    def _fetch_one(self, name: str) -> None:
        """What is behind the last row is that one again, and not stored; behind the depth it is 0."""
        code, p = self.code, self.product
        side, count = ("m", self.m) if name == "first" else ("n", self.n)
        at, k = f"{side}0 + row", "k0 + depth"
        whole = self.k % self.form.depth == 0
        clamped = at if count % self._length(name) == 0 else f"min({at}, {count - 1})"
        code.line(f"const int at = {clamped};")
        last = self.k - self._at_once(name)
        code.line(f"const int k = {k if whole else f'min({k}, {last})'};")
        env = {p.variables[side]: "at", p.variables["k"]: "k", p.variables["b"]: "batch"}
        inside = [] if whole else [f"{k} < {self.k}"]
        if self.vectors[name]:
            source = self._source(name, env)
            tests = " && ".join([*inside, *([source.condition] if source.condition else [])])
            read = f"*(GLOBAL const uint4 *)({source.pointer} + {source.at})"
            code.line(f"{name}_next[i] = {f'{tests} ? {read} : make_uint4(0, 0, 0, 0)' if tests else read};")
            return
        if name == "second" and self.packed is not None:
            text = f"{self._weights()}[{self._packed_at()}]"
        else:
            text = self.kernel.evaluator.value(p.first if name == "first" else p.second, env)
            text = f"HALF_BITS({text})" if self.form is HALF else text
        zero = f"({self.form.c_type})0"
        code.line(f"{name}_next[i] = {f'{inside[0]} ? {text} : {zero}' if inside else text};")

    def _keep(self) -> None:
        for name in ("first", "second"):
            code = self.code
            code.line("UNROLL")
            with code.block(f"for (int i = 0; i < {self._steps(name)}; ++i)"):
                self._places(name)
                place = f"{name} + row * {self.form.pitch} + depth"
                kept = f"*(uint4 *)({place})" if self.vectors[name] else f"*({place})"
                rounded = self.form.rounded[1 if self.vectors[name] else 0]
                value = f"{rounded}({name}_next[i])" if rounded else f"{name}_next[i]"
                code.line(f"{self._inside(name)} {kept} = {value};".strip())

    def _weights(self) -> str:
        return self.code.parameter(Operand("packed", 0), self.form.dtype)

    def _packed_at(self) -> str:
        return f"(batch * {self.n} + at) * {self.k} + k"

    def _is_contiguous(self, number: int) -> bool:
        """Whether terms of a factor, from a multiple of ``vector`` on, are 16 aligned bytes in memory."""
        vector = self.form.vector
        if number == 1 and self.packed is not None:
            return self.k % vector == 0
        dtype = self.form.dtype
        return contiguous(self.product, self.kernel, number, "k", count=vector, dtype=dtype)

    def _source(self, name: str, env: dict[Any, str]) -> _Source:
        if name == "second" and self.packed is not None:
            return _Source(self._weights(), self._packed_at(), "")
        found = loaded(self.product.first if name == "first" else self.product.second)
        assert found is not None
        load, condition = found
        evaluator = self.kernel.evaluator
        tests = " && ".join(f"({evaluator.value(c, env)})" for c in condition)
        pointer, at = evaluator.place(load, env)
        return _Source(pointer, at, tests)

    # The product -------------------------------------------------------------------------------------------

    def _multiply(self) -> None:
        code, pitch = self.code, WORDS + GAP
        down, across = self.tile.fragments
        code.line(
            "const uint *rows = (const uint *)first + lane % 4, *columns = (const uint *)second + lane % 4;"
        )
        code.line("UNROLL")
        with code.block(f"for (int k = 0; k < {WORDS}; k += {TERMS})"):
            code.line(f"uint a[{down}][4], b[{across}][2];")
            code.line("UNROLL")
            with code.block(f"for (int i = 0; i < {down}; ++i)"):
                code.line(f"const uint *from = rows + (row0 + i * {ROWS}) * {pitch} + k;")
                for number, at in enumerate((0, 8 * pitch, 4, 8 * pitch + 4)):
                    code.line(f"a[i][{number}] = from[{at}];")
            code.line("UNROLL")
            with code.block(f"for (int j = 0; j < {across}; ++j)"):
                row = f"column0 + j * {COLUMNS} + lane / 4"
                code.line(f"const uint *from = columns + ({row}) * {pitch} + k;")
                code.line("b[j][0] = from[0];")
                code.line("b[j][1] = from[4];")
            code.line("UNROLL")
            with code.block(f"for (int i = 0; i < {down}; ++i)"):
                code.line("UNROLL")
                with code.block(f"for (int j = 0; j < {across}; ++j)"):
                    code.line(f"{self.form.product}(sum[i * {across} + j], a[i], b[j]);")

    def _store(self) -> None:
        """Each number of the thread's fragments, with what stands behind the product."""
        code, tile = self.code, self.tile
        down, across = tile.fragments
        whole = self.m % tile.height == 0 and self.n % tile.width == 0
        code.line("UNROLL")
        with code.block(f"for (int i = 0; i < {down * across}; ++i)"):
            code.line("UNROLL")
            with code.block("for (int j = 0; j < 4; ++j)"):
                code.line(f"const int m = m0 + row0 + i / {across} * {ROWS} + j / 2 * 8;")
                code.line(f"const int n = n0 + column0 + i % {across} * {COLUMNS} + lane % 4 * 2 + j % 2;")
                with code.block("" if whole else f"if (m < {self.m} && n < {self.n})"):
                    self.slices.store(self.kernel, self.nest, self.product, "sum[i][j]")
