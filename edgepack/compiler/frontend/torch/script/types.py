"""The types that TorchScript's printer writes: read, checked against the classes that an archive defines, and
written again."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ANY", "Definition", "Refused", "Type", "dotted", "read_type", "type_of_text"]


class Refused(Exception):  # noqa: N818 (it becomes a ModelError, with the archive's name)
    """What was found in an archive, after "it holds"; with its place where there is one."""

    def __init__(self, what: str, line: int | None = None) -> None:
        super().__init__(what)
        self.line = line


@dataclass(frozen=True)
class Type:
    """A type, and what it is made of: ``Dict[str, Tensor]``; a class of the archive by its whole name."""

    name: str
    parts: tuple[Type, ...] = ()

    def __str__(self) -> str:
        if self.name == "Tuple" and not self.parts:
            return "Tuple[()]"
        return f"{self.name}[{', '.join(map(str, self.parts))}]" if self.parts else self.name

    def holds_structure(self) -> bool:
        """Whether a value of it is taken apart by position (a tuple, an object): PyTorch's interpreter trusts
        its type there."""
        return (
            self.name in {"Tuple", "tuple"}
            or self.name.startswith("__torch__")
            or any(one.holds_structure() for one in self.parts)
        )


@dataclass
class Definition:
    """What a file of an archive's code defines: a function, or a class with what belongs to it."""

    kind: str  # "function", "class", "Module", "NamedTuple", "Interface", "ModuleInterface", "Enum"
    tree: ast.FunctionDef | ast.ClassDef
    file: str = ""
    attributes: dict[str, Type] = field(default_factory=dict)
    #: Names of constants, and of an enumeration's members.
    constants: set[str] = field(default_factory=set)
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)


ANY = Type("Any")

#: Of how many parts a type is; None: any number.
_MADE_OF: dict[str, int | None] = {"Optional": 1, "List": 1, "Dict": 2, "Tuple": None, "Union": None}
_SIMPLE = {
    *("Tensor", "int", "float", "bool", "str", "complex", "number", "Device", "NoneType", "Any"),
    *("list", "tuple"),  # what isinstance asks for
}
_MOST_TEXT = 10_000


def dotted(node: ast.expr) -> str | None:
    """``a.b.c`` of names alone; None for another expression."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(names)])


def read_type(node: ast.expr, defined: Mapping[str, Definition]) -> Type:
    """A type of an archive's code.

    Raises:
        Refused: it is none, or of a class that the archive does not define.
    """
    if isinstance(node, ast.Constant) and node.value is None:
        return Type("NoneType")
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        most = _MADE_OF.get(node.value.id, 0)
        if most is None or most == len(inner):
            return Type(node.value.id, tuple(read_type(one, defined) for one in inner))
    name = dotted(node)
    if name in _SIMPLE:
        return Type(name)
    if name is not None and name.startswith("__torch__."):
        if name.startswith("__torch__.torch.classes."):
            raise Refused(
                f"the class {name.removeprefix('__torch__.torch.classes.')!r:.80}, which is PyTorch's own in "
                "C++ (eager-mode quantisation has such)",
                node.lineno,
            )
        if name in defined and defined[name].kind != "function":
            return Type(name)
        raise Refused(f"the type {name!r:.80}, which it does not define", node.lineno)
    raise Refused(f"the type {ast.unparse(node)!r:.80}, which is none of tensors and numbers", node.lineno)


def type_of_text(text: str, defined: Mapping[str, Definition]) -> Type:
    """A type that stands in a pickle as text. Raises Refused as :func:`read_type` does."""
    if len(text) > _MOST_TEXT or not text.isascii() or not text.isprintable():
        raise Refused("a type that is no type")
    try:
        return read_type(ast.parse(text, mode="eval").body, defined)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise Refused(f"the type {text!r:.80}, which is none") from None
