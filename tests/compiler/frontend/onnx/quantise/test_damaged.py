"""Damaged float models: each is quantised, or refused in a sentence."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from edgepack.errors import EdgepackError
from edgepack.pipeline.job import QuantiseJob
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.quantisation import QuantiseSettings
from edgepack.system.confinement import Access
from tests.compiler.frontend.onnx.quantise.support import convolutions, transformer
from tests.support.mutate import EXTERNAL, damaged
from workbench.models.operators import CASES
from workbench.models.recurrent import stacked

#: How each model is quantised, by turns.
SETTINGS = (
    QuantiseSettings(samples=2),
    QuantiseSettings(samples=2, method="entropy", symmetric=True),
    QuantiseSettings(samples=2, min_sqnr=40.0),
    QuantiseSettings(samples=2, dynamic=True),
)


@pytest.mark.slow
def test_damaged_models_are_quantised_or_refused(tmp_path: Path) -> None:
    operators = ("conv_1d", "conv_depthwise", "convtranspose", "gemm_all", "matmul_batched")
    models = [convolutions(), transformer(), *(CASES[name]() for name in operators)]
    models.append(stacked("LSTM", 1, 3, 4, 2, classes=2))
    (tmp_path / EXTERNAL[0]).write_bytes(bytes(range(256)) * (EXTERNAL[1] // 256))
    ends: Counter[int] = Counter()
    with Worker(access=Access(reads=(tmp_path,), writes=(tmp_path,))) as worker:
        for case in range(400):
            other = models[(case * 7 + 3) % len(models)].SerializeToString()
            file = tmp_path / "model.onnx"
            file.write_bytes(damaged(models[case % len(models)], other, case))
            (folder := tmp_path / str(case)).mkdir()
            try:
                worker.run(QuantiseJob(file, settings=SETTINGS[case // 8 % 4]), folder)
                ends[0] += 1
            except EdgepackError as error:
                ends[error.exit_code] += 1
                assert error.exit_code in (1, 3), f"case {case}: {error}"
    assert ends[0] > 30 and ends[3] > 100
