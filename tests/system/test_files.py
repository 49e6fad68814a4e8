"""Digests of files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from edgepack.system.files import combined_digest, list_files, sha256_file


def test_a_digest_is_that_of_the_contents_in_their_order(tmp_path: Path) -> None:
    for name, content in (("a", b"1"), ("b", b"2"), ("c", b"1")):
        (tmp_path / name).write_bytes(content)
    a, b, c = (tmp_path / name for name in "abc")
    assert combined_digest([a, b]) == combined_digest([c, b])
    assert len({combined_digest(files) for files in ([a], [b], [a, b], [b, a], [a, c])}) == 5


def test_files_are_listed_alike_everywhere(tmp_path: Path) -> None:
    for name in ("b/x", "B", "a", "b/é"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    assert list_files(tmp_path) == ["B", "a", "b/x", "b/é"]
    assert sha256_file(tmp_path / "a") == "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="has no pipes with names")
def test_a_digest_waits_for_no_pipe_and_no_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="not a regular file"):
            sha256_file(path)
