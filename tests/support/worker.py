"""A worker without TVM: results for the small model of :mod:`tests.support.kernels`, whatever the job's
model is.

    python -m tests.support.worker MODE

MODE is ``ok``, or a way to fail when it compiles: ``crash``, ``abort``, ``hang``, ``error``, ``empty``,
``noise``, ``wrong``, or ``slow``, which compiles to a slow kernel. ``hang:TASK`` hangs in another task,
``division`` ends as a division by zero does, ``reference`` crashes where it records.
``retrained`` is ``ok`` with other weights, ``network`` another network.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from edgepack.plan.binary import Binary, write_binaries
from edgepack.plan.types import (
    Arena,
    ArenaBuffer,
    Argument,
    Constant,
    Kernel,
    LinearQuantisation,
    Plan,
    Step,
    TensorSpec,
)
from edgepack.system.guardian import end_with_parent
from edgepack.system.temporary import cache_folder

ROWS, COLUMNS = 4, 8
SOURCE = Path(__file__).with_name("kernels.c")
ZIG_TARGET = {
    "x86_64": ["-target", "x86_64-linux-gnu", "-mcpu=baseline", "-fPIC"],
    "aarch64": ["-target", "aarch64-linux-gnu", "-mcpu=baseline", "-fPIC"],
    "armv7a": ["-target", "arm-linux-gnueabihf", "-mcpu=baseline", "-fPIC"],
    "thumbv7em": ["-target", "thumb-freestanding-eabihf", "-mcpu=cortex_m4+vfp4d16sp"],
    "arm64-apple": ["-target", "aarch64-macos.11.0", "-mcpu=apple_m1", "-fPIC"],
    "x86_64-apple": ["-target", "x86_64-macos.11.0", "-mcpu=baseline", "-fPIC"],
    "riscv32": ["-target", "riscv32-freestanding-none", "-mcpu=generic_rv32+m+c"],
    "wasm32": ["-target", "wasm32-wasi", "-mcpu=baseline", "-fPIC"],
}


def event(**fields: Any) -> None:
    print(json.dumps(fields), flush=True)


#: Of the weights.
SEED = 7


def constants() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(SEED)
    return rng.standard_normal(COLUMNS).astype("f4"), rng.standard_normal(COLUMNS).astype("f4")


def reference(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    scale, bias = constants()
    y = x * scale + bias
    return np.maximum(y, 0).astype("f4"), (y > 0).astype("i1")


def plan(name: str, prefix: str, slow_kernels: tuple[str, ...] = ()) -> Plan:
    """The plan of the small model: two steps, one buffer in the arena between them."""
    scale, bias = constants()
    nbytes = ROWS * COLUMNS * 4
    return Plan(
        name=name,
        inputs=(TensorSpec("input", "float32", (ROWS, COLUMNS)),),
        outputs=(
            TensorSpec("output", "float32", (ROWS, COLUMNS)),
            TensorSpec("sign", "int8", (ROWS, COLUMNS), LinearQuantisation(0.0625, -3)),
        ),
        constants=(
            Constant("scale", "float32", (COLUMNS,), 32, hashlib.sha256(scale.tobytes()).hexdigest(), 0),
            Constant("bias", "float32", (COLUMNS,), 32, hashlib.sha256(bias.tobytes()).hexdigest(), 64),
        ),
        params_bytes=96,
        arena=Arena(nbytes, nbytes, 0, 1, 0, (ArenaBuffer("scaled", 0, nbytes, 0, 1),)),
        steps=(
            Step(
                f"{prefix}scale",
                ROWS,
                (Argument("input"), Argument("constant", 0), Argument("arena", 0, 0)),
                ("Mul_0",),
            ),
            Step(
                f"{prefix}bias_relu",
                ROWS,
                (Argument("arena"), Argument("constant", 1), Argument("output", 0), Argument("output", 1)),
                ("Add_0", "Relu_0"),
            ),
        ),
        kernels=(
            Kernel(f"{prefix}scale", 3, ("multiply",), "plain", {}, ROWS * COLUMNS, 3 * nbytes),
            Kernel(
                f"{prefix}bias_relu", 4, ("add", "relu"), "plain", {"tile": 8}, ROWS * COLUMNS, 3 * nbytes
            ),
        ),
        warnings=("this model was made by hand", *slow_kernels),
        slow_kernels=slow_kernels,
    )


def write_results(
    job: dict[str, Any], directory: Path, mode: str = "ok", slow_kernels: tuple[str, ...] = ()
) -> None:
    """All the files of a worker that compiled."""
    from edgepack.toolchains.zig_program import zig_program

    prefix = job["symbol_prefix"]
    made = plan(job["name"], prefix, slow_kernels)
    if mode == "network":
        made = replace(made, steps=made.steps[:1] * 2 + made.steps[1:])
    text = made.to_json()
    (directory / "plan.json").write_text(text, encoding="utf-8")
    scale, bias = constants()
    (directory / "params.bin").write_bytes(scale.tobytes() + bytes(32) + bias.tobytes())
    arch, vendor = job["target"]["triple"].split("-")[:2]
    command = [*zig_program(), "cc", *ZIG_TARGET[f"{arch}-apple" if vendor == "apple" else arch]]
    flags = [
        "-O2",
        "-g0",
        "-fvisibility=hidden",
        "-fno-sanitize=all",
        "-ffp-contract=off",
        f"-DPREFIX={prefix}",
    ]
    # Run where the source is: its name, not its path, is written into the object.
    source = [*flags, "-c", SOURCE.name, "-o", str(directory / "kernels.o")]
    cache = str(cache_folder("zig"))
    environment = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache, **os.environ}
    subprocess.run([*command, *source], check=True, cwd=SOURCE.parent, env=environment)
    write_binaries(directory, [Binary("kernels.o", "zig", "object")])


def record(job: dict[str, Any], folder: Path, *, wrong: bool) -> None:
    """The recorded data; ``wrong``: an expected output that no kernel gives."""
    folder.mkdir(exist_ok=True)
    if "input" in job["inputs"]:
        x = np.load(job["inputs"]["input"])
    else:
        x = np.random.default_rng(job["seed"]).standard_normal((ROWS, COLUMNS)).astype("f4")
    y, sign = reference(x)
    if wrong:
        y[1, 2] += 1
    x.tofile(folder / "input_0.bin")
    y.tofile(folder / "output_0.bin")
    sign.tofile(folder / "output_1.bin")
    shape = [ROWS, COLUMNS]
    recorded = {
        "inputs": [{"name": "input", "dtype": "float32", "shape": shape, "file": "input_0.bin"}],
        "outputs": [
            {
                **{"name": "output", "dtype": "float32", "shape": shape, "file": "output_0.bin"},
                **{"atol": 1e-5, "rtol": 1e-4, "max_abs": float(np.abs(y).max())},
            },
            {
                **{"name": "sign", "dtype": "int8", "shape": shape, "file": "output_1.bin"},
                **{"atol": 0.0, "rtol": 0.0, "max_abs": 1.0},
            },
        ],
        "reference": "numpy",
    }
    (folder / "recorded.json").write_text(json.dumps(recorded), encoding="utf-8")


def hang(directory: Path) -> None:
    (directory / "pid").write_text(str(os.getpid()), encoding="utf-8")
    time.sleep(600)


def compile_(mode: str, job: dict[str, Any], directory: Path) -> None:
    event(event="stage", name="kernels")
    event(event="kernel", name="conv2d_17")
    if mode == "crash":
        print("about to crash", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGSEGV)
    if mode == "running":
        event(event="running", name="LiteRT's interpreter")
    if mode == "ran":
        event(event="running", name="LiteRT's interpreter")
        event(event="running", name="")
    if mode == "no memory":
        print("terminate called after throwing an instance of 'std::bad_alloc'", file=sys.stderr, flush=True)
    if mode in ("abort", "running", "ran", "no memory"):
        os.abort()
    if mode == "division":
        os.kill(os.getpid(), signal.SIGFPE)
    if mode == "hang":
        hang(directory)
    if mode == "noise":
        print("{half a line of TVM's\n[1, 2]\nnull")
    if mode != "empty":
        slow = ("kernel scale is slow: why", "so is bias") if mode == "slow" else ()
        write_results(job, directory, mode, slow)


def run(mode: str, directory: Path) -> None:
    job = json.loads((directory / "job.json").read_text(encoding="utf-8"))
    result = None
    if mode == f"hang:{job['task']}":
        hang(directory)
    if job["task"] == "read":
        result = {"frontend": "onnx", "files": [job["model"]]}
    elif job["task"] == "import":
        event(event="stage", name="import")
        event(event="warning", text="the worker is not the real one")
        if mode == "reference":
            event(event="stage", name="record")
            os.kill(os.getpid(), signal.SIGSEGV)
        record(job, directory / "recorded", wrong=mode == "wrong")
    elif mode == "error":
        cut = {"part": "before", "inputs": [], "outputs": ["a b", "c"], "nodes": 3, "of": 4}
        refused = {"operator": "Foo", "nodes": [f"n{i}" for i in range(7)], "reason": "no converter for it"}
        texts = {"message": "No rule for Foo.", "hint": "Ask.", "detail": "n1"}
        event(event="error", **{"class": "ModelError"}, **texts, cuts=[cut], refused=[refused])
        return
    elif job["task"] == "check":
        (directory / "plan.json").write_text(plan("model", "").to_json(), encoding="utf-8")
    else:
        compile_(mode, job, directory)
    event(event="done", result=result)


def main(mode: str) -> None:
    global SEED  # noqa: PLW0603
    SEED = 8 if mode == "retrained" else SEED
    end_with_parent()
    while line := sys.stdin.readline():
        run(mode, Path(json.loads(line)))


if __name__ == "__main__":
    main(sys.argv[1])
