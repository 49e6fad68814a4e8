"""The commands that replace something: what chaos is done to, and how each one's output is looked at."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import onnx
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

import edgepack
from edgepack.api import Bundle
from edgepack.config.tuned import read_tuned
from edgepack.errors import CheckFailedError
from edgepack.release.check import check_release
from edgepack.release.index import load_index
from edgepack.render.params_file import read_params
from edgepack.signing.sums import check_signature, public_key
from tests.support import fake
from tests.support.chaos import Command
from workbench.models import save
from workbench.models.operators import CASES

PEM = serialization.Encoding.PEM

_PROJECT = """\
name: fleet
version: 1.{version}.0
summary: The version {version}
models:
  net: {{path: net.onnx}}
devices:
  linux-x86_64:
  my-board: {{extends: linux-x86_64, formats: [zip]}}
"""


class Pack:
    """A bundle, with ``--force``."""

    name, mode = "bundle", "ok"
    codes: frozenset[int] = frozenset()
    options: Sequence[str] = ("--no-cache",)

    def __init__(self, model: Path, folder: Path) -> None:
        self.model = model

    def arguments(self, output: Path, version: int) -> Sequence[str | Path]:
        return ["pack", self.model, "-o", output, "--force", "--seed", str(version)]

    def check(self, output: Path) -> None:
        Bundle(output).check_sums()


class Release:
    """A release of two units, in two versions."""

    name, mode = "dist", "ok"
    codes = frozenset({1})
    options: Sequence[str] = ()

    def __init__(self, model: Path, folder: Path) -> None:
        self.projects = [folder / f"project{version}" for version in (0, 1)]
        for version, project in enumerate(self.projects):
            project.mkdir()
            shutil.copy(model, project / "net.onnx")
            (project / "edgepack.yaml").write_text(_PROJECT.format(version=version))

    def arguments(self, output: Path, version: int) -> Sequence[str | Path]:
        return ["release", self.projects[version], "-o", output]

    def check(self, output: Path) -> None:
        wrong = [one for one in check_release(output, run=False) if one.status == "failed"]
        assert wrong == []
        assert len(load_index(output).units) == 2


class Export:
    """A package of each of two bundles, in one folder, which is there from the start."""

    name, mode = "packages", "ok"
    codes: frozenset[int] = frozenset()
    options: Sequence[str] = ()

    def __init__(self, model: Path, folder: Path) -> None:
        self.bundles, self.known = [], []
        with pytest.MonkeyPatch.context() as patch:
            fake.install("ok", patch.setattr)
            for version in (0, 1):
                bundle = edgepack.pack(model, "host", folder / f"bundle{version}", name="net", seed=version)
                self.bundles.append(bundle.path)
                made = edgepack.export(
                    bundle, ["zip", "tar.gz"], folder / f"made{version}", package_version="1.0.0"
                )
                self.known.append({path.name: path.read_bytes() for path in made})
        assert self.known[0].keys() == self.known[1].keys()
        assert self.known[0] != self.known[1]

    def arguments(self, output: Path, version: int) -> Sequence[str | Path]:
        formats = ["--format", "zip", "--format", "tar.gz", "--package-version", "1.0.0"]
        return ["export", self.bundles[version], "-o", output, "--force", *formats]

    def check(self, output: Path) -> None:
        there = [path for path in output.iterdir() if not path.name.startswith(".export.")]
        for path in there:
            assert path.read_bytes() in [one[path.name] for one in self.known], path


class Update:
    """New params for a bundle's library."""

    name, mode = "new.params", "retrained"
    codes: frozenset[int] = frozenset()
    options: Sequence[str] = ()

    def __init__(self, model: Path, folder: Path) -> None:
        retrained = onnx.load(model)
        retrained.doc_string = "retrained"
        self.model = folder / "retrained.onnx"
        onnx.save(retrained, self.model)
        with pytest.MonkeyPatch.context() as patch:
            fake.install("ok", patch.setattr)
            self.bundle = edgepack.pack(model, "host", folder / "bundle", name="net").path
            fake.install("retrained", patch.setattr)
            self.params = edgepack.update(self.bundle, self.model, folder / "known.params").path

    def arguments(self, output: Path, version: int) -> Sequence[str | Path]:
        return ["update", self.bundle, "--model", self.model, "-o", output, "--force"]

    def check(self, output: Path) -> None:
        read_params(output)
        assert output.read_bytes() == self.params.read_bytes()


class Sign:
    """The signature over a bundle's sums, by each of two keys."""

    name, mode = "bundle", "ok"
    codes: frozenset[int] = frozenset()
    options: Sequence[str] = ()

    def __init__(self, model: Path, folder: Path) -> None:
        self.keys = [folder / f"key{version}" for version in (0, 1)]
        self.public = []
        for key in self.keys:
            made = ec.generate_private_key(ec.SECP256R1())
            form = serialization.PrivateFormat.PKCS8
            key.write_bytes(made.private_bytes(PEM, form, serialization.NoEncryption()))
            public = made.public_key().public_bytes(PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
            (folder / f"{key.name}.pub").write_bytes(public)
            self.public.append(public_key(folder / f"{key.name}.pub"))
        self.first = folder / "first"
        with pytest.MonkeyPatch.context() as patch:
            fake.install("ok", patch.setattr)
            edgepack.pack(model, "host", self.first, name="net")

    def arguments(self, output: Path, version: int) -> Sequence[str | Path]:
        if not output.exists():
            shutil.copytree(self.first, output)
        return ["sign", output, "--key", self.keys[version]]

    def check(self, output: Path) -> None:
        Bundle(output).check_sums()
        if (output / "SHA256SUMS.sig").exists():
            assert any(self._signed(output, key) for key in self.public)

    @staticmethod
    def _signed(output: Path, key: Any) -> bool:
        with suppress(CheckFailedError):
            check_signature(output, key)
            return True
        return False


class Quantize:
    """A quantised model, of two seeds of calibration data, by the real worker."""

    name, mode = "quantised.onnx", "real"
    codes: frozenset[int] = frozenset()
    options: Sequence[str] = ()

    def __init__(self, model: Path, folder: Path) -> None:
        self.model = save(CASES["conv_1x1"](), folder, "float.onnx")

    def arguments(self, output: Path, version: int) -> Sequence[str | Path]:
        calibration = ["--calibrate", "synthetic", "--seed", str(version)]
        return ["quantize", self.model, "-o", output, "--force", *calibration]

    def check(self, output: Path) -> None:
        onnx.checker.check_model(onnx.load(output), full_check=True)


class Tune:
    """A file of tuned schedules, which is extended during a search, by the real worker."""

    name, mode = "tuned.json", "real"
    codes: frozenset[int] = frozenset()
    options: Sequence[str] = ()

    def __init__(self, model: Path, folder: Path) -> None:
        self.model = save(CASES["conv_1x1"](), folder, "net.onnx")

    def arguments(self, output: Path, version: int) -> Sequence[str | Path]:
        return ["tune", self.model, "-o", output, "--trials", str(1 + version)]

    def check(self, output: Path) -> None:
        read_tuned(output)


COMMANDS: dict[str, Callable[[Path, Path], Command]] = {
    "pack": Pack,
    "release": Release,
    "export": Export,
    "update": Update,
    "sign": Sign,
    "quantize": Quantize,
    "tune": Tune,
}
