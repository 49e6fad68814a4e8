"""Says which models changed although the release's version did not: who has it cannot tell the two apart."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.release.index import Index, load_index
from edgepack.text.spelling import spelled

__all__ = ["changed_models", "published_index"]

#: Digits of a digest that a message has.
_DIGITS = 12


def published_index(output: Path) -> Index | None:
    """What stands in the folder, whoever made it: it is compared with, nothing of it is taken over."""
    with suppress(ConfigError):
        return load_index(output)
    return None


def changed_models(now: Index, before: Iterable[Index | None]) -> tuple[str, ...]:
    """A warning, where models of this release differ from those of the same names in others of its version.

    Args:
        before: the releases to compare with.
    """
    changed: dict[str, str] = {}
    for old in before:
        if old is None or (old.name, old.version) != (now.name, now.version):
            continue
        for unit in now.units:
            was = old.unit(unit.name)
            if was is not None and was.model_sha256 != unit.model_sha256:
                digests = f"{was.model_sha256[:_DIGITS]} before, {unit.model_sha256[:_DIGITS]} now"
                changed.setdefault(unit.model, f"{unit.model} (SHA-256 {digests})")
    if not changed:
        return ()
    one = len(changed) == 1
    text = (
        f"{now.name} {now.version} was released before with {'another model' if one else 'other models'}: "
        f"{', '.join(changed.values())}; raise `version` in the project file, or give --allow-same-version."
    )
    return (spelled(text),)
