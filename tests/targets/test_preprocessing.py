"""image.js and audio.js of a package for the web, under node, beside what numpy computes by the definitions
of Pillow, torchaudio and librosa."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgepack.resources import TEMPLATES
from workbench.mini import run

NODE = shutil.which("node") or "node"
RANDOM = np.random.default_rng(3)
Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The modules where a package has them."""
    folder = tmp_path_factory.mktemp("package")
    (folder / "web").mkdir()
    (folder / "package.json").write_text('{"type": "module"}')
    for name in ("image.js", "audio.js"):
        shutil.copyfile(TEMPLATES / "web" / name, folder / name)
    for name in ("dtypes.js", "error.js"):
        shutil.copyfile(TEMPLATES / "web" / name, folder / "web" / name)
    shutil.copyfile(Path(__file__).with_name("preprocess.mjs"), folder / "preprocess.mjs")
    return folder


def call(package: Path, module: str, name: str, *given: Any) -> dict[str, Any]:
    file = package / "given.json"
    file.write_text(json.dumps(given))
    return dict(json.loads(run([NODE, str(package / "preprocess.mjs"), module, name, str(file)])))


def floats(values: Array) -> dict[str, list[float]]:
    return {"floats": values.astype("f4").ravel().tolist()}


def array(seen: dict[str, Any]) -> Array:
    assert "values" in seen, seen
    return np.array(seen["values"])


# Images

#: Bytes that Pillow 13.0.0 makes of that image, by width and height.
PILLOW = {
    (2, 2): [47, 54, 61, 80, 87, 94, 152, 159, 166, 185, 192, 199],
    (7, 5): [
        0,
        7,
        14,
        8,
        15,
        22,
        20,
        27,
        34,
        32,
        39,
        46,
        43,
        50,
        57,
        55,
        62,
        69,
        63,
        70,
        77,
        34,
        41,
        48,
        42,
        49,
        56,
        54,
        61,
        68,
        66,
        73,
        80,
        77,
        84,
        91,
        89,
        96,
        103,
        97,
        104,
        111,
        84,
        91,
        98,
        92,
        99,
        106,
        104,
        111,
        118,
        116,
        123,
        130,
        127,
        134,
        141,
        139,
        146,
        153,
        147,
        154,
        161,
        134,
        141,
        148,
        142,
        149,
        156,
        154,
        161,
        168,
        166,
        173,
        180,
        177,
        184,
        191,
        189,
        196,
        203,
        197,
        204,
        211,
        168,
        175,
        182,
        176,
        183,
        190,
        188,
        195,
        202,
        200,
        207,
        214,
        211,
        218,
        225,
        223,
        230,
        237,
        231,
        238,
        245,
    ],
}


def picture(height: int, width: int) -> Array:
    return RANDOM.integers(0, 256, (height, width, 4), dtype=np.uint8)


def pixels(image: Array) -> dict[str, Any]:
    return {"data": {"bytes": image.ravel().tolist()}, "width": image.shape[1], "height": image.shape[0]}


def weights(before: int, after: int) -> Array:
    """Pillow's of BILINEAR (src/libImaging/Resample.c): a triangle as wide as the scale, in 22 bits."""
    scale = before / after
    support = max(scale, 1.0)
    matrix = np.zeros((after, before), np.int64)
    for at in range(after):
        center = (at + 0.5) * scale
        first, end = max(0, int(center - support + 0.5)), min(before, int(center + support + 0.5))
        triangle = 1 - np.abs((np.arange(first, end) - center + 0.5) / support)
        triangle = np.maximum(triangle, 0)
        matrix[at, first:end] = np.floor(triangle / triangle.sum() * (1 << 22) + 0.5)
    return matrix


def scaled(image: Array, height: int, width: int) -> Array:
    """RGB of Pillow's ``Image.resize``: across, rounded to bytes, then down."""
    rgb = image[..., :3].astype(np.int64)
    half = 1 << 21
    if width != rgb.shape[1]:
        rgb = np.clip((np.einsum("hwc,xw->hxc", rgb, weights(rgb.shape[1], width)) + half) >> 22, 0, 255)
    if height != rgb.shape[0]:
        rgb = np.clip((np.einsum("hwc,yh->ywc", rgb, weights(rgb.shape[0], height)) + half) >> 22, 0, 255)
    return rgb.astype(np.uint8)


def tensor(dtype: str, *shape: int) -> dict[str, Any]:
    return {"name": "input", "dtype": dtype, "shape": shape, "length": math.prod(shape)}


@pytest.mark.parametrize("size", [(4, 3), (9, 20), (31, 17), (5, 17)])
def test_an_image_is_scaled_as_pillow_does(package: Path, size: tuple[int, int]) -> None:
    image = picture(13, 17)
    seen = call(
        package,
        "image",
        "resize",
        {**pixels(image), "data": {"bytes": image[..., :3].ravel().tolist()}},
        size[1],
        size[0],
    )
    np.testing.assert_array_equal(array(seen).reshape(*size, 3), scaled(image, *size))


def test_an_image_is_scaled_to_the_bytes_that_pillow_printed(package: Path) -> None:
    """Pillow's own, of an image of 4 by 3 pixels."""
    rgb = np.arange(36, dtype=np.uint8) * 7
    for (width, height), want in PILLOW.items():
        given = {"data": {"bytes": rgb.tolist()}, "width": 4, "height": 3}
        assert array(call(package, "image", "resize", given, width, height)).tolist() == want


def test_imagenet_s_preprocessing_is_torchvision_s(package: Path) -> None:
    """Resize(10), CenterCrop(8), ToTensor, Normalize."""
    image = picture(15, 21)
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    options = {"resize": 10, "mean": mean.tolist(), "std": std.tolist()}
    middle = scaled(image, 10, 14)[1:9, 3:11]
    want = (middle / 255 - mean) / std
    seen = call(package, "image", "imageToTensor", pixels(image), tensor("float32", 1, 3, 8, 8), options)
    assert seen["kind"] == "Float32Array"
    np.testing.assert_allclose(array(seen), want.transpose(2, 0, 1).ravel(), atol=1e-6)
    seen = call(package, "image", "imageToTensor", pixels(image), tensor("float32", 1, 8, 8, 3), options)
    np.testing.assert_allclose(array(seen), want.ravel(), atol=1e-6)
    bgr = {**options, "order": "bgr", "mean": mean[::-1].tolist(), "std": std[::-1].tolist()}
    seen = call(package, "image", "imageToTensor", pixels(image), tensor("float32", 8, 8, 3), bgr)
    np.testing.assert_allclose(array(seen), want[..., ::-1].ravel(), atol=1e-6)


def test_integers_are_bytes_or_quantised_by_the_input_s_scale(package: Path) -> None:
    image = picture(8, 8)
    given = (pixels(image), tensor("uint8", 1, 8, 8, 3))
    np.testing.assert_array_equal(
        array(call(package, "image", "imageToTensor", *given)), image[..., :3].ravel()
    )
    given = (pixels(image), tensor("int8", 1, 3, 8, 8))
    options = {"mean": 0.5, "std": 0.5, "quantization": {"scale": 1 / 128, "zeroPoint": -3}}
    seen = call(package, "image", "imageToTensor", *given, options)
    want = np.clip(np.rint((image[..., :3] / 255 - 0.5) / 0.5 * 128) - 3, -128, 127)
    assert seen["kind"] == "Int8Array"
    np.testing.assert_array_equal(array(seen), want.transpose(2, 0, 1).ravel())
    assert call(package, "image", "imageToTensor", *given) == {
        "code": "INPUT",
        "message": "int8 needs quantization: { scale, zeroPoint }, the input's in the model.",
    }


def test_grey_is_pillow_s_luma(package: Path) -> None:
    image = picture(6, 5)
    r, g, b = image[..., :3].astype(int).transpose(2, 0, 1)
    want = (r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16
    seen = call(package, "image", "imageToTensor", pixels(image), tensor("float32", 1, 1, 6, 5), {"scale": 1})
    np.testing.assert_array_equal(array(seen), want.ravel())


@pytest.mark.parametrize(
    ("shape", "options", "said"),
    [
        ((1, 4, 8, 8), {}, "has no 1 or 3 channels"),
        ((2, 3, 8, 8), {}, "takes no single image"),
        ((1, 3, 8, 8), {"resize": 5}, "is scaled to 5 x 5, less than the input's 8 x 8"),
        ((1, 3, 8, 8), {"resize": 0}, "resize is 0: give"),
        ((1, 3, 8, 8), {"mean": [1, 2]}, "mean has 2 values; the input has 3 channels"),
    ],
)
def test_what_is_no_image_or_option_is_one_sentence(
    package: Path, shape: tuple[int, ...], options: dict[str, Any], said: str
) -> None:
    seen = call(package, "image", "imageToTensor", pixels(picture(9, 9)), tensor("float32", *shape), options)
    assert seen["code"] == "INPUT" and said in seen["message"]


# Sound


def resampled(samples: Array, before: int, after: int, zeros: int = 6, rolloff: float = 0.99) -> Array:
    """torchaudio.functional.resample, sinc_interp_hann."""
    common = math.gcd(before, after)
    before, after = before // common, after // common
    cutoff = min(before, after) * rolloff
    width = math.ceil(zeros * before / cutoff)
    time = np.arange(-width, width + before) / before - np.arange(after)[:, None] / after
    time = np.clip(time * cutoff, -zeros, zeros)
    kernels = np.sinc(time) * np.cos(time * np.pi / zeros / 2) ** 2 * cutoff / before
    padded = np.pad(samples.astype("f8"), (width, width + before))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernels.shape[1])[::before]
    return (windows @ kernels.T).ravel()[: math.ceil(after * len(samples) / before)]


@pytest.mark.parametrize("rates", [(44100, 16000), (8000, 16000), (16000, 16000), (48000, 16000)])
def test_samples_are_resampled_as_torchaudio_does(package: Path, rates: tuple[int, int]) -> None:
    samples = RANDOM.standard_normal(1001).astype("f4")
    seen = array(call(package, "audio", "resample", floats(samples), *rates))
    want = samples if rates[0] == rates[1] else resampled(samples, *rates)
    np.testing.assert_allclose(seen, want, atol=1e-5)


def test_channels_are_mixed_and_cut_into_frames(package: Path) -> None:
    left, right = RANDOM.standard_normal((2, 50)).astype("f4")
    mono = array(call(package, "audio", "toMono", [floats(left), floats(right)]))
    np.testing.assert_allclose(mono, (left + right) / 2, atol=1e-6)
    seen = call(package, "audio", "frames", floats(left), 16, 10)
    assert seen["shape"] == [4, 16]
    np.testing.assert_array_equal(array(seen).reshape(4, 16)[3], left[30:46])
    assert call(package, "audio", "frames", floats(left[:9]), 16, 10)["shape"] == [0, 16]
    assert (
        call(package, "audio", "frames", floats(left), 16, 0)["message"]
        == "hop is 0: give a whole number above 0."
    )
    assert call(package, "audio", "toMono", [floats(left), floats(right[1:])])["code"] == "INPUT"


def mel_bank(rate: int, size: int, mels: int, low: float, high: float, scale: str) -> Array:
    """librosa.filters.mel with norm "slaney", or HTK's scale without a norm, as torchaudio has it."""

    def to_mel(hz: Array) -> Array:
        if scale == "htk":
            return 2595 * np.log10(1 + hz / 700)
        return np.where(hz < 1000, hz * 3 / 200, 15 + np.log(np.maximum(hz, 1) / 1000) / (np.log(6.4) / 27))

    grid = np.linspace(0, rate / 2, 200001)
    points = np.linspace(to_mel(np.array(low)), to_mel(np.array(high)), mels + 2)
    edges = np.interp(points, to_mel(grid), grid)
    hz = np.arange(size // 2 + 1) * rate / size
    rise = (hz - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - hz) / np.diff(edges)[1:, None]
    bank = np.maximum(0, np.minimum(rise, fall))
    return bank * (2 / (edges[2:] - edges[:-2]))[:, None] if scale == "slaney" else bank


@pytest.mark.parametrize(
    ("size", "window", "scale", "center", "log"),
    [(512, 400, "slaney", True, "ln"), (400, 400, "htk", False, "log10"), (256, 256, "htk", True, "db")],
)
def test_a_log_mel_spectrogram_is_numpy_s(
    package: Path, size: int, window: int, scale: str, center: bool, log: str
) -> None:
    samples = RANDOM.standard_normal(2000).astype("f4")
    options = {
        "sampleRate": 16000,
        "fftSize": size,
        "windowSize": window,
        "hop": 160,
        "mels": 20,
        "minHz": 50,
    }
    options |= {"maxHz": 7600, "melScale": scale, "center": center, "log": log}
    seen = call(package, "audio", "logMel", floats(samples), options)
    hann = np.zeros(size)
    start = (size - window) // 2
    hann[start : start + window] = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    padded = np.pad(samples.astype("f8"), size // 2, mode="reflect") if center else samples.astype("f8")
    parts = np.lib.stride_tricks.sliding_window_view(padded, size)[::160]
    power = np.abs(np.fft.rfft(parts * hann)) ** 2
    mel = np.maximum(mel_bank(16000, size, 20, 50, 7600, scale) @ power.T, 1e-10)
    want = {"ln": np.log, "log10": np.log10, "db": lambda x: 10 * np.log10(x)}[log](mel)
    assert seen["shape"] == list(want.shape)
    np.testing.assert_allclose(array(seen).reshape(want.shape), want, rtol=1e-4, atol=2e-4)
    turned = call(package, "audio", "logMel", floats(samples), {**options, "layout": "time"})
    np.testing.assert_array_equal(array(turned).reshape(want.shape[::-1]), array(seen).reshape(want.shape).T)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"log": "bel"}, "log is bel: give ln, log10, db."),
        ({"melScale": "bark"}, "melScale is bark: give slaney or htk."),
        ({"maxHz": 9000}, "must rise, to half of sampleRate at most"),
        ({"windowSize": 300}, "windowSize is 300, more than fftSize 256."),
        ({"mels": 0}, "mels is 0: give a whole number above 0."),
    ],
)
def test_a_wrong_option_of_a_spectrogram_is_one_sentence(
    package: Path, changed: dict[str, Any], said: str
) -> None:
    options = {"sampleRate": 16000, "fftSize": 256, "hop": 160, "mels": 20, **changed}
    seen = call(package, "audio", "logMel", floats(np.zeros(999)), options)
    assert seen["code"] == "INPUT" and said in seen["message"]
