"""Modules of PyTorch's become bundles that compute what they compute eagerly; state and names are kept."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
#: Where `make test` has PyTorch, apart from the other packages: each process that TVM is in would import it.
PLACE = ROOT / "build" / "torch"


def environment() -> dict[str, str]:
    """Of a process that has PyTorch."""
    path = os.pathsep.join(filter(None, [str(PLACE), os.environ.get("PYTHONPATH", "")]))
    return {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What `tests/support/torch_programs.py` prints."""
    there = [sys.executable, "-c", "import torch, onnxscript"]
    if subprocess.run(there, env=environment(), capture_output=True, check=False).returncode:
        pytest.skip("PyTorch is not installed: make build/torch")
    command = [sys.executable, "-m", "tests.support.torch_programs", str(tmp_path_factory.mktemp("programs"))]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_names_are_those_of_the_signature(parts: dict[str, Any]) -> None:
    found = parts["nested"]
    assert found["ok"] and found["reference"].endswith(", eager")
    assert found["inputs"] == {"batch_image": [1, 3, 8, 8], "batch_bias": [5]}
    assert found["outputs"] == {"logits": [1, 5], "pair_0": [1, 8]}


def test_a_session_is_called_as_the_module(parts: dict[str, Any]) -> None:
    """Where there is state, ``run`` takes and gives it."""
    logits, pair, none = parts["nested"]["called"]
    assert logits < 1e-5 and pair < 1e-5 and none is None
    assert "keeps state: its input past" in parts["stream"]["called"]


def test_a_cache_that_no_result_reads_is_kept(parts: dict[str, Any]) -> None:
    found = parts["cache"]
    assert found["inputs"] == ["cache", "x", "position"] and found["outputs"] == ["output", "cache_next"]
    assert found["states"] == [["cache", "cache_next"]]
    assert found["written"] and found["worst"] < 1e-6 and found["beside the module"] < 1e-6


def test_state_in_an_object_is_the_buffer_that_it_shares(parts: dict[str, Any]) -> None:
    found = parts["held"]
    assert found["inputs"] == ["keys", "x", "position"] and found["states"] == [["keys", "keys_next"]]
    assert found["worst"] < 1e-6


@pytest.mark.slow
def test_a_static_cache_of_transformers_is_kept(tmp_path: Path) -> None:
    """Token by token, beside the whole sequence without a cache."""
    there = [sys.executable, "-c", "import torch, onnxscript, transformers.integrations.executorch"]
    if subprocess.run(there, env=environment(), capture_output=True, check=False).returncode:
        pytest.skip("transformers is not installed beside PyTorch")
    command = [sys.executable, "-m", "tests.support.static_cache", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["ok"] and found["worst"] < 1e-5
    assert {"key_cache_0", "value_cache_1"} <= set(found["state"])


def test_a_stream_in_pieces_is_the_eager_modules(parts: dict[str, Any]) -> None:
    """Of another size than the example's, and without a change of the module that was exported."""
    found = parts["stream"]
    assert found["ok"] and found["inputs"] == {"past": [1, 4, 2], "x": [1, 4, 10]}
    assert any("'past' from 'past_next'" in text for text in found["warnings"])
    assert found["worst"] < 1e-5


def test_bfloat16_is_taken_and_given(parts: dict[str, Any]) -> None:
    found = parts["halves"]
    assert found["ok"] and found["reference"].endswith(", eager")
    assert found["inputs"] == {"x": [3, 4], "mask": [4]}


def test_a_batch_norm_without_statistics_is_no_training(parts: dict[str, Any]) -> None:
    assert parts["standardised"]["ok"]


def test_checks_of_values_are_left_out(parts: dict[str, Any]) -> None:
    assert parts["checked"]["ok"]


def test_checks_of_sizes_that_are_computed_with_stay(parts: dict[str, Any]) -> None:
    before, behind = parts["checked"]["of a size"]
    assert behind == before > 0


def test_what_cannot_be_packed_is_one_sentence(parts: dict[str, Any]) -> None:
    said = parts["refused"]
    for name, begins, names in (
        ("train", "ModelError: train", "exported in training mode"),
        ("overwrites", "ModelError: overwrites", "writes to its own input x"),
        ("branches", "ModelError: Branches cannot be exported", "torch_programs.py:"),
        ("none", "ConfigError: A module (Branches)", "none was given"),
        ("shape", "ConfigError: The module does not take", "3x3 and 4x4"),
        ("no example", "ConfigError: example_inputs is", "type int"),
        ("elsewhere", "ConfigError: The module is on the device meta", "on the CPU"),
        ("bare", "ModelError: The model was exported from a PyTorch module", "its buffers cache"),
        ("newer", "ModelError: ", "of its schema; the installed PyTorch"),
        ("cuda", "ModelError: ", "was exported on the device cuda"),
        ("types", "ModelError: ", "objects of net.Reply, a type that only the process knows"),
        ("reserved", "ConfigError: The name 'int'", "is reserved"),  # before it is exported
        ("no module", "ConfigError: example_inputs", "torch.nn.Module"),
    ):
        assert said[name].startswith(begins) and names in said[name], said[name]
    assert "aten._linalg_eigh.default" in said["unknown"] and "bessel_j0" in said["unknown"]


def test_what_a_file_has_pytorch_execute_is_not_executed(parts: dict[str, Any]) -> None:
    """Code that checks inputs; names that are looked up; lines of a stack."""
    found = parts["hostile"]
    assert not found["executed"] and found["inputs"][-4:] == ["x", "batch_image", "batch_more_0", "gain"]


def test_operators_are_those_whose_schema_computes_tensors(parts: dict[str, Any]) -> None:
    said = parts["hostile"]["said"]
    assert all("could run code" in text and "nodes[" in text for text in said.values()), said


def test_weights_that_pytorch_pickled_are_read_from_a_new_pickle(parts: dict[str, Any]) -> None:
    assert parts["older"]["same"] and all(parts["older"]["same"]) and not parts["older"]["tensors"]


def quantised_parts(parts: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = parts["quantised"]
    if not found:
        pytest.skip("torchao is not installed: make build/torch/.installed")
    return found


def test_quantised_programs_multiply_integers(parts: dict[str, Any]) -> None:
    """Of PT2E (convolutions and a linear layer) and of torchao (two linear layers); the reference is the
    quantised module itself, off by a step of a few elements."""
    found = quantised_parts(parts)["network"]
    assert found["ok"] and found["reference"].endswith(", eager") and found["error"] < 0.02
    assert len(found["operands"]) == 5 and all(found["operands"])


@pytest.mark.parametrize("name", ["int4 groups", "int8 channels", "pt2e dynamic", "bounds"])
def test_quantised_operators_are_those_of_onnx(parts: dict[str, Any], name: str) -> None:
    found = quantised_parts(parts)[name]
    assert "DequantizeLinear" in found["operators"] and found["worst"] < 1e-6


def test_quantised_operators_without_a_form_are_listed_at_once(parts: dict[str, Any]) -> None:
    said = quantised_parts(parts)["odd"]
    assert "torchao.quantize_affine.default of blocks [2, 4]" in said and "quantise" in said.split("(")[1]
    assert "torchao.quantize_affine_float8_non_decomposed.default (" in said


def test_torchscript_keeps_names_and_state(parts: dict[str, Any]) -> None:
    """Of a file with an array and a shape, as the command line gives them. The script stays as it is."""
    found = parts["scripts"]
    assert found["file"]["inputs"] == ["inner.past", "x", "gain"]
    assert found["file"]["states"] == [["inner.past", "inner.past_next"]]
    assert found["file"]["outputs"] == ["sum", "size", "inner.past_next"]
    assert found["recurrent"]["inputs"] == ["batch_x"]
    assert found["unchanged"] == 0.0
    assert all(found[name]["worst"] < 1e-5 for name in ("file", "recurrent"))


def test_a_file_of_torchscript_with_example_inputs_is_exported_by_the_worker(parts: dict[str, Any]) -> None:
    """Nested arguments, plain values, open sizes; the process that packs it could not read it."""
    found = parts["scripts"]["with examples"]
    name, verified, off = found["packed"]
    assert name == "joined" and verified and off < 1e-6
    name, off, sizes = found["positional"]
    assert name == "other.pt2" and off < 1e-6 and sizes == 1


def test_errors_of_an_export_by_the_worker_name_the_users_file(parts: dict[str, Any]) -> None:
    found = parts["scripts"]["with examples"]
    for name, begins, names in (
        ("chooses", "ModelError: Chooses cannot be exported", "data-dependent"),
        ("damaged", "ModelError: ", "damaged.pt is no TorchScript file"),
        ("missing", "ModelError: There is no model file", "missing.pt. "),
        ("does not fit", "ModelError: Joined cannot be run", "argument 'batch'"),
        ("object", "ConfigError: example_inputs holds", "PosixPath"),
        ("elsewhere", "ConfigError: The example is on the device meta", "on the CPU"),
        ("derived", "ConfigError: dynamic_shapes holds 2*n", "Give the module itself"),
        ("late", "ModelError: Exporting joined.pt did not end within 60 s", ""),
    ):
        assert found[name].startswith(begins) and names in found[name], found[name]
    assert found["later"] == "/joined.pt joined.pt"


def test_a_link_that_a_worker_leaves_for_a_program_is_not_followed(parts: dict[str, Any]) -> None:
    """It would grant the next worker a file of the first one's choice."""
    assert parts["scripts"]["with examples"]["link"].startswith("InternalError: What exports joined.pt left")


def test_torchscript_of_many_kinds_computes_what_was_saved(parts: dict[str, Any]) -> None:
    """Control flow, texts, classes, an interface, recurrent layers, attention; scripted, traced, frozen."""
    found = parts["scripts"]["honest"]
    assert len(found) > 10 and {name: said for name, said in found.items() if said != "same"} == {}


def test_operators_of_scripts_are_on_their_list_for_their_schemas(parts: dict[str, Any]) -> None:
    """As `tools/write_script_operators.py` writes it with this PyTorch; what opens files is not."""
    found = parts["scripts"]
    assert found["listed"] == found["not listed"] == {"aten": [], "prim": []}


def test_harmful_torchscript_is_one_sentence_and_leaves_no_file(parts: dict[str, Any]) -> None:
    """It would write files, read beyond its tensors, take all memory, or not end."""
    found = parts["scripts"]["harmful"]
    assert len(found) > 20
    assert {name: said for name, said in found.items() if said[0] != "ModelError" or len(said) > 2} == {}
    assert "holds a call of torch.from_file" in found["blank"][1]
    assert "takes a __torch__.M for a __torch__.Two" in found["cast"][1]
    assert "can't allocate memory" in found["memory"][1]


def test_commands_refuse_torchscript_that_writes_a_file(parts: dict[str, Any]) -> None:
    """``torch. from_file(...)``, with a blank, made one of any content; `check` was enough."""
    codes, said, left = parts["scripts"]["commanded"]
    assert codes == [3, 3] and said.count("holds a call of torch.from_file") == 2
    assert left == ["model.jit"]


def test_torchscript_that_cannot_be_packed_is_one_sentence(parts: dict[str, Any]) -> None:
    said = parts["scripts"]
    assert "gain is open" in said["open"] and "--input gain=FILE.npy" in said["open"]
    assert "takes 'batch', which is a Dict[str, Tensor]" in said["nested"]
    assert (
        said["chooses"].startswith("Chooses cannot be exported") and "script_programs.py:" in said["chooses"]
    )
    assert "exported in training mode" in said["train"]
