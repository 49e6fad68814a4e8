"""A bundle for WebAssembly in a real browser, headless: verified, measured, its demo page used."""

from __future__ import annotations

import json
import shutil
import struct
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import edgepack
from edgepack.config.device import Device, load_device
from edgepack.errors import ToolchainError
from edgepack.runners import browser, chromium
from edgepack.toolchains import resolve
from tests.support.processes import printed_before_the_end
from workbench.models.evaluate import run_onnxruntime

DEVICE = "wasm32-wasi"
HERE = Path(__file__).parent
NEEDS_BROWSER = pytest.mark.skipif(
    browser.find_browser() is None, reason="no browser is here: apt-get install chromium"
)


def visit(bundle: edgepack.Bundle, case: str, folder: Path) -> Any:
    """What the case of page.js saw."""
    for name in ("page.html", "page.js"):
        shutil.copyfile(HERE / name, folder / name)
    found = browser.find_browser()
    assert found is not None
    folders = {"bundle": bundle.path, "test": folder}
    posts = browser.browse(found, folders, f"test/page.html?{case}", timeout=120, what=f"page.html?{case}")
    seen = json.loads(posts["end"])
    assert "failed" not in seen, seen["failed"]
    return seen


@NEEDS_BROWSER
@pytest.mark.parametrize("mode", ["file", pytest.param("embed", marks=pytest.mark.slow)])
def test_network_agrees_with_onnxruntime(mode: str, npm_bundles: dict[str, edgepack.Bundle]) -> None:
    result = npm_bundles[mode].verify(runner="chromium")
    assert result.ok, result
    assert (result.runner, result.threads) == ("chromium", 1)


@NEEDS_BROWSER
def test_is_measured_with_its_steps(npm_bundles: dict[str, edgepack.Bundle]) -> None:
    bundle = npm_bundles["file"]
    measured = bundle.bench(runner="chromium", runs=30, warmup=1, profile=True)
    assert measured.real_speed and "Chrom" in measured.where
    assert len(measured.runs_ms) == 30 and min(measured.runs_ms) > 0
    # A page that is not isolated has a clock of 100 us.
    assert any(value % 0.1 > 0.001 for value in measured.runs_ms)
    assert len(measured.steps_us) == len(bundle.manifest.steps)
    assert measured.peak_rss_bytes > measured.arena_bytes


@NEEDS_BROWSER
def test_the_package_works_in_a_page_and_its_worker(
    npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path
) -> None:
    bundle = npm_bundles["file"]
    seen = visit(bundle, "package", tmp_path)
    (output,) = bundle.manifest.recorded.outputs
    want = np.fromfile(bundle.path / output.file, output.dtype)
    for values in (seen["values"], seen["far"]):
        np.testing.assert_allclose(values, want, rtol=output.rtol, atol=output.atol)
    assert seen["left"] == 0
    assert seen["wrong"] == ["INPUT", "The inputs are not the model's: input is missing; it has input."]
    assert seen["missing"][0] == "FETCH" and "test/nothing: 404" in seen["missing"][1]
    nbytes = (bundle.path / "params/image.params").stat().st_size
    assert seen["progress"] == [nbytes, nbytes]
    assert seen["memory"]["arena"] == bundle.manifest.memory.arena


@NEEDS_BROWSER
def test_demo_runs_the_recorded_input(npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path) -> None:
    bundle = npm_bundles["file"]
    seen = visit(bundle, "recorded", tmp_path)
    assert (seen["ready"], seen["image"]) == ("Ready.", True)
    shown = seen["shown"]
    assert (shown["status"], shown["error"]) == ("Ran the recorded input.", False)
    assert shown["titles"] == ["logits (float32 1 x 100)"]
    assert top(shown) == best(np.fromfile(bundle.path / "test/output_0.bin", np.float32))
    numbers = shown["numbers"]
    assert float(numbers["Largest difference from the recorded outputs"]) < 1e-4
    latency, unit, *_ = numbers["Latency"].split()
    assert float(latency) > 0 and unit == "ms"
    assert numbers["Memory"].endswith("MiB params")


@NEEDS_BROWSER
def test_demo_shows_an_output_as_what_it_is(npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path) -> None:
    """Classes only where values, a name or the user's labels say so: an embedding has none, and no shares."""
    seen = visit(npm_bundles["file"], "results", tmp_path)
    assert seen["embedding"] == [
        ["First of 3", "Least", "Most", "Mean", "Norm"],
        ["0.6, -0.8, 0", "-0.80000", "0.60000", "-0.066667", "1.0000"],
    ]
    assert seen["logits"][0] == ["Top results", "Score", "Share"]
    assert [row[0] for row in seen["logits"][1:]] == ["class 1", "class 0", "class 2"]
    assert seen["shares"][1:] == [["class 1", "0.75000", "75.0 %"], ["class 0", "0.25000", "25.0 %"]]
    assert seen["apart"][:2] == [["Top results", "Score"], ["class 0", "0.90000"]]
    assert seen["labelled"][1][0] == "dog"
    assert seen["image"][0] == ["First of 4", "Least", "Most", "Mean"]


@NEEDS_BROWSER
def test_demo_offers_no_image_where_none_is_taken(
    npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path
) -> None:
    seen = visit(npm_bundles["embed"], "recorded", tmp_path)
    assert (seen["ready"], seen["image"], seen["shown"]["error"]) == ("Ready.", False, False)
    assert seen["shown"]["titles"] == [
        '"quoted" \\ y (float32 2 x 4)',
        "class (int64 2)",
        "__proto__ (bool 2 x 3)",
    ]
    assert float(seen["shown"]["numbers"]["Largest difference from the recorded outputs"]) < 1e-4


@NEEDS_BROWSER
def test_demo_runs_an_image_that_is_chosen_or_dropped(
    npm_bundles: dict[str, edgepack.Bundle], tmp_path: Path
) -> None:
    bundle = npm_bundles["file"]
    rng = np.random.default_rng(3)
    # The middle 32 rows are what the model is to see.
    pixels = rng.integers(0, 256, (48, 32, 3), np.uint8)
    (tmp_path / "picture.png").write_bytes(png(pixels))
    planes = pixels[8:40].transpose(2, 0, 1).astype(np.float32)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    normalised = (planes / 255 - mean[:, None, None]) / std[:, None, None]
    wanted = best(reference(bundle, normalised))
    seen = visit(bundle, "image", tmp_path)
    assert seen["chosen"]["status"] == "Ran picture.png."
    assert top(seen["chosen"]) == wanted
    scaled = best(reference(bundle, planes))
    assert top(seen["scaled"]) == scaled != wanted
    assert top(seen["named"]) == [(name.replace("class", "name"), score) for name, score in scaled]
    assert seen["refused"]["status"] == "notes.txt is no image that this browser can read."
    assert seen["dropped"]["status"] == "Ran picture.png." and top(seen["dropped"])[0][1] == scaled[0][1]


def reference(bundle: edgepack.Bundle, planes: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """What ONNX Runtime gives for an image."""
    (scores,) = run_onnxruntime(bundle.path.parent / "image.onnx", {"input": planes[None].astype(np.float32)})
    return scores


def best(scores: np.ndarray[Any, Any]) -> list[tuple[str, float]]:
    order = np.argsort(-scores.ravel())[:5]
    return [(f"class {k}", pytest.approx(float(scores.ravel()[k]), rel=1e-3)) for k in order]


def top(shown: Any) -> list[tuple[str, float]]:
    (table,) = shown["tables"]
    assert table[0] == ["Top results", "Score", "Share"]
    return [(name, float(score)) for name, score, _ in table[1:]]


def png(pixels: np.ndarray[Any, Any]) -> bytes:
    """An image file: RGB, 8 bits."""
    height, width, _ = pixels.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + chunks


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that reads, refuses to write, exits, crashes or hangs, as its argument says."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "some file.txt").write_text("0123456789")
    (folder / "ends.c").write_text(
        "#include <stdio.h>\n#include <stdlib.h>\n"
        "int main(int argc, char **argv) {\n"
        "    char text[5] = {0};\n"
        '    FILE *file = fopen("some file.txt", "rb");\n'
        "    if (file == NULL || fseek(file, -4, SEEK_END) != 0 || fread(text, 1, 4, file) != 4) return 90;\n"
        '    if (fopen("new.txt", "wb") != NULL || fopen("missing", "rb") != NULL) return 91;\n'
        '    printf("%d %s %s\\n", argc, argv[0], text);\n    fflush(stdout);\n'
        '    fprintf(stderr, "said\\n");\n'
        "    if (argv[1][0] == 'c') { __builtin_trap(); }\n"
        "    for (volatile int i = 0; argv[1][0] == 'h'; i++) { }\n"
        "    return atoi(argv[1]);\n}\n"
    )
    toolchain = resolve(load_device(DEVICE))
    toolchain.compile_c(folder / "ends.c", folder / "ends.o")
    toolchain.link_program([folder / "ends.o"], folder / "ends ä.wasm")
    return folder / "ends ä.wasm"


@NEEDS_BROWSER
def test_a_programs_end_comes_back(program: Path) -> None:
    done = chromium.run(load_device(DEVICE), [program, "3"], timeout=60, cwd=program.parent)
    assert (done.returncode, done.stdout, done.stderr) == (3, "2 ends ä.wasm 6789\n", "said\n")


@NEEDS_BROWSER
def test_a_trap_is_told(program: Path) -> None:
    done = chromium.run(load_device(DEVICE), [program, "crash"], timeout=60, cwd=program.parent)
    assert done.returncode not in {0, 2}
    assert "6789" in done.stdout and "unreachable" in done.stderr


@NEEDS_BROWSER
def test_a_program_that_hangs_is_ended_with_what_it_printed(program: Path) -> None:
    def run(seconds: float) -> object:
        return chromium.run(load_device(DEVICE), [program, "hang"], timeout=seconds, cwd=program.parent)

    printed_before_the_end(run, "6789", r"ends ä\.wasm in ", (2, 30))


def of_browser(program: str) -> Device:
    """The device with another executable for the runner."""
    device = load_device(DEVICE)
    return device.model_copy(
        update={"runner": device.runner.model_copy(update={"name": "chromium", "program": program})}
    )


def test_a_browser_that_ends_is_told_with_what_it_said(tmp_path: Path) -> None:
    script = tmp_path / "browser"
    script.write_text("#!/bin/sh\necho no display >&2\nexit 7\n")
    script.chmod(0o755)
    with pytest.raises(ToolchainError, match="The browser ended with exit code 7") as caught:
        chromium.run(of_browser(str(script)), [tmp_path / "x.wasm"], timeout=30, cwd=tmp_path)
    assert "no display" in caught.value.detail


def test_a_missing_browser_is_told(tmp_path: Path) -> None:
    device = of_browser(str(tmp_path / "nothing"))
    ok, _, hint = chromium.available(device)
    assert not ok and "install" in hint
    with pytest.raises(ToolchainError, match="chromium cannot run programs of wasm32-wasi here"):
        chromium.run(device, [tmp_path / "x.wasm"], timeout=30, cwd=tmp_path)
    assert not chromium.available(load_device("linux-x86_64")).ok


@contextmanager
def serving(folder: Path) -> Iterator[str]:
    with browser._served(browser._Visit({"files": folder})) as root:
        yield root


@pytest.mark.parametrize(
    "path", ["", "files/", "files/../outside.txt", "files/%2e%2e/outside.txt", "other/a.txt"]
)
def test_nothing_but_the_folders_is_served(path: str, tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files/a.txt").write_text("inside")
    (tmp_path / "outside.txt").write_text("outside")
    with serving(tmp_path / "files") as root:
        with urllib.request.urlopen(f"{root}files/a.txt") as answer:
            assert answer.read() == b"inside"
        token = root.rstrip("/").rsplit("/", 1)[1]
        for address in (root + path, root.replace(token, "guessed") + "files/a.txt"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(address)
