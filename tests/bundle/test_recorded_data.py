"""The recorded data of a bundle: the usual run, and those on corner data."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from edgepack.bundle.assemble import _copy_recorded
from edgepack.bundle.recorded_records import Recorded
from edgepack.compiler.frontend.recorded import write_recorded


@pytest.mark.parametrize("bare_metal", [False, True])
def test_runs_on_corner_data_lie_beside_the_usual_one_but_in_no_image(
    tmp_path: Path, bare_metal: bool
) -> None:
    source, bundle = tmp_path / "imported" / "recorded", tmp_path / "bundle"
    bundle.mkdir()
    x, limits = np.float32([1, 2]), {"y": {"atol": 0.5, "rtol": 0.25, "noise": 0.1, "noisy": True}}
    about = {"noise_of": "a run", "corners": ["ends"], "corners_left_out": {"large": "a reason"}}
    write_recorded(source, {"x": x}, {"y": x}, limits, "somebody", about)
    write_recorded(source / "ends", {"x": x}, {"y": 2 * x}, {"y": {"atol": 0.125, "rtol": 0.0}}, "somebody")
    recipe = SimpleNamespace(
        imported=tmp_path / "imported", bundle=bundle, device=SimpleNamespace(bare_metal=bare_metal)
    )
    found = _copy_recorded(recipe)  # type: ignore[arg-type]
    assert (found.noise_of, found.outputs[0].noise, found.outputs[0].noisy) == ("a run", 0.1, True)
    assert (bundle / "test" / "tolerances.txt").read_text() == "0.5 0.25\n"
    if bare_metal:
        assert found.corners == () and not (bundle / "test" / "ends").exists()
        assert found.corners_left_out == {"large": "a reason", "ends": "an image holds the usual run alone"}
        return
    assert [tensor.file for tensor in found.corners[0].outputs] == ["test/ends/output_0.bin"]
    assert (bundle / "test" / "ends" / "tolerances.txt").read_text() == "0.125 0.0\n"
    assert Recorded.model_validate(found.model_dump()) == found


def test_a_manifest_of_before_says_nothing_of_noise_and_corners() -> None:
    old = {"reference": "onnxruntime 1.20", "inputs": [], "outputs": []}
    found = Recorded.model_validate(old)
    assert (found.corners, found.notes) == ((), ())
    assert found.model_dump(mode="json") == old
