"""release.json: what a release holds, for whoever reads it by a program.

The models below are the schema; ``release.schema.json`` beside this module is generated from them
(``python -m edgepack.release.index``) and tested to be current. No time, user, path or measured number is in
it: the same inputs and versions give the same bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from edgepack.bundle.fields import (
    Line,
    ModelName,
    OptionalName,
    OptionalSha256,
    OptionalWord,
    Sha256,
    Word,
    distinct,
)
from edgepack.bundle.paths import PathInBundle
from edgepack.bundle.records import model_schema, read_versioned
from edgepack.config.models import Name

__all__ = [
    "INDEX",
    "MEASUREMENTS",
    "NOTES",
    "SCHEMA_FILE",
    "SUMS",
    "BudgetRecord",
    "Change",
    "Contents",
    "Difference",
    "FileRecord",
    "Index",
    "JointRecord",
    "Limited",
    "PackageRecord",
    "Part",
    "Sized",
    "Sizes",
    "UnitRecord",
    "Verified",
    "json_schema",
    "load_index",
]

INDEX, NOTES, SUMS = "release.json", "RELEASE.md", "SHA256SUMS"
#: What was measured: it is never the same twice, so it is in no sum.
MEASUREMENTS = "measurements.json"
SCHEMA_FILE = Path(__file__).with_name("release.schema.json")


#: Sizes that can have a budget, and all sizes.
Limited = Literal["text", "params", "arena", "flash", "ram"]
Sized = Literal["text", "params", "arena", "flash", "ram", "bundle"]

#: What may be another one than in the release before.
Part = Literal["model", "weights", "kernels", "scales", "inputs and outputs", "options", "tools"]


class _Record(BaseModel):
    # A tool of this version reads releases of later versions with the same schema_version.
    model_config = ConfigDict(frozen=True, extra="ignore")


class FileRecord(_Record):
    """A file of the release."""

    path: PathInBundle
    nbytes: int = Field(ge=0)
    sha256: Sha256


class PackageRecord(FileRecord):
    """A package."""

    format: Name


class Sizes(_Record):
    """Bytes; null: it has none, or none that can be told."""

    text: int | None = Field(
        default=None, description="machine code of the library; of firmware, the program"
    )
    params: int = Field(ge=0, description="params")
    arena: int = Field(ge=0, description="arena of a session")
    flash: int | None = Field(default=None, description="of firmware")
    ram: int | None = Field(default=None, description="of firmware")
    bundle: int = Field(ge=0, description="all files of the bundle")


class Verified(_Record):
    """How the bundle's own program was run on the recorded data."""

    runner: OptionalName = Field(default="", description="what ran it; empty: it was not run")
    reference: str = Field(default="", description="what computed the recorded outputs")
    variants: tuple[Name, ...] = Field(
        default=(), description="kinds of CPU whose kernels were run, of several"
    )
    not_run: str = Field(default="", description="why it, or a kind of CPU, was not run")


class BudgetRecord(_Record):
    """A budget of the project file."""

    what: Limited
    limit: int = Field(ge=0)
    value: int | None = Field(description="null: this device has no such size")

    @property
    def kept(self) -> bool:
        """Whether it is not exceeded."""
        return self.value is None or self.value <= self.limit


class Change(_Record):
    """A size in the release that this one is compared with."""

    what: Sized
    before: int
    after: int


class Contents(_Record):
    """What a bundle is made of, by SHA-256."""

    weights: Sha256 = Field(description="of the params' data")
    layout: OptionalSha256 = Field(description="params of packs with the same fit its library")
    kernels: Sha256 = Field(description="over machine code, kernels of GPUs, the user's C")
    interface: Sha256 = Field(description="over names, types and sizes of inputs and outputs")
    scales: Sha256 = Field(description="over what integers of inputs and outputs mean")
    options: Sha256 = Field(description="over what was chosen for the pack")
    tools: Sha256 = Field(description="over versions of edgepack, its tools and the toolchain")
    updatable: bool = Field(description="whether `edgepack update` makes params for its library at all")


class Difference(_Record):
    """A part of a unit that is another one in the release that this one is compared with."""

    what: Part
    before: Sha256
    after: Sha256


class UnitRecord(_Record):
    """A model for a device."""

    model: ModelName
    device: Name
    bundle: PathInBundle = Field(description="folder of the bundle")
    inputs: Sha256 = Field(description="SHA-256 over all that decides on its files")
    model_sha256: Sha256 = Field(description="over the model file and its external data")
    manifest_sha256: Sha256 = Field(description="of the bundle's manifest.json, which lists its files")
    packages: tuple[PackageRecord, ...] = ()
    sizes: Sizes
    verified: Verified
    budgets: tuple[BudgetRecord, ...] = ()
    changes: tuple[Change, ...] | None = Field(default=None, description="null: not in the release before")
    bundle_inputs: OptionalSha256 = Field(
        default="", description="SHA-256 over all that decides on the bundle's files alone"
    )
    contents: Contents | None = Field(default=None, description="null: made by an older edgepack")
    differences: tuple[Difference, ...] = Field(
        default=(), description="parts that are others than in the release before"
    )
    update_refusal: str | None = Field(
        default=None,
        description="why new params alone do not do for the library before; empty: they do, as "
        "`edgepack update` makes them; null: that library computes the same",
    )
    warnings: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """``MODEL@DEVICE``."""
        return f"{self.model}@{self.device}"


class JointRecord(PackageRecord):
    """A package of a model for several devices."""

    model: ModelName
    devices: tuple[Name, ...]
    inputs: Sha256 = Field(description="SHA-256 over what it was made of")


class Index(_Record):
    """The root of release.json."""

    schema_version: Literal[1] = 1
    name: Name
    version: Word
    license: Line = ""
    authors: tuple[Line, ...] = ()
    homepage: Line = ""
    edgepack: Word = Field(description="version that made it")
    tools: dict[Word, Line] = Field(default={}, description="versions of the packages that took part")
    only: tuple[Line, ...] = Field(default=(), description="patterns; none: it is the whole project")
    against: OptionalWord = Field(default="", description="version of the release that it is compared with")
    units: Annotated[tuple[UnitRecord, ...], distinct("name"), distinct("bundle")]
    joint: tuple[JointRecord, ...] = Field(default=(), validate_default=True)

    @field_validator("joint")
    @classmethod
    def _other_files(cls, value: tuple[JointRecord, ...], info: ValidationInfo) -> tuple[JointRecord, ...]:
        units: tuple[UnitRecord, ...] = info.data.get("units", ())
        paths = [one.path for unit in units for one in unit.packages] + [one.path for one in value]
        if len(set(paths)) != len(paths):
            raise ValueError("two packages have the same path")
        return value

    def to_json(self) -> str:
        """The file's text."""
        data = self.model_dump(mode="json")
        return json.dumps(data, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

    def unit(self, name: str) -> UnitRecord | None:
        """The unit ``MODEL@DEVICE``, or None."""
        return next((unit for unit in self.units if unit.name == name), None)

    def packages_of(self, unit: UnitRecord) -> list[PackageRecord]:
        """The packages that a unit is in: its own, and those of its model for several devices."""
        shared = [one for one in self.joint if one.model == unit.model and unit.device in one.devices]
        return [*unit.packages, *shared]


def load_index(path: Path) -> Index:
    """The release in a folder, or of a ``release.json``.

    Raises:
        ConfigError: as of :func:`edgepack.bundle.records.read_versioned`.
    """
    return read_versioned(
        path / INDEX if path.is_dir() else path,
        Index,
        1,
        again="Give the folder of a release, or make the release again.",
        maker="Use the edgepack that made the release.",
    )


def json_schema() -> str:
    """The JSON schema of release.json, as ``release.schema.json`` holds it."""
    return model_schema(Index)


if __name__ == "__main__":
    SCHEMA_FILE.write_text(json_schema(), encoding="utf-8", newline="\n")
