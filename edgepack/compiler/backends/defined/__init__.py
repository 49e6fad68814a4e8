"""Makes every operation of a kernel defined, whatever numbers it meets: the last pass before LLVM."""

from edgepack.compiler.backends.defined.function import defined

__all__ = ["defined"]
