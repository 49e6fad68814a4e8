"""A library with kernels for several kinds of CPU: which are taken, and that all of them are right."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml

import edgepack
from edgepack.api import Bundle
from edgepack.cli.tables import kinds_table, overview_table
from edgepack.errors import ConfigError
from workbench.models import build, save
from workbench.models.evaluate import random_inputs, run_onnxruntime

DEVICE = "linux-x86_64-multi"
NAMES = ["linux-x86_64-v4", "linux-x86_64-v3", DEVICE]

#: A CPU that qemu emulates -> the kernels that it takes. (Its AVX-512 is not known to qemu 7.2.)
CPUS = {"qemu64": DEVICE, "Haswell": "linux-x86_64-v3"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("variants")
    return edgepack.pack(save(build("ds_cnn"), folder), DEVICE, folder / "out")


@pytest.fixture(scope="module")
def arm(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    folder = tmp_path_factory.mktemp("arm variants")
    return edgepack.pack(save(build("ds_cnn"), folder), "linux-aarch64-multi", folder / "out")


def program(bundle: Bundle, *arguments: str, before: tuple[str, ...] = ()) -> dict[str, object]:
    artifact = bundle.manifest.artifact("program")
    assert artifact is not None
    command = [*before, str(bundle.path / artifact.path), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    result: dict[str, object] = json.loads(done.stdout)
    return result


def test_all_variants_that_this_cpu_has_are_verified(bundle: Bundle) -> None:
    result = bundle.verify(threads=2)
    assert result.ok, result
    assert [variant.name for variant in result.variants] == NAMES
    ran = [variant for variant in result.variants if not variant.missing]
    assert ran[-1].name == DEVICE
    assert all(len(variant.outputs) == 1 for variant in ran)
    assert json.dumps(result.to_json())


def test_the_first_that_fits_is_taken(bundle: Bundle) -> None:
    result = bundle.verify()
    best = next(variant.name for variant in result.variants if not variant.missing)
    measured = bundle.bench(runs=2, profile=True)
    assert measured.variant == best
    assert len(measured.steps_us) == len(bundle.manifest.code(best).steps)
    assert bundle.bench(runs=2, variant=DEVICE).variant == DEVICE
    with pytest.raises(ConfigError, match="no variant 'linux'"):
        bundle.bench(variant="linux")


@pytest.mark.parametrize("cpu", CPUS)
def test_an_emulated_cpu_takes_its_own(bundle: Bundle, cpu: str) -> None:
    qemu = shutil.which("qemu-x86_64")
    if qemu is None:
        pytest.skip("needs qemu-x86_64: apt-get install qemu-user")
    result = program(bundle, "verify", str(bundle.path / "test"), before=(qemu, "-cpu", cpu))
    assert (result["status"], result["variant"]) == ("ok", CPUS[cpu])
    refused = program(
        bundle, "verify", str(bundle.path / "test"), "--variant", NAMES[0], before=(qemu, "-cpu", cpu)
    )
    assert refused["code"] == "EP_E_CPU"


@pytest.mark.parametrize(
    ("cpu", "taken"), [("cortex-a53", "linux-aarch64-multi"), ("cortex-a76", "linux-aarch64-v8.2")]
)
def test_arm_takes_the_kernels_for_its_features(
    cpu: str, taken: str, arm: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = arm.manifest.device.model_copy(
        update={"runner": arm.manifest.device.runner.model_copy(update={"name": "qemu", "cpu": cpu})}
    )
    monkeypatch.setattr(arm, "manifest", arm.manifest.model_copy(update={"device": device}))
    result = arm.verify()
    assert result.ok, result
    ran = [variant.name for variant in result.variants if not variant.missing]
    assert ran[0] == taken
    assert arm.bench(runs=1, warmup=0).variant == taken


def test_the_kernels_are_those_of_the_devices(bundle: Bundle) -> None:
    rules = {name: bundle.manifest.code(name) for name in NAMES}
    tiles = {name: [k.parameters.get("tile") for k in rules[name].kernels] for name in NAMES}
    assert len({str(value) for value in tiles.values()}) == len(NAMES)
    assert {artifact.kind for artifact in bundle.manifest.artifacts} == {"shared", "static", "program"}


def test_most_params_are_those_of_all_kinds(bundle: Bundle) -> None:
    """But for depthwise weights; without one order for all, each kind had nearly all that it reads alone."""
    manifest = bundle.manifest
    read = max(manifest.params.read, *(one.params_read for one in manifest.variants))
    own = [manifest.params.own, *(one.params_own for one in manifest.variants)]
    assert manifest.params.nbytes <= 1.25 * read
    assert max(own) <= 0.15 * read


def test_what_each_kind_of_cpu_costs_is_told(bundle: Bundle) -> None:
    """Each reads params that others read too, and some of its own."""
    manifest = bundle.manifest
    kinds = [(one.params_read, one.params_own) for one in manifest.variants]
    kinds.append((manifest.params.read, manifest.params.own))
    assert all(0 < own <= read < manifest.params.nbytes for read, own in kinds)
    assert max(read for read, _ in kinds) < manifest.params.nbytes <= sum(read for read, _ in kinds)
    lines = kinds_table(manifest).splitlines()
    assert [line.split()[0] for line in lines[1:]] == [*(one.name for one in manifest.variants), DEVICE]
    assert f"one of the {len(kinds)} kinds of CPU reads" in overview_table(manifest)


def test_a_session_takes_the_best(bundle: Bundle) -> None:
    model = build("ds_cnn")
    inputs = random_inputs(model, 7)
    with edgepack.load(bundle) as session:
        got = list(session.run(inputs).values())
    for value, expected in zip(got, run_onnxruntime(model, inputs), strict=True):
        np.testing.assert_allclose(value, expected, rtol=1e-3, atol=1e-4)


def test_params_of_all_variants_can_be_embedded(tmp_path: Path) -> None:
    bundle = edgepack.pack(save(build("mlp"), tmp_path), DEVICE, tmp_path / "out", params="embed")
    assert bundle.verify().ok


@pytest.mark.parametrize(
    ("variant", "message"),
    [
        ("linux-aarch64", "cannot be in the same library: arch is 'aarch64', not 'x86_64'"),
        ("linux-x86_64", "requires nothing of the CPU"),
        (DEVICE, "has variants itself"),
        ("linux-x86_64-v5", "there is no device"),
        ("linux-x86_64-v3, linux-x86_64-v3", "two of its variants have the name 'linux-x86_64-v3'"),
    ],
)
def test_a_variant_that_does_not_fit_is_refused(variant: str, message: str, tmp_path: Path) -> None:
    device = tmp_path / "mine.yaml"
    device.write_text(
        yaml.safe_dump({"extends": "linux-x86_64", "variants": variant.split(", ")}), encoding="utf-8"
    )
    with pytest.raises(ConfigError, match=message):
        edgepack.pack(save(build("mlp"), tmp_path), str(device), tmp_path / "out")
    assert not (tmp_path / "out").exists()
