from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx.summary import summarise
from edgepack.errors import ModelError
from tests.compiler.frontend.onnx.test_constant_inputs import branching
from workbench.models import build, save
from workbench.models.builder import Graph
from workbench.models.odd import ODD
from workbench.models.operators import CASES


def test_resnet18(tmp_path: Path) -> None:
    summary = summarise(save(build("resnet18"), tmp_path))
    assert (summary.opset, summary.ir_version, summary.producer) == (17, 8, "edgepack-examples")
    assert [(i.name, i.dtype, i.shape) for i in summary.inputs] == [("input", "float32", (1, 3, 224, 224))]
    assert [(o.name, o.dtype, o.shape) for o in summary.outputs] == [("logits", "float32", (1, 1000))]
    assert summary.operators["Conv"] == 20
    assert next(iter(summary.operators)) == "Conv", "the most frequent first"
    statistics = 2 * 4800  # running means and variances are not counted as parameters elsewhere
    assert summary.params == 11_689_512 + statistics
    assert summary.params_bytes == 4 * summary.params
    assert (summary.unbound, summary.unsupported, summary.external) == ({}, {}, ())


def test_open_dimensions_are_shown_with_their_names(tmp_path: Path) -> None:
    summary = summarise(save(build("bert"), tmp_path))
    assert summary.inputs[0].shape == ("batch", "sequence")
    assert summary.unbound == {
        "input_ids": ["batch", "sequence"],
        "attention_mask": ["batch", "sequence"],
    }


def test_unsupported_operators_are_shown_with_their_nodes(tmp_path: Path) -> None:
    g = Graph("unsupported")
    g.op("NonZero", g.op("Frobnicate", g.input("x", [2]), domain="my.company"), name="y")
    g.output("y", "int64", [1, "n"])
    summary = summarise(save(g.model(), tmp_path))
    assert summary.unsupported == {"my.company.Frobnicate": ["Frobnicate_0"], "NonZero": ["NonZero_1"]}


@pytest.mark.parametrize(
    "model", [CASES["qlinear_conv"], CASES["swish"], CASES["topk"], ODD["local_function"]]
)
def test_what_a_rewrite_replaces_is_supported(model: object, tmp_path: Path) -> None:
    assert callable(model)
    assert summarise(save(model(), tmp_path)).unsupported == {}


def test_initializers_listed_as_inputs_are_params(tmp_path: Path) -> None:
    summary = summarise(save(ODD["old_initializer_inputs"](), tmp_path))
    assert [item.name for item in summary.inputs] == ["x"]
    assert summary.params == 108


def test_external_data_is_listed_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "mlp.onnx"
    onnx.save(build("mlp"), str(path), save_as_external_data=True, location="mlp.weights", size_threshold=0)
    summary = summarise(path)
    assert summary.external == ("mlp.weights",)
    assert summary.params == 784 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10


def test_json(tmp_path: Path) -> None:
    data = json.loads(json.dumps(summarise(save(build("mlp"), tmp_path)).to_json()))
    assert data["inputs"] == [{"name": "x", "dtype": "float32", "shape": [1, 784], "quantisation": None}]


def test_broken_file(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"nonsense")
    with pytest.raises(ModelError):
        summarise(tmp_path / "model.onnx")


def test_neither_tvm_nor_onnxruntime_is_needed(tmp_path: Path) -> None:
    path = save(build("mlp"), tmp_path)
    script = (
        "import sys, pathlib; from edgepack.compiler.frontend.onnx.summary import summarise\n"
        f"summarise(pathlib.Path({str(path)!r}))\n"
        "print([name for name in ('tvm', 'onnxruntime', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_what_is_in_branches_counts(tmp_path: Path) -> None:
    """silero_vad.onnx is one If: all of its parameters are in the branches."""
    summary = summarise(save(branching(), tmp_path))
    assert summary.operators["Mul"] == 4
    assert summary.nodes == sum(summary.operators.values()) == 12
    assert summary.params == 4 * 3


@pytest.mark.parametrize("external", [False, True])
def test_denormal_parameters_are_counted(external: bool, tmp_path: Path) -> None:
    g = Graph("decayed")
    weights = np.full((40, 50), 1e-40, np.float32)
    weights[0] = 1
    g.op("MatMul", g.input("x", [1, 40]), g.const(weights), name="y")
    g.output("y")
    path = tmp_path / "decayed.onnx"
    onnx.save(g.model(), path, save_as_external_data=external, location="weights", size_threshold=0)
    assert summarise(path).denormals == 39 * 50
