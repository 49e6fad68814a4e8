from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgepack.compiler.frontend.onnx import frontend, import_file, import_model
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from edgepack.errors import ModelError
from workbench.models import build, save
from workbench.models.builder import Graph
from workbench.models.evaluate import run_onnxruntime, run_relax
from workbench.models.odd import ODD


def refusal(model: onnx.ModelProto) -> ModelError:
    with pytest.raises(ModelError) as caught:
        import_model(model)
    assert "\n" not in caught.value.message
    return caught.value


def test_resnet18_signature(tmp_path: Path) -> None:
    model = import_file(save(build("resnet18"), tmp_path), shapes={}, dims={})
    assert [(i.name, i.dtype, i.shape) for i in model.signature.inputs] == [
        ("input", "float32", (1, 3, 224, 224))
    ]
    assert [(o.name, o.dtype, o.shape) for o in model.signature.outputs] == [("logits", "float32", (1, 1000))]
    assert model.operators["Conv"] == 20
    assert "BatchNormalization" not in model.operators, "folded by ONNX Runtime's basic optimiser"


def test_open_dimensions_are_bound(tmp_path: Path) -> None:
    path = save(build("bert"), tmp_path)
    model = import_file(path, shapes={"input_ids": [2, 5]}, dims={})
    assert [i.shape for i in model.signature.inputs] == [(2, 5), (2, 5)]
    assert [(o.name, o.shape) for o in model.signature.outputs] == [
        ("last_hidden_state", (2, 5, 64)),
        ("pooled", (2, 64)),
    ]


def test_path_with_spaces_other_letters_and_external_data(tmp_path: Path) -> None:
    folder = tmp_path / "mein Modell größe"
    folder.mkdir()
    path = folder / "das netz.onnx"
    onnx.save(
        build("mlp"), str(path), save_as_external_data=True, location="die gewichte.bin", size_threshold=0
    )
    imported = import_file(path, shapes={}, dims={})
    x = np.random.default_rng(1).standard_normal((1, 784)).astype("float32")
    np.testing.assert_allclose(
        run_relax(imported.module, [x])[0], run_onnxruntime(build("mlp"), {"x": x})[0], rtol=1e-4, atol=1e-6
    )


def test_names_that_are_no_identifiers_are_kept() -> None:
    model = import_model(ODD["odd_names"]())
    names = ["a.b", "a_b", "0", "größe", "x:0", "serving default/x", "main"]
    assert [i.name for i in model.signature.inputs] == names
    assert [o.name for o in model.signature.outputs] == ["out.put:0", "out_put_0"]


def test_an_input_that_nothing_uses_stays() -> None:
    model = import_model(ODD["unused_input"]())
    assert [(i.name, i.dtype) for i in model.signature.inputs] == [("x", "float32"), ("spare", "int64")]
    assert len(model.module["main"].params) == 2


def test_a_value_with_many_readers_is_computed_once() -> None:
    model = import_model(ODD["multiple_consumers"]())
    assert model.module["main"].script().count("nn.conv2d") == 1


def test_float16_model_is_float32_between_its_inputs_and_outputs() -> None:
    model = import_model(ODD["float16_conv"]())
    assert [spec.dtype for spec in (*model.signature.inputs, *model.signature.outputs)] == ["float16"] * 2
    text = model.module["main"].script()
    assert text.count("R.astype") == 2


def test_products_of_rank_three_stay_apart_from_reshapes() -> None:
    model = import_model(build("vit"))
    assert model.operators["MatMul"] == 12


def test_nothing_is_printed_to_stdout(tmp_path: Path) -> None:
    """The worker's stdout carries events; TVM's importer prints there."""
    path = save(_graph_with("NonMaxSuppression"), tmp_path)
    script = (
        "from pathlib import Path; from edgepack.compiler.frontend.onnx import import_file\n"
        f"try: import_file(Path({str(path)!r}), shapes={{}}, dims={{}})\n"
        "except Exception as error: assert 'NonMaxSuppression' in str(error)\n"
        f"import_file(Path({str(save(build('mlp'), tmp_path, 'mlp.onnx'))!r}), shapes={{}}, dims={{}})\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


def test_importing_the_module_imports_neither_tvm_nor_onnx() -> None:
    script = (
        "import sys\n"
        "from edgepack.compiler.frontend.onnx import frontend, reference, summary\n"
        "print([name for name in ('tvm', 'onnx', 'onnxruntime', 'numpy', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# refusals ------------------------------------------------------------------------------------------------


def _graph_with(op: str) -> onnx.ModelProto:
    g = Graph("refused")
    if op == "NonZero":
        g.op("NonZero", g.input("x", [2, 3]), name="y")
        g.output("y", "int64")
    elif op == "NonMaxSuppression":
        boxes, scores = g.input("boxes", [1, 6, 4]), g.input("scores", [1, 1, 6])
        g.op("NonMaxSuppression", boxes, scores, g.const(3), name="y")
        g.output("y", "int64")
    else:
        g.op(op, g.input("x", [2, 3]), name="y", domain="my.company")
        g.output("y", shape=[2, 3])
    return g.model()


@pytest.mark.parametrize("op", ["NonZero", "NonMaxSuppression"])
def test_data_dependent_shapes_are_refused_with_the_node(op: str) -> None:
    error = refusal(_graph_with(op))
    assert op in error.message
    assert f"{op}_0" in error.message
    assert "--max y=" in error.hint


def test_all_unsupported_operators_are_named_at_once() -> None:
    g = Graph("unsupported")
    x = g.input("x", [4, 3])
    found = g.op("NonZero", g.input("m", [3, 3]))
    unique = g.op("Unique", x)
    g.op("Multinomial", x, sample_size=2, name="z")
    g.output(found, "int64", [2, 9])
    g.output(unique)
    g.output("z", "int32")
    error = refusal(g.model())
    assert "3 operators" in error.message
    for op, node in (("NonZero", "NonZero_0"), ("Unique", "Unique_1"), ("Multinomial", "Multinomial_2")):
        assert op in error.message
        assert node in error.detail


def test_custom_domain_is_refused_together_with_standard_operators() -> None:
    model = _graph_with("Frobnicate")
    model.graph.node.append(helper.make_node("NonZero", ["y"], ["z"], name="find"))
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", TensorProto.INT64, None))
    error = refusal(model)
    assert "my.company.Frobnicate" in error.message
    assert "NonZero" in error.message
    assert "Frobnicate_0" in error.detail
    assert "find" in error.detail


def test_a_custom_operator_named_like_a_standard_one_is_not_taken_for_it() -> None:
    assert "my.company.Relu" in refusal(_graph_with("Relu")).message


def test_control_flow_on_constants_is_folded_away() -> None:
    branches = [
        helper.make_graph([helper.make_node(op, ["x"], [f"{op}_out"])], op, [], [_info(f"{op}_out", [2])])
        for op in ("Relu", "Neg")
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    constant = helper.make_tensor("c", TensorProto.BOOL, [], [False])
    graph = helper.make_graph([node], "control", [_info("x", [2])], [_info("y", [2])], [constant])
    model = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8))
    assert model.operators == {"Neg": 1}


def test_a_shape_that_is_an_input_is_refused() -> None:
    g = Graph("dynamic")
    g.op("Reshape", g.input("x", [2, 6]), g.input("shape", [2], "int64"), name="y")
    g.output("y", shape=["a", "b"])
    error = refusal(g.model())
    assert "Reshape" in error.message
    assert "its shape is the model's input 'shape'" in error.message
    assert error.hint.endswith("--const shape=1,1")


def test_topk_of_a_number_that_is_an_input_is_refused() -> None:
    g = Graph("topk")
    values = g.ops("TopK", g.input("x", [1, 100]), g.input("k", [1], "int64"), outputs=2)
    g.output(values[0], shape=[1, "k"])
    error = refusal(g.model())
    assert "TopK node TopK_0" in error.message
    assert "its k is the model's input 'k'" in error.message
    assert error.hint.endswith("--const k=1")


def test_graph_without_outputs() -> None:
    model = build("mlp")
    del model.graph.output[:]
    assert "no outputs" in refusal(model).message


def test_output_that_nothing_computes() -> None:
    model = build("mlp")
    model.graph.output.append(_info("nowhere", [1]))
    error = refusal(model)
    assert "nowhere" in error.message + error.detail


def test_input_that_nothing_provides() -> None:
    model = build("mlp")
    model.graph.node[0].input[0] = "nowhere"
    error = refusal(model)
    assert "nowhere" in error.message + error.detail


def _info(name: str, shape: list[int]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def test_a_recurrent_layer_of_doubles_is_refused_by_name() -> None:
    g = Graph("lstm", seed=0)
    weights = [g.weight(1, 16, n, dtype="float64") for n in (3, 4)]
    g.op("LSTM", g.input("x", (2, 1, 3), "float64"), *weights, hidden_size=4, name="y")
    g.output("y", "float64")
    error = refusal(g.model())
    assert "LSTM" in error.message
    assert "float64" in error.message
    assert error.hint


@pytest.mark.parametrize("named", [True, False])
def test_all_nodes_that_the_importer_refuses_are_named_at_once(
    named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not the Sinh, which reads what stands in for the second Tan; also of nodes without names."""
    g = Graph("two")
    x = g.input("x", [2, 4])
    g.output(g.op("Tan", x, name="first"), shape=[2, 4])
    second = g.op("Tan", g.op("Relu", x), name="second")
    g.output(g.op("Sinh", g.op("Abs", second), name="third"), shape=[2, 4])
    model = g.model()
    for node in model.graph.node:
        node.name = node.name if named else ""
    real = frontend.convert

    def convert(builder: object, op_name: str, *rest: object) -> object:
        if op_name in ("Tan", "Sinh"):
            raise ValueError("no tangent today")
        return real(builder, op_name, *rest)

    monkeypatch.setattr(frontend, "convert", convert)
    with pytest.raises(RefusedNodesError) as caught:
        import_model(model)
    error = caught.value
    assert (
        error.message
        == "edgepack cannot compile 2 nodes of the model: not with such operands and attributes."
    )
    assert set(error.tensors) == {"first", "second"}
    assert [one["operator"] for one in error.refused] == ["Tan", "Tan"]
    if named:
        assert "Tan, Tan_2 of float32[2,4]" in error.detail
    assert "no tangent today" not in error.detail, "words of the importer's insides"


def test_all_shapes_that_are_known_at_run_time_only_are_named_at_once() -> None:
    g = Graph("lengths")
    for name in ("a", "b"):
        x = g.op("Range", g.const(0.0), g.input(name, []), g.const(1.0))
        g.output(g.op("Neg", x, name=f"minus_{name}"), shape=["n"])
    error = refusal(g.model())
    assert sorted(one["nodes"] for one in error.refused) == [["Range_0"], ["Range_2"]]
