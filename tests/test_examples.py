"""The examples: the commands of each README run as printed, and print what stands below them. A README has
them in one block of ``sh``, and the end of their output in one block of ``text`` (``...`` is anything)."""

from __future__ import annotations

import doctest
import functools
import http.server
import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
import zipfile
from pathlib import Path

import click
import pytest

from edgepack import registry
from edgepack.api import pack
from edgepack.bundle.firmware.project import _SUPPORT
from edgepack.cli.main import cli
from edgepack.commands.export import source_bundle
from edgepack.config.device import load_device
from edgepack.formats.aar import java_classes, native_half
from edgepack.formats.base import ExportJob
from edgepack.formats.metadata import PackageMetadata
from edgepack.runners import browser
from tests.support import devtools, packages
from workbench.stand_ins.android import make_ndk

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: Example -> the programs that its commands need beside edgepack's own.
TOOLS = {
    "android": (),
    "camera": ("aarch64-linux-gnu-gcc", "qemu-aarch64"),
    "cpp": ("aarch64-linux-gnu-g++", "cmake", "qemu-aarch64"),
    "firmware": ("arm-none-eabi-gcc", "cmake", "qemu-system-arm"),
    "keywords": ("cc", "arm-none-eabi-gcc", "cmake", "qemu-system-arm"),
    "python": (),
    "rust": ("cargo",),
    "swift": (),
    "web": ("node", "npm"),
}
CARGO = str(Path.home() / ".cargo" / "bin")


def commands(name: str) -> str:
    """The shell commands of an example's README."""
    (block,) = packages.blocks(EXAMPLES / name / "README.md", "sh")
    return block


def carried_out(name: str, folder: Path, **environment: str) -> tuple[Path, str]:
    """A copy of the example in which its commands have run, and what they printed."""
    for tool in TOOLS[name]:
        packages.tool(tool, CARGO)
    names = subprocess.check_output(["git", "ls-files", "-z", "--", ".."], cwd=EXAMPLES / name, text=True)
    for path in filter(None, names.split("\0")):
        target = folder / "examples" / name / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(EXAMPLES / name / path, target)
    place = folder / "examples" / name
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"], CARGO])
    command = ("bash", "-euo", "pipefail", "-c", commands(name))
    printed = packages.run(*command, cwd=place, PATH=path, **environment)
    for expected in packages.blocks(EXAMPLES / name / "README.md", "text"):
        assert doctest.OutputChecker().check_output(f"...\n{expected}", printed, doctest.ELLIPSIS), printed
    return place, printed


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_what_a_readme_names_is_there(name: str) -> None:
    """Its commands are shell, their files exist, and edgepack has the options, devices and formats."""
    block = commands(name)
    subprocess.run(["bash", "-n", "-c", block], check=True)
    lines = [shlex.split(line) for line in block.splitlines()]
    sources = [
        word for line in lines for word in line if re.fullmatch(r"[\w./-]+\.(py|c|cpp|mjs|cmake)", word)
    ]
    assert f"[{name}]({name}/README.md)" in (EXAMPLES / "README.md").read_text("utf-8")
    assert all((EXAMPLES / name / word).is_file() for word in sources)
    edgepack = [line[1:] for line in lines if line[0] == "edgepack"]
    assert edgepack
    for subcommand, *words in edgepack:
        command = cli.get_command(click.Context(cli), subcommand)
        assert command is not None
        options, _, _ = command.make_parser(click.Context(command)).parse_args(words)
        assert set(options.get("formats", ())) <= set(registry.EXPORT_FORMATS.names())
        if "device" in options:
            load_device(options["device"])


def test_the_firmware_links_all_of_a_boards_start_code() -> None:
    """What a bundle's own images link for the board, but for functions that newlib has."""
    project = (EXAMPLES / "firmware" / "CMakeLists.txt").read_text("utf-8")
    linked = {f"firmware/{name}" for name in re.findall(r"\$\{board\}/(\w+\.c)", project)}
    assert linked | {"firmware/library.c"} == set(_SUPPORT)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cpp", "firmware", "python", "rust"])
def test_it_does_what_its_readme_says(name: str, tmp_path: Path) -> None:
    carried_out(name, tmp_path)


@pytest.mark.slow
def test_the_camera_drops_what_comes_too_fast_and_shows_the_last_frame(tmp_path: Path) -> None:
    """Frames that come as fast as a disk gives them: none waits behind another, and the last is computed."""
    place, printed = carried_out("camera", tmp_path)
    counts = re.compile(r"^(\d+) frames in \S+ s: (\d+) computed .* (\d+) dropped$", re.MULTILINE)
    frames, computed, dropped = map(int, counts.findall(printed)[0])
    assert frames == 60 == computed + dropped
    run = f"{shlex.join(['qemu-aarch64', '-L', '/usr/aarch64-linux-gnu'])} ./camera 320 240 < recorded.yuv"
    printed = packages.run("bash", "-c", run, cwd=place)
    frames, computed, dropped = map(int, counts.findall(printed)[0])
    assert frames == 60 == computed + dropped
    assert dropped > 0
    assert "horizontal" in printed.splitlines()[-2]
    (place / "half.yuv").write_bytes((place / "recorded.yuv").read_bytes()[: 320 * 240])
    assert packages.run("bash", "-c", run.replace("recorded", "half"), cwd=place).startswith("0 frames")
    flags = ("-fsyntax-only", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
    for compiler in ("gcc", "clang"):
        packages.run(compiler, *flags, "-Ibundle/include", "camera.c", cwd=place)


@pytest.mark.slow
def test_the_page_shows_what_its_readme_says(tmp_path: Path) -> None:
    """Built by Vite of the registry, run in node, and opened in a browser."""
    try:
        place, _ = carried_out("web", tmp_path)
    except AssertionError as error:
        if "npm error network" in str(error):
            pytest.skip("npm cannot install vite")
        raise
    if browser.find_browser() is None:
        pytest.skip("no browser is here: apt-get install chromium")
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(place / "dist"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with devtools.open_page(f"http://127.0.0.1:{server.server_port}/") as page:
            until = time.monotonic() + 60
            while not (said := page.evaluate("document.querySelector('#result').value")):
                assert time.monotonic() < until
                time.sleep(0.1)
        server.shutdown()
    assert said == "vertical (1.000)"


@pytest.mark.slow
def test_swift_takes_the_package_and_computes_here(tmp_path: Path) -> None:
    """SwiftPM reads both manifests; the program is compiled and run over a bundle for this machine."""
    place, _ = carried_out("swift", tmp_path)
    for folder in (place, place / "stripes-1.0.0"):
        packages.run(packages.tool("swift"), "package", "dump-package", cwd=folder)
    here = pack(place / "stripes.onnx", "host", place / "here", params="embed").path
    (module,) = place.glob("stripes-1.0.0/stripes.xcframework/*/Headers/stripes/module.modulemap")
    shutil.copy(module, here / "include")
    swiftc, headers = packages.tool("swiftc"), here / "include"
    source = place / "stripes-1.0.0" / "Sources" / "stripesSwift" / "Session.swift"
    options = ("-emit-library", "-static", "-emit-module", "-module-name", "stripesSwift")
    packages.run(swiftc, *options, "-I", headers, source, cwd=place)
    libraries = ("libstripesSwift.a", here / "lib" / "libstripes.a", "-lm")
    program = place / "Sources" / "app" / "main.swift"
    packages.run(swiftc, program, "-o", "app", "-I", headers, "-I", place, *libraries, cwd=place)
    assert packages.run(place / "app", cwd=place) == "vertical (1.0)\n"


#: Draws what the activity draws.
CLASSIFY = """
import org.example.stripes.Classifier

fun main() {
    val pixels = IntArray(64 * 48) { if (it % 64 / 4 % 2 == 0) 0xffffff else 0 }
    Classifier().use { println(it.classify(pixels)) }
}
"""


@pytest.mark.slow
def test_the_app_takes_the_aar_and_computes_here(tmp_path: Path) -> None:
    """Compiled against the AAR's classes; run with its native half over a bundle for this machine."""
    place, _ = carried_out("android", tmp_path, ANDROID_NDK_HOME=str(make_ndk(tmp_path / "ndk")))
    kotlinc, library = packages.kotlinc()
    with zipfile.ZipFile(place / "app" / "libs" / "stripes-1.0.0.aar") as aar:
        (place / "classes.jar").write_bytes(aar.read("classes.jar"))
    here = source_bundle(pack(place / "stripes.onnx", "host", place / "here", params="embed").path)
    job = ExportJob([here], PackageMetadata(), place)
    with zipfile.ZipFile(place / "classes.jar") as jar:
        assert {name: jar.read(name) for name in jar.namelist()} == java_classes(job)
    target = f"{here.manifest.device.arch}-linux-gnu"
    (here.root / "lib" / "libstripes_jni.so").write_bytes(native_half(job, here, target))
    (place / "Main.kt").write_text(CLASSIFY)
    sources = place / "app" / "src" / "main" / "java" / "org" / "example" / "stripes"
    path = f"{place / 'classes.jar'}:{library}"
    packages.run(*kotlinc, "-cp", path, "Main.kt", sources / "Classifier.kt", "-d", "made", cwd=place)
    libraries = str(here.root / "lib")
    command = (packages.tool("java"), f"-Djava.library.path={libraries}", "-cp", f"made:{path}", "MainKt")
    assert packages.run(*command, cwd=place, LD_LIBRARY_PATH=libraries) == "vertical\n"
