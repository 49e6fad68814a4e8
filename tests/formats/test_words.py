"""A manifest of somebody else: no name in it leads a format astray."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edgepack.api import Bundle, export
from edgepack.errors import ConfigError
from edgepack.registry import EXPORT_FORMATS
from tests.formats.bundles import altered


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.update(name="../evil"),
        lambda m: m.update(name="class"),
        lambda m: m.update(symbol="x; evil()"),
        lambda m: m.update(edgepack="1.0\nEvil: yes"),
        lambda m: m["device"].update(name="../evil"),
        lambda m: m["device"].update(name="a\nb"),
        lambda m: m["device"].update(triple="x y"),
        lambda m: m["inputs"][0].update(dtype="float32]; evil"),
        lambda m: m["outputs"][0].update(shape=[-1]),
        lambda m: m["artifacts"][0].update(path="lib/other.so"),
        lambda m: m["params"].update(file="manifest.json"),
    ],
)
def test_names_that_edgepack_does_not_write_are_refused(
    change: Callable[[dict[str, Any]], None], small_bundle: Bundle, tmp_path: Path
) -> None:
    bundle = altered(small_bundle, tmp_path / "bundle", change)
    with pytest.raises(ConfigError, match=r"that edgepack does not write|manifest\.json: field "):
        export(bundle, EXPORT_FORMATS.names(), tmp_path / "dist")
    assert not (tmp_path / "dist").exists()
