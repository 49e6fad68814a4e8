"""Networks of operators that ONNX Runtime's transformer optimiser writes: they get the kernels of the
originals, and compute what ONNX Runtime does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.errors import ModelError
from tools.operators_report import contributed
from workbench.compiled import Compiled
from workbench.models.contrib import CONTRIB, decoder, encoder


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {"encoder": encoder(), "decoder": decoder()}
    for model in models.values():  # what the optimiser saves has its outputs' types
        for output in model.graph.output:
            output.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return Compiled(models, tmp_path_factory.mktemp("contrib"))


@pytest.mark.parametrize(("name", "attentions", "norms"), [("encoder", 2, 5), ("decoder", 1, 2)])
def test_attention_and_norms_are_one_kernel_each(
    name: str, attentions: int, norms: int, compiled: Compiled
) -> None:
    plan = compiled.plan(name)
    rules = Counter(plan.kernel(step.kernel).rule for step in plan.steps)
    operators = Counter(op for step in plan.steps for op in plan.kernel(step.kernel).ops)
    assert rules["attention"] == attentions
    assert operators["layer_norm"] + operators["rms_norm"] == norms
    assert operators["softmax"] == 0
    compiled.check(name)


def test_a_model_can_be_cut_behind_an_operator_that_only_onnxruntime_knows(tmp_path: Path) -> None:
    model = encoder()
    path = tmp_path / "encoder.onnx"
    onnx.save(model, str(path))
    name = next(node.output[0] for node in model.graph.node if node.op_type == "Attention")
    part = open_model(path, ImportOptions(inputs=[name]))
    shape = next(value for value in part.graph.input if value.name == name).type.tensor_type.shape
    assert [dim.dim_value for dim in shape.dim] == [2, 20, 32]


def test_a_form_that_is_not_known_is_refused_with_its_node() -> None:
    model = CONTRIB["ms_gqa"]()
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("smooth_softmax", 1))
    with pytest.raises(ModelError) as caught:
        import_model(model)
    assert caught.value.refused[0]["operator"] == "com.microsoft.GroupQueryAttention"
    assert caught.value.refused[0]["nodes"] == ["node"]
    assert "not in this form" in caught.value.refused[0]["reason"]


def test_the_page_of_operators_names_those_of_onnxruntime() -> None:
    page = Path(__file__).parents[4] / "docs" / "operators.md"
    assert page.read_text(encoding="utf-8").endswith(contributed())
