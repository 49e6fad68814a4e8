from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edgepack.compiler.frontend.onnx.sampling import integer_range, random_inputs
from workbench.models import build
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs as random_inputs_of
from workbench.models.odd import ODD


def _indices(make: Callable[[Graph, str], str]) -> onnx.ModelProto:
    g = Graph("indices")
    g.output(make(g, g.input("ids", [200], "int64")))
    return g.model()


@pytest.mark.parametrize(
    ("expected", "make"),
    [
        ((0, 10), lambda g, x: g.op("Gather", g.weight(11, 4), x)),
        ((0, 4), lambda g, x: g.op("Gather", g.weight(11, 5), x, axis=1)),
        ((0, 10), lambda g, x: g.op("Gather", g.weight(11, 4), g.op("Reshape", x, g.const([20, 10])))),
        ((0, 10), lambda g, x: g.op("Gather", g.weight(11, 4), g.op("Cast", x, to=TensorProto.INT32))),
        ((0, 8), lambda g, x: g.op("Gather", g.weight(11, 4), g.op("Add", x, g.const(2)))),
        ((3, 13), lambda g, x: g.op("Gather", g.weight(11, 4), g.op("Sub", x, g.const(3)))),
        ((0, 6), lambda g, x: g.op("NegativeLogLikelihoodLoss", g.weight(200, 7), x, reduction="sum")),
        ((0, 6), lambda g, x: g.op("OneHot", x, g.const(7), g.const([0.0, 1.0]))),
    ],
)
def test_indices_are_drawn_from_the_whole_range_that_they_point_into(
    expected: tuple[int, int], make: Callable[[Graph, str], str]
) -> None:
    model = _indices(make)
    assert integer_range(model, "ids") == expected
    drawn = random_inputs(model, seed=0)["ids"]
    assert (drawn.min(), drawn.max()) == expected


def test_the_narrowest_of_several_tables_counts() -> None:
    g = Graph("two tables")
    ids = g.input("ids", [200], "int64")
    g.output(g.op("Gather", g.weight(11, 4), ids))
    g.output(g.op("Gather", g.weight(6, 4), ids))
    assert integer_range(g.model(), "ids") == (0, 5)


def test_bert_gets_tokens_of_its_vocabulary_and_a_mask() -> None:
    inputs = random_inputs_of(build("bert"), 0, {"batch": 4, "sequence": 100})
    assert inputs["input_ids"].dtype == np.int64
    assert 900 < inputs["input_ids"].max() < 1000
    assert set(np.unique(inputs["attention_mask"])) == {0, 1}
    assert (inputs["attention_mask"][:, 0] == 1).all(), "a row of zeros has no defined softmax"


def test_divisors_are_not_zero() -> None:
    g = Graph("divide")
    g.output(g.op("Div", g.input("a", [500], "int32"), g.input("b", [500], "int32")), "int32")
    inputs = random_inputs(g.model(), seed=0)
    assert (inputs["b"] > 0).all()
    assert (inputs["a"] < 0).any()


def test_bytes_take_all_values() -> None:
    image = random_inputs(ODD["uint8_image"](), seed=0)["image"]
    assert (image.dtype, image.min() < 10, image.max() > 245) == (np.uint8, True, True)


def test_scalars_have_rank_zero() -> None:
    inputs = random_inputs(ODD["scalars"](), seed=0)
    assert (inputs["a"].shape, inputs["n"].shape) == ((), ())


def test_the_seed_decides() -> None:
    model = ODD["many_inputs_outputs"]()
    first, again, other = (random_inputs(model, seed) for seed in (1, 1, 2))
    for name in first:
        np.testing.assert_array_equal(first[name], again[name])
    assert not np.array_equal(first["a"], other["a"])
    assert not np.array_equal(first["a"], first["b"]), "inputs of one run differ too"
