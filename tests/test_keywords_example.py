"""examples/keywords: its features beside NumPy's, streams in pieces, and its README where the network is
(EDGEPACK_REAL_MODELS, docs/tflite.md)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import edgepack
from edgepack.compiler.frontend.tflite.model_file import read_model
from tests.support import packages
from tests.test_examples import EXAMPLES, carried_out

EXAMPLE = EXAMPLES / "keywords"
MODELS = Path(os.environ.get("EDGEPACK_REAL_MODELS", Path(__file__).parents[2] / "shared" / "models"))
WARNINGS = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")

#: Prints the features of every frame of the samples on its standard input; their peak is an argument.
PRINTS = """
#include <stdio.h>
#include <stdlib.h>
#include "features.h"
int main(int argc, char **argv) {
    static int16_t samples[1 << 16];
    size_t count = fread(samples, 2, 1 << 16, stdin);
    float peak = argc > 1 ? (float)atof(argv[1]) : 1.0F;
    for (size_t at = 0; at + FRAME_SAMPLES <= count; at += FRAME_STEP) {
        float mel[MELS], mfcc[COEFFICIENTS];
        features_mel(samples + at, mel);
        features_mfcc(mel, peak, mfcc);
        for (int k = 0; k < COEFFICIENTS; k++) {
            printf("%.9g\\n", (double)mfcc[k]);
        }
    }
    return 0;
}
"""


def reference(audio: NDArray[np.float64]) -> NDArray[np.float64]:
    """What tf.signal computes in mlcommons/tiny's get_dataset.py: stft (480 samples every 320, 512 points,
    periodic window of Hann), linear_to_mel_weight_matrix(40, 257, 16000, 20, 4000), log(x + 1e-6),
    mfccs_from_log_mel_spectrograms, of which the first 10."""
    frames = np.stack([audio[i : i + 480] for i in range(0, len(audio) - 479, 320)])
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(480) / 480)
    spectrum = np.abs(np.fft.rfft(frames * window, 512))

    def mel(hertz: NDArray[np.float64]) -> NDArray[np.float64]:
        return 1127 * np.log(1 + hertz / 700)

    bins = mel(np.linspace(0, 8000, 257))[1:, None]
    edges = np.linspace(*mel(np.array([20.0, 4000.0])), 42)
    low, middle, high = edges[:-2], edges[1:-1], edges[2:]
    weights = np.maximum(0, np.minimum((bins - low) / (middle - low), (high - bins) / (high - middle)))
    logs = np.log(spectrum[:, 1:] @ weights + 1e-6)
    angles = np.pi * np.arange(10)[:, None] * (np.arange(40) + 0.5) / 40
    return np.asarray(logs @ (np.sqrt(2 / 40) * np.cos(angles)).T)


def compiled(folder: Path, compiler: str) -> Path:
    """The program that prints features."""
    for name in ("features.c", "features.h", "tables.py"):
        shutil.copy(EXAMPLE / name, folder)
    subprocess.run([sys.executable, "tables.py", "tables.h"], cwd=folder, check=True)
    (folder / "prints.c").write_text(PRINTS)
    packages.run(compiler, *WARNINGS, "-O2", "prints.c", "features.c", "-o", "prints", "-lm", cwd=folder)
    return folder / "prints"


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_features_are_those_that_the_network_was_trained_with(compiler: str, tmp_path: Path) -> None:
    """Noise, a tone, a click and silence; loud and at the bottom of 16 bits."""
    packages.tool(compiler)
    rng = np.random.default_rng(5)
    tone = 20000 * np.sin(2 * np.pi * 440 / 16000 * np.arange(4000))
    parts = [rng.normal(0, 3000, 4000), tone, rng.normal(0, 2, 4000), np.zeros(2000), [32767, -32768]]
    samples = np.round(np.concatenate([*parts, np.zeros(1000)])).clip(-32768, 32767).astype("<i2")
    program = compiled(tmp_path, compiler)
    for peak in (1.0, float(samples.max())):
        done = subprocess.run([program, str(peak)], input=samples.tobytes(), capture_output=True, check=True)
        found = np.array(done.stdout.split(), float).reshape(-1, 10)
        expected = reference(samples / peak)
        assert found.shape == expected.shape
        assert np.abs(found - expected).max() < 5e-3  # a step of the network's input is 0.58


@pytest.mark.slow
def test_it_does_what_its_readme_says_and_what_the_reference_does(tmp_path: Path) -> None:
    """On a PC and on the board; in pieces of any size; with the scores of NumPy's features."""
    model = MODELS / "mlperf_tiny_kws_int8.tflite"
    if not model.is_file():
        pytest.skip(f"there is no {model} (EDGEPACK_REAL_MODELS)")
    place = tmp_path / "examples" / "keywords"
    place.mkdir(parents=True)
    shutil.copy(model, place / "kws.tflite")
    _, printed = carried_out("keywords", tmp_path)
    lines = [" ".join(line.split()) for line in printed.splitlines()]
    heard = [line for line in lines if re.match(r"\d+ ms \w+ \d+ %( <-)?$", line)]
    half = len(heard) // 2
    assert half == 41 and heard[:half] == heard[half:], "the PC's, then the board's"
    whole = packages.run(place / "keywords", "clip.wav", "4096", cwd=place)
    for piece in ("1", "7", "320", "999"):
        assert packages.run(place / "keywords", "clip.wav", piece, cwd=place) == whole
    for wrong in (("nothing.wav",), ("kws.tflite",), ("clip.wav", "0"), ("clip.wav", "4097")):
        done = subprocess.run([place / "keywords", *wrong], cwd=place, capture_output=True, check=False)
        assert (done.returncode, done.stdout) == (2, b"")
    for compiler in ("gcc", "clang"):
        sources = ("host.c", "keywords.c", "features.c")
        packages.run(compiler, *WARNINGS, "-fsyntax-only", "-Ibundle-host/include", *sources, cwd=place)

    graph = read_model(model).subgraphs[0]
    quantisation = graph.tensors[graph.inputs[0]].quantisation
    assert quantisation is not None
    scale, zero = float(quantisation.scale[0]), int(quantisation.zero[0])
    with wave.open(str(place / "clip.wav")) as file:
        clip = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    scores = []
    with edgepack.load(place / "bundle-host") as session:
        for start in range(0, len(clip) - 15840 + 1, 1600):
            second = clip[start : start + 15840]
            features = reference(second / max(1, second.max()))
            data = np.clip(np.round(features / scale) + zero, -128, 127).astype(np.int8)
            (output,) = session.run({"input_1": data.reshape(1, 49, 10, 1)}).values()
            scores.append(output.reshape(-1).astype(int) + 128)
    assert len(scores) == half
    for i, line in enumerate(heard[:half]):
        percent = np.mean(scores[max(0, i - 2) : i + 1], axis=0) * 100 / 256
        assert int(line.split()[0]) == 990 + 100 * i
        assert abs(int(line.split()[3]) - percent.max()) < 3, line
