"""Trained int8 networks that nobody here made compute, bit for bit, what LiteRT's reference kernels do.

Their files are not in this repository (docs/tflite.md says where they can be had): tests take the folder from
``EDGEPACK_REAL_MODELS``, by default ``../shared/models`` beside it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend.tflite.convert import convert
from edgepack.compiler.frontend.tflite.interpreter import Interpreter
from edgepack.compiler.frontend.tflite.model_file import read_model
from tests.support.tflite import Case, assert_same
from workbench.compiled import Compiled, target_with

FOLDER = Path(os.environ.get("EDGEPACK_REAL_MODELS", Path(__file__).parents[5] / "shared" / "models"))

QUICK = ("mlperf_tiny_kws_int8", "mlperf_tiny_ad_int8", "micro_speech_int8")
NETWORKS = (*QUICK, "mlperf_tiny_resnet8_int8", "mlperf_tiny_vww_int8", "mnist_lstm_int8")


def file_of(name: str) -> Path:
    path = FOLDER / f"{name}.tflite"
    if not path.exists():
        pytest.skip(f"there is no {path} (EDGEPACK_REAL_MODELS)")
    return path


def compared(names: tuple[str, ...], registers: str, folder: Path) -> None:
    cases = {name: Case(file_of(name).read_bytes(), folder, seed) for seed, name in enumerate(names)}
    models = {name: case.converted.model for name, case in cases.items()}
    compiled = Compiled(models, folder, target_with(registers))
    for name, case in cases.items():
        assert_same(compiled.run(name, case.inputs, poison=0xFF), case.expected, name)


def test_integer_networks_are_the_interpreters(tmp_path: Path) -> None:
    compared(QUICK, "512x32", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("registers", ["scalar", "128x16", "128x32", "256x16", "512x32"])
def test_all_integer_networks_are_the_interpreters(registers: str, tmp_path: Path) -> None:
    compared(NETWORKS, registers, tmp_path)


def test_a_streaming_network_keeps_its_state(tmp_path: Path) -> None:
    """Its variables are inputs and outputs: eight runs in a row, each given what the last one returned."""
    path = file_of("micro_wake_word_vad")
    converted = convert(read_model(path))
    compiled = Compiled({"vad": converted.model}, tmp_path, target_with("512x32"))
    own = [spec for spec in converted.inputs if spec.name not in {one.name for one in converted.states}]
    names = {converted.subgraph.tensors[i].name: i for i in converted.subgraph.inputs}
    random = np.random.default_rng(4)
    given = {names[one.name]: random.integers(-128, 128, one.shape, np.int8) for one in own}
    interpreter = Interpreter(path.read_bytes(), given)
    states = {state.name: state.initial for state in converted.states}
    for _ in range(8):
        arrays = {one.name: random.integers(-128, 128, one.shape, np.int8) for one in own}
        interpreter.run({names[name]: array for name, array in arrays.items()})
        found = compiled.run("vad", {**arrays, **states}, poison=0xFF)
        expected = {
            spec.name: interpreter.tensor(index)
            for spec, index in zip(converted.outputs, converted.subgraph.outputs, strict=False)
        }
        assert_same(found, expected, "vad")
        states = {state.name: found[state.returned_as] for state in converted.states}
