"""Rule ``attention``: softmax(scores) @ values in one kernel, whose scores are never in the GPU's memory.

A group computes the results of some rows of one member of the batch. It goes along the keys by tiles: the
scores of a tile are a product of tiles as in rule ``contraction``; each row's maximum so far, the sum of its
exponentials and of the values that these weigh are kept in registers, and rescaled when the maximum grows
("online softmax": Dao et al., FlashAttention, 2022). The queries of the group's rows stay in the memory that
its work items share; the weights of a tile go by it from those who have the scores to those who need them.
Sums are float32; masks and biases are computed, or read, where the score is.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.gpu.attention_nests import Attention
from edgepack.compiler.kernels.gpu.contract import GpuStage
from edgepack.compiler.kernels.gpu.expressions import unravelled
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.limits import check_group, check_registers
from edgepack.compiler.kernels.gpu.matrix_product import variables_of
from edgepack.compiler.kernels.gpu.tiles import GAP_BYTES, TilePath, TileShape, is_half
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError, by
from edgepack.plan.gpu_target import GpuTarget

__all__ = ["AttentionSchedule", "attention"]

#: Terms, or keys, of the tiles of keys and values.
DEPTH = 16

#: Rows of a work item, and keys of which it has the scores, largest first.
TILES = ((4, 4), (4, 2), (2, 4), (2, 2), (1, 4), (1, 2))

#: Rows, or keys but for the first number, that a work item can have.
NUMBERS = (1, 2, 4, 8)

#: Results that a work item has in registers, at most.
MOST_RESULTS = 32

#: Multiply-adds that a work item does in about the time of a launch: 2 us at 1.5 GHz, one in four clocks.
LAUNCH = 750

#: Launches that one of attention saves: a product's, and the softmax's.
SAVED = 2


@dataclass(frozen=True)
class AttentionSchedule(Schedule):
    """What is decided about attention in one kernel.

    Attributes:
        tile: rows of a work item, and keys of which it has the scores.
        side: work items of a group along its rows, and as many along its keys.
    """

    tile: tuple[int, int] | None = None
    side: int | None = None


def attention(
    kernel: Kernel, found: Attention, target: GpuTarget, given: AttentionSchedule | None = None
) -> GpuStage:
    """The kernel of attention. RuleError where the group's memory or registers do not hold its rows, and, if
    nothing is given, where it would make too few groups, or the products have units of their own.
    ScheduleError where what is given does not fit."""
    operands = (*found.first.operands, found.second.operands[1])
    if given is not None:
        return _AttentionKernel(kernel, found, target, given).build()
    if target.simdgroup_matrices:
        raise RuleError("its products are computed by matrices of SIMD-groups")
    if target.tensor_cores and (kernel.tf32 or all(is_half(x, kernel) for x in operands)):
        raise RuleError("its products are computed by tensor cores")
    return _AttentionKernel(kernel, found, target, None).build()


@dataclass(frozen=True)
class _Tile:
    """What a group computes.

    Attributes:
        side: work items along rows, and along keys and columns.
        rows, keys, columns: of a work item.
    """

    side: int
    rows: int
    keys: int
    columns: int

    @property
    def height(self) -> int:
        return self.side * self.rows

    @property
    def width(self) -> int:
        return self.side * self.keys

    @property
    def pitch(self) -> int:
        """Numbers from the weights of a key to those of the next."""
        return self.height + GAP_BYTES // 4

    def local_bytes(self, depth: int) -> int:
        """Bytes of the tiles of queries, of weights, and of keys or values, whichever is larger."""
        other = max(self.width, self.side * self.columns) + GAP_BYTES // 4
        return 4 * (self.pitch * (depth + self.width) + DEPTH * other)


class _AttentionKernel:
    """Writes the kernel.

    Attributes:
        m, n, b: rows, keys and members of the batch.
        depth: terms of a score, filled up with zeros.
    """

    def __init__(
        self, kernel: Kernel, found: Attention, target: GpuTarget, given: AttentionSchedule | None
    ) -> None:
        self.kernel, self.found, self.target, self.code = kernel, found, target, kernel.code
        self.m, self.n, self.b = (found.first.counts[name] for name in "mnb")
        self.depth = -(-found.first.counts["k"] // DEPTH) * DEPTH
        self.tile = self._tile() if given is None else self._given_tile(given)
        tile, threads = self.tile, self.tile.side**2

        def path(of_second: bool, number: int, length: int, depth: int) -> TilePath:
            product = found.second if of_second else found.first
            return TilePath(
                kernel, product, number, TileShape(length, depth, threads, "float"), along_k=False
            )

        self.queries = path(False, 0, tile.height, self.depth)
        self.keys = path(False, 1, tile.width, DEPTH)
        self.values = path(True, 1, tile.side * tile.columns, DEPTH)
        self.queries.name, self.keys.name, self.values.name = "queries", "keys", "values"

    def _tile(self) -> _Tile:
        """The one of most rows that leaves enough groups; else that of fewest rows, if it pays."""
        least, enough = self._open(int(self.target.group_size**0.5))
        if enough:
            return least
        work = least.rows * self.n * (self.depth + least.side * least.columns) // least.side
        idle = 1 - min(1.0, self._groups(least) / self.target.least_groups)
        if work * idle > SAVED * LAUNCH:
            raise RuleError("too few groups")
        return least

    def _open(self, side: int) -> tuple[_Tile, bool]:
        """The one of most rows that leaves enough groups, else that of fewest; and whether it leaves enough.
        RuleError where the group's memory and registers hold none."""
        each = self._columns(side)
        fitting = [
            tile
            for tile in (_Tile(side, rows, keys, each) for rows, keys in TILES)
            if tile.rows * each <= MOST_RESULTS and tile.local_bytes(self.depth) <= self.target.local_bytes
        ]
        if not fitting or self.b > 65535:
            raise RuleError("its rows need more memory or registers than a group has")
        for tile in fitting:
            if self._groups(tile) >= self.target.least_groups and self.m > tile.height // 2:
                return tile, True
        return next(tile for tile in fitting if tile.rows == fitting[-1].rows), False

    def _columns(self, side: int) -> int:
        """Of a work item."""
        if side % 4:
            raise RuleError("groups of another form")
        each = -(-self.found.second.counts["n"] // side)
        return 2 if each <= 2 else -(-each // 4) * 4

    def _given_tile(self, given: AttentionSchedule) -> _Tile:
        """What is given, or what the rule would take. ScheduleError where it does not fit."""
        side = given.side or int(self.target.group_size**0.5)
        tile = _Tile(side, *given.tile, self._columns(side)) if given.tile else self._open(side)[0]
        if tile.rows not in NUMBERS or tile.keys not in NUMBERS[1:] or tile.width % DEPTH:
            raise ScheduleError(f"a tile of {by((tile.rows, tile.keys))} by {side} work items")
        check_group(side * side, tile.local_bytes(self.depth), self.target)
        own = side * side == self.target.group_size and (tile.rows, tile.keys) in TILES
        if not own or tile.rows * tile.columns > MOST_RESULTS:
            check_registers(self._numbers(tile), side * side, self.target)
        return tile

    def _numbers(self, tile: _Tile) -> int:
        """That a work item holds: results and scores, operands, and what is read of the next tile."""
        held = tile.rows * (tile.columns + tile.keys + 3) + tile.columns + tile.keys
        tiles = (tile.height * self.depth, DEPTH * tile.width, DEPTH * tile.side * tile.columns)
        return held + -(-max(tiles) // tile.side**2)

    def _groups(self, tile: _Tile) -> int:
        return -(-self.m // tile.height) * self.b

    def build(self) -> GpuStage:
        code, tile = self.code, self.tile
        other = max(tile.width, tile.side * tile.columns) + GAP_BYTES // 4
        code.line(f"SHARED ALIGNED(16) float weights[{tile.width * tile.pitch}];")
        code.line(f"SHARED ALIGNED(16) float others[{DEPTH * other}];")
        self.queries.declare()
        self.keys.declare("others")
        self.values.declare("others")
        code.line(f"const int x = THREAD(0), y = THREAD(1), t = y * {tile.side} + x;")
        code.line(f"const int m0 = GROUP(0) * {tile.height}, batch = GROUP(1);")
        code.line(f"float largest[{tile.rows}], total[{tile.rows}], sum[{tile.rows * tile.columns}];")
        with self._each("i", tile.rows):
            code.line(
                f"largest[i] = {self.kernel.evaluator.value(tirx.const(self.found.lowest, 'float32'), {})};"
            )
            code.line("total[i] = 0.0f;")
        with self._each("i", tile.rows * tile.columns):
            code.line("sum[i] = 0.0f;")
        with code.block(""):
            code.line("const int k0 = 0;")
            self.queries.fetch()
            self.queries.keep()
        with code.block(f"for (int key0 = 0; key0 < {self.n}; key0 += {tile.width})"):
            code.line(f"float score[{tile.rows * tile.keys}];")
            with self._each("i", tile.rows * tile.keys):
                code.line("score[i] = 0.0f;")
            self._score()
            self._weigh()
            self._add_values()
        self._store()
        local = tile.local_bytes(self.depth)
        groups = (-(-self.m // tile.height), self.b, 1)
        stage = code.stage(groups, (tile.side, tile.side, 1), local_bytes=local)
        return replace(stage, schedule=AttentionSchedule((tile.rows, tile.keys), tile.side))

    def _each(self, name: str, count: int) -> AbstractContextManager[None]:
        """An unrolled loop."""
        self.code.line("UNROLL")
        return self.code.block(f"for (int {name} = 0; {name} < {count}; ++{name})")

    # The tiles of the keys ---------------------------------------------------------------------------------

    def _score(self) -> None:
        """The sums of products of queries and keys."""
        code, tile = self.code, self.tile
        with code.block(""):
            code.line("const int n0 = key0;")
            code.line("int k0 = 0;")
            self.keys.fetch()
            with code.block(f"for (; k0 < {self.depth};)"):
                self.keys.keep()
                code.line("BARRIER;")
                code.line("const int at0 = k0;")
                code.line(f"k0 += {DEPTH};")
                with code.block(f"if (k0 < {self.depth})"):
                    self.keys.fetch()
                first = f"queries + (at0 + k) * {self.queries.pitch}"
                self._multiply("score", first, f"keys + k * {self.keys.pitch}", tile.keys)
                code.line("BARRIER;")

    def _weigh(self) -> None:
        """The scores with what stands behind the product, the new maximum of each row, and the weights."""
        code, tile, most = self.code, self.tile, self.tile.side + GAP_BYTES // 4
        with self._each("i", tile.rows), self._each("j", tile.keys), self.kernel.evaluator.fresh():
            self._step()
        with self._each("i", tile.rows):
            code.line(f"float most = score[i * {tile.keys}];")
            for j in range(1, tile.keys):
                code.line(f"most = max(most, score[i * {tile.keys} + {j}]);")
            code.line(f"weights[({self._row()}) * {most} + x] = most;")
        code.line("BARRIER;")
        with self._each("i", tile.rows):
            code.line("float most = largest[i];")
            with self._each("l", tile.side):
                code.line(f"most = max(most, weights[({self._row()}) * {most} + l]);")
            code.line("const float rescaled = exp(largest[i] - most);")
            code.line("largest[i] = most;")
            code.line("total[i] *= rescaled;")
            with self._each("j", tile.columns):
                code.line(f"sum[i * {tile.columns} + j] *= rescaled;")
            with self._each("j", tile.keys):
                at = f"score[i * {tile.keys} + j]"
                code.line(f"{at} = exp({at} - most);")
                code.line(f"total[i] += {at};")
        code.line("BARRIER;")
        with self._each("j", tile.keys), self._each("i", tile.rows):
            key = _place("j", "x", tile.keys, tile.side)
            code.line(f"weights[({key}) * {tile.pitch} + {self._row()}] = score[i * {tile.keys} + j];")

    def _step(self) -> None:
        """One score; that of a key behind the last one is -inf."""
        code, found, evaluator = self.code, self.found, self.kernel.evaluator
        at = f"score[i * {self.tile.keys} + j]"
        code.line(f"const int wanted = key0 + {_place('j', 'x', self.tile.keys, self.tile.side)};")
        code.line(f"const int n = min(wanted, {self.n - 1}), m = min(m0 + {self._row()}, {self.m - 1});")
        texts = {}
        for name, text in (("m", "m"), ("n", "n"), ("b", "batch")):
            pairs = found.first.order[name]
            places = unravelled(code, text, tuple(size for _, size in pairs))
            texts.update({v: place for (v, _), place in zip(pairs, places, strict=True)})
        nest, block = found.product, found.product.reduction
        assert block is not None
        inner = [v for v in block.iters if v not in block.reductions]
        env = {o: texts.get(v, "0") for v, o in zip(inner, nest.spatial[0], strict=True)}
        scale = evaluator.value(tirx.const(found.scale, "float32"), {})
        evaluator.given[block.target] = code.let("float", f"{at} * {scale}", "scaled")
        if nest.result is not block:
            value = code.let("float", evaluator.value(nest.result.value, env), "scaled")
            evaluator.given[nest.result.target] = value
        steps: dict[Any, str] = dict.fromkeys(variables_of(found.steps), "0")
        for variable, index in zip(found.positions, nest.result.indices, strict=True):
            if variable is not None:
                steps[variable] = env[index]
        score = evaluator.value(found.steps, steps)
        code.line(f"{at} = wanted < {self.n} ? {score} : -INFINITY;")

    def _add_values(self) -> None:
        """The values of the tile's keys, weighed."""
        code, tile = self.code, self.tile
        with code.block(""):
            code.line("const int n0 = 0;")
            code.line(f"const int k_end = min(key0 + {tile.width}, {self.n});")
            code.line("int k0 = key0;")
            self.values.fetch()
            with code.block("for (; k0 < k_end;)"):
                self.values.keep()
                code.line("BARRIER;")
                code.line("const int at0 = k0 - key0;")
                code.line(f"k0 += {DEPTH};")
                with code.block("if (k0 < k_end)"):
                    self.values.fetch()
                first = f"weights + (at0 + k) * {tile.pitch}"
                self._multiply("sum", first, f"values + k * {self.values.pitch}", tile.columns)
                code.line("BARRIER;")

    def _multiply(self, into: str, first: str, second: str, columns: int) -> None:
        """Adds the products of ``DEPTH`` terms of a work item's rows and columns."""
        code, tile = self.code, self.tile
        with self._each("k", DEPTH):
            for name, start, count, who in (("f", first, tile.rows, "y"), ("s", second, columns, "x")):
                near = _neighbours(count)
                vector = f"float{near}" if near > 1 else "float"
                for i in range(count // near):
                    at = f"{start} + {who} * {near} + {i * near * tile.side}"
                    code.line(f"const {vector} {name}{i} = *(SHARED_POINTER(const {vector}))({at});")
            for number in range(tile.rows * columns):
                i, j = divmod(number, columns)
                operands = _component("f", i, tile.rows), _component("s", j, columns)
                code.line(f"{into}[{number}] = fma({operands[0]}, {operands[1]}, {into}[{number}]);")

    # The result --------------------------------------------------------------------------------------------

    def _row(self) -> str:
        """The row of the group's that is a work item's ``i``-th."""
        return _place("i", "y", self.tile.rows, self.tile.side)

    def _store(self) -> None:
        """What was summed of each row, by the sum of its weights."""
        code, tile, pitch = self.code, self.tile, self.tile.side + GAP_BYTES // 4
        with self._each("i", tile.rows):
            code.line(f"weights[({self._row()}) * {pitch} + x] = total[i];")
        code.line("BARRIER;")
        with self._each("i", tile.rows):
            code.line("float all = 0.0f;")
            with self._each("l", tile.side):
                code.line(f"all += weights[({self._row()}) * {pitch} + l];")
            code.line("total[i] = all;")
        with self._each("i", tile.rows), self._each("j", tile.columns):
            code.line(f"const int m = m0 + {self._row()};")
            code.line(f"const int n = {_place('j', 'x', tile.columns, tile.side)};")
            with code.block(f"if (m < {self.m} && n < {self.found.second.counts['n']})"):
                value = f"sum[i * {tile.columns} + j] / total[i]"
                value = f"total[i] > 0.0f ? {value} : 0.0f" if self.found.zeroes_nan else value
                name = code.let("float", value, "weighed")
                self.kernel.store_product(self.found.result, self.found.second, name)


def _place(number: str, who: str, count: int, side: int) -> str:
    """The row (key, column) of the group's that is a work item's ``number``-th: neighbours are together."""
    near = _neighbours(count)
    return f"{number} / {near} * {near * side} + {who} * {near} + {number} % {near}"


def _neighbours(count: int) -> int:
    """How many of a work item's rows (keys, columns) lie next to each other."""
    return 4 if count % 4 == 0 else min(count, 2)


def _component(name: str, number: int, count: int) -> str:
    """A number of those that were read at once."""
    near = _neighbours(count)
    return f"{name}{number // near}" + (f".{'xyzw'[number % near]}" if near > 1 else "")
