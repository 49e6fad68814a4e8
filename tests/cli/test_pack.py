"""``edgepack pack`` from the command line to the bundle, with the fake worker: what it writes, refuses,
and leaves."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from edgepack.api import Bundle, pack
from edgepack.cli.main import main
from edgepack.commands.packed_again import options_of
from edgepack.errors import ConfigError
from edgepack.system.files import list_files
from tests.support import fake
from tests.support.processes import TIMES, ends
from tests.support.worker import COLUMNS, ROWS

POSIX = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")


@pytest.fixture
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty one. The compiler's own cache stays where it is: it takes long to fill."""
    cache = tmp_path_factory.mktemp("cache")
    zig = Path(os.environ.get("ZIG_GLOBAL_CACHE_DIR") or _default_cache() / "zig")
    zig.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(cache))
    for name in ("ZIG_GLOBAL_CACHE_DIR", "ZIG_LOCAL_CACHE_DIR"):
        monkeypatch.setenv(name, str(zig))


def _default_cache() -> Path:
    from edgepack.system.paths import cache_dir

    return cache_dir()


def content(root: Path) -> dict[str, tuple[int, bytes]]:
    return {
        name: ((root / name).stat().st_mode & 0o777, (root / name).read_bytes()) for name in list_files(root)
    }


def entries(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_weights_of_another_type_are_refused(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Weights cannot be 'int8'"):
        pack(small_model, output=tmp_path / "out", weights="int8")  # type: ignore[arg-type]


def test_half_precision_is_for_gpus_and_cpus_that_compute_in_it(small_model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="and linux-x86_64 has neither") as error:
        pack(small_model, "linux-x86_64", tmp_path / "out", precision="fp16")
    for device in ("linux-x86_64", "cuda-desktop", "opencl-generic"):
        with pytest.raises(ConfigError, match=r"since compute capability 8\.0, and .* has others"):
            pack(small_model, device, tmp_path / "out", precision="tf32")
    assert 'weights="float16"' in error.value.hint
    with pytest.raises(ConfigError, match="No kernels compute with precision 'fp8'"):
        pack(small_model, "opencl-generic", tmp_path / "out", precision="fp8")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow  # tests/test_end_to_end.py does it with the real compiler
def test_the_same_pack_in_two_folders_and_processes_gives_the_same_bytes(
    small_model: Path, tmp_path: Path
) -> None:
    other = tmp_path / "another place" / "bért"
    other.mkdir(parents=True)
    shutil.copy(small_model, other / "small.onnx")
    first = fake.run_program("ok", "pack", small_model, "-o", tmp_path / "a", "--no-cache", cwd=tmp_path)
    second = fake.run_program(
        "ok", "pack", "small.onnx", "-o", "b", "--no-cache", cwd=other, TZ="Asia/Tokyo", LANG="C"
    )
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    one, two = content(tmp_path / "a"), content(other / "b")
    assert sorted(one) == sorted(two)
    assert [name for name in one if one[name] != two[name]] == []


def test_a_bundle_names_no_path_of_this_machine(small_bundle: Bundle, small_model: Path) -> None:
    places = [str(small_bundle.path.parent), str(small_model.parent), str(fake.ROOT), str(Path.home())]
    for name in list_files(small_bundle.path):
        data = (small_bundle.path / name).read_bytes()
        assert [place for place in places if len(place) > 1 and place.encode() in data] == [], name


@pytest.mark.usefixtures("own_cache")
def test_a_second_pack_comes_from_the_cache_and_with_force_replaces_a_bundle(
    small_model: Path, tmp_path: Path
) -> None:
    first = fake.run("ok", "pack", small_model, "-o", tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    (tmp_path / "b" / "README.md").write_text("old")
    (tmp_path / "b" / "LICENSES").rename(tmp_path / "b" / "include" / "old")
    kept = fake.run("crash", "pack", small_model, "-o", tmp_path / "b", "--force")
    assert (kept.returncode, "holds what is not of the bundle" in kept.stderr) == (2, True)
    shutil.rmtree(tmp_path / "b" / "include" / "old")
    # A worker that crashes was not asked.
    second = fake.run("crash", "pack", small_model, "-o", tmp_path / "b", "--force")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert content(tmp_path / "a") == content(tmp_path / "b")
    assert entries(tmp_path) == ["a", "b"]
    assert fake.run("crash", "pack", small_model, "-o", tmp_path / "c", "--no-cache").returncode == 5
    assert fake.run("crash", "pack", small_model, "-o", tmp_path / "c", "--seed", "1").returncode == 5


def test_json_is_all_that_is_on_stdout_and_the_output_defaults_to_name_and_device_here(
    small_model: Path, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    x = np.arange(ROWS * COLUMNS, dtype="f4").reshape(ROWS, COLUMNS)
    np.save(tmp_path / "x=1.npy", x)
    more = ("--device", "linux-x86_64", "--name", "my_net", "--input", f"input={tmp_path / 'x=1.npy'}")
    done = fake.run("ok", "pack", small_model, "--json", *more, cwd=here)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    assert entries(here) == ["my_net-linux-x86_64"]
    bundle = here / "my_net-linux-x86_64"
    assert (here / data["bundle"]).resolve() == bundle.resolve()
    assert (bundle / "test" / "input_0.bin").read_bytes() == x.tobytes()
    assert data["manifest"]["symbol"] == "edgepack_model_my_net"
    assert "compile C" in data["seconds"]
    assert "compile C" in done.stderr  # progress


def test_quiet_prints_one_line_and_the_warnings(small_model: Path, tmp_path: Path) -> None:
    done = fake.run("ok", "pack", small_model, "-o", tmp_path / "out", "--quiet")
    assert done.stderr == ""
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == [
        "small.onnx for host",
        "warning",
        "warning",
    ]


def test_what_a_device_gets_is_printed_and_with_verbose_all_of_the_bundle(
    small_model: Path, tmp_path: Path
) -> None:
    """Ten lines for who has not seen it before; files, memory and times of the stages for who asks."""
    short = fake.run("ok", "pack", small_model, "-o", tmp_path / "a").stdout
    manifest = Bundle(tmp_path / "a").manifest
    named = [line.split()[0] for line in short.splitlines()[2:] if not line.startswith("warning")]
    paths = [one.path for one in manifest.artifacts] + [manifest.params.file]
    assert named == ["for", *paths, "memory", "a"]
    assert f"{len(manifest.steps)} steps, {len(manifest.kernels)} kernels" in short
    long = fake.run("ok", "pack", small_model, "-o", tmp_path / "b", "--verbose").stdout
    for text in ("src/ (", " other files", "arena", "peak", "stage "):
        assert text in long and text not in short, text


def test_an_existing_output_is_refused_before_anything_is_compiled(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "manifest.json").write_text("precious")
    assert main(["pack", str(small_model), "-o", str(tmp_path / "out")]) == 2
    err = capsys.readouterr().err
    assert "exists" in err
    assert "--force" in err
    assert "[" not in err, "a stage was begun"
    assert (tmp_path / "out" / "manifest.json").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["nowhere.onnx"], 3, "nowhere.onnx does not exist."),
        (["."], 3, "is a folder"),
        (["{model}", "--device", "rasberrypi4"], 2, "raspberrypi4"),
        (["{model}", "--toolchain", "zigg"], 2, "zig"),
        (["{model}", "--name", "-"], 2, "Nothing of the name '-' can be in a C identifier"),
        (["{model}", "--name", "int"], 2, "--name model_int"),
        (["{model}", "--input", "input=nowhere.npy"], 2, "nowhere.npy for input input does not exist"),
    ],
)
def test_wrong_arguments_are_clear_errors_and_leave_nothing(
    arguments: list[str],
    code: int,
    message: str,
    small_model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake.install("ok", monkeypatch.setattr)
    monkeypatch.chdir(tmp_path)
    assert main(["pack", *(argument.format(model=small_model) for argument in arguments)]) == code
    err = capsys.readouterr().err
    assert message in err
    assert "Traceback" not in err
    assert entries(tmp_path) == []


def test_the_name_that_is_taken_is_said(small_model: Path, tmp_path: Path) -> None:
    done = fake.run("ok", "pack", str(small_model), "-q", "--name", "2nd net", "-o", "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "warning: --name: '2nd net' is no C identifier; the model is called model_2nd_net" in done.stderr
    assert done.stdout.splitlines()[0].endswith(", named model_2nd_net")
    model = Path(shutil.copy(small_model, tmp_path / "3 small.onnx"))
    done = fake.run("ok", "pack", str(model), "-q", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "is no C identifier" not in done.stderr
    assert done.stdout.splitlines()[0].endswith(", named model_3_small")


def test_the_name_to_import_a_wheel_by_is_said(small_model: Path, tmp_path: Path) -> None:
    given = (str(small_model), "-q", "--name", "html", "-o", "out", "--format", "wheel")
    done = fake.run("ok", "pack", *given, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "wheel: import html_model" in done.stdout.splitlines()
    done = fake.run("ok", "export", "out", "--format", "wheel", "-o", "dist", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    file, line = done.stdout.splitlines()
    assert file.endswith(".whl")
    assert line == "  import html_model"


@pytest.mark.usefixtures("own_cache")
def test_a_missing_compiler_is_found_before_the_model_is_compiled(small_model: Path, tmp_path: Path) -> None:
    toolchain = tmp_path / "gone.yaml"
    toolchain.write_text(
        "family: gcc\nexecutables: {cc: [no-such-gcc], ar: [no-such-ar]}\n", encoding="utf-8"
    )
    done = fake.run(
        "crash", "pack", small_model, "--toolchain", toolchain, "-o", tmp_path / "out", "--no-cache"
    )
    assert done.returncode == 4
    assert "no-such-gcc" in done.stderr
    assert entries(tmp_path) == ["gone.yaml"]


@POSIX
@pytest.mark.parametrize(
    ("mode", "code", "message"),
    [
        ("crash", 5, "was ended by SIGSEGV in kernel conv2d_17"),
        ("abort", 5, "was ended by SIGABRT in kernel conv2d_17"),
        ("error", 3, "No rule for Foo."),
        ("empty", 5, "left no plan.json"),
    ],
)
@pytest.mark.usefixtures("own_cache")
def test_a_failing_compiler_is_one_error_and_leaves_nothing(
    mode: str, code: int, message: str, small_model: Path, tmp_path: Path
) -> None:
    done = fake.run(mode, "pack", small_model, "-o", tmp_path / "out")
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert entries(tmp_path) == []


@pytest.mark.usefixtures("own_cache")
def test_slow_kernels_are_warnings_and_with_strict_speed_an_error(small_model: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    packed = fake.run("slow", "pack", small_model, "-o", bundle, "--opt-level", "1", cwd=tmp_path)
    assert packed.returncode == 0
    assert options_of(Bundle(bundle).manifest).opt_level == 1
    assert "warning: kernel scale is slow: why" in packed.stdout
    assert "kernel scale is slow: why" in Bundle(bundle).manifest.warnings
    arguments = ("pack", small_model, "-o", tmp_path / "other", "--strict-speed")
    refused = fake.run("slow", *arguments, cwd=tmp_path)
    assert refused.returncode == 3
    assert "would be slow: kernel scale is slow: why." in refused.stderr
    neither = fake.run("slow", *arguments, "--opt-level", "2", cwd=tmp_path)
    assert neither.returncode == 2
    assert "--strict-speed refuses slow kernels, and --opt-level 2 asks for such." in neither.stderr
    assert entries(tmp_path) == ["bundle"]


@pytest.mark.usefixtures("own_cache")
def test_a_compiler_out_of_time_is_one_error_and_leaves_nothing(small_model: Path, tmp_path: Path) -> None:
    for seconds in TIMES:
        done = fake.run("hang", "pack", small_model, "-o", tmp_path / "out", "--timeout", f"{seconds}")
        assert done.returncode == 3
        assert f"Packing small.onnx did not end within {seconds:g} s; it was " in done.stderr
        assert "--timeout" in done.stderr
        assert entries(tmp_path) == []
        if "it was in kernel conv2d_17" in done.stderr:
            return
    pytest.fail(done.stderr)


def start_hanging(
    model: Path, output: Path, mode: str = "hang", **environment: str
) -> tuple[subprocess.Popen[str], int]:
    """A pack whose worker hangs, and the worker's process id."""
    process = start_pack(mode, model, "-o", output, **environment)
    return process, wait_for_pid(process, output.parent, ".*/job/*/pid")


def start_pack(mode: str, *arguments: str | Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        fake.argv(mode, "pack", *arguments),
        env=fake.env(**environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        # A job in the background of a shell ignores SIGINT, under nohup SIGHUP, and so would its children.
        preexec_fn=_default_signals,  # noqa: PLW1509 (no threads here)
        start_new_session=True,
    )


def _default_signals() -> None:
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_for_pid(process: subprocess.Popen[str], folder: Path, pattern: str) -> int:
    """The process id in the file that appears."""
    late = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < late:
        for path in folder.glob(pattern):
            if text := path.read_text():
                return int(text)
        time.sleep(0.02)
    process.kill()
    raise AssertionError(process.communicate())


@POSIX
@pytest.mark.parametrize(
    ("number", "mode", "said"),
    [
        (signal.SIGINT, "hang", "interrupted"),
        (signal.SIGTERM, "hang:import", "terminated"),
        (signal.SIGHUP, "hang:read", "its terminal is gone"),
    ],
)
@pytest.mark.usefixtures("own_cache")
def test_a_signal_leaves_one_line_and_neither_files_nor_processes(
    number: signal.Signals, mode: str, said: str, small_model: Path, tmp_path: Path
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    process, worker = start_hanging(small_model, tmp_path / "out", mode, TMPDIR=str(temporary))
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + number
    assert err.splitlines()[-1] == f"edgepack: {said}; nothing was left behind."
    assert "Traceback" not in err
    assert (entries(tmp_path), entries(temporary)) == (["temporary"], [])
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


HANGING_COMPILER = """#!/bin/sh
case " $* " in
*" -c "*) ;;
*) exec cc "$@" ;;
esac
sleep 600 &
echo $! > {pid}.$$
mv {pid}.$$ {pid}
wait
"""


def hanging_toolchain(folder: Path) -> Path:
    """A toolchain whose compiler waits for a child of its own, whose process id is in the file ``pid``."""
    compiler = folder / "hanging-cc"
    compiler.write_text(HANGING_COMPILER.format(pid=folder / "pid"))
    compiler.chmod(0o755)
    path = folder / "hanging.yaml"
    path.write_text(f"family: gcc\nexecutables: {{cc: ['{compiler}'], ar: [ar]}}\n")
    return path


@POSIX
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler beside zig")
def test_ctrl_c_ends_the_c_compilers_and_their_children(small_model: Path, tmp_path: Path) -> None:
    """As a terminal sends it, to the whole group, and twice."""
    toolchain = hanging_toolchain(tmp_path)
    process = start_pack("ok", small_model, "-o", tmp_path / "out", "--toolchain", toolchain)
    child = wait_for_pid(process, tmp_path, "pid")
    for _ in range(2):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, "Traceback" in err) == (130, False)
    assert ends(child)
    left = [name for name in entries(tmp_path) if not name.startswith("pid")]
    assert left == ["hanging-cc", "hanging.yaml"]


@POSIX
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler beside zig")
@pytest.mark.usefixtures("own_cache")
def test_the_time_of_a_pack_is_that_of_all_its_stages(small_model: Path, tmp_path: Path) -> None:
    toolchain = hanging_toolchain(tmp_path)
    limit = ("--timeout", "3")
    done = fake.run("ok", "pack", small_model, "-o", tmp_path / "out", "--toolchain", toolchain, *limit)
    assert done.returncode == 3
    assert "Packing small.onnx did not end within 3 s; it was in the stage" in done.stderr
    assert not (tmp_path / "out").exists()
    if (tmp_path / "pid").exists():  # a busy machine may not get so far
        assert "in the stage compile C." in done.stderr
        assert ends(int((tmp_path / "pid").read_text()))


STAGES = {
    "read": ("hang:read", ".*/job/*/pid"),
    "import": ("hang:import", ".*/job/*/pid"),
    "compile": ("hang", ".*/job/*/pid"),
    "compile C": ("ok", "pid"),
}


@POSIX
@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("how", ["SIGINT to the group", "SIGINT", "SIGTERM"])
@pytest.mark.usefixtures("own_cache")
def test_a_pack_ends_within_a_second(how: str, stage: str, small_model: Path, tmp_path: Path) -> None:
    """On a machine that has nothing else to do. (That it ends is tested for any machine.)"""
    mode, pattern = STAGES[stage]
    toolchain = ("--toolchain", hanging_toolchain(tmp_path)) if stage == "compile C" else ()
    process = start_pack(mode, small_model, "-o", tmp_path / "out", *toolchain)
    wait_for_pid(process, tmp_path, pattern)
    number = signal.SIGTERM if how == "SIGTERM" else signal.SIGINT
    since = time.monotonic()
    (os.killpg if "group" in how else os.kill)(process.pid, number)
    process.communicate(timeout=60)
    seconds = time.monotonic() - since
    print(f"{stage}, {how}: {seconds:.2f} s")
    assert process.returncode == 128 + number
    assert seconds < 1


@POSIX
def test_an_exception_raised_in_the_thread_of_a_pack_ends_it(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.install("hang", monkeypatch.setattr)
    caught: list[BaseException] = []

    def work() -> None:
        try:
            pack(small_model, "host", tmp_path / "out", cache=False)
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    late = time.monotonic() + 120
    while not (pids := list(tmp_path.glob(".*/job/*/pid"))) and time.monotonic() < late:
        time.sleep(0.02)
    worker = int(pids[0].read_text() or 0)
    raised = ctypes.py_object(KeyboardInterrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), raised)
    thread.join(timeout=120)
    assert [type(error) for error in caught] == [KeyboardInterrupt]
    assert entries(tmp_path) == []
    assert not worker or ends(worker)


@POSIX
@pytest.mark.usefixtures("own_cache")
def test_what_sigkill_leaves_is_hidden_and_the_next_pack_removes_it(
    small_model: Path, tmp_path: Path
) -> None:
    process, worker = start_hanging(small_model, tmp_path / "out")
    process.kill()
    process.communicate()
    assert ends(worker)
    assert all(name.startswith(".out.edgepack-") for name in entries(tmp_path))
    assert fake.run("ok", "pack", small_model, "-o", tmp_path / "out").returncode == 0
    assert entries(tmp_path) == ["out"]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a folder that nobody can write to")
def test_a_folder_that_cannot_be_written_is_a_clear_error(small_model: Path) -> None:
    done = fake.run("ok", "pack", small_model, "-o", "/proc/out")
    assert done.returncode == 2
    assert "/proc cannot be written" in done.stderr
