"""The entries of one archive in their places: none in another's, none behind a link, no link out."""

from __future__ import annotations

from typing import Literal

from edgepack.errors import CheckFailedError
from edgepack.release.archives.names import key_of, wrong_with
from edgepack.release.archives.policy import Where

__all__ = ["Kind", "Tree", "wrong_mode"]

Kind = Literal["file", "folder", "link"]
#: Links that lead to links, before it is a circle: Linux's number; and parts of paths, over all links.
_MOST_LINKS, _MOST_STEPS = 40, 1_000_000
#: setuid, setgid, and writing for all.
_WRONG_MODE = 0o6002


def wrong_mode(mode: int, name: str, where: Where) -> CheckFailedError | None:
    """The error for an entry's permissions that no file should get; None where they are good."""
    if mode & _WRONG_MODE:
        return where.unsafe(f"{name!r} would run as another user or group, or be anybody's to write")
    return None


class _Node:
    """A place below the archive's folder."""

    __slots__ = ("children", "kind", "name", "parent", "said", "target")

    def __init__(self, name: str, kind: Kind, parent: _Node | None, said: bool) -> None:
        self.name, self.kind, self.parent, self.said = name, kind, parent, said
        self.children: dict[str, _Node] = {}
        self.target = ""

    def path(self) -> str:
        return (
            self.name if self.parent is None or not self.parent.name else f"{self.parent.path()}/{self.name}"
        )


class Tree:
    """Takes the entries of an archive in their order; then :meth:`end`."""

    def __init__(self, where: Where) -> None:
        self._where = where
        self._root = _Node("", "folder", None, False)
        self._links: list[_Node] = []
        self._steps = 0

    def add(self, name: str, kind: Kind, target: str = "") -> None:
        """An entry.

        Args:
            name: its path, for a folder with or without ``/`` at its end; ``./`` at the begin says nothing.
            kind: what it is.
            target: where a link leads to.

        Raises:
            CheckFailedError: the name is not one that every system has, or its place is taken.
        """
        plain = name.removeprefix("./")
        plain = plain.removesuffix("/") if kind == "folder" else plain
        if plain in ("", "."):
            if kind != "folder" or self._root.said:
                raise self._where.unsafe(f"the entry {name!r} takes the place of its folder")
            self._root.said = True
            return
        if why := wrong_with(plain):
            raise self._where.unsafe(f"the entry {name[:100]!r} {why}")
        *folders, last = plain.split("/")
        here = self._root
        for part in folders:
            here = self._folder(here, part, plain)
        self._take(here, last, kind, plain)
        if kind == "link":
            node = here.children[key_of(last)]
            node.target = target
            self._links.append(node)

    def _folder(self, here: _Node, part: str, entry: str) -> _Node:
        found = here.children.get(key_of(part))
        if found is None:
            self._where.budget.entry()
            found = here.children[key_of(part)] = _Node(part, "folder", here, False)
        if found.kind != "folder":
            raise self._where.unsafe(f"{entry!r} lies in {found.path()!r}, which is no folder")
        if found.name != part:
            raise self._where.unsafe(f"two entries take the place {found.path()!r}")
        return found

    def _take(self, here: _Node, part: str, kind: Kind, entry: str) -> None:
        found = here.children.get(key_of(part))
        if found is None:
            self._where.budget.entry()
            here.children[key_of(part)] = _Node(part, kind, here, True)
        elif kind != "folder" or found.kind != "folder" or found.said or found.name != part:
            raise self._where.unsafe(f"two entries take the place {entry!r}")
        else:
            found.said = True

    def end(self) -> None:
        """All entries were added.

        Raises:
            CheckFailedError: a link leads out, by way of the others too, or in a circle.
        """
        for link in self._links:
            self._follow(link)

    def _follow(self, link: _Node) -> None:
        """Walk to where a link leads, as a system does when everything is unpacked."""
        assert link.parent is not None
        here, followed = link.parent, 0
        left = self._parts(link)
        while left:
            self._steps += 1
            if self._steps > _MOST_STEPS:
                raise self._where.unsafe("its links take too long to follow")
            part = left.pop()
            if part == ".":
                continue
            if part == "..":
                if here.parent is None:
                    raise self._out(link)
                here = here.parent
                continue
            found = here.children.get(key_of(part))
            if found is None:
                if ".." in left:
                    raise self._where.unsafe(
                        f"the link {link.path()!r} leads through {part!r}, which is not in it"
                    )
                return
            if found.kind == "link":
                followed += 1
                if followed > _MOST_LINKS:
                    raise self._where.unsafe(f"the link {link.path()!r} leads in a circle")
                left += self._parts(found)
            elif found.kind == "file" and left:
                raise self._where.unsafe(f"the link {link.path()!r} leads through {found.path()!r}, a file")
            elif found.kind == "folder":
                here = found

    def _parts(self, link: _Node) -> list[str]:
        """The parts of a link's target, the last first."""
        target = link.target
        parts = target.split("/")
        if not target or target.startswith("/") or "\\" in target:
            raise self._out(link)
        named = "/".join(part for part in parts if part not in (".", ".."))
        if "" in parts or (named and wrong_with(named)):
            raise self._where.unsafe(
                f"the link {link.path()!r} leads to {target[:100]!r}, which is no plain path"
            )
        return parts[::-1]

    def _out(self, link: _Node) -> CheckFailedError:
        return self._where.unsafe(f"the link {link.path()!r} leads out, to {link.target[:100]!r}")
