"""The compiler's own process: ``python -m edgepack.compiler.worker JOB_DIR``.

TVM can take the process down with it, so compilation runs here and never in the process of the command
line. The job is described in ``job.json``; progress goes to stdout as JSON lines; results are files in the
job's folder. See docs/architecture.md for the protocol.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from edgepack.compiler.reporter import Reporter

__all__ = ["main"]


class _Events(Reporter):
    """Writes events to the original stdout, which nothing else may write to."""

    def __init__(self) -> None:
        # Whatever TVM or ONNX Runtime print goes to stderr.
        self._stream = os.fdopen(os.dup(1), "w", encoding="utf-8", newline="\n")
        os.dup2(2, 1)

    def send(self, **event: Any) -> None:
        self._stream.write(json.dumps(event) + "\n")
        self._stream.flush()

    def kernel(self, name: str) -> None:
        self.send(event="kernel", name=name)

    def warning(self, text: str) -> None:
        self.send(event="warning", text=text)

    def stage(self, name: str) -> None:
        self.send(event="stage", name=name)


def _compile(job: dict[str, Any], folder: Path, events: _Events) -> None:
    from edgepack.plan.target import CpuTarget

    target = CpuTarget.from_json(job["target"])
    model = Path(job["model"])
    shapes = {name: tuple(shape) for name, shape in job["shapes"].items()}

    events.stage("import")
    from edgepack.compiler.frontend import onnx as frontend

    imported = frontend.load(model, shapes=shapes, dims=job["dims"])

    events.stage("record")
    from edgepack.compiler.frontend.reference import record

    inputs = {name: Path(path) for name, path in job["inputs"].items()}
    (folder / "recorded").mkdir()
    warnings = record(
        model,
        imported.inputs,
        shapes=shapes,
        dims=job["dims"],
        seed=job["seed"],
        inputs=inputs,
        directory=folder / "recorded",
    )
    for text in warnings:
        events.warning(text)

    events.stage("optimise")
    from edgepack.compiler.graph.lower import lower

    lowered = lower(imported.module)

    events.stage("kernels")
    from edgepack.compiler.planner.build import build_plan

    built = build_plan(
        lowered,
        name=job["name"],
        inputs=imported.inputs,
        outputs=imported.outputs,
        target=target,
        symbol_prefix=job["symbol_prefix"],
        nodes=imported.nodes,
        reporter=events,
    )

    events.stage("llvm")
    from edgepack.compiler.backends.llvm import compile_object
    from edgepack.compiler.params_data import write_blob

    compile_object(built.functions, target, folder / "kernels.o")
    write_blob(built.plan, built.constants, folder / "params.bin")
    (folder / "plan.json").write_text(built.plan.to_json(), encoding="utf-8", newline="\n")


def main(arguments: list[str]) -> int:
    """Runs one job; the exit code is that of the error's class, 0 when all files are written."""
    from edgepack.errors import EdgepackError
    from edgepack.process import end_with_parent

    end_with_parent()
    folder = Path(arguments[0])
    events = _Events()
    try:
        job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        _compile(job, folder, events)
    except EdgepackError as error:
        events.send(
            event="error",
            **{"class": type(error).__name__},
            message=error.message,
            hint=error.hint,
            detail=error.detail,
        )
        return error.exit_code
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    # TVM's and ONNX Runtime's destructors are not needed and have been seen to crash at exit.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
