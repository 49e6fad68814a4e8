"""The model as one file of C: compiled with no flags and with all warnings, by C and C++ callers, and for a
core without an operating system."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from edgepack.api import Bundle, export, pack
from edgepack.commands.export import source_bundle
from edgepack.errors import ConfigError
from edgepack.formats.c_single_file import C_SINGLE_FILE
from tests.support import fake
from tests.support.packages import blocks, hostile, on, run, tool, write
from workbench.models import build, save

WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")


@pytest.fixture(scope="module")
def packages(
    small_model: Path, small_bundle: Bundle, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The unpacked packages of a bundle with a params file, and of one with embedded params."""
    folder = tmp_path_factory.mktemp("sïngle file")
    with pytest.MonkeyPatch.context() as patch:
        fake.install("ok", patch.setattr)
        embed = pack(small_model, "host", folder / "bundle", params="embed")
    made = {}
    for mode, bundle in (("file", small_bundle), ("embed", embed)):
        (archive,) = write(C_SINGLE_FILE, [source_bundle(bundle.path)], folder / f"dist {mode}")
        shutil.unpack_archive(archive, folder / mode)
        (made[mode],) = (folder / mode).iterdir()
    return made


CHECK = """
#include "small.h"
#include <stdio.h>
#include <stdlib.h>
static float input[32], output[32];
static int8_t sign[32];
int main(int argc, char **argv) {
    ep_model model;
    ep_session *session = NULL;
    FILE *file = fopen(argv[1], "rb");
    if (file == NULL || fread(input, 4, 32, file) != 32) return 2;
    ep_status status = small_open(argc > 2 ? argv[2] : NULL, &model);
    if (status == EP_OK) status = ep_session_create(&model, NULL, &session);
    if (status == EP_OK) status = small_run(session, input, output, sign);
    if (status == EP_OK) status = ep_model_check_params(&model);
    for (int i = 0; i < 32; i++) printf("%.9g %d\\n", (double)output[i], sign[i]);
    ep_session_destroy(session);
    ep_model_close(&model);
    return fclose(file) != 0 || status != EP_OK;
}
"""


@pytest.mark.parametrize("mode", ["file", "embed"])
def test_the_readmes_program_compiles_with_no_flags_and_runs(
    mode: str, packages: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(packages[mode], tmp_path / "x y"))
    (folder / "app.c").write_text(blocks(folder / "README.md", "c")[0])
    (script,) = blocks(folder / "README.md", "sh")
    assert "-" not in script.replace("-o app", "")
    assert run("sh", "-e", "-c", script, cwd=folder) == "Success.\n"


@pytest.mark.parametrize(("cc", "cxx", "mode"), [("gcc", "g++", "file"), ("clang", "clang++", "embed")])
def test_without_warnings_and_right_from_c_and_cxx(
    cc: str, cxx: str, mode: str, packages: dict[str, Path], small_bundle: Bundle, tmp_path: Path
) -> None:
    folder = packages[mode]
    (tmp_path / "check.c").write_text(CHECK)
    shutil.copy(tmp_path / "check.c", tmp_path / "check.cpp")
    run(tool(cc), *WARNINGS, "-O1", "-c", folder / "small.c", cwd=tmp_path)
    linked = ("small.o", folder / "small_kernels.o", f"-I{folder}")
    cxx_flags = [flag for flag in WARNINGS if not flag.startswith("-std")]
    run(tool(cc), *WARNINGS, "check.c", *linked, "-o", "c", cwd=tmp_path)
    run(tool(cxx), *cxx_flags, "-std=c++11", "check.cpp", *linked, "-o", "cxx", cwd=tmp_path)
    recorded = small_bundle.manifest.recorded
    params = [folder / "small.params"] if mode == "file" else []
    for program in ("c", "cxx"):
        text = run(tmp_path / program, small_bundle.path / recorded.inputs[0].file, *params, cwd=tmp_path)
        got = np.array([line.split() for line in text.splitlines()], "f8")
        for column, tensor in enumerate(recorded.outputs):
            want = np.fromfile(small_bundle.path / tensor.file, tensor.dtype)
            np.testing.assert_allclose(got[:, column], want, rtol=1e-4, atol=1e-5)


def test_nothing_is_left_to_include_but_the_header_and_the_systems(packages: dict[str, Path]) -> None:
    for folder in packages.values():
        text = (folder / "small.c").read_text()
        quoted = [line for line in text.splitlines() if line.lstrip().startswith('#include "')]
        assert quoted == ['#include "small.h"']
        assert "incbin" not in text
        assert "edgepack/runtime.h>" not in (folder / "small.h").read_text()
    assert (packages["file"] / "small.params").is_file()
    assert not (packages["embed"] / "small.params").exists()
    assert (packages["file"] / "LICENSES" / "NOTICE.txt").is_file()


def test_compiles_for_a_core_without_an_operating_system(packages: dict[str, Path], tmp_path: Path) -> None:
    """The platform is found by the compiler's own macros; no define is needed. (The names of the features of
    this machine's CPU are another architecture's.)"""
    source = re.sub(r"EP_CPU_BIT\(EP_CPU_X86_64_\w+\)", "0u", (packages["embed"] / "small.c").read_text())
    (tmp_path / "small.c").write_text(source)
    zig = (sys.executable, "-m", "ziglang", "cc", "-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m4")
    flags = ("-Os", "-fno-sanitize=all", "-c", f"-I{packages['embed']}", "small.c", "-o", "small.o")
    run(*zig, *WARNINGS, *flags, cwd=tmp_path)
    undefined = run(tool("nm"), "--undefined-only", "small.o", cwd=tmp_path)
    names = {line.split()[-1] for line in undefined.splitlines()}
    kernels = {name for name in names if name.startswith("edgepack_small_")}
    assert kernels and names - kernels <= {"memcpy", "memset", "memmove", "edgepack_now_ns"} | {
        name for name in names if name.startswith("__aeabi_")
    }


def test_names_of_tensors_are_comments_at_most(small_bundle: Bundle, tmp_path: Path) -> None:
    (made,) = write(C_SINGLE_FILE, [hostile(small_bundle)], tmp_path / "dist")
    shutil.unpack_archive(made, tmp_path / "x")
    (readme,) = (tmp_path / "x").rglob("README.md")
    (program,) = blocks(readme, "c")
    assert program.count("static ") == 40 and program.isascii()


def test_what_cannot_be_one_file_is_refused(small_bundle: Bundle, tmp_path: Path) -> None:
    source = source_bundle(small_bundle.path)
    assert "--format npm" in C_SINGLE_FILE.refusal(on(source, os="wasi"))
    for wrong in ("../x", "a b", "@acme/x"):
        with pytest.raises(ConfigError, match="is no name of an archive"):
            export(small_bundle, ["c-single-file", "zip"], tmp_path / "dist", package_name=wrong)
        with pytest.raises(ConfigError, match="is no name of an archive"):
            export(small_bundle, "zip", tmp_path / "dist", package_name=wrong)
    assert not (tmp_path / "dist").exists() or not any((tmp_path / "dist").iterdir())


@pytest.mark.slow
def test_firmware_of_it_runs_on_an_emulated_board(tmp_path: Path) -> None:
    """The bundle's own check of recorded data, with the single file in place of the bundle's sources."""
    bundle = pack(save(build("ds_cnn"), tmp_path, "ds_cnn.onnx"), "cortex-m4", tmp_path / "bundle")
    (made,) = export(bundle, "c-single-file", tmp_path / "dist")
    shutil.unpack_archive(made, tmp_path / "x")
    (folder,) = (tmp_path / "x").iterdir()
    (tmp_path / "app.c").write_text(blocks(folder / "README.md", "c")[0])
    firmware = bundle.path / "firmware"
    (script,) = firmware.glob("mps2-*.ld")
    project = (firmware / "CMakeLists.txt").read_text()
    (listed,) = re.findall(r"^add_image\(ds_cnn_check (.*)\)$", project, re.MULTILINE)
    check = [firmware / name for name in listed.split()]
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", "thumb-freestanding-eabihf", "-Os"]
    zig += ["-mcpu=cortex_m4+vfp4d16sp", "-fno-sanitize=all", "-ffunction-sections", "-fdata-sections"]
    run(*zig, *WARNINGS, "-c", folder / "ds_cnn.c", cwd=tmp_path)
    run(*zig, f"-I{folder}", "-c", "app.c", cwd=tmp_path)
    includes = [f"-I{bundle.path / one}" for one in ("include", "src", "")]
    linking = ["-static", "-Wl,--gc-sections", "-Wl,-e,Reset_Handler", "-T", script, "-o", "check.elf"]
    objects = ["ds_cnn.o", folder / "ds_cnn_kernels.o"]
    run(*zig, *includes, *check, *objects, *linking, cwd=tmp_path)
    config = "enable=on,target=native,arg=x,arg=verify"
    options = ("-M", script.stem, "-nographic", "-semihosting-config", config, "-kernel", "check.elf")
    assert '"status": "ok"' in run(tool("qemu-system-arm"), *options, cwd=tmp_path)
