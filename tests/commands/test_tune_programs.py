"""Programs of several versions of a model, which ``edgepack tune`` compares."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from edgepack.commands import tune_programs as module
from edgepack.commands.tune_programs import Programs
from edgepack.config.device import load_device
from edgepack.options import PackOptions
from edgepack.pipeline.compile import Compiler
from edgepack.pipeline.compile_job import CompileJob
from edgepack.plan.tuned import TunedChoice
from edgepack.system.deadline import TICK, check_time


def test_a_version_whose_compiler_does_not_end_is_left_out(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those before and after it compile."""
    monkeypatch.setattr(module, "COMPILES", 1.0)
    monkeypatch.setattr(module, "TIMES_USUAL", 0.0)
    monkeypatch.setattr(module, "DEFAULT_TIMEOUT", 1.0)

    class Waiting(Compiler):
        """One that is stuck with a version for good."""

        def compile_model(self, job: CompileJob, *where: Any) -> None:
            while any(choice.group == "stuck" for choice in job.tuned):
                check_time()
                time.sleep(TICK)
            with ThreadPoolExecutor(
                1
            ) as pool:  # a thread of its own has no deadline: this machine may be busy
                pool.submit(super().compile_model, job, *where).result()

    monkeypatch.setattr(module, "Compiler", Waiting)
    with Programs(small_model, load_device("host"), PackOptions(), tmp_path) as programs:
        kind = programs.target.tuned_kinds[0]
        fine, stuck = ((TunedChoice(kind, name, "conv2d.igemm", {}, 1.0),) for name in ("fine", "stuck"))
        made = programs.built([(), stuck, fine, stuck])
    assert made.versions == ("host", "", "version2", "")
    assert {path.name for path in made.root.iterdir()} >= {"manifest.json", "bin"}
