"""``edgepack compare`` and ``verify --layers``: models and bundles side by side, layer by layer, with the
real worker and a real bundle."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgepack
import edgepack.commands.layers
from edgepack.api import Bundle
from edgepack.cli.main import main
from edgepack.errors import CheckFailedError, ConfigError, ModelError
from edgepack.runners.verify import Verification, verify
from tests.compiler.frontend.onnx.quantise.support import convolutions
from workbench.models import save


def _subtraction(order: str) -> onnx.ModelProto:
    """a - b, which take the places of ``order``."""
    floats = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 4]) for name in order + "y"
    ]
    node = onnx.helper.make_node("Sub", ["a", "b"], ["y"], name="difference")
    graph = onnx.helper.make_graph([node], "g", floats[:2], floats[2:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a float model, the quantised one, and the bundle of that, in a difficult path."""
    folder = tmp_path_factory.mktemp("compare") / "a folder, é"
    folder.mkdir()
    model = save(convolutions(), folder, "float.onnx")
    edgepack.quantize(model, folder / "int8.onnx", calibrate="synthetic")
    edgepack.pack(folder / "int8.onnx", output=folder / "bundle")
    for name, order in (("straight", "ab"), ("other", "ba")):
        edgepack.pack(save(_subtraction(order), folder, f"{name}.onnx"), output=folder / name)
    rng = np.random.default_rng(0)
    np.savez(folder / "data.npz", image=rng.standard_normal((2, 3, 8, 8)).astype(np.float32))
    return folder


def test_two_models_are_compared_layer_by_layer(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(made / "float.onnx"), str(made / "int8.onnx")]) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert rows["Conv_2"][1:3] == ["Conv", "second"] and float(rows["Conv_2"][3]) > 30
    assert rows["scores"][-2:] == ["100", "%"]
    assert "8 samples" in out and "most is lost in: Conv_2" in out and "warning: The inputs are random" in out


def test_a_bundle_is_compared_with_a_model(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in (made / "bundle").rglob("*")}
    arguments = ["compare", str(made / "int8.onnx"), str(made / "bundle"), "--json", "-q"]
    data = ["--inputs", str(made / "data.npz")]
    assert main([*arguments, *data, "--min-sqnr", "100", "--min-top1", "1"]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (shown["ok"], shown["samples"], shown["warnings"]) == (True, 2, [])
    assert shown["places"][0] == "ONNX Runtime" and "this machine" in shown["places"][1]
    assert {path: path.stat().st_mtime_ns for path in (made / "bundle").rglob("*")} == before
    found = edgepack.compare(made / "int8.onnx", Bundle(made / "bundle"), inputs=made / "data.npz")
    assert json.loads(json.dumps(found.to_json())) == shown
    arguments[1] = str(made / "float.onnx")
    assert main([*arguments[:3], *data, "--min-sqnr", "100"]) == 1
    assert "FAILED: scores has" in capsys.readouterr().out


def test_two_bundles_are_run_on_what_the_first_has_recorded(made: Path) -> None:
    found = edgepack.compare(made / "bundle", made / "bundle")
    assert (found.samples, found.outputs[0].sqnr, found.ok, found.warnings) == (1, None, True, ())


def test_inputs_go_to_the_ones_of_their_names_whatever_their_order(made: Path) -> None:
    turned = made / "other"  # takes a and b in the other order
    assert [one.name for one in Bundle(turned).manifest.inputs] == ["b", "a"]
    model, again = made / "straight.onnx", made / "straight"
    for first, second in ((model, turned), (turned, model), (again, turned), (turned, again)):
        found = edgepack.compare(first, second)
        assert [one.max_error for one in found.outputs] == [0.0], (first, second)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["float.onnx", "absent.onnx"], 3, "absent.onnx does not exist"),
        (["float.onnx", "."], 2, "manifest.json"),
        (["float.onnx", "int8.onnx", "--inputs", "absent"], 2, "absent: there is no such file or folder"),
        (["float.onnx", "data.npz"], 3, "data.npz"),
        (["float.onnx", "int8.onnx", "--max-error", "-1"], 2, "--max-error"),
        (["float.onnx", "int8.onnx", "--shape", "picture=1,2"], 2, "picture"),
        (["bundle", "int8.onnx", "--runner", "nothing"], 2, "nothing"),
        (["float.onnx", "int8.onnx", "--threads", "2"], 2, "--threads says how a bundle is run"),
        (["bundle", "bundle", "--dim", "batch=1"], 2, "--dim is of models"),
        (["bundle", "other"], 2, "have different inputs: image and b, a"),
        (["bundle", "bundle", "--runner", "ssh:pi@board"], 2, "where its results cannot be had from"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else None,
)
def test_wrong_usage_is_a_sentence(
    arguments: list[str],
    code: int,
    said: str,
    made: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(made)
    assert main(["compare", *arguments, "-q"]) == code
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err


def test_a_damaged_bundle_is_not_run(made: Path, tmp_path: Path) -> None:
    damaged = Path(shutil.copytree(made / "bundle", tmp_path / "bundle"))
    (params,) = (damaged / "params").iterdir()
    params.write_bytes(b"\0" * params.stat().st_size)
    with pytest.raises(CheckFailedError, match=params.name):
        edgepack.compare(damaged, damaged)


def test_the_tensors_between_kernels_are_compared_too(
    made: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["verify", str(made / "bundle"), "-q", "--layers", str(made / "int8.onnx")]
    assert main(command) == 0
    out = capsys.readouterr().out
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert rows["Relu_1_QuantizeLinear"][2:5] == ["k1_conv2d_igemm", "uint8", "0"]
    assert (
        rows["Gemm_7"][2].endswith("_matmul_packed")
        and rows["Gemm_7"][3] == "float32"
        and float(rows["Gemm_7"][5]) > 100
    )
    assert re.search(r"tensors of \d kernels", out)

    def wrong(root: Path, *arguments: Any) -> Verification:
        result = verify(root, *arguments)
        if root == made / "bundle":
            return result
        bad = [one.name in ("Relu_4_QuantizeLinear_Output", "scores") for one in result.outputs]
        outputs = (replace(o, mismatches=2 * b) for o, b in zip(result.outputs, bad, strict=True))
        return replace(result, status="mismatch", outputs=tuple(outputs))

    monkeypatch.setattr(edgepack.commands.layers, "verify", wrong)
    assert main([*command, "--json"]) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["layers"]["layers"][2]["steps_off"] == 0
    assert shown["ok"] and not shown["layers"]["ok"]  # the bundle as it is, and the one with its tensors
    assert shown["layers"]["first_beyond"] == "Relu_4_QuantizeLinear_Output"


def test_layers_are_those_of_the_bundles_own_model(made: Path) -> None:
    with pytest.raises(ConfigError, match=r"was not packed from .*float.onnx: its contents are others"):
        edgepack.verify_layers(made / "bundle", made / "float.onnx")
    with pytest.raises(ModelError, match="does not exist"):
        edgepack.verify_layers(made / "bundle", made / "absent.onnx")
    with pytest.raises(ModelError, match="bundle is a folder"):
        edgepack.verify_layers(made / "bundle", made / "bundle")
    with pytest.raises(ConfigError, match="verify_layers has no option 'thread'"):
        edgepack.verify_layers(made / "bundle", made / "int8.onnx", thread=1)  # type: ignore[call-arg]


def test_python_names_options_as_it_takes_them(made: Path) -> None:
    with pytest.raises(ConfigError, match="compare has no option 'min_sqr'"):
        edgepack.compare("a.onnx", "b.onnx", min_sqr=3)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="min_top1 of compare is a number from 0 to 1"):
        edgepack.compare("a.onnx", "b.onnx", min_top1=2.0)
