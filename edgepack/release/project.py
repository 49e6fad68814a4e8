"""The project file, ``edgepack.yaml``: which models a release holds, for which devices, as which packages.

What is wrong in it is a ConfigError with file, line and field. ``python -m edgepack.release.project`` writes
its JSON Schema again after a change of the models below; a test tells when it is due.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, field_validator, model_validator

from edgepack.bundle.layout import check_name
from edgepack.config.models import Frozen, Name, Size, Variable
from edgepack.config.schema import schema_text as config_schema
from edgepack.errors import ConfigError
from edgepack.formats.metadata import PackageMetadata
from edgepack.plan.gpu_target import Precision
from edgepack.plan.opt_level import OptLevel
from edgepack.plan.target import Optimize
from edgepack.plan.types import ParamsMode, WeightsDtype

__all__ = [
    "PROJECT_FILE",
    "SCHEMA_FILE",
    "Budgets",
    "Choices",
    "Matrix",
    "ModelEntry",
    "Override",
    "Project",
    "Signing",
    "package",
    "schema_text",
]

#: What a project file is called unless the user calls it otherwise.
PROJECT_FILE = "edgepack.yaml"
SCHEMA_FILE = Path(__file__).with_name("project.schema.json")

Count = Annotated[int, Field(ge=1)]


def _model_name(value: str) -> str:
    try:
        return check_name(value)
    except ConfigError as error:
        raise ValueError(error.message.removesuffix(".")) from None


ModelName = Annotated[str, AfterValidator(_model_name)]


class Budgets(Frozen):
    """What a bundle may take. A release in which one takes more is written all the same, and the command ends
    with exit code 1. In an override each holds instead of the one for all."""

    text: Size | None = Field(
        default=None, description="Machine code of the library (of firmware, of the program)."
    )
    params: Size | None = Field(default=None, description="Params.")
    arena: Size | None = Field(default=None, description="Arena of a session.")
    flash: Size | None = Field(default=None, description="Flash, of firmware.")
    ram: Size | None = Field(default=None, description="RAM, of firmware.")
    slower: float | None = Field(
        default=None,
        ge=0,
        le=1000,
        description="Percent that the median latency may be above that of `--against`, where both were "
        "measured (`--bench`) on the same runner and CPU.",
    )

    @field_validator("slower", mode="before")
    @classmethod
    def _whole_percents(cls, value: Any) -> Any:
        return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


class Choices(Frozen):
    """How a model is packed: the options of `edgepack pack` that may differ by device."""

    params: ParamsMode | None = Field(
        default=None, description="Where the parameters are. Default: what the device says."
    )
    optimize: Optimize | None = Field(
        default=None, description="What kernels are chosen for. Default: latency."
    )
    ram_budget: Size | None = Field(
        default=None, description="RAM that a microcontroller's model may take. Default: what the device has."
    )
    tuned: tuple[Annotated[str, Field(min_length=1)], ...] | None = Field(
        default=None,
        description="Files of schedules that were measured (docs/tuning.md); relative paths are meant from "
        "the project file.",
    )
    opt_level: OptLevel | None = Field(
        default=None, description="How much is done for speed, 0 to 3. Default: 3, everything."
    )
    strict_math: bool | None = Field(
        default=None,
        description="Neither Winograd, nor polynomials for libm's functions, nor zeros for denormals.",
    )
    strict_speed: bool | None = Field(
        default=None, description="Refuse a model that would be far slower than it could be."
    )
    weights: WeightsDtype | None = Field(default=None, description="`float16` stores them in half the space.")
    precision: Precision | None = Field(
        default=None,
        description="`fp16`: a GPU keeps tensors as float16, a CPU multiplies in it; `tf32`: NVIDIA's round "
        "the factors of products. Default: fp32.",
    )
    toolchain: str | None = Field(
        default=None, description="Name of a toolchain, or its YAML file. Default: the device's."
    )
    timeout: int | None = Field(
        default=None, ge=0, description="Seconds that a pack may take; 0 for no limit. Default: 600."
    )


class ModelEntry(Choices):
    """A model, and what is chosen for it on all devices."""

    path: str = Field(
        min_length=1, description="The model's file; relative paths are meant from the project file."
    )
    summary: str = Field(default="", description="What it does, in a line.")
    shapes: dict[str, tuple[Annotated[int, Field(ge=0)], ...]] = Field(
        default={}, description="By input: its shape, where the model leaves it open."
    )
    dims: dict[str, Annotated[int, Field(ge=0)]] = Field(
        default={}, description="By symbolic dimension: its value."
    )
    const: dict[str, int | float | bool | tuple[int | float | bool, ...]] = Field(
        default={}, description="By input: a number, or a list of them; the input becomes a constant."
    )
    inputs: dict[str, str] = Field(
        default={}, description="By input: a .npy file, recorded and verified with. The others are random."
    )
    expected: dict[str, str] = Field(
        default={},
        description="By output: a .npy file with what must come out, where nothing here can compute it.",
    )
    seed: int = Field(default=0, ge=0, description="Of random inputs.")
    cut_inputs: tuple[str, ...] = Field(
        default=(), description="Tensors that become inputs; what stands before them is left out."
    )
    cut_outputs: tuple[str, ...] = Field(default=(), description="Tensors that become the outputs.")
    custom: str = Field(
        default="",
        description="A YAML file that declares operators of your own C (docs/custom-operators.md).",
    )
    maxima: dict[str, Count] = Field(
        default={}, description="By result whose size the data decide: entries that there is room for."
    )
    max_constant_bytes: Count | None = Field(
        default=None, description="Bytes that constants which the model computes may take."
    )
    max_nodes: Count | None = Field(
        default=None, description="Nodes that it may have, functions and loops written out."
    )
    max_trips: Count | None = Field(
        default=None, description="Trips that a loop may make; where the data decide, a run fails beyond."
    )
    set_batch: Count | None = Field(
        default=None, description="Samples of a run, of a model with a fixed batch of 1."
    )


class Override(Choices):
    """What differs where a pattern matches; of several that do, the last one holds."""

    match: str = Field(
        min_length=1, description="Pattern of MODEL@DEVICE; `*` is any text, `?` any character."
    )
    formats: tuple[str, ...] | None = Field(
        default=None, description="Package formats. Default: what the device says."
    )
    budgets: Budgets = Field(default=Budgets(), description="Instead of those for all.")


class Matrix(Frozen):
    """Which models are built for which devices: patterns of MODEL@DEVICE."""

    include: tuple[str, ...] = Field(default=("*@*",), min_length=1, description="What is built.")
    exclude: tuple[str, ...] = Field(default=(), description="What of that is not.")
    overrides: tuple[Override, ...] = Field(default=(), description="What differs for some.")


class Signing(Frozen):
    """What SHA256SUMS is signed with. Keys lie in files or environment variables, never in this file."""

    key: str = Field(
        default="", description="File of the secret key; relative paths are meant from the project file."
    )
    key_env: Variable | Literal[""] = Field(
        default="", description="Environment variable that holds the secret key instead."
    )
    password_env: Variable | Literal[""] = Field(
        default="", description="Environment variable with the key's password."
    )

    @model_validator(mode="after")
    def _one_place(self) -> Signing:
        if bool(self.key) == bool(self.key_env):
            raise ValueError("give key (a file) or key_env (an environment variable), one of the two")
        return self


class Project(Frozen):
    """A project file's content."""

    name: Name = Field(description="Of the project; it names the release.")
    version: str = Field(
        description="Of the release: three numbers, and perhaps what comes before a release (`1.2.0-rc.1`)."
    )
    summary: str = Field(default="", description="What it is, in a line; a model's own summary comes first.")
    license: str = Field(default="", description="Of the models, an SPDX expression.")
    authors: tuple[str, ...] = Field(default=(), description="`Name <mail@example.org>` each.")
    homepage: str = Field(default="", description="An URL.")
    models: dict[ModelName, ModelEntry] = Field(
        min_length=1, description="By name, a C identifier: it names library, header and symbol."
    )
    devices: dict[Name, dict[str, Any] | None] = Field(
        min_length=1,
        description="By name: nothing for a device that is there (`edgepack devices`), or what differs from "
        "it, or from the one that it `extends`.",
    )
    matrix: Matrix = Matrix()
    budgets: Budgets = Budgets()
    signing: Signing | None = Field(default=None, description="Signs SHA256SUMS of the release.")

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Project:
        for what, names in (("models", self.models), ("devices", self.devices)):
            if same := _alike(names):
                raise ValueError(
                    f"{what}: {same[0]!r} and {same[1]!r} are the same name on some file systems"
                )
        package(self)
        return self


def package(project: Project) -> PackageMetadata:
    """What the packages of a project say about themselves. Raises ValueError for what no package can say."""
    made = PackageMetadata(
        version=project.version,
        summary=project.summary,
        license=project.license,
        authors=project.authors,
        homepage=project.homepage,
    )
    try:
        made.check()
    except ConfigError as error:
        raise ValueError(f"{_field_of(error, project)}: {error.message} {error.hint}") from None
    return made


def _field_of(error: ConfigError, project: Project) -> str:
    for name in ("version", "license", "homepage", "summary"):
        try:
            PackageMetadata(**{name: getattr(project, name)}).check()
        except ConfigError:
            return name
    return "authors"


def _alike(names: Iterable[str]) -> tuple[str, str] | None:
    """Two names that a file system may take for one: by case, or by how a character is composed."""
    seen: dict[str, str] = {}
    for name in names:
        plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())
        if plain in seen:
            return seen[plain], name
        seen[plain] = name
    return None


def schema_text() -> str:
    """The JSON Schema of the project file, for editors."""
    schema = Project.model_json_schema()
    device = json.loads(config_schema("device"))
    definitions = schema["$defs"] | device.pop("$defs")
    for key in ("$schema", "anyOf", "title"):
        device.pop(key, None)
    device["description"] = "What differs from the device that it extends, or from the one of this name."
    devices = schema["properties"]["devices"]
    (name,) = devices["patternProperties"]
    inline = {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/InlineDevice"}]}
    devices |= {"patternProperties": {name: inline}, "additionalProperties": False}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "edgepack project file",
        "$defs": definitions | {"InlineDevice": device},
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA_FILE.write_text(schema_text(), encoding="utf-8", newline="\n")
