"""A manifest for tests that need no bundle, and bundles that were changed but are whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from edgepack.bundle.checksums import write_sums
from edgepack.bundle.layout import MANIFEST, SUMS
from edgepack.bundle.manifest import Manifest
from edgepack.system.files import list_files, sha256_file


def seal(root: Path) -> None:
    """List the files as they are now in the bundle's manifest and sums."""
    data = json.loads((root / MANIFEST).read_text(encoding="utf-8"))
    data["files"] = [
        {"path": name, "nbytes": (root / name).stat().st_size, "sha256": sha256_file(root / name)}
        for name in list_files(root)
        if name not in {MANIFEST, SUMS}
    ]
    (root / MANIFEST).write_text(json.dumps(data), encoding="utf-8")
    write_sums(root)


def example(**changes: Any) -> Manifest:
    """A small manifest with something in every field; ``changes`` replace top-level fields."""
    tensor = {"name": "input", "dtype": "float32", "shape": [2, 3], "nbytes": 24}
    recorded = {"name": "input", "dtype": "float32", "shape": [2, 3], "file": "test/input_0.bin"}
    data: dict[str, Any] = {
        "name": "net",
        "symbol": "edgepack_model_net",
        "edgepack": "0.1.0",
        "model": {"file": "net.onnx", "sha256": "ab" * 32, "shapes": {"input": [2, 3]}, "dims": {"n": 2}},
        "device": {
            "name": "raspberrypi4",
            "description": "a board",
            "arch": "aarch64",
            "os": "linux",
            "libc": "glibc",
            "triple": "aarch64-unknown-linux-gnu",
            "cpu": "cortex-a72",
            "features": ["+neon"],
            "cpu_requires": ["neon"],
            "threads": 4,
            "runner": {"name": "qemu"},
        },
        "toolchain": {"name": "zig", "family": "zig", "version": "zig 0.14.0"},
        "tools": {"apache-tvm": "0.27.0", "numpy": "2.0.0"},
        "inputs": [tensor],
        "outputs": [{**tensor, "name": "output"}],
        "params": {"mode": "file", "file": "params/net.params", "nbytes": 96, "id": "cd" * 32, "tensors": 2},
        "memory": {"arena": 256, "lower_bound": 250, "peak_step": 0, "scratch_per_thread": 64},
        "runtime": {"abi_version": 1, "text_bytes": 12000, "threads": 4, "heterogeneous": True},
        "artifacts": [
            {"kind": "shared", "path": "lib/libnet.so", "nbytes": 20000, "audit": {"needed": ["libc.so.6"]}},
            {"kind": "program", "path": "bin/net", "nbytes": 30000, "audit": {}},
        ],
        "kernels": [{"symbol": "k", "ops": ["add"], "rule": "plain", "parameters": {"tile": 8}, "flops": 6}],
        "steps": [{"kernel": "k", "tasks": 2, "nodes": ["Add_0"]}],
        "flops": 6,
        "recorded": {
            "reference": "onnxruntime 1.20",
            "inputs": [recorded],
            "outputs": [
                {**recorded, "name": "output", "file": "test/output_0.bin", "atol": 1e-5, "rtol": 1e-4}
            ],
        },
        "warnings": ["a warning"],
        "files": [{"path": "bin/net", "nbytes": 30000, "sha256": "ef" * 32}],
    }
    return Manifest.model_validate({**data, **changes})
