"""Compilation in a child process: whatever happens to the child, this process goes on and says what it
was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import ConfigError, InternalError, ModelError
from edgepack.pipeline.compile_job import CompileJob
from edgepack.pipeline.job import WARNINGS, ImportJob, ReadJob
from edgepack.pipeline.worker_process import Worker
from edgepack.plan.target import CpuTarget
from edgepack.plan.targets import target_from_json
from edgepack.system.disk_errors import writing_to
from edgepack.system.progress import Stages
from tests.support import fake
from tests.support.processes import TIMES

POSIX = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")


@pytest.fixture(autouse=True)
def _own_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    folder = tmp_path / "jöb 1"
    folder.mkdir()
    return folder


TARGET = CpuTarget("x86_64-unknown-linux-gnu")


def import_job() -> ImportJob:
    return ImportJob(Path("net.onnx"), "onnx", shapes={"input": (4, 8)}, dims={"n": 2}, seed=3)


def compile_job() -> CompileJob:
    return CompileJob(Path("net.onnx"), Path("imported"), "onnx", "net", TARGET, "net_")


def fake_worker(mode: str, **options: Any) -> Worker:
    return Worker(command=fake.command(mode)(), access=fake.EVERYTHING, **options)


def compile_(mode: str, directory: Path, **options: Any) -> None:
    with fake_worker(mode, **options) as worker:
        worker.run(compile_job(), directory)


@pytest.mark.parametrize("mode", ["ok", "noise"])
def test_one_process_does_several_jobs_with_results_progress_and_warnings(
    mode: str, directory: Path, tmp_path: Path
) -> None:
    seen: list[tuple[str, str]] = []
    with fake_worker(mode, progress=lambda stage, detail: seen.append((stage, detail))) as worker:
        assert worker.run(ReadJob(Path("net.onnx")), directory) == {
            "frontend": "onnx",
            "files": [str(Path("net.onnx").absolute())],
        }
        assert worker.run(import_job(), directory) is None
        assert json.loads((directory / WARNINGS).read_text()) == ["the worker is not the real one"]
        other = tmp_path / "compiled"
        other.mkdir()
        worker.run(compile_job(), other)
    assert seen == [("import", ""), ("kernels", ""), ("kernels", "conv2d_17")]
    assert all((directory / name).is_file() for name in ImportJob.results)
    assert all((other / name).is_file() for name in CompileJob.results)
    assert json.loads((other / WARNINGS).read_text()) == []


@POSIX
def test_a_job_after_a_crash_has_a_new_process(directory: Path) -> None:
    with fake_worker("crash") as worker:
        with pytest.raises(InternalError):
            worker.run(compile_job(), directory)
        assert worker.run(import_job(), directory) is None


def test_a_job_after_an_error_has_the_same_process(directory: Path) -> None:
    with fake_worker("error") as worker:
        with pytest.raises(ModelError):
            worker.run(compile_job(), directory)
        before = worker._process
        assert worker.run(import_job(), directory) is None
        assert worker._process is before


def test_job_file_holds_absolute_paths(directory: Path, tmp_path: Path) -> None:
    compile_("ok", directory)
    data = json.loads((directory / "job.json").read_text(encoding="utf-8"))
    assert data["imported"] == str(Path("imported").absolute())
    assert target_from_json(data["target"]) == TARGET
    with fake_worker("ok") as worker:
        worker.run(import_job(), directory)
    data = json.loads((directory / "job.json").read_text(encoding="utf-8"))
    assert data["model"] == str(Path("net.onnx").absolute())
    assert data["shapes"] == {"input": [4, 8]}


@POSIX
def test_a_native_crash_leaves_pythons_stack_in_the_log(tmp_path: Path) -> None:
    """As ONNX Runtime's optimiser does on some models."""
    code = (
        "import ctypes, sys\n"
        "from edgepack.compiler import worker\n"
        "def optimise(folder, events):\n    ctypes.string_at(0)\n"
        "worker.run_job, worker.confine_as_granted = optimise, str\n"
        "sys.exit(worker.main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input='"folder"\n', capture_output=True, text=True, check=False
    )
    assert done.returncode < 0
    assert "Segmentation fault" in done.stderr
    assert "in optimise" in done.stderr


@POSIX
@pytest.mark.parametrize(("mode", "signal"), [("crash", "SIGSEGV"), ("abort", "SIGABRT")])
def test_a_crash_names_signal_kernel_stage_and_log(
    mode: str, signal: str, directory: Path, tmp_path: Path
) -> None:
    with pytest.raises(InternalError) as caught:
        compile_(mode, directory)
    assert caught.value.message == (
        f"The compiler of net.onnx was ended by {signal} in kernel conv2d_17 (stage kernels)."
    )
    (log,) = (tmp_path / "cache" / "logs").iterdir()
    assert str(log) in caught.value.hint
    assert "kernel: conv2d_17" in log.read_text()
    if mode == "crash":
        assert "about to crash" in caught.value.detail
        assert "about to crash" in log.read_text()


@POSIX
@pytest.mark.parametrize(("mode", "signal"), [("division", "SIGFPE"), ("reference", "SIGSEGV")])
def test_numbers_that_end_the_child_are_the_models_not_an_internal_error(
    mode: str, signal: str, directory: Path
) -> None:
    with fake_worker(mode) as worker, pytest.raises(ModelError) as caught:
        worker.run(compile_job() if mode == "division" else import_job(), directory)
    assert f"was ended by {signal}" in caught.value.message
    assert "--input NAME=FILE.npy" in caught.value.hint


@POSIX
def test_a_crash_while_another_program_runs_the_model_is_the_models(directory: Path) -> None:
    with pytest.raises(ModelError) as caught:
        compile_("running", directory)
    assert caught.value.message == (
        "LiteRT's interpreter does not survive net.onnx: it was ended by SIGABRT in kernel conv2d_17 (stage "
        "kernels)."
    )
    with pytest.raises(InternalError, match="was ended by SIGABRT"):
        compile_("ran", directory)


@POSIX
def test_a_child_that_ends_for_want_of_memory_says_so_of_the_model(directory: Path) -> None:
    with pytest.raises(ModelError, match=r"Compiling net\.onnx took more memory than there is"):
        compile_("no memory", directory)


def test_running_out_of_time_ends_the_child_and_names_the_kernel(directory: Path) -> None:
    for seconds in TIMES:
        stages = Stages(None)
        message = rf"did not end within {seconds:g} s; it was "
        with pytest.raises(ModelError, match=message) as caught, stages.within(seconds, "Packing net.onnx"):
            compile_("hang", directory, progress=stages)
        assert "--timeout" in caught.value.hint
        if "it was in kernel conv2d_17" in caught.value.message:
            break
    else:
        pytest.fail(caught.value.message)
    if os.name == "posix":
        with pytest.raises(ProcessLookupError):
            os.kill(int((directory / "pid").read_text()), 0)


def test_an_interrupt_ends_the_child(directory: Path) -> None:
    def interrupt(stage: str, detail: str) -> None:
        if detail:
            pid = directory / "pid"
            while not (pid.exists() and pid.read_text()):
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), fake_worker("hang", progress=interrupt) as worker:
        worker.run(compile_job(), directory)
    if os.name == "posix":
        with pytest.raises(ProcessLookupError):
            os.kill(int((directory / "pid").read_text()), 0)


def test_an_error_of_the_child_is_raised_as_its_class(directory: Path) -> None:
    with pytest.raises(ModelError) as caught:
        compile_("error", directory)
    assert (caught.value.message, caught.value.hint, caught.value.detail) == (
        "No rule for Foo.",
        "Ask.",
        "n1",
    )
    assert [cut["outputs"] for cut in caught.value.cuts] == [["a b", "c"]]


def test_a_child_that_leaves_nothing_is_an_internal_error(directory: Path) -> None:
    with pytest.raises(InternalError, match=r"left no plan\.json"):
        compile_("empty", directory)


def test_a_module_in_the_users_folder_is_not_imported(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path)
    compile_("ok", directory)


def test_variables_of_onnxruntime_do_not_reach_the_child(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    monkeypatch.setenv("EDGEPACK_OF_THIS_TEST", "1")
    show = f"import os; open({str(directory / 'seen')!r}, 'w').write(' '.join(os.environ))"
    with pytest.raises(InternalError), Worker(command=[sys.executable, "-c", show]) as worker:
        worker.run(compile_job(), directory)  # the child ends without having done it
    seen = (directory / "seen").read_text(encoding="utf-8")
    assert "EDGEPACK_OF_THIS_TEST" in seen and "ORT_LOAD_CONFIG_FROM_MODEL" not in seen


def test_onnxruntime_tells_nobody_of_a_model(
    tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the user's variables say, it is told so before it is there; it leaves neither its queue of
    what is to be sent (``.ses``) nor an identifier of this machine."""
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "0")
    for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    show = (
        "import os, onnxruntime\n"
        "from onnx import helper as h\n"
        "value = h.make_tensor_value_info('x', 1, [1]), h.make_tensor_value_info('y', 1, [1])\n"
        "graph = h.make_graph([h.make_node('Relu', ['x'], ['y'])], 'g', value[:1], value[1:])\n"
        "model = h.make_model(graph, ir_version=8, opset_imports=[h.make_opsetid('', 17)])\n"
        "onnxruntime.InferenceSession(model.SerializeToString())\n"
        f"open({str(directory / 'seen')!r}, 'w').write(os.environ['ORT_DISABLE_TELEMETRY'])\n"
    )
    with pytest.raises(InternalError), Worker(command=[sys.executable, "-c", show]) as worker:
        worker.run(compile_job(), directory)
    assert (directory / "seen").read_text(encoding="utf-8") == "1"
    left = [path for name in ("TMPDIR", "HOME", "XDG_CACHE_HOME") for path in (tmp_path / name).rglob("*")]
    assert [path for path in left if "edgepack" not in str(path.relative_to(tmp_path))] == []


def test_a_target_of_an_unknown_kind_is_refused() -> None:
    with pytest.raises(InternalError, match="no kind of target 'abacus', only cpu"):
        target_from_json({**TARGET.to_json(), "kind": "abacus"})


@POSIX
def test_what_a_child_says_of_a_full_disk_is_heard_though_no_file_takes_it(
    directory: Path, tmp_path: Path
) -> None:
    code = (
        "import resource, signal, sys\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"  # pipes have no size
        "sys.stdin.readline()\n"
        "raise OSError(28, 'No space left on device')\n"
    )
    with (
        pytest.raises(ConfigError, match="is full"),
        writing_to({"temporary folder": tmp_path}),
        Worker(command=[sys.executable, "-c", code]) as worker,
    ):
        worker.run(import_job(), directory)
