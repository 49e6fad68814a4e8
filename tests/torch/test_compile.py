"""Models under ``torch.compile(model, backend="edgepack")`` compute what they compute eagerly, and what stays
eager is said."""

from __future__ import annotations

import importlib.metadata
import json
import os
import secrets
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
#: Where `make test` has PyTorch, apart from the other packages: each process that TVM is in would import it.
PLACE = ROOT / "build" / "torch"


def found_by(*arguments: str, seed: str = "") -> dict[str, Any]:
    """What ``tests/support/torch_compile/`` prints."""
    path = os.pathsep.join(filter(None, [str(PLACE), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    environment["EDGEPACK_TEST_SEED"] = seed or str(SEED)
    asks = "import sys; from importlib.util import find_spec; sys.exit(not find_spec('onnxscript'))"
    there = [sys.executable, "-c", asks]
    if subprocess.run(there, env=environment, capture_output=True, check=False).returncode:
        pytest.skip("PyTorch is not installed: make build/torch")
    command = [sys.executable, "-m", "tests.support.torch_compile", *arguments]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


#: Of weights that no earlier run of the tests had.
SEED = secrets.randbits(31)


@pytest.fixture(scope="module")
def parts() -> dict[str, Any]:
    """The quick ones."""
    return found_by()


@pytest.fixture(scope="module")
def slow_parts() -> dict[str, Any]:
    """The slow ones."""
    return found_by("slow")


def test_pytorch_finds_the_backend_by_its_entry_point(parts: dict[str, Any]) -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    _, found, rest = text.partition("[project.entry-points.torch_dynamo_backends]\n")
    assert found and rest.startswith('edgepack = "edgepack.torch:backend"\n')
    entries = importlib.metadata.distribution("edgepack").entry_points
    assert parts["listed"] == any(one.group == "torch_dynamo_backends" for one in entries)


def test_results_of_many_kinds_are_those_of_eager(parts: dict[str, Any]) -> None:
    found = parts["results_of_many_kinds"]
    assert found["said"] == []
    assert found["wrong"] == []
    assert found["view"] and found["inference"] and not found["input changed"]


def test_recurrent_layers_and_masked_attention_are_compiled_and_compute_what_eager_does(
    parts: dict[str, Any],
) -> None:
    nothing: dict[str, Any] = {"said": [], "wrong": []}
    assert parts["few_networks"] == {"words": nothing, "masked": nothing}


def test_results_share_the_memory_that_they_share_eagerly(parts: dict[str, Any]) -> None:
    found = parts["memory"]
    assert found["said"] == []
    assert found["wrong"] == []


def test_a_subgraph_without_results_is_eager(parts: dict[str, Any]) -> None:
    returned, said = parts["memory"]["none"]
    assert returned == []
    assert "stays eager: it returns no tensor" in said


def test_sizes_beyond_the_limit_are_eager_and_that_is_said_once(parts: dict[str, Any]) -> None:
    found = parts["sizes_that_vary"]
    assert found["wrong"] == []
    (said,) = found["said"]
    assert "it was compiled 1 times" in said and '"shapes"' in said


def test_the_table_has_what_is_compiled_and_why_the_rest_is_not(parts: dict[str, Any]) -> None:
    found = parts["explained"]
    assert found["compiled"] == [False, True]
    assert "special_bessel_j0" in found["reasons"][0] and not found["reasons"][1]
    assert found["operators"][1] == {"linear": 1, "tanh": 1}
    assert 0 < sum(found["shares"]) <= 1
    assert found["reasons"][0] in found["table"] and "1 linear, 1 tanh" in found["table"]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("writes", "writes to 1 of its inputs"),
        ("draws", "draws random numbers"),
        ("viewed", "computes nothing: what it returns are its inputs, or views of them"),
        ("train", "model.eval()"),
        ("gradients", "torch.inference_mode()"),
    ],
)
def test_what_a_compiled_model_cannot_do_is_done_eagerly(parts: dict[str, Any], name: str, why: str) -> None:
    found = parts["eager_with_a_sentence"][name]
    (said,) = found["said"]
    assert "stays eager: " in said and why in said
    assert found["wrong"] == []
    assert found["x"] == (2.0 if name == "writes" else 1.0)


def test_options_that_there_are_not_are_refused(parts: dict[str, Any]) -> None:
    said = parts["refused_options"]
    for name, why in (
        ("opt_level 4", "There is no optimisation level 4"),
        ("thread 1", "Did you mean threads?"),
        ("threads 0", "threads is at least 1, not 0"),
        ("shapes many", "shapes is a whole number"),
        ("weights 3", "weights of"),
        ("scheduler tuned", "scheduler is 'tuned', and no file of tuned schedules is named"),
        ("scheduler meta_schedule", "scheduler is 'meta_schedule', a tuner of TVM's that edgepack does not"),
        ("scheduler fast", "scheduler is 'fast', which is no scheduler"),
        ("trials 20000", "`edgepack tune MODEL --device host -o FILE.json` writes a file"),
        ("tuned none.json", "tuned names none.json, and schedules are chosen by edgepack's rules"),
        ("tuned 3", "tuned of pack is a list of paths"),
    ):
        assert why in said[name], said[name]


def test_a_tuner_that_the_environment_names_is_said_once(parts: dict[str, Any]) -> None:
    found = parts["schedulers_of_the_environment"]
    assert [one for name, one in found.items() if int(name.split()[-1]) % 2 == 0] == [[]] * 7  # beside rules
    said = {name: one for name, one in found.items() if one}
    assert list(said) == ["meta_schedule 5", "auto_scheduler 9", "fast 11", "tuned 13"]
    assert "TVM_SCHEDULER is meta_schedule, a tuner of TVM's" in said["meta_schedule 5"][0]
    assert said["fast 11"] == ["TVM_SCHEDULER is 'fast', which is no scheduler."]
    assert "no file of tuned schedules is named" in said["tuned 13"][0]


@pytest.mark.slow
def test_tuned_schedules_are_taken_for_this_cpu(slow_parts: dict[str, Any]) -> None:
    found = slow_parts["tuned_schedules"]
    assert found["wrong"] == []
    assert found["packed"] == [1, 0, 1], "one file, the same once more from the cache, two files"
    assert found["recorded"] == [1, 2]
    assert found["missing"] == ["There is no file of tuned schedules none.json."]
    assert [("no tuned schedules for host" in one, "'other'" in one) for one in found["said"]] == [
        (True, True)
    ]


@pytest.mark.slow
def test_a_level_of_optimisation_is_that_of_the_library(slow_parts: dict[str, Any]) -> None:
    assert slow_parts["plain_loops"] == {"wrong": [], "levels": [0], "operators": [1]}


def test_the_second_process_exports_nothing(parts: dict[str, Any]) -> None:
    assert parts["kept"]["first"] == {"exports": 1, "said": []}
    assert parts["kept"]["second"] == {"exports": 0, "said": []}
    assert found_by("kept")["kept"]["first"] == {"exports": 0, "said": []}


def test_a_damaged_library_is_not_loaded_but_made_again(parts: dict[str, Any]) -> None:
    assert parts["kept"]["damaged"] == {"exports": 1, "said": []}
    assert parts["kept"]["mended"] == {"exports": 0, "said": []}


def test_what_was_refused_is_refused_without_exporting_it_again(parts: dict[str, Any]) -> None:
    found = parts["kept"]["refused"]
    assert found["exports"] == 0
    assert "draws random numbers" in found["said"][0]


def test_all_that_decides_on_a_library_is_in_its_key(parts: dict[str, Any]) -> None:
    found = parts["keys"]
    nameless = {"of the user", "mode"}
    assert {name for name, key in found.items() if not key} == nameless
    assert found["plain"] == found.pop("again") == found.pop("copied")
    named = [key for name, key in found.items() if name not in nameless]
    assert len(set(named)) == len(named), found


def test_a_library_for_tvms_runtime_computes_what_eager_does_here(parts: dict[str, Any]) -> None:
    found = parts["exported_for_tvm"]
    assert max(found["wrong"]) < 1e-5  # the second run with the state that the first one returned
    assert found["state of the module"] == 0, "exporting ran the module"
    expected = [["past", "image"], ["score", "best", "past_next"], [["past", "past_next"]]]
    assert found["interfaces"] == [expected, expected]
    assert found["left"] == ["aarch64.so", "host.so", "image.bin", "past.bin"]


def test_a_library_for_tvms_runtime_is_for_another_cpu(parts: dict[str, Any]) -> None:
    found = parts["exported_for_tvm"]
    assert found["machine"].endswith("AARCH64")
    assert "__tvm_ffi__library_bin" in found["exported"]  # the virtual machine's code, and the weights
    kernels = [name for name in found["exported"] if name.startswith("__tvm_ffi_")]
    assert any("conv2d" in name for name in kernels), kernels
    assert [name for name in found["undefined"] if not name.startswith("TVMFFI")] == ["expf"]
    assert found["undefined"] != ["expf"], "it would not need TVM's runtime"
    assert found["needed"] == ["libm.so.6"]
    assert found["versions"] == [importlib.metadata.version("apache-tvm")] * 2


@pytest.mark.parametrize(
    ("name", "kind", "why"),
    [
        ("gpu", "ConfigError", "jetson-orin-gpu has a GPU"),
        ("web", "ConfigError", "cannot be linked for wasm32-wasi"),
        ("folder", "ConfigError", "lies in a folder that does not exist"),
        ("example", "ConfigError", "with an example of its inputs"),
    ],
)
def test_a_library_for_tvms_runtime_that_cannot_be_is_refused(
    parts: dict[str, Any], name: str, kind: str, why: str
) -> None:
    found = parts["exported_for_tvm"]["refused"]
    assert found["said"][name][0] == kind and why in found["said"][name][1]
    assert found["there"] == "mine", "a file that was there is not what it was"


@pytest.mark.slow
def test_networks_are_compiled_and_compute_what_eager_does(slow_parts: dict[str, Any]) -> None:
    eager = {name for name, one in slow_parts["networks"].items() if one["said"]}
    assert {name: one["wrong"] for name, one in slow_parts["networks"].items() if one["wrong"]} == {}
    assert eager <= {"empty"}, {name: slow_parts["networks"][name]["said"] for name in eager}


@pytest.mark.slow
def test_of_two_processes_at_once_one_packs() -> None:
    seed = str(secrets.randbits(31))
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda _: found_by("kept", seed=seed)["kept"]["first"], range(2)))
    assert sorted(one["exports"] for one in found) == [0, 1]
    assert [one["said"] for one in found] == [[], []]


@pytest.mark.slow
def test_constants_that_change_are_seen(slow_parts: dict[str, Any]) -> None:
    assert slow_parts["constants_that_change"] == {"wrong": [], "said": []}


def test_the_lines_of_the_readme(parts: dict[str, Any]) -> None:
    assert parts["readme"] == {"wrong": [], "said": [], "lines": 3}


@pytest.mark.slow
def test_hooks_autocast_neighbours_and_forks(slow_parts: dict[str, Any]) -> None:
    assert {name: wrong for name, wrong in slow_parts["surroundings"].items() if wrong} == {}
