"""From a model to its plan: steps, constants, names."""

from __future__ import annotations

import hashlib
from pathlib import Path

import onnx

from edgepack.compiler.params_data import write_params_data
from edgepack.plan.types import ALIGNMENT, Plan
from workbench.compiled import plan_of, target_with
from workbench.models import build
from workbench.models.builder import Graph


def _twice_the_same_layer() -> onnx.ModelProto:
    g = Graph("twice", seed=0)
    w, b = g.weight(8, 8, 3, 3), g.weight(8)
    x = g.input("x", [1, 8, 6, 6])
    for _ in range(2):
        x = g.op("Relu", g.op("Conv", x, w, b, pads=[1, 1, 1, 1]))
    g.op("GlobalMaxPool", x, name="y")
    g.output("y")
    return g.model()


def test_equal_layers_share_kernel_and_constants() -> None:
    plan = plan_of(_twice_the_same_layer(), target=target_with("512x32")).plan
    convolutions = [s for s in plan.steps if "conv2d" in s.kernel]
    assert len(convolutions) == 2
    assert convolutions[0].kernel == convolutions[1].kernel
    constants = [[a for a in s.arguments if a.kind == "constant"] for s in convolutions]
    assert constants[0] == constants[1]


def test_steps_name_the_nodes_of_the_model() -> None:
    plan = plan_of(_twice_the_same_layer(), target=target_with("512x32")).plan
    first, second = (s.nodes for s in plan.steps if "conv2d" in s.kernel)
    assert first == ("Conv_0",)
    assert second == ("Conv_2",)


def test_every_step_of_a_network_names_a_node() -> None:
    model = build("mobilenetv3")
    names = {node.name for node in model.graph.node}
    for step in plan_of(model).plan.steps:
        assert step.nodes and all(name in names for name in step.nodes), step


def test_constants_are_aligned_and_hashed(tmp_path: Path) -> None:
    built = plan_of(_twice_the_same_layer())
    write_params_data(built.plan, built.constants, tmp_path / "params.bin")
    blob = (tmp_path / "params.bin").read_bytes()
    assert len(blob) == built.plan.params_bytes
    for constant, array in zip(built.plan.constants, built.constants, strict=True):
        assert constant.offset % ALIGNMENT == 0
        stored = blob[constant.offset : constant.offset + constant.nbytes]
        assert stored == array.tobytes()
        assert hashlib.sha256(stored).hexdigest() == constant.sha256


def test_weights_that_are_packed_are_not_stored_twice() -> None:
    target = target_with("512x32")
    plan = plan_of(_twice_the_same_layer(), target=target).plan
    # 8 x 8 x 3 x 3 weights, zeros for the padding (8) and behind the last vector, 8 biases.
    zeros = max(8, target.lanes("float32") - 1)
    assert sum(c.nbytes for c in plan.constants) == 4 * (8 * 8 * 9 + zeros + 8)


def test_plan_survives_json() -> None:
    plan = plan_of(_twice_the_same_layer(), target=target_with("512x32")).plan
    assert Plan.from_json(plan.to_json()) == plan
