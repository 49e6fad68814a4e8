"""The process that reads a model gets the model's files and its own folder, and nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import edgepack
from edgepack.errors import ModelError, ToolchainError
from edgepack.pipeline import worker_process
from edgepack.pipeline.compile import identified, identify
from edgepack.pipeline.job import UNCONFINED, ImportJob, ReadJob
from edgepack.pipeline.worker_process import Worker
from edgepack.system.confinement import Access, what_is_missing

confined_here = pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "it can be confined")

#: The worker, taken over by its job: what it can open of the paths in the job's folder's ``wanted.json``.
TAKEN_OVER = """
import json, os, socket, sys
from pathlib import Path
from edgepack.compiler import worker

def attack(folder, events):
    found = {}
    for path in json.loads((folder / "wanted.json").read_text()):
        try:
            Path(path).read_bytes()
            found[path] = "read"
        except OSError as error:
            found[path] = type(error).__name__
    try:
        socket.socket()
        found["network"] = "there"
    except OSError:
        found["network"] = "none"
    found["variables"] = sorted(os.environ)
    (folder / "found.json").write_text(json.dumps(found))
    events.send(event="done", result=found)

worker.run_job = attack
sys.exit(worker.main())
"""


def model_with_data(folder: Path, location: str = "weights.bin") -> Path:
    """A model of one Mul, whose factor lies in a file beside it."""
    folder.mkdir(exist_ok=True)
    factor = numpy_helper.from_array(np.arange(64, dtype=np.float32), "factor")
    data = factor.raw_data
    factor.ClearField("raw_data")
    factor.data_location = TensorProto.EXTERNAL
    factor.external_data.add(key="location", value=location)
    vector = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [64]) for name in ("x", "y")]
    node = helper.make_node("Mul", ["x", "factor"], ["y"])
    graph = helper.make_graph([node], "g", vector[:1], vector[1:], [factor])
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "model.onnx")
    if not Path(location).is_absolute():
        (folder / location).write_bytes(data)
    return folder / "model.onnx"


def job_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


@confined_here
def test_who_takes_the_worker_over_gets_the_models_files_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEPACK_CACHE_KEY", "k" * 32)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    model = model_with_data(tmp_path / "models")
    (neighbour := tmp_path / "models" / "diary.txt").write_text("private")
    parents = Path("/proc/self/environ").resolve().parents[0] / "environ"
    folder = job_folder(tmp_path / "job")
    wanted = [model, model.with_name("weights.bin"), neighbour, Path(__file__), parents]
    (folder / "wanted.json").write_text(json.dumps([str(path) for path in wanted]))
    with Worker(command=[sys.executable, "-c", TAKEN_OVER]) as worker:
        found = worker.run(ReadJob(model), folder)
    assert [found[str(path)] for path in wanted[:3]] == ["read", "PermissionError", "PermissionError"]
    assert found[str(parents)] == "PermissionError" and found["network"] == "none"
    assert not {"EDGEPACK_CACHE_KEY", "AWS_SECRET_ACCESS_KEY"} & set(found["variables"])
    assert not (folder / UNCONFINED).exists()


@confined_here
def test_a_models_data_are_for_who_was_asked_for_them(tmp_path: Path) -> None:
    """The process that says which files belong to a model cannot read these; the next one can."""
    model = model_with_data(tmp_path / "models")
    folder = job_folder(tmp_path / "job")
    with Worker(access=Access((model,), (folder,))) as worker:
        with pytest.raises(ModelError):
            worker.run(ImportJob(model), folder)
        job = identified(ImportJob(model), worker, folder)
        assert job.data == (model.with_name("weights.bin"),)
        worker.run(job, folder)
    assert (folder / "recorded" / "recorded.json").is_file()


@pytest.mark.parametrize("linked", [False, True])
def test_data_behind_a_link_out_of_the_folder_is_refused(linked: bool, tmp_path: Path) -> None:
    """An archive may hold such a link beside its model; what it leads to would be in the bundle. Where the
    model is a link too, as in caches of downloads, both lie beside each other."""
    model = model_with_data(tmp_path / "models")
    (elsewhere := tmp_path / "elsewhere").mkdir()
    weights = model.with_name("weights.bin")
    weights.rename(elsewhere / "1234")
    weights.symlink_to(elsewhere / "1234")
    if linked:
        model.rename(elsewhere / "5678")
        model.symlink_to(elsewhere / "5678")
    model = model.parent / ".." / model.parent.name / model.name  # as a project file may name it
    weights = model.with_name("weights.bin")
    with Worker() as worker:
        if linked:
            assert identify(model, worker, job_folder(tmp_path / "job")).data == (weights,)
        else:
            with pytest.raises(ModelError, match=r"leads out of its folder"):
                identify(model, worker, job_folder(tmp_path / "job"))


def test_a_worker_that_names_other_files_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_with_data(tmp_path / "models")
    for named in ("/etc/passwd", str(model.parent / ".." / "x"), "relative"):
        answer = {"frontend": "onnx", "files": [str(model), named]}
        monkeypatch.setattr(Worker, "run", lambda *_, said=answer: said)
        with pytest.raises(ModelError, match="leads out of its folder"):
            identify(model, Worker(), tmp_path)


def _no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys; from edgepack.compiler import worker\n"
        "worker.confine_as_granted = lambda: 'the kernel has no Landlock'\n"
        "sys.exit(worker.main())\n"
    )
    monkeypatch.setattr(worker_process, "worker_command", lambda: [sys.executable, "-c", code])


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_where_it_cannot_be_confined_that_is_said_or_nothing_is_read(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEPACK_CONFINE", mode)
    _no_landlock(monkeypatch)
    model = model_with_data(tmp_path / "models")
    folder = job_folder(tmp_path / "job")
    with Worker() as worker:
        if mode == "required":
            with pytest.raises(ToolchainError, match="cannot be confined here: the kernel has no Landlock"):
                worker.run(ReadJob(model), folder)
        else:
            worker.run(ReadJob(model), folder)
            assert (folder / UNCONFINED).read_text() == "the kernel has no Landlock"


@confined_here
def test_a_manifest_says_where_it_was_not(
    tmp_path: Path, small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EDGEPACK_CONFINE", "off")
    bundle = edgepack.pack(small_model, "host", tmp_path / "bundle", cache=False)
    manifest = json.loads((bundle.path / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["unconfined"] == "EDGEPACK_CONFINE is off"


def test_each_job_names_what_it_opens(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("model.onnx", "weights.bin", "x.npy", "y.npy")]
    job = ImportJob(paths[0], data=paths[1:2], inputs={"x": paths[2]}, expected={"y": paths[3]})
    assert set(job.access.reads) == set(paths)
