"""Branches that the sizes do not fit: a run that takes one fails, and the others are as ONNX Runtime's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import edgepack
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.reference_run import run_reference
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.support import BRANCHES, is_impossible
from edgepack.errors import EdgepackError

node = helper.make_node

#: By rate, the samples of a window.
WINDOWS = {16000: 32, 8000: 16}


def of_two_rates() -> onnx.ModelProto:
    """A product with a window of its own for each of two rates; the input is open."""
    rng = np.random.default_rng(0)
    graphs = []
    for rate, samples in WINDOWS.items():
        weights = numpy_helper.from_array(rng.standard_normal((samples, 4)).astype(np.float32), f"w{rate}")
        graphs.append(
            helper.make_graph(
                [
                    node("MatMul", ["sound", f"w{rate}"], [f"p{rate}"]),
                    node("Tanh", [f"p{rate}"], [f"y{rate}"]),
                ],
                f"of{rate}",
                [],
                [helper.make_tensor_value_info(f"y{rate}", TensorProto.FLOAT, [1, 4])],
                [weights],
            )
        )
    branches = dict(zip(BRANCHES, graphs, strict=True))
    graph = helper.make_graph(
        [node("Equal", ["rate", "first"], ["is16"]), node("If", ["is16"], ["y"], name="rates", **branches)],
        "two_rates",
        [
            helper.make_tensor_value_info("sound", TensorProto.FLOAT, [1, "samples"]),
            helper.make_tensor_value_info("rate", TensorProto.INT64, []),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [numpy_helper.from_array(np.int64(16000), "first")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rates") / "rates.onnx"
    onnx.save(of_two_rates(), str(path))
    return path


def of_samples(samples: int, rate: int) -> Mapping[str, NDArray[Any]]:
    return {
        "sound": np.random.default_rng(samples).standard_normal((1, samples)).astype(np.float32),
        "rate": np.asarray(rate, np.int64),
    }


@pytest.mark.parametrize(("rate", "samples"), WINDOWS.items())
def test_one_of_two_branches_fits(file: Path, rate: int, samples: int, tmp_path: Path) -> None:
    """The recorded run takes the branch that fits, and another one says why it fails."""
    told: list[str] = []
    options = ImportOptions(shapes={"sound": (1, samples)})
    (choice,) = (n for n in open_model(file, options, told).graph.node if n.op_type == "If")
    impossible = "else_branch" if rate == 16000 else "then_branch"
    assert [branch for branch in BRANCHES if is_impossible(attributes(choice)[branch])] == [impossible]
    assert [impossible.replace("_", "-") in text and "rates" in text for text in told] == [True]
    bundle = edgepack.pack(file, "host", tmp_path / "bundle", shapes={"sound": [1, samples]})
    assert bundle.verify().ok
    with edgepack.load(tmp_path / "bundle") as session:
        inputs = of_samples(samples, rate)
        expected = run_reference(of_two_rates(), inputs)["y"]
        np.testing.assert_allclose(session.run(inputs)["y"], expected, atol=1e-5)
        with pytest.raises(EdgepackError, match="does not fit the sizes"):
            session.run(of_samples(samples, 24000 - rate))
        np.testing.assert_allclose(session.run(inputs)["y"], expected, atol=1e-5)


def test_sizes_that_fit_neither_branch_are_refused(file: Path) -> None:
    told: list[str] = []
    model = open_model(file, ImportOptions(shapes={"sound": (1, 20)}), told)
    assert not told
    assert not any(
        is_impossible(attributes(n)[b]) for n in model.graph.node if n.op_type == "If" for b in BRANCHES
    )
