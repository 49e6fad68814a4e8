"""A model's C and its kernels, run on inputs of any bytes: they touch nothing but their tensors, params and
memory, each of which lies between pages that nobody may read (``tests/support/sources/guarded.c``).

The C as one file, built by clang with its address and undefined-behaviour sanitizers here; the kernels of
other CPUs under their emulators.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import onnx
import pytest
from onnx import compose

import edgepack
from edgepack.config.device import load_device
from edgepack.runners import qemu_user
from edgepack.runners.base import host_os
from edgepack.toolchains import resolve
from tests.support.c_sources import SOURCES
from tests.support.packages import tool
from workbench.models import build
from workbench.models.builder import Graph
from workbench.models.chains.drawn import Chain
from workbench.models.classical import ml_model, modern_ensemble
from workbench.models.drawn_regions import Drawn
from workbench.models.operators import CASES

RUNS = 12
#: In one model: of as many inputs as the program takes.
CHAINS = 15
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1")


def many_kinds() -> onnx.ModelProto:
    """Layers of each kind on tensors of odd sizes: a convolution, a look-up, indices that are inputs."""
    g = Graph("kinds", seed=3)
    image, ids, at = (
        g.input("image", (1, 3, 7, 5)),
        g.input("ids", (1, 5), "int64"),
        g.input("at", (3,), "int64"),
    )
    x = g.op("Relu", g.conv(image, 3, 5, 3, bias=True))
    g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], name="pooled")
    g.output("pooled")
    words = g.op("Gather", g.weight(11, 6), ids)
    g.op("ReduceMax", g.op("Softmax", words, axis=-1), axes=[1], keepdims=0, name="words")
    g.output("words")
    g.op("Gather", x, at, axis=1, name="chosen")
    g.output("chosen")
    return g.model()


def chains(first: int) -> onnx.ModelProto:
    """Chains of operators on images of odd sizes beside each other, an input and an output of each."""
    models = [compose.add_prefix(Chain(seed).model, f"n{seed}_") for seed in range(first, first + CHAINS)]
    whole = models[0]
    for model in models[1:]:
        whole = compose.merge_models(whole, model, io_map=[])
    return whole


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "many_kinds": many_kinds,
    "ds_cnn": lambda: build("ds_cnn"),
    "lstm": lambda: build("lstm"),
    "regions": lambda: Drawn(0).model,
    **{f"chains{first}": partial(chains, first) for first in (0, 100, 200)},
    "forest": lambda: ml_model(
        [modern_ensemble("float32")], {"x": ("float32", (5, 3))}, {"y": "float32"}, opsets=(18, 5)
    ),
    **{name: CASES[name] for name in ("qdq_conv", "gather_input_indices", "scatter_nd", "roialign_scaled")},
    **{name: CASES[name] for name in ("gridsample_volume", "deformconv_groups", "topk", "cast_int8")},
}

#: Those that take odd inputs in each their way, in one model; the others behind the marker.
KINDS = ("many_kinds",)
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in NETWORKS if name not in KINDS]

DEVICES = ("raspberrypi2", "raspberrypi5", "linux-riscv64-v")

#: What has conversions of floats to integers that truncate: RISC-V's end qemu 7.2.
FLOATS_TO_INTEGERS = ("cast_int8", "roialign_scaled", "deformconv_groups", "gridsample_volume")
CRASHES_QEMU = {(name, DEVICES[2]) for name in FLOATS_TO_INTEGERS}

pytestmark = pytest.mark.skipif(host_os() != "linux", reason="the program is one for Linux")


def packed(network: str, device: str, folder: Path) -> edgepack.Bundle:
    """With params that a program gives, which can lie where it wants."""
    path = folder / f"{network}.onnx"
    onnx.save(NETWORKS[network](), str(path))
    return edgepack.pack(path, device, folder / "bundle", params="caller", name="net")


@pytest.mark.parametrize("network", [*KINDS, *SLOW])
def test_sanitizers_find_nothing_in_the_c_and_kernels_touch_nothing_else(
    network: str, tmp_path: Path
) -> None:
    bundle = packed(network, "host", tmp_path)
    (made,) = edgepack.export(bundle, "c-single-file", tmp_path / "dist")
    shutil.unpack_archive(made, tmp_path / "x")
    (folder,) = (tmp_path / "x").iterdir()
    defines = ['-DHEADER="net.h"', "-DMODEL=edgepack_model_net"]
    sources = [SOURCES / "guarded.c", folder / "net.c", *sorted(folder.glob("net_kernels*.o"))]
    command = [tool("clang"), *SANITIZERS, *defines, f"-I{folder}", *sources, "-o", tmp_path / "run", "-lm"]
    subprocess.run([*command, "-pthread"], check=True)
    done = subprocess.run(
        [tmp_path / "run", bundle.path / "params" / "net.params", str(RUNS)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.stderr


@pytest.mark.parametrize(
    "device", [DEVICES[0], *(pytest.param(d, marks=pytest.mark.slow) for d in DEVICES[1:])]
)
@pytest.mark.parametrize("network", [*KINDS, *SLOW])
def test_kernels_of_other_cpus_touch_nothing_else(network: str, device: str, tmp_path: Path) -> None:
    if (network, device) in CRASHES_QEMU:
        pytest.skip("qemu 7.2 has a defect")
    bundle = packed(network, device, tmp_path)
    toolchain = resolve(load_device(device))
    source = Path(shutil.copy(SOURCES / "guarded.c", tmp_path))
    toolchain.compile_c(
        source,
        tmp_path / "guarded.o",
        include=[bundle.path / "include"],
        defines={"HEADER": '"net.h"', "MODEL": "edgepack_model_net"},
    )
    (library,) = (bundle.path / "lib").glob("*.a")
    toolchain.link_program([tmp_path / "guarded.o", library], tmp_path / "run", libraries=["m"])
    argv = [tmp_path / "run", bundle.path / "params" / "net.params", str(RUNS)]
    done = qemu_user.run(load_device(device), argv, timeout=600, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "ran\n"), done.printed
