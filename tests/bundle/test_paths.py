"""What a bundle names lies in the bundle, whoever wrote it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import edgepack
import edgepack.runners.verify
from edgepack.bundle.paths import inside
from edgepack.errors import ConfigError


def test_a_link_within_the_bundle_is_followed_one_out_of_it_is_not(tmp_path: Path) -> None:
    root = tmp_path / "bundle"
    (root / "lib").mkdir(parents=True)
    (root / "lib" / "a").write_text("a")
    (root / "near").symlink_to("lib/a")
    (root / "far").symlink_to(tmp_path)
    (root / "circle").symlink_to("circle")
    assert inside(root, "near").read_text() == "a"
    for path in ("far", "far/bundle/../secret", "circle/a"):
        with pytest.raises(ConfigError, match="does not lie in it"):
            inside(root, path)


@pytest.mark.parametrize("kind", ["shared", "program"])
def test_nothing_outside_of_a_bundle_is_loaded_or_run(
    kind: str, small_bundle: edgepack.Bundle, tmp_path: Path
) -> None:
    root = shutil.copytree(small_bundle.path, tmp_path / "copy")
    artifact = small_bundle.manifest.artifact(kind)
    assert artifact is not None
    shutil.move(root / artifact.path, tmp_path / "evil")
    (root / artifact.path).symlink_to(tmp_path / "evil")
    with pytest.raises(ConfigError, match="does not lie in it"):
        if kind == "shared":
            edgepack.load(root)
        else:
            edgepack.runners.verify.verify(root, small_bundle.manifest)  # without the sums, which find it too
