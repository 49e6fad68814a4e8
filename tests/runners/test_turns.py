"""Versions of a model in one program, as ``edgepack tune`` makes them, measured in turns by that program."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from edgepack.bundle.manifest import Manifest
from edgepack.commands.tune_programs import MOST_VERSIONS, Programs
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, EdgepackError
from edgepack.options import PackOptions, RunOptions
from edgepack.plan.tuned import TunedChoice
from edgepack.runners import turns as module
from edgepack.runners.turns import HowMany, bench_in_turns
from edgepack.runners.verify import verify_variant
from workbench.models import save
from workbench.models.builder import Graph


def layers() -> Graph:
    g = Graph("layers")
    x = g.op("Relu", g.conv(g.input("x", [1, 8, 12, 12]), 8, 24, 3, bias=True))
    g.output(g.op("Relu", g.conv(x, 24, 32, 1, bias=True), name="y"))
    return g


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Programs]:
    folder = tmp_path_factory.mktemp("turns")
    model = save(layers().model(), folder, "layers.onnx")
    with Programs(model, load_device("host"), PackOptions(), folder) as found:
        yield found


def test_versions_have_their_own_kernels_and_are_measured_in_turns(programs: Programs) -> None:
    programs.built([()])
    assert programs.most_versions == MOST_VERSIONS
    groups = programs.groups(())
    cpu = programs.target.tuned_kinds[0]
    choices = [
        TunedChoice(cpu, group.key, one.rule, one.schedule, 1.5)
        for group in groups
        for one in group.candidates[:1]
    ]
    assert len(groups) == len(choices) == 2 and all(group.nodes for group in groups)
    program = programs.built([(), tuple(choices), tuple(choices[:1])])
    own, both, one = program.versions
    assert program.manifest.device.name == own and {both, one} == {"version1", "version2"}
    marked = [
        sum("tuned" in k.parameters for k in program.manifest.code(n).kernels) for n in program.versions
    ]
    assert marked == [0, 2, 1]
    where = RunOptions(device=programs.device)
    assert all(verify_variant(program.root, program.manifest, name, where) for name in program.versions)
    found = bench_in_turns(program.root, program.manifest, [own, one, both], HowMany(8, 3, 60), where)
    assert [len(side.runs_ms) for side in found] == [8] * 3
    for name, side in zip((own, one, both), found, strict=True):
        assert {len(turn) for turn in side.steps_us} == {len(program.nodes(name))}
        assert all(ms > 0 for ms in side.runs_ms) and all(us > 0 for turn in side.steps_us for us in turn)
    _check_usage(program.root, program.manifest, own)
    root = program.root
    program.discard()
    assert not root.exists()


def _check_usage(root: Path, manifest: Manifest, own: str) -> None:
    """A variant that there is not, too many, and none beside another."""
    artifact = manifest.artifact("program")
    assert artifact is not None
    program = root / artifact.path
    for words in (["--beside", "none"], ["--beside", own] * 17, ["--beside", own, "--turns", "0"]):
        done = subprocess.run([program, "bench", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2 and json.loads(done.stdout)["code"] == "USAGE"
    words = ["--beside", own, "--seconds", "0", "--turns", "9", "--runs", "1"]
    done = subprocess.run([program, "bench", *words], capture_output=True, text=True, check=True)
    sides = json.loads(done.stdout)["variants"]
    assert [len(side["runs_ms"]) for side in sides] == [9, 9] and "steps_us" not in sides[0]


def test_a_version_that_cannot_be_compiled_has_no_name(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = Programs._kernels

    def fails(self: Programs, target: object, choices: tuple[TunedChoice, ...]) -> object:
        if choices and choices[0].rule == "fails":
            raise EdgepackError("it cannot be compiled")
        return usual(self, target, choices)  # type: ignore[arg-type]

    monkeypatch.setattr(Programs, "_kernels", fails)
    broken = TunedChoice(programs.target.tuned_kinds[0], "a group", "fails", {}, 1.5)
    program = programs.built([(), (broken,)])
    assert program.versions == ("", "") and not program.manifest.variants
    with pytest.raises(EdgepackError, match="it cannot be compiled"):
        programs.built([(broken,), ()])


def test_a_program_that_says_something_else_is_not_believed(
    programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = programs.built([()])
    name = programs.device.name
    for said in ({}, {"variants": [{"name": name, "runs_ms": [1.0], "steps_us": [[1.0]]}]}):
        monkeypatch.setattr(module, "run_program", lambda *a, said=said, **k: (None, said))
        with pytest.raises(CheckFailedError, match=r"does not understand|did not measure the steps"):
            bench_in_turns(program.root, program.manifest, [name], HowMany(1, 1, 1), RunOptions())
