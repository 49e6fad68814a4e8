"""Models that are damaged, or ask for more than there is: one sentence each, and never a traceback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper

import edgepack
from edgepack.compiler import worker
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import frontend
from edgepack.compiler.frontend.onnx.structure import MOST_RANK
from edgepack.errors import ModelError
from edgepack.plan.limits import Limits
from tests.support import fuzz_models
from tests.support.forked_cases import Outcome
from workbench.models.builder import Graph

OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]


def relu(shape: Sequence[int] = (2, 3)) -> onnx.ModelProto:
    g = Graph("relu")
    g.op("Relu", g.input("x", shape), name="y")
    g.output("y")
    return g.model()


def function(name: str, *nodes: onnx.NodeProto, opset: int = 17) -> onnx.FunctionProto:
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("mine", 1)]
    return helper.make_function("mine", name, ["a"], ["b"], list(nodes), opsets)


def calling(*functions: onnx.FunctionProto, inputs: int = 1) -> onnx.ModelProto:
    """A model that calls the first of these functions."""
    model = relu()
    model.graph.node[0].CopyFrom(helper.make_node("f0", ["x"] * inputs, ["y"], domain="mine"))
    model.functions.extend(functions)
    del model.opset_import[:]
    model.opset_import.extend(OPSETS)
    return model


def doubling(levels: int) -> onnx.ModelProto:
    """Functions that call the next one twice: 2^levels nodes."""
    functions = []
    for level in range(levels):
        name, domain = (f"f{level + 1}", "mine") if level + 1 < levels else ("Relu", "")
        calls = [helper.make_node(name, [a], [b], domain=domain) for a, b in (("a", "t"), ("t", "b"))]
        functions.append(function(f"f{level}", *calls))
    return calling(*functions)


def computed(build: Callable[[Graph], str]) -> onnx.ModelProto:
    """A model that adds the largest element of a constant."""
    g = Graph("computed")
    most = g.op("ReduceMax", g.op("Cast", build(g), to=TensorProto.FLOAT), keepdims=0)
    g.op("Add", g.input("x", [2, 3]), most, name="y")
    g.output("y", shape=[2, 3])
    return g.model()


def _concatenated(g: Graph) -> str:
    name = g.const([1.0, 2.0, 3.0, 4.0])
    for _ in range(40):
        name = g.op("Concat", name, name, axis=0)
    return name


def _power(g: Graph) -> str:
    """A size that nothing knows before constants are folded."""
    return g.op("ConstantOfShape", g.op("Reshape", g.op("Pow", g.const(2), g.const(29)), g.const([1])))


def _loop(g: Graph) -> str:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "body",
        [helper.make_tensor_value_info("i", TensorProto.INT64, []),
         helper.make_tensor_value_info("go", TensorProto.BOOL, []),
         helper.make_tensor_value_info("v", TensorProto.FLOAT, [1])],
        [helper.make_tensor_value_info("on", TensorProto.BOOL, []),
         helper.make_tensor_value_info("w", TensorProto.FLOAT, [1])],
    )  # fmt: skip
    return g.op("Loop", g.const(2**40), "", g.input("v", [1]), body=body)


def _neighbours() -> onnx.ModelProto:
    g = Graph("lrn")
    g.op("LRN", g.input("x", [1, 5000, 1, 1]), size=65536, name="y")
    g.output("y")
    return g.model()


def _normed(axis: int) -> onnx.ModelProto:
    g = Graph("norm")
    g.op("LayerNormalization", g.input("x", [2, 3, 8]), g.const(np.ones(8, np.float32)), axis=axis, name="y")
    g.output("y", shape=[2, 3, 8])
    return g.model()


def _broken(change: Callable[[onnx.ModelProto], object]) -> onnx.ModelProto:
    g = Graph("linear")
    g.op("Add", g.input("x", [2, 3]), g.const(np.ones((2, 3), np.float32), name="w"), name="y")
    g.output("y")
    model = g.model()
    change(model)
    return model


def _segment(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].segment.begin = 0


#: What is wrong with a model, and what is said of it.
REFUSED: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "no_outputs": (lambda: _broken(lambda m: m.graph.node[0].output.pop()), "the Add node"),
    "no_inputs": (lambda: _broken(lambda m: m.graph.node[0].ClearField("input")), "has no inputs"),
    "no_operator": (lambda: _broken(lambda m: m.graph.node[0].ClearField("op_type")), "has no operator"),
    "too_few_numbers": (
        lambda: _broken(lambda m: setattr(m.graph.initializer[0], "raw_data", b"123")),
        "needs 24 bytes, and it has 3",
    ),
    "unknown_type": (
        lambda: _broken(lambda m: setattr(m.graph.initializer[0], "data_type", 77)),
        "element type",
    ),
    "negative_extent": (lambda: _broken(lambda m: m.graph.initializer[0].dims.append(-1)), "negative extent"),
    "segment": (lambda: _broken(_segment), "several segments"),
    "rank_300": (lambda: relu([1] * 300), f"has rank 300; tensors have {MOST_RANK}"),
    "extent_2_31": (lambda: relu([2**31]), "would have 2147483648 elements"),
    "function_that_calls_itself": (
        lambda: calling(function("f0", helper.make_node("f0", ["a"], ["b"], domain="mine"))),
        "'mine.f0' calls itself",
    ),
    "function_of_an_unknown_opset": (
        lambda: calling(function("f0", helper.make_node("Relu", ["a"], ["b"]), opset=99)),
        "functions cannot be written out",
    ),
    "function_with_too_many_operands": (
        lambda: calling(function("f0", helper.make_node("Relu", ["a"], ["b"])), inputs=3),
        "functions cannot be written out",
    ),
    "function_bomb": (lambda: doubling(30), "has 1073741824 nodes with its functions written out"),
    "range_2_40": (
        lambda: computed(lambda g: g.op("Range", g.const(0), g.const(2**40), g.const(1))),
        "1099511627776 elements",
    ),
    "constant_of_shape_2_40": (
        lambda: computed(lambda g: g.op("ConstantOfShape", g.const([2**40]))),
        "1099511627776 elements",
    ),
    "constant_of_shape_2_29": (
        lambda: computed(lambda g: g.op("ConstantOfShape", g.const([2**29]))),
        "would take 2147483648 bytes; 536870912 are allowed (ConstantOfShape",
    ),
    "constant_of_computed_shape": (lambda: computed(_power), "would take 2147483648 bytes"),
    "tile": (lambda: computed(lambda g: g.op("Tile", g.const([1.0]), g.const([2**28]))), "would take"),
    "expand": (lambda: computed(lambda g: g.op("Expand", g.const([1.0]), g.const([2**40]))), "elements"),
    "pad": (lambda: computed(lambda g: g.op("Pad", g.const([1.0]), g.const([2**40, 0]))), "elements"),
    "resize": (
        lambda: computed(lambda g: g.op("Resize", g.const([[[1.0]]]), "", "", g.const([1, 1, 2**33]))),
        "elements",
    ),
    "concat": (lambda: computed(_concatenated), "elements"),
    "loop": (lambda: computed(_loop), "1099511627776 trips; 1000000 are allowed"),
    "axis": (lambda: _normed(2**63 - 1), "has axis 9223372036854775807; its input has rank 3"),
    "neighbours": (_neighbours, "adds up 10001 neighbouring channels"),
}  # fmt: skip


def refusal(model: onnx.ModelProto | bytes, folder: Path, options: ImportOptions | None = None) -> ModelError:
    path = folder / "model.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    with pytest.raises(ModelError) as caught:
        frontend.prepare(path, options or ImportOptions(), folder)
    assert "\n" not in caught.value.message
    return caught.value


@pytest.mark.parametrize("name", REFUSED)
def test_a_model_that_is_damaged_or_too_large_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    build, said = REFUSED[name]
    assert said in refusal(build(), tmp_path).message


@pytest.mark.parametrize("field", ["op_type", "name", "domain"])
def test_a_name_that_is_no_utf8_is_named(field: str, tmp_path: Path) -> None:
    model = relu()
    setattr(model.graph.node[0], field, "@@@@")
    error = refusal(model.SerializeToString().replace(b"@@@@", b"\xff\xfe\x80("), tmp_path)
    assert "a text in node 0 is not UTF-8: b'\\xff\\xfe\\x80('" in error.message


@pytest.mark.parametrize(
    ("key", "value"),
    [("offset", "9" * 5000), ("offset", "-1"), ("length", "0x10"), ("length", "1e9"), ("offset", "٣"),
     ("offset", str(2**62)), ("location", "a\0b"), ("location", "a" * 5000), ("location", "."),
     ("location", "")],
)  # fmt: skip
def test_external_data_with_an_absurd_place_is_refused(key: str, value: str, tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(bytes(64))
    fields = {"location": "weights", "offset": "0", "length": "24", key: value}

    def outside(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for name, text in fields.items():
            tensor.external_data.add(key=name, value=text)

    message = refusal(_broken(outside), tmp_path).message
    assert any(said in message for said in ("external data", "outside of the model's folder")), message


def test_limits_are_the_users(tmp_path: Path) -> None:
    model = computed(lambda g: g.op("Tile", g.const([1.0]), g.const([1000])))
    error = refusal(model, tmp_path, ImportOptions(limits=Limits(constant_bytes=3999)))
    assert "would take 4000 bytes; 3999 are allowed (Tile" in error.message
    assert "--max-constant-bytes" in error.hint
    assert "--max-nodes" in refusal(model, tmp_path, ImportOptions(limits=Limits(nodes=3))).hint
    frontend.prepare(tmp_path / "model.onnx", ImportOptions(limits=Limits(4000, 4)), tmp_path)


def test_a_node_has_no_more_operands_than_the_compiler_bears(tmp_path: Path) -> None:
    """A Concat of 5,000 constants ended the worker by SIGSEGV."""
    model = computed(lambda g: g.op("Concat", *(g.const([1.0]) for _ in range(1025)), axis=0))
    error = refusal(model, tmp_path)
    assert "Concat" in error.message and "has 1025 operands; 1024 are compiled at most" in error.message


def test_by_default_constants_may_grow_to_eight_times_those_of_the_model() -> None:
    assert Limits().constants(1 << 20) == 512 << 20
    assert Limits().constants(1 << 30) == 8 << 30
    assert Limits(constant_bytes=5).constants(1 << 30) == 5


def test_scales_of_a_resize_may_lie_in_a_column(tmp_path: Path) -> None:
    g = Graph("resize", opset=11)
    column = g.const(np.float32([[1], [1], [2], [2]]))
    g.op(
        "Resize",
        g.input("x", [1, 2, 3, 4]),
        g.const(np.zeros(0, np.float32)),
        column,
        mode="linear",
        name="y",
    )
    g.output("y", shape=[1, 2, 6, 8])
    (tmp_path / "model.onnx").write_bytes(g.model().SerializeToString())
    frontend.prepare(tmp_path / "model.onnx", ImportOptions(), tmp_path)


@pytest.mark.parametrize(
    "error", [MemoryError(), tvm.error.InternalError("std::bad_alloc")], ids=["Python", "TVM"]
)
def test_too_little_memory_is_said_of_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def task(*_: object) -> None:
        raise error

    heard = fuzz_models.Heard()
    monkeypatch.setitem(worker._TASKS, "read", task)
    (tmp_path / "job.json").write_text('{"task": "read"}')
    worker.run_job(tmp_path, heard)
    assert heard.last["class"] == "ModelError"
    assert "more memory than there is" in str(heard.last["message"])


def _wrong(first: int, count: int) -> list[Outcome]:
    outcomes = fuzz_models.run_cases(range(first, first + count))
    return [one for one in outcomes if one.code not in (0, 3)]


def test_a_rank_that_no_tensor_has_is_not_shown(tmp_path: Path) -> None:
    """Of 100,000 dimensions `check` made a minute's work, and a sentence of 400 KB."""
    path = tmp_path / "model.onnx"
    path.write_bytes(relu([1] * 300).SerializeToString())
    with pytest.raises(ModelError, match=f"'x' has rank 300; tensors have {MOST_RANK}"):
        frontend.summarise(path)


@pytest.mark.parametrize("first", [0, fuzz_models.FIRST_QUANTISED])
def test_damaged_models_end_with_exit_code_0_or_3(first: int) -> None:
    assert not _wrong(first, 120 if first == 0 else 60)


@pytest.mark.slow
def test_a_chain_of_2000_operators_is_compiled_by_the_fast_rules(tmp_path: Path) -> None:
    g = Graph("chain")
    x = g.input("x", [2, 8])
    for number in range(2000):
        x = g.op("Sigmoid" if number % 2 else "Relu", x)
    g.output(x, shape=[2, 8])
    path = tmp_path / "chain.onnx"
    path.write_bytes(g.model().SerializeToString())
    found = edgepack.check(path)
    assert found.ok
    assert not found.warnings


@pytest.mark.slow
def test_many_damaged_models_end_with_exit_code_0_or_3() -> None:
    assert not _wrong(0, 20_000)
