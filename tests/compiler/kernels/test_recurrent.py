"""Recurrent layers: every cell and direction, in both forms of the rule, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.graph.recurrent import GATES
from edgepack.compiler.kernels.cpu.recurrent.recurrent import SHARED_BYTES
from workbench.compiled import (
    REGISTER_FILES,
    Compiled,
    Library,
    assert_close,
    on_register_files,
    plan_of,
    target_with,
)
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs
from workbench.models.recurrent import stacked

STATES = {"RNN": 1, "GRU": 1, "LSTM": 2}


def layer(
    operator: str,
    batch: int,
    size: int,
    *,
    steps: int = 3,
    direction: str = "forward",
    given: Sequence[str] = ("bias",),
    constant: bool = True,
    **attributes: Any,
) -> onnx.ModelProto:
    """One layer of which all outputs are outputs; ``given`` are bias, states, peepholes, and lengths that are
    constants, of the last step to none, or "any lengths", an input."""
    g = Graph(operator.lower(), seed=3, opset=22, ir_version=10)
    directions, gates = 2 if direction == "bidirectional" else 1, len(GATES[operator.lower()])

    def weight(name: str, *shape: int) -> str:
        return g.weight(*shape, std=size**-0.5) if constant else g.input(name, shape)

    def lengths() -> str:
        if "any lengths" in given:
            return g.input("lengths", (batch,), "int32")
        constant = [(steps + i) % (steps + 1) for i in range(batch)]
        return g.const(constant, "int32") if "lengths" in given else ""

    operands = [
        g.input("x", (steps, batch, 5)),
        weight("w", directions, gates * size, 5),
        weight("r", directions, gates * size, size),
        weight("b", directions, 2 * gates * size) if "bias" in given else "",
        lengths(),
    ]
    for i in range(STATES[operator]):
        operands.append(g.input(f"state{i}", (directions, batch, size)) if "states" in given else "")
    if "peepholes" in given:
        operands.append(g.weight(directions, 3 * size, std=0.5))
    outputs = 1 + STATES[operator]
    names = g.ops(operator, *operands, outputs=outputs, direction=direction, hidden_size=size, **attributes)
    for name in names:
        g.output(name)
    return g.model()


#: Functions with and without their numbers; a direction takes them from the node's lists in turn.
FUNCTIONS = (
    (["Relu", "Tanh"], [], []),
    (["Sigmoid", "Softplus"], [], []),
    (["Softsign", "Elu"], [0.7], []),
    (["Affine", "ScaledTanh"], [0.5, 1.3], [0.25, 0.6]),
    (["HardSigmoid", "LeakyRelu"], [0.3, 0.2], [0.4]),
    (["ThresholdedRelu", "HardSigmoid"], [0.2], []),
)


def functions() -> onnx.ModelProto:
    """An RNN for each pair of functions, one in each direction."""
    g = Graph("functions", seed=3)
    x = g.input("x", (3, 2, 5))
    for names, alpha, beta in FUNCTIONS:
        numbers = {"activation_alpha": alpha, "activation_beta": beta}
        weights = [g.weight(2, 6, n, std=0.5) for n in (5, 6)]
        y = g.op(
            "RNN",
            x,
            *weights,
            hidden_size=6,
            direction="bidirectional",
            activations=names,
            **{name: value for name, value in numbers.items() if value},
        )
        g.output(y)
    return g.model()


both = {"direction": "bidirectional"}
CASES = {
    "functions": functions(),
    "rnn": layer("RNN", 2, 20, given=("bias", "states"), clip=0.4, **both),
    "rnn, plain": layer("RNN", 1, 37, given=(), direction="reverse"),
    "gru": layer("GRU", 3, 20, given=("bias", "states"), clip=0.5, **both),
    "gru, linear before reset": layer(
        "GRU", 5, 33, given=("bias", "states"), direction="reverse", linear_before_reset=1
    ),
    "gru, without biases": layer("GRU", 2, 9, given=(), linear_before_reset=1),
    "gru, lengths": layer("GRU", 3, 7, given=("bias", "lengths", "states"), **both),
    "gru, weights that are no constants": layer("GRU", 1, 18, constant=False),
    "lstm": layer("LSTM", 2, 20, given=("bias", "states", "peepholes"), **both),
    "lstm, wide": layer("LSTM", 1, 96, steps=2),
    "lstm, lengths": layer("LSTM", 3, 6, given=("bias", "lengths", "states"), **both),
    "lstm, coupled gates": layer("LSTM", 2, 5, given=("peepholes", "states"), input_forget=1, clip=0.3),
    "lstm, weights that are no constants": layer("LSTM", 2, 9, constant=False),
    "lstm, seven sequences": layer("LSTM", 7, 8, direction="reverse"),
    "stacked": stacked("LSTM", 2, 6, 12, 3, classes=3),
    "streaming": stacked("RNN", 2, 6, 12, 1, classes=3, streaming=True),
}
PAIRS = on_register_files(CASES, ["gru", "lstm"], swept=["512x32"], others=["scalar", "128x16", "256x16"])


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(CASES, PAIRS, tmp_path_factory.mktemp("recurrent"))


@pytest.mark.parametrize(("registers", "name"), PAIRS)
def test_against_onnxruntime(compiled: Library, registers: str, name: str) -> None:
    assert registers in REGISTER_FILES
    compiled(registers).check(name)


#: Large enough that threads share the units of a step out.
LARGE = {
    "rnn": layer("RNN", 2, 264, steps=4, direction="reverse"),
    "gru": layer("GRU", 1, 136, given=("bias", "states"), **both),
    "gru, linear before reset": layer("GRU", 1, 152, given=("bias",), linear_before_reset=1),
    "lstm": layer("LSTM", 3, 132, given=("bias", "peepholes"), clip=0.5, **both),
    "lstm, lengths": layer("LSTM", 5, 132, steps=5, given=("bias", "lengths", "states")),
    "gru, lengths": layer("GRU", 3, 136, given=("bias", "lengths", "states"), **both),
    "lstm, one step": layer("LSTM", 1, 132, steps=1, given=("bias", "states")),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    target = target_with("256x16", threads=8, l2_bytes=32 * 1024)
    return Compiled(LARGE, tmp_path_factory.mktemp("shared"), target)


@pytest.mark.parametrize("name", LARGE)
def test_threads_share_the_units_of_a_large_layer(shared: Compiled, name: str) -> None:
    plan = shared.plan(name)
    used = {k.symbol for k in plan.kernels if k.rule == "recurrent"}
    steps = [step for step in plan.steps if step.kernel in used]
    assert all(kernel.parameters["form"] == "steps" for kernel in plan.kernels if kernel.symbol in used)
    assert max(step.tasks for step in steps) >= 8, "blocks of units, not sequences"
    assert len(used) < len(steps) or "one step" in name, "all steps run the same kernels"
    shared.check(name)


def test_a_small_layer_is_one_step() -> None:
    assert SHARED_BYTES > 4 * 4 * 96 * 96
    plan = plan_of(CASES["lstm, wide"], target=target_with("512x32", threads=8)).plan
    assert [k.rule for k in plan.kernels] == ["matmul.packed", "recurrent"]
    assert len(plan.steps) == 2, "the products of the inputs, and the sequence"


def test_weights_that_the_cache_does_not_hold_are_read_to_and_fro(tmp_path: Path) -> None:
    def functions(l2_bytes: int) -> str:
        target = target_with("128x16", threads=1, l2_bytes=l2_bytes)
        return str(plan_of(CASES["lstm, wide"], target=target).functions)

    assert functions(64 * 1024) != functions(1 << 20), "the order of the blocks depends on the step"
    target = target_with("128x16", threads=1, l2_bytes=64 * 1024)
    Compiled({"lstm": CASES["lstm, wide"]}, tmp_path, target).check("lstm")


@pytest.mark.parametrize("bidirectional", [False, True])
def test_transposes_around_layers_are_not_done(tmp_path: Path, bidirectional: bool) -> None:
    """torch.onnx puts them before and behind layers whose batch comes first."""
    model = stacked("GRU", 2, 6, 12, 4, classes=3, bidirectional=bidirectional)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3
    compiled = Compiled({"stacked": model}, tmp_path, target_with("256x16"))
    assert {k.rule for k in compiled.plan("stacked").kernels} == {"matmul.packed", "recurrent"}
    compiled.check("stacked")


@pytest.mark.slow
def test_onnx_node_tests(tmp_path: Path) -> None:
    """All of ONNX's own tests of recurrent operators; in none of them weights are constants."""
    from onnx.backend.test.loader import load_model_tests

    cases = {
        case.name: case
        for case in load_model_tests(kind="node")
        if {node.op_type for node in case.model.graph.node} & set(STATES)
    }
    assert len(cases) >= 18
    compiled = Compiled({name: case.model for name, case in cases.items()}, tmp_path)
    for name, case in cases.items():
        for inputs, expected in case.data_sets:
            names = [value.name for value in case.model.graph.input]
            got = compiled.run(name, dict(zip(names, inputs, strict=True)))
            for value, reference in zip(case.model.graph.output, expected, strict=True):
                np.testing.assert_allclose(got[value.name], reference, case.rtol, case.atol, err_msg=name)


#: Layers whose sequences end before the last step, as the run says: tiles of several, of one, by itself.
ENDING = {
    "gru": layer("GRU", 5, 7, steps=6, given=("bias", "any lengths", "states"), **both),
    "gru, one": layer("GRU", 1, 20, steps=6, given=("bias", "any lengths", "states"), linear_before_reset=1),
    "lstm": layer("LSTM", 3, 6, steps=7, given=("any lengths",), direction="reverse"),
    "lstm, one": layer("LSTM", 1, 9, steps=6, given=("bias", "any lengths", "states"), **both),
    "rnn, one": layer("RNN", 1, 5, steps=9, given=("any lengths", "states"), direction="reverse"),
}


#: The same where threads share the units of each step out.
ENDING_TOGETHER = {
    "lstm": layer("LSTM", 3, 132, steps=5, given=("bias", "any lengths"), **both),
    "lstm, one": layer("LSTM", 1, 132, steps=5, given=("bias", "any lengths", "states")),
    "rnn, one": layer("RNN", 1, 264, steps=5, given=("any lengths", "states"), direction="reverse"),
}


@pytest.mark.parametrize(
    ("registers", "threads", "models"),
    [("512x32", 1, ENDING), ("scalar", 1, ENDING), ("256x16", 8, ENDING_TOGETHER)],
)
def test_sequences_end_where_the_run_says(
    registers: str, threads: int, models: dict[str, onnx.ModelProto], tmp_path: Path
) -> None:
    compiled = Compiled(models, tmp_path, target_with(registers, threads=threads))
    form = "sequence" if threads == 1 else "steps"
    random = np.random.default_rng(5)
    for name, model in models.items():
        used = [k for k in compiled.plan(name).kernels if k.rule.startswith("recurrent")]
        assert {k.parameters["form"] for k in used} == {form}
        steps, batch = (d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim[:2])
        for most in (0, 1, 2, steps - 1, steps):
            feeds = random_inputs(model, seed=most)
            feeds["lengths"] = random.integers(0, most, batch, np.int32, endpoint=True)
            feeds["lengths"][random.integers(batch)] = most
            assert_close(model, compiled.run(name, feeds), compiled.expected(name, feeds))


def test_lengths_that_are_all_steps_are_no_operand() -> None:
    models = (layer("GRU", 1, 7, given=given) for given in (("lengths",), ()))
    whole, none = (str(plan_of(model, target=target_with("512x32")).functions) for model in models)
    assert whole == none


CHAINED = {
    "lstm": stacked("LSTM", 2, 6, 10, 7, classes=3),
    "gru": layer("GRU", 1, 9, steps=9, given=("bias", "lengths", "states"), **both),
    "rnn": layer("RNN", 1, 5, steps=8, given=(), direction="reverse"),
}


@pytest.fixture(scope="module")
def chained(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(CHAINED, tmp_path_factory.mktemp("chained"), target_with("scalar", threads=1))


@pytest.mark.parametrize("name", CHAINED)
def test_without_vectors_products_of_a_few_steps_wait_in_scratch(chained: Compiled, name: str) -> None:
    plan = chained.plan(name)
    assert {k.rule for k in plan.kernels} <= {"recurrent.chained", "matmul.packed"}
    assert any(k.rule == "recurrent.chained" for k in plan.kernels)
    chained.check(name)
