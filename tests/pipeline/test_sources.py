"""What decides on a task is found by reading the sources: all that a worker imports is in it."""

from __future__ import annotations

import ast
import json
import sys
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

import pytest

from edgepack.pipeline.compile_job import CompileJob
from edgepack.pipeline.job import ImportJob, Job
from edgepack.pipeline.sources import imported_names, source_digest, task_sources
from edgepack.pipeline.versions import package_versions, tool_versions
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.target import CpuTarget
from edgepack.resources import PACKAGE
from edgepack.system.confinement import Access
from workbench.models import build, save

#: What a worker of the tests imports and no result depends on.
BYSTANDERS = {
    "editables": "finds the modules of an installation that can be edited",
    "setuptools": "its .pth file, which Python reads at its start",
    "virtualenv": "its .pth file, which Python reads at its start",
    "coverage": "measures tests",
}

#: The worker, which tells what it has imported when its stdin ends.
SPY = """
import json, os, sys
from edgepack.compiler import worker

code = worker.main()
files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items())}
with open(sys.argv[1], "w", encoding="utf-8") as stream:
    json.dump(files, stream)
os._exit(code)
"""


def imported_by(jobs: list[tuple[Job, Path]], tmp_path: Path) -> dict[str, Path]:
    """The modules that a worker has which does these jobs, and their files."""
    said = tmp_path / "modules.json"
    command = [sys.executable, "-c", SPY, str(said)]
    with Worker(command=command, access=Access(reads=(tmp_path,), writes=(tmp_path,))) as worker:
        for job, folder in jobs:
            folder.mkdir()
            worker.run(job, folder)
        process = worker._process
        assert process is not None and process.stdin is not None
        process.stdin.close()
        process.wait(60)
    found = json.loads(said.read_text(encoding="utf-8"))
    return {name: Path(file) for name, file in found.items() if file}


def packages_of(modules: dict[str, Path]) -> dict[str, str]:
    """The packages that installed these modules, and one of them each."""
    files = {str(file.resolve()): name for name, file in modules.items()}
    found = {}
    for package in distributions():
        for file in package.files or ():
            if file.suffix in (".py", ".so", ".pyd") and (name := files.get(str(file.locate().resolve()))):  # type: ignore[no-untyped-call]
                found[package.metadata["Name"].lower().replace("_", "-")] = name
    return found


@pytest.mark.parametrize("task", ["import", "compile"])
def test_all_that_a_worker_imports_is_in_the_key(task: str, tmp_path: Path) -> None:
    model, imported = save(build("ds_cnn"), tmp_path, "net.onnx"), tmp_path / "import"
    host = CpuTarget("x86_64-unknown-linux-gnu")
    jobs: list[tuple[Job, Path]] = [(ImportJob(model, "onnx"), imported)]
    if task == "compile":
        imported_by(jobs, tmp_path)
        targets: list[Any] = [host, GpuTarget("opencl", host), GpuTarget("metal", host)]
        jobs = [
            (CompileJob(model, imported, "onnx", "net", target, "p_"), tmp_path / f"compile{number}")
            for number, target in enumerate(targets)
        ]
    modules = imported_by(jobs, tmp_path)
    own = {name for name in modules if name.partition(".")[0] == "edgepack"}
    decides = {file.resolve() for file in task_sources(task, "onnx")}
    assert len(own) > 50
    assert not sorted(name for name in own if modules[name].resolve() not in decides)
    packages = packages_of(modules)
    assert "numpy" in packages
    known = package_versions(task, "onnx").keys() | BYSTANDERS.keys()
    assert not {package: module for package, module in packages.items() if package not in known}


def test_imports_are_read_as_python_reads_them() -> None:
    for file in sorted((PACKAGE / "compiler").rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        types = [node for node in tree.body if isinstance(node, ast.If)]
        only = {
            id(inner)
            for node in types
            if ast.unparse(node.test) == "TYPE_CHECKING"
            for inner in ast.walk(node)
        }
        wanted = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in only:
                assert not node.level
                wanted |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
            elif isinstance(node, ast.Import) and id(node) not in only:
                wanted |= {alias.name for alias in node.names}
        assert wanted <= imported_names(file), file


def test_a_kernel_does_not_decide_on_the_import_nor_a_frontend_on_kernels_for_another() -> None:
    assert source_digest("import", "onnx") != source_digest("compile", "onnx")
    parts = {file.relative_to(PACKAGE).parts[:3] for file in task_sources("import", "onnx")}
    assert not any(part[:2] in {("compiler", "kernels"), ("compiler", "planner")} for part in parts)
    assert ("compiler", "frontend", "onnx") in parts
    others = {file.relative_to(PACKAGE).parts[:3] for file in task_sources("compile", "another package's")}
    assert ("compiler", "frontend", "onnx") not in others


@pytest.mark.parametrize(
    "part", ["apple_metal", "objectfiles/elf/relocatable", "plan/types", "compiler/worker"]
)
def test_what_backends_take_from_other_rooms_decides_on_machine_code(part: str) -> None:
    files = [file.relative_to(PACKAGE).with_suffix("").as_posix() for file in task_sources("compile", "onnx")]
    assert any(file == part or file.endswith(f"/{part}") for file in files)


def test_versions_of_all_that_decides_are_known() -> None:
    assert set(tool_versions()) == {"edgepack", "apache-tvm", "numpy", "onnx", "onnxruntime"}
    assert "none" not in tool_versions().values()
    assert "nvidia-cuda-nvrtc-cu12" in tool_versions("cuda")
    assert package_versions("import", "onnx").items() >= tool_versions().items()
    assert package_versions("compile", "onnx", "cuda").items() >= tool_versions("cuda").items()
    assert {"protobuf", "ml-dtypes", "python"} <= package_versions("import", "onnx").keys()
    assert len(source_digest("compile", "onnx")) == 64
