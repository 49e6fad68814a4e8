from __future__ import annotations

import numpy as np

from workbench.compiled import plan_of
from workbench.models.builder import Graph


def test_a_lookup_moves_the_rows_that_it_reads_and_not_the_table() -> None:
    g = Graph("lookup", seed=0)
    g.output(g.op("Gather", g.weight(5000, 64), g.input("ids", [7], "int64")))
    (take,) = [kernel for kernel in plan_of(g.model()).plan.kernels if kernel.ops == ("take",)]
    assert take.bytes_moved == 7 * 8 + 2 * 7 * 64 * 4


def test_a_table_that_is_read_often_moves_once() -> None:
    g = Graph("often", seed=0)
    ids = g.const(np.arange(400) % 5)
    g.output(g.op("Tanh", g.op("Gather", g.input("x", [5, 64]), ids)))
    kernels = plan_of(g.model()).plan.kernels
    assert sum(kernel.bytes_moved for kernel in kernels) <= (5 + 3 * 400) * 64 * 4 + 400 * 8
