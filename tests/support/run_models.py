"""Runs models in a process of its own, so that this can be on an emulated CPU: ``run_models.py FOLDER NAME``.

Reads ``<model>.onnx`` and ``<model>.npz`` (its inputs) in ``FOLDER``; writes all outputs, without and with
graph optimisations, to ``FOLDER/NAME.results.npz``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx

from edgepack.compiler.frontend.onnx.onnxruntime_session import Level, create_session


def main(folder: Path, name: str) -> None:
    results: dict[str, np.ndarray] = {}
    levels: tuple[Level, ...] = ("none", "extended")
    for path in sorted(folder.glob("*.onnx")):
        with np.load(path.with_suffix(".npz")) as inputs:
            for level in levels:
                for index, array in enumerate(create_session(onnx.load(path), level).run(None, dict(inputs))):
                    results[f"{path.stem}, {level}, output {index}"] = np.asarray(array)
    np.savez(folder / f"{name}.results.npz", **results)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
