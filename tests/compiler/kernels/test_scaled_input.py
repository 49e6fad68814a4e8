"""A 1x1 convolution of an image whose channels are multiplied by factors, against ONNX Runtime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgepack.config.device import load_device
from workbench.compiled import Library, on_register_files, plan_of, target_with
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs


def scaled(
    shape: tuple[int, ...] = (1, 40, 19, 13),
    outputs: int = 20,
    *,
    kernel: int = 1,
    stride: int = 1,
    groups: int = 1,
    flipped: bool = False,
    gate: tuple[int, ...] | None = None,
    residual: bool = False,
    also: str = "",
) -> onnx.ModelProto:
    """A depthwise convolution, a factor for each of its channels that the means decide, and a convolution of
    the product.

    Args:
        flipped: the factors are the product's first operand.
        gate: shape of the model's second input, which is added to them; by default a factor for each channel.
        residual: the convolution's tail reads another tensor of its output's shape.
        also: an operator that reads the product too.
    """
    g = Graph("scaled", seed=5)
    channels = shape[1]
    x = g.conv(g.input("x", list(shape)), channels, channels, 3, groups=channels, bias=True)
    gate = gate or (shape[0], channels, 1, 1)
    mean = g.op("ReduceMean", x, axes=[2, 3]) if gate[2:] == (1, 1) else x
    factors = g.op("Add", g.conv(mean, channels, gate[1], 1, bias=True), g.input("s", list(gate)))
    factors = g.op("Relu", factors)
    product = g.op("Mul", *((factors, x) if flipped else (x, factors)))
    y = g.conv(product, channels, outputs, kernel, stride=stride, groups=groups, bias=True)
    if residual:
        y = g.op("Add", y, g.input("r", [shape[0], outputs, *shape[2:]]))
    g.op("Relu", y, name="y")
    g.output("y")
    if also:
        g.op(also, product, name="z")
        g.output("z")
    return g.model()


SCALED = {
    "few outputs": scaled(),
    "outputs left over": scaled(outputs=27),
    "factors first": scaled(flipped=True),
    "residual": scaled(residual=True),
    "stride 2": scaled((1, 24, 21, 15), stride=2, outputs=13),
    "several tasks": scaled((1, 96, 31, 17), outputs=180),
    "one output": scaled(outputs=1),
}

#: Two kernels, each for a reason.
APART = {
    "more weights than pixels": scaled((1, 40, 5, 5), 80),
    "two images": scaled((2, 40, 19, 13)),
    "3x3": scaled(kernel=3),
    "groups": scaled(groups=2),
    "read twice": scaled(also="Sigmoid"),
    "a factor for each pixel": scaled(gate=(1, 1, 19, 13)),
    "a factor for each element": scaled(gate=(1, 40, 19, 13)),
    "one factor": scaled(gate=(1, 1, 1, 1)),
}

TOGETHER = on_register_files(
    SCALED,
    ("few outputs", "several tasks"),
    others=("scalar", "128x32", "256x16"),
    both=("outputs left over",),
)
SEPARATE = on_register_files(APART, (), both=())


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library({**SCALED, **APART}, TOGETHER + SEPARATE, tmp_path_factory.mktemp("scaled"))


@pytest.mark.parametrize(("registers", "name"), TOGETHER)
def test_weights_are_multiplied(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    rules = [kernel.rule for kernel in compiled.plan(name).kernels]
    assert "conv2d.scaled" in rules
    for seed in range(3):  # the executor cuts the tasks into other ranges
        compiled.check(name, seed=seed)


@pytest.mark.parametrize(("registers", "name"), SEPARATE)
def test_images_are_multiplied(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    assert "conv2d.scaled" not in [kernel.rule for kernel in compiled.plan(name).kernels]
    compiled.check(name)


def test_factors_of_zero_and_infinity_do_as_they_would_to_the_image(library: Library) -> None:
    registers = next(registers for registers, name in TOGETHER if name == "few outputs")
    inputs = random_inputs(SCALED["few outputs"], 3)
    inputs["s"][0, 5] = -100
    compiled = library(registers)
    got, expected = compiled.run("few outputs", inputs)["y"], compiled.expected("few outputs", inputs)["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    inputs["s"][0, 7] = np.inf
    got, expected = compiled.run("few outputs", inputs)["y"], compiled.expected("few outputs", inputs)["y"]
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(expected))


def test_images_are_multiplied_by_strict_math_and_where_weights_stay_in_flash() -> None:
    model = SCALED["few outputs"]
    for target, rule in (
        (target_with("256x16"), "conv2d.scaled"),
        (target_with("256x16", strict_math=True), "conv2d.igemm"),
        (load_device("cortex-m4").cpu_target(), "conv2d.igemm"),
    ):
        rules = {kernel.rule for kernel in plan_of(model, target=target).plan.kernels}
        assert rule in rules, (target.triple, rules)
        assert ("conv2d.scaled" in rules) == (rule == "conv2d.scaled")
