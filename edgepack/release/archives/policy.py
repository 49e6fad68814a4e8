"""What all readers of archives share: how deep, how many, how much, and what a refusal says."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.errors import CheckFailedError

__all__ = ["CHUNK", "Budget", "Where"]

#: Bytes that are read at a time; a multiple of tar's blocks.
CHUNK = 1 << 20
#: Archives and compressed streams inside each other.
_DEEPEST = 8
_MOST_ENTRIES = 100_000
#: What leaves the decompressors may be so many times an archive's bytes, and this on top.
_RATIO, _FREE = 100, 64 << 20


class Budget:
    """How much may still come out of a file, the archives in it counted too.

    Args:
        name: the file's.
        nbytes: its size.
    """

    def __init__(self, name: str, nbytes: int) -> None:
        self._name, self._bytes, self._entries = name, _FREE + _RATIO * nbytes, _MOST_ENTRIES

    def entry(self) -> None:
        """One entry more, or one folder that an entry's name implies."""
        self._entries -= 1
        if self._entries < 0:
            raise _unsafe(self._name, f"it has more than {_MOST_ENTRIES} entries and folders")

    def room(self, entries: int) -> None:
        """Refuses the archive if so many more entries are too many."""
        if entries > self._entries:
            raise _unsafe(self._name, f"it has more than {_MOST_ENTRIES} entries and folders")

    def most(self) -> int:
        """Bytes that a decompressor may hand out at once: enough to see that there is too much."""
        return min(CHUNK, self._bytes + 1)

    def take(self, nbytes: int) -> None:
        """Counts bytes that left a decompressor, and refuses the archive if they are too many."""
        self._bytes -= nbytes
        if self._bytes < 0:
            raise _unsafe(self._name, f"it unpacks to more than {_RATIO} times its size")


@dataclass(frozen=True)
class Where:
    """An archive that is being read.

    Attributes:
        name: what messages call it.
        budget: of the file that it lies in.
        depth: how many archives and compressed streams lie around it.
        top: whether no archive does.
    """

    name: str
    budget: Budget
    depth: int = 0
    top: bool = True

    def inside(self, name: str) -> Where:
        """An entry of it, which may be an archive; what a compressed stream holds has no name.

        Raises:
            CheckFailedError: there are too many around it.
        """
        if self.depth >= _DEEPEST:
            raise self.unsafe(f"it has archives inside each other, more than {_DEEPEST} deep")
        shown = f"{name} in {self.name}" if name else self.name
        return Where(shown, self.budget, self.depth + 1, self.top and not name)

    def unsafe(self, why: str) -> CheckFailedError:
        """The error that says why it is not to be unpacked."""
        return _unsafe(self.name, why)

    def differs(self, why: str) -> CheckFailedError:
        """The error for what two tools read differently, or for what no ordinary tool writes."""
        return _unsafe(self.name, f"tools unpack it differently: {why}")


def _unsafe(name: str, why: str) -> CheckFailedError:
    return CheckFailedError(f"{name} is not safe to unpack: {why}.", hint="Do not unpack it.")
