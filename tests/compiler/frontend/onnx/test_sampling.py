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


def _drawn(make: Callable[[Graph, str], str], dtype: str = "int64", out: str = "bool") -> np.ndarray:
    g = Graph("used")
    g.output(make(g, g.input("n", [3000], dtype)), out)
    return random_inputs(g.model(), seed=0)["n"]


def _one_hot(g: Graph, n: str, columns: str) -> str:
    wide = g.op("Expand", g.op("Reshape", n, g.const([3000, 1])), g.const([3000, 257]))
    return g.op("Equal", wide, columns)


@pytest.mark.parametrize(
    "columns",
    [
        lambda g: g.const(np.arange(257, dtype=np.int64).reshape(1, 257)),
        lambda g: g.op("Range", g.const(np.int64(0)), g.const(np.int64(257)), g.const(np.int64(1))),
        lambda g: g.op("Add", g.op("Unsqueeze", g.const(np.arange(255) - 1), g.const([0])), g.const(1)),
    ],
)
def test_what_a_one_hot_compares_with_is_drawn(columns: Callable[[Graph], str]) -> None:
    """Of a one-hot by Equal only zeros and ones were drawn, as if it were a mask."""
    for dtype in ("int64", "int32"):
        drawn = _drawn(lambda g, n: _one_hot(g, g.op("Cast", n, to=TensorProto.INT64), columns(g)), dtype)
        assert drawn.min() == 0 and drawn.max() in (254, 256)


@pytest.mark.parametrize(
    ("make", "out", "wanted"),
    [
        (lambda g, n: g.op("Equal", n, g.const(1000)), "bool", {1000}),
        (lambda g, n: g.op("Equal", g.op("Sub", n, g.const(7)), g.const(1000)), "bool", {1007}),
        (lambda g, n: g.op("Less", n, g.const(1000)), "bool", {999, 1000, 1001}),
        (lambda g, n: g.op("GreaterOrEqual", g.const(-500), n), "bool", {-499, -500, -501}),
        (lambda g, n: g.op("Clip", n, g.const(-100), g.const(900)), "int64", {-101, -100, 900, 901}),
        (lambda g, n: g.op("Min", n, g.const(300)), "int64", {299, 300, 301}),
        (lambda g, n: g.op("Mod", n, g.const(50)), "int64", {-100, -50, -1, 0, 49, 50, 100}),
        (lambda g, n: g.op("Less", g.op("Mul", n, g.const(10)), g.const(4000)), "bool", {399, 400}),
        (lambda g, n: g.op("Less", g.op("Cast", n, to=1), g.const(np.float32(40.5))), "bool", {40, 41}),
        (lambda g, n: g.op("Neg", g.op("Equal", g.op("Neg", n), g.const(30))), "bool", {-30}),
    ],
)
def test_both_sides_of_a_comparison_are_drawn(
    make: Callable[[Graph, str], str], out: str, wanted: set[int]
) -> None:
    drawn = _drawn(make, out=out)
    assert wanted <= set(drawn.tolist())
    assert len(set(drawn.tolist())) > len(wanted)


def test_a_number_of_padding_is_among_the_tokens() -> None:
    """They point into a table as well, whose numbers they stay within."""
    g = Graph("padded")
    ids = g.input("ids", [400], "int64")
    g.output(g.op("Gather", g.weight(5000, 2), ids))
    g.output(g.op("Not", g.op("Equal", ids, g.const(4321))), "bool")
    g.output(g.op("Equal", ids, g.const(-100)), "bool")
    drawn = random_inputs(g.model(), seed=0)["ids"]
    assert 40 < (drawn == 4321).sum() < 200
    assert drawn.min() >= 0 and 4000 < drawn.max() < 5000


@pytest.mark.parametrize(
    ("expected", "make"),
    [
        ((0, 2), lambda g, x: g.op("GatherND", g.weight(5, 3, 9), g.op("Reshape", x, g.const([100, 2])))),
        ((0, 63), lambda g, x: g.op("Gather", g.weight(4, 2), g.op("Div", x, g.const(16)))),
        ((0, 3), lambda g, x: g.op("Gather", g.weight(40, 2), g.op("Mul", x, g.const(11)))),
        ((-11, 10), lambda g, x: g.op("Gather", g.weight(11, 2), _from_the_end(g, x, 11))),
        ((0, 10), lambda g, x: g.op("Gather", g.weight(11, 2), g.op("Cast", g.op("Cast", x, to=1), to=7))),
        ((1, 200), lambda g, x: g.op("ReverseSequence", g.weight(200, 200), x)),
        ((1, 30), lambda g, x: g.op("RNN", g.weight(30, 200, 2), g.weight(1, 4, 2), g.weight(1, 4, 4), "",
                                    g.op("Cast", x, to=6), hidden_size=4)),
    ],
)  # fmt: skip
def test_indices_and_lengths_are_followed_through_arithmetic(
    expected: tuple[int, int], make: Callable[[Graph, str], str]
) -> None:
    model = _indices(make)
    assert integer_range(model, "ids") == expected
    drawn = random_inputs(model, seed=0)["ids"]
    assert expected[0] <= drawn.min() <= drawn.max() <= expected[1]
    assert drawn.max() - drawn.min() >= 0.9 * (expected[1] - expected[0])


def _from_the_end(g: Graph, x: str, size: int) -> str:
    return g.op("Where", g.op("Less", x, g.const(0)), g.op("Add", x, g.const(size)), x)


def test_indices_that_a_clip_keeps_in_range_are_drawn_on_both_sides_of_it() -> None:
    g = Graph("clipped")
    x = g.op("Clip", g.input("n", [500], "int64"), g.const(0), g.const(10))
    g.output(g.op("Gather", g.weight(11, 2), x))
    drawn = random_inputs(g.model(), seed=0)["n"]
    assert drawn.min() < 0 and drawn.max() > 10


def test_floats_that_become_indices_are_in_range() -> None:
    g = Graph("floats")
    g.output(g.op("Gather", g.weight(70, 2), g.op("Cast", g.input("n", [500]), to=7)))
    drawn = random_inputs(g.model(), seed=0)["n"]
    assert (drawn.dtype, drawn.min(), drawn.max()) == (np.float32, 0, 69)


def test_what_is_cast_to_conditions_is_a_mask() -> None:
    assert set(_drawn(lambda g, n: g.op("Cast", n, to=TensorProto.BOOL)).tolist()) == {0, 1}


def test_uses_inside_of_loops_and_branches_count() -> None:
    g = Graph("inside")
    ids, table = g.input("ids", [200], "int64"), g.weight(31, 2)
    branch = onnx.helper.make_graph(
        [onnx.helper.make_node("Gather", [table, ids], ["picked"])], "branch", [],
        [onnx.helper.make_tensor_value_info("picked", TensorProto.FLOAT, [200, 2])],
    )  # fmt: skip
    other = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", [g.weight(200, 2)], ["none"])], "other", [],
        [onnx.helper.make_tensor_value_info("none", TensorProto.FLOAT, [200, 2])],
    )  # fmt: skip
    g.output(g.op("If", g.input("way", [], "bool"), then_branch=branch, else_branch=other))
    assert integer_range(g.model(), "ids") == (0, 30)
