"""The compiler's own process: ``python -m edgepack.compiler.worker``.

TVM can take the process down with it, and a model's file comes from somebody else: both are handled here and
never in the process of the command line. Each line on stdin is the path of a job's folder as a JSON string;
It is confined before it reads anything of a model (:mod:`edgepack.system.confinement`).
``job.json`` there says what to do, and the results are files beside it. Events go to stdout as JSON lines,
the last one of a job is ``done`` or ``error``. The process ends with its stdin.
docs/internals/architecture.md has the whole protocol.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.choose import choose, frontend_of
from edgepack.compiler.memory import limit_to_available
from edgepack.compiler.reporter import Reporter, hearing
from edgepack.compiler.utf8_paths import utf8_folder, utf8_paths
from edgepack.system.confinement import confine_as_granted
from edgepack.system.guardian import end_with_parent
from edgepack.system.temporary import temporary_folder

if TYPE_CHECKING:
    from edgepack.compiler.frontend.base import Frontend, ImportedModel, ImportOptions
    from edgepack.compiler.graph.lower import Lowered
    from edgepack.plan.targets import Target

__all__ = ["Events", "main", "run_job"]

#: Calls within calls: kernels of hundreds of fused operators are expressions of that depth.
_RECURSION = 5000


class Events(Reporter):
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

    def running(self, name: str) -> None:
        self.send(event="running", name=name)


def _frontend(job: dict[str, Any]) -> Frontend:
    """What reads the job's model: as the job says, or as the model's file does."""
    return frontend_of(job["frontend"] or choose(Path(job["model"])))


def _read(job: dict[str, Any], folder: Path, events: Events) -> dict[str, Any]:
    del folder, events
    model = Path(job["model"])
    name = choose(model)
    return {"frontend": name, "files": [str(file) for file in frontend_of(name).model_files(model)]}


def _summarise(job: dict[str, Any], folder: Path, events: Events) -> dict[str, Any]:
    del folder, events
    return _frontend(job).summarise(Path(job["model"])).to_json()


def _options(job: dict[str, Any]) -> ImportOptions:
    from edgepack.compiler.frontend.base import ImportOptions
    from edgepack.plan.custom import CustomOperator
    from edgepack.plan.limits import Limits

    return ImportOptions(
        shapes={name: tuple(shape) for name, shape in job["shapes"].items()},
        dims=job["dims"],
        inputs=job["cut_inputs"],
        outputs=job["cut_outputs"],
        batch=job["batch"],
        custom=[CustomOperator.from_json(one) for one in job["custom"]],
        expected={name: Path(path) for name, path in job.get("expected", {}).items()},
        weights=job["weights"],
        maxima=job["maxima"],
        limits=Limits.from_json(job["limits"]),
        precision=job["precision"],
        strict_math=job["strict_math"],
        const=job["const"],
        examples={name: Path(path) for name, path in (job.get("examples") or {}).items()},
    )


@contextmanager
def _explaining(
    frontend: Frontend, model: Path, options: ImportOptions, events: Events, target: Target | None = None
) -> Iterator[None]:
    """A ModelError that leaves the block says which sizes of the model's inputs work, if these are wrong.

    Args:
        target: what kernels are for, if there is one.
    """
    from edgepack.errors import ModelError

    def compiles(other: ImportOptions) -> None:
        with temporary_folder() as folder:
            frontend.prepare(model, other, folder)
            imported = frontend.load(folder)
            if target is not None:
                _lowered(imported, target)

    try:
        yield
    except ModelError as error:
        if (explained := getattr(frontend, "explained", None)) is None:
            raise
        events.stage("try sizes")
        found = explained(model, options, error, compiles)
        if found is error:
            raise
        raise found from error


def _lowered(imported: ImportedModel, target: Target) -> Lowered:
    """The fused operators of a prepared model."""
    from edgepack.compiler.graph.lower import lower_with_graphs
    from edgepack.compiler.kernels.preferred_forms import preferred_forms

    return lower_with_graphs(imported.module, imported.graphs, preferred_forms(target), imported.layout)


def _import(job: dict[str, Any], folder: Path, events: Events) -> None:
    frontend, model = _frontend(job), Path(job["model"])
    options = _options({**job, "examples": job["inputs"]})
    with _explaining(frontend, model, options, events):
        events.stage("import")
        notes = frontend.prepare(model, options, folder)
        events.stage("record")
        inputs = {name: Path(path) for name, path in job["inputs"].items()}
        for text in (*notes, *frontend.record(model, options, folder, seed=job["seed"], inputs=inputs)):
            events.warning(text)


def _compile(job: dict[str, Any], folder: Path, events: Events) -> None:
    from edgepack.compiler.compile_tasks import compile_model

    compile_model(job, folder, events)


def _choices(job: dict[str, Any], folder: Path, events: Events) -> None:
    from edgepack.compiler.compile_tasks import list_choices

    list_choices(job, folder, events)


def _check(job: dict[str, Any], folder: Path, events: Events) -> None:
    """Import and plan without recording anything; machine code is made for microcontrollers only, whose flash
    it has to fit."""
    from edgepack.compiler.backends.llvm import compile_object
    from edgepack.compiler.compile_tasks import with_weights
    from edgepack.compiler.plan_for import plan_for
    from edgepack.plan.target import CpuTarget
    from edgepack.plan.targets import target_from_json

    frontend, model, options = _frontend(job), Path(job["model"]), _options(job)
    target = target_from_json(job["target"])
    events.stage("import")
    with _explaining(frontend, model, options, events, target):
        notes = frontend.prepare(model, options, folder)
        imported = frontend.load(folder)
        if any(0 in output.shape for output in imported.signature.outputs) and hasattr(frontend, "check_run"):
            frontend.check_run(model, options)  # sizes that are too small leave nothing of many models
        events.stage("optimise")
        target = with_weights(target, imported.float16_weights)
        lowered = _lowered(imported, target)
    events.stage("kernels")
    named = {"name": "model", "symbol_prefix": ""}
    built = plan_for(target, lowered, imported, events, named, tuned=job["tuned"])
    plan = replace(built.plan, warnings=(*notes, *built.plan.warnings))
    (folder / "plan.json").write_text(plan.to_json(), encoding="utf-8", newline="\n")
    if isinstance(target, CpuTarget) and target.bare_metal:
        events.stage("llvm")
        compile_object(built.functions, target, folder / "kernels.o")


def _quantise(job: dict[str, Any], folder: Path, events: Events) -> None:
    from edgepack.errors import ModelError
    from edgepack.plan.quantisation import QuantiseSettings, UserFiles

    frontend, model = _frontend(job), Path(job["model"])
    if (quantise := getattr(frontend, "quantise", None)) is None:
        raise ModelError(
            f"{model} is of a format that edgepack does not quantise.", hint="Give an ONNX file."
        )
    data = UserFiles(
        calibration=Path(job["calibration"]) if job["calibration"] else None,
        accuracy=Path(job["accuracy"]) if job["accuracy"] else None,
        folder=Path(job["folder"]),
        like=Path(job["like"]) if job["like"] else None,
    )
    settings = QuantiseSettings.from_json(job["settings"])

    def stage(name: str, detail: str) -> None:
        if detail:
            events.kernel(detail)
        else:
            events.stage(name)

    figures = quantise(model, _options(job), folder, settings, data, stage)
    (folder / "figures.json").write_text(json.dumps(figures.to_json()), encoding="utf-8", newline="\n")
    for text in figures.warnings:
        events.warning(text)


def _layers(job: dict[str, Any], folder: Path, events: Events) -> None:
    """Which tensors of a model can be looked at between its kernels."""
    from edgepack.errors import ModelError

    frontend, model = _frontend(job), Path(job["model"])
    if (inside := getattr(frontend, "tensors_inside", None)) is None:
        raise ModelError(
            f"{model} is of a format whose tensors edgepack does not look at.", hint="Give an ONNX file."
        )
    events.stage("import")
    for text in frontend.prepare(model, _options(job), folder):
        events.warning(text)
    data = [one.to_json() for one in inside(folder)]
    (folder / "tensors.json").write_text(json.dumps(data), encoding="utf-8", newline="\n")


def _executable(job: dict[str, Any], folder: Path, events: Events) -> None:
    """TVM's own executable, as objects."""
    from edgepack.errors import ModelError
    from edgepack.plan.target import CpuTarget

    frontend, model = _frontend(job), Path(job["model"])
    if (executable := getattr(frontend, "executable", None)) is None:
        raise ModelError(
            f"{model} is of a format that edgepack makes no executable of TVM's of.",
            hint="Give a .pt2 file, a module, or a program.",
        )
    executable(model, CpuTarget.from_json(job["target"]), folder, events.stage)


def _export(job: dict[str, Any], folder: Path, events: Events) -> None:
    """A file of TorchScript, as a program of ``torch.export``."""
    from edgepack.errors import ModelError

    frontend, model = _frontend(job), Path(job["model"])
    if (export := getattr(frontend, "export_script", None)) is None:
        raise ModelError(
            f"{model} is of a format that edgepack does not export with example inputs.",
            hint="Give a file of TorchScript.",
        )
    events.stage("export")
    export(model, folder / job["examples"], job["dims"], folder / "exported.pt2")


def _comparing(job: dict[str, Any]) -> Any:
    """What compares the job's models; bundles have no format, and need the functions of any."""
    from edgepack.errors import ModelError

    models = [Path(side["name"]) for side in job["sides"] if not side["bundle"]]
    for model in models:
        if not hasattr(frontend_of(choose(model)), "compare"):
            raise ModelError(
                f"{model} is of a format that edgepack does not compare.",
                hint="Give an ONNX file, or a bundle.",
            )
    return frontend_of(choose(models[0]) if models else "onnx")


def _draw(job: dict[str, Any], folder: Path, events: Events) -> None:
    from edgepack.plan.comparison import Side

    events.stage("draw inputs")
    sides = [Side.from_json(one) for one in job["sides"]]
    inputs = Path(job["inputs"]) if job["inputs"] else None
    draws = {"seed": job["seed"], "samples": job["samples"]}
    _comparing(job).draw(sides, _options(job), folder, inputs, draws)


def _compare(job: dict[str, Any], folder: Path, events: Events) -> None:
    from edgepack.plan.comparison import Side

    events.stage("compare")
    sides = [Side.from_json(one) for one in job["sides"]]
    found = _comparing(job).compare(sides, _options(job), Path(job["drawn"]))
    (folder / "comparison.json").write_text(json.dumps(found.to_json()), encoding="utf-8", newline="\n")


_TASKS = {
    "read": _read,
    "summarise": _summarise,
    "import": _import,
    "choices": _choices,
    "compile": _compile,
    "check": _check,
    "quantise": _quantise,
    "layers": _layers,
    "executable": _executable,
    "export": _export,
    "draw": _draw,
    "compare": _compare,
}


def run_job(folder: Path, events: Events) -> None:
    """Does one job; an EdgepackError, or that memory ran out, is an event, anything else ends the process."""
    from edgepack.compiler.memory import ran_out
    from edgepack.errors import EdgepackError

    try:
        folder = utf8_folder(folder)
        job = json.loads((folder / "job.json").read_text(encoding="utf-8"))
        if job["task"] != "read":  # which answers with paths
            job = utf8_paths(job)
        with hearing(events):
            result = _TASKS[job["task"]](job, folder, events)
    except EdgepackError as error:
        name = next(c.__name__ for c in type(error).__mro__ if c.__module__ == EdgepackError.__module__)
        said = {"message": error.message, "hint": error.hint, "detail": error.detail}
        data = {key: getattr(error, key, ()) for key in ("refused", "cuts")}
        events.send(event="error", **{"class": name}, **said, **data)
    except Exception as error:
        if not ran_out(error):
            raise
        hint = "Compile it on a machine with more memory, or cut it into parts (--inputs, --outputs)."
        said = {"message": "Compiling the model takes more memory than there is.", "hint": hint, "detail": ""}
        events.send(event="error", **{"class": "ModelError"}, **said)
    else:
        events.send(event="done", result=result)


def main() -> int:
    """Does the jobs whose folders are on stdin, until it ends."""
    unconfined = confine_as_granted()  # before there is a second thread
    end_with_parent()
    faulthandler.enable()  # a native crash, of ONNX Runtime's say, then leaves Python's stack in the log
    limit_to_available()
    # TVM imports PyTorch, where it is installed, which takes seconds; who reads PyTorch's models lifts this.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    sys.setrecursionlimit(_RECURSION)
    tempfile.tempdir = str(utf8_folder(Path(tempfile.gettempdir())))
    events = Events()
    events.send(event="started", unconfined=unconfined)
    while line := sys.stdin.buffer.readline():
        run_job(Path(json.loads(line)), events)
    return 0


if __name__ == "__main__":
    code = main()
    # TVM's and ONNX Runtime's destructors are not needed and have been seen to crash at exit.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
