"""ONNX's own node tests: a sample of them in this process, all of them behind the marker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.compiler.frontend.onnx.binding import bind
from workbench.compiled import Compiled
from workbench.node_tests import SAMPLE, check, load_tests

ROOT = Path(__file__).resolve().parents[1]

TESTS = frozenset(SAMPLE)
NAMES = [name for names in SAMPLE.values() for name in names]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: load_tests(TESTS)[name].model for name in NAMES}
    for model in models.values():
        bind(model, shapes={}, dims={})
    return Compiled(models, tmp_path_factory.mktemp("node_tests"))


@pytest.mark.parametrize("name", NAMES)
def test_operator_does_what_onnx_says(compiled: Compiled, name: str) -> None:
    test = load_tests(TESTS)[name]
    outputs = compiled.run(name, test.inputs)
    check(test, list(outputs.values()))


def test_sample_is_of_the_operators_that_it_names() -> None:
    named = {name: operator for operator, names in SAMPLE.items() for name in names}
    assert named == {name: load_tests(TESTS)[name].operator.rpartition(".")[2] for name in NAMES}


@pytest.mark.slow
def test_nearly_all_node_tests_pass(tmp_path: Path) -> None:
    """Kernels of all tests in this machine's code, an hour less than whole packs (tools/node_tests.py)."""
    results = tmp_path / "results.jsonl"
    command = [sys.executable, "tools/node_tests.py", "--quick", "--jobs", "2", "--results", str(results)]
    subprocess.run(command, check=True, cwd=ROOT)
    records = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
    scope = [record for record in records if record["status"] != "excluded"]
    assert [record["test"] for record in scope if record["status"] == "internal"] == []
    assert sum(record["status"] == "pass" for record in scope) >= 0.95 * len(scope)
