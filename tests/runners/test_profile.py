"""Times of steps become entries: stages together, speeds from what the kernels do."""

from __future__ import annotations

import json

import pytest

from edgepack.bundle.manifest import Manifest
from edgepack.errors import ConfigError
from edgepack.runners.profile import profile_entries
from tests.support.manifest import example


@pytest.fixture
def manifest() -> Manifest:
    """A convolution of two stages, then two unnamed copies with one kernel."""
    return example(
        kernels=[
            {"symbol": "in", "rule": "conv2d.winograd4", "parameters": {"tile": "6x16"}},
            {"symbol": "product", "rule": "conv2d.winograd4", "flops": 6000, "bytes_moved": 3000},
            {"symbol": "copy", "rule": "copy", "ops": ["copy"], "bytes_moved": 50},
        ],
        steps=[
            {"kernel": "in", "tasks": 4, "nodes": ["Conv_0"]},
            {"kernel": "product", "tasks": 4, "nodes": ["Conv_0"]},
            {"kernel": "copy", "tasks": 1},
            {"kernel": "copy", "tasks": 1},
        ],
    )


def test_stages_of_one_group_are_one_entry(manifest: Manifest) -> None:
    conv, *copies = profile_entries(manifest, [1.0, 2.0, 0.5, 0.5])
    assert (conv.first_step, conv.last_step, conv.us, conv.share) == (0, 1, 3.0, 0.75)
    assert (conv.rule, conv.parameters, conv.nodes) == ("conv2d.winograd4", {"tile": "6x16"}, ("Conv_0",))
    assert [(c.first_step, c.last_step, c.ops) for c in copies] == [(2, 2, ("copy",)), (3, 3, ("copy",))]


def test_speeds_are_per_second(manifest: Manifest) -> None:
    conv, copy, _ = profile_entries(manifest, [1.0, 2.0, 0.5, 0.5], peak_gflops=8.0)
    assert conv.gflops == pytest.approx(2.0)  # 6000 operations in 3 us
    assert conv.gbs == pytest.approx(1.0)
    assert conv.of_peak == pytest.approx(0.25)
    assert copy.gbs == pytest.approx(0.1)
    assert (copy.gflops, copy.of_peak) == (None, None)


def test_what_multiplies_bytes_has_a_higher_peak(manifest: Manifest) -> None:
    product = next(kernel for kernel in manifest.kernels if kernel.symbol == "product")
    product.parameters["rate"] = 4.0
    conv, *_ = profile_entries(manifest, [1.0, 2.0, 0.5, 0.5], peak_gflops=8.0)
    assert conv.of_peak == pytest.approx(0.0625)


def test_without_a_peak_there_is_no_fraction(manifest: Manifest) -> None:
    assert {entry.of_peak for entry in profile_entries(manifest, [1.0] * 4)} == {None}


def test_steps_too_fast_for_the_clock_have_no_speed(manifest: Manifest) -> None:
    entries = profile_entries(manifest, [0.0] * 4, peak_gflops=8.0)
    assert [(e.gflops, e.gbs, e.of_peak, e.share) for e in entries] == [(None, None, None, 0.0)] * 3
    json.dumps([entry.to_json() for entry in entries], allow_nan=False)


def test_copies_to_and_from_a_gpu_have_no_kernel() -> None:
    kernels = [{"symbol": "product", "rule": "contraction", "flops": 6000, "bytes_moved": 3000}]
    steps = [
        {"kernel": "", "tasks": 1, "copied": 400},
        {"kernel": "product", "tasks": 1, "nodes": ["Conv_0"]},
        {"kernel": "", "tasks": 1, "copied": 8},
    ]
    entries = profile_entries(example(kernels=kernels, steps=steps), [1.0, 2.0, 0.5])
    assert [(e.rule, e.bytes_moved) for e in entries] == [("copy", 400), ("contraction", 3000), ("copy", 8)]


def test_a_step_of_a_kernel_that_is_not_there_is_an_error() -> None:
    with pytest.raises(ConfigError, match="kernel 'other', which it has not"):
        profile_entries(example(kernels=[], steps=[{"kernel": "other", "tasks": 1}]), [1.0])
