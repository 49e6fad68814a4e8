"""From what ``doctor`` found missing to the fewest commands that get it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from edgepack.commands.doctor import Diagnosis

__all__ = ["install_commands", "missing"]

#: Commands that install, as hints write them: up to a comma, a bracket, a semicolon or the sentence's end.
_COMMAND = re.compile(
    r"(?<!\S)(apt-get install|apt install|sdkmanager|\S*python\S* -m pip install|xcode-select)"
    r"((?: (?:'[^']+'|[^\s,;(]+))+)"
)


def missing(found: Sequence[Diagnosis], *, runner: bool = False) -> list[Diagnosis]:
    """What a device needs and does not have here: the toolchain that it names; its runner, if no other
    one can run its programs either, or it is the one that was asked for (``runner``)."""
    runs = not runner and any(d.ok for d in found if d.kind == "runner")
    return [d for d in found if d.chosen and not d.ok and not (d.kind == "runner" and runs)]


def install_commands(lacking: Sequence[Diagnosis]) -> list[str]:
    """The fewest commands that get all of it: what one installer has is got by one command."""
    offers = [dict(_offered(d.hint)) for d in lacking]
    chosen: dict[str, list[str]] = {}
    for offer in filter(None, offers):
        installer = max(offer, key=lambda name: sum(name in other for other in offers))
        chosen.setdefault(installer, [])
        chosen[installer] += [part for part in offer[installer] if part not in chosen[installer]]
    return [f"{installer} {' '.join(packages)}" for installer, packages in chosen.items()]


def _offered(hint: str) -> list[tuple[str, list[str]]]:
    """Installers that a hint names, and what each is to install."""
    return [
        (
            match[1].replace("apt install", "apt-get install"),
            re.findall(r"'[^']+'|\S+", match[2].rstrip(".")),
        )
        for match in reversed(list(_COMMAND.finditer(hint)))  # the first of an installer is kept
    ]
