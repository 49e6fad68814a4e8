"""Loops that are recurrent layers become them; what is not exactly one stays a loop. Both compute what ONNX
Runtime does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.standard_regions import with_standard_regions
from workbench.compiled import Compiled, assert_close, plan_of
from workbench.models.drawn_layers import DEFECTS, DrawnLayer, value
from workbench.models.evaluate import random_inputs, run_onnxruntime

node = helper.make_node


def operators(model: onnx.ModelProto) -> set[str]:
    """Those of the normalised model, which computes what the model does."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    normal = with_standard_regions(normalise(copy))
    inputs = random_inputs(model, 7)
    for ours, expected in zip(run_onnxruntime(normal, inputs), run_onnxruntime(model, inputs), strict=True):
        np.testing.assert_allclose(ours, expected, atol=1e-5)
    return {one.op_type for one in normal.graph.node}


@pytest.mark.parametrize("seed", range(20))
def test_drawn_loops_are_layers(seed: int) -> None:
    drawn = DrawnLayer(seed)
    found = operators(drawn.model)
    assert drawn.cell in found and found.isdisjoint(("Loop", "Scan")), drawn.about


@pytest.mark.parametrize("defect", DEFECTS)
def test_what_is_not_quite_a_layer_stays(defect: str) -> None:
    for seed in range(len(DEFECTS[defect])):
        drawn = DrawnLayer(seed, defect)
        assert operators(drawn.model).isdisjoint(("LSTM", "GRU", "RNN")), drawn.about


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 2000, 100))
def test_more_drawn_loops(first: int) -> None:
    for seed in range(first, first + 100):
        test_drawn_loops_are_layers(seed)
        defect = list(DEFECTS)[seed % len(DEFECTS)]
        assert operators(DrawnLayer(seed, defect).model).isdisjoint(("LSTM", "GRU", "RNN")), (seed, defect)


def test_their_kernels(tmp_path: Path) -> None:
    """An LSTM with a mask and one of each cell without are compiled; there is no branch."""
    drawn = Compiled({f"m{seed}": DrawnLayer(seed).model for seed in (0, 1, 5, 9)}, tmp_path)
    for name, model in drawn.models.items():
        kernels = plan_of(model, name).plan.kernels
        assert "recurrent" in [kernel.rule for kernel in kernels]
        assert all(kernel.branch is None for kernel in kernels)
        inputs = random_inputs(model, 7)
        masks = (np.zeros_like, np.ones_like, np.asarray) if "mask" in inputs else (np.asarray,)
        for mask in masks:
            given = {key: mask(array) if key == "mask" else array for key, array in inputs.items()}
            assert_close(model, drawn.run(name, given, seed=1), drawn.expected(name, given))


# Forms of exporters -----------------------------------------------------------------------------------------

STEPS, BATCH, COLUMNS, SIZE = 6, 2, 3, 4


def weights(*shape: int) -> np.ndarray:
    return (0.5 * np.random.default_rng(len(shape) + sum(shape)).standard_normal(shape)).astype(np.float32)


def loop_model(
    body: Sequence[onnx.NodeProto],
    carried: Sequence[tuple[onnx.ValueInfoProto, str]],
    parts: Sequence[str],
    behind: Sequence[onnx.NodeProto] = (),
    inputs: Sequence[onnx.ValueInfoProto] = (),
    **constants: np.ndarray,
) -> onnx.ModelProto:
    """A model of one Loop of :data:`STEPS` trips over ``x``.

    Args:
        carried: what it carries, inside, and what it is behind a trip; it starts as an input of the name with
            a 0, if there is no constant or node of that name, and ends as one with ``_end``.
        parts: what it stacks, as ``all0``, ``all1``.
        behind: nodes before or behind the loop.
    """
    names = [one.name for one, _ in carried]
    graph = helper.make_graph(
        [*body, node("Identity", ["go"], ["on"])],
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), *(one for one, _ in carried)],
        [
            value("on", [], TensorProto.BOOL),
            *(helper.make_value_info(result, one.type) for one, result in carried),
            *(value(part, [BATCH, "n"]) for part in parts),
        ],
    )
    ends = [*(f"{name}_end" for name in names), *(f"all{i}" for i in range(len(parts)))]
    loop = node("Loop", ["trips", "", *(f"{name}0" for name in names)], ends, body=graph, name="loop")
    made = {name for one in behind for name in one.output}
    starts = [helper.make_value_info(f"{one.name}0", one.type) for one, _ in carried]
    given = [one for one in starts if one.name not in made and one.name not in constants]
    before = [one for one in behind if one.op_type == "SequenceEmpty"]
    nodes = [*before, loop, *(one for one in behind if one not in before)]
    results = [name for one in nodes[len(before) :] for name in one.output if "list" not in name]
    tensors = {"trips": np.asarray(STEPS, np.int64), **constants}
    whole = helper.make_graph(
        nodes,
        "loop",
        [value("x", [STEPS, BATCH, COLUMNS]), *given, *inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(array, name) for name, array in tensors.items()],
    )
    return helper.make_model(whole, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("join", [{"axis": 0, "new_axis": 1}, {"axis": -2, "new_axis": 1}, {"axis": 1}])
def test_a_list_of_what_cells_give_as_pytorch_exports_it(cell: str, join: dict[str, int]) -> None:
    """A scripted loop over a cell, which is an operator of one step; results are appended to a list."""
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[cell]
    states = ["h", "c"] if cell == "LSTM" else ["h"]
    wide = [node("Unsqueeze", [name, "first"], [f"{name}_wide"]) for name in states]
    step = node(
        cell,
        ["x_wide", "w", "r", "b", "", *(f"{name}_wide" for name in states)],
        ["", *(f"{name}_new" for name in states)],
        hidden_size=SIZE,
    )
    body = [
        node("Gather", ["x", "i"], ["xt"], axis=0),
        node("Unsqueeze", ["xt", "first"], ["x_wide"]),
        *wide,
        step,
        *(node("Squeeze", [f"{name}_new", "first"], [f"{name}_next"]) for name in states),
        node("SequenceInsert", ["list", "h_next"], ["list_next"]),
    ]
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    model = loop_model(
        body,
        [
            *((value(n, [BATCH, SIZE]), f"{n}_next") for n in states),
            (helper.make_value_info("list", kind), "list_next"),
        ],
        [],
        [node("SequenceEmpty", [], ["list0"]), node("ConcatFromSequence", ["list_end"], ["every"], **join)],
        first=np.asarray([0], np.int64),
        w=weights(1, gates * SIZE, COLUMNS),
        r=weights(1, gates * SIZE, SIZE),
        b=weights(1, 2 * gates * SIZE),
    )
    found = operators(model)
    assert cell in found and found.isdisjoint(("Loop", "SequenceEmpty", "ConcatFromSequence"))


def test_one_value_may_be_appended_to_two_lists() -> None:
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    lists = ("list", "list_too")
    body = [
        node("Gather", ["x", "i"], ["xt"], axis=0),
        node("MatMul", ["h", "w"], ["product"]),
        node("Add", ["xt", "product"], ["sum"]),
        node("Tanh", ["sum"], ["h_next"]),
        *(node("SequenceInsert", [name, "h_next"], [f"{name}_next"]) for name in lists),
    ]
    model = loop_model(
        body,
        [
            (value("h", [BATCH, COLUMNS]), "h_next"),
            *((helper.make_value_info(name, kind), f"{name}_next") for name in lists),
        ],
        [],
        [
            *(node("SequenceEmpty", [], [f"{name}0"]) for name in lists),
            *(
                node("ConcatFromSequence", [f"{name}_end"], [f"every{axis}"], axis=axis)
                for axis, name in enumerate(lists)
            ),
        ],
        w=weights(COLUMNS, COLUMNS),
    )
    assert operators(model).isdisjoint(("Loop", "SequenceEmpty", "ConcatFromSequence"))


def lstm_step(x: str, h: str, c: str, result: str, weights: str) -> list[onnx.NodeProto]:
    """TensorFlow's BasicLSTMCell: one product, a bias of 1 for the forget gate."""
    rows = [f"{result}_{name}" for name in "igfo"]
    return [
        node("Concat", [x, h], [f"{result}_xh"], axis=1),
        node("MatMul", [f"{result}_xh", weights], [f"{result}_all"]),
        node("Split", [f"{result}_all"], rows, axis=1),
        node("Add", [f"{result}_f", "one"], [f"{result}_f1"]),
        *(node("Sigmoid", [f"{result}_{name}"], [f"{result}_s{name}"]) for name in ("i", "f1", "o")),
        node("Tanh", [f"{result}_g"], [f"{result}_tg"]),
        node("Mul", [f"{result}_sf1", c], [f"{result}_kept"]),
        node("Mul", [f"{result}_si", f"{result}_tg"], [f"{result}_new"]),
        node("Add", [f"{result}_kept", f"{result}_new"], [f"{result}_c"]),
        node("Tanh", [f"{result}_c"], [f"{result}_tc"]),
        node("Mul", [f"{result}_tc", f"{result}_so"], [f"{result}_h"]),
    ]


def test_a_state_that_is_both_joined() -> None:
    """c and h side by side, as TensorFlow's cells have it where their state is no tuple; a copy of the result
    is carried too."""
    body = [
        node("Gather", ["x", "i"], ["xt"], axis=0),
        node("Split", ["state"], ["c", "h"], axis=1),
        *lstm_step("xt", "h", "c", "a", "w"),
        node("Concat", ["a_c", "a_h"], ["state_next"], axis=1),
    ]
    carried = [(value("state", [BATCH, 2 * SIZE]), "state_next"), (value("result", [BATCH, SIZE]), "a_h")]
    model = loop_model(
        body, carried, ["a_h"], w=weights(COLUMNS + SIZE, 4 * SIZE), one=np.asarray(1, np.float32)
    )
    found = operators(model)
    assert "LSTM" in found and "Loop" not in found


def test_layers_on_each_other_between_others() -> None:
    """Each trip: a dense layer, two LSTMs, a residual, a head."""
    body = [
        node("Gather", ["x", "i"], ["xt"], axis=0),
        node("MatMul", ["xt", "before"], ["dense"]),
        node("Relu", ["dense"], ["rows"]),
        *lstm_step("rows", "ha", "ca", "a", "w"),
        *lstm_step("a_h", "hb", "cb", "b", "w2"),
        node("Add", ["a_h", "b_h"], ["sum"]),
        node("MatMul", ["sum", "head"], ["logits"]),
        node("Softplus", ["logits"], ["part"]),
    ]
    carried = [
        (value(name, [BATCH, SIZE]), result)
        for name, result in (("ha", "a_h"), ("ca", "a_c"), ("hb", "b_h"), ("cb", "b_c"))
    ]
    model = loop_model(
        body,
        carried,
        ["part"],
        before=weights(COLUMNS, COLUMNS),
        w=weights(COLUMNS + SIZE, 4 * SIZE),
        w2=weights(2 * SIZE, 4 * SIZE),
        head=weights(SIZE, 5),
        one=np.asarray(1, np.float32),
    )
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    assert [one.op_type for one in normalise(copy).graph.node].count("LSTM") == 2
    assert "Loop" not in operators(model)


def test_products_made_before_the_loop_are_no_products_again() -> None:
    """The layer's weights only choose columns of what was multiplied before."""
    body = [
        node("Gather", ["y", "i"], ["yt"], axis=0),
        node("MatMul", ["h", "r"], ["rh"]),
        node("Add", ["yt", "rh"], ["all"]),
        node("Split", ["all"], ["ai", "af", "ag", "ao"], axis=1),
        *(node("Sigmoid", [f"a{name}"], [f"s{name}"]) for name in "ifo"),
        node("Tanh", ["ag"], ["tg"]),
        node("Mul", ["sf", "c"], ["kept"]),
        node("Mul", ["si", "tg"], ["new"]),
        node("Add", ["kept", "new"], ["c_next"]),
        node("Tanh", ["c_next"], ["tc"]),
        node("Mul", ["so", "tc"], ["h_next"]),
    ]
    model = loop_model(
        body,
        [(value("h", [BATCH, SIZE]), "h_next"), (value("c", [BATCH, SIZE]), "c_next")],
        ["h_next"],
        inputs=[value("y", [STEPS, BATCH, 4 * SIZE])],
        r=weights(SIZE, 4 * SIZE),
    )
    del model.graph.input[0]
    assert "LSTM" in operators(model)
    rules = [kernel.rule for kernel in plan_of(model).plan.kernels]
    assert "recurrent" in rules and not any(rule.startswith("matmul") for rule in rules)
