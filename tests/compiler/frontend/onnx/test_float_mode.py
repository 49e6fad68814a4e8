"""What a model must compute is recorded with denormal numbers as zeros, as bundles compute; other threads
and whatever comes later have them."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import frontend
from edgepack.compiler.frontend.onnx.float_mode import flushed_denormals
from workbench.models.builder import Graph

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the mode was tried on Linux only")


def has_denormals() -> bool:
    tiny = np.full(64, 1e-40, np.float32)
    return bool(np.all(tiny + tiny != 0))


def test_the_mode_is_this_threads_and_ends_with_the_body() -> None:
    elsewhere: list[bool] = []
    assert has_denormals()
    with pytest.raises(RuntimeError), flushed_denormals():
        assert not has_denormals()
        thread = threading.Thread(target=lambda: elsewhere.append(has_denormals()))
        thread.start()
        thread.join()
        with flushed_denormals():
            pass
        assert not has_denormals()
        raise RuntimeError
    assert has_denormals()
    with flushed_denormals(False):
        assert has_denormals()


def test_recorded_outputs_have_no_denormals_unless_mathematics_is_strict(tmp_path: Path) -> None:
    g = Graph("tiny")
    g.op("Mul", g.input("x", (64,)), g.const(np.full(64, 1e-40, np.float32)), name="y")
    g.output("y")
    model = tmp_path / "tiny.onnx"
    onnx.save(g.model(), model)
    for strict in (False, True):
        folder = tmp_path / str(strict)
        folder.mkdir()
        sizes = replace(ImportOptions(), strict_math=strict)
        frontend.prepare(model, sizes, folder)
        frontend.record(model, sizes, folder, seed=0, inputs={})
        y = np.fromfile(folder / "recorded" / "output_0.bin", np.float32)
        assert np.any(y != 0) == strict
