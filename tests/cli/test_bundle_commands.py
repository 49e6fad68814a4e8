"""``verify``, ``bench`` and ``inspect`` of a bundle that the fake worker's results made."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from edgepack.api import Bundle, pack
from edgepack.cli.main import main
from tests.support import fake
from tests.support.manifest import seal
from tests.support.processes import TIMES, ends


@pytest.fixture
def copy(small_bundle: Bundle, tmp_path: Path) -> Path:
    """A bundle that a test may damage, away from where it was made."""
    return Path(shutil.copytree(small_bundle.path, tmp_path / "cöpy of it"))


def run(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> str:
    assert main([str(argument) for argument in arguments]) == code
    captured = capsys.readouterr()
    return captured.out if code in (0, 1) and captured.out else captured.err


def run_json(capsys: pytest.CaptureFixture[str], *arguments: object, code: int = 0) -> Any:
    return json.loads(run(capsys, *arguments, "--json", "--quiet", code=code))


def test_verify_reports_each_output(small_bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "verify", small_bundle.path, "--threads", 2)
    assert out.splitlines()[-1].startswith("ok: ")
    assert "2 threads, against numpy" in out
    data = run_json(capsys, "verify", small_bundle.path, "--threads", 1)
    assert data["ok"] is True
    assert data["threads"] == 1
    assert [(o["name"], o["elements"], o["mismatches"]) for o in data["outputs"]] == [
        ("output", 32, 0),
        ("sign", 32, 0),
    ]


def test_verify_fails_on_a_wrong_output(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = copy / "test" / "output_1.bin"
    path.write_bytes(bytes([path.read_bytes()[0] ^ 1]) + path.read_bytes()[1:])
    seal(copy)
    out = run(capsys, "verify", copy, code=1)
    assert "1 of 32 wrong" in out
    assert "FAILED" in out
    data = run_json(capsys, "verify", copy, code=1)
    assert (data["ok"], data["status"]) == (False, "mismatch")
    assert [output["mismatches"] for output in data["outputs"]] == [0, 1]


def test_verify_finds_a_damaged_file_before_it_runs_it(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (copy / "bin" / "small").write_bytes(b"#!/bin/sh\ntouch was_run\n")
    err = run(capsys, "verify", copy, code=1)
    assert "bin/small: has 24 bytes" in err
    assert not list(copy.rglob("was_run"))


def test_params_of_another_model_are_refused_with_a_sentence(
    copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = copy / "params" / "small.params"
    path.write_bytes(b"not params" * 500)
    seal(copy)
    err = run(capsys, "verify", copy, code=1)
    assert "refused to run (EP_E_PARAMS_MAGIC): This is not a params file" in err


def test_a_crashing_program_is_a_failed_check(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = copy / "bin" / "small"
    program.write_text("#!/bin/sh\necho last words\nkill -SEGV $$\n")
    seal(copy)
    err = run(capsys, "verify", copy, code=1)
    assert "was ended by SIGSEGV (native)" in err
    assert "last words" in err
    program.write_text("#!/bin/sh\necho no json; exit 3\n")
    seal(copy)
    assert "ended with exit code 3 and no result" in run(capsys, "verify", copy, code=1)


def test_a_hanging_program_is_ended(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "bin" / "small").write_text("#!/bin/sh\necho so far\nsleep 100\n")
    seal(copy)
    for seconds in TIMES:
        err = run(capsys, "verify", copy, "--timeout", seconds, code=4)
        assert f"did not end within {seconds:g} s" in err
        if "so far" in err:
            return
    pytest.fail(err)


def test_a_program_that_lost_its_mode_is_explained(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "bin" / "small").chmod(0o644)
    assert "chmod +x" in run(capsys, "verify", copy, code=2)


def test_an_unknown_runner_is_explained(small_bundle: Bundle, capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no runner 'qemuu'" in run(
        capsys, "verify", small_bundle.path, "--runner", "qemuu", code=2
    )


def test_bench_reports_what_the_loader_measured(
    small_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    data = run_json(
        capsys, "bench", small_bundle.path, "--threads", 1, "--runs", 7, "--warmup", 1, "--profile"
    )
    assert len(data["runs_ms"]) == 7
    assert len(data["steps_us"]) == 2
    assert data["real_speed"] is True
    assert 0 < data["min_ms"] <= data["median_ms"] <= data["p90_ms"] <= data["p99_ms"] <= max(data["runs_ms"])
    assert data["load_ms"] > 0
    assert data["first_result_ms"] > data["load_ms"]
    assert data["peak_rss_bytes"] > data["arena_bytes"] == 128
    out = run(capsys, "bench", small_bundle.path, "--runs", 3, "--profile")
    assert all(
        word in out for word in ("median", "p90", "p99", "first result", "peak memory", "Add_0, Relu_0")
    )
    assert "emulator" not in out


def test_threads_that_firmware_does_not_have_are_refused_by_name(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("qemu-system-arm") is None:
        pytest.skip("there is no qemu-system-arm")
    fake.install("ok", monkeypatch.setattr)
    bundle = pack(small_model, "cortex-m4", tmp_path / "small")
    for command in (("bench", bundle.path, "--runs", 1), ("verify", bundle.path)):
        err = run(capsys, *command, "--threads", 4, code=2)
        assert "computes on one thread, not 4: firmware has no more." in err
        assert "mps2-an386" in run(capsys, *command, "--threads", 1)


def test_the_profile_names_rules_and_sets_steps_against_the_peak(
    small_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ("bench", small_bundle.path, "--threads", 2, "--runs", 3, "--profile", "--peak", 1)
    data = run_json(capsys, *arguments)
    steps = data["profile"]
    assert [(s["first_step"], s["last_step"], s["nodes"]) for s in steps] == [
        (0, 0, ["Mul_0"]),
        (1, 1, ["Add_0", "Relu_0"]),
    ]
    assert [step["us"] for step in steps] == data["steps_us"]
    assert sum(step["share"] for step in steps) == pytest.approx(1)
    assert steps[1]["parameters"] == {"tile": 8}
    for step in steps:
        if step["of_peak"] is not None:  # of 1 GFLOPS for each of the two threads
            assert step["of_peak"] == pytest.approx(step["gflops"] / 2)
    out = run(capsys, *arguments)
    assert all(word in out for word in ("GFLOPS", "GB/s", "of peak", "tile=8"))
    assert "of peak" not in run(capsys, *arguments[:-2]), "nothing is known of it"
    assert "--peak is for --profile" in run(capsys, "bench", small_bundle.path, "--peak", 1, code=2)


def test_inspect_shows_signature_sizes_memory_and_audit(
    small_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run(capsys, "inspect", small_bundle.path)
    for text in (
        "small for host",
        "float32  4x8",
        "(x + 3) * 0.0625\n",
        "lib/libsmall.so",
        "least possible 128 B (+0.0%)",
        "at step 0: 128 B of 128 B",
        "edgepack_model_small",
        "warning: this model was made by hand",
    ):
        assert text in out
    assert "tile=8" not in out
    assert "tile=8" in run(capsys, "inspect", small_bundle.path, "--kernels")
    assert re.search(r"#{32} peak +0 +128 B +Mul_0\n", run(capsys, "inspect", small_bundle.path, "--memory"))
    data = run_json(capsys, "inspect", small_bundle.path / "manifest.json")
    assert [step["nbytes"] for step in data["arena_use"][0]["steps"]] == [128, 128]
    assert "arena_use" not in json.loads((small_bundle.path / "manifest.json").read_text())
    meanings = [one.get("quantisation") for one in (*data["inputs"], *data["outputs"])]
    assert meanings == [None, None, {"scale": 0.0625, "zero_point": -3}]
    assert data["runtime"]["text_bytes"] <= 32 * 1024
    assert data["artifacts"][0]["audit"]["exported"] == ["edgepack_model_small"]


def test_inspect_shows_a_model_file(small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "inspect", small_model)
    assert "small.onnx: 5 nodes" in out
    assert "input   input   float32  4x8" in out
    assert re.search(r"^Relu +1$", out, re.MULTILINE)
    assert run_json(capsys, "inspect", small_model)["nodes"] == 5
    assert "are for bundles" in run(capsys, "inspect", small_model, "--memory", code=2)


def test_inspect_says_what_a_model_still_needs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Open dimensions with the options that bind them, and operators that cannot be compiled."""
    x = helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["batch", None])
    y = helper.make_tensor_value_info("y", onnx.TensorProto.STRING, None)
    node = helper.make_node("StringNormalizer", ["ids"], ["y"], name="norm_7")
    graph = helper.make_graph([node], "g", [x], [y])
    path = tmp_path / "open.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    out = run(capsys, "inspect", path)
    assert "batchx?" in out
    assert "note: input ids has open dimensions (batch, dimension 1); bind them with --shape ids=..." in out
    assert "warning: StringNormalizer cannot be compiled: norm_7" in out
    assert "not declared" in out


def test_a_damaged_manifest_is_named(copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (copy / "manifest.json").write_text("{")
    assert "manifest.json is not JSON" in run(capsys, "inspect", copy, code=2)


def test_a_cpu_without_the_features_is_told_which_it_lacks(
    small_bundle: Bundle, small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """qemu's oldest 64-bit PC has no AVX."""
    board = tmp_path / "avx.yaml"
    board.write_text("extends: linux-x86_64-v3\nrunner: {name: qemu, cpu: qemu64}\n", encoding="utf-8")
    done = fake.run("ok", "pack", small_model, "--device", board, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    err = run(capsys, "verify", tmp_path / "out", "--runner", "qemu", code=1)
    assert "refused to run (EP_E_CPU): This CPU lacks features" in err
    assert "(missing: " in err
    assert "avx2" in err.rsplit("missing: ", 1)[1]


def test_inspecting_a_bundle_imports_nothing_heavy(small_bundle: Bundle) -> None:
    code = (
        "import sys\n"
        "from edgepack.cli.main import main\n"
        f"assert main(['inspect', {str(small_bundle.path)!r}]) == 0\n"
        "assert not {'tvm', 'onnx', 'onnxruntime', 'lief', 'rich', 'numpy'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX's")
@pytest.mark.parametrize("no_color", [pytest.param("", marks=pytest.mark.slow), "1"])
def test_on_a_terminal_progress_is_one_line_that_goes_away(
    small_model: Path, tmp_path: Path, no_color: str
) -> None:
    import pty

    parent, child = pty.openpty()
    environment = fake.env(NO_COLOR=no_color, TERM="xterm", COLUMNS="100")
    command = fake.argv("ok", "pack", small_model, "-o", tmp_path / "out")
    process = subprocess.Popen(command, env=environment, stdout=child, stderr=child, stdin=child)
    os.close(child)
    shown = b""
    while True:
        try:
            part = os.read(parent, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not part:
            break
        shown += part
    os.close(parent)
    assert process.wait() == 0, shown
    text = shown.decode("utf-8")
    assert re.search(r"(start|read model) 0:00:\d\d +\d+%", text), "a stage, its time, the share of the whole"
    assert "\x1b[2K" in text, "the line is erased"
    assert "[   0." not in text, "lines are for pipes"
    assert ("\x1b[1m" in text) == (no_color == ""), "headings are bold unless NO_COLOR"


HANGING = "#!/bin/sh\nsleep 600 &\necho $! > '{pid}.new'\nmv '{pid}.new' '{pid}'\nwait\n"


def _started(*arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "edgepack", *map(str, arguments)],
        env=fake.env(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 (no threads here)
    )


def _wait_for(process: subprocess.Popen[str], seen: Callable[[], int]) -> int:
    """The process id that is seen."""
    late = time.monotonic() + 120
    while not (pid := seen()):
        assert process.poll() is None and time.monotonic() < late
        time.sleep(0.02)
    return pid


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_ctrl_c_ends_a_bundles_program_and_its_children(copy: Path, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    program = next(one.path for one in Bundle(copy).manifest.artifacts if one.kind == "program")
    (copy / program).write_text(HANGING.format(pid=pid))
    seal(copy)
    process = _started("verify", copy)
    child = _wait_for(process, lambda: int(pid.read_text()) if pid.exists() else 0)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err.splitlines()[-1] == "edgepack: interrupted; nothing was left behind."
    assert ends(child)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="needs qemu-user")
def test_ctrl_c_ends_an_emulator_within_a_second(small_bundle: Bundle) -> None:
    """On a machine that has nothing else to do."""
    process = _started("bench", small_bundle.path, "--runner", "qemu", "--runs", 10**9)

    def emulator() -> int:
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        names = {int(pid): Path(f"/proc/{pid}/cmdline").read_text() for pid in children}
        return next((pid for pid, name in names.items() if "qemu" in name and "--runs" in name), 0)

    child = _wait_for(process, emulator)
    since = time.monotonic()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    seconds = time.monotonic() - since
    print(f"emulator, SIGINT: {seconds:.2f} s")
    assert process.returncode == 130 and ends(child)
    assert seconds < 1
