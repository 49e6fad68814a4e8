"""The loader program: its commands, its JSON, its exit codes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.conftest import Build
from workbench.mini import MiniBundle, make_sources, reference, sample_inputs


def loader(bundle: MiniBundle, *arguments: str | Path, code: int = 0, timeout: float = 120) -> dict[str, Any]:
    """What the program printed, which must be one JSON object."""
    done = subprocess.run(
        [str(a) for a in (bundle.program, *arguments)], capture_output=True, check=False, timeout=timeout
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    assert done.stderr == b""
    result = json.loads(done.stdout.decode("utf-8"))
    assert isinstance(result, dict)
    return result


def test_info_tells_what_the_model_is(mini: MiniBundle) -> None:
    info = loader(mini, "info")
    assert info["name"] == "mini"
    assert info["inputs"][0] == {"name": "data", "dtype": "float32", "shape": [100, 16], "nbytes": 6400}
    assert [o["name"] for o in info["outputs"]] == ["data", "halves", "int", 'µ*/"']
    assert info["steps"] == 7
    assert info["params_embedded"] is False
    assert info["missing_cpu_features"] == ""


@pytest.mark.parametrize("arguments", [(), ("--threads", "1"), ("--threads", "3", "--schedule", "dynamic")])
def test_verify_accepts_the_recorded_outputs(mini: MiniBundle, arguments: tuple[str, ...]) -> None:
    result = loader(mini, "verify", mini.root / "test", *arguments)
    assert result["status"] == "ok"
    assert result["threads"] == int(
        dict(zip(arguments[::2], arguments[1::2], strict=True)).get("--threads", 2)
    )
    assert [o["name"] for o in result["outputs"]] == ["data", "halves", "int", 'µ*/"']
    first = result["outputs"][0]
    assert result["backend"] == "cpu"
    assert first["elements"] == 1600
    assert first["mismatches"] == 0
    assert first["max_abs_err"] <= first["atol"] + first["rtol"] * first["max_abs_ref"]
    exact = reference(sample_inputs())[0].astype(np.float64)
    assert first["max_abs_ref"] == pytest.approx(float(np.abs(exact).max()))
    assert first["sum_sq_ref"] == pytest.approx(float((exact**2).sum()))
    assert 0 <= first["sum_sq_err"] <= first["elements"] * first["max_abs_err"] ** 2 * 1.001


def on_a_terminal(bundle: MiniBundle, *arguments: str | Path, code: int = 0) -> str:
    """What a person sees of it."""
    pty = pytest.importorskip("pty", reason="the system has no such terminals")
    own, theirs = pty.openpty()
    done = subprocess.run([str(a) for a in (bundle.program, *arguments)], stdout=theirs, check=False)
    os.close(theirs)
    shown = os.read(own, 1 << 16).decode().replace("\r\n", "\n")
    os.close(own)
    assert done.returncode == code, shown
    return shown


def test_verify_tells_a_person_in_a_line_and_a_program_in_json(mini: MiniBundle, tmp_path: Path) -> None:
    """A program that has a terminal asks for --json. Names of others act on no terminal."""
    test = mini.root / "test"
    assert on_a_terminal(mini, "verify", test) == "ok: mini: the outputs are as recorded; 2 threads, cpu\n"
    assert json.loads(on_a_terminal(mini, "verify", test, "--json"))["status"] == "ok"
    assert loader(mini, "verify", test, "--json")["status"] == "ok"
    assert json.loads(on_a_terminal(mini, "info"))["name"] == "mini"
    wrong = tmp_path / "test"
    shutil.copytree(test, wrong)
    array = reference(sample_inputs())[3].reshape(-1).copy()
    array[3] = ~array[3] if array.dtype == np.bool_ else array[3] + 1
    (wrong / "output_3.bin").write_bytes(array.tobytes())
    first, second = on_a_terminal(mini, "verify", wrong, code=1).splitlines()
    assert first == "FAILED: mini: outputs differ from the recorded ones; 2 threads, cpu"
    assert re.fullmatch(r"  \\xc2\\xb5\*/\": 1 of \d+ elements are off, by 1 at most; .* is allowed", second)
    assert on_a_terminal(mini, "verify", tmp_path / "none", code=2).startswith("error FILE: The file cannot")
    assert on_a_terminal(mini, "verify", test, "--no", code=2).startswith("error USAGE: The option or its")


@pytest.mark.parametrize("variant", ["address", "thread"])
def test_verify_and_bench_are_clean_under_sanitizers(build: Build, variant: str) -> None:
    bundle = build(variant)
    assert loader(bundle, "verify", bundle.root / "test", "--threads", "3")["status"] == "ok"
    assert loader(bundle, "bench", "--runs", "3", "--profile", "--threads", "2")["status"] == "ok"


@pytest.mark.parametrize(("output", "mismatches"), [(0, 1), (1, 1), (2, 1), (3, 1)])
def test_verify_finds_one_wrong_element(
    mini: MiniBundle, tmp_path: Path, output: int, mismatches: int
) -> None:
    shutil.copytree(mini.root / "test", tmp_path / "test")
    array = reference(sample_inputs())[output]
    flat = array.reshape(-1).copy()
    flat[3] = ~flat[3] if flat.dtype == np.bool_ else flat[3] + 1
    (tmp_path / "test" / f"output_{output}.bin").write_bytes(flat.tobytes())
    result = loader(mini, "verify", tmp_path / "test", code=1)
    assert result["status"] == "mismatch"
    assert [o["mismatches"] for o in result["outputs"]] == [mismatches * (i == output) for i in range(4)]


def test_nan_equals_nan_and_nothing_else(mini: MiniBundle, tmp_path: Path) -> None:
    shutil.copytree(mini.root / "test", tmp_path / "test")
    data, small = sample_inputs()
    data[5, 3] = np.nan
    (tmp_path / "test" / "input_0.bin").write_bytes(data.tobytes())
    outputs = reference([data, small])
    (tmp_path / "test" / "output_0.bin").write_bytes(outputs[0].tobytes())
    assert loader(mini, "verify", tmp_path / "test")["status"] == "ok"
    finite = np.nan_to_num(outputs[0])
    (tmp_path / "test" / "output_0.bin").write_bytes(finite.tobytes())
    result = loader(mini, "verify", tmp_path / "test", code=1)
    assert result["outputs"][0]["mismatches"] == int(np.isnan(outputs[0]).sum()) > 0
    assert result["outputs"][0]["max_abs_err"] is None


def test_verify_finds_a_kernel_that_reads_what_nobody_wrote(tmp_path: Path) -> None:
    bundle = make_sources(tmp_path / "bundle")
    # The arena's last buffer is read before the step that writes it.
    source = bundle.root / "src" / "model.c"
    text = source.read_text(encoding="utf-8")
    assert text.count("mini_total(EP_ARENA(6400), EP_ARENA(12800), lo, hi)") == 2
    text = text.replace("mini_total(EP_ARENA(6400), EP_ARENA(12800), lo, hi)", "0")
    source.write_text(text, encoding="utf-8", newline="\n")
    bundle.build(flags=("-O0",), shared=False)
    assert loader(bundle, "verify", bundle.root / "test", code=1)["status"] == "unrepeatable"


def test_verify_finds_a_kernel_that_writes_beyond_its_output(tmp_path: Path) -> None:
    bundle = make_sources(tmp_path / "bundle")
    source = bundle.root / "src" / "model.c"
    text = source.read_text(encoding="utf-8")
    assert "EP_OUTPUT(3, 0)" in text
    source.write_text(text.replace("EP_OUTPUT(3, 0)", "EP_OUTPUT(3, 8)"), encoding="utf-8", newline="\n")
    bundle.build(flags=("-O0",), shared=False)
    assert loader(bundle, "verify", bundle.root / "test", code=1)["status"] == "overrun"


def test_bench_measures_runs_steps_and_memory(mini: MiniBundle) -> None:
    result = loader(mini, "bench", "--threads", "2", "--warmup", "1", "--runs", "5", "--profile")
    assert result["threads"] == 2
    assert len(result["runs_ms"]) == 5
    assert len(result["steps_us"]) == 7
    assert all(value > 0 for value in result["runs_ms"])
    assert 0 < result["load_ms"] < result["first_result_ms"]
    assert result["arena_bytes"] == mini.plan.arena.nbytes < result["session_bytes"]
    # The loader's own, not what its parent used before exec.
    assert 0 < result["peak_rss_bytes"] < 16 << 20
    assert result["backend"] == "cpu"
    assert "steps_us" not in loader(mini, "bench", mini.root / "test", "--runs", "1")


def test_run_reads_and_writes_files(mini: MiniBundle, tmp_path: Path) -> None:
    inputs = [mini.root / "test" / f"input_{i}.bin" for i in range(2)]
    loader(
        mini,
        *("run", "--input", f"data={inputs[0]}", "--input", f"small.numbers={inputs[1]}"),
        *("--output", f"data={tmp_path / 'data.bin'}", "--output", f'µ*/"={tmp_path / "µ.bin"}'),
    )
    expected = reference(sample_inputs())
    np.testing.assert_allclose(
        np.fromfile(tmp_path / "data.bin", np.float32), expected[0].reshape(-1), rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(np.fromfile(tmp_path / "µ.bin", np.int64), expected[3])


def test_params_are_found_from_any_folder_and_by_option(
    mini: MiniBundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert loader(mini, "check-params")["params_id"] == loader(mini, "info")["params_id"]
    moved = tmp_path / "über params"
    shutil.copyfile(mini.params, moved)
    assert loader(mini, "check-params", "--params", moved)["status"] == "ok"


def test_check_params_finds_a_flipped_byte(mini: MiniBundle, tmp_path: Path) -> None:
    data = bytearray(mini.params.read_bytes())
    data[-5] ^= 1
    (tmp_path / "damaged.params").write_bytes(data)
    result = loader(mini, "check-params", "--params", tmp_path / "damaged.params", code=1)
    assert result["code"] == "EP_E_PARAMS_HASH"
    # Without the check, loading does not read the data.
    bench = loader(mini, "bench", "--runs", "1", "--params", tmp_path / "damaged.params")
    assert bench["status"] == "ok"


def test_embedded_params_need_no_file(build: Build, tmp_path: Path) -> None:
    bundle = build("gcc", "embed")
    alone = tmp_path / "mini"
    shutil.copy(bundle.program, alone)
    done = subprocess.run([alone, "verify", bundle.root / "test"], capture_output=True, check=True)
    assert json.loads(done.stdout)["status"] == "ok"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), "USAGE"),
        (("frobnicate",), "USAGE"),
        (("verify",), "USAGE"),
        (("bench", "--threads", "0"), "USAGE"),
        (("bench", "--threads", "-1"), "USAGE"),
        (("bench", "--threads", "257"), "USAGE"),
        (("bench", "--runs", "18446744073709551617"), "USAGE"),
        (("bench", "--runs"), "USAGE"),
        (("bench", "--wat", "1"), "USAGE"),
        (("run", "--input", "nope=x"), "USAGE"),
        (("run",), "USAGE"),
        (("run", "--input", "data=/none", "--input", "small.numbers=/none"), "FILE"),
        (("verify", "/none"), "FILE"),
        (("check-params", "--params", "/none"), "EP_E_IO"),
        (("bench", "--params", "/"), "EP_E_IO"),
    ],
)
def test_errors_are_json_and_exit_2(mini: MiniBundle, arguments: tuple[str, ...], code: str) -> None:
    result = loader(mini, *arguments, code=2)
    assert result["status"] == "error"
    assert result["code"] == code
    assert result["message"]


def test_wrong_tolerances_name_the_line(mini: MiniBundle, tmp_path: Path) -> None:
    shutil.copytree(mini.root / "test", tmp_path / "test")
    file = tmp_path / "test" / "tolerances.txt"
    for text in ("0 0\n0 x\n0 0\n0 0\n", "0 0\n-1 0\n0 0\n0 0\n", "0 0\nnan 0\n0 0\n0 0\n", "0 0\n"):
        file.write_text(text, encoding="utf-8")
        result = loader(mini, "verify", tmp_path / "test", code=2)
        assert result["code"] == "TOLERANCES"
        assert "line 2" in result["message"]
    file.write_text("0 0\n" * 5, encoding="utf-8")
    assert "line 5" in loader(mini, "verify", tmp_path / "test", code=2)["message"]


def test_a_recorded_file_of_another_size_is_refused(mini: MiniBundle, tmp_path: Path) -> None:
    shutil.copytree(mini.root / "test", tmp_path / "test")
    for extra in (-1, 1):
        data = bytes(8 + extra)
        (tmp_path / "test" / "input_1.bin").write_bytes(data)
        assert loader(mini, "verify", tmp_path / "test", code=2)["code"] == "FILE"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
@pytest.mark.parametrize("command", ["check-params", "bench", "verify", "run"])
def test_params_that_are_a_pipe_or_a_device_are_refused_at_once(
    command: str, mini: MiniBundle, tmp_path: Path
) -> None:
    """Nobody writes into the pipe: to open it as a file would wait without end."""
    os.mkfifo(tmp_path / "pipe")
    wanted = {"verify": [mini.root / "test"], "run": inputs_of(mini)}.get(command, [])
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/tty")):
        result = loader(mini, command, *wanted, "--params", path, code=2, timeout=20)
        assert result["code"] == "EP_E_IO"


def inputs_of(mini: MiniBundle) -> list[str]:
    names = [tensor["name"] for tensor in loader(mini, "info")["inputs"]]
    files = [mini.root / "test" / f"input_{index}.bin" for index in range(len(names))]
    return [part for name, file in zip(names, files, strict=True) for part in ("--input", f"{name}={file}")]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
@pytest.mark.parametrize("name", ["input_0.bin", "output_0.bin", "tolerances.txt"])
@pytest.mark.parametrize("kind", ["pipe", "/dev/zero"])
def test_a_recorded_file_that_is_a_pipe_or_a_device_is_refused_at_once(
    name: str, kind: str, mini: MiniBundle, tmp_path: Path
) -> None:
    shutil.copytree(mini.root / "test", tmp_path / "test")
    file = tmp_path / "test" / name
    file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    else:
        file.symlink_to(kind)
    result = loader(mini, "verify", tmp_path / "test", code=2, timeout=20)
    assert result["code"] in {"FILE", "TOLERANCES"}
    if name == "input_0.bin":
        arguments = [part.replace(str(mini.root / "test" / name), str(file)) for part in inputs_of(mini)]
        assert loader(mini, "run", *arguments, code=2, timeout=20)["code"] == "FILE"


def test_help_is_text(mini: MiniBundle) -> None:
    done = subprocess.run([mini.program, "--help"], capture_output=True, check=True)
    assert b"check-params" in done.stdout
