"""Custom operators in YAML: what a user's C computes. docs/custom-operators.md has all fields."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import Field, field_validator

from edgepack.config.document import read
from edgepack.config.models import Frozen
from edgepack.config.validate import validate
from edgepack.errors import ConfigError
from edgepack.plan.custom import CustomOperator, CustomOutput
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.system.files import is_file

__all__ = ["load_custom"]


#: Characters of the name of a C file.
_LONGEST_FILE_NAME = 200


class _Output(Frozen):
    shape: str | tuple[str | int, ...] = Field(
        default="inputs[0]", description="Expression, or a list of them."
    )
    dtype: str = Field(default="inputs[0]", description="Name, or that of an input.")

    @field_validator("dtype")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in DTYPE_BYTES and not re.fullmatch(r"inputs\[\d+\]", value):
            raise ValueError(f"must be one of {', '.join(DTYPE_BYTES)}, or inputs[0] for that of an input")
        return value


class _Operator(Frozen):
    operator: str = Field(description="The nodes' op_type.")
    domain: str = Field(default="", description="The nodes' domain.")
    symbol: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=300, description="C function.")
    source: str = Field(description="Its C file, relative to this one.")
    outputs: tuple[_Output, ...] = Field(default=(_Output(),), min_length=1, description="In order.")
    arguments: tuple[str | int | float, ...] = Field(default=(), description="Numbers behind the pointers.")
    reference: str = Field(
        default="", pattern=r"^$|^.+\.py(:\w+)?$", description="Python file, and a function of it."
    )

    @field_validator("source")
    @classmethod
    def _can_be_included(cls, value: str) -> str:
        """C's #include has the file's name as it is."""
        name = Path(value).name
        if not name or not name.isprintable() or re.search(r'["\\]', name) or len(name) > _LONGEST_FILE_NAME:
            raise ValueError("must be the path of a C file, whose name has no quotes and is one line")
        return value


class _File(Frozen):
    operators: tuple[_Operator, ...] = Field(min_length=1)


def load_custom(path: Path) -> tuple[CustomOperator, ...]:
    """The operators that a YAML file declares; paths in it are relative to it.

    Raises:
        ConfigError: the file cannot be read, what is wrong in it, with its line, or a file that it names is
            missing.
    """
    document = read(path)
    operators = validate(_File, document).operators
    found = []
    for index, one in enumerate(operators):
        source = path.parent / one.source
        file, _, function = one.reference.partition(":")
        reference = path.parent / file if file else None
        for key, needed in (("source", source), ("reference", reference)):
            if needed is not None and not is_file(needed):
                where = document.origin(("operators", index, key))
                raise ConfigError(f"{where}: {key}: there is no file {needed}", hint="Check the path.")
        found.append(
            CustomOperator(
                domain=one.domain,
                operator=one.operator,
                symbol=one.symbol,
                source=str(source.absolute()),
                outputs=tuple(_output(output) for output in one.outputs),
                arguments=tuple(str(argument) for argument in one.arguments),
                reference=str(reference.absolute()) if reference is not None else "",
                function=function or one.symbol,
            )
        )
    return tuple(found)


def _output(one: _Output) -> CustomOutput:
    shape = one.shape if isinstance(one.shape, str) else tuple(str(extent) for extent in one.shape)
    return CustomOutput(shape, one.dtype)
