"""ONNX's own node tests: a sample of them in this process, all of them behind the marker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO

import pytest

from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.errors import EdgepackError
from tests.support.processes import in_fork
from workbench.compiled import Compiled
from workbench.hostile_inputs import KINDS, hostile_inputs
from workbench.node_tests import SAMPLE, NodeTest, check, load_tests

ROOT = Path(__file__).resolve().parents[1]

TESTS = frozenset(SAMPLE)
FORKS = pytest.mark.skipif(not hasattr(os, "fork"), reason="a process that crashes must not be this one")
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


def run_with_hostile_inputs(compiled: Compiled, tests: Iterable[NodeTest], seeds: int) -> str:
    """How the process ended that ran them, each between pages that it may not read; "" for well."""

    def run_all(say: IO[str]) -> None:
        for test in tests:
            for start, kind in enumerate(KINDS):
                for seed in range(start, start + seeds):
                    print(test.name, kind, seed, file=say, flush=True)
                    signal.alarm(60)
                    inputs = hostile_inputs(test.inputs, kind, seed)
                    compiled.run(test.name, inputs, seed=seed)

    return in_fork(run_all)


@FORKS
def test_kernels_bear_any_inputs_and_touch_nothing_else(compiled: Compiled) -> None:
    tests = [load_tests(TESTS)[name] for name in NAMES]
    assert run_with_hostile_inputs(compiled, tests, 1) == ""


@FORKS
@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_kernels_of_all_node_tests_bear_any_inputs(part: int, tmp_path: Path) -> None:
    """Half a minute each."""
    known = load_tests()
    names = sorted(name for name, test in known.items() if not test.excluded and test.inputs)[part::20]
    for name in names:
        bind(known[name].model, shapes={}, dims={})
    compiled = Compiled({name: known[name].model for name in names}, tmp_path)
    packed = []
    for name in names:
        with suppress(EdgepackError):
            compiled.plan(name)
            packed.append(known[name])
    assert run_with_hostile_inputs(compiled, packed, 4) == ""


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
