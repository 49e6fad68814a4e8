"""A toolchain as TVM's ``export_library`` calls it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from edgepack.options import PathLike

__all__ = ["CrossCompiler"]


class CrossCompiler:
    """A function of the protocol that ``tvm.support.cc.cross_compiler`` makes one of, for ``fcompile``.

    Args:
        link: links objects to a library, with more options for the linker.
        output_format: suffix of the library, without the dot.
        triple: of what it links.

    Attributes:
        output_format: suffix of the library, without the dot.
        object_format: suffix of the objects that TVM is to write, without the dot.
    """

    object_format = "o"

    def __init__(
        self, link: Callable[[Sequence[Path], Path, Sequence[str]], None], output_format: str, triple: str
    ) -> None:
        self._link = link
        self._triple = triple
        self.output_format = output_format

    def __call__(
        self, output: PathLike, objects: PathLike | Sequence[PathLike], options: Sequence[str] | None = None
    ) -> None:
        """Link ``objects`` to the library ``output``; ToolchainError if that fails."""
        paths = [objects] if isinstance(objects, (str, os.PathLike)) else list(objects)
        self._link([Path(path) for path in paths], Path(output), list(options or ()))

    def get_target_triple(self) -> str:
        """LLVM triple of what it links."""
        return self._triple
