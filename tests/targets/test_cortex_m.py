"""Microcontrollers: firmware for Cortex-M4, M7, M33 and M55, packed, audited and run on qemu's boards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import lief
import pytest

import edgepack
from edgepack.config.device import Device, load_device
from edgepack.errors import CheckFailedError, ConfigError, InternalError, ToolchainError
from edgepack.objectfiles.audit import audit
from edgepack.objectfiles.elf.stack_depth import stack_bytes
from edgepack.runners import qemu_system
from edgepack.runners.recorded import device_of
from edgepack.runners.verify import verify
from edgepack.toolchains import resolve
from tests.support.firmware import COMPILERS, GCC, MODELS, Pack, linked_calls, needs_gcc, packing, say
from workbench.models import build, save
from workbench.models.builder import Graph

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Pack:
    """Packs a model for a device, once; not to be changed."""
    folder = tmp_path_factory.mktemp("firmware bündles")

    def toolchain(device: str) -> str:
        # zig compiles its libraries anew for each core, which takes some seconds.
        return GCC if shutil.which("arm-none-eabi-gcc") and device != "cortex-m4" else "zig"

    return packing(folder, MODELS, "ds_cnn", toolchain)


#: Every board, and a small network of another kind on two of them.
FIRMWARE = (
    ("cortex-m4", "ds_cnn"),
    ("cortex-m7", "image_cnn"),
    ("cortex-m33", "image_cnn"),
    ("cortex-m55", "image_cnn"),
)


@pytest.mark.parametrize(
    ("device", "model", "toolchain"),
    [
        (*FIRMWARE[0], "zig"),
        *(pytest.param(*board, "zig", marks=pytest.mark.slow) for board in FIRMWARE[1:]),
        *(pytest.param(*board, GCC, marks=needs_gcc) for board in FIRMWARE),
    ],
)
def test_firmware_runs_and_agrees_with_onnxruntime(
    device: str, model: str, toolchain: str, packed: Pack
) -> None:
    bundle = packed(device, model, toolchain)
    result = bundle.verify()
    assert result.ok, result
    assert result.runner == "qemu-system"
    assert str(load_device(device).runner.options["machine"]) in result.where


@pytest.mark.parametrize("toolchain", COMPILERS)
def test_functions_of_libm_are_there_and_right(toolchain: str, packed: Pack) -> None:
    assert packed("cortex-m4", "libm", toolchain).verify().ok


def test_the_readme_says_what_to_link_with(packed: Pack) -> None:
    assert "(`-lm`)" in (packed("cortex-m4").path / "README.md").read_text()


@pytest.mark.parametrize(
    ("device", "model"), [FIRMWARE[0], *(pytest.param(*one, marks=pytest.mark.slow) for one in FIRMWARE[1:])]
)
def test_bench_counts_the_instructions_of_a_run_and_of_each_step(
    device: str, model: str, packed: Pack
) -> None:
    """Exactly: with ticks of another length they are as many; steps are the run but for what calls them."""
    bundle = packed(device, model)
    measured = bundle.bench(runs=3)
    counted = measured.instructions
    assert counted is not None and counted.repeatable
    assert bundle.bench(warmup=1).instructions == counted
    steps = len(bundle.manifest.steps)
    assert len(counted.steps) == steps and min(counted.steps) > 50
    assert abs(counted.run - sum(counted.steps)) < 40 * steps
    assert max(counted.steps) > 100_000
    said = measured.to_json()
    assert said["instructions"]["run"] == counted.run
    assert not any(key.endswith(("_ms", "_us")) for key in said)
    call = qemu_system.call(
        device_of(bundle.manifest.device),
        [bundle.path / "bin" / f"{model}.elf", "bench", "--instructions"],
        cwd=bundle.path,
    )
    longer = ["shift=9,sleep=off" if word == "shift=7,sleep=off" else word for word in call.argv]
    printed = json.loads(subprocess.check_output(longer, text=True))
    assert set(printed["run_instructions"]) == {counted.run}
    assert printed["step_instructions"] == list(counted.steps)


def test_the_clock_measures_times_where_it_is_not_told_to_count(packed: Pack) -> None:
    """As a board without an emulator does; and a counter that does not count instructions is told."""
    code, said = say(packed("cortex-m4"), "bench", "--runs", "2", "--profile")
    times = said["runs_ms"], said["steps_us"]
    assert code == 0 and all(isinstance(part, list) and min(part) > 0 for part in times)
    bundle = packed("cortex-m4")
    call = qemu_system.call(
        device_of(bundle.manifest.device),
        [bundle.path / "bin" / "ds_cnn.elf", "bench", "--instructions"],
        cwd=bundle.path,
    )
    argv = [word for word in call.argv if word not in ("-icount", "shift=7,sleep=off")]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["code"]) == (2, "COUNTER")


def test_one_thread_is_all_that_there_is(packed: Pack) -> None:
    with pytest.raises(ConfigError, match="computes on one thread, not 2: firmware has no more"):
        packed("cortex-m4").verify(threads=2)


def test_the_stack_of_a_run_is_at_most_the_estimate(packed: Pack) -> None:
    """The board paints its stack and looks how far down the run wrote."""
    for device, model in FIRMWARE:
        bundle = packed(device, model)
        assert bundle.manifest.footprint is not None
        (stack,) = [p.ram for p in bundle.manifest.footprint.parts if p.name == "stack"]
        code, said = say(bundle, "verify")
        used = said["stack_bytes"]
        assert isinstance(used, int)
        assert code == 0
        assert 100 < used <= stack <= used + 256


@pytest.mark.parametrize("toolchain", COMPILERS)
@pytest.mark.parametrize("size", [8, 600, 5000, 70001])
@pytest.mark.parametrize("device", ["cortex-m4", "cortex-m0plus"])
def test_frames_of_all_sizes_are_read(device: str, size: int, toolchain: str, tmp_path: Path) -> None:
    """Each range of sizes has instructions of its own."""
    image = linked_calls(resolve(load_device(device), toolchain), tmp_path, size, "0")
    assert 2 * size <= stack_bytes(image) <= 2 * size + 256


def test_a_stack_without_an_end_is_refused(tmp_path: Path) -> None:
    again = "(x > 0 ? edgepack_run_net(x - 1) + x : 0)"
    with pytest.raises(InternalError, match="circle"):
        stack_bytes(linked_calls(resolve(load_device("cortex-m4")), tmp_path, 100, again))


def test_the_program_says_what_is_wrong_with_a_command(packed: Pack) -> None:
    for words in (
        (),
        ("nonsense",),
        ("bench", "--runs"),
        ("bench", "--runs", "x1"),
        ("bench", "--what", "1"),
    ):
        code, said = say(packed("cortex-m4"), *words)
        assert (code, said["status"], said["code"]) == (2, "error", "USAGE")
    code, said = say(packed("cortex-m4"), "check-params")
    assert (code, said["params_id"]) == (0, packed("cortex-m4").manifest.params.id)
    code, said = say(packed("cortex-m4"), "info")
    assert (code, said["name"]) == (0, "ds_cnn")


def test_wrong_results_are_found(packed: Pack, tmp_path: Path) -> None:
    """The image with one expected number changed."""
    bundle = packed("cortex-m4")
    image = tmp_path / "ds_cnn.elf"
    expected = (bundle.path / "test" / "output_0.bin").read_bytes()
    data = (bundle.path / "bin" / "ds_cnn.elf").read_bytes()
    assert data.count(expected) == 1
    image.write_bytes(data.replace(expected, expected[:4] + b"\0\0\x80?" + expected[8:]))
    device = device_of(bundle.manifest.device)
    done = qemu_system.run(device, [image, "verify"], timeout=60, cwd=tmp_path)
    said = json.loads(done.stdout)
    assert (done.returncode, said["status"], said["outputs"][0]["mismatches"]) == (1, "mismatch", 1)


# Flash and RAM


def test_inspect_reports_flash_and_ram_by_part(packed: Pack) -> None:
    bundle = packed("cortex-m4")
    found = bundle.manifest.footprint
    assert found is not None
    parts = {part.name: part for part in found.parts}
    assert list(parts) == ["kernels", "runtime", "params", "start and library", "arena", "data", "stack"]
    params = bundle.path / "params" / "ds_cnn.params"
    assert parts["params"].flash == params.stat().st_size
    assert 0 <= parts["arena"].ram - bundle.manifest.memory.arena < 64
    assert parts["runtime"].flash < 1024
    assert found.flash == sum(part.flash for part in found.parts)
    assert found.ram == sum(part.ram for part in found.parts)
    page = (ROOT / "docs" / "use" / "microcontrollers.md").read_text(encoding="utf-8")
    shown = page.partition("    total ")[2].split()[:4]  # 110.9 KiB 65.8 KiB
    sizes = [float(shown[0]) * 1024, float(shown[2]) * 1024]
    assert sizes == pytest.approx([found.flash, found.ram], rel=0.02), "docs/use/microcontrollers.md"
    done = subprocess.run(
        [sys.executable, "-m", "edgepack", "inspect", bundle.path],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=True,
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    for name in ("kernels", "runtime", "params", "arena", "stack", "total", "budget"):
        assert any(line[:1] == [name] for line in lines), done.stdout


def _smaller(flash: int, ram: int) -> Device:
    device = load_device("cortex-m4")
    return device.model_copy(update={"budget": device.budget.model_copy(update={"flash": flash, "ram": ram})})


@pytest.mark.parametrize(
    ("flash", "ram", "words"),
    [
        (105_000, 0, ["flash", "runtime", "too much"]),  # only the linked image is too large
        (0, 16 * 1024, ["RAM", "arena", "too much"]),  # also where layers are computed by rows
        pytest.param(0, 29 * 1024, ["RAM", "stack", "too much"], marks=pytest.mark.slow),
        # Seen before anything is linked:
        pytest.param(90 * 1024, 0, ["flash", "params", "too much"], marks=pytest.mark.slow),
    ],
)
def test_a_model_over_the_budget_fails_with_a_table(
    flash: int, ram: int, words: list[str], packed: Pack, tmp_path: Path
) -> None:
    found = packed("cortex-m4").manifest.footprint
    assert found is not None
    assert (found.flash > flash or not flash) and (found.ram > ram or not ram)
    model = save(build("ds_cnn"), tmp_path, "ds_cnn.onnx")
    with pytest.raises(CheckFailedError) as caught:
        edgepack.pack(model, _smaller(flash, ram), tmp_path / "out")
    assert caught.value.exit_code == 1
    assert words[0] in caught.value.message
    for word in words[1:]:
        assert word in caught.value.detail
    assert not (tmp_path / "out").exists()


def test_a_network_larger_than_the_device_does_not_fit_and_says_so(tmp_path: Path) -> None:
    g = Graph("large")
    g.op("Relu", g.linear(g.input("x", [1, 1024]), 1024, 1100), name="y")
    g.output("y")
    model = save(g.model(), tmp_path, "large.onnx")
    with pytest.raises(CheckFailedError, match=r"large is too large .*: it needs at least .* 4\.0 MiB are"):
        edgepack.pack(model, "cortex-m4", tmp_path / "out")


# What is refused


def test_params_in_a_file_are_refused(tmp_path: Path) -> None:
    model = save(build("ds_cnn"), tmp_path, "ds_cnn.onnx")
    with pytest.raises(ConfigError, match="no files"):
        edgepack.pack(model, "cortex-m4", tmp_path / "out", params="file")


def test_shared_libraries_are_refused(tmp_path: Path) -> None:
    device = load_device("cortex-m4").model_copy(update={"artifacts": ("shared", "static")})
    with pytest.raises(ConfigError, match="nothing that loads shared libraries"):
        edgepack.pack(save(build("ds_cnn"), tmp_path, "ds_cnn.onnx"), device, tmp_path / "out")


def test_a_library_alone_is_measured_too(tmp_path: Path) -> None:
    device = load_device("cortex-m4").model_copy(update={"artifacts": ("static",)})
    bundle = edgepack.pack(save(build("ds_cnn"), tmp_path, "ds_cnn.onnx"), device, tmp_path / "out")
    assert bundle.manifest.footprint is not None
    assert bundle.manifest.artifact("program") is None


@pytest.mark.slow  # tests/test_end_to_end.py has it for this machine
def test_two_packs_give_the_same_image(packed: Pack, tmp_path: Path) -> None:
    """From another folder, and compiled anew."""
    again = edgepack.pack(
        save(build("ds_cnn"), tmp_path, "ds_cnn.onnx"), "cortex-m4", tmp_path / "out", cache=False
    )
    assert (again.path / "SHA256SUMS").read_text() == (packed("cortex-m4").path / "SHA256SUMS").read_text()


def test_a_board_without_a_linker_script_is_named(tmp_path: Path) -> None:
    device = load_device("cortex-m4")
    runner = device.runner.model_copy(update={"options": {"machine": "netduino2"}})
    model = save(build("ds_cnn"), tmp_path, "ds_cnn.onnx")
    with pytest.raises(ConfigError, match="netduino2") as caught:
        edgepack.pack(model, device.model_copy(update={"runner": runner}), tmp_path / "out")
    assert "mps2-an386" in caught.value.hint


def test_the_example_of_the_docs_loads(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "use" / "microcontrollers.md").read_text(encoding="utf-8")
    _, body = text.split("<!-- file: my-chip.yaml -->\n```yaml\n", 1)
    file = tmp_path / "my-chip.yaml"
    file.write_text(body.split("```", 1)[0], encoding="utf-8")
    budget = load_device(file).budget
    assert (budget.flash, budget.ram) == (1 << 20, 128 << 10)


def test_a_budget_is_for_firmware_only(tmp_path: Path) -> None:
    file = tmp_path / "d.yaml"
    file.write_text("extends: linux-aarch64\nbudget: {flash: 1 MiB}\n")
    with pytest.raises(ConfigError, match="only firmware"):
        load_device(file)


def test_kernels_use_the_fpu_and_nothing_but_it(packed: Pack) -> None:
    """No call of a helper for arithmetic: neither float nor double is done in software."""
    for device, model in FIRMWARE:
        binary = lief.ELF.parse((packed(device, model).path / "src" / "kernels.o").read_bytes())
        assert binary is not None
        wanted = {str(s.name) for s in binary.symtab_symbols if s.name and s.shndx == 0}
        assert not [name for name in wanted if name.startswith("__aeabi_") and "mem" not in name]


# The runner


def test_without_qemu_the_hint_is_a_command(packed: Pack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(ToolchainError) as caught:
        packed("cortex-m4").verify()
    assert "apt-get install qemu-system-arm" in caught.value.hint


#: Of a Cortex-M0+ a word that is not aligned, which the Cortex-M3 would read that runs its image.
CRASHES = {"cortex-m4": "udf 0", "cortex-m0plus": "movs r0, #1\\n ldr r0, [r0]"}


@pytest.mark.parametrize("device", CRASHES)
def test_a_crash_is_reported(device: str, tmp_path: Path, packed: Pack) -> None:
    """A fault of the processor ends the program with a status that no result has."""
    toolchain = resolve(load_device(device))
    (tmp_path / "main.c").write_text(
        f'int main(void);\nint main(void) {{ __asm__ volatile("{CRASHES[device]}" ::: "r0"); return 0; }}\n'
    )
    toolchain.compile_c(tmp_path / "main.c", tmp_path / "main.o")
    from edgepack.bundle.firmware.project import link_trial

    bundle = shutil.copytree(packed("cortex-m4").path, tmp_path / "bundle")
    link_trial(toolchain, [tmp_path / "main.o"], bundle / "bin" / "ds_cnn.elf", tmp_path)
    with pytest.raises(CheckFailedError, match="exit code 99") as caught:
        verify(bundle, packed("cortex-m4").manifest)
    assert "reported a fault" in caught.value.detail


# The project in the bundle


@pytest.mark.parametrize(
    "toolchain", [pytest.param("zig", marks=pytest.mark.slow), pytest.param(GCC, marks=needs_gcc)]
)
def test_the_firmware_project_builds_and_runs(toolchain: str, packed: Pack, tmp_path: Path) -> None:
    """As its README says, with warnings as errors; then the bundle is left as it was."""
    bundle = packed("cortex-m33")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}

    def cmake(*arguments: str | Path) -> None:
        done = subprocess.run(
            ["cmake", *map(str, arguments)],
            cwd=bundle.path,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "warning" not in done.stdout + done.stderr

    flags = "-DCMAKE_C_FLAGS=-Wall -Wextra -Wpedantic -Wconversion -Werror"
    cmake("-S", "firmware", "-B", tmp_path, f"-DCMAKE_TOOLCHAIN_FILE={toolchain}.cmake", flags)
    cmake("--build", tmp_path)
    device = device_of(bundle.manifest.device)
    done = qemu_system.run(device, [tmp_path / "ds_cnn_check.elf", "verify"], timeout=60, cwd=tmp_path)
    assert json.loads(done.stdout)["status"] == "ok"
    example = qemu_system.run(device, [tmp_path / "ds_cnn_example.elf"], timeout=60, cwd=tmp_path)
    assert (example.returncode, example.stdout) == (0, "")
    assert stack_bytes(tmp_path / "ds_cnn_example.elf") > 100
    for image in ("ds_cnn_check.elf", "ds_cnn_example.elf"):
        report = audit(tmp_path / image, load_device("cortex-m33"), kind="program")
        assert "heap and files" in report.checks
    bundle.check_sums()
