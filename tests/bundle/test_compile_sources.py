"""C files that all bundles for a device have in common are compiled once, those of a model once for it."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

import edgepack.pipeline.cache
from edgepack.api import pack
from edgepack.bundle.compile_sources import included_files
from edgepack.pipeline.cache import objects_key
from edgepack.system.files import list_files
from edgepack.toolchains.base import Toolchain
from tests.support import fake

#: Includes the model's header.
OF_MODEL = {"model.c", "main.c"}


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files that packs of this process compile; the cache knows none of them."""
    fake.install("ok", monkeypatch.setattr)
    digest, salt = edgepack.pipeline.cache.source_digest, secrets.token_hex()
    monkeypatch.setattr(edgepack.pipeline.cache, "source_digest", lambda *of: digest(*of) + salt)
    names: list[str] = []
    compile_c = Toolchain.compile_c

    def spy(self: Toolchain, source: Path, *arguments: Any, **options: Any) -> None:
        names.append(source.name)
        compile_c(self, source, *arguments, **options)

    monkeypatch.setattr(Toolchain, "compile_c", spy)
    return names


def test_another_model_compiles_only_what_is_its_own(
    small_model: Path, compiled: list[str], tmp_path: Path
) -> None:
    first = pack(small_model, "host", tmp_path / "first")
    assert {*compiled} > OF_MODEL
    compiled.clear()
    pack(small_model, "host", tmp_path / "other", name="other")
    assert {*compiled} == OF_MODEL
    compiled.clear()
    again = pack(small_model, "host", tmp_path / "again")
    assert compiled == []
    pack(small_model, "host", tmp_path / "embedded", params="embed")
    assert {*compiled} == OF_MODEL  # its params are in it, which are no C
    compiled.clear()
    anew = pack(small_model, "host", tmp_path / "anew", cache=False)
    assert {*compiled} > OF_MODEL
    for name in list_files(first.path):
        assert (first.path / name).read_bytes() == (anew.path / name).read_bytes(), name
        assert (again.path / name).read_bytes() == (anew.path / name).read_bytes(), name


def test_a_compiler_with_the_systems_headers_compiles_all(
    small_model: Path, compiled: list[str], tmp_path: Path
) -> None:
    board = tmp_path / "board.yaml"
    board.write_text('extends: host\naudit: {glibc: "2.99", needed: ["*"]}\n', encoding="utf-8")
    for number in range(2):
        compiled.clear()
        pack(small_model, str(board), tmp_path / str(number), toolchain="gcc")
        assert {*compiled} > OF_MODEL


def test_included_files_are_found_beside_a_file_and_in_the_folders(tmp_path: Path) -> None:
    texts = {
        "src/a.c": '#include "near.h"\n  #  include <far/one.h>\n#include <stdint.h>\n',
        "src/near.h": '#ifdef NEVER\n#include "../other.h"\n#endif\n',
        "include/far/one.h": '#include "two.h"\n',
        "include/far/two.h": '#include "one.h"\n',
        "include/far/three.h": "",
        "other.h": "",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = included_files("src/a.c", tmp_path, ["include"])
    assert set(found) == texts.keys() - {"include/far/three.h"}
    (tmp_path / "other.h").write_text("int x;", encoding="utf-8")
    changed = included_files("src/a.c", tmp_path, ["include"])
    assert {name for name in found if found[name] != changed[name]} == {"other.h"}
    keys = [objects_key("zig 1", ["cc"], {"src/a.c": files}) for files in (found, changed)]
    keys += [
        objects_key("zig 2", ["cc"], {"src/a.c": found}),
        objects_key("zig 1", ["cc", "-g"], {"src/a.c": found}),
    ]
    assert len(set(keys)) == 4
