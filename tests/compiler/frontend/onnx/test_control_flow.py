"""If, Loop and Scan: unrolled, chosen from, or as branches of the plan, as ONNX Runtime runs them; or refused
in a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.rewrites.control_flow import MOST_NODES
from edgepack.compiler.frontend.onnx.standard_regions import with_standard_regions
from edgepack.errors import EdgepackError, ModelError
from workbench.compiled import Compiled, assert_close
from workbench.models.evaluate import random_inputs, run_onnxruntime

Values = Sequence[onnx.ValueInfoProto]


def floats(name: str, *shape: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def scalar(name: str, dtype: int = TensorProto.INT64) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, [])


def graph(
    nodes: Sequence[onnx.NodeProto], inputs: Values, outputs: Values, **constants: object
) -> onnx.GraphProto:
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()]
    return helper.make_graph(list(nodes), "g", list(inputs), list(outputs), tensors)


def model(of: onnx.GraphProto, opset: int = 17) -> onnx.ModelProto:
    return helper.make_model(of, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


node = helper.make_node
YES = scalar("go", TensorProto.BOOL), scalar("on", TensorProto.BOOL)
ON = node("Identity", ["go"], ["on"])


def trips(count: object = None) -> onnx.ModelProto:
    """A carried value, one of the graph around, a result of each trip; the count is an input if not given."""
    body = graph(
        [
            ON,
            node("Add", ["s", "outer"], ["t"]),
            node("Cast", ["i"], ["step"], to=TensorProto.FLOAT),
            node("Mul", ["t", "step"], ["each"]),
        ],
        [scalar("i"), YES[0], floats("s", 2, 3)],
        [YES[1], floats("t", 2, 3), floats("each", 2, 3)],
    )
    inputs = [floats("x", 2, 3), floats("outer", 3)]
    outputs = [floats("y", 2, 3), helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2, 3])]
    repeat = node("Loop", ["n", "", "x"], ["y", "z"], body=body, name="repeat")
    if count is None:
        return model(graph([repeat], [*inputs, scalar("n")], outputs))
    return model(graph([repeat], inputs, outputs, n=np.int64(count)))  # type: ignore[call-overload]


def until(start: object = None) -> onnx.ModelProto:
    """Goes on while a carried number is small; an If inside depends on the trip."""
    more, less = (
        graph([node(op, ["s", "two"], [op])], [], [floats(op, 3)], two=np.float32(2)) for op in ("Mul", "Sub")
    )
    body = graph(
        [
            node("Add", ["k", "one"], ["k1"]),
            node("Less", ["k1", "five"], ["on"]),
            node("Greater", ["i", "one"], ["late"]),
            node("If", ["late"], ["s1"], then_branch=more, else_branch=less),
        ],
        [scalar("i"), YES[0], scalar("k"), floats("s", 3)],
        [YES[1], scalar("k1"), floats("s1", 3)],
        one=np.int64(1),
    )
    loop = node("Loop", ["", "yes", "k0", "x"], ["k", "y"], body=body, name="until")
    constants = {"five": np.int64(5), "yes": True}
    if start is None:
        return model(graph([loop], [floats("x", 3), scalar("k0")], [floats("y", 3)], **constants))
    return model(graph([loop], [floats("x", 3)], [floats("y", 3)], k0=np.int64(0), **constants))


def repeated(*, condition: bool, again: bool) -> onnx.ModelProto:
    """As often as an input says, where constants allow the first trip and those behind it."""
    body = graph(
        [node("Tanh", ["s"], ["t"])],
        [scalar("i"), YES[0], floats("s", 3)],
        [YES[1], floats("t", 3)],
        on=again,
    )
    loop = node("Loop", ["n", "condition", "x"], ["y"], body=body, name="repeat")
    return model(graph([loop], [floats("x", 3), scalar("n")], [floats("y", 3)], condition=condition))


def choice(other: int = 3) -> onnx.ModelProto:
    """The sign of a sum decides; one branch has a constant, or another shape."""
    relu = graph([node("Relu", ["x"], ["a"])], [], [floats("a", 3)])
    if other != 3:
        mul = graph([node("Concat", ["x", "x"], ["b"], axis=0)], [], [floats("b", 6)])
    else:
        mul = graph([node("Mul", ["x", "w"], ["b"])], [], [floats("b", 3)], w=np.float32([1, 2, 3]))
    nodes = [
        node("ReduceSum", ["x"], ["s"], keepdims=0),
        node("Greater", ["s", "zero"], ["c"]),
        node("If", ["c"], ["y"], then_branch=relu, else_branch=mul, name="choose"),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    return model(graph(nodes, [floats("x", 3)], [result], zero=np.float32(0)))


def scanned() -> onnx.ModelProto:
    """A small recurrent cell along the second axis, from the end to the beginning."""
    body = graph(
        [
            node("MatMul", ["e", "weights"], ["p"]),
            node("Add", ["p", "h"], ["q"]),
            node("Tanh", ["q"], ["h1"]),
            node("Identity", ["h1"], ["out"]),
        ],
        [floats("h", 4), floats("e", 4)],
        [floats("h1", 4), floats("out", 4)],
    )
    scan = node(
        "Scan",
        ["h0", "x"],
        ["last", "y"],
        body=body,
        num_scan_inputs=1,
        scan_input_axes=[1],
        scan_input_directions=[1],
        scan_output_axes=[-1],
        scan_output_directions=[1],
    )
    weights = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    inputs, outputs = [floats("x", 4, 5), floats("h0", 4)], [floats("last", 4), floats("y", 4, 5)]
    return model(graph([scan], inputs, outputs, weights=weights))


def scanned_batch() -> onnx.ModelProto:
    """Up to opset 8 each item of a batch is scanned by itself."""
    body = graph(
        [node("Add", ["s", "e"], ["t"]), node("Identity", ["t"], ["out"])],
        [floats("s", 2), floats("e", 2)],
        [floats("t", 2), floats("out", 2)],
    )
    scan = node("Scan", ["", "s0", "x"], ["last", "y"], body=body, num_scan_inputs=1)
    inputs, outputs = [floats("s0", 3, 2), floats("x", 3, 4, 2)], [floats("last", 3, 2), floats("y", 3, 4, 2)]
    return model(graph([scan], inputs, outputs), opset=8)


MODELS: Mapping[str, onnx.ModelProto] = {
    "trips": trips(4),
    "many trips": trips(MOST_NODES),
    "until at run time": until(),
    "until": until(0),
    "choice": choice(),
    "scanned": scanned(),
    "scanned, a batch": scanned_batch(),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(MODELS, tmp_path_factory.mktemp("control"))


@pytest.mark.parametrize("name", MODELS)
def test_against_onnxruntime(compiled: Compiled, name: str) -> None:
    for seed in (1, 2, 3):  # the sum of the inputs has both signs
        compiled.check(name, seed=seed)


@pytest.mark.parametrize(
    ("refused", "name", "why"),
    [
        (trips(), "repeat", "how many trips it makes, and so the size of 'z', is known at run time only"),
        (trips(10**6 + 1), "repeat", "1000001 trips; 1000000 are allowed"),
        (choice(6), "choose", "float32[3] and as float32[6]"),
    ],
)
def test_what_is_known_at_run_time_only_is_refused(refused: onnx.ModelProto, name: str, why: str) -> None:
    with pytest.raises(ModelError) as caught:
        import_model(refused)
    assert name in caught.value.message
    assert why in caught.value.message
    assert "\n" not in caught.value.message
    assert caught.value.hint


def stacked_and_read() -> onnx.ModelProto:
    """What a loop of unknown length stacks, and a product of each part."""
    of = trips()
    weights = numpy_helper.from_array(
        np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32), "w"
    )
    of.graph.initializer.append(weights)
    of.graph.node.append(node("MatMul", ["z", "w"], ["product"], name="product"))
    of.graph.node.append(node("Sigmoid", ["product"], ["p"], name="p"))
    of.graph.output.append(helper.make_tensor_value_info("p", TensorProto.FLOAT, ["n", 2, 4]))
    return of


def test_what_a_loop_stacks_has_a_maximum(tmp_path: Path) -> None:
    """Parts that are left are 0, those that would be more are left out; the count says how many there are."""
    most = 5
    of = stacked_and_read()
    compiled = Compiled({"m": of}, tmp_path, maxima={"m": {"z": most}})
    for count in (0, 1, 4, 5, 7):
        inputs = random_inputs(of, count) | {"n": np.asarray(count, np.int64)}
        got, expected = compiled.run("m", inputs), compiled.expected("m", inputs)
        assert got["z_count"] == count
        for name in ("z", "p"):
            whole = np.zeros((most, *expected[name].shape[1:]), np.float32)
            whole[: min(count, most)] = expected[name][:most]
            np.testing.assert_allclose(got[name], whole, atol=1e-5, err_msg=name)
        np.testing.assert_allclose(got["y"], expected["y"], atol=1e-5)


def test_a_maximum_where_none_is_needed_is_refused() -> None:
    with pytest.raises(EdgepackError, match="number of trips of the Loop of 'z' is known"):
        import_model(trips(MOST_NODES), {"z": 5})


@pytest.mark.parametrize(("condition", "again"), [(True, True), (True, False), (False, True)])
def test_constant_conditions_and_a_number_at_run_time(tmp_path: Path, condition: bool, again: bool) -> None:
    given = repeated(condition=condition, again=again)
    compiled = Compiled({"m": given}, tmp_path)
    standard = with_standard_regions(normalise(repeated(condition=condition, again=again)))
    for number in (0, 1, 3):
        inputs = {"x": np.float32([0.5, -1, 2]), "n": np.asarray(number, np.int64)}
        expected = compiled.expected("m", inputs)
        assert_close(given, compiled.run("m", inputs, seed=number), expected)
        (value,) = run_onnxruntime(standard, inputs)
        np.testing.assert_allclose(value, expected["y"], atol=1e-6)
