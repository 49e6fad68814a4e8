"""A model's tensors and a package's texts as sources of other languages spell them.

Names of tensors are any text, so each becomes an identifier of the language, no two alike and none a keyword;
the text itself stands only in string literals and, made harmless, in comments.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from edgepack.bundle.manifest import Manifest, QuantisationRecord, Tensor
from edgepack.errors import ConfigError
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.render.names import c_identifier

__all__ = [
    "Argument",
    "argument_lists",
    "package_name",
    "quoted",
    "snake_case",
]

#: Characters of an identifier, without the number that tells two apart.
_LONGEST = 60


@dataclass(frozen=True)
class Argument:
    """A tensor as an argument of a generated function.

    Attributes:
        index: among the inputs, or among the outputs.
        name: in the model: any text.
        identifier: in the language.
        element: type of an element in the language; float16 and bfloat16 are their bits, bool is a byte.
        elements: how many there are.
        dtype: in the model.
        shape: row-major.
        quantisation: what its integers mean.
    """

    index: int
    name: str
    identifier: str
    element: str
    elements: int
    dtype: str
    shape: tuple[int, ...]
    quantisation: QuantisationRecord | None = None


def argument_lists(
    manifest: Manifest,
    types: Mapping[str, str],
    keywords: Collection[str],
    taken: Collection[str] = (),
) -> tuple[list[Argument], list[Argument]]:
    """The model's inputs and outputs as arguments of one function, with identifiers in lower case.

    Args:
        types: the language's type of an element, by dtype.
        keywords: what cannot be an identifier there; such a name gets an underscore.
        taken: identifiers that are already used where these will stand.
    """
    used = set(taken)
    inputs = [_argument(index, one, types, keywords, used) for index, one in enumerate(manifest.inputs)]
    outputs = [_argument(index, one, types, keywords, used) for index, one in enumerate(manifest.outputs)]
    return inputs, outputs


def _argument(
    index: int, tensor: Tensor, types: Mapping[str, str], keywords: Collection[str], used: set[str]
) -> Argument:
    base = snake_case(tensor.name)[:_LONGEST].rstrip("_")
    candidate, count = f"{base}_" if base in keywords else base, 1
    while candidate in used or candidate in keywords:
        count += 1
        candidate = f"{base}_{count}"
    used.add(candidate)
    elements = tensor.nbytes // DTYPE_BYTES[tensor.dtype]
    kind = types[tensor.dtype]
    return Argument(
        index, tensor.name, candidate, kind, elements, tensor.dtype, tensor.shape, tensor.quantisation
    )


def snake_case(name: str) -> str:
    """An ASCII identifier in lower case: ``Input:0`` gives ``input_0``; never empty."""
    return c_identifier(name).lower()


def quoted(text: str, four: str = "\\u{:04x}", eight: str = "\\U{:08x}") -> str:
    r"""A literal in double quotes of ASCII alone.

    Args:
        four, eight: the language's escape for a character by its number, up to U+FFFF and above. Characters
            that a control character or a quote stand for are escaped by it too, but for ``\"`` and ``\\``.
    """
    out = []
    for char in text:
        code = ord(char)
        if char in '"\\':
            out.append("\\" + char)
        elif 0x20 <= code < 0x7F:
            out.append(char)
        else:
            out.append((four if code < 0x10000 else eight).format(code))
    return f'"{"".join(out)}"'


def package_name(given: str, default: str, pattern: str, what: str) -> str:
    """The package's name in an ecosystem: the caller's, or one made of the model's.

    Args:
        pattern: regular expression of the ecosystem's names.
        what: an ecosystem's package with its rule (``a crate: letters, digits, - and _``).

    Raises:
        ConfigError: the caller's name is none there.
    """
    name = given or default
    if not re.fullmatch(pattern, name):
        kind, _, rule = what.partition(": ")
        raise ConfigError(f"{name!r} is no name of {kind}.", hint=f"Allowed: {rule}.")
    return name
